//! Steps of flows in a memory store.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_twice_works_at_the_third_attempt_after_delays_that_double() {
    let begun = tokio::time::Instant::now();
    let (tool, calls) = tool("flaky", |number, _| match number {
        3 => Ok(json!("done")),
        _ => Err("not yet".into()),
    });
    let definition = flow(
        &json!({"tools": {"flaky": {}}}),
        json!([{"tool": "flaky", "retry": 3}]),
    );
    let world = World::new(&definition, registry([tool]), no_model());

    let result = world.result_of(json!({})).await;

    assert_eq!(result["output"], "done");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let waited = begun.elapsed();
    assert!(waited >= 3 * SECOND && waited < 4 * SECOND, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_step_is_stopped_when_its_time_is_up_and_tried_again_only_if_its_tool_is_idempotent() {
    for (idempotent, expected) in [(true, 2), (false, 1)] {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let tool = json_tool("slow", "", json!({}), move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { std::future::pending().await }
        });
        let tool = if idempotent { tool.idempotent() } else { tool };
        let definition = flow(
            &json!({"tools": {"slow": {}}}),
            json!([{"tool": "slow", "timeout_seconds": 3, "retry": 2}]),
        );
        let world = World::new(&definition, registry([tool]), no_model());

        let result = world.result_of(json!({})).await;

        assert_eq!(result["status"], "error");
        assert_eq!(result["error"]["code"], "timed_out");
        assert_eq!(calls.load(Ordering::SeqCst), expected);
    }
}

#[tokio::test]
async fn three_branches_of_one_agent_with_three_inputs_give_three_right_results_in_order() {
    let model = ScriptedModel::answering(|_, request| {
        let shown = shown(request);
        let found = ["red", "green", "blue"]
            .into_iter()
            .find(|color| shown.contains(color));
        Ok(ChatResponse::new(format!("saw {}", found.unwrap())))
    });
    let definition = flow(
        &json!({"agents": {"painter": {"instruction": "Say what you see."}}}),
        json!([{"parallel": [
            {"agent": "painter", "input": "red"},
            {"agent": "painter", "input": "green"},
            {"agent": "painter", "input": "blue"},
        ]}]),
    );
    let world = World::new(&definition, ToolRegistry::default(), model);

    let result = world.result_of(json!({})).await;

    assert_eq!(
        result["output"],
        json!(["saw red", "saw green", "saw blue"])
    );
}

#[tokio::test(start_paused = true)]
async fn fail_fast_stops_the_other_branches() {
    let is_dropped = Arc::new(());
    let held = Arc::downgrade(&is_dropped);
    let slow = json_tool("slow", "", json!({}), move |_, _| {
        let held = Arc::clone(&is_dropped);
        async move {
            std::future::pending::<()>().await;
            drop(held);
            Ok(json!(1))
        }
    });
    let (broken, _) = tool("broken", |_, _| Err("no".into()));
    let definition = flow(
        &json!({"tools": {"slow": {}, "broken": {}}}),
        json!([{"parallel": [{"tool": "slow"}, {"tool": "broken"}], "join": "fail_fast"}]),
    );
    let world = World::new(&definition, registry([slow, broken]), no_model());

    let result = world.result_of(json!({})).await;

    assert_eq!(result["error"]["code"], "failed");
    assert_eq!(held.strong_count(), 1, "the call must be dropped");
    let cancelled = |(path, kind): &(String, FlowEventKind)| {
        path.starts_with("main/0/0") && *kind == FlowEventKind::Cancelled
    };
    assert!(world.flow_events().iter().any(cancelled));
}

#[tokio::test]
async fn a_loop_of_three_is_exhausted_after_three_iterations() {
    let (tool, calls) = tool("try", |number, _| Ok(json!(number)));
    let definition = flow(
        &json!({"tools": {"try": {}}}),
        json!([{"loop": [{"tool": "try"}], "max": 3, "until": {"path": "last", "op": "eq", "value": 9}}]),
    );
    let world = World::new(&definition, registry([tool]), no_model());

    world.result_of(json!({})).await;

    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let exhausted = FlowEventKind::LoopExhausted { iterations: 3 };
    assert!(
        world
            .flow_events()
            .iter()
            .any(|(_, kind)| *kind == exhausted)
    );
}

#[tokio::test]
async fn a_sub_flow_returns_a_value_and_does_not_end_the_main_flow() {
    let definition = json!({"flows": {
        "main": {"steps": [{"id": "r", "flow": "sub"}, {"return": {"sub": "${r}"}}]},
        "sub": {"steps": [{"return": "v"}]},
    }});
    let world = World::new(&definition, ToolRegistry::default(), no_model());

    let result = world.result_of(json!({})).await;

    assert_eq!(result["output"], json!({"sub": "v"}));
}

#[tokio::test]
async fn a_result_that_drifts_is_replaced_by_the_one_before() {
    let model = ScriptedModel::new(["fine", "**Drifting.**"]);
    let definition = flow(
        &json!({"models": {"m": {}}}),
        json!([
            {"id": "first", "model": "m", "input": "go"},
            {"model": "m", "input": "on", "escalate": [
                {"when": {"path": "result", "op": "matches", "value": "(?i)DRIFTING"}, "continue": "${first}"},
            ]},
        ]),
    );
    let world = World::new(&definition, ToolRegistry::default(), model);

    let result = world.result_of(json!({})).await;

    assert_eq!(result["output"], "fine");
}

#[cfg(feature = "validate")]
#[tokio::test]
async fn an_answer_that_is_invalid_twice_is_an_error_with_the_raw_text_and_the_repair_is_seen() {
    let model = ScriptedModel::new(["seven", "VII"]);
    let definition = flow(
        &json!({"models": {"m": {}}, "schemas": {"number": {"type": "integer"}}}),
        json!([{"model": "m", "input": "How many?", "output": "number"}]),
    );
    let world = World::new(&definition, ToolRegistry::default(), model);

    let result = world.result_of(json!({})).await;

    assert_eq!(result["error"]["code"], "bad_output");
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.contains("VII"), "{message}");
    assert_eq!(world.model.requests().len(), 2);
    let repaired = |event: &WorkloadEvent| matches!(event.kind, WorkloadEventKind::Repaired { .. });
    assert_eq!(
        world
            .recorded_events()
            .iter()
            .filter(|event| repaired(event))
            .count(),
        1
    );
}

#[cfg(feature = "validate")]
#[tokio::test]
async fn inputs_and_outputs_of_flows_are_held_to_their_schemas() {
    let definition = json!({
        "schemas": {"text": {"type": "string"}},
        "flows": {"main": {"input": "text", "output": "text", "steps": [{"return": {"said": "${input}"}}]}},
    });
    let refused = World::new(&definition, ToolRegistry::default(), no_model());
    let broken = World::new(&definition, ToolRegistry::default(), no_model());

    assert_eq!(
        refused.result_of(json!(7)).await["error"]["code"],
        "refused"
    );
    assert_eq!(
        broken.result_of(json!("hi")).await["error"]["code"],
        "bad_output"
    );
}

#[tokio::test]
async fn an_emitted_breadcrumb_is_stamped_as_part_of_the_run() {
    let definition = flow(
        &json!({}),
        json!([{"emit": {"schema_name": "note.v1", "title": "A note", "context": {"n": "${input.n}"}}}, {"return": "ok"}]),
    );
    let world = World::new(&definition, ToolRegistry::default(), no_model());

    let result = world.result_of(json!({"n": 3})).await;

    assert_eq!(result["output"], "ok");
    let note = world.store.latest("note.v1").await.unwrap().unwrap();
    assert_eq!(note.context["n"], 3);
    assert_eq!(note.context["creator"]["type"], "workflow");
}

#[tokio::test]
async fn events_are_numbered_without_gaps_and_name_the_run() {
    let (tool, _) = tool("work", |number, _| Ok(json!(number)));
    let definition = flow(
        &json!({"tools": {"work": {}}}),
        json!([{"parallel": [{"tool": "work"}, {"tool": "work"}]}]),
    );
    let world = World::new(&definition, registry([tool]), no_model());

    world.result_of(json!({})).await;

    let told = world.recorded_events();
    let numbers: Vec<u64> = told.iter().map(|event| event.sequence).collect();
    assert_eq!(numbers, (1..=told.len() as u64).collect::<Vec<_>>());
    assert!(told.iter().all(|event| event.run == told[0].run));
}

#[tokio::test]
async fn progress_is_written_if_the_request_enables_it() {
    let (tool, _) = tool("work", |number, _| Ok(json!(number)));
    let definition = flow(
        &json!({"tools": {"work": {}}}),
        json!([{"tool": "work"}, {"tool": "work"}]),
    );
    let world = World::new(&definition, registry([tool]), no_model());
    let request = json!({"workflow": ID, "progress": true});
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(request);
    let request = world.store.create(request).await.unwrap();

    world
        .executor
        .process_event(&Event::created(&request))
        .await
        .unwrap();

    let progress = world
        .store
        .recent("workflow.progress.v1", 10)
        .await
        .unwrap();
    let mut numbers: Vec<u64> = progress
        .iter()
        .flat_map(|one| one.context["events"].as_array().unwrap().clone())
        .map(|event| event["sequence"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    assert!(progress.len() > 1, "{progress:?}");
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
}

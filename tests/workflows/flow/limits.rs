//! Limits of a definition, and the end of a run whose state exceeds its limit.

use super::*;
use std::sync::OnceLock;
use universal_executor::agent::Part;
use universal_executor::workflow::{AssemblyError, WorkflowLimits};

#[test]
fn a_definition_that_asks_for_more_than_is_let_is_refused_with_the_limit_and_the_way_out() {
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    let assembled = |services: &Services, limit: &str, value: u64| {
        let definition = json!({
            "policies": {"limits": {limit: value}},
            "flows": {"main": {"steps": [{"return": 1}]}},
        });
        let workflow = Workflow::from_json(&definition).unwrap();
        Assembly::new(workflow, services, Arc::clone(&store))
    };
    let mut more = WorkflowLimits::default();
    (more.steps, more.items, more.value_bytes) = (20_000, 2_000, 1 << 20);
    more.total_bytes = 16 << 20;
    let (default, more) = (Services::new(), Services::new().limits(more));
    for (name, within, over) in [
        ("steps", 10_000, 20_000),
        ("items", 1_000, 2_000),
        ("value_bytes", 256 << 10, 1 << 20),
        ("total_bytes", 4 << 20, 16 << 20),
    ] {
        assert!(assembled(&default, name, within).is_ok());
        let refused = assembled(&default, name, over).unwrap_err();
        let AssemblyError::OverLimit { limit, found, most } = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((limit, found, most), (name, over, within));
        let said = refused.to_string();
        assert!(
            said.contains(&over.to_string()) && said.contains("Services::limits"),
            "{said}"
        );
        assert!(assembled(&more, name, over).is_ok());
    }
}

#[tokio::test]
async fn a_long_row_of_steps_that_do_nothing_lets_others_have_their_turn() {
    let steps =
        json!([{"loop": [{"set": {"n": "${iteration}"}}], "max": 9_000}, {"return": "${n}"}]);
    let world = World::new(
        &flow(&json!({}), steps),
        ToolRegistry::default(),
        no_model(),
    );
    let (result, turns) = with_turns_of_others(&world).await;

    assert_eq!(result["output"], 9_000);
    assert!(turns >= 30, "other tasks ran {turns} times");
}

#[tokio::test(start_paused = true)]
async fn a_long_row_of_steps_that_do_nothing_is_cancelled_by_an_order() {
    let steps = json!([{"loop": [{"set": {"n": "${iteration}"}}], "max": 9_000}]);
    let world = World::new(
        &flow(&json!({}), steps),
        ToolRegistry::default(),
        no_model(),
    );
    let request = world.request(json!({})).await;

    let event = Event::created(&request);
    let cancels = async {
        world.orders(Control::Cancel, &request).await;
        tokio::time::advance(2 * SECOND).await;
    };
    let (outcome, ()) = tokio::join!(world.executor.process_event(&event), cancels);

    outcome.unwrap();
    assert_eq!(world.result().await["status"], "cancelled");
}

/// Creates agents that read or write much if their input demands it. Their tool returns a page of the requested number of bytes.
fn readers(steps: Value) -> World {
    let page = json_tool("page", "A page.", json!({}), |input, _| async move {
        let bytes = usize::try_from(input["bytes"].as_u64().unwrap_or(0)).unwrap();
        Ok(json!("x".repeat(bytes)))
    });
    let model = ScriptedModel::answering(|_, request| {
        let said = shown(request);
        let results = request.messages.iter();
        let results = results
            .filter(|message| message.speaker == Speaker::Tool)
            .count();
        let call = ToolCall::new("1", "page", json!({"bytes": 60_000}));
        let mut calling = ChatResponse::calling(vec![call]);
        match results {
            0..9 if said.contains("talks much") => {
                calling.parts.insert(0, Part::Text("y".repeat(300_000)));
                Ok(calling)
            }
            0..6 if said.contains("reads much") => Ok(calling),
            _ => Ok(ChatResponse::new("read")),
        }
    });
    let more = json!({
        "tools": {"page": {}},
        "agents": {"reader": {"instruction": "Read.", "tools": ["page"]}},
    });
    let mut definition = flow(&more, steps);
    definition["flows"]["told"]["steps"] = json!([{"return": "${input}"}]);
    World::new(&definition, registry([page]), model)
}

#[tokio::test]
async fn the_step_that_exceeds_the_state_size_limit_fails_and_the_flow_continues() {
    let reader = |input: &str| {
        let error = json!({"code": "${error.code}", "message": "${error.message}"});
        let told = json!([{"flow": "told", "input": error}]);
        json!({"steps": [{"try": [{"agent": "reader", "input": input}], "on_failure": told}]})
    };
    let steps = json!([
        {"set": {"a": "x".repeat(240 << 10)}},
        {"set": {"b": "${a}", "c": "${a}"}},
        {"parallel": [reader("reads little"), reader("reads much"), reader("reads little")]},
    ]);
    let world = readers(steps);

    let result = world.result_of(json!({})).await;

    let output = &result["output"];
    assert_eq!(
        (&output[0], &output[2]),
        (&json!("read"), &json!("read")),
        "{result}"
    );
    assert_eq!(output[1]["code"], "too_large");
    let message = output[1]["message"].as_str().unwrap();
    assert!(message.contains("at most 1048576 are allowed"), "{message}");
    assert!(message.contains("policies.compaction"), "{message}");
}

#[tokio::test]
async fn an_agent_whose_own_conversation_is_too_large_fails_its_step_with_the_same_code() {
    let world = readers(json!([
        {"try": [{"agent": "reader", "input": "talks much"}], "on_failure": [{"return": "${error}"}]},
    ]));

    let result = world.result_of(json!({})).await;

    assert_eq!(result["output"]["code"], "too_large", "{result}");
}

#[tokio::test]
async fn a_run_with_too_large_variables_fails_with_a_size_error() {
    let set = |name: &str| json!({"set": {name: "${input.large}"}});
    let steps = json!([
        {"set": {"a": "x"}}, set("b"), set("c"), set("d"), set("e"), set("f"), {"tool": "page", "input": {"bytes": 1}},
    ]);
    let world = readers(steps);

    let result = world
        .result_of(json!({"large": "x".repeat(200 << 10)}))
        .await;

    assert_eq!(result["error"]["code"], "too_large", "{result}");
    assert_eq!(result["error"]["step"], "main/6");
}

#[cfg(feature = "validate")]
#[tokio::test]
async fn an_answer_of_an_asked_agent_that_nests_deep_is_not_the_end_of_the_run() {
    for depth in [40, 47, 59, 60, 61, 62, 63, 64] {
        let nested = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let model = ScriptedModel::answering(move |_, request| {
            let mut messages = request.messages.iter();
            let has_result = messages.any(|message| message.speaker == Speaker::Tool);
            let call = || ToolCall::new("1", "critic", json!({"prompt": "Is it good?"}));
            Ok(match (shown(request).contains("Criticise."), has_result) {
                (true, _) => ChatResponse::new(nested.clone()),
                (false, false) => ChatResponse::calling(vec![call()]),
                (false, true) => ChatResponse::new("ok"),
            })
        });
        let more = json!({"schemas": {"any": {}}, "agents": {
            "writer": {"instruction": "Write.", "use": ["critic"]},
            "critic": {"instruction": "Criticise.", "output": "any"},
        }});
        let steps = json!([{"agent": "writer"}]);
        let world = World::new(&flow(&more, steps), ToolRegistry::default(), model);

        let result = world.result_of(json!({})).await;

        assert_eq!(result["output"], "ok", "{depth} {result}");
    }
}

#[tokio::test]
async fn an_agent_message_nested_too_deeply_fails_its_step_and_not_the_run() {
    for depth in [30, 50, 53, 55, 57, 59, 61, 63] {
        let nested = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let nested: Value = serde_json::from_str(&nested).unwrap();
        let model = ScriptedModel::answering(move |number, _| {
            let call = ToolCall::new("1", "look", json!({"at": nested}));
            Ok(match number {
                0 => ChatResponse::calling(vec![call]),
                _ => ChatResponse::new("ok"),
            })
        });
        let (look, _) = tool("look", |_, _| Ok(json!("seen")));
        let more = json!({
            "tools": {"look": {}},
            "agents": {"reader": {"instruction": "Read.", "tools": ["look"]}},
        });
        let steps =
            json!([{"try": [{"agent": "reader"}], "on_failure": [{"return": "${error.code}"}]}]);
        let world = World::new(&flow(&more, steps), registry([look]), model);

        let result = world.result_of(json!({})).await;

        let output = &result["output"];
        assert!(output == "ok" || output == "too_large", "{depth} {result}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_without_free_space_reports_the_error_to_its_flow() {
    let paused: Arc<OnceLock<(MemoryStore, NewBreadcrumb)>> = Arc::default();
    let pausing = Arc::clone(&paused);
    let page = json_tool("page", "", json!({}), move |input, _| {
        let pausing = Arc::clone(&pausing);
        async move {
            if input["last"] == true {
                let (store, pause) = pausing.get().unwrap();
                store.create(pause.clone()).await.unwrap();
                // The run receives the pause order while the step runs.
                tokio::time::sleep(3 * SECOND).await;
            }
            Ok(json!("x".repeat(120 << 10)))
        }
    });
    let (small, calls) = tool("small", |_, _| Ok(json!("small")));
    let page_of = |id: &str, last: bool| json!({"id": id, "tool": "page", "input": {"last": last}});
    let mut steps: Vec<_> = ["a", "b", "c", "d", "e", "f"]
        .map(|id| page_of(id, false))
        .into();
    steps.push(page_of("g", true));
    steps.push(json!({"try": [{"tool": "small"}], "on_failure": [{"return": "${error.code}"}]}));
    let definition = flow(&json!({"tools": {"page": {}, "small": {}}}), json!(steps));
    let world = World::new(&definition, registry([page, small]), no_model());
    let request = world.request(json!({})).await;
    let pause = Control::Pause.of(request.id);
    paused.set((world.store.clone(), pause)).unwrap();

    let outcome = world
        .executor
        .process_event(&Event::created(&request))
        .await;

    assert!(
        matches!(outcome, Ok(Outcome::Responded { .. })),
        "{outcome:?}"
    );
    assert_eq!(world.result().await["output"], "too_large");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_ends_even_if_its_result_is_too_large_to_save() {
    let paused: Arc<OnceLock<(MemoryStore, NewBreadcrumb)>> = Arc::default();
    let pausing = Arc::clone(&paused);
    let page = json_tool("page", "", json!({}), move |_, _| {
        let pausing = Arc::clone(&pausing);
        async move {
            let (store, pause) = pausing.get().unwrap();
            store.create(pause.clone()).await.unwrap();
            // The run receives the pause order while the step runs.
            tokio::time::sleep(3 * SECOND).await;
            // Nine of these strings reach the maximum size of a value, so nothing else fits into the saved state.
            Ok(json!("x".repeat(116_485)))
        }
    });
    let more = json!({"policies": {"limits": {"value_bytes": 1 << 20}}, "tools": {"page": {}}});
    let pages: Vec<_> = [(); 9].map(|()| json!({"tool": "page"})).into();
    let definition = flow(&more, json!([{"parallel": pages}]));
    let mut limits = WorkflowLimits::default();
    limits.value_bytes = 1 << 20;
    let services = Services::new().tools(registry([page])).limits(limits);
    let world = World::with_services(&definition, &services, Arc::new(no_model()));
    let request = world.request(json!({})).await;
    let pause = Control::Pause.of(request.id);
    paused.set((world.store.clone(), pause)).unwrap();

    let event = Event::created(&request);
    let outcome = world.executor.process_event(&event).await;

    // The response does not fit either.
    assert!(matches!(outcome, Ok(Outcome::Failed { .. })), "{outcome:?}");
    assert_eq!(world.result().await["status"], "error");
}

//! The steps that a retried run repeats, and the steps that it never repeats.

use super::*;
use std::sync::atomic::AtomicBool;
use universal_executor::store::Operation;

/// Returns a tool whose first call never ends, and its call counter.
fn stuck_once(name: &str) -> (JsonTool, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let tool = json_tool(name, "", json!({}), move |_, _| {
        let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            if number == 1 {
                std::future::pending::<()>().await;
            }
            Ok(json!("done"))
        }
    });
    (tool.timeout(600 * SECOND), calls)
}

/// Processes a request with a worker that is lost. Another worker continues after the lease has expired.
async fn dies_and_is_followed(world: &World) -> Value {
    let request = world.request(json!({})).await;
    let event = Event::created(&request);
    let first = world.executor.process_event(&event);
    assert!(tokio::time::timeout(10 * SECOND, first).await.is_err());
    goes_on(&world.executor, &event).await.unwrap();
    world.result().await
}

#[tokio::test(start_paused = true)]
async fn a_call_interrupted_by_a_crash_follows_the_retry_safety_of_its_tool() {
    type Safety = fn(JsonTool) -> JsonTool;
    let safeties: [(Safety, &str, usize); 3] = [
        (JsonTool::idempotent, "success", 2),
        (|tool| tool, "error", 1),
        (JsonTool::at_most_once, "error", 1),
    ];
    for (safety, expected, called) in safeties {
        let (before, befores) = tool("before", |_, _| Ok(json!(1)));
        let (work, begun) = stuck_once("work");
        let work = safety(work);
        let definition = flow(
            &json!({"tools": {"before": {}, "work": {}}}),
            json!([{"tool": "before"}, {"tool": "work", "retry": 3}]),
        );
        let world = World::new(&definition, registry([before, work]), no_model());

        let result = dies_and_is_followed(&world).await;

        assert_eq!(result["status"], expected, "{result}");
        if expected == "error" {
            assert_eq!(result["error"]["code"], "outcome_unknown");
        }
        assert_eq!(begun.load(Ordering::SeqCst), called);
        assert_eq!(befores.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_continues_its_conversation_after_a_crash() {
    let (stuck, calls) = stuck_once("stuck");
    let model = ScriptedModel::answering(|_, request| {
        let tools = request
            .messages
            .iter()
            .filter(|message| message.speaker == Speaker::Tool);
        Ok(match tools.count() {
            0 => ChatResponse::calling(vec![ToolCall::new("1", "fast", json!({}))]),
            1 => ChatResponse::calling(vec![ToolCall::new("2", "stuck", json!({}))]),
            _ => ChatResponse::new("done"),
        })
    });
    let (fast, fasts) = tool("fast", |_, _| Ok(json!(1)));
    let more = json!({
        "tools": {"fast": {}, "stuck": {}},
        "agents": {"a": {"instruction": "A", "tools": ["fast", "stuck"]}},
    });
    let definition = flow(&more, json!([{"agent": "a"}]));
    let world = World::new(&definition, registry([fast, stuck.idempotent()]), model);

    let result = dies_and_is_followed(&world).await;

    assert_eq!(result["output"], "done");
    assert_eq!(fasts.load(Ordering::SeqCst), 1);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    assert_eq!(
        world.model.requests().len(),
        3,
        "no model request is repeated"
    );
}

#[tokio::test(start_paused = true)]
async fn an_emitted_breadcrumb_is_not_written_again_after_a_failed_save() {
    let store = MemoryStore::default();
    let fails = Arc::new(AtomicBool::new(true));
    let failing = Arc::clone(&fails);
    // The second save records the result of the first emitted breadcrumb.
    let saves = AtomicUsize::new(0);
    let faulty = Faulty::new(store.clone(), move |operation, moment| {
        let is_save = operation == Operation::Save && moment == Moment::Before;
        match is_save && saves.fetch_add(1, Ordering::SeqCst) > 0 && failing.load(Ordering::SeqCst)
        {
            true => Fault::Fail,
            false => Fault::None,
        }
    });
    let definition = flow(
        &json!({}),
        json!([{"emit": {"schema_name": "note.v1"}}, {"emit": {"schema_name": "end.v1"}}]),
    );
    let executor = executor(&definition, &Services::new(), Arc::new(faulty));
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(json!({"workflow": ID}));
    let request = store.create(request).await.unwrap();

    executor
        .process_event(&Event::created(&request))
        .await
        .unwrap_err();
    fails.store(false, Ordering::SeqCst);
    goes_on(&executor, &Event::created(&request)).await.unwrap();

    assert_eq!(store.recent("note.v1", 10).await.unwrap().len(), 1);
    assert_eq!(store.recent("end.v1", 10).await.unwrap().len(), 1);
    let result = store.latest(RESULT).await.unwrap().unwrap();
    assert_eq!(result.context["status"], "success");
}

#[tokio::test(start_paused = true)]
async fn a_running_step_continues_after_one_failed_search() {
    let (store, fails) = (MemoryStore::default(), Arc::new(AtomicBool::new(false)));
    let failing = Arc::clone(&fails);
    let faulty = Faulty::new(store.clone(), move |operation, moment| {
        let is_search = operation == Operation::Search && moment == Moment::Before;
        match is_search && failing.swap(false, Ordering::SeqCst) {
            true => Fault::Fail,
            false => Fault::None,
        }
    });
    let (calls, failing) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&fails));
    let counted = Arc::clone(&calls);
    let slow = json_tool("slow", "", json!({}), move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        failing.store(true, Ordering::SeqCst);
        async move {
            tokio::time::sleep(5 * SECOND).await;
            Ok(json!("done"))
        }
    });
    let definition = flow(&json!({"tools": {"slow": {}}}), json!([{"tool": "slow"}]));
    let services = Services::new().tools(registry([slow]));
    let executor = executor(&definition, &services, Arc::new(faulty));
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(json!({"workflow": ID}));
    let request = store.create(request).await.unwrap();

    let worked = executor.process_event(&Event::created(&request)).await;

    assert!(
        matches!(worked, Ok(Outcome::Responded { .. })),
        "{worked:?}"
    );
    assert!(
        !fails.load(Ordering::SeqCst),
        "the search must have failed once"
    );
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

const KEPT: &str = "workflow.kept.v1";

/// Creates a world whose run waits for an answer, and then replaces the definition.
async fn replaced(definition: &Value, by: &Value) -> World {
    let world = World::new(definition, ToolRegistry::default(), no_model());
    world.request(json!({})).await;
    world.works_until("human.request.v1", 1).await;
    world.with_definition(by)
}

/// Returns the result of the run after a person has answered.
async fn answered(world: &World) -> Arc<Breadcrumb> {
    let asked = world.store.latest("human.request.v1").await.unwrap();
    let asked = asked.unwrap();
    let id = asked.context.text("requestId").unwrap();
    world.answers(id, json!("yes"), "ann").await;
    world.works_until(RESULT, 1).await
}

#[tokio::test]
async fn a_run_continues_with_its_first_definition_and_a_new_run_uses_the_new_one() {
    let old = flow(
        &json!({}),
        json!([{"id": "a", "ask": "Go on?"}, {"return": "old: ${a}"}]),
    );
    let new = flow(&json!({}), json!([{"return": "new"}]));
    let world = replaced(&old, &new).await;

    let first = answered(&world).await;
    world.request(json!({})).await;
    let second = world.works_until(RESULT, 2).await;

    assert_eq!(first.context["output"], "old: yes");
    assert_eq!(second.context["output"], "new");
}

#[tokio::test]
async fn a_definition_is_stored_once_for_any_number_of_runs() {
    let definition = flow(&json!({}), json!([{"emit": {"schema_name": "note.v1"}}]));
    let world = World::new(&definition, ToolRegistry::default(), no_model());
    let again = executor(&definition, &Services::new(), Arc::new(world.store.clone()));
    for executor in [&*world.executor, &*world.executor, &again] {
        let request = world.request(json!({})).await;
        executor
            .process_event(&Event::created(&request))
            .await
            .unwrap();
    }

    assert_eq!(world.store.recent(KEPT, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn forged_definitions_however_many_neither_stand_for_the_real_one_nor_hide_it() {
    let old = flow(
        &json!({}),
        json!([{"ask": "Go on?"}, {"return": "old: ${last}"}]),
    );
    let new = flow(&json!({}), json!([{"return": "new"}]));
    let hash = Workflow::from_json(&old).unwrap().hash().to_owned();
    let forge = || {
        NewBreadcrumb::new(KEPT)
            .tag(format!("definition:{hash}"))
            .context(json!({"hash": hash, "definition": new.to_string()}))
    };
    let world = World::new(&old, ToolRegistry::default(), no_model());
    world.store.create(forge()).await.unwrap();
    world.request(json!({})).await;
    world.works_until("human.request.v1", 1).await;
    for _ in 0..100 {
        world.store.create(forge()).await.unwrap();
    }
    let world = world.with_definition(&new);

    let result = answered(&world).await;

    assert_eq!(result.context["output"], "old: yes", "{result:?}");
}

#[tokio::test]
async fn a_run_with_a_missing_or_forged_definition_is_refused_with_a_solution() {
    let old = flow(&json!({}), json!([{"ask": "Go on?"}, {"return": "old"}]));
    let forged = flow(&json!({}), json!([{"ask": "Go on?"}, {"return": "forged"}]));
    for text in [None, Some(forged.to_string())] {
        let world = replaced(&old, &flow(&json!({}), json!([{"return": "new"}]))).await;
        let kept = world.store.latest(KEPT).await.unwrap().unwrap();
        world.store.delete(kept.id).await.unwrap();
        if let Some(text) = text {
            let forged = NewBreadcrumb::new(KEPT)
                .tags(kept.tags.iter().cloned())
                .context(json!({"hash": kept.context["hash"], "definition": text}));
            world.store.create(forged).await.unwrap();
        }

        let result = answered(&world).await;

        assert_eq!(result.context["error"]["code"], "refused", "{result:?}");
        let message = result.context["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("is missing in this store; start a new run"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_run_does_not_continue_with_an_unregistered_tool() {
    let (before, _) = tool("before", |_, _| Ok(json!(1)));
    let old = flow(
        &json!({"tools": {"before": {}}}),
        json!([{"tool": "before"}, {"ask": "Go on?"}]),
    );
    let world = World::new(&old, registry([before]), no_model());
    world.request(json!({})).await;
    world.works_until("human.request.v1", 1).await;
    let new = flow(&json!({}), json!([{"return": "new"}]));
    let world = world.with_definition(&new);

    let result = answered(&world).await;

    let message = result.context["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("no tool named \"before\" is registered"),
        "{message}"
    );
}

#[tokio::test]
async fn a_flow_runs_on_a_context_that_belongs_to_no_run() {
    let context = ExecutionContext::for_trigger(NewBreadcrumb::new("x.v1"));
    let definition = flow(&json!({}), json!([{"return": "${input.n}"}]));
    let workflow = Workflow::from_json(&definition).unwrap();
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    let assembly = Assembly::new(workflow, &Services::new(), store).unwrap();

    let order = universal_executor::workflow::RunOptions::new("main", json!({"n": 4}));
    let driven = assembly.drive(&context, order).await.unwrap();

    use universal_executor::workflow::{Driven, Finish};
    assert_eq!(
        driven,
        Driven::Finished(Finish::Completed {
            output: json!(4).into()
        })
    );
}

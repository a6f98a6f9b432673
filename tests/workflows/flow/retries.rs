//! The work that a retried step repeats, and the work that it never repeats.

use super::*;
use futures::StreamExt as _;
use std::sync::OnceLock;
use universal_executor::EventSource as _;
use universal_executor::agent::{BreadcrumbModel, model_tool};
use universal_executor::store::Operation;
use universal_executor::tool::{ToolContext, ToolExecutor};

fn calling(tool: &str) -> Result<ChatResponse, ModelError> {
    Ok(ChatResponse::calling(vec![ToolCall::new(
        "1",
        tool,
        json!({}),
    )]))
}

fn down() -> Result<ChatResponse, ModelError> {
    Err(ModelError::Unavailable("down".into()))
}

/// Returns the text of each tool result in a request, in order.
fn results(request: &ChatRequest) -> Vec<&str> {
    let results = request.messages.iter();
    let results = results.filter(|message| message.speaker == Speaker::Tool);
    results
        .map(|message| &*message.call_result().unwrap().text)
        .collect()
}

/// Returns a tool whose first call never ends, and the keys of its calls.
fn stuck_once(name: &str) -> (JsonTool, Arc<Mutex<Vec<String>>>) {
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&keys);
    let tool = json_tool(name, "", json!({}), move |_, context: ToolContext| {
        let mut keys = noted.lock().unwrap();
        keys.push(context.idempotency_key().to_owned());
        let is_first = keys.len() == 1;
        async move {
            if is_first {
                std::future::pending::<()>().await;
            }
            Ok(json!("done"))
        }
    });
    (tool.timeout(600 * SECOND), keys)
}

#[tokio::test(start_paused = true)]
async fn a_retried_agent_continues_its_conversation_and_repeats_no_tool_call() {
    let (pay, calls) = tool("pay", |_, _| Ok(json!("paid")));
    let model = ScriptedModel::script([calling("pay"), down(), Ok(ChatResponse::new("ok"))]);
    let more =
        json!({"tools": {"pay": {}}, "agents": {"a": {"instruction": "A", "tools": ["pay"]}}});
    let definition = flow(&more, json!([{"agent": "a", "retry": 2}]));
    let world = World::new(&definition, registry([pay.at_most_once()]), model);

    let result = world.result_of(json!({})).await;

    assert_eq!(result["output"], "ok");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let requests = world.model.requests();
    assert_eq!(results(&requests[2]), ["paid"]);
    assert_eq!(requests[1].messages, requests[2].messages);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_under_way_when_the_time_was_up_is_made_again_only_if_its_tool_is_idempotent()
 {
    for idempotent in [true, false] {
        let (work, keys) = stuck_once("work");
        let work = match idempotent {
            true => work.idempotent(),
            false => work.at_most_once(),
        };
        let model = ScriptedModel::answering(|_, request| match results(request).last() {
            None => calling("work"),
            Some(result) => Ok(ChatResponse::new(*result)),
        });
        let more = json!({"tools": {"work": {}}, "agents": {"a": {"instruction": "A", "tools": ["work"]}}});
        let definition = flow(
            &more,
            json!([{"agent": "a", "retry": 2, "timeout_seconds": 5}]),
        );
        let world = World::new(&definition, registry([work]), model);

        let result = world.result_of(json!({})).await;

        let keys = keys.lock().unwrap().clone();
        let said = result["output"].as_str().unwrap();
        match idempotent {
            true => {
                assert_eq!((said, keys.len()), ("done", 2));
                assert_eq!(keys[0], keys[1], "both attempts have the same key");
            }
            false => {
                assert!(said.starts_with("outcome_unknown"), "{said}");
                assert_eq!(keys.len(), 1);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_called_agent_continues_its_conversation_when_the_step_is_retried() {
    for (field, asks) in [("use", "critic"), ("delegate", "delegate-to-critic")] {
        let (pay, calls) = tool("pay", |_, _| Ok(json!("paid")));
        let (slow, keys) = stuck_once("slow");
        let model = ScriptedModel::answering(move |_, request| {
            let results = results(request);
            match (shown(request).contains("Criticise."), results.len()) {
                (true, 0) => calling("pay"),
                (true, 1) => calling("slow"),
                (true, _) => Ok(ChatResponse::new("fine")),
                (false, 0) => Ok(ChatResponse::calling(vec![ToolCall::new(
                    "1",
                    asks,
                    json!({"prompt": "Is it good?"}),
                )])),
                (false, _) => Ok(ChatResponse::new(results[0])),
            }
        });
        let mut more = json!({"tools": {"pay": {}, "slow": {}}, "agents": {
            "writer": {"instruction": "Write."},
            "critic": {"instruction": "Criticise.", "tools": ["pay", "slow"]},
        }});
        more["agents"]["writer"][field] = json!(["critic"]);
        let definition = flow(
            &more,
            json!([{"agent": "writer", "retry": 2, "timeout_seconds": 5}]),
        );
        let tools = registry([pay.at_most_once(), slow.idempotent()]);
        let world = World::new(&definition, tools, model);

        let result = world.result_of(json!({})).await;

        assert_eq!(result["output"], "fine");
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(keys.lock().unwrap().len(), 2, "the call must be repeated");
    }
}

#[cfg(feature = "validate")]
#[tokio::test(start_paused = true)]
async fn an_agent_with_an_invalid_output_answers_again_and_repeats_no_tool_call() {
    let (pay, calls) = tool("pay", |_, _| Ok(json!("paid")));
    let model =
        ScriptedModel::answering(|number, request| match (results(request).len(), number) {
            (0, _) => calling("pay"),
            (_, 2 | 3) => Ok(ChatResponse::new("no number")),
            (_, _) => Ok(ChatResponse::new("4")),
        });
    let more = json!({
        "schemas": {"number": {"type": "integer"}}, "tools": {"pay": {}},
        "agents": {"a": {"instruction": "A", "tools": ["pay"], "output": "number"}},
    });
    let definition = flow(&more, json!([{"agent": "a", "retry": 2}]));
    let world = World::new(&definition, registry([pay.at_most_once()]), model);

    let result = world.result_of(json!({})).await;

    assert_eq!(result["output"], 4, "{result}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_asked_by_breadcrumbs_is_asked_anew_when_the_step_is_tried_again() {
    let (pay, calls) = tool("pay", |_, _| Ok(json!("paid")));
    let model =
        ScriptedModel::answering(|number, request| match (results(request).len(), number) {
            (0, _) => calling("pay"),
            // One attempt makes three more requests.
            (_, 2..=5) => Err(ModelError::Refused {
                reason: "not now".into(),
            }),
            (_, _) => Ok(ChatResponse::new("ok")),
        });
    let model = Arc::new(model);
    let more = json!({
        "models": {"far": {"provider": "far"}}, "tools": {"pay": {}},
        "agents": {"a": {"instruction": "A", "tools": ["pay"], "model": "far"}},
    });
    let definition = flow(&more, json!([{"agent": "a", "retry": 2}]));
    let services = Services::new()
        .tools(registry([pay.at_most_once()]))
        .provider("far", BreadcrumbModel::new("far"));
    let world = World::with_services(&definition, &services, Arc::clone(&model));
    let served = model_tool("far", model);
    let served = ToolExecutor::new(served, Arc::new(world.store.clone())).unwrap();
    let runtime = Runtime::builder(world.store.events())
        .start_at(StartAt::Beginning)
        .executor(world.executor.clone())
        .executor(Arc::new(served))
        .build()
        .unwrap();
    let mut events = world.store.events().subscribe(StartAt::Now).await.unwrap();
    world.request(json!({})).await;

    let is_over = async {
        while let Some(Ok(delivery)) = events.next().await
            && delivery.event.schema_name.as_deref() != Some(RESULT)
        {}
    };
    let worked = tokio::time::timeout(600 * SECOND, runtime.run_until(is_over)).await;

    assert!(worked.is_ok(), "the run did not end in time");
    let result = world.result().await;
    assert_eq!(result["output"], "ok", "{result}");
    assert_eq!(world.model.requests().len(), 6);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_failed_during_a_pause_continues_its_conversation() {
    let paused: Arc<OnceLock<(MemoryStore, NewBreadcrumb)>> = Arc::default();
    let (pausing, calls) = (Arc::clone(&paused), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    let pay = json_tool("pay", "", json!({}), move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        let pausing = Arc::clone(&pausing);
        async move {
            let (store, pause) = pausing.get().unwrap();
            store.create(pause.clone()).await.unwrap();
            // The run receives the pause order meanwhile.
            tokio::time::sleep(3 * SECOND).await;
            Ok(json!("paid"))
        }
    });
    let model =
        ScriptedModel::answering(|number, request| match (results(request).len(), number) {
            (0, _) => calling("pay"),
            (_, 2) => down(),
            (_, _) => Ok(ChatResponse::new("ok")),
        });
    let more =
        json!({"tools": {"pay": {}}, "agents": {"a": {"instruction": "A", "tools": ["pay"]}}});
    let definition = flow(&more, json!([{"agent": "a", "retry": 2}]));
    let world = World::new(&definition, registry([pay.at_most_once()]), model);
    let request = world.request(json!({})).await;
    let pause = Control::Pause.of(request.id);
    paused.set((world.store.clone(), pause)).unwrap();

    world.works_until(Control::SCHEMA, 1).await;
    let asked = world.model.requests().len();
    world.orders(Control::Resume, &request).await;
    let result = world.works_until(RESULT, 1).await;

    assert_eq!(asked, 2, "the run must be paused before the next request");
    assert_eq!(result.context["output"], "ok", "{result:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_breadcrumb_emitted_in_a_timed_out_attempt_is_not_written_again() {
    let (store, commits) = (MemoryStore::default(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&commits);
    // The first commit saves the definition. The answer of the second commit never arrives.
    let faulty = Faulty::new(store.clone(), move |operation, moment| {
        let is_commit = operation == Operation::Commit && moment == Moment::After;
        match is_commit && counted.fetch_add(1, Ordering::SeqCst) == 1 {
            true => Fault::Hang,
            false => Fault::None,
        }
    });
    let emit = json!([{"emit": {"schema_name": "note.v1"}, "retry": 2, "timeout_seconds": 5}]);
    let executor = executor(&flow(&json!({}), emit), &Services::new(), Arc::new(faulty));
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(json!({"workflow": ID}));
    let request = store.create(request).await.unwrap();

    executor
        .process_event(&Event::created(&request))
        .await
        .unwrap();

    let result = store.latest(RESULT).await.unwrap();
    assert_eq!(result.unwrap().context["status"], "success");
    assert_eq!(store.recent("note.v1", 10).await.unwrap().len(), 1);
    assert_eq!(
        commits.load(Ordering::SeqCst),
        3,
        "the note must be written once"
    );
}

//! The flows that a request can start.

use super::*;

/// A definition whose flow `paying` is a step of `main`, after a question to a person, and whose flow `quoting` stands alone.
fn shop() -> Value {
    json!({
        "tools": {"pay": {}},
        "flows": {
            "main": {"steps": [
                {"id": "ok", "ask": "May I pay?", "of": ["ann"]},
                {"try": [{"flow": "paying", "input": "${input}"}], "on_failure": [{"fail": "not paid"}]},
            ]},
            "paying": {"steps": [{"tool": "pay", "input": "${input}"}]},
            "quoting": {"steps": [{"return": "5 EUR"}]},
        },
    })
}

/// A world with an executor of the shop, and the number of payments.
fn world(
    change: impl FnOnce(WorkflowExecutor) -> WorkflowExecutor,
) -> (MemoryStore, WorkflowExecutor, Arc<AtomicUsize>) {
    let (pay, calls) = tool("pay", |_, input| Ok(input));
    let store = MemoryStore::default();
    let parts = Parts::new().tools(registry([pay]));
    let executor = change(executor(&shop(), &parts, Arc::new(store.clone())));
    (store, executor, calls)
}

/// Returns the result of a request for a flow, or `None` if the run waits.
async fn result_of(
    store: &MemoryStore,
    executor: &WorkflowExecutor,
    flow: &str,
) -> Option<Arc<Breadcrumb>> {
    let request = json!({"workflow": ID, "flow": flow, "input": {"amount": 1_000_000}});
    let request = NewBreadcrumb::new(WorkflowExecutor::REQUEST).context(request);
    let request = store.create(request).await.unwrap();
    executor
        .process_event(&Event::created(&request))
        .await
        .unwrap();
    store.latest(WorkflowExecutor::RESULT).await.unwrap()
}

#[tokio::test]
async fn a_request_cannot_start_a_flow_that_another_flow_runs_as_a_step() {
    let (store, executor, payments) = world(|executor| executor);

    let result = result_of(&store, &executor, "paying").await.unwrap();

    assert_eq!(result.context["error"]["code"], "refused", "{result:?}");
    let message = result.context.text("error.message").unwrap();
    assert!(
        message.contains("cannot start flow \"paying\""),
        "{message}"
    );
    assert!(message.contains("main, quoting"), "{message}");
    assert_eq!(payments.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_request_can_start_the_default_flow_and_flows_that_no_other_flow_runs() {
    let (store, executor, payments) = world(|executor| executor);

    assert!(result_of(&store, &executor, "main").await.is_none());
    let quoted = result_of(&store, &executor, "quoting").await.unwrap();

    assert_eq!(quoted.context["output"], "5 EUR");
    assert_eq!(payments.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_request_can_start_only_the_flow_that_the_service_names() {
    for (named, other) in [("main", "quoting"), ("quoting", "main")] {
        let (store, executor, _) = world(|executor| executor.with_flow(named).unwrap());

        let refused = result_of(&store, &executor, other).await.unwrap();

        assert_eq!(refused.context["error"]["code"], "refused", "{refused:?}");
    }
    let (store, executor, payments) = world(|executor| executor.with_flow("paying").unwrap());
    let paid = result_of(&store, &executor, "paying").await.unwrap();
    assert_eq!(paid.context["status"], "success", "{paid:?}");
    assert_eq!(payments.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_request_can_start_only_the_flow_that_the_definition_names() {
    let (pay, payments) = tool("pay", |_, input| Ok(input));
    let store = MemoryStore::default();
    let parts = Parts::new().tools(registry([pay]));
    let definition = json!({"workflow_id": ID, "definition": shop(), "flow": "main"});
    let executor =
        WorkflowExecutor::from_definition(&definition, &parts, Arc::new(store.clone())).unwrap();

    for other in ["quoting", "paying"] {
        let refused = result_of(&store, &executor, other).await.unwrap();
        assert_eq!(refused.context["error"]["code"], "refused", "{refused:?}");
    }

    assert_eq!(payments.load(Ordering::SeqCst), 0);
}

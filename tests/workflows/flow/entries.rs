//! The flows that a request can start.

use super::*;
use universal_executor::workload::{EntryPolicy, FlowDefinition};

/// Returns a definition whose flow `paying` is a step of `main`, after a question to a person. Its flow `quoting` is used by no other.
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

/// Returns a store, an executor of the shop that starts with the named flow, and the number of payments. Without a name, the definition
/// selects the flow.
fn world(named: Option<&str>) -> (MemoryStore, WorkloadExecutor, Arc<AtomicUsize>) {
    let (pay, calls) = tool("pay", |_, input| Ok(input));
    let store = MemoryStore::default();
    let services = Services::new().tools(registry([pay]));
    let workflow = Workflow::from_json(&shop()).unwrap();
    let definition = FlowDefinition::with_entry(ID, workflow, named, EntryPolicy::default());
    let definition = Arc::new(definition.unwrap());
    let executor = WorkloadExecutor::on_requests(ID, definition, &services, &store).unwrap();
    (store, executor, calls)
}

/// Returns the result of a request for a flow, or `None` if the run waits.
async fn result_of(
    store: &MemoryStore,
    executor: &WorkloadExecutor,
    flow: &str,
) -> Option<Arc<Breadcrumb>> {
    let request = json!({"workflow": ID, "flow": flow, "input": {"amount": 1_000_000}});
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(request);
    let request = store.create(request).await.unwrap();
    executor
        .process_event(&Event::created(&request))
        .await
        .unwrap();
    store.latest(RESULT).await.unwrap()
}

#[tokio::test]
async fn a_request_cannot_start_a_flow_that_another_flow_runs_as_a_step() {
    let (store, executor, payments) = world(None);

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
async fn a_request_can_start_the_default_flow_and_flows_without_a_calling_flow() {
    let (store, executor, payments) = world(None);

    assert!(result_of(&store, &executor, "main").await.is_none());
    let quoted = result_of(&store, &executor, "quoting").await.unwrap();

    assert_eq!(quoted.context["output"], "5 EUR");
    assert_eq!(payments.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_request_can_start_only_the_flow_that_the_service_names() {
    for (named, other) in [("main", "quoting"), ("quoting", "main")] {
        let (store, executor, _) = world(Some(named));

        let refused = result_of(&store, &executor, other).await.unwrap();

        assert_eq!(refused.context["error"]["code"], "refused", "{refused:?}");
    }
    let (store, executor, payments) = world(Some("paying"));
    let paid = result_of(&store, &executor, "paying").await.unwrap();
    assert_eq!(paid.context["status"], "success", "{paid:?}");
    assert_eq!(payments.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_request_can_start_only_the_flow_that_the_definition_names() {
    let (pay, payments) = tool("pay", |_, input| Ok(input));
    let store = MemoryStore::default();
    let services = Services::new().tools(registry([pay]));
    let definition = json!({"workflow_id": ID, "definition": shop(), "flow": "main"});
    let executor = WorkloadExecutor::from_definition(&definition, &services, &store).unwrap();

    for other in ["quoting", "paying"] {
        let refused = result_of(&store, &executor, other).await.unwrap();
        assert_eq!(refused.context["error"]["code"], "refused", "{refused:?}");
    }

    assert_eq!(payments.load(Ordering::SeqCst), 0);
}

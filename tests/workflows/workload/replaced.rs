//! Turns whose definition is replaced while they run.

use crate::workload::{Setup, flow};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::agent::{ChatResponse, ScriptedModel, Speaker, ToolCall};
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::workload::WorkloadExecutor;
use universal_executor::{
    BreadcrumbStoreExt as _, Event, MemoryStore, NewBreadcrumb, Profile, Services, Subscription,
    Subscriptions, UniversalExecutor as _,
};

const LEASE: Duration = Duration::from_secs(10);

fn executor(instruction: &str, setup: &Setup) -> WorkloadExecutor {
    let definition = flow(json!({
        "tools": {"stuck": {}}, "agents": {"main": {"instruction": instruction, "tools": ["stuck"]}},
    }));
    let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();
    let executor = setup
        .executor("desk", Arc::new(definition), messages)
        .unwrap();
    executor.with_profile(Profile::new("workload").lease(LEASE))
}

/// Returns a registry with a tool whose first call hangs.
fn stuck() -> ToolRegistry {
    let called = AtomicUsize::new(0);
    let stuck = json_tool("stuck", "Hangs once.", json!({}), move |_, _| {
        let number = called.fetch_add(1, Ordering::SeqCst);
        async move {
            if number == 0 {
                std::future::pending::<Value>().await;
            }
            Ok(json!("loose"))
        }
    });
    ToolRegistry::default().with(stuck.idempotent()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_an_agent_continues_with_its_first_instruction() {
    let store = MemoryStore::default();
    let model = Arc::new(ScriptedModel::answering(|_, request| {
        let is_back = request.messages.last().unwrap().speaker == Speaker::Tool;
        Ok(match is_back {
            true => ChatResponse::new("done"),
            false => ChatResponse::calling(vec![ToolCall::new("1", "stuck", json!({}))]),
        })
    }));
    let services = Services::new()
        .tools(stuck())
        .default_model(Arc::clone(&model));
    let setup = Setup::new(services, Arc::new(store.clone()));
    let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "Hi"}));
    let event = Event::created(&store.create(message).await.unwrap());

    let first = executor("The old one.", &setup);
    let lost = tokio::time::timeout(Duration::from_secs(2), first.process_event(&event)).await;
    tokio::time::advance(LEASE * 2).await;
    let second = executor("The new one.", &setup);
    second.process_event(&event).await.unwrap();

    assert!(lost.is_err());
    let result = store.latest(WorkloadExecutor::RESULT).await.unwrap();
    assert_eq!(result.unwrap().context["output"], "done");
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[1].messages[0].text().contains("The old one."));
}

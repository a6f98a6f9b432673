//! The MCP server of a service, called by this crate's MCP client.

use super::World;
use super::raw::{Session, ask, raw, read, request, send};
use super::served::{NAMES, Served, stdio_command};
use serde_json::{Value, json};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use universal_executor::machine::MachineCall;
use universal_executor::mcp::{HttpEndpoint, McpServer};
use universal_executor::store::RunState;
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, ExecutionContext, MemoryStore, NewBreadcrumb,
};

#[tokio::test]
async fn a_client_calls_tools_and_agents_by_durable_runs() {
    let served = Served::start().await;
    let client = served.client().await;

    assert_eq!(
        client.tools.names(),
        NAMES.map(|name| format!("desk.{name}"))
    );
    let counted = client.call("desk.count", json!({"a": 1})).await;
    assert_eq!(counted, Ok(json!({"call": 1, "input": {"a": 1}})));
    let answer = client
        .call("desk.helper", json!({"message": "Where is order 7?"}))
        .await;
    assert_eq!(answer, Ok(json!("Order 7 is shipped.")));
    let failed = client.refused("desk.fail", json!({}), "failed").await;
    assert_eq!(failed, "out of paper");
    let refused = client.refused("desk.pay", json!({}), "failed").await;
    assert!(refused.contains("a person has to approve"), "{refused}");
    assert_eq!(served.states().await, [RunState::Done; 4]);
    served.running.stop().await.unwrap();
}

#[tokio::test]
async fn repeated_calls_with_one_key_have_one_run() {
    let served = Served::start().await;
    let (one, other) = (served.client().await, served.client().await);
    let run = ExecutionContext::for_trigger(NewBreadcrumb::new("user.message.v1"));
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    let call = || MachineCall::new("c-1", "desk.count", json!({}));

    let first = one.registry.call(call(), None, &run, &store).await;
    let again = other.registry.call(call(), None, &run, &store).await;

    assert_eq!(first, again);
    assert_eq!(served.shared.calls.load(Ordering::Relaxed), 1);
    served.running.stop().await.unwrap();
}

#[tokio::test]
async fn progress_of_a_tool_reaches_the_client_while_the_tool_works() {
    let served = Served::start().await;
    let client = served.client().await;

    let (answer, report) = tokio::join!(client.call("desk.slow", json!({})), async {
        let report = loop {
            let reports = client.store.latest("tool.progress.v1").await.unwrap();
            match reports {
                Some(report) => break report,
                None => tokio::task::yield_now().await,
            }
        };
        served.shared.finish.notify_one();
        report
    });

    assert_eq!(answer, Ok(json!("finished")));
    assert_eq!(
        report.context["progress"]["message"],
        "half of the work is done"
    );
    served.running.stop().await.unwrap();
}

#[tokio::test]
async fn a_run_with_a_key_continues_after_its_client_has_left() {
    let served = Served::start().await;
    let desk = McpServer::http("desk", HttpEndpoint::new(&*served.url));
    let client = World::of(desk.call_timeout(Duration::from_millis(400))).await;

    client.refused("desk.slow", json!({}), "timeout").await;
    drop(client);
    served.shared.finish.notify_one();

    while served.states().await != [RunState::Done] {
        tokio::task::yield_now().await;
    }
    served.running.stop().await.unwrap();
}

#[tokio::test]
async fn a_call_of_an_agent_does_not_run_other_agents() {
    let served = Served::start().await;
    let client = served.client().await;
    let message = json!({"message": "Where is order 7?"});

    let answer = client.call("desk.helper", message).await;

    assert_eq!(answer, Ok(json!("Order 7 is shipped.")));
    assert_eq!(served.states().await, [RunState::Done]);
    served.running.stop().await.unwrap();
}

#[tokio::test]
async fn tools_are_listed_with_their_schemas() {
    let served = Served::start().await;

    let list = raw(&served.url, "tools/list", json!({})).await;

    let tools = list["result"]["tools"].as_array().unwrap();
    let tool = |name| tools.iter().find(|tool| tool["name"] == name).unwrap();
    assert_eq!(
        tool("count")["inputSchema"]["properties"]["a"]["type"],
        "integer"
    );
    assert_eq!(tool("count")["outputSchema"]["required"], json!(["call"]));
    assert!(tool("helper").get("outputSchema").is_none());
    served.running.stop().await.unwrap();
}

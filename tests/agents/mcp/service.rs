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

#[cfg(feature = "validate")]
#[tokio::test]
async fn invalid_input_of_an_agent_is_refused_without_a_run() {
    let served = Served::start().await;
    let url = &*served.url;
    let message = json!({"name": "helper", "arguments": {"text": "Where is order 7?"}});

    let answer = raw(url, "tools/call", message).await;

    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("message"), "{text}");
    assert!(served.states().await.is_empty());
    served.running.stop().await.unwrap();
}

/// Waits until the runs of the service have these states.
async fn reach(served: &Served, states: &[RunState]) {
    let reached = async {
        while served.states().await != states {
            tokio::task::yield_now().await;
        }
    };
    let reached = tokio::time::timeout(Duration::from_secs(60), reached).await;
    assert!(
        reached.is_ok(),
        "{:?} is not {states:?}",
        served.states().await
    );
}

/// Waits until the tool `slow` has started. It writes its progress before it waits.
async fn started(served: &Served) {
    while served
        .store
        .latest("tool.progress.v1")
        .await
        .unwrap()
        .is_none()
    {
        tokio::task::yield_now().await;
    }
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
async fn a_disconnect_cancels_a_run_without_a_key() {
    let served = Served::start().await;
    let connection = ask(&served.url, "tools/call", json!({"name": "slow"})).await;
    started(&served).await;

    drop(connection);

    reach(&served, &[RunState::Failed]).await;
    served.running.stop().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_request_in_a_session_cancels_its_run() {
    let served = Served::start().await;
    let session = Session::start(&served.url).await;
    let _connection = session.ask(7, "tools/call", json!({"name": "slow"})).await;
    started(&served).await;

    session
        .notify("notifications/cancelled", json!({"requestId": 7}))
        .await;

    reach(&served, &[RunState::Failed]).await;
    served.running.stop().await.unwrap();
}

#[tokio::test]
async fn a_disconnect_in_a_session_does_not_cancel_a_run() {
    let served = Served::start().await;
    let session = Session::start(&served.url).await;
    let connection = session.ask(7, "tools/call", json!({"name": "slow"})).await;
    started(&served).await;

    drop(connection);
    let finished = session
        .ask(8, "tools/call", json!({"name": "finish"}))
        .await;
    let finished = read(finished).await.message();

    assert_eq!(finished["result"]["isError"], false, "{finished}");
    reach(&served, &[RunState::Done; 2]).await;
    served.running.stop().await.unwrap();
}

#[tokio::test]
async fn a_run_without_a_key_is_cancelled_after_the_maximum_wait() {
    let served = Served::start_with(|service| service.max_wait(Duration::from_millis(10))).await;

    let answer = raw(&served.url, "tools/call", json!({"name": "slow"})).await;

    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("has not ended within"), "{text}");
    reach(&served, &[RunState::Failed]).await;
    served.running.stop().await.unwrap();
}

#[tokio::test]
async fn calls_over_the_limit_are_refused() {
    let served = Served::start_with(|service| service.max_calls(1)).await;
    let connection = ask(&served.url, "tools/call", json!({"name": "slow"})).await;
    started(&served).await;

    let refused = raw(&served.url, "tools/call", json!({"name": "count"})).await;
    served.shared.finish.notify_one();
    let finished = read(connection).await.message();
    let counted = raw(&served.url, "tools/call", json!({"name": "count"})).await;

    let text = &refused["result"]["content"][0]["text"];
    assert_eq!(text, "the server has too many calls in flight; retry later");
    assert_eq!(finished["result"]["isError"], false, "{finished}");
    assert_eq!(counted["result"]["isError"], false, "{counted}");
    served.running.stop().await.unwrap();
}

#[tokio::test]
async fn requests_from_other_hosts_or_web_pages_and_large_requests_are_refused() {
    let served =
        Served::start_with(|service| service.allowed_origins(["http://localhost:*"])).await;
    let (headers, message) = request("tools/list", json!({}));
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    let large = json!({"name": "count", "arguments": {"text": "x".repeat(5 << 20)}});
    let (large_headers, large) = request("tools/call", large);
    let large_headers: Vec<(&str, &str)> = large_headers
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();

    for (header, status) in [
        (("Host", "localhost"), 200),
        (("Host", "rebound.example"), 403),
        (("Origin", "http://localhost:6274"), 200),
        (("Origin", "https://page.example"), 403),
    ] {
        let headers: Vec<_> = headers.iter().copied().chain([header]).collect();
        let response = read(send(&served.url, &headers, &message).await).await;
        assert_eq!(response.status, status, "{header:?}: {response:?}");
    }
    let response = read(send(&served.url, &large_headers, &large).await).await;
    assert_eq!(response.status, 413, "{response:?}");
    assert!(served.states().await.is_empty());
    served.running.stop().await.unwrap();
}

#[tokio::test]
async fn an_unknown_tool_is_a_short_protocol_error() {
    let served = Served::start().await;
    let name = "x".repeat(100_000);

    let answer = raw(&served.url, "tools/call", json!({"name": name})).await;

    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.len() < 3_000 && message.contains("count"),
        "{message}"
    );
    served.running.stop().await.unwrap();
}

/// Calls the agent `cashier`, and returns its request for input.
async fn question(served: &Served) -> Value {
    let arguments = json!({"message": "Pay 5."});
    let answer = raw(
        &served.url,
        "tools/call",
        json!({"name": "cashier", "arguments": arguments}),
    )
    .await;
    let result = answer["result"].clone();
    assert_eq!(result["resultType"], "input_required", "{answer}");
    assert_eq!(result["inputRequests"].as_object().unwrap().len(), 1);
    result
}

/// Repeats a call with a state and an answer to all questions.
async fn continued(
    served: &Served,
    name: &str,
    message: &str,
    question: &Value,
    answer: &Value,
) -> Value {
    let questions = question["inputRequests"].as_object().unwrap().keys();
    let answers: Value = questions.map(|id| (id.clone(), answer.clone())).collect();
    let params = json!({
        "name": name, "arguments": {"message": message},
        "requestState": question["requestState"], "inputResponses": answers,
    });
    raw(&served.url, "tools/call", params).await
}

#[tokio::test]
async fn a_call_that_needs_input_continues_the_same_run() {
    let served = Served::start().await;
    let asked = question(&served).await;
    assert_eq!(served.states().await, [RunState::Suspended]);

    let malformed = continued(&served, "cashier", "Pay 5.", &asked, &json!("yes")).await;
    assert_eq!(malformed["error"]["code"], -32602, "{malformed}");
    let approved = json!({"action": "accept", "content": {"answer": true}});
    let paid = continued(&served, "cashier", "Pay 5.", &asked, &approved).await;
    let repeated = continued(&served, "cashier", "Pay 5.", &asked, &approved).await;

    let text = paid["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("paid"), "{paid}");
    assert_eq!(repeated["result"], paid["result"]);
    assert_eq!(served.states().await, [RunState::Done]);
    served.running.stop().await.unwrap();
}

#[tokio::test]
async fn a_state_of_another_call_is_refused() {
    let served = Served::start().await;
    let asked = question(&served).await;
    let approved = json!({"action": "accept", "content": {"answer": true}});
    let state = asked["requestState"].as_str().unwrap();
    let unknown = state.replacen(char::is_numeric, "f", 30);
    let forged = state.replace(":cashier", ":helper");

    for (name, message, state) in [
        ("helper", "Pay 5.", state),
        ("count", "Pay 5.", state),
        ("cashier", "Pay 6.", state),
        ("cashier", "Pay 5.", "no run"),
        ("cashier", "Pay 5.", &*unknown),
        ("cashier", "Pay 5.", &*forged),
    ] {
        let mut asked = asked.clone();
        asked["requestState"] = json!(state);
        let answer = continued(&served, name, message, &asked, &approved).await;
        assert_eq!(
            answer["error"]["code"], -32602,
            "{name} {message} {state}: {answer}"
        );
    }

    assert_eq!(served.states().await, [RunState::Suspended]);
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

#[tokio::test]
async fn the_end_of_the_input_cancels_a_call_before_the_server_ends() {
    let [program, args @ ..] = &*stdio_command() else {
        panic!("no command");
    };
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let client = json!({"name": "raw", "version": "1"});
    let start = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let call = json!({"name": "slow", "_meta": {"progressToken": 1}});
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": start}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
    ] {
        let line = format!("{message}\n");
        input.write_all(line.as_bytes()).await.unwrap();
    }
    let progress = async {
        while let Some(line) = output.next_line().await.unwrap() {
            if line.contains("notifications/progress") {
                return;
            }
        }
        panic!("the server ended before the progress of the tool");
    };
    progress.await;

    drop(input);

    // Clients kill a server that does not end soon. Without a limit, the transport would wait 5 seconds for the call.
    let ended = tokio::time::timeout(Duration::from_millis(4_500), child.wait()).await;
    // The process fails if the run has not ended.
    assert!(ended.unwrap().unwrap().success());
}

#[tokio::test(start_paused = true)]
async fn a_session_outlives_a_call_of_several_minutes() {
    let served = Served::start().await;
    let session = Session::start(&served.url).await;
    let connection = session.ask(7, "tools/call", json!({"name": "slow"})).await;
    started(&served).await;

    tokio::time::sleep(Duration::from_secs(7 * 60)).await;
    served.shared.finish.notify_one();
    let finished = read(connection).await.message();

    assert_eq!(finished["result"]["content"][0]["text"], "finished");
    served.running.stop().await.unwrap();
}

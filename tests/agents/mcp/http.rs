//! Tools of servers over streamable HTTP.

use super::program::{Action, Program};
use super::{World, read_only, tool};
use crate::server::{ReceivedRequest, Reply, Server};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use universal_executor::mcp::{HttpEndpoint, McpError, McpServer};
use universal_executor::{MemoryStore, Secret};

/// Starts an HTTP server that plays a script, and answers only requests for which `accepts` returns `true`.
async fn playing(
    script: Value,
    accepts: impl Fn(&ReceivedRequest) -> bool + Send + Sync + 'static,
) -> Server {
    let program = Mutex::new(Program::new(script));
    Server::answering(move |request| {
        if !accepts(request) {
            return Reply::body(401, "text/plain", &[("www-authenticate", "Bearer")], b"no");
        }
        if !request.line.starts_with("POST") {
            return Reply::body(405, "text/plain", &[], b"");
        }
        let mut answers = program.lock().unwrap().answers(&request.body);
        match answers.pop() {
            Some(Action::Send(answer)) => Reply::json(200, &answer),
            Some(Action::Endless) => {
                Reply::Endless(crate::server::head(200, "application/json", &[], None))
            }
            Some(Action::Exit) => Reply::Bytes(Vec::new()),
            None => Reply::body(202, "text/plain", &[], b""),
        }
    })
    .await
}

fn script() -> Value {
    json!({"tools": [tool("echo"), tool("endless"), tool("die"), tool("huge"), read_only("read")]})
}

fn endpoint(server: &Server) -> HttpEndpoint {
    HttpEndpoint::new(server.base_url())
}

#[tokio::test]
async fn tools_are_called_over_http() {
    let server = playing(script(), |_| true).await;

    let world = World::of(McpServer::http("desk", endpoint(&server))).await;

    assert_eq!(
        world.call("desk.echo", json!({"a": 1})).await,
        Ok(json!(r#"{"a":1}"#))
    );
    assert!(world.tools.is_connected());
}

#[tokio::test]
async fn the_token_is_asked_for_before_each_request() {
    let number = Arc::new(AtomicU64::new(0));
    let next = move || {
        let number = number.fetch_add(1, Ordering::Relaxed);
        async move { Ok(Secret::new(format!("t-{number}"))) }
    };
    let is_sent = |request: &ReceivedRequest| {
        let token = request.header("authorization");
        token.is_some_and(|token| token.starts_with("Bearer t-"))
    };
    let server = playing(script(), is_sent).await;

    let world = World::of(McpServer::http("desk", endpoint(&server).token_from(next))).await;
    world.call("desk.echo", json!({})).await.unwrap();
    world.call("desk.echo", json!({})).await.unwrap();

    let requests = server.requests();
    let mut tokens: Vec<_> = requests
        .iter()
        .map(|request| request.header("authorization"))
        .collect();
    let count = tokens.len();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), count);
}

#[tokio::test]
async fn a_refused_or_failing_token_is_an_error_without_the_token() {
    let store = MemoryStore::default();
    let server = playing(script(), |_| false).await;
    let wrong = endpoint(&server).token(Secret::new("s-12345"));
    let failing =
        endpoint(&server).token_from(|| async { Err("token=s-12345 has expired".into()) });

    for endpoint in [wrong, failing] {
        let error = McpServer::http("desk", endpoint)
            .connect(&store)
            .await
            .unwrap_err();
        assert!(matches!(error, McpError::Connect { .. }), "{error}");
        assert!(!format!("{error:?}").contains("s-12345"), "{error:?}");
    }
}

#[tokio::test]
async fn an_endless_or_broken_answer_is_bounded() {
    let server = playing(script(), |_| true).await;
    let desk = McpServer::http("desk", endpoint(&server)).call_timeout(Duration::from_secs(5));
    let world = World::of(desk).await;

    let endless = world.call("desk.endless", json!({})).await.unwrap_err();
    let broken = world.call("desk.die", json!({})).await.unwrap_err();

    for (code, message) in [endless, broken] {
        assert!(
            ["connection_lost", "failed", "timeout"].contains(&&*code),
            "{code}: {message}"
        );
    }
    world
        .refused("desk.huge", json!({"bytes": 1 << 20}), "output_too_large")
        .await;
    assert!(world.call("desk.echo", json!({})).await.is_ok());
}

#[tokio::test]
async fn an_invalid_url_is_an_error() {
    let store = MemoryStore::default();

    for url in [
        "mcp.example.com",
        "ftp://localhost/",
        "http://user:secret@localhost/",
    ] {
        let error = McpServer::http("desk", HttpEndpoint::new(url))
            .connect(&store)
            .await
            .unwrap_err();
        assert!(matches!(error, McpError::BadEndpoint { .. }), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

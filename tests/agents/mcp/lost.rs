//! Lost connections and killed servers.

use super::program::SCRIPT;
use super::{World, playing, read_only, tool};
use crate::child::{has_ended, is_alive, within_crate};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use universal_executor::mcp::{McpServer, StdioCommand};

fn script() -> Value {
    json!({"tools": [tool("die"), tool("pid"), tool("echo"), read_only("die_once")]})
}

fn kill(pid: &Value) {
    let pid = pid.as_str().unwrap();
    let killed = Command::new("kill").args(["-9", pid]).status().unwrap();
    assert!(killed.success());
    while is_alive(pid) {
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_call_that_loses_the_connection_has_an_unknown_outcome_and_later_calls_work() {
    let world = World::of(playing(&script())).await;

    let message = world
        .refused("desk.die", json!({}), "connection_lost")
        .await;

    assert!(message.contains("may have done its work"), "{message}");
    assert_eq!(world.call("desk.echo", json!({})).await, Ok(json!("{}")));
}

#[tokio::test]
async fn a_call_of_an_idempotent_tool_is_sent_again() {
    let file = Marker::new("called");
    let world = World::of(playing(&script())).await;

    let answer = world.call("desk.die_once", json!({"file": &file.0})).await;

    assert_eq!(answer, Ok(json!("alive")));
}

#[tokio::test]
async fn a_killed_server_is_started_again_for_the_next_call() {
    let world = World::of(playing(&script())).await;

    for _ in 0..3 {
        let pid = world.call("desk.pid", json!({})).await.unwrap();
        kill(&pid);
        let next = loop {
            // The connection can seem open for a moment after the end of the program.
            match world.call("desk.pid", json!({})).await {
                Ok(next) => break next,
                Err((code, message)) => assert_eq!(code, "connection_lost", "{message}"),
            }
        };
        assert_ne!(next, pid);
    }
}

#[tokio::test]
async fn an_idempotent_tool_works_right_after_its_server_was_killed() {
    let world = World::of(playing(&json!({"tools": [tool("pid"), read_only("echo")]}))).await;

    for _ in 0..3 {
        let pid = world.call("desk.pid", json!({})).await.unwrap();
        kill(&pid);

        // The connection still seems open, so the call is sent on it and then on a new one.
        assert_eq!(world.call("desk.echo", json!({})).await, Ok(json!("{}")));
    }
}

#[tokio::test]
async fn a_server_that_does_not_come_back_is_not_called() {
    // The program starts only if this file exists.
    let file = Marker::new("exists");
    std::fs::write(&file.0, "").unwrap();
    let server = McpServer::stdio("desk", guarded(&file)).call_timeout(Duration::from_millis(800));
    let world = World::of(server).await;
    std::fs::remove_file(&file.0).unwrap();

    world
        .refused("desk.die", json!({}), "connection_lost")
        .await;
    let message = world.refused("desk.echo", json!({}), "rate_limited").await;

    assert!(message.contains("cannot be reached"), "{message}");
    assert!(!world.tools.is_connected());
}

#[tokio::test]
async fn a_program_that_stops_reading_is_killed_with_the_connection() {
    const HANDSHAKE: &str = r#"
        read l; echo '{"jsonrpc":"2.0","id":0,"error":{"code":-32601,"message":"Method not found"}}'
        read l; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"t","version":"1"}}}'
        read l; read l; echo '{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"sink","inputSchema":{"type":"object"}}]}}'
        echo $$ > "$0"; exec sleep 600"#;
    let file = Marker::new("deaf");
    let command = StdioCommand::new("sh")
        .args(["-c", HANDSHAKE])
        .args([file.0.clone().into_os_string()]);
    let server = McpServer::stdio("desk", command).call_timeout(Duration::from_millis(500));
    let world = World::of(server).await;

    world
        .refused("desk.sink", json!({"text": "x".repeat(1 << 20)}), "timeout")
        .await;
    let pid = std::fs::read_to_string(&file.0).unwrap();
    assert!(is_alive(pid.trim()));
    drop(world);

    has_ended(pid.trim()).await;
}

/// A file that a server and its test share.
struct Marker(PathBuf);

impl Marker {
    fn new(name: &str) -> Self {
        let name = format!("ux-mcp-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

/// Returns a command that starts the server only if a file exists.
fn guarded(file: &Marker) -> StdioCommand {
    let itself = std::env::current_exe().unwrap();
    let test = within_crate(concat!(module_path!(), "::plays_its_script"));
    let test = test.replace("::lost::", "::program::");
    let played = r#"test -e "$2" && exec "$0" "$1" --exact --nocapture 3>&1 >/dev/null"#;
    StdioCommand::new("sh")
        .args(["-c", played])
        .args([itself.into_os_string(), test.into(), file.0.clone().into()])
        .env(SCRIPT, script().to_string())
}

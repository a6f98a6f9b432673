//! Calls of tools over standard input and output.

use super::{World, command, playing, read_only, tool};
use crate::child::{has_ended, is_alive};
use serde_json::{Value, json};
use std::time::Duration;
use universal_executor::mcp::{McpError, McpServer, StdioCommand};
use universal_executor::tool::{Approval, RetrySafety, ToolPermissions};
use universal_executor::{BreadcrumbStoreExt, MemoryStore, Services};

fn all() -> Value {
    json!({"tools": [
        tool("echo"), tool("fail"), tool("hang"), tool("pid"), tool("environment"), tool("cancelled"), tool("progress"),
        tool("start_child"), read_only("read"),
    ]})
}

#[tokio::test]
async fn the_tools_of_a_server_are_called_with_their_names_and_settings() {
    let world = World::of(playing(&all())).await;

    assert_eq!(world.tools.names().len(), 9);
    let read = world.registry.get("desk.read").unwrap();
    assert_eq!(read.description(), "Does read.");
    assert_eq!(read.settings().retry, RetrySafety::Idempotent);
    assert_eq!(
        world.call("desk.echo", json!({"a": [1, "ü"]})).await,
        Ok(json!(r#"{"a":[1,"ü"]}"#))
    );
    let message = world.refused("desk.fail", json!({}), "failed").await;
    assert_eq!(message, "out of paper");
}

#[tokio::test]
async fn services_register_the_tools_of_a_server() {
    let store = MemoryStore::default();
    let tools = playing(&all())
        .only(["echo"])
        .connect(&store)
        .await
        .unwrap();

    let services = Services::new().mcp(&tools).unwrap();

    assert!(format!("{services:?}").contains("desk.echo"));
    assert!(Services::mcp(services, &tools).is_err());
}

#[tokio::test]
async fn permissions_and_approvals_apply_as_to_local_tools() {
    let server = playing(&all()).tool("echo", |tool| tool.needs_approval(Approval::always()));
    let world = World::of(server).await;

    let closed = ToolPermissions::all().and_only_tags(["disk"]);
    assert_eq!(world.registry.allowed(&closed).names(), ["desk.read"]);
    world
        .refused("desk.echo", json!({}), "approval_required")
        .await;
}

#[tokio::test]
async fn a_missing_tool_in_the_settings_is_an_error_with_the_known_names() {
    let store = MemoryStore::default();
    let few = json!({"tools": [tool("echo"), tool("pid")]});

    let missing = playing(&few)
        .tool("eccho", |tool| tool)
        .connect(&store)
        .await;

    let error = missing.unwrap_err();
    assert!(matches!(&error, McpError::UnknownTool { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        r#"MCP server "desk" has no tool "eccho"; it has echo, pid"#
    );
}

#[tokio::test]
async fn the_program_inherits_only_listed_variables() {
    let world = World::of(playing(&all())).await;

    let names = world.call("desk.environment", json!({})).await.unwrap();

    let allowed = [
        "PATH",
        "HOME",
        "LANG",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
        super::program::SCRIPT,
    ];
    let names: Vec<&str> = names.as_str().unwrap().split(' ').collect();
    assert!(names.iter().all(|name| allowed.contains(name)), "{names:?}");
    assert!(names.contains(&"PATH"));
}

#[tokio::test]
async fn a_call_that_times_out_is_cancelled_on_the_server() {
    let server = playing(&all()).call_timeout(Duration::from_millis(300));
    let world = World::of(server).await;

    world.refused("desk.hang", json!({}), "timeout").await;

    let mut cancelled = json!("0");
    while cancelled == json!("0") {
        cancelled = world.call("desk.cancelled", json!({})).await.unwrap();
    }
    assert_eq!(cancelled, json!("1"));
}

#[tokio::test]
async fn progress_is_written_while_the_call_runs() {
    let world = World::of(playing(&all())).await;

    assert_eq!(
        world.call("desk.progress", json!({"reports": 1})).await,
        Ok(json!("done"))
    );

    let report = world
        .store
        .latest("tool.progress.v1")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(report.context["progress"]["total"], 1.0);
    let message = report.context["progress"]["message"].as_str().unwrap();
    assert!(message.len() < 1_100, "{}", message.len());
}

#[tokio::test]
async fn the_whole_process_group_ends_with_the_connection() {
    let world = World::of(playing(&all())).await;
    let pid = world.call("desk.pid", json!({})).await.unwrap();
    let child = world.call("desk.start_child", json!({})).await.unwrap();
    let (pid, child) = (pid.as_str().unwrap(), child.as_str().unwrap());
    assert!(is_alive(pid) && is_alive(child));

    drop(world);

    has_ended(pid).await;
    has_ended(child).await;
}

#[tokio::test]
async fn a_program_that_cannot_start_or_answer_is_an_error_without_secrets() {
    let store = MemoryStore::default();
    let missing = McpServer::stdio("desk", StdioCommand::new("/no/such/program"));
    let silent = McpServer::stdio("desk", StdioCommand::new("sleep").args(["600"]))
        .connect_timeout(Duration::from_millis(200));
    let leaking = StdioCommand::new("sh")
        .args(["-c", r#"id=0; while read line; do echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32603,"message":"bad key '$KEY'"}}'; id=$((id+1)); done"#])
        .env("KEY", "k-12345");
    let leaking = McpServer::stdio("desk", leaking).connect_timeout(Duration::from_secs(20));

    let missing = missing.connect(&store).await.unwrap_err();
    let silent = silent.connect(&store).await.unwrap_err();
    let leaking = leaking.connect(&store).await.unwrap_err();

    assert!(matches!(missing, McpError::Start { .. }), "{missing}");
    assert!(matches!(silent, McpError::Timeout { .. }), "{silent}");
    let text = format!("{leaking:?}");
    assert!(matches!(leaking, McpError::Connect { .. }), "{leaking}");
    assert!(!text.contains("k-12345"), "{text}");
}

#[tokio::test]
async fn an_invalid_name_of_a_server_is_an_error() {
    let store = MemoryStore::default();

    for name in ["", "Desk", "a.b", &"x".repeat(33)] {
        let error = McpServer::stdio(name, command(&all()))
            .connect(&store)
            .await
            .unwrap_err();
        assert!(matches!(error, McpError::BadName { .. }), "{error}");
    }
}

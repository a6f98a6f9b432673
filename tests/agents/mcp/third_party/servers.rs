//! Tools of MCP servers of other projects.

use super::{MARK, Programs, until};
use crate::child::is_alive;
use crate::mcp::World;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use universal_executor::mcp::{HttpEndpoint, McpChanges, McpServer, StdioCommand};
use universal_executor::tool::RetrySafety;
use universal_executor::{BreadcrumbStoreExt, MemoryStore};

impl Programs {
    /// Returns server-everything over standard input and output.
    fn everything(&self) -> McpServer {
        let command = StdioCommand::new(&self.node)
            .args([self.everything.clone(), "stdio".into()])
            .env(MARK, &self.mark);
        McpServer::stdio("everything", command)
    }

    /// Returns mcp-server-time over standard input and output, with a local time zone.
    fn time(&self, zone: &str) -> McpServer {
        let command = StdioCommand::new(&self.time)
            .args(["--local-timezone", zone])
            .env(MARK, &self.mark);
        McpServer::stdio("time", command)
    }
}

/// A running server-everything over HTTP. Dropping it kills the server.
struct HttpServer {
    port: u16,
    child: Child,
    /// The lines that the server writes to its standard output.
    output: Arc<Mutex<Vec<String>>>,
}

impl HttpServer {
    /// Starts the server on a free port of the loopback interface. The server has no option for the interface and listens on all.
    async fn start(programs: &Programs) -> Self {
        loop {
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            // Another program may have taken the port.
            if let Some(server) = Self::start_on(programs, port).await {
                return server;
            }
        }
    }

    /// Starts the server on a port, and waits until it listens. Returns `None` if the port is not free.
    async fn start_on(programs: &Programs, port: u16) -> Option<Self> {
        let mut child = Command::new(&programs.node)
            .arg(&programs.everything)
            .arg("streamableHttp")
            .env("PORT", port.to_string())
            .env(MARK, &programs.mark)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        loop {
            let line = lines.next_line().await.unwrap();
            let line = line.expect("the server ended before it listened");
            if line.contains("already in use") {
                return None;
            }
            if line.contains("listening on port") {
                break;
            }
        }
        // The server blocks when a pipe is full.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let output: Arc<Mutex<Vec<String>>> = Arc::default();
        let (written, mut lines) = (Arc::clone(&output), stdout);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                written.lock().unwrap().push(line);
            }
        });
        Some(Self {
            port,
            child,
            output,
        })
    }

    fn tools(&self) -> McpServer {
        let url = format!("http://127.0.0.1:{}/mcp", self.port);
        McpServer::http("everything", HttpEndpoint::new(url))
    }

    /// Returns `true` if a line of the output contains this text.
    fn wrote(&self, text: &str) -> bool {
        let output = self.output.lock().unwrap();
        output.iter().any(|line| line.contains(text))
    }

    /// Kills the server and waits for its end.
    async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }
}

fn signal(name: &str, pid: &str) {
    let command = std::process::Command::new("kill")
        .args([name, pid])
        .status();
    assert!(command.unwrap().success());
}

async fn echo(world: &World, message: &str) -> Result<Value, (String, String)> {
    let input = json!({"message": message});
    world.call("everything.echo", input).await
}

/// Checks the list of tools and their settings.
fn check_list(world: &World) {
    let names = world.tools.names();
    for name in [
        "echo",
        "get-sum",
        "get-tiny-image",
        "get-structured-content",
        "trigger-long-running-operation",
    ] {
        let name = format!("everything.{name}");
        assert!(names.contains(&&*name), "{names:?}");
    }
    let tool = world.registry.get("everything.get-structured-content");
    let settings = tool.unwrap().settings();
    assert_eq!(settings.retry, RetrySafety::Idempotent);
    assert!(settings.output_schema.is_some());
}

/// Calls tools whose results are text or structured content, and tools that fail.
async fn call_tools(world: &World) {
    assert_eq!(echo(world, "grüezi").await, Ok(json!("Echo: grüezi")));

    let numbers = json!({"a": 2, "b": 40.5});
    let sum = world.call("everything.get-sum", numbers).await;
    assert_eq!(sum, Ok(json!("The sum of 2 and 40.5 is 42.5.")));

    let city = json!({"location": "Chicago"});
    let weather = world.call("everything.get-structured-content", city);
    let expected = json!({"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82});
    assert_eq!(weather.await, Ok(expected));

    let incomplete = json!({"a": 2});
    let invalid = world.refused("everything.get-sum", incomplete, "invalid_input");
    assert!(invalid.await.contains('b'));

    // The server requires a request for a task, which this crate does not send.
    let topic = json!({"topic": "MCP"});
    let message = world.refused("everything.simulate-research-query", topic, "failed");
    let message = message.await;
    assert!(message.contains("task"), "{message}");
}

/// Calls tools whose results are images, links and files.
async fn call_tools_with_blocks(world: &World) {
    let image = world.call("everything.get-tiny-image", json!({})).await;
    let image = image.unwrap()["content"][1].clone();
    assert_eq!(image["type"], "image", "{image}");
    assert_eq!(image["mime_type"], "image/png", "{image}");
    assert!(image["omitted_bytes"].as_u64().unwrap() > 1_000, "{image}");

    let count = json!({"count": 2});
    let links = world.call("everything.get-resource-links", count).await;
    let link = links.unwrap()["content"][2].clone();
    assert_eq!(link["type"], "resource_link", "{link}");

    let blob = json!({"resourceType": "Blob", "resourceId": 1});
    let files = world.call("everything.get-resource-reference", blob).await;
    let file = files.unwrap()["content"][1].clone();
    assert_eq!(file["type"], "resource", "{file}");
    assert!(file["omitted_bytes"].as_u64().unwrap() > 10, "{file}");
}

/// Calls a tool that reports its progress, and checks the written reports.
async fn report_progress(world: &World) {
    let input = json!({"duration": 0.4, "steps": 4});
    let answer = world
        .call("everything.trigger-long-running-operation", input)
        .await;

    let done = "Long running operation completed. Duration: 0.4 seconds, Steps: 4.";
    assert_eq!(answer, Ok(json!(done)));
    let mut reports = world.store.recent("tool.progress.v1", 10).await.unwrap();
    reports.reverse();
    let reports: Vec<_> = reports
        .iter()
        .map(|report| &report.context["progress"])
        .collect();
    let steps =
        (1..=4).map(|step| json!({"progress": f64::from(step), "total": 4.0, "message": null}));
    assert_eq!(
        reports,
        steps.collect::<Vec<_>>().iter().collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn tools_of_server_everything_are_called_over_stdio() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let world = World::of(programs.everything()).await;

    check_list(&world);
    call_tools(&world).await;
    call_tools_with_blocks(&world).await;
    report_progress(&world).await;

    drop(world);
    programs.end().await;
}

#[tokio::test]
async fn tools_of_server_everything_are_called_over_http() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let mut server = HttpServer::start(&programs).await;
    let world = World::of(server.tools()).await;

    check_list(&world);
    call_tools(&world).await;
    call_tools_with_blocks(&world).await;
    report_progress(&world).await;

    drop(world);
    server.kill().await;
    programs.end().await;
}

#[tokio::test]
async fn a_dropped_connection_ends_its_session_on_the_http_server() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let server = HttpServer::start(&programs).await;
    let world = World::of(server.tools()).await;
    assert!(echo(&world, "a").await.is_ok());
    let ended = "Received session termination request";
    assert!(!server.wrote(ended));

    drop(world);

    until("the session was not ended", async || {
        server.wrote(ended).then_some(())
    })
    .await;
    drop(server);
    programs.end().await;
}

#[tokio::test]
async fn both_transports_and_later_connections_offer_the_same_definitions() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let server = HttpServer::start(&programs).await;
    let store = MemoryStore::default();

    for _ in 0..2 {
        let stdio = World::on(store.clone(), programs.everything()).await;
        let http = World::on(store.clone(), server.tools()).await;
        assert_eq!(stdio.tools.names(), http.tools.names());
        assert!(echo(&stdio, "a").await.is_ok());
        assert!(echo(&http, "a").await.is_ok());
    }

    assert!(McpChanges::on(&store).list().await.unwrap().is_empty());
    drop(server);
    programs.end().await;
}

#[tokio::test]
async fn mcp_server_time_answers_with_a_time() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let world = World::of(programs.time("UTC")).await;
    let before = jiff::Timestamp::now().as_second();

    let time = world
        .call("time.get_current_time", json!({"timezone": "Asia/Tokyo"}))
        .await
        .unwrap();
    let unknown = world
        .refused(
            "time.get_current_time",
            json!({"timezone": "Mars/Base"}),
            "failed",
        )
        .await;

    let after = jiff::Timestamp::now().as_second();
    let text = time["datetime"].as_str().unwrap();
    assert!(text.ends_with("+09:00"), "{time}");
    let time: jiff::Timestamp = text.parse().unwrap();
    assert!((before..=after).contains(&time.as_second()), "{text}");
    assert!(unknown.contains("Mars/Base"), "{unknown}");
    drop(world);
    programs.end().await;
}

#[tokio::test]
async fn a_changed_definition_of_mcp_server_time_is_held() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let store = MemoryStore::default();
    let utc = World::on(store.clone(), programs.time("UTC")).await;
    let zone = json!({"timezone": "UTC"});
    assert!(
        utc.call("time.get_current_time", zone.clone())
            .await
            .is_ok()
    );
    drop(utc);

    // The time zone of the server is in the schema of its tools.
    let tokyo = World::on(store.clone(), programs.time("Asia/Tokyo")).await;

    tokyo.refused("time.get_current_time", zone, "held").await;
    let changes = McpChanges::on(&store).list().await.unwrap();
    assert_eq!(changes.len(), 2);
    assert!(
        changes[0].to_string().contains("Asia/Tokyo"),
        "{}",
        changes[0]
    );
    drop(tokyo);
    programs.end().await;
}

#[tokio::test]
async fn a_call_after_the_kill_of_a_server_works() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let everything = World::of(programs.everything()).await;

    for _ in 0..3 {
        let pid = programs.pid();
        signal("-KILL", &pid);
        until("the killed server still runs", async || {
            (!is_alive(&pid)).then_some(())
        })
        .await;
        // The tool is idempotent, so a lost connection is not visible.
        assert_eq!(echo(&everything, "back").await, Ok(json!("Echo: back")));
        assert_ne!(programs.pid(), pid);
    }

    drop(everything);
    programs.end().await;
}

#[tokio::test]
async fn a_call_after_the_kill_of_mcp_server_time_works() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let time = World::of(programs.time("UTC")).await;
    let zone = json!({"timezone": "UTC"});

    for _ in 0..3 {
        let pid = programs.pid();
        signal("-KILL", &pid);
        until("the killed server still runs", async || {
            (!is_alive(&pid)).then_some(())
        })
        .await;
        let answer = time.call("time.get_current_time", zone.clone()).await;
        assert_eq!(answer.unwrap()["timezone"], "UTC");
        assert_ne!(programs.pid(), pid);
    }

    drop(time);
    programs.end().await;
}

/// Calls a tool that reports its progress for two seconds.
async fn long_call(world: &World) -> Result<Value, (String, String)> {
    let input = json!({"duration": 2, "steps": 20});
    world
        .call("everything.trigger-long-running-operation", input)
        .await
}

/// Waits until a call has reported its progress.
async fn progress(world: &World) {
    until("the call did not report its progress", async || {
        world.store.latest("tool.progress.v1").await.unwrap()
    })
    .await;
}

#[tokio::test]
async fn a_call_whose_server_is_killed_is_sent_again() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let world = World::of(programs.everything()).await;
    let kill = async {
        progress(&world).await;
        signal("-KILL", &programs.pid());
    };

    let (answer, ()) = tokio::join!(long_call(&world), kill);

    let answer = answer.unwrap().to_string();
    assert!(
        answer.contains("Long running operation completed"),
        "{answer}"
    );
    drop(world);
    programs.end().await;
}

#[tokio::test]
async fn a_call_whose_http_server_is_restarted_is_sent_again() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let mut server = HttpServer::start(&programs).await;
    let world = World::of(server.tools()).await;
    let restart = async {
        progress(&world).await;
        server.kill().await;
        HttpServer::start_on(&programs, server.port).await.unwrap()
    };

    let (answer, server) = tokio::join!(long_call(&world), restart);

    let answer = answer.unwrap().to_string();
    assert!(
        answer.contains("Long running operation completed"),
        "{answer}"
    );
    drop((world, server));
    programs.end().await;
}

#[tokio::test]
async fn a_call_after_the_restart_of_an_http_server_works() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let mut server = HttpServer::start(&programs).await;
    let world = World::of(server.tools()).await;

    for _ in 0..3 {
        server.kill().await;
        // The new server does not know the session.
        server = HttpServer::start_on(&programs, server.port).await.unwrap();
        assert_eq!(echo(&world, "back").await, Ok(json!("Echo: back")));
    }

    drop((world, server));
    programs.end().await;
}

/// Stops the only process of a test with a signal, expects that calls time out, and continues it.
async fn stop_and_continue(world: &World, programs: &Programs) {
    let pid = programs.pid();
    assert!(echo(world, "before").await.is_ok());

    signal("-STOP", &pid);
    let refused = echo(world, "stopped").await;
    signal("-CONT", &pid);

    let (code, message) = refused.unwrap_err();
    assert_eq!(code, "timeout", "{message}");
    assert_eq!(echo(world, "after").await, Ok(json!("Echo: after")));
    assert!(world.tools.is_connected());
    assert_eq!(programs.pid(), pid);
}

#[tokio::test]
async fn a_stopped_server_times_out_and_works_again_when_it_continues() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let server = programs.everything().call_timeout(Duration::from_secs(3));
    let world = World::of(server).await;

    stop_and_continue(&world, &programs).await;

    drop(world);
    programs.end().await;
}

#[tokio::test]
async fn a_stopped_http_server_times_out_and_works_again_when_it_continues() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let server = HttpServer::start(&programs).await;
    let world = World::of(server.tools().call_timeout(Duration::from_secs(3))).await;

    stop_and_continue(&world, &programs).await;

    drop((world, server));
    programs.end().await;
}

#[tokio::test]
async fn a_cancelled_operation_does_not_disturb_later_calls() {
    let Some(programs) = Programs::installed() else {
        return;
    };
    let server = programs.everything().call_timeout(Duration::from_secs(1));
    let world = World::of(server).await;
    let long = json!({"duration": 60, "steps": 600});

    let message = world
        .refused("everything.trigger-long-running-operation", long, "timeout")
        .await;

    assert!(message.contains("within 1s"), "{message}");
    for number in 0..20 {
        let message = number.to_string();
        assert_eq!(
            echo(&world, &message).await,
            Ok(json!(format!("Echo: {number}")))
        );
    }
    drop(world);
    programs.end().await;
}

//! An agent with a local tool and the tools of two MCP servers, whose worker and servers are killed.

#[allow(
    dead_code,
    reason = "the server has further behaviours for other tests"
)]
#[path = "../agents/mcp/program.rs"]
mod program;

use self::program::{Action, Program, SCRIPT};
use crate::child::{has_ended, run_alone, within_crate};
use serde_json::{Value, json};
use std::env;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::timeout;
use universal_executor::agent::{Agent, ChatMessage, ChatResponse, ScriptedModel, ToolCall};
use universal_executor::client::Principal;
use universal_executor::mcp::{HttpEndpoint, McpServer, StdioCommand};
use universal_executor::tool::{Approval, json_tool};
use universal_executor::{
    BreadcrumbStoreExt as _, Client, NewBreadcrumb, Runtime, SqliteStore, Subscription,
};

const WORKER: &str = concat!(module_path!(), "::worker_that_runs_until_it_is_killed");
const HTTP_SERVER: &str = concat!(module_path!(), "::http_server_that_runs_until_it_is_killed");
const STDIO_SERVER: &str = concat!(module_path!(), "::program::plays_its_script");
/// The environment variable with the folder and the port of the HTTP server.
const ENVIRONMENT: &str = "UNIVERSAL_EXECUTOR_MCP";
const LONG: Duration = Duration::from_secs(120);

/// The folder of one test, and the port of its HTTP server.
#[derive(Clone, Debug)]
struct Place {
    folder: PathBuf,
    port: u16,
}

impl Place {
    fn read() -> Option<Self> {
        let text = env::var(ENVIRONMENT).ok()?;
        let (port, folder) = text.split_once(' ')?;
        Some(Self {
            folder: folder.into(),
            port: port.parse().ok()?,
        })
    }

    /// Starts a test of this executable as a process that can be killed.
    fn start(&self, test: &str) -> Child {
        let told = format!("{} {}", self.port, self.folder.display());
        let mut child = run_alone(test);
        child.env(ENVIRONMENT, told).stdout(Stdio::null());
        child.spawn().unwrap()
    }

    /// Returns the file by which the first call of a tool is recognised.
    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn pipe(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.pipe"))
    }

    /// Waits for the first call of a tool. Returns the ID of the process that received it.
    async fn reached(&self, name: &str) -> String {
        let pid = tokio::fs::read_to_string(self.pipe(name));
        timeout(LONG, pid).await.unwrap().unwrap()
    }

    async fn store(&self) -> SqliteStore {
        let store = SqliteStore::open(self.folder.join("store.db")).await;
        store.unwrap()
    }
}

fn kill(pid: &str) {
    let killed = Command::new("kill").args(["-9", pid]).status();
    assert!(killed.unwrap().success());
}

fn kill_child(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A list with one read-only tool.
fn script() -> Value {
    let annotations = json!({"readOnlyHint": true});
    let tool =
        json!({"name": "hang_once", "inputSchema": {"type": "object"}, "annotations": annotations});
    json!({"tools": [tool]})
}

/// Returns the next answer of the model: a call of each tool, one after another, then the results.
fn answer(place: &Place, messages: &[ChatMessage]) -> ChatResponse {
    let results = messages
        .iter()
        .filter(|message| message.call_id().is_some());
    let results: Vec<String> = results.map(|message| message.text().into_owned()).collect();
    let names = ["local", "desk.hang_once", "web.hang_once"];
    match names.get(results.len()) {
        Some(name) => {
            let file = place.file(name);
            ChatResponse::calling(vec![ToolCall::new(*name, *name, json!({"file": file}))])
        }
        None => ChatResponse::new(results.join(", ")),
    }
}

async fn work(place: Place) {
    let store = place.store().await;
    let local = json_tool("local", "Hangs once.", json!({}), |input, _| async move {
        let file = input["file"].as_str().unwrap_or_default();
        if File::create_new(file).is_ok() {
            std::fs::write(format!("{file}.pipe"), std::process::id().to_string())?;
            std::future::pending::<()>().await;
        }
        Ok(json!("alive"))
    });
    let played = r#"exec "$0" "$1" --exact --nocapture 3>&1 >/dev/null"#;
    let itself = env::current_exe().unwrap();
    let command = StdioCommand::new("sh")
        .args(["-c", played])
        .args([itself.into_os_string(), within_crate(STDIO_SERVER).into()])
        .env(SCRIPT, script().to_string());
    let desk = McpServer::stdio("desk", command)
        .connect(&store)
        .await
        .unwrap();
    let url = format!("http://127.0.0.1:{}/mcp", place.port);
    let web = McpServer::http("web", HttpEndpoint::new(url))
        .tool("hang_once", |tool| tool.needs_approval(Approval::always()));
    let web = web.connect(&store).await.unwrap();

    let shown = place.clone();
    let model = ScriptedModel::answering(move |_, request| Ok(answer(&shown, &request.messages)));
    let clerk = Agent::new("clerk", model)
        .on(Subscription::trigger("user.message.v1"))
        .tool(local.idempotent())
        .tool(desk.get("desk.hang_once").unwrap())
        .tool(web.get("web.hang_once").unwrap())
        .profile(|profile| profile.lease(Duration::from_secs(1)).timeout(LONG))
        .bind(&store)
        .unwrap();
    Runtime::on(&store)
        .executor(clerk)
        .run_until_signal()
        .await
        .unwrap();
}

#[tokio::test]
async fn worker_that_runs_until_it_is_killed() {
    match Place::read() {
        Some(place) => work(place).await,
        None => assert!(env::var_os(ENVIRONMENT).is_none()),
    }
}

/// Serves MCP over HTTP, one request for each connection.
#[test]
fn http_server_that_runs_until_it_is_killed() {
    let Some(place) = Place::read() else {
        assert!(env::var_os(ENVIRONMENT).is_none());
        return;
    };
    let listener = TcpListener::bind(("127.0.0.1", place.port)).unwrap();
    let mut program = Program::new(script());
    for connection in listener.incoming() {
        serve(connection.unwrap(), &mut program);
    }
}

fn serve(mut connection: TcpStream, program: &mut Program) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let (mut line, mut length, mut is_post) = (String::new(), 0, false);
    while reader.read_line(&mut line).is_ok_and(|size| size > 2) {
        let lower = line.to_ascii_lowercase();
        is_post |= lower.starts_with("post");
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let answer = match is_post {
        true => program.answers(&message).pop(),
        false => None,
    };
    let (status, body) = match (answer, is_post) {
        (Some(Action::Send(answer)), _) => (200, answer.to_string()),
        (Some(_) | None, true) if message["id"].is_null() => (202, String::new()),
        // A call that hangs: the connection stays open until the process is killed.
        (Some(_) | None, true) => return std::mem::forget(connection),
        (Some(_) | None, false) => (405, String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status} Some\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection
        .write_all(format!("{head}{body}").as_bytes())
        .ok();
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn prepare(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    for name in ["local", "desk.hang_once", "web.hang_once"] {
        let pipe = folder.join(format!("{name}.pipe"));
        let made = Command::new("mkfifo").arg(pipe).status();
        assert!(made.unwrap().success());
    }
}

#[tokio::test]
async fn a_run_with_a_local_tool_and_two_mcp_servers_survives_the_kill_of_its_worker_and_of_each_server()
 {
    let name = format!("universal-executor-mcp-{}", std::process::id());
    let place = Place {
        folder: env::temp_dir().join(name),
        port: free_port(),
    };
    prepare(&place.folder);
    let mut server = place.start(HTTP_SERVER);
    while TcpStream::connect(("127.0.0.1", place.port)).is_err() {
        tokio::task::yield_now().await;
    }
    let mut worker = place.start(WORKER);
    let store = place.store().await;
    let client = Client::new(&store);
    let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "Begin."}));
    let request = client.request("clerk", message).send().await.unwrap();

    place.reached("local").await;
    kill_child(&mut worker);
    worker = place.start(WORKER);

    let desk = place.reached("desk.hang_once").await;
    kill(&desk);

    let question = loop {
        if let Some(question) = client.questions().open().await.unwrap().pop() {
            break question;
        }
        tokio::task::yield_now().await;
    };
    kill_child(&mut worker);
    worker = place.start(WORKER);
    let ann = Principal::new("ann");
    client
        .questions()
        .approve(&question.id, &ann)
        .await
        .unwrap();

    assert_eq!(
        place.reached("web.hang_once").await,
        server.id().to_string()
    );
    kill_child(&mut server);
    server = place.start(HTTP_SERVER);

    let reply = request.wait(LONG).await.unwrap();
    let response = reply.response().unwrap();
    assert_eq!(response.context["message"], "alive, alive, alive");
    for schema in ["agent.response.v1", "human.request.v1", "human.response.v1"] {
        assert_eq!(store.recent(schema, 9).await.unwrap().len(), 1, "{schema}");
    }
    assert_eq!(store.recent("executor.failed.v1", 9).await.unwrap(), []);
    kill_child(&mut worker);
    kill_child(&mut server);
    has_ended(&desk).await;
    std::fs::remove_dir_all(&place.folder).unwrap();
}

//! A service with tools and agents, and its MCP server, for tests of the server.

use super::World;
use crate::child::within_crate;
use serde_json::{Value, json};
use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use universal_executor::agent::{Agent, ChatRequest, ChatResponse, ScriptedModel, ToolCall};
use universal_executor::client::Principal;
use universal_executor::mcp::{HttpEndpoint, McpServer, McpService};
use universal_executor::runtime::Running;
use universal_executor::store::{RunFilter, RunState};
use universal_executor::tool::{Approval, JsonTool, json_tool};
use universal_executor::{Client, MemoryStore, RunLedger, Runtime, Services, Subscription};

/// The operations of the service.
pub(super) const NAMES: [&str; 8] = [
    "cashier", "count", "dropped", "fail", "finish", "helper", "pay", "slow",
];

/// The state that the tools share with the test.
#[derive(Clone, Default)]
pub(super) struct Shared {
    /// The number of calls of the tool `count`.
    pub(super) calls: Arc<AtomicUsize>,
    /// Lets the tool `slow` finish.
    pub(super) finish: Arc<Notify>,
    /// The number of calls of the tool `slow` that were dropped before their end.
    dropped: Arc<AtomicUsize>,
    drops: Arc<Notify>,
}

/// Reports the end of a call of the tool `slow`, unless it finished.
struct Unfinished {
    shared: Shared,
    is_finished: bool,
}

impl Unfinished {
    fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_finished {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            self.shared.drops.notify_one();
        }
    }
}

fn object() -> Value {
    json!({"type": "object"})
}

/// Returns a tool that counts its calls, one that waits for the test, two that control and observe it, one that fails, and one that needs an
/// approval.
fn tools(shared: &Shared) -> [JsonTool; 6] {
    let calls = Arc::clone(&shared.calls);
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let count = json_tool("count", "Counts its calls.", schema, move |input, _| {
        let call = calls.fetch_add(1, Ordering::Relaxed) + 1;
        async move { Ok(json!({"call": call, "input": input})) }
    });
    let output = json!({"type": "object", "properties": {"call": {"type": "integer"}}, "required": ["call"]});
    let fail = json_tool("fail", "Fails.", object(), |_, _| async {
        Err("out of paper".into())
    });
    let finish = Arc::clone(&shared.finish);
    let finish = json_tool("finish", "Ends `slow`.", object(), move |_, _| {
        finish.notify_one();
        async { Ok(json!("ended")) }
    });
    let observed = shared.clone();
    let description = "Waits until a call of `slow` is dropped.";
    let dropped = json_tool("dropped", description, object(), move |_, _| {
        let observed = observed.clone();
        async move {
            observed.drops.notified().await;
            Ok(json!(observed.dropped.load(Ordering::Relaxed)))
        }
    });
    [
        count.output_schema(output),
        slow(shared),
        finish,
        dropped,
        fail,
        pay(),
    ]
}

fn pay() -> JsonTool {
    let pay = json_tool("pay", "Pays.", object(), |_, _| async { Ok(json!("paid")) });
    pay.needs_approval(Approval::always())
}

fn slow(shared: &Shared) -> JsonTool {
    let shared = shared.clone();
    let slow = json_tool(
        "slow",
        "Waits for the test.",
        object(),
        move |_, context| {
            let call = Unfinished {
                shared: shared.clone(),
                is_finished: false,
            };
            async move {
                context.progress("half of the work is done").await?;
                call.shared.finish.notified().await;
                call.finish();
                Ok(json!("finished"))
            }
        },
    );
    slow.timeout(Duration::from_secs(600))
}

/// Pays once, and answers with the result of the payment.
fn cashier(request: &ChatRequest) -> ChatResponse {
    let last = request.messages.last();
    match last.filter(|message| message.call_id().is_some()) {
        Some(result) => ChatResponse::new(format!("result: {}", json!(result))),
        None => {
            let call = ToolCall::new("call-1", "pay", json!({"amount": 5}));
            ChatResponse::calling(vec![call])
        }
    }
}

/// Starts the service on a new store, and returns its MCP server.
pub(super) async fn start(shared: &Shared) -> (MemoryStore, Running, McpService) {
    let model = ScriptedModel::answering(|_, _| Ok(ChatResponse::new("Order 7 is shipped.")));
    let paying = ScriptedModel::answering(|_, request| Ok(cashier(request)));
    let mut services = Services::new()
        .model("small", model)
        .model("paying", paying);
    for tool in tools(shared) {
        services = services.tool(tool).unwrap();
    }
    let store = MemoryStore::default();
    let on_message =
        |agent: &str| Subscription::trigger("user.message.v1").all_tags([format!("agent:{agent}")]);
    let helper = Agent::new("helper", "small").on(on_message("helper"));
    let cashier = Agent::new("cashier", "paying")
        .on(on_message("cashier"))
        .tool(pay());
    let tools = services.dispatcher("tools", &store).unwrap();
    let service = McpService::new(&Client::new(&store))
        .tools(&tools)
        .agent("helper", "Answers questions about orders.")
        .agent("cashier", "Pays bills.")
        .answers_as(Principal::new("ann"));
    let running = Runtime::on(&store)
        .executor(tools)
        .executor(helper.bind_with(&store, &services).unwrap())
        .executor(cashier.bind_with(&store, &services).unwrap());
    (store, running.start().await.unwrap(), service)
}

/// The environment variable of a process that serves MCP over standard input and output.
const SERVE: &str = "UNIVERSAL_EXECUTOR_MCP_SERVE";

/// Returns the command that serves MCP over standard input and output.
pub(super) fn stdio_command() -> Vec<String> {
    let itself = std::env::current_exe().unwrap();
    let test = within_crate(concat!(module_path!(), "::serves_over_stdio"));
    let serve = format!("{SERVE}=1");
    let played = r#"exec "$0" "$1" --exact --nocapture 2>&1 >/dev/null"#;
    let command = [
        "env",
        &serve,
        "sh",
        "-c",
        played,
        itself.to_str().unwrap(),
        test,
    ];
    command.map(str::to_owned).to_vec()
}

/// Serves MCP over standard input and output, if the environment says so. Fails if a run has not ended when the server returns.
#[tokio::test]
async fn serves_over_stdio() {
    let (store, running, service) = start(&Shared::default()).await;
    assert_eq!(service.names(), NAMES);
    if std::env::var_os(SERVE).is_none() {
        running.stop().await.unwrap();
        return;
    }
    // The test harness writes to the standard output, so the client's pipe is the standard error.
    rustix::stdio::dup2_stdout(io::stderr()).unwrap();
    service.serve_stdio().await.unwrap();
    let runs = store.runs(&RunFilter::all()).await.unwrap();
    let mut states = runs.iter().map(|run| run.state);
    let are_ended = states.all(|state| matches!(state, RunState::Done | RunState::Failed));
    process::exit(i32::from(!are_ended));
}

/// A service and its MCP server over HTTP.
pub(super) struct Served {
    pub(super) store: MemoryStore,
    pub(super) running: Running,
    pub(super) url: String,
    pub(super) shared: Shared,
}

impl Served {
    pub(super) async fn start() -> Self {
        Self::start_with(|service| service).await
    }

    /// Starts the service with changed settings of its MCP server.
    pub(super) async fn start_with(change: impl FnOnce(McpService) -> McpService) -> Self {
        let shared = Shared::default();
        let (store, running, service) = start(&shared).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let app = axum::Router::new().nest("/mcp", change(service).router());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self {
            store,
            running,
            url,
            shared,
        }
    }

    pub(super) async fn client(&self) -> World {
        World::of(McpServer::http("desk", HttpEndpoint::new(&*self.url))).await
    }

    /// Returns the states of all runs. A cancelled run has the state `failed`.
    pub(super) async fn states(&self) -> Vec<RunState> {
        let runs = self.store.runs(&RunFilter::all()).await.unwrap();
        runs.iter().map(|run| run.state).collect()
    }
}

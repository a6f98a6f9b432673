//! The MCP server of a service, called by this crate's MCP client.

use super::World;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use universal_executor::agent::{Agent, ChatResponse, ScriptedModel};
use universal_executor::machine::MachineCall;
use universal_executor::mcp::{HttpEndpoint, McpServer, McpService};
use universal_executor::runtime::Running;
use universal_executor::store::{RunFilter, RunState};
use universal_executor::tool::{Approval, JsonTool, json_tool};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, Client, ExecutionContext, MemoryStore, NewBreadcrumb,
    RunLedger, Runtime, Services, Subscription,
};

/// A service with tools and an agent, and its MCP server.
struct Served {
    store: MemoryStore,
    running: Running,
    url: String,
    calls: Arc<AtomicUsize>,
    /// Lets the tool `slow` finish.
    finish: Arc<Notify>,
}

/// Returns a tool that counts its calls, one that waits for the test, one that fails, and one that needs an approval.
fn tools(calls: &Arc<AtomicUsize>, finish: &Arc<Notify>) -> [JsonTool; 4] {
    let object = || json!({"type": "object"});
    let counted = Arc::clone(calls);
    let count = json_tool("count", "Counts its calls.", object(), move |input, _| {
        let call = counted.fetch_add(1, Ordering::Relaxed) + 1;
        async move { Ok(json!({"call": call, "input": input})) }
    });
    let finish = Arc::clone(finish);
    let slow = json_tool(
        "slow",
        "Waits for the test.",
        object(),
        move |_, context| {
            let finish = Arc::clone(&finish);
            async move {
                context.progress("half of the work is done").await?;
                finish.notified().await;
                Ok(json!("finished"))
            }
        },
    );
    let fail = json_tool("fail", "Fails.", object(), |_, _| async {
        Err("out of paper".into())
    });
    let pay = json_tool("pay", "Pays.", object(), |_, _| async { Ok(json!("paid")) });
    let slow = slow.timeout(Duration::from_secs(600));
    [count, slow, fail, pay.needs_approval(Approval::always())]
}

impl Served {
    async fn start() -> Self {
        let (calls, finish) = <(Arc<AtomicUsize>, Arc<Notify>)>::default();
        let model = ScriptedModel::answering(|_, _| Ok(ChatResponse::new("Order 7 is shipped.")));
        let mut services = Services::new().model("small", model);
        for tool in tools(&calls, &finish) {
            services = services.tool(tool).unwrap();
        }
        let store = MemoryStore::default();
        let helper = Agent::new("helper", "small").on(Subscription::trigger("user.message.v1"));
        let tools = services.dispatcher("tools", &store).unwrap();
        let service = McpService::new(&Client::new(&store))
            .tools(&tools)
            .agent("helper", "Answers questions about orders.");
        let running = Runtime::on(&store)
            .executor(tools)
            .executor(helper.bind_with(&store, &services).unwrap());
        let running = running.start().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let app = axum::Router::new().nest("/mcp", service.router());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self {
            store,
            running,
            url,
            calls,
            finish,
        }
    }

    async fn client(&self) -> World {
        World::of(McpServer::http("desk", HttpEndpoint::new(&*self.url))).await
    }

    async fn states(&self) -> Vec<RunState> {
        let runs = self.store.runs(&RunFilter::all()).await.unwrap();
        runs.iter().map(|run| run.state).collect()
    }
}

#[tokio::test]
async fn a_client_calls_tools_and_agents_by_durable_runs() {
    let served = Served::start().await;
    let client = served.client().await;

    assert_eq!(
        client.tools.names(),
        [
            "desk.count",
            "desk.fail",
            "desk.helper",
            "desk.pay",
            "desk.slow"
        ]
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
    assert_eq!(served.calls.load(Ordering::Relaxed), 1);
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
        served.finish.notify_one();
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
    served.finish.notify_one();

    while served.states().await != [RunState::Done] {
        tokio::task::yield_now().await;
    }
    served.running.stop().await.unwrap();
}

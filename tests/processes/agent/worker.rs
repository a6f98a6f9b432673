//! The process that is killed: a runtime over one store, with an agent and its three tools.

use crate::agent::ToolMode;
use crate::agent::lives::{ASKED, Life, open, say};
use crate::agent::note::Note;
use crate::agent::points::Points;
use crate::agent::store::Doomed;
use futures::StreamExt as _;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ChatMessage, ChatRequest, ChatResponse, ScriptedModel, Speaker,
    ToolCall,
};
use universal_executor::source::StartAt;
use universal_executor::store::RunFilter;
use universal_executor::tool::{JsonTool, ToolDispatcher, ToolRegistry, json_tool};
use universal_executor::{
    BreadcrumbStoreExt as _, EventSource as _, RunLedger as _, Runtime, SqliteStore,
    UniversalExecutor,
};

pub(crate) const AGENT: &str = "worker";
/// ID of the executor that serves tool requests.
pub(crate) const SERVED: &str = "tools";
pub(crate) const AGAIN: &str = "again";
pub(crate) const ONCE: &str = "once";
pub(crate) const MOST: &str = "most";
/// The tools, in the order in which they are called.
pub(crate) const TOOLS: [&str; 3] = [AGAIN, ONCE, MOST];
/// The words in the model's answer for a call that ran and for a call with an unknown outcome.
pub(crate) const DONE: &str = "done";
pub(crate) const UNKNOWN: &str = "unknown";

/// Tool timeout. It is longer than all lives of a run on the store's clock, so no tool result is late.
const TOOL_TIME: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs until the question is answered or the process is killed.
pub(crate) async fn work(life: Life) {
    let store = open(&life.folder, life.number).await;
    let points = Arc::new(Points::new(&life));
    let doomed = Arc::new(Doomed {
        store: store.clone(),
        points: Arc::clone(&points),
        tool_mode: life.tool_mode,
    });
    let runtime = Runtime::builder(store.events_of("worker"))
        .start_at(StartAt::Beginning)
        .executors(executors(&doomed, &points, life.tool_mode))
        .build()
        .unwrap();

    let answered = runtime.run_until(is_answered(&store));

    let answered = tokio::time::timeout(PATIENCE, answered).await;
    assert!(
        answered.is_ok(),
        "the run is open, but no worker makes progress"
    );
    answered.unwrap().unwrap();
}

fn executors(
    store: &Arc<Doomed>,
    points: &Arc<Points>,
    tool_mode: ToolMode,
) -> Vec<Arc<dyn UniversalExecutor>> {
    let tools = [
        tool(AGAIN, None, points).idempotent(),
        tool(ONCE, Some(AGAIN), points),
        tool(MOST, Some(ONCE), points).at_most_once(),
    ];
    let tools = tools
        .into_iter()
        .fold(ToolRegistry::default(), |all, tool| all.with(tool).unwrap());
    let (how, approved): (_, &[&str]) = match tool_mode {
        ToolMode::InProcess => ("in_process", &[]),
        ToolMode::Breadcrumbs => ("breadcrumbs", &[]),
        ToolMode::Approval => ("in_process", &[MOST]),
    };
    let definition = json!({
        "agent_id": AGENT, "system_prompt": "Work.", "tools": TOOLS, "tool_calls": how,
        "approval": {"tools": approved},
        "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
    });
    let definition = AgentDefinition::from_json(&definition).unwrap();
    let model = Arc::new(model(points));
    let agent = AgentExecutor::with_tools(definition, model, Arc::clone(store) as _, &tools);
    let mut all: Vec<Arc<dyn UniversalExecutor>> = vec![Arc::new(agent.unwrap())];
    if tool_mode == ToolMode::Breadcrumbs {
        let served = ToolDispatcher::new(SERVED, tools, Arc::clone(store) as _);
        all.push(Arc::new(served.unwrap()));
    }
    all
}

/// Creates a tool that ends after the result of another tool is saved, so that each result has a separate step.
fn tool(name: &'static str, after: Option<&'static str>, points: &Arc<Points>) -> JsonTool {
    let points = Arc::clone(points);
    let tool = json_tool(
        name,
        "For tests.",
        json!({"type": "object"}),
        move |_, call| {
            let (points, key) = (Arc::clone(&points), call.idempotency_key().to_owned());
            async move {
                let step = points.step(name);
                let tool = name.to_owned();
                step.reach("before");
                points.note(&Note::Started {
                    tool: tool.clone(),
                    key,
                });
                step.reach("under way");
                if let Some(other) = after {
                    points.is_kept(other).await;
                }
                points.note(&Note::Ended { tool });
                step.reach("after");
                Ok(json!(DONE))
            }
        },
    );
    tool.timeout(TOOL_TIME)
}

/// Creates a model that decides from the conversation alone, so that it behaves the same in each attempt.
fn model(points: &Arc<Points>) -> ScriptedModel {
    let points = Arc::clone(points);
    ScriptedModel::answering(move |_, request| {
        let told: Vec<_> = told(request);
        let turn = match told.is_empty() {
            true => "turn 1".to_owned(),
            false => "turn 2".to_owned(),
        };
        let step = points.step("model");
        points.note(&Note::Asked { turn: turn.clone() });
        step.reach("asked");
        let answer = match &*told {
            [] => ChatResponse::calling(
                TOOLS
                    .map(|tool| ToolCall::new(tool, tool, json!({})))
                    .into(),
            ),
            told => {
                let text = told.join(", ");
                points.note(&Note::Said { text: text.clone() });
                ChatResponse::new(text)
            }
        };
        points.note(&Note::Answered { turn });
        step.reach("answered");
        Ok(answer)
    })
}

/// Returns the model's words about each call.
fn told(request: &ChatRequest) -> Vec<String> {
    let told = |message: &&ChatMessage| message.speaker == Speaker::Tool;
    let results = request.messages.iter().filter(told);
    let results = results.map(|message| {
        let tool = message.call_id().unwrap();
        let what = match message.text().split_once(':') {
            Some(("outcome_unknown", _)) if message.is_error() => UNKNOWN,
            Some(_) | None => &*message.text(),
        };
        format!("{tool} {what}")
    });
    results.collect()
}

/// Waits until an answer exists and no run is open. Prints a line once when a person has a question.
async fn is_answered(store: &SqliteStore) {
    let mut events = store.events().subscribe(StartAt::Now).await.unwrap();
    let mut has_asked = false;
    loop {
        let runs = store.runs(&RunFilter::all()).await.unwrap();
        let is_over = runs.iter().all(|run| run.state.is_over());
        let of = async |schema: &str| store.recent(schema, 10).await.unwrap();
        if is_over && !of(AgentExecutor::RESPONSE).await.is_empty() {
            return;
        }
        let waits = async || {
            !of("human.request.v1").await.is_empty() && of("human.response.v1").await.is_empty()
        };
        if !has_asked && waits().await {
            has_asked = true;
            say(ASKED);
        }
        drop(events.next().await.unwrap().unwrap());
    }
}

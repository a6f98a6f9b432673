//! The process that is killed: a runtime over one store, with an agent and a flow in sessions.

use crate::flow::lives::{Life, open};
use crate::flow::notes::{Note, Notes};
use crate::flow::store::Doomed;
use crate::workload::shown::Shown;
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use universal_executor::agent::{ChatResponse, ScriptedModel, ToolCall};
use universal_executor::source::StartAt;
use universal_executor::store::RunFilter;
use universal_executor::tool::{JsonTool, ToolRegistry, json_tool};
use universal_executor::workflow::Workflow;
use universal_executor::workload::{FlowDefinition, WorkloadExecutor};
use universal_executor::{
    BreadcrumbStoreExt as _, EventSource as _, NewBreadcrumb, RunLedger as _, Runtime, Services,
    SqliteStore, Subscription, Subscriptions,
};

/// The sessions, each with an executor of the same name, and the messages in each session.
pub(crate) const SESSIONS: [&str; 2] = ["talk", "flow"];
pub(crate) const TURNS: [&str; 3] = ["one", "two", "three"];
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the schema of an executor's trigger.
pub(crate) fn message_to(session: &str) -> String {
    format!("message.{session}.v1")
}

/// Runs until all messages are answered or the process is killed.
pub(crate) async fn work(life: Life) {
    let store = open(&life.folder, life.number).await;
    let notes = Arc::new(Notes::open(&life));
    let doomed = Arc::new(Doomed {
        store: store.clone(),
        notes: Arc::clone(&notes),
    });
    let services = services(&notes, &life.folder);
    let runtime = Runtime::builder(store.events_of("worker")).start_at(StartAt::Beginning);
    let runtime = SESSIONS.into_iter().fold(runtime, |runtime, session| {
        runtime.executor(Arc::new(executor(session, &services, &doomed)))
    });

    let runtime = runtime.build().unwrap();

    let ended = tokio::time::timeout(PATIENCE, runtime.run_until(is_over(&store))).await;
    assert!(
        ended.is_ok(),
        "messages are open, but no worker makes progress"
    );
    ended.unwrap().unwrap();
    notes.end();
}

fn executor(session: &str, services: &Services, store: &Arc<Doomed>) -> WorkloadExecutor {
    let workflow = Workflow::from_json(&definition(session)).unwrap();
    let definition = Arc::new(FlowDefinition::new(session, workflow).unwrap());
    let messages = Subscriptions::new([Subscription::trigger(message_to(session))]).unwrap();
    WorkloadExecutor::new(session, definition, services, store, messages).unwrap()
}

fn definition(session: &str) -> Value {
    let flow = json!({"main": {"steps": [
        {"agent": "main"},
        {"tool": "again", "input": {"step": "${input}-between"}},
        {"agent": "main", "input": "${input}-more"},
        {"return": "${input} was done"},
    ]}});
    json!({
        "tools": {"again": {}, "most": {}},
        "agents": {"main": {"instruction": "Work.", "tools": ["again", "most"]}},
        "flows": if session == "flow" { flow } else { json!({}) },
    })
}

fn services(notes: &Arc<Notes>, folder: &Path) -> Services {
    let tools = [
        tool("again", notes).idempotent(),
        tool("most", notes).at_most_once(),
    ];
    let tools = tools
        .into_iter()
        .fold(ToolRegistry::default(), |all, tool| all.with(tool).unwrap());
    let model = model(Arc::clone(notes), folder.to_owned());
    Services::new().tools(tools).default_model(model)
}

/// Creates a tool that records its calls and needs more than one poll.
fn tool(name: &'static str, notes: &Arc<Notes>) -> JsonTool {
    let notes = Arc::clone(notes);
    let tool = json_tool(name, "For tests.", json!({}), move |input, call| {
        let (notes, key) = (Arc::clone(&notes), call.idempotency_key().to_owned());
        async move {
            let step = input["step"].as_str().unwrap_or("unnamed").to_owned();
            notes.pass();
            notes.note(&Note::Began {
                step: step.clone(),
                key,
            });
            notes.pass();
            tokio::task::yield_now().await;
            notes.note(&Note::Ended { step: step.clone() });
            notes.pass();
            Ok(json!(format!("{step} done")))
        }
    });
    tool.timeout(Duration::from_secs(3600))
}

/// Creates a model that calls two tools at once and then answers, independent of the attempt.
fn model(notes: Arc<Notes>, folder: PathBuf) -> ScriptedModel {
    ScriptedModel::answering(move |_, request| {
        notes.pass();
        let shown = Shown::of(request);
        shown.note(&folder);
        notes.pass();
        let call = |tool: &str| {
            let step = format!("{}-{tool}", shown.asked);
            ToolCall::new(&*step, tool, json!({"step": step}))
        };
        Ok(match shown.results {
            0 => ChatResponse::calling(vec![call("again"), call("most")]),
            _ => ChatResponse::new(format!("{} done", shown.asked)),
        })
    })
}

/// Waits until all messages are answered and no run is open.
async fn is_over(store: &SqliteStore) {
    let mut events = store.events().subscribe(StartAt::Now).await.unwrap();
    loop {
        let runs = store.runs(&RunFilter::all()).await.unwrap();
        let is_over = runs.iter().all(|run| run.state.is_over());
        if is_over && runs.len() >= SESSIONS.len() * TURNS.len() {
            return;
        }
        drop(events.next().await.unwrap().unwrap());
    }
}

/// Writes a message per turn in each session.
pub(crate) async fn say_all(store: &SqliteStore) {
    for turn in TURNS {
        for session in SESSIONS {
            let message = NewBreadcrumb::new(message_to(session))
                .tag(format!("session:{session}"))
                .context(json!({"message": format!("{session}-{turn}")}));
            store.create(message).await.unwrap();
        }
    }
}

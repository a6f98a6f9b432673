//! The process that is killed: a runtime over one store, with a flow and its tools.

use crate::flow::lives::{Life, open};
use crate::flow::notes::{Note, Notes};
use crate::flow::store::Doomed;
use futures::StreamExt as _;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use universal_executor::agent::{ChatResponse, ScriptedModel, Speaker, ToolCall};
use universal_executor::source::StartAt;
use universal_executor::store::RunFilter;
use universal_executor::tool::{JsonTool, ToolRegistry, json_tool};
use universal_executor::workflow::Workflow;
use universal_executor::workload::WorkloadExecutor;
use universal_executor::{
    BreadcrumbStoreExt as _, EventSource as _, NewBreadcrumb, RunLedger as _, Runtime, Services,
    SqliteStore,
};

pub(crate) const ID: &str = "work";
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the result of every run, regardless of kills.
pub(crate) fn expected() -> Value {
    json!({
        "first": "first done", "after": "after done", "agent": "agent done",
        "branches": ["x4 done", "y", "z4 done"], "items": ["item1 done", "item2 done", "item3 done"],
    })
}

/// Runs until a result exists or the process is killed.
pub(crate) async fn work(life: Life) {
    let store = open(&life.folder, life.number).await;
    let notes = Arc::new(Notes::open(&life));
    let doomed = Arc::new(Doomed {
        store: store.clone(),
        notes: Arc::clone(&notes),
    });
    let runtime = Runtime::builder(store.events_of("worker"))
        .start_at(StartAt::Beginning)
        .executor(Arc::new(executor(&doomed, &notes)))
        .build()
        .unwrap();

    let ended = runtime.run_until(is_over(&store));

    let ended = tokio::time::timeout(PATIENCE, ended).await;
    assert!(
        ended.is_ok(),
        "the run is open, but no worker makes progress"
    );
    ended.unwrap().unwrap();
    notes.end();
}

fn executor(store: &Arc<Doomed>, notes: &Arc<Notes>) -> WorkloadExecutor {
    let tools = [
        tool("again", notes).idempotent(),
        tool("most", notes).at_most_once(),
    ];
    let tools = tools
        .into_iter()
        .fold(ToolRegistry::default(), |all, tool| all.with(tool).unwrap());
    let services = Services::new().tools(tools).default_model(model());
    let workflow = Workflow::from_json(&definition()).unwrap();
    WorkloadExecutor::of_workflow(ID, workflow, &services, store).unwrap()
}

fn definition() -> Value {
    let again = |step: &str| json!({"id": step, "tool": "again", "input": {"step": step}});
    // The flow continues in the same way with a known and with an unknown outcome.
    let most = |step: &str| {
        json!({
            "try": [{"tool": "most", "input": {"step": step}}],
            "on_failure": [{"set": {"outcome": "unknown"}}],
        })
    };
    json!({
        "tools": {"again": {}, "most": {}},
        "agents": {"worker": {"instruction": "Work.", "tools": ["again", "most"]}},
        "flows": {
            "main": {"steps": [
                again("first"),
                most("m1"),
                {"id": "branches", "parallel": [
                    {"id": "x", "steps": [again("x1"), most("x2"), again("x3"), again("x4")]},
                    {"id": "y", "steps": [again("y1"), most("y2"), most("y3"), {"flow": "y"}]},
                    {"id": "z", "steps": [most("z1"), again("z2"), again("z3"), again("z4")]},
                ]},
                {"emit": {"schema_name": "note.v1", "context": {"n": "${input.n}"}}},
                {"id": "items", "for_each": [1, 2, 3], "at_once": 2, "steps": [
                    {"tool": "again", "input": {"step": "item${item}"}},
                ]},
                most("m2"),
                {"id": "agent", "agent": "worker", "input": "go"},
                again("after"),
                {"return": {
                    "first": "${first}", "after": "${after}", "agent": "${agent}",
                    "branches": "${branches}", "items": "${items}",
                }},
            ]},
            "y": {"steps": [again("y4"), most("y5"), {"return": "y"}]},
        },
    })
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
            notes.pass();
            notes.note(&Note::Ended { step: step.clone() });
            notes.pass();
            Ok(json!(format!("{step} done")))
        }
    });
    tool.timeout(Duration::from_secs(3600))
}

/// Creates a model that calls two tools in sequence. It decides from the conversation alone, so that it behaves the same in each attempt.
fn model() -> ScriptedModel {
    ScriptedModel::answering(|_, request| {
        let told = request
            .messages
            .iter()
            .filter(|message| message.speaker == Speaker::Tool);
        let call = |tool: &str, step: &str| {
            ChatResponse::calling(vec![ToolCall::new(step, tool, json!({"step": step}))])
        };
        Ok(match told.count() {
            0 => call("again", "a1"),
            1 => call("most", "a2"),
            _ => ChatResponse::new("agent done"),
        })
    })
}

/// Waits until a result exists and no run is open.
async fn is_over(store: &SqliteStore) {
    let mut events = store.events().subscribe(StartAt::Now).await.unwrap();
    loop {
        let runs = store.runs(&RunFilter::all()).await.unwrap();
        let is_over = !runs.is_empty() && runs.iter().all(|run| run.state.is_over());
        let results = store.recent(WorkloadExecutor::REQUEST_RESULT, 10);
        let results = results.await.unwrap();
        if is_over && !results.is_empty() {
            return;
        }
        drop(events.next().await.unwrap().unwrap());
    }
}

/// Writes a request for a run.
pub(crate) async fn ask(store: &SqliteStore) {
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).tag("request:q-1");
    let request = request.context(json!({"workflow": ID, "input": {"n": 1}}));
    store.create(request).await.unwrap();
}

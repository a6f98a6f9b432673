//! Workloads: one protocol for agents, flows, closures and executors, their sessions, and their supervisor.

mod deleted;
mod ends;
mod executors;
#[cfg(all(feature = "validate", feature = "yaml"))]
mod files;
mod grammar;
mod hints;
mod history;
mod logs;
mod nested;
mod patience;
mod planted;
mod protocol;
mod replaced;
mod session_store;
mod sessions;
mod stopped;
mod supervisor;
mod waits;
mod words;

use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use universal_executor::agent::{ChatRequest, ScriptedModel};
use universal_executor::model::Timestamp;
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::workflow::Workflow;
use universal_executor::workload::{
    Definition, FlowDefinition, RunCx, Supervisor, SupervisorBuilder, TurnStatus, WorkloadError,
    WorkloadEvent, WorkloadEventKind, WorkloadExecutor, WorkloadMessage,
};
use universal_executor::{
    BreadcrumbId, BreadcrumbStore, ExecutionContext, MemoryStore, NewBreadcrumb, Services,
    Subscriptions,
};

/// Creates a workload named `it` from a workflow definition.
#[expect(
    clippy::needless_pass_by_value,
    reason = "definitions are written where they are used"
)]
fn flow(definition: Value) -> FlowDefinition {
    FlowDefinition::new("it", Workflow::from_json(&definition).unwrap()).unwrap()
}

/// Creates a workload with one agent.
fn agent() -> FlowDefinition {
    flow(json!({"agents": {"main": {"instruction": "Help."}}}))
}

/// The services and the store of a test's workloads.
struct Setup {
    services: Services,
    store: Arc<dyn BreadcrumbStore>,
}

impl Setup {
    fn new(services: Services, store: Arc<dyn BreadcrumbStore>) -> Self {
        Self { services, store }
    }

    fn supervisor(&self, definition: Arc<dyn Definition>) -> SupervisorBuilder {
        Supervisor::builder(definition, &self.services, &self.store)
    }

    /// Creates an executor that is triggered by messages.
    fn executor(
        &self,
        id: &str,
        definition: Arc<dyn Definition>,
        messages: Subscriptions,
    ) -> Result<WorkloadExecutor, WorkloadError> {
        WorkloadExecutor::new(id, definition, &self.services, &self.store, messages)
    }
}

/// Returns a setup with a model and the tool `double`, on a memory store.
fn setup(model: &Arc<ScriptedModel>, store: &MemoryStore) -> Setup {
    setup_on(model, Arc::new(store.clone()))
}

/// Returns a setup with a model and the tool `double`, on any store.
fn setup_on(model: &Arc<ScriptedModel>, store: Arc<dyn BreadcrumbStore>) -> Setup {
    let double = json_tool(
        "double",
        "Twice as much.",
        json!({}),
        |input, _| async move { Ok(json!(input["n"].as_i64().unwrap_or(0) * 2)) },
    );
    let tools = ToolRegistry::default().with(double).unwrap();
    let services = Services::new()
        .tools(tools)
        .default_model(Arc::clone(model));
    Setup::new(services, store)
}

fn says<const N: usize>(answers: [&str; N]) -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::new(answers))
}

/// Creates a model that repeats its input as `said: Hi`.
fn parrot() -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::answering(|_, request| {
        Ok(universal_executor::agent::ChatResponse::new(format!(
            "said: {}",
            asked(request)
        )))
    }))
}

/// Returns the user's words in the last message of a request, or the prompt of an agent in the message's data.
fn asked(request: &ChatRequest) -> String {
    let text = request.messages.last().unwrap().text();
    let Some((_, rest)) = text.split_once("\"prompt\":") else {
        return text.into_owned();
    };
    let rest = rest.trim_start();
    let mut texts = serde_json::Deserializer::from_str(rest).into_iter::<String>();
    texts.next().unwrap().unwrap_or_default()
}

/// Returns the earlier conversation in a request, without the system prompt.
fn history(request: &ChatRequest) -> Vec<Cow<'_, str>> {
    let shown = &request.messages[1..request.messages.len() - 1];
    shown.iter().map(said).collect()
}

/// Returns the words of a message, or its data without the fence.
fn said(message: &universal_executor::agent::ChatMessage) -> Cow<'_, str> {
    let data = message.as_data();
    let text = data.and_then(|data| data["summary"].as_str().or(data.as_str()));
    text.map_or_else(|| message.text(), Cow::Borrowed)
}

/// Returns the context of a run without a session.
fn alone(run: &str) -> RunCx {
    let message = NewBreadcrumb::new("user.message.v1");
    let message = message.first_version(BreadcrumbId::NIL, Timestamp::from_micros(0));
    RunCx::new(run, ExecutionContext::for_trigger(message))
}

/// Runs one turn of a new workload and closes the workload. Returns all events.
async fn events(definition: &dyn Definition, setup: &Setup, message: &str) -> Vec<WorkloadEvent> {
    use futures::StreamExt as _;
    let mut workload = definition
        .instantiate(&setup.services, &setup.store)
        .unwrap();
    let events = workload.run(alone("run-1"), Some(WorkloadMessage::from(message)));
    let events = events.collect().await;
    workload.close().await.unwrap();
    events
}

/// Returns the output of a turn.
fn output(events: &[WorkloadEvent]) -> Value {
    match &events.last().unwrap().kind {
        WorkloadEventKind::Final { output } => output.clone().into_value(),
        other => json!(format!("{other:?}")),
    }
}

fn code(status: &TurnStatus) -> &str {
    match status {
        TurnStatus::Failed { failure, .. } => &failure.code,
        _ => "",
    }
}

//! Shared parts of these tests: agents that repeat their instructions, so that each answer identifies its definition.

use crate::support::{all, eventually};
use futures::stream;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ChatModel, ChatResponse, ScriptedModel,
};
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, EventSource, MemoryStore, Patch, Runtime,
    Services, UniversalExecutor, async_trait,
};

pub(crate) const RESPONSE: &str = AgentExecutor::RESPONSE;

/// Creates a model that repeats the instructions in a request.
pub(crate) fn parrot() -> Arc<dyn ChatModel> {
    Arc::new(ScriptedModel::answering(|_, request| {
        let instructions = request
            .messages
            .first()
            .map(|first| first.text())
            .unwrap_or_default();
        Ok(ChatResponse::new(instructions))
    }))
}

/// Returns services whose default model repeats the instructions of an agent.
pub(crate) fn services() -> Services {
    Services::new().default_model(parrot())
}

/// Returns the agents in a store. Their definitions need not name a model.
pub(crate) fn agents(store: &(impl BreadcrumbStore + Clone + 'static)) -> StoredDefinitions {
    StoredDefinitions::new(store, &services()).agents()
}

/// Creates a runtime with executors from definitions only, on the store's events. It follows announcements, and reads all
/// definitions again only after a day.
pub(crate) fn runtime(store: &MemoryStore, definitions: StoredDefinitions) -> Runtime {
    Runtime::builder(store.events())
        .definitions(definitions)
        .reconcile_every(Duration::from_secs(86_400))
        .build()
        .unwrap()
}

/// Returns the definition of an agent with this trigger that repeats its instructions.
pub(crate) fn agent(id: &str, trigger: &str, says: &str) -> Value {
    json!({
        "agent_id": id,
        "system_prompt": says,
        "subscriptions": [{"schema_name": trigger, "role": "trigger"}],
    })
}

/// Replaces the content of a definition. Returns the new version.
pub(crate) async fn redefine(
    store: &MemoryStore,
    definition: &Breadcrumb,
    context: Value,
) -> Arc<Breadcrumb> {
    let patch = Patch::new().context(context);
    let updated = store.update(definition.id, definition.version, patch);
    updated.await.unwrap()
}

/// Returns the hash in the responses of an agent with this definition.
pub(crate) fn hash_of(definition: &Breadcrumb) -> String {
    let definition = AgentDefinition::from_json(&definition.context).unwrap();
    let agent = AgentExecutor::new(definition, parrot(), Arc::new(MemoryStore::default()));
    agent.unwrap().profile().definition.clone().unwrap()
}

/// Returns the hash of the definition behind a response.
pub(crate) fn made_with(response: &Breadcrumb) -> String {
    let hash = response.context["creator"]["definition"].as_str();
    hash.unwrap().to_owned()
}

/// Returns the messages of the agents, oldest first.
pub(crate) async fn said(store: &MemoryStore) -> Vec<String> {
    let responses = all(store, RESPONSE).await.into_iter().rev();
    let text = |response: Arc<Breadcrumb>| response.context.text("message").map(str::to_owned);
    responses.filter_map(text).collect()
}

/// Waits until the agents have written at least `n` messages.
pub(crate) async fn until_said(store: &MemoryStore, n: usize) {
    eventually(async || said(store).await.len() >= n).await;
}

/// Returns the rejections of definitions, oldest first.
pub(crate) async fn rejections(store: &MemoryStore) -> Vec<Arc<Breadcrumb>> {
    let mut found = all(store, StoredDefinitions::REJECTED).await;
    found.reverse();
    found
}

/// Waits until at least `n` definitions were rejected.
pub(crate) async fn until_rejected(store: &MemoryStore, n: usize) {
    eventually(async || rejections(store).await.len() >= n).await;
}

/// Returns the reason in a rejection.
pub(crate) fn reason(rejection: &Breadcrumb) -> &str {
    rejection.context.text("reason").unwrap()
}

/// Waits until exactly these executors run.
pub(crate) async fn until_running(runtime: &Runtime, ids: &[&str]) {
    eventually(async || running(runtime) == ids).await;
}

/// Returns the IDs of the running executors.
pub(crate) fn running(runtime: &Runtime) -> Vec<String> {
    let ids = runtime.executors();
    ids.iter().map(|id| id.to_string()).collect()
}

/// A source that never delivers an event.
pub(crate) struct Silent;

#[async_trait]
impl EventSource for Silent {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        Ok(Deliveries::new(stream::pending()))
    }
}

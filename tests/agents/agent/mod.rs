//! Agents that call tools: the turns of a run, budgets, outputs, and recovery after a crash.

mod acting;
mod approvals;
mod crashes;
mod definitions;
pub(crate) mod elsewhere;
mod ends;
mod fallback;
mod hints;
mod output;
mod requests;
mod reviewed;
mod secrets;
mod tools;

use crate::support::{all, event_of, put};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::agent::{
    AgentDefinition, AgentError, AgentExecutor, ChatMessage, ChatRequest, ChatResponse, ModelError,
    ScriptedModel, Speaker, ToolCall,
};
use universal_executor::executor::ExecutorError;
use universal_executor::tool::{JsonTool, ToolRegistry, json_tool};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, MemoryStore, Outcome, UniversalExecutor,
};

const SECOND: Duration = Duration::from_secs(1);

/// Creates an agent on questions with these tools and more fields of its definition.
fn agent(
    store: &(impl BreadcrumbStore + Clone),
    model: &Arc<ScriptedModel>,
    tools: &ToolRegistry,
    more: &Value,
) -> Result<AgentExecutor, AgentError> {
    let mut definition = json!({
        "agent_id": "worker", "system_prompt": "Work.", "tools": tools.names(),
        "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
    });
    let fields = definition.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let definition = AgentDefinition::from_json(&definition)?;
    AgentExecutor::with_tools(
        definition,
        Arc::clone(model) as _,
        Arc::new(store.clone()),
        tools,
    )
}

/// Returns an agent's answer to one question, on a fresh store.
async fn answer_of(model: &Arc<ScriptedModel>, tools: &ToolRegistry, more: &Value) -> Value {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({"q": 1})).await;
    let agent = agent(&store, model, tools, more).unwrap();
    agent.process_event(&event_of(&question)).await.unwrap();
    answer(&store).await
}

/// Returns the context of the only answer.
async fn answer(store: &MemoryStore) -> Value {
    let mut found = all(store, AgentExecutor::RESPONSE).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0).context.clone().into_value()
}

async fn sees(agent: &AgentExecutor, breadcrumb: &Breadcrumb) -> Result<Outcome, ExecutorError> {
    agent.process_event(&event_of(breadcrumb)).await
}

/// Returns a tool made of a closure that receives the input, and its call counter.
fn tool<F, R>(name: &str, work: F) -> (JsonTool, Arc<AtomicUsize>)
where
    F: Fn(Value) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Value, BoxError>> + Send + 'static,
{
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let tool = json_tool(
        name,
        "For tests.",
        json!({"type": "object"}),
        move |input, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            work(input)
        },
    );
    (tool, calls)
}

/// Creates a tool that returns its input.
pub(crate) fn echo(name: &str) -> (JsonTool, Arc<AtomicUsize>) {
    tool(name, |input| async move { Ok(input) })
}

pub(crate) fn count(calls: &AtomicUsize) -> usize {
    calls.load(Ordering::SeqCst)
}

pub(crate) fn registry(tools: impl IntoIterator<Item = JsonTool>) -> ToolRegistry {
    let tools = tools.into_iter();
    tools.fold(ToolRegistry::default(), |registry, tool| {
        registry.with(tool).unwrap()
    })
}

pub(crate) fn script(
    answers: impl IntoIterator<Item = Result<ChatResponse, ModelError>>,
) -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel::script(answers))
}

/// Returns a model answer that calls tools. Each call has an ID, a name and arguments.
pub(crate) fn calling<const N: usize>(calls: [(&str, &str, Value); N]) -> ChatResponse {
    let calls = calls.map(|(id, tool, arguments)| ToolCall::new(id, tool, arguments));
    ChatResponse::calling(calls.into())
}

pub(crate) fn says(text: &str) -> ChatResponse {
    ChatResponse::new(text)
}

/// Returns the tool results in a request: for each one the call ID, the text, and `true` if it is an error.
pub(crate) fn results(request: &ChatRequest) -> Vec<(&str, &str, bool)> {
    let told = |message: &&ChatMessage| message.speaker == Speaker::Tool;
    let results = request.messages.iter().filter(told);
    results
        .map(|message| {
            let result = message.call_result().unwrap();
            (&*result.call_id, &*result.text, result.is_error)
        })
        .collect()
}

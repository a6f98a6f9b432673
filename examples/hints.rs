//! A catalog of 40 tools in the context of a model: first the whole catalog, then only names and descriptions, by hints of its schema.
//!
//! Run with `cargo run --example hints`.

#![expect(clippy::print_stdout, reason = "the output is the point of an example")]

use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::agent::{AgentDefinition, AgentExecutor, ChatResponse, ScriptedModel};
use universal_executor::executor::{EstimatedTokens, TokenCounter as _};
use universal_executor::{
    BoxError, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, UniversalExecutor,
};

/// Returns a catalog entry of a tool. A model needs little of the entry to choose a tool.
fn tool(n: usize) -> Value {
    json!({
        "name": format!("tool-{n}"), "description": format!("Does what number {n} of forty tools does."),
        "endpoint": format!("https://tools.internal/{n}"), "timeout_ms": 30_000,
        "input_schema": {"type": "object", "required": ["query"], "properties": {
            "query": {"type": "string", "maxLength": 2_000}, "limit": {"type": "integer", "minimum": 1},
        }},
    })
}

/// Sends a question to the agent, and prints the answer.
async fn ask(agent: &AgentExecutor, store: &MemoryStore, how: &str) -> Result<(), BoxError> {
    let question = NewBreadcrumb::new("user.message.v1").context(json!({"message": "Which tool?"}));
    let question = store.create(question).await?;
    agent.process_event(&Event::created(&question)).await?;
    let answer = store.latest(AgentExecutor::RESPONSE).await?;
    let shown = answer
        .as_ref()
        .and_then(|answer| answer.context.text("message"));
    println!("context {how} hints: {}", shown.unwrap_or("none"));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let tools: Vec<Value> = (1..=40).map(tool).collect();
    let catalog = NewBreadcrumb::new("tool.catalog.v1").context(json!({"tools": tools}));
    store.create(catalog).await?;
    let definition = AgentDefinition::from_json(&json!({"agent_id": "chooser", "subscriptions": [
        {"schema_name": "user.message.v1", "role": "trigger"},
        {"schema_name": "tool.catalog.v1", "role": "context", "key": "tools", "fetch": "latest"},
    ]}))?;
    let model = ScriptedModel::answering(|_, request| {
        let shown = request.messages.iter().map(|message| message.text());
        let tokens: usize = shown.map(|text| EstimatedTokens.count(&text)).sum();
        Ok(ChatResponse::new(format!("about {tokens} tokens")))
    });
    let agent = AgentExecutor::new(definition, Arc::new(model), Arc::new(store.clone()))?;
    ask(&agent, &store, "without").await?;
    let hints = json!({"include": ["tools.name", "tools.description"]});
    let schema = NewBreadcrumb::new("schema.def.v1").tag("defines:tool.catalog.v1");
    store.create(schema.llm_hints(hints)).await?;
    ask(&agent, &store, "with").await
}

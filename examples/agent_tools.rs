//! An agent that calls two tools at the same time and answers with what they came to.
//!
//! The model is scripted; in the place of it goes any `ChatModel`. Run with `cargo run --example agent_tools`.

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use serde_json::json;
use std::sync::Arc;
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ChatResponse, ScriptedModel, ToolCall,
};
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::{
    BoxError, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, UniversalExecutor,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let schema =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let weather = json_tool(
        "weather",
        "The weather of a city.",
        schema.clone(),
        |input, _| async move { Ok(json!(format!("rain in {}", input["city"]))) },
    );
    let trains = json_tool("trains", "Trains to a city.", schema, |_, _| async {
        Ok(json!(["08:25", "12:03"]))
    });
    let registry = ToolRegistry::default()
        .with(weather.idempotent())?
        .with(trains.idempotent())?;
    let definition = AgentDefinition::from_json(&json!({
        "agent_id": "traveller", "system_prompt": "Plan the journey.",
        "tools": ["trains", "weather"], "max_turns": 4, "budgets": {"tokens": 10_000, "calls": 8},
        "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
    }))?;
    let model = Arc::new(ScriptedModel::script([
        Ok(ChatResponse::calling(vec![
            ToolCall::new("1", "weather", json!({"city": "Bergen"})),
            ToolCall::new("2", "trains", json!({"city": "Bergen"})),
        ])),
        Ok(ChatResponse::new("Take the 08:25 and an umbrella.")),
    ]));
    let store = MemoryStore::default();
    let shared = Arc::new(store.clone());
    let agent = AgentExecutor::with_tools(definition, Arc::clone(&model) as _, shared, &registry)?;

    let message =
        NewBreadcrumb::new("user.message.v1").context(json!({"message": "I go to Bergen."}));
    let message = store.create(message).await?;
    agent.process_event(&Event::created(&message)).await?;

    for told in model
        .requests()
        .iter()
        .flat_map(|request| &request.messages)
        .skip(4)
    {
        println!("{:?}: {}", told.speaker, told.text);
    }
    let answer = store
        .latest(AgentExecutor::RESPONSE)
        .await?
        .ok_or("no answer")?;
    println!(
        "agent: {}",
        answer.context.text("message").unwrap_or_default()
    );
    println!("used: {}", answer.context.get("usage").ok_or("no usage")?);
    Ok(())
}

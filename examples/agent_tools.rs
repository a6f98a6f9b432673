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
    let city = json!({"type": "object", "required": ["city"]});
    let weather = json_tool(
        "weather",
        "A forecast.",
        city.clone(),
        |input, _| async move { Ok(json!({"rain": true, "for": input})) },
    );
    let trains = json_tool("trains", "Trains to a city.", city, |_, _| async {
        Ok(json!(["08:25", "12:03"]))
    });
    let registry = ToolRegistry::default().with(weather)?.with(trains)?;
    let definition = AgentDefinition::from_json(&json!({
        "agent_id": "traveller", "system_prompt": "Plan the journey.",
        "tools": ["trains", "weather"], "max_turns": 4, "budgets": {"tokens": 10_000, "calls": 8},
        "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
    }))?;
    let bergen = || json!({"city": "Bergen"});
    let model = Arc::new(ScriptedModel::script([
        Ok(ChatResponse::calling(vec![
            ToolCall::new("1", "weather", bergen()),
            ToolCall::new("2", "trains", bergen()),
        ])),
        Ok(ChatResponse::new("Take the 08:25 and an umbrella.")),
    ]));
    let store = MemoryStore::default();
    let shared = Arc::new(store.clone());
    let agent = AgentExecutor::with_tools(definition, Arc::clone(&model) as _, shared, &registry)?;

    let message = json!({"message": "I go to Bergen."});
    let message = NewBreadcrumb::new("user.message.v1").context(message);
    let message = store.create(message).await?;
    agent.process_event(&Event::created(&message)).await?;

    let last = model.requests().pop().ok_or("nothing was asked")?;
    for told in last.messages.iter().skip(3) {
        println!("tool: {}", told.text());
    }
    let answer = store.latest(AgentExecutor::RESPONSE).await?;
    println!("{:#}", *answer.ok_or("no answer")?.context);
    Ok(())
}

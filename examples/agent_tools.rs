//! An agent that calls two tools at the same time and answers with their results.
//!
//! The model is scripted. Replace it by any `ChatModel`. Run with `cargo run --example agent_tools`.

#![expect(clippy::print_stdout, reason = "the output is the point of an example")]

use serde_json::json;
use std::sync::Arc;
use universal_executor::agent::{Agent, AgentExecutor, ChatResponse, ScriptedModel, ToolCall};
use universal_executor::tool::json_tool;
use universal_executor::{
    BoxError, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Subscription,
    UniversalExecutor,
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
    let bergen = || json!({"city": "Bergen"});
    let model = Arc::new(ScriptedModel::script([
        Ok(ChatResponse::calling(vec![
            ToolCall::new("1", "weather", bergen()),
            ToolCall::new("2", "trains", bergen()),
        ])),
        Ok(ChatResponse::new("Take the 08:25 and an umbrella.")),
    ]));
    let store = MemoryStore::default();
    let agent = Agent::new("traveller", Arc::clone(&model))
        .instructions("Plan the journey.")
        .on(Subscription::trigger("user.message.v1"))
        .tool(weather)
        .tool(trains)
        .max_turns(4)
        .bind(&store)?;

    let message = json!({"message": "I go to Bergen."});
    let message = NewBreadcrumb::new("user.message.v1").context(message);
    let message = store.create(message).await?;
    agent.process_event(&Event::created(&message)).await?;

    let last = model
        .requests()
        .pop()
        .ok_or("the model received no request")?;
    for told in last.messages.iter().skip(3) {
        println!("tool: {}", told.text());
    }
    let answer = store.latest(AgentExecutor::RESPONSE).await?;
    println!("{:#}", *answer.ok_or("no answer")?.context);
    Ok(())
}

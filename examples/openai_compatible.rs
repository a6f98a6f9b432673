//! An agent with a model behind an endpoint with the chat completions API of OpenAI.
//!
//! ```text
//! MODEL_URL=http://localhost:11434/v1 MODEL=llama3.2 MODEL_KEY=.. cargo run --features openai --example openai_compatible
//! ```

#![expect(clippy::print_stdout, reason = "the output is the point of an example")]

use futures::TryStreamExt;
use serde_json::json;
use std::env;
use std::sync::Arc;
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ChatEvent, ChatMessage, ChatModel, ChatRequest,
    OpenAiCompatible,
};
use universal_executor::{
    BoxError, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, UniversalExecutor,
};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let (Ok(url), Ok(name)) = (env::var("MODEL_URL"), env::var("MODEL")) else {
        println!(
            "Set MODEL_URL and MODEL, and MODEL_KEY if the endpoint needs a key, to call a model."
        );
        return Ok(());
    };
    let mut builder = OpenAiCompatible::builder(url).model(name);
    if env::var_os("MODEL_KEY").is_some() {
        builder = builder.key_from_env("MODEL_KEY");
    }
    let model = Arc::new(builder.build()?);

    // A direct call streams the answer.
    let request = ChatRequest::new(vec![ChatMessage::user("Greet Ann in one short sentence.")]);
    let mut answer = model.stream(&request).await?;
    while let Some(event) = answer.try_next().await? {
        if let ChatEvent::Text(text) = event {
            print!("{text}");
        }
    }
    println!();

    // An agent with the same model answers breadcrumbs.
    let definition = AgentDefinition::from_json(&json!({
        "agent_id": "greeter", "system_prompt": "Greet the user in one short sentence.",
        "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
    }))?;
    let store = MemoryStore::default();
    let agent = AgentExecutor::new(definition, model, Arc::new(store.clone()))?;
    let said = NewBreadcrumb::new("user.message.v1").context(json!({"message": "I am Ann"}));
    let said = store.create(said).await?;
    agent.process_event(&Event::created(&said)).await?;
    let response = store
        .latest("agent.response.v1")
        .await?
        .ok_or("no response")?;
    println!("{}", response.context.text("message").unwrap_or_default());
    Ok(())
}

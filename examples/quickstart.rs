//! An agent and a tool on the in-memory store: the agent answers a question, and the tool answers a request.
//!
//! Run with `cargo run --example quickstart`. It needs no key, no server and no network.

#![expect(clippy::print_stdout, reason = "the output is the point of an example")]
#![expect(
    clippy::indexing_slicing,
    reason = "reading a missing field of JSON gives null"
)]

use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::agent::{AgentDefinition, AgentExecutor, ScriptedModel};
use universal_executor::tool::{ToolExecutor, json_tool};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb,
    Outcome, UniversalExecutor,
};

const ASSISTANT: &str = include_str!("data/page-aware-assistant.json");
const ANALYZER: &str = include_str!("data/web-analyzer.json");

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    for breadcrumb in read::<Vec<NewBreadcrumb>>(include_str!("data/breadcrumbs.json"))? {
        store.create(breadcrumb).await?;
    }
    let assistant = assistant(&read(ASSISTANT)?, &store)?;
    let analyzer = analyzer(&store)?;

    title("1  A question arrives");
    let question = store
        .create(read(include_str!("data/question.json"))?)
        .await?;
    handle(&assistant, &question, &store).await?;

    title("2  A tool request arrives");
    let request = store
        .create(read(include_str!("data/request.json"))?)
        .await?;
    handle(&analyzer, &request, &store).await?;

    title("3  The same events again");
    let before = written(&store).await?;
    for (executor, trigger) in [
        (&assistant as &dyn UniversalExecutor, &question),
        (&analyzer, &request),
    ] {
        let outcome = executor.process_event(&Event::created(trigger)).await?;
        println!("{}: {}", executor.id(), outcome.name());
    }
    println!(
        "responses before: {before}, after: {}",
        written(&store).await?
    );

    title("4  A new schema without new code");
    let mut definition: Value = read(ASSISTANT)?;
    let weather = json!({"schema_name": "weather.report.v1", "role": "context", "key": "weather", "fetch": "latest"});
    println!("added to the definition: {weather}\n");
    if let Some(selectors) = definition["context"]["subscriptions"]["selectors"].as_array_mut() {
        selectors.push(weather);
    }
    definition["context"]["agent_id"] = json!("weather-aware-assistant");
    let assistant = self::assistant(&definition, &store)?;
    store
        .create(read(include_str!("data/weather.json"))?)
        .await?;
    let context = assistant.assemble_context(&question).await?;
    println!("context.weather = {}", context.require("weather")?);
    Ok(())
}

/// Creates an agent from a definition and a model. The scripted model returns a fixed answer.
fn assistant(definition: &Value, store: &MemoryStore) -> Result<AgentExecutor, BoxError> {
    let model = ScriptedModel::new(["This is the repository of the Rust compiler on GitHub."]);
    let definition = AgentDefinition::from_json(definition)?;
    Ok(AgentExecutor::new(
        definition,
        Arc::new(model),
        Arc::new(store.clone()),
    )?)
}

/// Creates a tool from a definition and a function. The function receives the input and the context from the subscriptions.
fn analyzer(store: &MemoryStore) -> Result<ToolExecutor, BoxError> {
    let definition: Value = read(ANALYZER)?;
    let schema = definition["context"]["definition"]["inputSchema"].clone();
    let tool = json_tool(
        "web-analyzer",
        "Counts what is on the page.",
        schema,
        |input, call| async move {
            let what = input["what"]
                .as_str()
                .ok_or("\"what\" is missing; write \"links\" or \"headings\"")?;
            let page = call.context().require("current_page")?;
            let count = page[what].as_array().map_or(0, Vec::len);
            Ok(json!({"page": page["url"], "what": what, "count": count}))
        },
    );
    Ok(ToolExecutor::from_definition(
        &definition,
        tool,
        Arc::new(store.clone()),
    )?)
}

/// Prints each step of the processing of an event, and processes the event.
async fn handle(
    executor: &dyn UniversalExecutor,
    trigger: &Arc<Breadcrumb>,
    store: &MemoryStore,
) -> Result<(), BoxError> {
    let event = Event::created(trigger);
    println!("event: {}\n", serde_json::to_string(&event)?);
    println!(
        "subscriptions of {}:\n{}\n",
        executor.id(),
        executor.subscriptions().explain(&event)
    );
    let context = executor.assemble_context(trigger).await?;
    println!(
        "context:\n{}\n",
        serde_json::to_string_pretty(&context.to_value())?
    );
    if let Outcome::Responded { written } = executor.process_event(&event).await? {
        for id in written {
            let response = store.get(id).await?;
            println!("response:\n{}", serde_json::to_string_pretty(&*response)?);
        }
    }
    Ok(())
}

async fn written(store: &MemoryStore) -> Result<usize, BoxError> {
    let mut count = 0;
    for schema in ["agent.response.v1", "tool.response.v1"] {
        count += store.recent(schema, 100).await?.len();
    }
    Ok(count)
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, BoxError> {
    Ok(serde_json::from_str(text)?)
}

fn title(text: &str) {
    println!("\n=== {text} ===\n");
}

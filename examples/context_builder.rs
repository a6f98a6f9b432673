//! A tool that updates one context breadcrumb for each session, and an agent that this breadcrumb triggers.
//!
//! Each `user.message.v1` triggers the tool, which updates the session's `agent.context.v1`. The update triggers the agent, which also
//! fetches the browser page, and answers. Run with `cargo run --example context_builder`.

#![expect(clippy::print_stdout, reason = "the output is the point of an example")]
#![expect(
    clippy::indexing_slicing,
    reason = "reading a missing field of JSON gives null"
)]

use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::agent::{AgentDefinition, AgentExecutor, ScriptedModel};
use universal_executor::store::Query;
use universal_executor::tool::{ToolContext, ToolExecutor, json_tool};
use universal_executor::{
    BoxError, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Patch, Runtime, Selector,
    Subscription, Subscriptions,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let tool = json_tool(
        "context-builder",
        "Keeps the session's context.",
        json!({}),
        build_context,
    );
    let messages = Subscriptions::new([Subscription::trigger("user.message.v1")])?;
    let builder = ToolExecutor::with_subscriptions(tool, messages, Arc::new(store.clone()))?;
    let definition = AgentDefinition::from_json(&json!({
        "agent_id": "helper",
        "system_prompt": "Help with the page.",
        "subscriptions": [
            {"schema_name": "agent.context.v1", "all_tags": ["consumer:helper"], "role": "trigger", "key": "assembled"},
            {"schema_name": "browser.page.context.v1", "role": "context", "key": "page", "scope": ["session:"]},
        ],
    }))?;
    let model = Arc::new(ScriptedModel::new([
        "It is about Rust.",
        "Yes, under Quick Start.",
    ]));
    let helper = AgentExecutor::new(definition, model, Arc::new(store.clone()))?;
    let runtime = Runtime::on(&store)
        .executor(builder.idempotent().also_writes(["agent.context.v1"]))
        .executor(helper)
        .build()?;

    let mut talked = Ok(());
    let report = runtime
        .run_until(async { talked = talk(&store).await })
        .await?;
    talked?;

    let context = store
        .latest("agent.context.v1")
        .await?
        .ok_or("no context")?;
    println!(
        "the session's context, version {}: {}",
        context.version, context.context["messages"]
    );
    for response in store.recent("agent.response.v1", 10).await?.iter().rev() {
        println!(
            "agent: {}",
            response.context.text("message").unwrap_or_default()
        );
    }
    println!("{} runs responded", report.responded);
    Ok(())
}

/// Sends two messages. The second one follows the answer to the first one.
async fn talk(store: &MemoryStore) -> Result<(), BoxError> {
    let page = json!({"title": "rust-lang/rust"});
    store
        .create(
            NewBreadcrumb::new("browser.page.context.v1")
                .tag("session:1")
                .context(page),
        )
        .await?;
    for (number, text) in [(1, "What is this about?"), (2, "Is there a quick start?")] {
        let message = json!({"message": text});
        store
            .create(
                NewBreadcrumb::new("user.message.v1")
                    .tag("session:1")
                    .context(message),
            )
            .await?;
        while store.recent("agent.response.v1", 10).await?.len() < number {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// Adds the message to the context of its session, and creates the context for the first message.
///
/// A run can be repeated after it wrote the message, so the function does not add a message that the context already has.
async fn build_context(_: Value, call: ToolContext) -> Result<Value, BoxError> {
    let trigger = call.trigger();
    let session = trigger
        .tag("session:")
        .ok_or("a message needs a session: tag")?;
    let message = json!({"id": trigger.id, "text": trigger.context.text("message")});
    let tags = [format!("session:{session}"), "consumer:helper".to_owned()];
    let query = Query::new(Selector::schema("agent.context.v1").all_tags(tags.clone())).limit(1);
    let written = match call.store().search(&query).await?.first() {
        None => {
            let new = NewBreadcrumb::new("agent.context.v1").tags(tags);
            call.store()
                .create(new.context(json!({"messages": [message]})))
                .await?
        }
        Some(known) => {
            let mut messages: Vec<Value> =
                serde_json::from_value(known.context["messages"].clone())?;
            if messages.contains(&message) {
                return Ok(json!({"context": known.id, "version": known.version}));
            }
            messages.push(message);
            // If another run updated the context first, the update fails with a conflict, and the run is retried with the new context.
            let patch = Patch::new().context(json!({"messages": messages}));
            call.store().update(known.id, known.version, patch).await?
        }
    };
    Ok(json!({"context": written.id, "version": written.version}))
}

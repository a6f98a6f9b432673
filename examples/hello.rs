//! The program of README.md: an agent that answers a question about a web page.
//!
//! Run with `cargo run --example hello`. It needs no key and no network: the model is scripted.
#![expect(clippy::print_stdout, reason = "the output is the point of an example")]

#[cfg(test)]
pub(crate) fn run() -> Result<(), BoxError> {
    main()
}

use serde_json::json;
use universal_executor::agent::{Agent, ScriptedModel};
use universal_executor::{BoxError, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb};
use universal_executor::{Subscription, UniversalExecutor};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let helper = Agent::new("helper", ScriptedModel::new(["The page is about Rust."]))
        .instructions("Answer questions about the page.")
        .on(Subscription::trigger("user.message.v1"))
        .reads(Subscription::context("web.page.v1").key("page"))
        .bind(&store)?;

    let page = NewBreadcrumb::new("web.page.v1").context(json!({"title": "Rust"}));
    store.create(page).await?;
    let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "About what?"}));
    let event = Event::created(&*store.create(message).await?);
    for _ in 0..2 {
        println!("{}", helper.process_event(&event).await?.name());
    }
    for response in store.recent("agent.response.v1", 10).await? {
        println!("{}", response.context.text("message").unwrap_or_default());
    }
    Ok(())
}

//! An agent that may pay only what a person agrees to, and whose process may stop between question and answer.
//!
//! ```text
//! cargo run --features sqlite --example human_approval -- ask        # the agent wants to pay, and asks
//! cargo run --features sqlite --example human_approval -- approve    # another process goes on with the answer
//! cargo run --features sqlite --example human_approval               # both, one after the other
//! ```
//!
//! `reject` in the place of `approve` is an answer too. While nobody answers the run is a row in the file: it holds no
//! worker, and waits for a day unless the definition says otherwise.

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use futures::StreamExt as _;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ChatResponse, ScriptedModel, ToolCall,
};
use universal_executor::source::StartAt;
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStoreExt as _, EventSource as _, NewBreadcrumb, Runtime,
    SqliteStore,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let folder = std::env::current_exe()?.with_extension("data");
    match std::env::args().nth(1).as_deref() {
        None => {
            ask(&folder).await?;
            answer(&folder, true).await
        }
        Some("ask") => ask(&folder).await,
        Some("approve") => answer(&folder, true).await,
        Some("reject") => answer(&folder, false).await,
        Some(other) => Err(format!("{other:?} is none of ask, approve and reject").into()),
    }
}

/// Somebody wants something that costs money; ends when the agent has asked.
async fn ask(folder: &Path) -> Result<(), BoxError> {
    std::fs::create_dir_all(folder)?;
    let store = SqliteStore::open(folder.join("approval.db")).await?;
    let wish = json!({"message": "Please pay Ann 70 euros for the flowers."});
    store
        .create(NewBreadcrumb::new("user.message.v1").context(wish))
        .await?;

    let asked = works_until(&store, "human.request.v1").await?;

    let question = asked.context.text("question").unwrap_or_default();
    let arguments = asked.context.get("arguments").unwrap_or(&Value::Null);
    println!("asked:    {question} {arguments}");
    store.close().await;
    Ok(())
}

/// A person answers, and the agent goes on.
async fn answer(folder: &Path, approved: bool) -> Result<(), BoxError> {
    let store = SqliteStore::open(folder.join("approval.db")).await?;
    let asked = store.latest("human.request.v1").await?;
    let asked = asked.ok_or("nothing was asked; run it with `ask` first")?;
    let id = asked
        .context
        .text("requestId")
        .ok_or("a question without an id")?;
    let says = json!({"request_id": id, "approved": approved, "comment": "I know her."});
    let says = NewBreadcrumb::new("human.response.v1")
        .tag(format!("request:{id}"))
        .created_by("bob")
        .context(says);
    store.create(says).await?;
    println!("answered: {}", if approved { "yes" } else { "no" });

    let response = works_until(&store, AgentExecutor::RESPONSE).await?;

    println!(
        "response: {}",
        response.context.text("message").unwrap_or_default()
    );
    store.close().await;
    Ok(std::fs::remove_dir_all(folder)?)
}

/// Lets the agent work until there is a breadcrumb of a schema.
async fn works_until(store: &SqliteStore, schema: &str) -> Result<Arc<Breadcrumb>, BoxError> {
    let runtime = Runtime::builder(store.events_of("accountant"))
        .start_at(StartAt::Beginning)
        .executor(Arc::new(accountant(store)?))
        .build()?;
    let mut found = Ok(None);
    let finding = async { found = first(store, schema).await };
    runtime.run_until(finding).await?;
    found?.ok_or_else(|| "the events ended".into())
}

async fn first(store: &SqliteStore, schema: &str) -> Result<Option<Arc<Breadcrumb>>, BoxError> {
    let mut events = store.events().subscribe(StartAt::Now).await?;
    loop {
        if let Some(found) = store.latest(schema).await? {
            return Ok(Some(found));
        }
        if events.next().await.transpose()?.is_none() {
            return Ok(None);
        }
    }
}

fn accountant(store: &SqliteStore) -> Result<AgentExecutor, BoxError> {
    let pay = json_tool(
        "pay",
        "Pays somebody an amount in euros.",
        json!({"type": "object", "required": ["to", "amount"]}),
        |input, context| async move {
            // What is asked of the outside world carries this key, so that it happens once.
            println!("paying:   {input} under key {}", context.idempotency_key());
            Ok(json!("paid"))
        },
    );
    let registry = ToolRegistry::default().with(pay.requires_approval())?;
    let definition = AgentDefinition::from_json(&json!({
        "agent_id": "accountant", "system_prompt": "Pay what is asked for.", "tools": ["pay"],
        "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
    }))?;
    // Each process has a script of its own, as each has a model of its own: this one looks at what it is told.
    let model = ScriptedModel::answering(|_, request| {
        let told = request
            .messages
            .iter()
            .rfind(|message| message.call_id().is_some());
        Ok(match told {
            None => {
                let flowers = json!({"to": "ann", "amount": 70});
                ChatResponse::calling(vec![ToolCall::new("1", "pay", flowers)])
            }
            Some(told) if told.is_error() => {
                ChatResponse::new(format!("Not paid: {}", told.text()))
            }
            Some(_) => ChatResponse::new("Ann has her 70 euros."),
        })
    });
    let store = Arc::new(store.clone());
    Ok(AgentExecutor::with_tools(
        definition,
        Arc::new(model),
        store,
        &registry,
    )?)
}

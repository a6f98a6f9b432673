//! A durable agent with a tool that needs the approval of a person.
//!
//! Run it with `cargo run --features sqlite --example first_agent`, and answer with `y` or `n`. The state is in a SQLite file in
//! the temporary folder: kill the process at any moment and start it again, and it continues. It asks its question once. A
//! refund that a crash interrupts is repeated with the same key. Delete `first_agent.db` to start over.
//!
//! For a real model, replace `ScriptedModel::calling(..)` by `OpenAiCompatible` (feature `openai`):
//! `OpenAiCompatible::builder("http://localhost:11434/v1").model("qwen3").build()?`.
#![expect(clippy::print_stdout, reason = "the output is the point of an example")]

use serde_json::json;
use std::time::Duration;
use tokio::task::spawn_blocking;
use universal_executor::agent::{Agent, ScriptedModel};
use universal_executor::client::{Principal, ReplyError};
use universal_executor::tool::json_tool;
use universal_executor::{BoxError, Client, NewBreadcrumb, Runtime, SqliteStore, Subscription};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let store = SqliteStore::open(std::env::temp_dir().join("first_agent.db")).await?;
    let refund = json_tool("refund", "Refunds.", json!({}), |order, call| async move {
        println!("refunding {order} with key {}", call.idempotency_key());
        Ok(json!("refunded"))
    })
    .idempotent();
    let model = ScriptedModel::calling("refund", json!({"order": 7}), "Order 7 is settled.");
    let helper = Agent::new("helper", model)
        .instructions("You help people with their orders.")
        .on(Subscription::trigger("user.message.v1"))
        .tool(refund)
        .needs_approval(["refund"]);
    let running = Runtime::on(&store).agent(helper).start().await?;

    let client = Client::new(&store);
    let wish = NewBreadcrumb::new("user.message.v1").context(json!({"message": "Refund order 7."}));
    let request = client.request("helper", wish).key("m-1").send().await?;
    let (questions, me) = (client.questions(), Principal::new("me"));
    let reply = loop {
        match request.wait(Duration::from_secs(1)).await {
            Err(ReplyError::TimedOut { question, .. }) => {
                let Some(question) = question else { continue };
                println!("{question}: y or n?");
                // A read blocks its thread, and the worker needs the thread of `main`.
                let line = spawn_blocking(|| std::io::stdin().lines().next().transpose());
                match line.await??.as_deref() {
                    Some("y") => questions.approve(&question.id, &me).await?,
                    _ => questions.reject(&question.id, &me, "not now").await?,
                }
            }
            reply => break reply?,
        }
    };
    let response = reply.response().ok_or("no response")?;
    println!("{}", response.context.text("message").unwrap_or_default());
    running.stop().await?;
    Ok(())
}

//! An agent that waits for the approval of a person, across processes.
//!
//! ```text
//! cargo run --features sqlite --example approvals -- work      # a worker with the agent: runs until Ctrl-C, or kill it
//! cargo run --features sqlite --example approvals -- request   # asks the agent to pay
//! cargo run --features sqlite --example approvals -- list      # the open questions
//! cargo run --features sqlite --example approvals -- approve   # approves all of them, as ann of the finance department
//! cargo run --features sqlite --example approvals -- reject    # rejects all of them
//! cargo run --features sqlite --example approvals -- wait      # waits for the reply to the request
//! cargo run --features sqlite --example approvals              # all steps in one process, with a restart of the worker
//! ```
//!
//! The state is in a SQLite file in the temporary folder. While the run waits for the answer, for at most a day, it is a row in the file
//! and needs no worker. Kill the worker at any moment: a payment is made once.
#![expect(clippy::print_stdout, reason = "the output is the point of an example")]

use serde_json::json;
use std::time::Duration;
use universal_executor::agent::{Agent, ScriptedModel};
use universal_executor::client::{Principal, ReplyError, RequestHandle};
use universal_executor::runtime::RuntimeBuilder;
use universal_executor::tool::json_tool;
use universal_executor::{BoxError, Client, NewBreadcrumb, Runtime, SqliteStore, Subscription};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let path = std::env::temp_dir().join("approvals.db");
    let store = SqliteStore::open(&path).await?;
    let client = Client::new(&store);
    match std::env::args().nth(1).as_deref() {
        Some("work") => drop(worker(&store).run_until_signal().await?),
        Some("request") => println!("request {}", request(&client).await?.id()),
        Some("list") => list(&client).await?,
        Some("approve") => answer(&client, true).await?,
        Some("reject") => answer(&client, false).await?,
        Some("wait") => wait(&client).await?,
        Some(other) => return Err(format!("unknown command {other:?}").into()),
        None => {
            let running = worker(&store).start().await?;
            until_asked(&request(&client).await?).await?;
            running.stop().await?;
            list(&client).await?;
            answer(&client, true).await?;
            let running = worker(&store).start().await?;
            wait(&client).await?;
            running.stop().await?;
            drop(client);
            store.close().await;
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

pub(crate) fn worker(store: &SqliteStore) -> RuntimeBuilder {
    let pay = json_tool(
        "pay",
        "Pays a person.",
        json!({}),
        |payment, call| async move {
            // An external service receives the key with the payment, so a repeated call pays once.
            println!("paying {payment} with key {}", call.idempotency_key());
            Ok(json!("paid"))
        },
    )
    .idempotent();
    let payment = json!({"to": "ann", "euros": 70});
    let accountant = Agent::new(
        "accountant",
        ScriptedModel::calling("pay", payment, "Settled."),
    )
    .instructions("Pay what is asked for.")
    .on(Subscription::trigger("user.message.v1"))
    .tool(pay)
    .needs_approval(["pay"])
    .approved_by(["role:finance"]);
    Runtime::on(store).agent(accountant)
}

/// Sends the request. The key makes it safe to repeat: a second call returns the same request.
async fn request(client: &Client) -> Result<RequestHandle, BoxError> {
    let wish = json!({"message": "Please pay Ann 70 euros for the flowers."});
    let wish = NewBreadcrumb::new("user.message.v1").context(wish);
    let request = client.request("accountant", wish).key("flowers");
    Ok(request.send().await?)
}

/// Waits until the agent has asked its question.
async fn until_asked(request: &RequestHandle) -> Result<(), BoxError> {
    loop {
        match request.wait(Duration::from_millis(50)).await {
            Err(ReplyError::TimedOut { question, .. }) if question.is_some() => return Ok(()),
            Err(ReplyError::TimedOut { .. }) => {}
            ended => return ended.map(drop).map_err(Into::into),
        }
    }
}

async fn list(client: &Client) -> Result<(), BoxError> {
    for question in client.questions().open().await? {
        println!("{question}");
    }
    Ok(())
}

async fn answer(client: &Client, approves: bool) -> Result<(), BoxError> {
    let (questions, ann) = (
        client.questions(),
        Principal::new("ann").with_role("finance"),
    );
    for question in questions.open_for(&ann).await? {
        match approves {
            true => questions.approve(&question.id, &ann).await?,
            false => {
                questions
                    .reject(&question.id, &ann, "not in the budget")
                    .await?
            }
        }
        println!("answered {}", question.id);
    }
    Ok(())
}

async fn wait(client: &Client) -> Result<(), BoxError> {
    let reply = request(client).await?.wait(MINUTE).await?;
    let message = reply
        .response()
        .and_then(|response| response.context.text("message"));
    println!("reply: {}", message.unwrap_or_default());
    Ok(())
}

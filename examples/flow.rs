//! A flow that writes an article: research, a draft, two reviews in parallel, the approval of a person, and publishing.
//!
//! ```text
//! cargo run --features sqlite,yaml --example flow
//! ```
//!
//! The flow is in `examples/data/article.yaml`, the model is scripted. The state of the run is in a SQLite file in the temporary
//! folder: if you stop the program, the next start continues after the last finished step.
#![expect(clippy::print_stdout, reason = "the output is the point of an example")]

use serde_json::json;
use std::time::Duration;
use universal_executor::agent::ScriptedModel;
use universal_executor::client::{Principal, ReplyError};
use universal_executor::tool::json_tool;
use universal_executor::workflow::Workflow;
use universal_executor::workload::WorkloadExecutor;
use universal_executor::{BoxError, Client, NewBreadcrumb, Runtime, Services, SqliteStore};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let path = std::env::temp_dir().join("flow.db");
    let store = SqliteStore::open(&path).await?;
    let workflow = Workflow::from_yaml(include_str!("data/article.yaml"))?;
    let article = WorkloadExecutor::of_workflow("article", workflow, &services()?, &store)?;
    let running = Runtime::on(&store).executor(article).start().await?;

    println!("{}", write_article(&Client::new(&store)).await?);

    running.stop().await?;
    store.close().await;
    Ok(std::fs::remove_file(path)?)
}

/// Requests an article about crabs, and answers the question of the flow as ann.
async fn write_article(client: &Client) -> Result<String, BoxError> {
    let request = json!({"workflow": "article", "input": {"topic": "crabs"}});
    let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(request);
    // The key makes the request safe to repeat: after a restart it is the same run.
    let request = client
        .request("article", request)
        .key("crabs")
        .send()
        .await?;
    let (questions, ann) = (client.questions(), Principal::new("ann"));
    let reply = loop {
        match request.wait(Duration::from_millis(200)).await {
            Err(ReplyError::TimedOut { question, .. }) => {
                if let Some(question) = question {
                    println!("{question}");
                    questions.answer(&question.id, &ann, "yes").await?;
                }
            }
            ended => break ended?,
        }
    };
    let result = reply.response().ok_or("the flow wrote no result")?;
    let output = result.context.text("output");
    Ok(output.ok_or("the flow has no output")?.to_owned())
}

/// Returns the tools and models that the flow can use.
fn services() -> Result<Services, BoxError> {
    let search = json_tool("search", "Finds pages.", json!({}), |_, _| async {
        Ok(json!(["crab.org"]))
    });
    let publish = json_tool(
        "publish",
        "Publishes a text.",
        json!({}),
        |_, call| async move {
            // An external service receives the key with the text, so a repeated call publishes once.
            Ok(json!(format!(
                "published with key {}",
                call.idempotency_key()
            )))
        },
    );
    let model = ScriptedModel::new(["Crabs walk sideways.", "Nothing to add.", "Nothing to add."]);
    let services = Services::new().default_model(model);
    Ok(services
        .tool(search.idempotent())?
        .tool(publish.at_most_once())?)
}

//! A flow that may be stopped anywhere: research, two reviews side by side, a person's approval, publishing.
//!
//! ```text
//! cargo run --features sqlite,yaml --example flow -- start          # works until the person is asked
//! cargo run --features sqlite,yaml --example flow -- answer yes     # another process goes on with the answer
//! cargo run --features sqlite,yaml --example flow                   # both, one after the other
//! ```
//!
//! Stop `start` with Ctrl-C wherever you like and start it again: no step that has ended is done again. The flow stands in
//! `examples/data/article.yaml`, the model is scripted.

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use futures::StreamExt as _;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use universal_executor::agent::{ChatResponse, ScriptedModel};
use universal_executor::source::StartAt;
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::workflow::{
    Assembly, FlowEventKind, Parts, StepEvent, StepEventKind, Workflow, WorkflowExecutor,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStoreExt as _, EventSource as _, NewBreadcrumb, Runtime,
    SqliteStore,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let folder = std::env::current_exe()?.with_extension("data");
    let said: Vec<String> = std::env::args().skip(1).collect();
    match said.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            start(&folder).await?;
            answer(&folder, "yes").await
        }
        ["start"] => start(&folder).await,
        ["answer", answered] => answer(&folder, answered).await,
        _ => Err("say start, or answer and what".into()),
    }
}

/// Somebody wants an article, unless that was said before; ends when the person is asked.
async fn start(folder: &Path) -> Result<(), BoxError> {
    std::fs::create_dir_all(folder)?;
    let store = SqliteStore::open(folder.join("flow.db")).await?;
    if store.latest(WorkflowExecutor::REQUEST).await?.is_none() {
        let wish = json!({"workflow": "article", "input": {"topic": "crabs"}});
        let wish = NewBreadcrumb::new(WorkflowExecutor::REQUEST).context(wish);
        store.create(wish).await?;
    }

    let asked = works_until(&store, "human.request.v1").await?;

    println!(
        "asked:    {}",
        asked.context.text("question").unwrap_or_default()
    );
    store.close().await;
    Ok(())
}

/// The person answers, and the flow goes on.
async fn answer(folder: &Path, answer: &str) -> Result<(), BoxError> {
    let store = SqliteStore::open(folder.join("flow.db")).await?;
    let asked = store.latest("human.request.v1").await?;
    let asked = asked.ok_or("nothing was asked; run it with `start` first")?;
    let ticket = asked
        .context
        .text("requestId")
        .ok_or("a question without an id")?;
    article(&store)?
        .resume(ticket, json!(answer), "ann")
        .await?;

    let result = works_until(&store, WorkflowExecutor::RESULT).await?;

    println!(
        "result:   {}",
        result.context.text("output").unwrap_or_default()
    );
    store.close().await;
    Ok(std::fs::remove_dir_all(folder)?)
}

fn article(store: &SqliteStore) -> Result<WorkflowExecutor, BoxError> {
    let schema = json!({"type": "object"});
    let search = json_tool("search", "Finds pages.", schema.clone(), |_, _| async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Ok(json!(["crab.org"]))
    });
    // What is asked of the outside world carries this key, so that it happens once.
    let publish = json_tool(
        "publish",
        "Publishes a text.",
        schema,
        |_, context| async move {
            Ok(json!(format!(
                "published under {}",
                context.idempotency_key()
            )))
        },
    );
    let model = ScriptedModel::answering(|_, request| {
        let is_critic = request
            .messages
            .iter()
            .any(|message| message.text().contains("what is wrong"));
        Ok(ChatResponse::new(match is_critic {
            true => "Nothing to add.",
            false => "Crabs walk sideways.",
        }))
    });
    let tools = ToolRegistry::default()
        .with(search.idempotent())?
        .with(publish.at_most_once())?;
    let parts = Parts::new().tools(tools).default_model(Arc::new(model));
    let workflow = Workflow::from_yaml(include_str!("data/article.yaml"))?;
    let assembly = Assembly::new(workflow, &parts, Arc::new(store.clone()))?;
    Ok(WorkflowExecutor::new("article", assembly)?.with_events(Arc::new(tell)))
}

fn tell(event: StepEvent) {
    match event.kind {
        StepEventKind::Flow {
            kind: FlowEventKind::Finished,
            ..
        } => println!("finished: {}", event.path),
        StepEventKind::Text(text) => println!("{}: {text}", event.path),
        _ => {}
    }
}

/// Lets the flow work until there is a breadcrumb of a schema.
async fn works_until(store: &SqliteStore, schema: &str) -> Result<Arc<Breadcrumb>, BoxError> {
    let runtime = Runtime::on(store)
        .executor(Arc::new(article(store)?))
        .build()?;
    let mut found = Ok(None);
    runtime
        .run_until(async { found = first(store, schema).await })
        .await?;
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

//! A support desk with its state in one SQLite file. Kill it at any moment and start it again, and it continues.
//!
//! A question triggers a tool that looks up the order. The result triggers an agent, and the agent's answer triggers a tool that opens a
//! ticket. Run it with `cargo run --example sqlite --features sqlite`, kill it while it works (`pkill -9 -x sqlite`), and run it again.
//! An interrupted run continues after its lease expires, here after 2 s. A run that loses its worker three times in a row fails, and the
//! question is answered with an error.

#![expect(clippy::print_stdout, reason = "the output is the point of an example")]
#![expect(
    clippy::indexing_slicing,
    reason = "reading a missing field of JSON gives null"
)]

use futures::StreamExt as _;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use universal_executor::agent::{AgentDefinition, AgentExecutor, ChatResponse, ScriptedModel};
use universal_executor::source::StartAt;
use universal_executor::store::{Query, Write};
use universal_executor::tool::{JsonTool, Tool as _, ToolExecutor, json_tool};
use universal_executor::{
    BoxError, BreadcrumbStore, BreadcrumbStoreExt as _, EventSource as _, NewBreadcrumb, Profile,
    Runtime, Selector, SqliteStore, UniversalExecutor,
};

const QUESTIONS: usize = 8;
const LEASE: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let folder = std::env::current_exe()?.with_extension("data");
    std::fs::create_dir_all(&folder)?;
    let store = SqliteStore::open(folder.join("desk.db")).await?;
    if store.latest("user.message.v1").await?.is_none() {
        // One commit creates all questions or none, even if the process is killed.
        let questions = (1..=QUESTIONS).map(|number| Write::Create(question(number)));
        store.commit(questions.collect::<Vec<_>>().into()).await?;
    }
    let earlier = tickets(&store).await?;
    println!("earlier processes answered {earlier} of {QUESTIONS} questions");

    let pause = Duration::from_millis(300);
    let runtime = Runtime::on(&store) // the file has the position of each executor
        .executors(desk(&Arc::new(store.clone()), &folder, pause)?)
        .max_inflight(1)
        .sweep_every(LEASE / 2)
        .build()?;
    let mut answered = Ok(());
    let all_answered = async { answered = all_answered(&store, QUESTIONS).await };
    runtime.run_until(all_answered).await?;
    answered?;

    let now = tickets(&store).await? - earlier;
    let opened = std::fs::read_dir(folder.join("tickets"))?.count();
    println!("this process answered {now} questions, and {opened} tickets are open");
    drop(runtime);
    store.close().await;
    // The next start has an empty store.
    Ok(std::fs::remove_dir_all(folder)?)
}

/// Creates a question. All responses copy its tag, which connects them with the question.
pub(crate) fn question(number: usize) -> NewBreadcrumb {
    let context = json!({"message": "Where is my order?", "order": number, "requestId": format!("q-{number}")});
    NewBreadcrumb::new("user.message.v1")
        .tag(format!("request:q-{number}"))
        .context(context)
}

/// Creates two tools and an agent from their definitions.
pub(crate) fn desk<S: BreadcrumbStore>(
    store: &Arc<S>,
    folder: &Path,
    pause: Duration,
) -> Result<[Arc<dyn UniversalExecutor>; 3], BoxError> {
    let definitions: Value = serde_json::from_str(include_str!("data/support-desk.json"))?;
    let look_up = json_tool(
        "look-up-order",
        "Returns the state of an order.",
        json!({}),
        move |question, _| async move {
            tokio::time::sleep(pause).await;
            println!("looked up order {}", question["order"]);
            let is_even = question["order"].as_u64().is_some_and(|n| n % 2 == 0);
            Ok(json!({"state": if is_even { "delivered" } else { "on its way" }}))
        },
    );
    let model = ScriptedModel::answering(|_, request| {
        let asked = request
            .messages
            .last()
            .map(|data| data.text())
            .unwrap_or_default();
        let state = if asked.contains("delivered") {
            "has been delivered"
        } else {
            "is on its way"
        };
        Ok(ChatResponse::new(format!("Your order {state}.")))
    });
    let tool = |tool: JsonTool| -> Result<ToolExecutor, BoxError> {
        let definition = &definitions[tool.name()];
        let tool = ToolExecutor::from_definition(definition, tool, Arc::clone(store) as _)?;
        let tool = tool.idempotent();
        let profile = tool.profile().clone().lease(LEASE);
        Ok(tool.with_profile(profile))
    };
    let agent = AgentDefinition::from_json(&definitions["agent"])?;
    let agent = AgentExecutor::new(agent, Arc::new(model), Arc::clone(store) as _)?;
    let agent = agent.with_profile(Profile::new("agent").lease(LEASE));
    Ok([
        Arc::new(tool(look_up)?),
        Arc::new(agent),
        Arc::new(tool(open_ticket(folder))?),
    ])
}

/// Creates the tool that opens a ticket. The help desk, here a folder, identifies a ticket by the idempotency key, which is the same in
/// all attempts of a run. A repeated call therefore opens no second ticket, and the tool is idempotent.
fn open_ticket(folder: &Path) -> JsonTool {
    let tickets = folder.join("tickets");
    json_tool(
        "open-ticket",
        "Opens a ticket.",
        json!({}),
        move |answer, call| {
            let tickets = tickets.clone();
            async move {
                let question = call.context().require("question")?;
                let text = format!("{}: {}", question["requestId"], answer["message"]);
                tokio::fs::create_dir_all(&tickets).await?;
                tokio::fs::write(tickets.join(call.idempotency_key()), &text).await?;
                println!("opened the ticket for {text}");
                Ok(json!({"ticket": call.idempotency_key()}))
            }
        },
    )
}

/// Returns the number of questions with a ticket.
pub(crate) async fn tickets(store: &SqliteStore) -> Result<usize, BoxError> {
    let opened = Selector::schema("tool.response.v1").matching("$.tool", "eq", "open-ticket");
    Ok(store.search(&Query::new(opened).limit(1_000)).await?.len())
}

/// Waits until all questions have a ticket. Checks the store after each event.
pub(crate) async fn all_answered(store: &SqliteStore, questions: usize) -> Result<(), BoxError> {
    let mut events = store.events().subscribe(StartAt::Now).await?;
    while tickets(store).await? < questions {
        events.next().await.ok_or("the event stream ended")??;
    }
    Ok(())
}

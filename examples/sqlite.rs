//! A support desk on one file: kill it at any line, start it again, and it goes on where it was.
//!
//! A question sets off a tool that looks up the order, what that finds sets off an agent, and what the agent says sets
//! off a tool that opens a ticket. Run it with `cargo run --example sqlite --features sqlite`, kill it while it works
//! (`pkill -9 -x sqlite`), and run it again. What was being done is taken up when its lease is over, here after 2 s;
//! what dies three times in a row is given up, and answered with an error.

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]
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
        // All or none of them, whenever the process ends.
        let questions = (1..=QUESTIONS).map(|number| Write::Create(question(number)));
        store.commit(questions.collect::<Vec<_>>().into()).await?;
    }
    let earlier = tickets(&store).await?;
    println!("{earlier} of {QUESTIONS} questions were answered by earlier runs of this process");

    let pause = Duration::from_millis(300);
    let runtime = Runtime::on(&store) // the file knows how far each executor has come
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
    println!("{now} were answered by this one, and {opened} tickets are open");
    drop(runtime);
    store.close().await;
    // So that the next start begins anew.
    Ok(std::fs::remove_dir_all(folder)?)
}

/// The tag connects what follows from a question: responses carry it on.
pub(crate) fn question(number: usize) -> NewBreadcrumb {
    let context = json!({"message": "Where is my order?", "order": number, "requestId": format!("q-{number}")});
    NewBreadcrumb::new("user.message.v1")
        .tag(format!("request:q-{number}"))
        .context(context)
}

/// Two tools and an agent, all made of a definition.
pub(crate) fn desk<S: BreadcrumbStore>(
    store: &Arc<S>,
    folder: &Path,
    pause: Duration,
) -> Result<[Arc<dyn UniversalExecutor>; 3], BoxError> {
    let definitions: Value = serde_json::from_str(include_str!("data/support-desk.json"))?;
    let look_up = json_tool(
        "look-up-order",
        "Says where an order is.",
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

/// Opening a ticket twice would open two. The help desk, here a folder, takes a key with it: the same for every attempt
/// at one answer. That is what makes the tool one that may be called again.
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

/// How many questions have come to their end.
pub(crate) async fn tickets(store: &SqliteStore) -> Result<usize, BoxError> {
    let opened = Selector::schema("tool.response.v1").matching("$.tool", "eq", "open-ticket");
    Ok(store.search(&Query::new(opened).limit(1_000)).await?.len())
}

/// Looks again whenever something is committed.
pub(crate) async fn all_answered(store: &SqliteStore, questions: usize) -> Result<(), BoxError> {
    let mut events = store.events().subscribe(StartAt::Now).await?;
    while tickets(store).await? < questions {
        events.next().await.ok_or("the events have ended")??;
    }
    Ok(())
}

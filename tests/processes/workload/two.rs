//! Two workers on one session, with the same executor or with one executor each.

use crate::flow::lives::open;
use crate::workload::Folder;
use crate::workload::shown::Shown;
use futures::StreamExt as _;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use universal_executor::agent::{ChatResponse, ScriptedModel};
use universal_executor::executor::{OrderingKey, RetryPolicy};
use universal_executor::source::StartAt;
use universal_executor::store::RunFilter;
use universal_executor::workflow::Workflow;
use universal_executor::workload::{FlowDefinition, LogEntry, SessionStore, WorkloadExecutor};
use universal_executor::{
    BreadcrumbStoreExt as _, EventSource as _, NewBreadcrumb, Profile, RunLedger as _, Runtime,
    Services, SqliteStore, Subscription, Subscriptions,
};

const MESSAGES: usize = 4;

/// Creates an executor that answers with the number of messages in its request, without the instructions and the task.
fn executor(id: &str, store: &SqliteStore) -> WorkloadExecutor {
    let model = ScriptedModel::answering(|_, request| {
        let shown = Shown::of(request).messages.len();
        Ok(ChatResponse::new((shown - 2).to_string()))
    });
    let agent = Workflow::from_json(&json!({"agents": {"main": {"instruction": "Help."}}}));
    let definition = Arc::new(FlowDefinition::new(id, agent.unwrap()).unwrap());
    let services = Services::new().default_model(model);
    let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();
    let mut again = RetryPolicy::default();
    again.attempts = 1_000;
    (again.base, again.cap) = (Duration::from_millis(1), Duration::from_millis(20));
    let profile = Profile::new("workload")
        .ordering(OrderingKey::tag("session:"))
        .retry(again);
    let executor = WorkloadExecutor::new(id, definition, &services, store, messages).unwrap();
    executor.with_profile(profile)
}

/// Waits until this number of runs has ended.
async fn is_over(store: &SqliteStore, many: usize) {
    let mut events = store.events().subscribe(StartAt::Now).await.unwrap();
    loop {
        let runs = store.runs(&RunFilter::all()).await.unwrap();
        let over = runs.iter().filter(|run| run.state.is_over());
        if over.count() >= many {
            return;
        }
        drop(events.next().await.unwrap().unwrap());
    }
}

/// Returns the final messages of the session after two workers with executors of these names have processed it turn by turn.
async fn answered(folder: &Folder, names: [&str; 2], runs: usize) -> Vec<(String, String)> {
    let stores = [open(&folder.0, 0).await, open(&folder.0, 0).await];
    for number in 0..MESSAGES {
        let message = NewBreadcrumb::new("user.message.v1").tag("session:one");
        let message = message.context(json!({"message": number.to_string()}));
        stores[0].create(message).await.unwrap();
    }

    let both = names.into_iter().zip(&stores);
    let both = both.map(|(id, store)| async move {
        let runtime = Runtime::builder(store.events_of(id))
            .start_at(StartAt::Beginning)
            .executor(Arc::new(executor(id, store)))
            .build();
        runtime.unwrap().run_until(is_over(store, runs)).await
    });
    for ended in futures::future::join_all(both).await {
        ended.unwrap();
    }

    let session = SessionStore::new(Arc::new(stores[0].clone())).session("one");
    let log = session.load().await.unwrap();
    let turns = log.entries().map(|entry| match entry {
        LogEntry::Said { messages } => (
            messages[0].text().into_owned(),
            messages[1].text().into_owned(),
        ),
        other => (format!("{other:?}"), String::new()),
    });
    turns.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_of_one_executor_have_each_read_the_whole_conversation() {
    let turns = answered(&Folder::new("one-name"), ["desk", "desk"], MESSAGES).await;

    // Runs that two workers process at the same time may swap places. A turn has a message and an answer.
    let (mut asked, answers): (Vec<_>, Vec<_>) = turns.into_iter().unzip();
    asked.sort();
    let numbers = |step: usize| (0..MESSAGES).map(move |turn| (step * turn).to_string());
    assert_eq!(asked, numbers(1).collect::<Vec<_>>());
    assert_eq!(answers, numbers(2).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_executors_in_one_session_each_has_all_of_its_turns_whole_and_once() {
    let turns = answered(&Folder::new("two-names"), ["left", "right"], 2 * MESSAGES).await;

    let mut asked: Vec<_> = turns.into_iter().map(|(asked, _)| asked).collect();
    asked.sort();
    let expected = (0..MESSAGES).flat_map(|turn| [turn.to_string(), turn.to_string()]);
    assert_eq!(asked, expected.collect::<Vec<_>>());
}

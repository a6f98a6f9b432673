//! Definitions that change while their executors run.

use crate::runtime_definitions::given::{
    RESPONSE, agent, hash_of, made_with, redefine, runtime, said, until_running, until_said,
};
use crate::support::{Shim, all, put, runs};
use futures::StreamExt as _;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use universal_executor::agent::{ChatModel, ChatRequest, ChatResponse, ModelError};
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::source::StartAt;
use universal_executor::store::RunState;
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, EventSource as _, MemoryStore, Runtime,
    Services, async_trait,
};

/// A model that repeats the instructions in a request. It answers "old" only with a test's permit.
struct Gate {
    asked: Semaphore,
    open: Semaphore,
}

#[async_trait]
impl ChatModel for Gate {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        let instructions = request.messages[0].text();
        if instructions == "old" {
            self.asked.add_permits(1);
            self.open.acquire().await.unwrap().forget();
        }
        Ok(ChatResponse::new(instructions))
    }
}

/// Returns the agents in a store, with one model.
fn agents_of(
    store: &(impl BreadcrumbStore + Clone + 'static),
    model: impl ChatModel + 'static,
) -> StoredDefinitions {
    StoredDefinitions::new(store, &Services::new().default_model(model)).agents()
}

#[tokio::test(start_paused = true)]
async fn a_running_run_finishes_with_its_old_definition_and_new_events_use_the_new_one() {
    let store = MemoryStore::default();
    let gate = Arc::new(Gate {
        asked: Semaphore::new(0),
        open: Semaphore::new(0),
    });
    let definitions = agents_of(&store, gate.clone());
    let runtime = runtime(&store, definitions);
    let old = put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "message.v1", "old"),
    )
    .await;
    let mut new = None;
    let scenario = async {
        put(&store, "message.v1", json!({})).await;
        gate.asked.acquire().await.unwrap().forget();
        new = Some(redefine(&store, &old, agent("a", "message.v1", "new")).await);
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 1).await;
        gate.open.add_permits(1);
        until_said(&store, 2).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["new", "old"]);
    let responses = all(&store, RESPONSE).await;
    let hashes: Vec<String> = responses.iter().map(|found| made_with(found)).collect();
    assert_eq!(hashes, [hash_of(&old), hash_of(&new.unwrap())]);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_definition_is_deleted_finishes() {
    let store = MemoryStore::default();
    let gate = Arc::new(Gate {
        asked: Semaphore::new(0),
        open: Semaphore::new(0),
    });
    let definitions = agents_of(&store, gate.clone());
    let runtime = runtime(&store, definitions);
    let old = put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "message.v1", "old"),
    )
    .await;
    let scenario = async {
        put(&store, "message.v1", json!({})).await;
        gate.asked.acquire().await.unwrap().forget();
        store.delete(old.id).await.unwrap();
        until_running(&runtime, &[]).await;
        gate.open.add_permits(1);
        until_said(&store, 1).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["old"]);
}

#[tokio::test(start_paused = true)]
async fn events_waiting_for_a_removed_executor_without_a_ledger_are_not_redelivered() {
    let store = MemoryStore::default();
    let gate = Arc::new(Gate {
        asked: Semaphore::new(0),
        open: Semaphore::new(0),
    });
    let shim = Shim::without_ledger(&store);
    let definitions = agents_of(&shim, gate.clone());
    let runtime = Runtime::builder(store.events())
        .definitions(definitions)
        .max_inflight(1)
        .build()
        .unwrap();
    let old = put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "message.v1", "old"),
    )
    .await;
    let removed_while_busy = async {
        put(&store, "message.v1", json!({})).await;
        gate.asked.acquire().await.unwrap().forget();
        put(&store, "message.v1", json!({})).await;
        store.delete(old.id).await.unwrap();
        until_running(&runtime, &[]).await;
        gate.open.add_permits(1);
        until_said(&store, 1).await;
    };
    runtime.run_until(removed_while_busy).await.unwrap();
    put(
        &store,
        StoredDefinitions::AGENT,
        agent("b", "message.v1", "new"),
    )
    .await;
    let next = async {
        put(&store, "message.v1", json!({})).await;
        until_said(&store, 2).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    };

    runtime.run_until(next).await.unwrap();

    assert_eq!(said(&store).await, ["old", "new"]);
}

/// A model with varying answer times, so that runs overlap with changes.
struct Slow;

#[async_trait]
impl ChatModel for Slow {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        let instructions = request.messages[0].text();
        for _ in 0..instructions.len() % 7 * 10 {
            tokio::task::yield_now().await;
        }
        Ok(ChatResponse::new(instructions))
    }
}

const UPDATES: usize = 100;
const EVENTS_EACH: usize = 6;

/// Updates a definition a hundred times with events in between. Checks that each event has one answer, from a version of the
/// definition that existed.
async fn update_under_load(store: &MemoryStore, runtimes: Vec<Runtime>) {
    let first = agent("a", "message.v1", "0");
    let mut defined = put(store, StoredDefinitions::AGENT, first).await;
    let mut hashes: HashSet<String> = HashSet::from([hash_of(&defined)]);
    let mut triggers: Vec<Arc<Breadcrumb>> = Vec::new();
    let tasks: Vec<_> = runtimes
        .into_iter()
        .map(|runtime| {
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let work = tokio::spawn(async move {
                let told = async { drop(stopped.await) };
                runtime.run_until(told).await.unwrap()
            });
            (stop, work)
        })
        .collect();
    let mut events = store.events().subscribe(StartAt::Beginning).await.unwrap();
    for n in 1..=UPDATES {
        let says = "x".repeat(n);
        defined = redefine(store, &defined, agent("a", "message.v1", &says)).await;
        hashes.insert(hash_of(&defined));
        for _ in 0..EVENTS_EACH {
            triggers.push(put(store, "message.v1", json!({"n": n})).await);
            if n % 3 == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
    let mut answers = 0;
    while answers < triggers.len() {
        let delivery = events.next().await.unwrap().unwrap();
        answers += usize::from(delivery.event.schema_name.as_deref() == Some(RESPONSE));
    }
    for (stop, work) in tasks {
        stop.send(()).unwrap();
        work.await.unwrap();
    }
    assert!(runs(store).await.iter().all(|run| run.state.is_over()));

    let responses = all(store, RESPONSE).await;
    let mut answers: HashMap<String, usize> = HashMap::new();
    for response in &responses {
        assert!(hashes.contains(&made_with(response)));
        let trigger = response.context.text("trigger_event_id").unwrap();
        *answers.entry(trigger.to_owned()).or_default() += 1;
    }
    let counts = triggers
        .iter()
        .map(|trigger| answers.get(&trigger.id.to_string()).copied());
    assert!(
        counts.into_iter().all(|count| count == Some(1)),
        "each event must have one answer"
    );
    assert_eq!(responses.len(), UPDATES * EVENTS_EACH);
    assert!(
        runs(store)
            .await
            .iter()
            .all(|run| run.state == RunState::Done)
    );
}

fn slow(store: &MemoryStore) -> Runtime {
    let definitions = agents_of(store, Slow);
    Runtime::builder(store.events())
        .definitions(definitions)
        .start_at(StartAt::Beginning)
        .reconcile_every(Duration::from_millis(3))
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_definition_updated_a_hundred_times_under_load_answers_every_event_once() {
    let store = MemoryStore::default();
    let runtimes = vec![slow(&store)];

    update_under_load(&store, runtimes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_on_many_threads_answer_every_event_once_while_a_definition_changes() {
    let store = MemoryStore::default();
    let runtimes = vec![slow(&store), slow(&store)];

    // Time is not paused in this test. The limit is reached only if an answer is lost.
    let done = timeout(Duration::from_secs(60), update_under_load(&store, runtimes));

    done.await.unwrap();
}

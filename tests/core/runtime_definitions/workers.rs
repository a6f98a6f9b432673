//! Workers learn of a new definition at different times. A worker with an older definition must not end a run as unmatched that another
//! worker enqueued for a newer definition.

use crate::runtime_definitions::given::{
    RESPONSE, Silent, agent, agents, hash_of, made_with, redefine, running, said, until_running,
    until_said,
};
use crate::support::{Call, Do, Shim, all, event_of, eventually, put, runs, unavailable};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::store::{NewRun, Run, RunRef, RunState};
use universal_executor::{Breadcrumb, BreadcrumbStoreExt, MemoryStore, RunLedger, Runtime};

/// Creates a worker that receives no events and reads its definitions only every hour.
fn deaf(definitions: StoredDefinitions) -> Runtime {
    Runtime::builder(Silent)
        .definitions(definitions)
        .reconcile_every(Duration::from_secs(3_600))
        .build()
        .unwrap()
}

/// Enqueues a run, like a worker with the newer definition.
async fn enqueue(store: &MemoryStore, executor: &str, trigger: &Breadcrumb) {
    let run = RunRef::of(executor, &event_of(trigger));
    store.enqueue(vec![NewRun::from(run)]).await.unwrap();
}

/// Returns the only run of an executor.
async fn run_of(store: &MemoryStore, executor: &str) -> Run {
    let mut found = runs(store).await;
    found.retain(|run| &*run.run.executor == executor);
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn agent_where(n: u64) -> Value {
    let mut agent = agent("a", "message.v1", &n.to_string());
    agent["subscriptions"][0]["context_match"] = json!([{"path": "$.n", "op": "eq", "value": n}]);
    agent
}

#[tokio::test(start_paused = true)]
async fn a_run_of_a_newer_definition_is_processed_with_that_one() {
    let store = MemoryStore::default();
    let old = put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "old.v1", "old"),
    )
    .await;
    let runtime = deaf(agents(&store));
    let mut new = None;
    let scenario = async {
        until_running(&runtime, &["a"]).await;
        new = Some(redefine(&store, &old, agent("a", "new.v1", "new")).await);
        let trigger = put(&store, "new.v1", json!({})).await;
        enqueue(&store, "a", &trigger).await;
        eventually(async || run_of(&store, "a").await.state.is_over()).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(run_of(&store, "a").await.state, RunState::Done);
    let responses = all(&store, RESPONSE).await;
    assert_eq!(made_with(&responses[0]), hash_of(&new.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn so_is_one_whose_trigger_only_the_newer_conditions_select() {
    let store = MemoryStore::default();
    let old = put(&store, StoredDefinitions::AGENT, agent_where(1)).await;
    let runtime = deaf(agents(&store));
    let scenario = async {
        until_running(&runtime, &["a"]).await;
        redefine(&store, &old, agent_where(2)).await;
        let trigger = put(&store, "message.v1", json!({"n": 2})).await;
        enqueue(&store, "a", &trigger).await;
        eventually(async || run_of(&store, "a").await.state.is_over()).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(run_of(&store, "a").await.state, RunState::Done);
    assert_eq!(said(&store).await, ["2"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_no_definition_asks_for_any_more_is_skipped() {
    let store = MemoryStore::default();
    let old = put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "old.v1", "old"),
    )
    .await;
    let runtime = deaf(agents(&store));
    let scenario = async {
        until_running(&runtime, &["a"]).await;
        redefine(&store, &old, agent("a", "new.v1", "new")).await;
        let trigger = put(&store, "other.v1", json!({})).await;
        enqueue(&store, "a", &trigger).await;
        eventually(async || run_of(&store, "a").await.state.is_over()).await;
    };

    let report = runtime.run_until(scenario).await.unwrap();

    let run = run_of(&store, "a").await;
    assert_eq!(
        (run.state, run.reason.as_deref()),
        (RunState::Skipped, Some("unmatched"))
    );
    assert_eq!(report.skipped, 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_matches_costs_no_look_at_the_definition() {
    let store = MemoryStore::default();
    let defined = put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "message.v1", "one"),
    )
    .await;
    let (id, looks) = (defined.id, Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&looks);
    let shim = Shim::new(&store, move |call| {
        if matches!(call, Call::Get(asked) if asked == id) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Do::Pass
    });
    let runtime = deaf(agents(&shim));
    for _ in 0..10 {
        let trigger = put(&store, "message.v1", json!({})).await;
        enqueue(&store, "a", &trigger).await;
    }

    runtime.run_until(until_said(&store, 10)).await.unwrap();

    assert_eq!(looks.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_of_an_agent_that_has_another_name_by_now_is_left_in_the_ledger() {
    let store = MemoryStore::default();
    let old = put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "old.v1", "old"),
    )
    .await;
    let runtime = deaf(agents(&store));
    let scenario = async {
        until_running(&runtime, &["a"]).await;
        let renamed = redefine(&store, &old, agent("b", "new.v1", "b")).await;
        let trigger = put(&store, "new.v1", json!({})).await;
        enqueue(&store, "a", &trigger).await;
        until_running(&runtime, &["b"]).await;
        eventually(async || run_of(&store, "a").await.state == RunState::Ready).await;
        redefine(&store, &renamed, agent("a", "new.v1", "a again")).await;
        // The run of the other name makes the worker read the new definition.
        let other = put(&store, "other.v1", json!({})).await;
        enqueue(&store, "b", &other).await;
        until_said(&store, 1).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["a again"]);
    assert_eq!(running(&runtime), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_not_ended_as_unmatched_while_its_definition_cannot_be_read() {
    let store = MemoryStore::default();
    let old = put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "old.v1", "old"),
    )
    .await;
    let (away, tries) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (is_away, tried, id) = (Arc::clone(&away), Arc::clone(&tries), old.id);
    let shim = Shim::new(&store, move |call| match call {
        Call::Get(asked) if asked == id && is_away.load(Ordering::SeqCst) => {
            tried.fetch_add(1, Ordering::SeqCst);
            Do::Fail(unavailable())
        }
        _ => Do::Pass,
    });
    let runtime = deaf(agents(&shim));
    let scenario = async {
        until_running(&runtime, &["a"]).await;
        redefine(&store, &old, agent("a", "new.v1", "new")).await;
        let trigger = put(&store, "new.v1", json!({})).await;
        enqueue(&store, "a", &trigger).await;
        eventually(async || tries.load(Ordering::SeqCst) == 20).await;
        let run = run_of(&store, "a").await;
        assert!(!run.state.is_over(), "{run:?}");
        away.store(false, Ordering::SeqCst);
        until_said(&store, 1).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(said(&store).await, ["new"]);
    assert!(store.latest("executor.failed.v1").await.unwrap().is_none());
}

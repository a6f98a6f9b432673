//! A runtime whose `run_until` is dropped while it claims runs.

use crate::runtime_order::harness::{SECOND, from_beginning, in_state, until_ended};
use crate::support::{Probe, put, runs};
use serde_json::json;
use std::future::pending;
use std::sync::Arc;
use tokio::time::{sleep, timeout};
use universal_executor::store::{Fault, Faulty, Moment, Operation, RunState};
use universal_executor::{MemoryStore, Profile};

/// Creates a store whose claims return after three seconds, and whose releases start after three seconds.
fn slow(store: &MemoryStore) -> Faulty<MemoryStore> {
    Faulty::new(store.clone(), |operation, moment| {
        match (operation, moment) {
            (Operation::ClaimNext, Moment::After) | (Operation::Release, Moment::Before) => {
                Fault::Delay(3 * SECOND)
            }
            _ => Fault::None,
        }
    })
}

/// Creates an executor that takes five seconds per run and executes each run at most once.
fn worker(store: &MemoryStore) -> Arc<Probe> {
    Probe::on("question.v1", "worker", &slow(store))
        .profile(Profile::default().at_most_once())
        .executing(|_| async {
            sleep(5 * SECOND).await;
            Ok(json!({}))
        })
        .shared()
}

#[tokio::test(start_paused = true)]
async fn a_claim_in_flight_when_the_runtime_is_dropped_is_released_unused() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let runtime = from_beginning(&store)
        .executor(worker(&store))
        .build()
        .unwrap();

    let dropped = timeout(SECOND, runtime.run_until(pending())).await;

    assert!(dropped.is_err());
    assert_eq!(in_state(&store, RunState::Running).await.len(), 1);
    sleep(10 * SECOND).await;
    let run = runs(&store).await.remove(0);
    assert_eq!((run.state, run.attempts), (RunState::Ready, 0));
}

#[tokio::test(start_paused = true)]
async fn a_restarted_runtime_retains_its_runs_when_the_earlier_claim_is_released() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let worker = worker(&store);
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&worker))
        .build()
        .unwrap();
    let dropped = timeout(SECOND, runtime.run_until(pending())).await;
    assert!(dropped.is_err());
    put(&store, "question.v1", json!({})).await;

    runtime.run_until(until_ended(&store, 2)).await.unwrap();

    let runs = runs(&store).await;
    let done = runs.iter().filter(|run| run.state == RunState::Done);
    assert_eq!((done.count(), worker.executed()), (2, 2), "{runs:?}");
}

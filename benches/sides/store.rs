//! Sides that use this crate: the runtime, and direct calls of the store.

use super::answering::{Answering, Done, answer_one, question};
use futures::future::join_all;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use universal_executor::source::StartAt;
use universal_executor::store::{
    ClaimId, Durability, ExecutorLimits, NewRun, RunLedger, RunRef, SqliteLimits,
};
use universal_executor::{BreadcrumbId, BreadcrumbStoreExt, SqliteStore};

pub(crate) async fn open(file: &Path, durability: Durability) -> SqliteStore {
    let store = SqliteStore::builder(file).durability(durability);
    store.open().await.unwrap()
}

/// Answers the triggers in a file with a runtime, `at_once` at a time.
pub(crate) async fn answer(
    file: &Path,
    durability: Durability,
    n: usize,
    at_once: Option<usize>,
) -> Duration {
    let store = open(file, durability).await;
    let done = Arc::<Done>::default();
    done.aim(n);
    let (events, start) = (store.events(), StartAt::Beginning);
    let answering = Answering::new(&store, events, at_once, start, &done);
    let (responded, took) = answering.answer().await;
    assert_eq!(responded, n);
    drop(answering);
    store.close().await;
    took
}

/// Creates `n` breadcrumbs with a number of concurrent writers.
pub(crate) async fn create(
    file: &Path,
    durability: Durability,
    n: usize,
    writers: usize,
) -> Duration {
    let store = open(file, durability).await;
    let begun = Instant::now();
    let writers = (0..writers).map(async |_| {
        for _ in 0..n / writers {
            store.create(question()).await.unwrap();
        }
    });
    join_all(writers).await;
    let took = begun.elapsed();
    store.close().await;
    took
}

/// Claims the runs of all triggers in a file and answers them, `at_once` at a time.
pub(crate) async fn finish(
    file: &Path,
    durability: Durability,
    triggers: &[[u8; 16]],
    at_once: usize,
) -> Duration {
    let store = open(file, durability).await;
    let runs = triggers.iter().map(|id| {
        // The ID is parsed from a string, because earlier commits of the crate have no conversion from bytes.
        let id: BreadcrumbId = uuid::Uuid::from_bytes(*id).to_string().parse().unwrap();
        NewRun::from(RunRef::new("answerer", id, 1))
    });
    store.enqueue(runs.collect()).await.unwrap();
    let begun = Instant::now();
    for _ in 0..triggers.len() / at_once {
        let limits = [ExecutorLimits::new("answerer", at_once)];
        let claimed = store.claim_next(at_once, &limits, ClaimId::unique());
        let claimed = claimed.await.unwrap();
        assert_eq!(claimed.len(), at_once);
        join_all(claimed.into_iter().map(|run| answer_one(&store, run.lease))).await;
    }
    let took = begun.elapsed();
    store.close().await;
    took
}

/// Opens a file as a store that retains at most `most` finished runs and `most` events.
pub(crate) async fn open_limited(file: &Path, most: usize) -> SqliteStore {
    let mut limits = SqliteLimits::default();
    (limits.finished_runs, limits.events) = (most, most);
    let store = SqliteStore::builder(file)
        .durability(Durability::Normal)
        .limits(limits);
    store.open().await.unwrap()
}

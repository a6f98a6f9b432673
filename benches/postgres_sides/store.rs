//! Sides that use this crate: direct calls of the store, and runtimes.

use super::answering::{Answering, Done, answer_one, question};
use super::block_on;
use super::raw::Raw;
use futures::future::join_all;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use universal_executor::source::StartAt;
use universal_executor::store::{
    ClaimId, Commit, ExecutorLimits, NewRun, RunLedger, RunRef, Write,
};
use universal_executor::{BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, PostgresStore};

/// Connects to the tables in a schema. Creates missing tables.
pub(crate) async fn connect(url: &str, schema: &str) -> PostgresStore {
    let builder = PostgresStore::builder(url).schema(schema);
    let builder = builder.connections(Raw::CONNECTIONS as u32);
    builder.connect().await.unwrap()
}

/// Creates `n` triggers.
pub(crate) async fn fill(store: &PostgresStore, n: usize) -> Vec<BreadcrumbId> {
    let mut ids = Vec::with_capacity(n);
    while ids.len() < n {
        let writes = vec![Write::Create(question()); (n - ids.len()).min(500)];
        ids.extend(store.commit(Commit::from(writes)).await.unwrap().ids());
    }
    ids
}

/// Enqueues the runs of triggers.
pub(crate) async fn enqueue(store: &PostgresStore, triggers: &[BreadcrumbId]) {
    for some in triggers.chunks(64) {
        let runs = some
            .iter()
            .map(|id| NewRun::from(RunRef::new("answerer", *id, 1)));
        store.enqueue(runs.collect()).await.unwrap();
    }
}

/// Creates breadcrumbs with a number of concurrent writers.
pub(crate) async fn create(store: &PostgresStore, n: usize, writers: usize) -> Duration {
    let begun = Instant::now();
    let writers = (0..writers).map(async |_| {
        for _ in 0..n / writers {
            store.create(question()).await.unwrap();
        }
    });
    join_all(writers).await;
    begun.elapsed()
}

/// Claims `n` enqueued runs and answers them, `at_once` at a time.
pub(crate) async fn finish(store: &PostgresStore, n: usize, at_once: usize) -> Duration {
    let begun = Instant::now();
    for _ in 0..n / at_once {
        let limits = [ExecutorLimits::new("answerer", at_once)];
        let claimed = store.claim_next(at_once, &limits, ClaimId::unique());
        let claimed = claimed.await.unwrap();
        assert_eq!(claimed.len(), at_once);
        join_all(claimed.into_iter().map(|run| answer_one(store, run.lease))).await;
    }
    begun.elapsed()
}

/// Answers `n` stored triggers with a number of workers. Each worker is a runtime in a separate thread with separate
/// connections.
pub(crate) fn respond(url: &str, schema: &str, n: usize, workers: usize) -> Duration {
    let done = Arc::<Done>::default();
    done.aim(n);
    let begin = Barrier::new(workers);
    let work = || {
        block_on(async {
            let store = connect(url, schema).await;
            let (events, start) = (store.events(), StartAt::Beginning);
            let answering = Answering::new(&store, events, None, start, &done);
            begin.wait();
            let answered = answering.answer().await;
            drop(answering);
            store.close().await;
            answered
        })
    };
    let answered: Vec<(usize, Duration)> = std::thread::scope(|scope| {
        let working: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let answered = working.into_iter().map(|working| working.join().unwrap());
        answered.collect()
    });
    assert_eq!(answered.iter().map(|(count, _)| count).sum::<usize>(), n);
    answered.into_iter().map(|(_, took)| took).max().unwrap()
}

//! Filling of a store with finished runs, and measurement of its rate of answers.

pub(crate) mod executor;
pub(crate) mod limited;

use crate::worker_sides::SharedStore;
use executor::{Answers, Work, request};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use universal_executor::store::{Commit, Write};
use universal_executor::{BreadcrumbStore, NewBreadcrumb, Runtime};

/// Number of breadcrumbs in one commit.
const BATCH: usize = 500;

/// Maximum number of requests that wait for their runs.
const MOST_BEHIND: usize = 10_000;

/// Adds requests and their finished runs.
pub(crate) async fn fill<S: SharedStore>(shared: &S, location: &S::Location, runs: usize) {
    work(shared, location, Work::Fill, 0, runs).await;
}

/// Adds requests without runs.
pub(crate) async fn post<S: SharedStore>(shared: &S, location: &S::Location, requests: usize) {
    let handle = shared.open(location).await;
    for first in (0..requests).step_by(BATCH) {
        commit(&handle, (first..requests.min(first + BATCH)).map(request)).await;
    }
    S::close(handle).await;
}

/// Returns the time for a number of answers, from the first write to the last answer.
pub(crate) async fn answer<S: SharedStore>(
    shared: &S,
    location: &S::Location,
    answers: usize,
) -> Duration {
    /// Number of answers before the measurement starts, so that the worker has started and the store has read its first pages.
    const WARM_UP: usize = 500;
    work(shared, location, Work::Answer, WARM_UP, answers).await
}

/// Handles requests with one worker. Returns the time without the first `warm_up` requests.
async fn work<S: SharedStore>(
    shared: &S,
    location: &S::Location,
    work: Work,
    warm_up: usize,
    runs: usize,
) -> Duration {
    let handle = shared.open(location).await;
    let (count, mut counted) = watch::channel(0);
    let runtime = Runtime::builder(S::events(&handle))
        .executor(Answers::new(handle.clone(), work, count))
        .build()
        .unwrap();
    let mut elapsed = Duration::ZERO;
    let all = async {
        commit(&handle, (0..warm_up).map(request)).await;
        counted.wait_for(|count| *count >= warm_up).await.unwrap();
        let start = Instant::now();
        for first in (0..runs).step_by(BATCH) {
            let batch = first..runs.min(first + BATCH);
            commit(&handle, batch.map(request)).await;
            let least = (warm_up + first).saturating_sub(MOST_BEHIND);
            counted.wait_for(|count| *count >= least).await.unwrap();
        }
        let all = |count: &usize| *count >= warm_up + runs;
        counted.wait_for(all).await.unwrap();
        elapsed = start.elapsed();
    };
    let report = runtime.run_until(all).await.unwrap();
    assert_eq!(
        report.responded,
        (warm_up + runs) as u64,
        "each request has one run"
    );
    drop(runtime);
    S::close(handle).await;
    elapsed
}

async fn commit(store: &impl BreadcrumbStore, all: impl Iterator<Item = NewBreadcrumb>) {
    let writes: Vec<Write> = all.map(Write::Create).collect();
    if !writes.is_empty() {
        store.commit(Commit::from(writes)).await.unwrap();
    }
}

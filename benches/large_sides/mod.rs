//! Suspension of many runs, and their answers.

pub(crate) mod executors;
pub(crate) mod size;

use crate::worker_sides::{SharedStore, block_on};
use executors::{Asks, Counter, Notes, note, question, reply};
use size::Size;
use std::sync::Arc;
use std::time::{Duration, Instant};
use universal_executor::source::StartAt;
use universal_executor::store::{Commit, Write};
use universal_executor::{BreadcrumbStore, Runtime};

/// Number of writes of one commit.
const BATCH: usize = 500;

/// Maximum number of replies that wait to be handled, so that the store retains the events of all.
const MOST_BEHIND: usize = 20_000;

pub(crate) struct Measured {
    /// Time to suspend all runs.
    pub(crate) suspended: Duration,
    /// Time to answer all runs.
    pub(crate) answered: Duration,
    /// Growth of the memory of the process while the second worker reads the suspended runs. `None` if the store is in the same memory.
    pub(crate) worker_bytes: Option<u64>,
    /// Growth of the store while the runs are suspended, with their triggers and events.
    pub(crate) store_bytes: Option<u64>,
}

/// Suspends and answers a number of runs in a fresh location.
///
/// # Panics
/// Panics if a run does not receive its answer.
pub(crate) fn measure<S: SharedStore + Size<S::Location>>(shared: &S, runs: usize) -> Measured {
    let location = shared.create();
    let empty = shared.bytes(&location);
    let suspended = block_on(suspend_all(shared, &location, runs));
    let store_bytes = shared.bytes(&location).zip(empty);
    let store_bytes = store_bytes.map(|(full, empty)| full.saturating_sub(empty));
    let (answered, worker_bytes) = block_on(answer_all(shared, &location, runs));
    shared.remove(location);
    Measured {
        suspended,
        answered,
        worker_bytes: store_bytes.and(worker_bytes),
        store_bytes,
    }
}

async fn suspend_all<S: SharedStore>(shared: &S, location: &S::Location, runs: usize) -> Duration {
    let handle = shared.open(location).await;
    let suspended = Arc::new(Counter::default());
    let runtime = Runtime::builder(S::events(&handle))
        .start_at(StartAt::Beginning)
        .executor(Asks::new(handle.clone(), &suspended, &Arc::default()))
        .build()
        .unwrap();
    let start = Instant::now();
    let post = async {
        for first in (0..runs).step_by(BATCH) {
            let numbers = first..runs.min(first + BATCH);
            commit(&handle, numbers.map(question)).await;
            suspended.reach(first.saturating_sub(MOST_BEHIND)).await;
        }
        suspended.reach(runs).await;
    };
    runtime.run_until(post).await.unwrap();
    let elapsed = start.elapsed();
    drop(runtime);
    S::close(handle).await;
    elapsed
}

async fn answer_all<S: SharedStore>(
    shared: &S,
    location: &S::Location,
    runs: usize,
) -> (Duration, Option<u64>) {
    let handle = shared.open(location).await;
    let before = size::of_process();
    let (answered, noted) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
    let runtime = Runtime::builder(S::events(&handle))
        .executor(Asks::new(handle.clone(), &Arc::default(), &answered))
        .executor(Notes::new(handle.clone(), &noted))
        .build()
        .unwrap();
    let order = shuffled(runs);
    let mut worker_bytes = None;
    let mut start = Instant::now();
    let post = async {
        // The memory is measured once the first batch is answered. The batch is random and the ledger lists the oldest runs last, so
        // the worker has read almost all suspended runs then.
        for (batch, numbers) in order.chunks(BATCH).enumerate() {
            let posted = batch * BATCH;
            let replies = numbers.iter().map(|number| reply(*number));
            commit(&handle, replies.chain([note()])).await;
            answered.reach(posted.saturating_sub(MOST_BEHIND)).await;
            if batch == 0 {
                answered.reach(numbers.len()).await;
                let grown = size::of_process().zip(before);
                worker_bytes = grown.map(|(now, before)| now.saturating_sub(before));
                start = Instant::now();
            }
        }
        answered.reach(runs).await;
        noted.reach(runs.div_ceil(BATCH)).await;
    };
    let report = runtime.run_until(post).await.unwrap();
    let elapsed = start.elapsed();
    let wanted = runs + runs.div_ceil(BATCH);
    assert_eq!(report.responded, wanted as u64, "each run has one answer");
    drop(runtime);
    S::close(handle).await;
    (elapsed, worker_bytes)
}

async fn commit(
    store: &impl BreadcrumbStore,
    all: impl Iterator<Item = universal_executor::NewBreadcrumb>,
) {
    let writes: Vec<Write> = all.map(Write::Create).collect();
    store.commit(Commit::from(writes)).await.unwrap();
}

/// Returns all numbers below a limit, in a random order that is the same in each call.
fn shuffled(limit: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..limit).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for last in (1..limit).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let other = usize::try_from(state >> 33).unwrap() % (last + 1);
        numbers.swap(last, other);
    }
    numbers
}

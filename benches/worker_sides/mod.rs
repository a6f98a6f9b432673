//! Stores and workers that `workers` measures.

pub(crate) mod memory;
pub(crate) mod postgres;
pub(crate) mod sqlite;
pub(crate) mod tool;

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use tool::{Progress, Tool, request};
use universal_executor::source::StartAt;
use universal_executor::store::{Commit, Write};
use universal_executor::{BreadcrumbStore, EventSource, Runtime};

/// A store that several workers open.
pub(crate) trait SharedStore: Sync {
    /// The handle of one worker.
    type Handle: BreadcrumbStore + Clone + 'static;
    /// The location of one tenant's data: a file, a tenant name or the data itself.
    type Location: Sync;

    /// Creates an empty location.
    fn create(&self) -> Self::Location;

    /// Opens a handle on the data at `location`.
    async fn open(&self, location: &Self::Location) -> Self::Handle;

    /// Returns the events of a handle.
    fn events(handle: &Self::Handle) -> impl EventSource + use<Self>;

    /// Closes the last clone of a handle.
    async fn close(handle: Self::Handle);

    /// Removes the data at `location`.
    fn remove(&self, location: Self::Location);
}

/// Answers `triggers` triggers in a fresh location with `workers` workers. Returns the time from the common start to the
/// moment at which the last worker has stopped. At that moment all answers are committed.
pub(crate) fn answer<S: SharedStore>(shared: &S, triggers: usize, workers: usize) -> Duration {
    let location = shared.create();
    block_on(async {
        let handle = shared.open(&location).await;
        post(&handle, triggers).await;
        S::close(handle).await;
    });

    let progress = Arc::new(Progress::new(triggers));
    let start = Barrier::new(workers);
    let work = || block_on(work(shared, &location, &progress, &start));
    let worked: Vec<Worked> = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let worked = threads.into_iter().map(|thread| thread.join().unwrap());
        worked.collect()
    });
    shared.remove(location);

    let answered: u64 = worked.iter().map(|one| one.answered).sum();
    assert_eq!(answered, triggers as u64, "each trigger has one answer");
    let started = worked.iter().map(|one| one.started).min().unwrap();
    let stopped = worked.iter().map(|one| one.stopped).max().unwrap();
    stopped - started
}

/// The part of one worker in a measurement.
struct Worked {
    answered: u64,
    started: Instant,
    stopped: Instant,
}

/// Opens a handle, waits for the other workers and answers triggers until all are answered.
async fn work<S: SharedStore>(
    shared: &S,
    location: &S::Location,
    progress: &Arc<Progress>,
    start: &Barrier,
) -> Worked {
    let handle = shared.open(location).await;
    let runtime = Runtime::builder(S::events(&handle))
        .start_at(StartAt::Beginning)
        .executor(Tool::new(handle.clone(), progress))
        .build()
        .unwrap();
    start.wait();
    let started = Instant::now();
    let report = runtime.run_until(progress.complete()).await.unwrap();
    let stopped = Instant::now();
    drop(runtime);
    S::close(handle).await;
    Worked {
        answered: report.responded,
        started,
        stopped,
    }
}

/// Commits triggers in batches.
async fn post(store: &impl BreadcrumbStore, triggers: usize) {
    const BATCH: usize = 500;
    for first in (0..triggers).step_by(BATCH) {
        let batch = BATCH.min(triggers - first);
        let writes = vec![Write::Create(request()); batch];
        store.commit(Commit::from(writes)).await.unwrap();
    }
}

/// Runs a future on a new current-thread runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    tokio.unwrap().block_on(future)
}

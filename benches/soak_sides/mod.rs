//! Writes of documents that a worker handles, while the memory of the process is measured.

pub(crate) mod documents;
pub(crate) mod executor;

use crate::ALLOCATOR;
use crate::worker_sides::SharedStore;
use documents::Documents;
use executor::{Reads, mark};
use std::collections::VecDeque;
use tokio::sync::watch;
use universal_executor::store::{Commit, Write};
use universal_executor::{BreadcrumbId, BreadcrumbStore, Runtime};

/// Number of writes in one commit, with the mark and the deletion of an old mark.
const BATCH: usize = 100;

/// Number of batches that can wait for the worker.
const MOST_BEHIND: usize = 20;

/// Limit of the runtime for deliveries in flight.
pub(crate) const DELIVERIES: usize = 256;

/// Limit of the runtime for runs that execute at a time.
pub(crate) const RUNS: usize = 16;

#[derive(Default)]
pub(crate) struct Soaked {
    /// Maximum bytes of all documents at one time.
    pub(crate) documents: usize,
    /// Maximum heap of the process in the first half and in the second half, without the heap before the start.
    pub(crate) heap: [usize; 2],
}

/// Writes a number of events in a fresh location.
pub(crate) async fn soak<S: SharedStore>(
    shared: &S,
    location: &S::Location,
    events: usize,
) -> Soaked {
    let before = ALLOCATOR.current_usage();
    let handle = shared.open(location).await;
    let (marks, mut marked) = watch::channel(0);
    let runtime = Runtime::builder(S::events(&handle))
        .max_deliveries(DELIVERIES)
        .concurrency(RUNS)
        .executor(Reads::new(handle.clone(), marks))
        .build()
        .unwrap();
    let mut soaked = Soaked::default();
    let batches = events.div_ceil(BATCH);
    let all = async {
        let mut documents = Documents::default();
        let mut open = VecDeque::new();
        for batch in 1..=batches {
            if batch == 1 || batch == batches / 2 {
                ALLOCATOR.reset_peak_usage();
            }
            write(&handle, &mut documents, &mut open, batch).await;
            let least = batch.saturating_sub(MOST_BEHIND);
            marked.wait_for(|last| *last >= least).await.unwrap();
            soaked.documents = soaked.documents.max(documents.bytes());
            let peak = ALLOCATOR.peak_usage().saturating_sub(before);
            let [first, second] = &mut soaked.heap;
            *(if batch < batches / 2 { first } else { second }) = peak;
        }
        marked.wait_for(|last| *last >= batches).await.unwrap();
    };
    runtime.run_until(all).await.unwrap();
    drop(runtime);
    S::close(handle).await;
    soaked
}

/// Commits one batch: documents, a mark, and the deletion of a mark that was handled.
async fn write(
    store: &impl BreadcrumbStore,
    documents: &mut Documents,
    open: &mut VecDeque<BreadcrumbId>,
    batch: usize,
) {
    let mut writes = documents.writes(BATCH - 2);
    writes.push(Write::Create(mark(batch)));
    if open.len() > MOST_BEHIND {
        writes.extend(open.pop_front().map(|id| Write::Delete { id, by: None }));
    }
    let committed = store.commit(Commit::from(writes)).await.unwrap();
    documents.committed(&committed);
    open.extend(committed.written.get(BATCH - 2).map(|mark| mark.id));
}

//! A store with runs in every state: [`write()`](write::write) makes one, and [`continue_all`](resume::continue_all) continues each
//! run to its end. `tests/fixtures/README.md` describes the stored fixtures.

mod crew;
mod resume;
mod write;

pub(crate) use resume::continue_all;
pub(crate) use write::write;

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use universal_executor::store::{Run, RunFilter, RunState};
use universal_executor::{BreadcrumbStore, EventSource};

/// Time of the store's clock when a fixture is written, since 1970: the beginning of the year 2100. Tests set the clock to a time
/// after it, so the time between writing and reading is the same in each test run, today and in ten years.
const WRITTEN_AT: Duration = Duration::from_secs(4_102_444_800);

/// Time of the store's clock when a fixture is read: all leases and delays are over, and all waits of a day have not timed out.
const READ_AT: Duration = Duration::from_secs(4_102_444_800 + 600);

/// Maximum time that writing or continuing a fixture takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A store that a fixture can be loaded into.
pub(crate) trait Saved: BreadcrumbStore + Clone + 'static {
    /// Returns the events of the store, for a named consumer if there is a name.
    fn events(&self, consumer: Option<&str>) -> Box<dyn EventSource>;

    /// Moves the store's clock ahead.
    fn advance_clock(&self, time: Duration);
}

/// Returns the files of `tests/fixtures/` with a prefix and an extension, and their schema versions, oldest first.
pub(crate) fn files(prefix: &str, extension: &str) -> Vec<(i64, PathBuf)> {
    let folder = std::fs::read_dir(folder()).unwrap();
    let version = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        let version = name.strip_prefix(prefix)?.strip_suffix(extension)?;
        Some((version.parse().unwrap(), path))
    };
    let mut found: Vec<_> = folder
        .filter_map(|entry| version(entry.unwrap().path()))
        .collect();
    found.sort();
    found
}

/// Returns the path of the fixture of a schema version if `UX_WRITE_FIXTURES` is set and the file is missing. A fixture is never
/// replaced, because it has to be what that version of the crate wrote.
pub(crate) fn missing_file(name: &str) -> Option<PathBuf> {
    std::env::var_os("UX_WRITE_FIXTURES")?;
    let path = folder().join(name);
    (!path.exists()).then_some(path)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Sets the store's clock to a time after the current one.
fn set_clock(store: &impl Saved, time: Duration) {
    let wall = UNIX_EPOCH.elapsed().unwrap();
    store.advance_clock(time.checked_sub(wall).unwrap());
}

async fn runs(store: &impl Saved) -> Vec<Run> {
    let ledger = store.ledger().unwrap();
    ledger.runs(&RunFilter::all()).await.unwrap()
}

/// Returns the number of runs of an executor in a state.
async fn count(store: &impl Saved, executor: &str, state: RunState) -> usize {
    let filter = RunFilter::all().executor(executor).state(state);
    store.ledger().unwrap().runs(&filter).await.unwrap().len()
}

/// Reads the store until a condition holds. Not every change has an event, so nothing else tells that the condition can hold.
async fn until(store: &impl Saved, holds: impl AsyncFn() -> bool) {
    let waits = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(PATIENCE, waits).await.is_err() {
        panic!("not all runs came to their end: {:#?}", runs(store).await);
    }
}

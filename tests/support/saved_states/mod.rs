//! A store with runs in every state: [`write()`](write::write) creates the store, and [`continue_all`](resume::continue_all) continues
//! each run to its end. `tests/fixtures/README.md` describes the stored fixtures.

mod crew;
mod resume;
mod write;

pub(crate) use resume::continue_all;
pub(crate) use write::write;

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use universal_executor::store::{Run, RunFilter, RunState};
use universal_executor::{BreadcrumbStore, EventSource};

/// The store's time when a fixture is written, since 1970: the start of the year 2100. Tests set the clock to a later time, so the time
/// between writing and reading is the same in every test run.
const WRITTEN_AT: Duration = Duration::from_secs(4_102_444_800);

/// The store's time when a fixture is read. All leases and delays have expired, and no wait of a day has timed out.
const READ_AT: Duration = Duration::from_secs(4_102_444_800 + 600);

/// Maximum time for writing or continuing a fixture.
const PATIENCE: Duration = Duration::from_secs(120);

/// A store into which a fixture can be loaded.
pub(crate) trait Saved: BreadcrumbStore + Clone + 'static {
    /// Returns the store's events, for the named consumer if a name is given.
    fn events(&self, consumer: Option<&str>) -> Box<dyn EventSource>;

    /// Moves the store's clock ahead.
    fn advance_clock(&self, time: Duration);
}

/// Returns the files of `tests/fixtures/` with a prefix and an extension, with their schema versions, oldest first.
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

/// Returns the path of a schema version's fixture if `UX_WRITE_FIXTURES` is set and the file is missing. An existing fixture is never
/// replaced, because it must contain the data that its version of the crate wrote.
pub(crate) fn missing_file(name: &str) -> Option<PathBuf> {
    std::env::var_os("UX_WRITE_FIXTURES")?;
    let path = folder().join(name);
    (!path.exists()).then_some(path)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Sets the store's clock to a time after the current time.
fn set_clock(store: &impl Saved, time: Duration) {
    let wall = UNIX_EPOCH.elapsed().unwrap();
    store.advance_clock(time.checked_sub(wall).unwrap());
}

async fn runs(store: &impl Saved) -> Vec<Run> {
    let ledger = store.ledger().unwrap();
    ledger.runs(&RunFilter::all()).await.unwrap()
}

/// Returns the number of an executor's runs in a state.
async fn count(store: &impl Saved, executor: &str, state: RunState) -> usize {
    let filter = RunFilter::all().executor(executor).state(state);
    store.ledger().unwrap().runs(&filter).await.unwrap().len()
}

/// Reads the store repeatedly until a condition holds. Events are not enough, because not every change has an event.
async fn until(store: &impl Saved, holds: impl AsyncFn() -> bool) {
    let waits = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(PATIENCE, waits).await.is_err() {
        panic!("not all runs ended in time: {:#?}", runs(store).await);
    }
}

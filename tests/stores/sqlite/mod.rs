//! The SQLite store: the promises of every store, and tests of its additional features.
mod alike;
mod backup;
mod claims;
#[cfg(unix)]
mod damage;
mod events;
mod files;
mod inbox;
mod json;
mod limits;
mod processes;
mod read_only;
mod reopen;
mod runtime;
#[cfg(feature = "workflows")]
mod saved_states;
mod shared;
mod source;
mod torn;
#[cfg(unix)]
mod wake_ups;

use crate::wrappers::watched;
use crate::{clock_jumps, ledger_model, one_store, request_keys, search_model, start_stop};
use futures::StreamExt as _;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use universal_executor::source::Deliveries;
use universal_executor::store::conformance::{StoreUnderTest, WordCounts, unchecked};
use universal_executor::store::embedding::EmbeddingConfig;
use universal_executor::store::{Durability, SqliteBuilder};
use universal_executor::{BreadcrumbStoreExt as _, EventSource, NewBreadcrumb, SqliteStore};

/// A folder that is deleted on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("universal-executor-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("store.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A thread may still be closing the file. In that case, files remain in the folder for temporary files.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Waits for an expected event with a time limit, so that a broken store does not block the test.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, future).await.unwrap()
}

/// Checks that commits through one handle wake a subscriber of another handle, which has one reader. Other causes that wake the
/// subscriber, such as its registration, occur only once, so they cannot explain three events.
pub(crate) async fn wakes(writer: &SqliteStore, reader: &SqliteStore, events: &mut Deliveries) {
    for _ in 0..3 {
        let mut next = std::pin::pin!(events.next());
        assert!(futures::poll!(&mut next).is_pending());
        // The subscriber's read came before this one and found no event, so the subscriber waits.
        assert_eq!(reader.latest("nothing.v1").await.unwrap(), None);
        assert!(futures::poll!(&mut next).is_pending());

        let note = NewBreadcrumb::new("note.v1");
        let written = writer.create(note).await.unwrap().id;

        let heard = soon(next).await.unwrap().unwrap();
        assert_eq!(heard.event.breadcrumb_id, written);
    }
}

/// Opens a file without waiting for the disk, because no test interrupts its power.
pub(crate) fn quick(path: &Path) -> SqliteBuilder {
    SqliteStore::builder(path).durability(Durability::Normal)
}

/// Creates fresh files whose clock is moved by tests.
pub(crate) struct File {
    folder: Folder,
    opened: std::sync::Mutex<Vec<SqliteStore>>,
    config: Option<EmbeddingConfig>,
}

impl File {
    fn with_embeddings() -> Self {
        Self {
            config: Some(EmbeddingConfig::new(WordCounts)),
            ..Self::default()
        }
    }
}

impl Default for File {
    fn default() -> Self {
        Self {
            folder: Folder::new(),
            opened: std::sync::Mutex::default(),
            config: None,
        }
    }
}

/// Creates files whose clock advances only on request.
#[derive(Default)]
struct Held(File);

impl StoreUnderTest for Held {
    type Store = SqliteStore;

    async fn fresh(&self) -> SqliteStore {
        let store = self.0.fresh().await;
        store.hold_clock();
        store
    }

    async fn in_tenant(&self, store: &SqliteStore, tenant: &str) -> Option<SqliteStore> {
        self.0.in_tenant(store, tenant).await
    }

    fn events(&self, store: &SqliteStore) -> Option<Box<dyn EventSource>> {
        self.0.events(store)
    }

    async fn advance_clock(&self, duration: Duration) {
        self.0.advance_clock(duration).await;
    }
}

impl StoreUnderTest for File {
    type Store = SqliteStore;

    async fn fresh(&self) -> SqliteStore {
        let number = self.opened.lock().unwrap().len();
        let path = self.folder.0.join(format!("{number}.db"));
        let mut builder = quick(&path);
        if let Some(config) = &self.config {
            builder = builder.embeddings(config.clone());
        }
        let store = builder.open().await.unwrap();
        self.opened.lock().unwrap().push(store.clone());
        store
    }

    async fn in_tenant(&self, store: &SqliteStore, tenant: &str) -> Option<SqliteStore> {
        Some(store.in_tenant(tenant))
    }

    fn events(&self, store: &SqliteStore) -> Option<Box<dyn EventSource>> {
        Some(Box::new(store.events()))
    }

    async fn advance_clock(&self, duration: Duration) {
        for store in self.opened.lock().unwrap().iter() {
            store.advance_clock(duration);
        }
    }
}

#[tokio::test]
async fn old_keys_of_requests_without_a_run_are_deleted() {
    request_keys::old_keys_without_a_run_are_deleted(&Held::default()).await;
}

#[tokio::test]
async fn after_the_clock_was_set_back_ready_runs_are_claimed() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    clock_jumps::ready_runs_stay_ready(&store, |by| store.move_clock(by)).await;
}

#[tokio::test]
async fn after_the_clock_was_set_back_leases_are_held_and_expire() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let pass = async |by| store.advance_clock(by);
    clock_jumps::leases_are_held_and_expire(&store, |by| store.move_clock(by), pass).await;
}

#[tokio::test]
async fn after_the_clock_was_set_back_commits_stay_in_order() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    clock_jumps::commits_stay_in_order(&store, |by| store.move_clock(by)).await;
}

#[tokio::test]
async fn after_the_clock_jumped_ahead_records_of_workers_stay() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let pass = async |by| store.advance_clock(by);
    clock_jumps::records_of_workers_stay(&store, |by| store.move_clock(by), pass).await;
}

#[tokio::test]
async fn a_clock_that_was_far_ahead_is_followed_back() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let pass = async |by| store.advance_clock(by);
    clock_jumps::large_set_backs_are_followed(&store, |by| store.move_clock(by), pass).await;
}

#[test]
fn the_ledger_behaves_like_its_model() {
    ledger_model::the_ledger_behaves_like_its_model::<Held>(64);
}

#[test]
fn a_search_returns_the_same_breadcrumbs_as_a_full_scan() {
    search_model::a_search_returns_the_same_breadcrumbs_as_a_full_scan::<Held>(32);
}

#[tokio::test]
async fn executors_with_clones_of_a_handle_cost_as_much_as_executors_of_one_handle() {
    let file = File::default();
    let store = file.fresh().await;
    let clone = async || store.clone();
    one_store::executors_cost_as_much_as_on_one_handle(&store, || store.events(), clone).await;
}

#[tokio::test]
async fn executors_that_open_a_file_each_cost_as_much_as_executors_of_one_handle() {
    let folder = Folder::new();
    let path = folder.0.join("one.db");
    let store = quick(&path).unshared().open().await.unwrap();
    let open = async || quick(&path).unshared().open().await.unwrap();
    one_store::executors_cost_as_much_as_on_one_handle(&store, || store.events(), open).await;
}

universal_executor::store_conformance!(sqlite, File::default());

impl start_stop::Restarted for Held {
    fn events_of(store: &SqliteStore, consumer: &str) -> Option<Box<dyn EventSource>> {
        Some(Box::new(store.events_of(consumer)))
    }
}

#[test]
fn however_runtimes_are_started_and_stopped_each_trigger_is_answered_once() {
    start_stop::each_trigger_is_answered_once::<Held>(12);
}

crate::versions::versions!(versions_of_executors, File::default());
crate::client::clients!(clients, File::default());
crate::cancel::cancels!(cancellations, File::default());
crate::deploys::deploys!(rolling_deploys, File, oldest: 10, now: 5);
crate::session::sessions!(sessions, File::default());
universal_executor::store_conformance!(observed, watched::Watched(File::default()));
universal_executor::store_conformance!(without_faults, watched::Faultless(File::default()));
#[tokio::test]
async fn a_store_with_an_embedder_is_checked_for_every_promise() {
    assert_eq!(unchecked(&File::with_embeddings()).await, []);
}

universal_executor::store_conformance!(with_embeddings, File::with_embeddings());

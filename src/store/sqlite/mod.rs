mod acknowledged;
mod builder;
mod cache;
mod column;
mod connection;
mod cursor;
mod database;
mod error;
mod events;
mod guard;
mod inbox;
mod job;
mod ledger;
mod list;
mod listen;
mod log;
mod opened;
mod paused;
mod positions;
mod progress;
mod queue;
mod readers;
mod registry;
mod requests;
mod retention;
mod row;
mod runs;
mod schema;
mod search;
mod sockets;
mod stage;
mod stats;
mod sweep;
mod table;
mod tenant;
mod turns;
mod vectors;
mod wake_ups;
mod workers;
mod writer;

pub use builder::{Durability, SqliteBuilder, SqliteLimits};
pub use error::SqliteError;
pub use stats::SqliteStats;

use super::embedding::{self, Keeper, Made, Page, Vectors};
use super::{
    BreadcrumbStore, Capabilities, Commit, Committed, Query, RunLedger, Scored, StoreError,
    StoreId, VectorQuery, canonical, wake,
};
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::source::EventSource;
use async_trait::async_trait;
use builder::Settings;
use error::Fault;
use log::SqliteEvents;
use opened::Opened;
use rusqlite::Connection;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use table::Found;
use tenant::Writing;
use vectors::VectorSearch;

const NAME: &str = "SqliteStore";

/// A store in one file: the whole contract, and kept when the process ends, however it ends.
///
/// A clone is another handle on the same data, [`in_tenant`](Self::in_tenant) one that is bound to another tenant. Handles that
/// this process opens on the same file share a database, see [`SqliteBuilder::open`]: one thread writes and commits waiting
/// operations together, so many writers at once cost little more than one; a few threads read. They end when the last
/// handle, with its subscriptions, is dropped.
///
/// `docs/from-memory-to-sqlite.md` in the repository is about moving here from a store in memory: backups, limits, what to
/// do about each error.
///
/// # Several processes
/// They may open one file on one machine: a run is claimed once, and a commit wakes the subscribers of the other processes within
/// milliseconds, see [`SqliteBuilder::poll_every`]. Their writers take turns, see [`SqliteBuilder::busy_timeout`]. On a network file
/// system SQLite does not work.
///
/// # Time
/// The clock is the wall clock of the machine. Every commit of a tenant gets a later time than the one before, also
/// after the clock was set back; leases and times to wait for go by the clock as it is. One that is set ahead lets
/// leases run out early, and a run may be executed twice; it is answered once.
///
/// # What it survives
/// The end of the process at any moment: a commit is there in full or not at all, and one that was answered is there.
/// With [`Durability::Full`], the default, the same holds for the end of the machine.
///
/// # Limits
/// See [`SqliteLimits`]. Old versions are not kept; an event that comes again after its run was forgotten runs again.
/// The events of a version that was replaced since come without the context. The file does not shrink: what is forgotten
/// makes room for what comes.
///
/// ```
/// use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb, SqliteStore};
///
/// # let folder = std::env::temp_dir().join(format!("universal-executor-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("agents.db");
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = SqliteStore::open(&path).await?;
/// let message = store.create(NewBreadcrumb::new("user.message.v1")).await?;
/// drop(store);
///
/// let store = SqliteStore::open(&path).await?;
/// assert_eq!(store.latest("user.message.v1").await?, Some(message));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct SqliteStore {
    opened: Arc<Opened>,
    tenant: Arc<str>,
    /// The id of the tenant, once it was ever written to: it never changes.
    tenant_id: Arc<OnceLock<i64>>,
    keeper: Option<Arc<Keeper>>,
    id: StoreId,
}

impl SqliteStore {
    /// Opens a file as it is set up by default, or makes it.
    ///
    /// # Errors
    /// See [`SqliteError`].
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, SqliteError> {
        Self::builder(path).open().await
    }

    /// Says how to open a file.
    #[must_use]
    pub fn builder(path: impl Into<PathBuf>) -> SqliteBuilder {
        SqliteBuilder::new(path.into())
    }

    /// A handle on the same store, bound to a tenant.
    #[must_use]
    pub fn in_tenant(&self, tenant: &str) -> Self {
        Self::handle(Arc::clone(&self.opened), tenant.into())
    }

    /// The commits of this tenant as events, by whatever process. A subscriber that falls more than
    /// [`SqliteLimits::events`] behind is told how many it missed.
    #[must_use]
    pub fn events(&self) -> impl EventSource + use<> {
        self.source(None)
    }

    /// The same for a consumer with a name that is remembered: a subscription goes on after the last event up to which
    /// everything is acknowledged, also after a restart. Where a subscription is to begin counts the first time only.
    ///
    /// Acknowledgements are stored with the next transaction, or soon; those that a crash takes come again. One
    /// subscription of a name at a time makes sense.
    #[must_use]
    pub fn events_of(&self, consumer: &str) -> impl EventSource + use<> {
        self.source(Some(consumer.into()))
    }

    /// How much there is, of this tenant and in the file. Counting runs takes longer the more there are.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    pub async fn stats(&self) -> Result<SqliteStats, StoreError> {
        let (tenant, path) = (Arc::clone(&self.tenant), self.opened.database.path.clone());
        let read = move |connection: &Connection, _: &dyn Fn() -> bool| {
            stats::read(connection, &tenant, &path)
        };
        self.opened.database.read(read).await
    }

    /// Waits until everything that was written to this tenant before has a vector, and says of how many breadcrumbs it
    /// found the text to be one that the embedder cannot do: those are not tried again until they change or vectors are
    /// forgotten. A
    /// store without an embedder has nothing to wait for.
    ///
    /// # Errors
    /// If the store is unavailable or the embedder fails.
    pub async fn embedded(&self) -> Result<usize, StoreError> {
        match &self.keeper {
            Some(keeper) => keeper.embedded(self).await,
            None => Ok(0),
        }
    }

    /// Drops this handle, and waits until its clones and their subscriptions are dropped too: forever, if one is never dropped.
    /// Runtimes, executors, supervisors and managers that were made with this store have a clone: drop them before. If no
    /// other handle that this process opened on the file is left, the file is then closed. Otherwise it waits until the last
    /// acknowledgements are stored.
    ///
    /// Nothing depends on it but the last acknowledgements of [`events_of`](Self::events_of): what was committed is in
    /// the file, however the process ends.
    pub async fn close(self) {
        let closed = self.opened.closed();
        drop(self);
        closed.await;
    }

    /// Moves the clock of this open file ahead, so that tests need not wait.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn advance_clock(&self, duration: std::time::Duration) {
        self.opened.time.advance_clock(duration);
    }

    /// Moves the clock of this open file by that many microseconds, so that tests see the effect of a wall clock that jumps.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn move_clock(&self, micros: i64) {
        self.opened.time.jump(micros);
    }

    /// Stops the clock of this open file, so that only [`advance_clock`](Self::advance_clock) moves it.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn hold_clock(&self) {
        self.opened.time.hold();
    }

    /// Limits the file to `pages` more pages than it has, so that tests see the effect of a full disk.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub async fn limit_growth(&self, pages: u32) -> Result<(), StoreError> {
        let limit = move |writing: &mut Writing<'_>| {
            let count: i64 = writing
                .connection
                .query_row("PRAGMA page_count", (), |row| row.get(0))?;
            let limit = format!("PRAGMA max_page_count = {}", count + i64::from(pages));
            writing.connection.query_row(&limit, (), |_| Ok(()))?;
            Ok(())
        };
        self.write(limit).await
    }

    async fn start(path: PathBuf, settings: Settings) -> Result<Self, SqliteError> {
        let opened = Opened::new(&path, settings).await?;
        tracing::info!(
            path = &*opened.database.path.to_string_lossy(),
            "opened the SQLite store"
        );
        Ok(Self::handle(Arc::new(opened), "default".into()))
    }

    fn handle(opened: Arc<Opened>, tenant: Arc<str>) -> Self {
        let keeper = opened.keepers.as_ref();
        let keeper = keeper.map(|keepers| keepers.of(&tenant));
        let id = StoreId::new(Arc::clone(&opened.database.name), Arc::clone(&tenant));
        Self {
            id,
            opened,
            tenant,
            tenant_id: Arc::default(),
            keeper,
        }
    }

    fn source(&self, consumer: Option<Arc<str>>) -> SqliteEvents {
        SqliteEvents {
            opened: Arc::clone(&self.opened),
            tenant: Arc::clone(&self.tenant),
            consumer,
        }
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writing<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.opened.write(&self.tenant, work).await
    }

    /// Reads, if the tenant was ever written to: with its id, at the time by its clock.
    async fn read<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, i64, Timestamp, &dyn Fn() -> bool) -> Result<T, Fault>
        + Send
        + 'static,
    ) -> Result<T, StoreError> {
        let (name, id) = (Arc::clone(&self.tenant), Arc::clone(&self.tenant_id));
        let time = Arc::clone(&self.opened.time);
        let read = move |connection: &Connection, is_wanted: &dyn Fn() -> bool| {
            let id = match id.get() {
                Some(id) => *id,
                None => match tenant::find(connection, &name)? {
                    Some(found) => *id.get_or_init(|| found.id),
                    None => return Ok(T::default()),
                },
            };
            let latest = tenant::latest(connection, id)?;
            work(connection, id, tenant::shown(time.now(), latest), is_wanted)
        };
        self.opened.database.read(read).await
    }
}

impl Clone for SqliteStore {
    fn clone(&self) -> Self {
        Self {
            tenant_id: Arc::clone(&self.tenant_id),
            ..self.in_tenant(&self.tenant)
        }
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(NAME)
            .field("path", &self.opened.database.path)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl BreadcrumbStore for SqliteStore {
    fn tenant(&self) -> &str {
        &self.tenant
    }

    fn identity(&self) -> StoreId {
        self.id.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
            .reads_own_writes(true)
            .tombstones(self.opened.limits.tombstones > 0)
            .chosen_author(true)
            .lineage(true)
            .atomic(true)
            .atomic_ends(true)
            .exclusive_updates(true)
            .named_tenants(true)
            .vector_search(self.keeper.is_some())
            .scores(self.keeper.is_some())
            .embeds_updates(self.keeper.is_some())
            .embeds_hinted(self.keeper.is_some())
            .oldest_first(true)
            .keyed_requests(true)
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        let read = move |connection: &Connection, tenant, now, _: &dyn Fn() -> bool| {
            let found = table::find(connection, tenant, id)?;
            let found = Found::living(found, id, now)?;
            Ok(Some(Arc::new(found.breadcrumb)))
        };
        let found = self.read(read).await?;
        found.ok_or(StoreError::NotFound {
            id,
            tombstone: None,
        })
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        query.selector.check().map_err(StoreError::InvalidQuery)?;
        let query = query.clone();
        let read = move |connection: &Connection, tenant, now, is_wanted: &dyn Fn() -> bool| {
            search::search(connection, tenant, &query, now, is_wanted)
        };
        let (found, expired) = self.read(read).await?;
        if expired > retention::MANY_EXPIRED {
            self.opened.sweep(&self.tenant);
        }
        Ok(found)
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        let Some(keeper) = &self.keeper else {
            return Err(StoreError::Unsupported {
                store: NAME,
                operation: "vector search",
            });
        };
        query
            .query
            .selector
            .check()
            .map_err(StoreError::InvalidQuery)?;
        keeper.catch_up(self);
        let config = keeper.config.clone();
        let Some(to) = config.of_query(&query.text).await? else {
            return Ok(Vec::new());
        };
        let (query, cache) = (query.clone(), Arc::clone(&self.opened.database.cache));
        let read = move |connection: &Connection, tenant, now, is_wanted: &dyn Fn() -> bool| {
            let near = VectorSearch {
                query: &query,
                to: &to,
                config: &config,
                cache: &cache,
            };
            vectors::nearest(connection, tenant, &near, now, is_wanted)
        };
        self.read(read).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let limit = self.opened.limits.breadcrumb_bytes;
        let writes = canonical::writes(commit.writes, limit)?;
        let end = canonical::end(commit.end, limit)?;
        let keeping = self.keeper.as_ref();
        let keeping = keeping.map(|keeper| (keeper.begin(), embedding::deleted(&writes)));
        let (committed, has_expired) = self
            .write(move |writing| stage::commit(writing, writes, end))
            .await?;
        if has_expired {
            self.opened.sweep(&self.tenant);
        }
        if let Some((keeping, deleted)) = keeping {
            keeping.committed(self, &committed.written, deleted).await;
        }
        Ok(committed)
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        Some(self)
    }
}

#[async_trait]
impl Vectors for SqliteStore {
    fn reopen(&self) -> impl Fn() -> Option<Self> + Send + Sync + 'static {
        let (opened, tenant) = (Arc::downgrade(&self.opened), Arc::clone(&self.tenant));
        move || Some(Self::handle(opened.upgrade()?, Arc::clone(&tenant)))
    }

    async fn without_vector(&self, after: Timestamp, most: usize) -> Result<Page, StoreError> {
        let read = move |connection: &Connection, tenant, now, _: &dyn Fn() -> bool| {
            vectors::without(connection, tenant, after, most, now).map(Some)
        };
        // A tenant that nothing was ever written to.
        let nothing = Page {
            found: Vec::new(),
            until: after,
            more: false,
        };
        Ok(self.read(read).await?.unwrap_or(nothing))
    }

    async fn put_vectors(&self, made: Vec<Made>) -> Result<(), StoreError> {
        let Some(keeper) = &self.keeper else {
            return Ok(());
        };
        let config = keeper.config.clone();
        self.write(move |writing| vectors::put(writing, &config, &made))
            .await
    }
}

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
mod vectors;
mod wake_ups;
mod workers;
mod writer;
mod writer_queue;

pub use builder::{Durability, SqliteBuilder, SqliteLimits};
pub use error::SqliteError;
pub use stats::SqliteStats;

use super::embedding::{self, BreadcrumbVector, UnembeddedPage, VectorMaintainer, VectorStore};
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
use opened::OpenedStore;
use rusqlite::Connection;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use table::StoredBreadcrumb;
use tenant::TenantTransaction;
use vectors::VectorSearch;

const NAME: &str = "SqliteStore";

/// Store of breadcrumbs, runs and events in one SQLite file, which survives the end of the process.
///
/// Use this for one process, or several processes on one machine. For several machines, use `PostgresStore` (feature `postgres`).
///
/// A clone is another handle on the same data, and [`in_tenant`](Self::in_tenant) returns a handle on another tenant. Handles that this
/// process opens on the same file share a database, see [`SqliteBuilder::open`]. One thread writes, and commits waiting operations
/// together, so many concurrent writers cost little more than one. A few threads read. The threads end when the last handle and the last
/// subscription are dropped.
///
/// `docs/cookbook/sqlite.md` in the repository describes the move from a store in memory, backups, limits and errors.
///
/// # Several processes
/// Several processes on one machine can open the same file. Each run is claimed by one process. A commit wakes the subscribers of the
/// other processes within milliseconds, see [`SqliteBuilder::poll_every`]. The writers take turns, see [`SqliteBuilder::busy_timeout`].
/// SQLite does not support network file systems.
///
/// # Time
/// The store uses the machine's wall clock. Each commit of a tenant has a later time than the previous one. If the wall clock is set back
/// by up to 7 days, the store's clock stands still until the wall clock has reached the old time again. Delayed runs and expired leases
/// wait for that time. If the wall clock is set ahead, leases expire early: a run can execute twice, but is answered once.
///
/// # Durability
/// The store survives a crash of the process at any moment. A commit is visible in full or not at all, and a confirmed commit is stored.
/// With [`Durability::Full`], the default, this also holds for a power loss.
///
/// # Limits
/// See [`SqliteLimits`].
/// - The store retains only the current version of a breadcrumb. Events of replaced versions come without the context.
/// - An event that is delivered again after the store has deleted its run executes again.
/// - The file does not shrink. New rows use the space of deleted rows.
///
/// # Examples
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
    opened: Arc<OpenedStore>,
    tenant: Arc<str>,
    /// Row ID of the handle's tenant in the table `ux_tenants`, unset until the store finds this row. Once set, it never changes.
    tenant_id: Arc<OnceLock<i64>>,
    maintainer: Option<Arc<VectorMaintainer>>,
    id: StoreId,
}

impl SqliteStore {
    /// Opens a SQLite file with the default settings, and creates it if it is missing.
    ///
    /// # Errors
    /// The errors of [`SqliteBuilder::open`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb, SqliteStore};
    ///
    /// # let folder = std::env::temp_dir().join(format!("ux-doc-open-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("agents.db");
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = SqliteStore::open(&path).await?;
    /// let note = store.create(NewBreadcrumb::new("note.v1")).await?;
    ///
    /// // Another handle of this process shares the connections.
    /// let other = SqliteStore::open(&path).await?;
    /// assert_eq!(other.latest("note.v1").await?, Some(note));
    /// # drop((store, other));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, SqliteError> {
        Self::builder(path).open().await
    }

    /// Returns a builder for a SQLite store with other settings than the defaults.
    ///
    /// Call the methods of the builder, then [`open`](SqliteBuilder::open). Nothing is read or
    /// written before.
    #[must_use]
    pub fn builder(path: impl Into<PathBuf>) -> SqliteBuilder {
        SqliteBuilder::new(path.into())
    }

    /// Returns a handle that reads and writes the data of another tenant in the same SQLite file. A tenant needs no registration.
    ///
    /// The handle shares the connections and threads of this one. The name can be any string.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, SqliteStore};
    ///
    /// # let folder = std::env::temp_dir().join(format!("ux-doc-tenant-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("agents.db");
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = SqliteStore::open(&path).await?;
    /// let acme = store.in_tenant("acme");
    /// acme.create(NewBreadcrumb::new("note.v1")).await?;
    ///
    /// assert_eq!((store.tenant(), acme.tenant()), ("default", "acme"));
    /// assert!(store.latest("note.v1").await?.is_none());
    /// # drop((store, acme));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn in_tenant(&self, tenant: &str) -> Self {
        Self::handle(Arc::clone(&self.opened), tenant.into())
    }

    /// Returns an event source over the commits of this tenant, made by any process.
    ///
    /// A subscriber that is more than [`SqliteLimits::events`] events behind receives
    /// [`SourceError::Lagged`](crate::source::SourceError::Lagged) with the number of missed events.
    ///
    /// [`Runtime::on`](crate::Runtime::on) uses this source, so most programs do not call the
    /// method.
    #[must_use]
    pub fn events(&self) -> impl EventSource + use<> {
        self.source(None)
    }

    /// Returns an event source over this tenant's commits that continues at the stored position of a named consumer.
    ///
    /// A subscription continues after the last event up to which all events are acknowledged, even after a restart. The start position of
    /// a subscription has an effect only for a new name. Acknowledgements are stored with the next transaction or shortly after, so a
    /// crash can cause a redelivery. Use one subscription for each name at a time, because a name has one position. A tenant has at most
    /// 1,000 names.
    ///
    /// Use it for a consumer that must see each event across restarts, such as an export.
    /// Acknowledge each delivery with [`Delivery::ack`](crate::Delivery::ack).
    ///
    /// # Examples
    /// ```no_run
    /// use futures::StreamExt;
    /// use universal_executor::source::StartAt;
    /// use universal_executor::{BoxError, EventSource, SqliteStore};
    ///
    /// # async fn example(store: SqliteStore) -> Result<(), BoxError> {
    /// let mut events = store.events_of("export").subscribe(StartAt::Beginning).await?;
    /// while let Some(delivery) = events.next().await {
    ///     let delivery = delivery?;
    ///     println!("{} v{}", delivery.event.breadcrumb_id, delivery.event.version);
    ///     delivery.ack().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn events_of(&self, consumer: &str) -> impl EventSource + use<> {
        self.source(Some(consumer.into()))
    }

    /// Returns the numbers of breadcrumbs, runs and events of this tenant, and the size of the SQLite file.
    ///
    /// Counting runs takes longer the more runs there are.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the file cannot be read now, [`StoreError::Refused`] if it is damaged.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb, SqliteStore};
    ///
    /// # let folder = std::env::temp_dir().join(format!("ux-doc-stats-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("agents.db");
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = SqliteStore::open(&path).await?;
    /// store.create(NewBreadcrumb::new("note.v1")).await?;
    ///
    /// let stats = store.stats().await?;
    /// assert_eq!((stats.breadcrumbs, stats.events), (1, 1));
    /// assert!(stats.runs.is_empty() && stats.file_bytes + stats.wal_bytes > 0);
    /// # drop(store);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn stats(&self) -> Result<SqliteStats, StoreError> {
        let (tenant, path) = (Arc::clone(&self.tenant), self.opened.database.path.clone());
        let read = move |connection: &Connection, _: &dyn Fn() -> bool| {
            stats::read(connection, &tenant, &path)
        };
        self.opened.database.read(read).await
    }

    /// Waits until all breadcrumbs that were written in this tenant before the call have a vector. Returns the number of breadcrumbs
    /// whose text the embedder rejected during this call.
    ///
    /// The store embeds a rejected text again only after the breadcrumb has changed or the vectors were deleted. Without an embedder, the
    /// call returns 0 at once.
    ///
    /// # Errors
    /// [`StoreError::Embedding`] if the embedder fails, [`StoreError::Unavailable`] if the file cannot be used now. Vectors that were
    /// stored before the failure remain.
    ///
    /// # Cancel safety
    /// If the future is dropped, the vectors that were stored until then remain. The next use of
    /// the tenant embeds the rest in the background.
    ///
    /// # Examples
    /// ```no_run
    /// use universal_executor::store::embedding::{Embedder, EmbeddingConfig};
    /// use universal_executor::store::{Query, VectorQuery};
    /// use universal_executor::{BoxError, BreadcrumbStore, Selector, SqliteStore};
    ///
    /// # async fn example(embedder: impl Embedder) -> Result<(), BoxError> {
    /// let config = EmbeddingConfig::new(embedder);
    /// let store = SqliteStore::builder("agents.db").embeddings(config).open().await?;
    /// let rejected = store.embedded().await?;
    /// println!("{rejected} breadcrumbs have no vector");
    ///
    /// let notes = Query::new(Selector::schema("note.v1")).limit(3);
    /// for found in store.vector_search(&VectorQuery::new(notes, "delivery times")).await? {
    ///     println!("{:?} {}", found.score, found.breadcrumb.title);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn embedded(&self) -> Result<usize, StoreError> {
        match &self.maintainer {
            Some(maintainer) => maintainer.embedded(self).await,
            None => Ok(0),
        }
    }

    /// Drops this handle of the store, and waits until its clones and their subscriptions are dropped too. If another handle of this
    /// process has the file open, the call then waits until the last acknowledgements are stored. Otherwise it waits until the file is
    /// closed.
    ///
    /// The call never returns while a clone exists. Runtimes, executors, supervisors and managers that were created with this store have a
    /// clone: drop them first.
    ///
    /// The wait only ensures that the last acknowledgements of [`events_of`](Self::events_of) are stored. Confirmed commits are in the
    /// file, however the process ends.
    ///
    /// # Cancel safety
    /// If the future is dropped, the handle is dropped too, and only the wait ends.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb, SqliteStore};
    ///
    /// # let folder = std::env::temp_dir().join(format!("ux-doc-close-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("agents.db");
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = SqliteStore::open(&path).await?;
    /// let clone = store.clone();
    /// clone.create(NewBreadcrumb::new("note.v1")).await?;
    ///
    /// drop(clone); // `close` would wait for it
    /// store.close().await;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn close(self) {
        let closed = self.opened.closed();
        drop(self);
        closed.await;
    }

    /// Moves the store clock of this open SQLite file ahead, so that tests need not wait.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn advance_clock(&self, duration: std::time::Duration) {
        self.opened.time.advance_clock(duration);
    }

    /// Moves the store clock of this open SQLite file by a number of microseconds, so that tests see the effect of a wall clock that jumps.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn move_clock(&self, micros: i64) {
        self.opened.time.jump(micros);
    }

    /// Stops the store clock of this open SQLite file, so that only [`advance_clock`](Self::advance_clock) moves it.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn hold_clock(&self) {
        self.opened.time.hold();
    }

    /// Limits the SQLite file to `pages` more pages than it has, so that tests see the effect of a full disk.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub async fn limit_growth(&self, pages: u32) -> Result<(), StoreError> {
        let limit = move |transaction: &mut TenantTransaction<'_>| {
            let count: i64 = transaction
                .connection
                .query_row("PRAGMA page_count", (), |row| row.get(0))?;
            let limit = format!("PRAGMA max_page_count = {}", count + i64::from(pages));
            transaction.connection.query_row(&limit, (), |_| Ok(()))?;
            Ok(())
        };
        self.write(limit).await
    }

    async fn start(path: PathBuf, settings: Settings) -> Result<Self, SqliteError> {
        let opened = OpenedStore::new(&path, settings).await?;
        tracing::info!(
            path = &*opened.database.path.to_string_lossy(),
            "opened the SQLite store"
        );
        Ok(Self::handle(Arc::new(opened), "default".into()))
    }

    fn handle(opened: Arc<OpenedStore>, tenant: Arc<str>) -> Self {
        let maintainer = opened.maintainers.as_ref();
        let maintainer = maintainer.map(|maintainers| maintainers.of(&tenant));
        let id = StoreId::new(Arc::clone(&opened.database.name), Arc::clone(&tenant));
        Self {
            id,
            opened,
            tenant,
            tenant_id: Arc::default(),
            maintainer,
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
        work: impl FnOnce(&mut TenantTransaction<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.opened.write(&self.tenant, work).await
    }

    /// Runs a read operation on the SQLite file, and passes it the tenant ID and the time of the store's clock. Returns the
    /// default value if the tenant has no row.
    async fn read<T: Default + Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, i64, Timestamp, &dyn Fn() -> bool) -> Result<T, Fault>
        + Send
        + 'static,
    ) -> Result<T, StoreError> {
        let (name, id) = (Arc::clone(&self.tenant), Arc::clone(&self.tenant_id));
        let time = Arc::clone(&self.opened.time);
        let read = move |connection: &Connection, has_caller: &dyn Fn() -> bool| {
            let id = match id.get() {
                Some(id) => *id,
                None => match tenant::find(connection, &name)? {
                    Some(row) => *id.get_or_init(|| row.id),
                    None => return Ok(T::default()),
                },
            };
            let latest = tenant::latest(connection, id)?;
            work(
                connection,
                id,
                tenant::store_time(time.now(), latest),
                has_caller,
            )
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
            .vector_search(self.maintainer.is_some())
            .scores(self.maintainer.is_some())
            .embeds_updates(self.maintainer.is_some())
            .embeds_hinted(self.maintainer.is_some())
            .oldest_first(true)
            .keyed_requests(true)
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        let read = move |connection: &Connection, tenant, now, _: &dyn Fn() -> bool| {
            let stored = table::find(connection, tenant, id)?;
            let stored = StoredBreadcrumb::require_live(stored, id, now)?;
            Ok(Some(Arc::new(stored.breadcrumb)))
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
        let read = move |connection: &Connection, tenant, now, has_caller: &dyn Fn() -> bool| {
            search::search(connection, tenant, &query, now, has_caller)
        };
        let (selected, expired) = self.read(read).await?;
        if expired > retention::MANY_EXPIRED {
            self.opened.sweep(&self.tenant);
        }
        Ok(selected)
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        let Some(maintainer) = &self.maintainer else {
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
        maintainer.catch_up(self);
        let config = maintainer.config.clone();
        let Some(query_vector) = config.of_query(&query.text).await? else {
            return Ok(Vec::new());
        };
        let (query, cache) = (query.clone(), Arc::clone(&self.opened.database.cache));
        let read = move |connection: &Connection, tenant, now, has_caller: &dyn Fn() -> bool| {
            let parameters = VectorSearch {
                query: &query,
                query_vector: &query_vector,
                config: &config,
                cache: &cache,
            };
            vectors::nearest(connection, tenant, &parameters, now, has_caller)
        };
        self.read(read).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let limit = self.opened.limits.breadcrumb_bytes;
        let writes = canonical::writes(commit.writes, limit)?;
        let end = canonical::end(commit.end, limit)?;
        let guard = self.maintainer.as_ref();
        let guard = guard.map(|maintainer| (maintainer.begin(), embedding::deleted(&writes)));
        let (committed, has_expired) = self
            .write(move |transaction| stage::commit(transaction, writes, end))
            .await?;
        if has_expired {
            self.opened.sweep(&self.tenant);
        }
        if let Some((guard, deleted)) = guard {
            guard.committed(self, &committed.written, deleted).await;
        }
        Ok(committed)
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        Some(self)
    }
}

#[async_trait]
impl VectorStore for SqliteStore {
    fn reopen(&self) -> impl Fn() -> Option<Self> + Send + Sync + 'static {
        let (opened, tenant) = (Arc::downgrade(&self.opened), Arc::clone(&self.tenant));
        move || Some(Self::handle(opened.upgrade()?, Arc::clone(&tenant)))
    }

    async fn without_vector(
        &self,
        after: Timestamp,
        most: usize,
    ) -> Result<UnembeddedPage, StoreError> {
        let read = move |connection: &Connection, tenant, now, _: &dyn Fn() -> bool| {
            vectors::without(connection, tenant, after, most, now).map(Some)
        };
        // The tenant has no row yet.
        let nothing = UnembeddedPage {
            found: Vec::new(),
            until: after,
            more: false,
        };
        Ok(self.read(read).await?.unwrap_or(nothing))
    }

    async fn put_vectors(&self, made: Vec<BreadcrumbVector>) -> Result<(), StoreError> {
        let Some(maintainer) = &self.maintainer else {
            return Ok(());
        };
        let config = maintainer.config.clone();
        self.write(move |transaction| vectors::put(transaction, &config, &made))
            .await
    }
}

mod begin;
mod builder;
mod changes;
mod claim;
mod column;
mod commit_position;
mod connection;
mod connections;
mod cursor;
mod database;
mod end;
mod error;
mod events;
mod facts;
mod history;
mod inbox;
mod job;
mod lease;
mod ledger;
mod list;
mod listen;
mod log;
mod lookup;
mod notifying;
mod outcome;
mod paused;
mod pgvector;
mod positions;
mod prepared;
mod progress;
mod queue;
mod read;
mod recent;
mod request_keys;
mod requests;
mod resolve;
mod retention;
mod round_trip;
mod row;
mod runs;
mod schema;
mod search;
mod session;
mod stage;
mod statement;
mod stats;
mod sweep;
mod table;
mod task;
mod tenant;
mod transaction;
mod vector_search;
mod vectors;
mod workers;
mod writer;

pub use builder::{PostgresBuilder, PostgresLimits};
pub use error::PostgresError;
pub use stats::PostgresStats;

use super::embedding::{self, BreadcrumbVector, UnembeddedPage, VectorMaintainer, VectorStore};
use super::{
    BreadcrumbStore, Capabilities, Commit, Committed, Query, RunLedger, Scored, StoreError,
    StoreId, VectorQuery, canonical, wake,
};
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::source::EventSource;
use async_trait::async_trait;
use builder::Settings;
use database::Database;
use job::Job;
use log::PostgresEvents;
use pgvector::{CreateIndex, Pgvector};
use search::Search;
use stage::Stage;
use stats::StatsQuery;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use table::GetBreadcrumb;
use tenant::TenantHandle;
use vector_search::VectorSearch;
use vectors::{MissingVectors, PutVectors};

const NAME: &str = "PostgresStore";

/// Store of breadcrumbs, runs and events in PostgreSQL, shared by any number of processes on any number of machines.
///
/// Use this if workers run on several machines. For one machine, `SqliteStore` (feature `sqlite`) needs no server.
///
/// A clone is another handle on the same data, and [`in_tenant`](Self::in_tenant) returns a handle on another tenant. All handles
/// share a pool of connections. Each write runs in a background task and is completed or rolled back, even if the caller drops its
/// future. The connections close when the last handle and the last subscription are dropped. The store needs a tokio runtime with
/// I/O and time enabled.
///
/// # Several processes
/// Each run is claimed by one process. A process learns of the commits of others by `NOTIFY`, or else by polling, see
/// [`PostgresBuilder::poll_every`]. Several processes can start at the same time. If a newer version of this crate migrates the
/// tables, running processes of an older version continue, but can no longer be started.
///
/// # Time
/// All processes use the server's clock. Each commit of a tenant has a later time than the previous one. If the server's clock is set
/// back by up to 7 days, the store's clock stands still until the server's clock has reached the old time again. Delayed runs and
/// expired leases wait for that time.
///
/// # Durability
/// The store survives a crash of any process, and of the server, at any moment. A commit is visible in full or not at all. A confirmed
/// commit is durable if the server has `fsync` and `synchronous_commit` on. A read can return a commit before it is confirmed. A crash of
/// the server within that time, usually milliseconds, undoes the commit.
///
/// If the connection is lost during a commit, the store asks the server for the outcome. If the server does not answer, or has crashed
/// since, the commit fails with [`StoreError::Unavailable`] and its outcome is unknown. For a commit that ends a run, the run's lease
/// then shows whether the commit is stored.
///
/// # Throughput
/// A commit takes two round trips to the server. Commits, new runs and claims of single runs that wait in one process are
/// committed together. Between processes, the commits of one tenant follow one another only while the server executes their last
/// statement, not for a round trip or a disk write. Claims of due runs, heartbeats and reads do not wait for commits. Tenants
/// share no lock.
///
/// # Limits
/// See [`PostgresLimits`].
/// - The store retains only the current version of a breadcrumb. Events of replaced versions come without the context.
/// - An event that is delivered again after the store has deleted its run executes again.
/// - PostgreSQL 14 or later is required, and an extension only for [vector search](PostgresBuilder::embeddings).
/// - A connection pooler must pool sessions, not transactions.
///
/// # Vector search
/// Needs the extension `vector` (pgvector) on the server, and an [embedder](PostgresBuilder::embeddings). The search is exact: it compares
/// all breadcrumbs that the selector matches, with the same scores and order as the other stores. With
/// [`index_vectors`](Self::index_vectors) it is faster on large tables, and may miss some of the nearest breadcrumbs.
///
/// # Examples
///
/// ```no_run
/// use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb, PostgresStore};
///
/// # async fn example() -> Result<(), universal_executor::BoxError> {
/// let store = PostgresStore::connect("postgres://agents:secret@db.internal/agents?sslmode=verify-full").await?;
/// let message = store.create(NewBreadcrumb::new("user.message.v1")).await?;
///
/// assert_eq!(store.latest("user.message.v1").await?, Some(message));
/// # Ok(())
/// # }
/// ```
pub struct PostgresStore {
    database: Arc<Database>,
    tenant: Arc<TenantHandle>,
    maintainer: Option<Arc<VectorMaintainer>>,
    id: StoreId,
}

impl PostgresStore {
    /// Connects to a PostgreSQL database with the default settings, and creates the store's missing tables.
    ///
    /// The connection string has the form `postgres://user:password@host:port/database`, optionally with parameters such as
    /// `?sslmode=verify-full&sslrootcert=..`. Without `sslmode`, the store uses TLS if the server offers it, and does not verify the
    /// server's certificate.
    ///
    /// For a service outside of the server's machine, add `sslmode=verify-full`, so that the store
    /// verifies the server's certificate.
    ///
    /// # Errors
    /// The errors of [`PostgresBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, PostgresError> {
        Self::builder(url).connect().await
    }

    /// Returns a builder for a PostgreSQL store with other settings than the defaults.
    ///
    /// Call the methods of the builder, then [`connect`](PostgresBuilder::connect). No connection
    /// is opened before.
    #[must_use]
    pub fn builder(url: impl Into<String>) -> PostgresBuilder {
        PostgresBuilder::new(url.into())
    }

    /// Returns a handle on the same store, bound to the tenant with this name. A tenant needs no registration.
    ///
    /// The handle shares the connections of this one. The name can be any string.
    ///
    /// # Examples
    /// ```no_run
    /// use universal_executor::{BoxError, BreadcrumbStoreExt, NewBreadcrumb, PostgresStore};
    ///
    /// # async fn example(store: PostgresStore) -> Result<(), BoxError> {
    /// let acme = store.in_tenant("acme");
    /// acme.create(NewBreadcrumb::new("note.v1")).await?;
    /// assert!(store.latest("note.v1").await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn in_tenant(&self, tenant: &str) -> Self {
        let handle = TenantHandle::new(tenant, self.database.recent.of(tenant));
        Self::handle(Arc::clone(&self.database), Arc::new(handle))
    }

    /// Returns an event source over the commits of this tenant, made by any process.
    ///
    /// A subscriber that is more than [`PostgresLimits::events`] events behind receives
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
    /// a subscription has an effect only for a new name. Acknowledgements are stored with a short delay, so a crash can cause a
    /// redelivery. Use one subscription for each name at a time, because a name has one position. A tenant has at most 1,000 names.
    ///
    /// Use it for a consumer that must see each event across restarts, such as an export.
    /// Acknowledge each delivery with [`Delivery::ack`](crate::Delivery::ack).
    ///
    /// # Examples
    /// ```no_run
    /// use futures::StreamExt;
    /// use universal_executor::source::StartAt;
    /// use universal_executor::{BoxError, EventSource, PostgresStore};
    ///
    /// # async fn example(store: PostgresStore) -> Result<(), BoxError> {
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

    /// Returns the numbers of breadcrumbs, runs and events of this tenant, and the total size of the store's tables for all
    /// tenants.
    ///
    /// Counting runs takes longer the more runs there are.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the server does not answer.
    ///
    /// # Examples
    /// ```no_run
    /// use universal_executor::PostgresStore;
    /// use universal_executor::store::RunState;
    ///
    /// # async fn example(store: PostgresStore) -> Result<(), universal_executor::BoxError> {
    /// let stats = store.stats().await?;
    /// let failed = stats.runs.get(&RunState::Failed).copied().unwrap_or(0);
    /// println!("{} breadcrumbs, {failed} failed runs, {} bytes", stats.breadcrumbs, stats.bytes);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn stats(&self) -> Result<PostgresStats, StoreError> {
        self.database.read(StatsQuery(&self.tenant.name)).await
    }

    /// Returns `true` if the store's PostgreSQL schema has tables for vectors. The tables exist if the extension `vector` (pgvector)
    /// existed, or if the store was able to create the extension. A store uses the tables only with an
    /// [embedder](PostgresBuilder::embeddings).
    #[must_use]
    pub fn has_vectors(&self) -> bool {
        self.database.pgvector.is_some()
    }

    /// Waits until all breadcrumbs that were written in this tenant before the call have a vector. Returns the number of breadcrumbs
    /// whose text the embedder rejected during this call.
    ///
    /// The store embeds a rejected text again only after the breadcrumb has changed or the vectors were deleted. Without an embedder, the
    /// call returns 0 at once.
    ///
    /// # Errors
    /// [`StoreError::Embedding`] if the embedder fails, [`StoreError::Unavailable`] if the server does not answer. Vectors that were
    /// stored before the failure remain.
    ///
    /// # Cancel safety
    /// If the future is dropped, the vectors that were stored until then remain. The next use of
    /// the tenant embeds the rest in the background.
    pub async fn embedded(&self) -> Result<usize, StoreError> {
        match &self.maintainer {
            Some(maintainer) => maintainer.embedded(self).await,
            None => Ok(0),
        }
    }

    /// Creates an index (HNSW, cosine distance) for the vectors of all tenants, unless it exists. This store then searches with the index,
    /// and so do stores that connect later. Reads and writes continue meanwhile.
    ///
    /// Searches with the index are approximate: they can miss some of the nearest breadcrumbs, but never return a breadcrumb that the
    /// selector does not match. If the index yields too few results, the search is repeated without it.
    ///
    /// The creation takes minutes for 100,000 vectors, and less if the server's `maintenance_work_mem` is large enough for the vectors.
    /// `DROP INDEX ux_embeddings_near_<dimensions>` removes the index.
    ///
    /// Use it for large tables, where exact searches are too slow. Call it once for each number of
    /// dimensions.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] without an embedder, [`StoreError::Forbidden`] if the embedder has more than 2,000 dimensions,
    /// [`StoreError::Unavailable`] if the server does not answer.
    ///
    /// # Cancel safety
    /// Dropping the future closes its connection. The server may complete the index, or leave an invalid one, which the next call replaces.
    ///
    /// # Examples
    /// ```no_run
    /// use universal_executor::store::embedding::{Embedder, EmbeddingConfig};
    /// use universal_executor::{BoxError, PostgresStore};
    ///
    /// # async fn example(embedder: impl Embedder) -> Result<(), BoxError> {
    /// let store = PostgresStore::builder("postgres://db.internal/agents?sslmode=verify-full")
    ///     .embeddings(EmbeddingConfig::new(embedder))
    ///     .connect()
    ///     .await?;
    /// store.embedded().await?;
    /// store.index_vectors().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn index_vectors(&self) -> Result<(), StoreError> {
        let (config, pgvector) = self
            .vector_search_parts()
            .ok_or_else(pgvector::unsupported)?;
        let dimensions = config.config.dimensions();
        let index = CreateIndex {
            pgvector,
            dimensions,
        };
        self.database.read(index).await?;
        self.database.is_indexed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Drops this handle of the store, and waits until all other handles and subscriptions are dropped and all connections are closed.
    ///
    /// The wait only ensures that the last acknowledgements of [`events_of`](Self::events_of) are stored. Confirmed commits are in the
    /// database, however the process ends.
    ///
    /// # Cancel safety
    /// If the future is dropped, the handle is dropped too, and only the wait ends.
    pub async fn close(self) {
        let closed = self.database.closed();
        drop(self);
        closed.await;
    }

    /// Moves the clock of this store ahead, so that tests need not wait.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn advance_clock(&self, duration: std::time::Duration) {
        self.database.time.advance_clock(duration);
    }

    /// Moves the clock of this store by a number of microseconds, so that tests see the effect of a wall clock that jumps.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn move_clock(&self, micros: i64) {
        self.database.time.jump(micros);
    }

    /// Stops the clock of this store, so that only [`advance_clock`](Self::advance_clock) moves it.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn hold_clock(&self) {
        self.database.time.hold();
    }

    async fn start(url: &str, settings: Settings) -> Result<Self, PostgresError> {
        let database = Arc::new(Database::connect(url, settings).await?);
        let tenant = "default";
        let handle = TenantHandle::new(tenant, database.recent.of(tenant));
        Ok(Self::handle(database, Arc::new(handle)))
    }

    fn handle(database: Arc<Database>, tenant: Arc<TenantHandle>) -> Self {
        let maintainer = database.maintainers.as_ref();
        let maintainer = maintainer.map(|maintainers| maintainers.of(&tenant.name));
        let id = StoreId::new(Arc::clone(&database.name), Arc::clone(&tenant.name));
        Self {
            id,
            database,
            tenant,
            maintainer,
        }
    }

    /// Returns the two parts that a vector search needs: the background computation of missing vectors, and the PostgreSQL
    /// extension for vectors. Returns `None` without vector search.
    fn vector_search_parts(&self) -> Option<(&Arc<VectorMaintainer>, &Pgvector)> {
        self.maintainer
            .as_ref()
            .zip(self.database.pgvector.as_ref())
    }

    fn source(&self, consumer: Option<Arc<str>>) -> PostgresEvents {
        PostgresEvents {
            database: Arc::clone(&self.database),
            tenant: Arc::clone(&self.tenant),
            consumer,
            received_announcements: Arc::default(),
            queried_at: Arc::default(),
        }
    }

    async fn write<J: Job>(&self, job: J) -> Result<J::Answer, StoreError> {
        self.database.write(&self.tenant, job).await
    }
}

impl Clone for PostgresStore {
    fn clone(&self) -> Self {
        Self::handle(Arc::clone(&self.database), Arc::clone(&self.tenant))
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(NAME)
            .field("schema", &self.database.settings.schema)
            .field("tenant", &self.tenant.name)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl BreadcrumbStore for PostgresStore {
    fn tenant(&self) -> &str {
        &self.tenant.name
    }

    fn identity(&self) -> StoreId {
        self.id.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
            .reads_own_writes(true)
            .tombstones(self.database.settings.limits.tombstones > 0)
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
        let tenant = &self.tenant;
        self.database
            .read(GetBreadcrumb { tenant, id })
            .await
            .map(Arc::new)
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        query.selector.check().map_err(StoreError::InvalidQuery)?;
        let search = Search {
            tenant: &self.tenant,
            query,
            connections: &self.database.connections,
        };
        let (selected, expired) = self.database.read(search).await?;
        if expired > retention::MANY_EXPIRED {
            sweep::sweep(&self.database, &self.tenant);
        }
        Ok(selected)
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        let (maintainer, pgvector) = self
            .vector_search_parts()
            .ok_or_else(pgvector::unsupported)?;
        let selector = &query.query.selector;
        selector.check().map_err(StoreError::InvalidQuery)?;
        maintainer.catch_up(self);
        let config = &maintainer.config;
        let Some(query_vector) = config.of_query(&query.text).await? else {
            return Ok(Vec::new());
        };
        let search = VectorSearch {
            tenant: &self.tenant,
            query,
            query_vector: &query_vector,
            config,
            pgvector,
            is_indexed: self.database.is_indexed.load(Ordering::Relaxed),
        };
        self.database.read(search).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let limit = self.database.settings.limits.breadcrumb_bytes;
        let writes = canonical::writes(commit.writes, limit)?;
        let end = canonical::end(commit.end, limit)?;
        let guard = self.maintainer.as_ref();
        let guard = guard.map(|maintainer| (maintainer.begin(), embedding::deleted(&writes)));
        let stage = Stage { writes, end };
        let (committed, has_expired) = self.write(stage).await?;
        if has_expired {
            sweep::sweep(&self.database, &self.tenant);
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
impl VectorStore for PostgresStore {
    fn reopen(&self) -> impl Fn() -> Option<Self> + Send + Sync + 'static {
        let (database, tenant) = (Arc::downgrade(&self.database), Arc::clone(&self.tenant));
        move || Some(Self::handle(database.upgrade()?, Arc::clone(&tenant)))
    }

    async fn without_vector(
        &self,
        after: Timestamp,
        most: usize,
    ) -> Result<UnembeddedPage, StoreError> {
        let (maintainer, _) = self
            .vector_search_parts()
            .ok_or_else(pgvector::unsupported)?;
        let without = MissingVectors {
            tenant: &self.tenant,
            model: maintainer.config.model(),
            after,
            most,
        };
        self.database.read(without).await
    }

    async fn put_vectors(&self, made: Vec<BreadcrumbVector>) -> Result<(), StoreError> {
        let (maintainer, pgvector) = self
            .vector_search_parts()
            .ok_or_else(pgvector::unsupported)?;
        let put = PutVectors {
            tenant: Arc::clone(&self.tenant),
            pgvector: pgvector.clone(),
            config: maintainer.config.clone(),
            made,
        };
        self.database.repeat(put).await
    }
}

mod begin;
mod builder;
mod changes;
mod claim;
mod column;
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
mod place;
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
mod vector_search;
mod vectors;
mod workers;
mod writer;
mod writing;

pub use builder::{PostgresBuilder, PostgresLimits};
pub use error::PostgresError;
pub use stats::PostgresStats;

use super::embedding::{self, Keeper, Made, Page, Vectors};
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
use pgvector::{Index, Pgvector};
use search::Search;
use stage::Stage;
use stats::Count;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use table::Get;
use tenant::Named;
use vector_search::VectorSearch;
use vectors::{Put, Without};

const NAME: &str = "PostgresStore";

/// A store in PostgreSQL: the whole contract, shared by as many processes on as many machines as are connected.
///
/// A clone is another handle on the same data, [`in_tenant`](Self::in_tenant) one that is bound to another tenant. What
/// is done goes through a pool of connections, and what changes something through a transaction in a task of its own:
/// it is finished or undone whatever becomes of who asked for it. The connections are closed when the last handle, with
/// its subscriptions, is gone. It needs a runtime of Tokio with I/O and time.
///
/// # Several processes
/// A run is claimed by one of them. Each hears of what the others commit by `NOTIFY`, or when it next looks, every
/// second. They may start at once; a process of an older version of this crate goes on until the tables are changed for
/// a newer one, and cannot be started after that.
///
/// # Time
/// The clock is that of the server, for all. Every commit of a tenant gets a later time than the one before, also after
/// that clock was set back; leases and times to wait for go by it as it is.
///
/// # What it survives
/// The end of a process at any moment, and of the server: a commit is there in full or not at all, and one that was
/// answered is there, if the server has `fsync` and `synchronous_commit` on. A read can return a commit before it is answered, and
/// a crash of the server within that time, usually milliseconds, undoes it. Where the connection is lost in a commit the
/// server is asked what became of it; if it does not say, or may mean another since it crashed, the answer is [`StoreError::Unavailable`], and only the lease
/// of a run tells whether what was written for it was kept.
///
/// # Throughput
/// A commit takes two round trips to the server. Commits, new runs and claims of single runs that wait in one process are
/// committed together. Between processes, the commits of one tenant follow one another only while the server executes their last
/// statement, not for a round trip or a disk write. Claims of due runs, heartbeats and reads do not wait for commits. Tenants
/// share no lock.
///
/// # Limits
/// See [`PostgresLimits`]. Old versions are not kept; an event that comes again after its run was forgotten runs again.
/// The events of a version that was replaced since come without the context. It needs PostgreSQL 14 or later, no
/// extension unless it is to [search by meaning](PostgresBuilder::embeddings), and a pooler between only if that keeps sessions.
///
/// # Search by meaning
/// Needs the extension `vector` (pgvector) on the server, and an [embedder](PostgresBuilder::embeddings). The search is exact: it compares
/// all breadcrumbs that the selector matches, with the same scores and order as the other stores. With
/// [`index_vectors`](Self::index_vectors) it is faster on large tables, and may miss some of the nearest.
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
    tenant: Arc<Named>,
    keeper: Option<Arc<Keeper>>,
    id: StoreId,
}

impl PostgresStore {
    /// Connects to a database as it is set up by default, and makes the tables in it if they are not there.
    ///
    /// The connection string is `postgres://user:password@host:port/database`, and may go on with `?sslmode=verify-full`,
    /// `&sslrootcert=..` and so on: without, TLS is used if the server offers it, whoever it says it is.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, PostgresError> {
        Self::builder(url).connect().await
    }

    /// Says how to connect.
    #[must_use]
    pub fn builder(url: impl Into<String>) -> PostgresBuilder {
        PostgresBuilder::new(url.into())
    }

    /// A handle on the same store, bound to a tenant.
    #[must_use]
    pub fn in_tenant(&self, tenant: &str) -> Self {
        let named = Named::new(tenant, self.database.recent.of(tenant));
        Self::handle(Arc::clone(&self.database), Arc::new(named))
    }

    /// The commits of this tenant as events, by whatever process. A subscriber that falls more than
    /// [`PostgresLimits::events`] behind is told how many it missed.
    #[must_use]
    pub fn events(&self) -> impl EventSource + use<> {
        self.source(None)
    }

    /// The same for a consumer with a name that is remembered: a subscription goes on after the last event up to which
    /// everything is acknowledged, also after a restart. Where a subscription is to begin counts the first time only.
    ///
    /// Acknowledgements are stored soon; those that a crash takes come again. One subscription of a name at a time makes
    /// sense.
    #[must_use]
    pub fn events_of(&self, consumer: &str) -> impl EventSource + use<> {
        self.source(Some(consumer.into()))
    }

    /// How much there is, of this tenant and in the tables. Counting runs takes longer the more there are.
    ///
    /// # Errors
    /// Only if the store is unavailable.
    pub async fn stats(&self) -> Result<PostgresStats, StoreError> {
        self.database.read(Count(&self.tenant.name)).await
    }

    /// Whether there are tables for vectors: the server has the extension `vector` (pgvector), and it was there or could be
    /// made. They are used by a store that has an [embedder](PostgresBuilder::embeddings).
    #[must_use]
    pub fn has_vectors(&self) -> bool {
        self.database.pgvector.is_some()
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

    /// Makes an index (HNSW, cosine) for the vectors of all tenants, unless it is there, and has this store search by it;
    /// stores that are connected later do so as well. Whatever is done meanwhile goes on.
    ///
    /// Searches are approximate from then on: they may miss some of the nearest, and never find what is not selected. A
    /// search of which the index finds fewer than are wanted is done again without it. It takes minutes for 100,000 vectors, and
    /// less if `maintenance_work_mem` of the server has room for them. `DROP INDEX ux_embeddings_near_<dimensions>` undoes it.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] without an embedder, [`StoreError::Forbidden`] if that has more than 2,000 dimensions, else
    /// only if the store is unavailable.
    pub async fn index_vectors(&self) -> Result<(), StoreError> {
        let (config, pgvector) = self.by_meaning().ok_or_else(pgvector::unsupported)?;
        let dimensions = config.config.dimensions();
        let index = Index {
            pgvector,
            dimensions,
        };
        self.database.read(index).await?;
        self.database.is_indexed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Gives this handle back, and waits until all others and their subscriptions are gone too and the connections are
    /// closed.
    ///
    /// Nothing depends on it but the last acknowledgements of [`events_of`](Self::events_of): what was committed is in
    /// the database, however the process ends.
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

    /// Moves the clock of this store by that many microseconds, so that tests see the effect of a wall clock that jumps.
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
        let named = Named::new(tenant, database.recent.of(tenant));
        Ok(Self::handle(database, Arc::new(named)))
    }

    fn handle(database: Arc<Database>, tenant: Arc<Named>) -> Self {
        let keeper = database.keepers.as_ref();
        let keeper = keeper.map(|keepers| keepers.of(&tenant.name));
        let id = StoreId::new(Arc::clone(&database.name), Arc::clone(&tenant.name));
        Self {
            id,
            database,
            tenant,
            keeper,
        }
    }

    /// What it takes to search by meaning.
    fn by_meaning(&self) -> Option<(&Arc<Keeper>, &Pgvector)> {
        self.keeper.as_ref().zip(self.database.pgvector.as_ref())
    }

    fn source(&self, consumer: Option<Arc<str>>) -> PostgresEvents {
        PostgresEvents {
            database: Arc::clone(&self.database),
            tenant: Arc::clone(&self.tenant),
            consumer,
            others: Arc::default(),
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
            .vector_search(self.keeper.is_some())
            .scores(self.keeper.is_some())
            .embeds_updates(self.keeper.is_some())
            .embeds_hinted(self.keeper.is_some())
            .oldest_first(true)
            .keyed_requests(true)
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        let tenant = &self.tenant;
        self.database.read(Get { tenant, id }).await.map(Arc::new)
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        query.selector.check().map_err(StoreError::InvalidQuery)?;
        let search = Search {
            tenant: &self.tenant,
            query,
            connections: &self.database.connections,
        };
        let (found, expired) = self.database.read(search).await?;
        if expired > retention::MANY_EXPIRED {
            sweep::sweep(&self.database, &self.tenant);
        }
        Ok(found)
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        let (keeper, pgvector) = self.by_meaning().ok_or_else(pgvector::unsupported)?;
        let selector = &query.query.selector;
        selector.check().map_err(StoreError::InvalidQuery)?;
        keeper.catch_up(self);
        let config = &keeper.config;
        let Some(to) = config.of_query(&query.text).await? else {
            return Ok(Vec::new());
        };
        let near = VectorSearch {
            tenant: &self.tenant,
            query,
            to: &to,
            config,
            pgvector,
            is_indexed: self.database.is_indexed.load(Ordering::Relaxed),
        };
        self.database.read(near).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let limit = self.database.settings.limits.breadcrumb_bytes;
        let writes = canonical::writes(commit.writes, limit)?;
        let end = canonical::end(commit.end, limit)?;
        let keeping = self.keeper.as_ref();
        let keeping = keeping.map(|keeper| (keeper.begin(), embedding::deleted(&writes)));
        let stage = Stage { writes, end };
        let (committed, has_expired) = self.write(stage).await?;
        if has_expired {
            sweep::sweep(&self.database, &self.tenant);
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
impl Vectors for PostgresStore {
    fn reopen(&self) -> impl Fn() -> Option<Self> + Send + Sync + 'static {
        let (database, tenant) = (Arc::downgrade(&self.database), Arc::clone(&self.tenant));
        move || Some(Self::handle(database.upgrade()?, Arc::clone(&tenant)))
    }

    async fn without_vector(&self, after: Timestamp, most: usize) -> Result<Page, StoreError> {
        let (keeper, _) = self.by_meaning().ok_or_else(pgvector::unsupported)?;
        let without = Without {
            tenant: &self.tenant,
            model: keeper.config.model(),
            after,
            most,
        };
        self.database.read(without).await
    }

    async fn put_vectors(&self, made: Vec<Made>) -> Result<(), StoreError> {
        let (keeper, pgvector) = self.by_meaning().ok_or_else(pgvector::unsupported)?;
        let put = Put {
            tenant: Arc::clone(&self.tenant),
            pgvector: pgvector.clone(),
            config: keeper.config.clone(),
            made,
        };
        self.database.repeat(put).await
    }
}

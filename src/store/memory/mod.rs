mod entry;
mod index;
mod ledger;
mod log;
mod paused;
mod positions;
mod requests;
mod runs;
mod stage;
mod table;
#[cfg(test)]
mod tests;
mod vectors;
mod workers;

use super::embedding::{
    self, BreadcrumbVector, EmbeddingConfig, Nearest, UnembeddedPage, VectorMaintainer,
    VectorMaintainers, VectorStore,
};
use super::row::{OUT_OF_ORDER, Origin};
use super::rules;
use super::tenants::Tenants;
use super::{
    BreadcrumbStore, Capabilities, Commit, Committed, Lease, Lineage, Query, RunEnd, RunLedger,
    RunRef, Scored, StoreError, StoreId, VectorQuery, Write, canonical,
};
use crate::clock::Clock;
use crate::model::{Breadcrumb, BreadcrumbId, Order, Timestamp};
use crate::source::EventSource;
use async_trait::async_trait;
use log::{Log, MemoryEvents};
use positions::Positions;
use requests::Requests;
use runs::Runs;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use table::Table;
use tokio::sync::watch;
use workers::Workers;

/// A [`BreadcrumbStore`] and [`RunLedger`] in memory. All data is lost when the process ends.
///
/// A clone is another handle on the same data. The clock starts at the wall time of the store's creation and then follows tokio's
/// clock, so a test that pauses tokio's time controls leases and update times. Every commit has a later time than the previous
/// one.
///
/// [`MemoryLimits`] bounds the memory. The store retains only the current version of a breadcrumb. By default, it retains the
/// newest 100,000 events, and the newest 100,000 runs that are over. If the event of an older run is delivered again, the run is
/// executed again.
///
/// ```
/// use universal_executor::{BreadcrumbStore, MemoryStore};
///
/// let store = MemoryStore::default();
/// let other = store.in_tenant("acme");
///
/// assert_eq!((store.tenant(), other.tenant()), ("default", "acme"));
/// ```
///
/// Use it for tests, examples and work that may be lost. It needs no server and no feature. For
/// tests that move the clock and run a runtime until it is idle, use `testing::TestStore` (feature
/// `testing`). The store itself starts no task and does no I/O, except with an embedder.
///
/// Tenants of one store are separate:
///
/// ```
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let (acme, clone) = (store.in_tenant("acme"), store.clone());
/// store.create(NewBreadcrumb::new("note.v1")).await?;
///
/// assert!(clone.latest("note.v1").await?.is_some(), "a clone has the same data");
/// assert!(acme.latest("note.v1").await?.is_none());
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    tenant: Arc<Tenant>,
    maintainer: Option<Arc<VectorMaintainer>>,
    id: StoreId,
}

/// Limits of a [`MemoryStore`] for each of its tenants.
///
/// Start with the defaults, change fields, and pass the result to [`MemoryStore::with_limits`].
/// [`StoreError::Full`] permits a retry, because another write can free space.
///
/// ```
/// use universal_executor::store::{MemoryLimits, StoreError};
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let mut limits = MemoryLimits::default();
/// limits.breadcrumbs = 1;
/// let store = MemoryStore::with_limits(limits);
/// store.create(NewBreadcrumb::new("note.v1")).await?;
///
/// let second = store.create(NewBreadcrumb::new("note.v1")).await;
/// assert!(matches!(second, Err(StoreError::Full { limit: 1, .. })));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct MemoryLimits {
    /// Maximum number of breadcrumbs of a tenant. A further one is [`StoreError::Full`]. Defaults to 1,000,000.
    pub breadcrumbs: usize,
    /// Maximum size of one breadcrumb in bytes, see [`Breadcrumb::size`]. A larger one is [`StoreError::Rejected`]. Defaults to 1
    /// MiB.
    pub breadcrumb_bytes: usize,
    /// Maximum size of all breadcrumbs and saved states of runs of a tenant in bytes. A write or a saved state that exceeds it is
    /// [`StoreError::Full`]. A change that reduces the sum succeeds. Defaults to 1 GiB.
    pub bytes: usize,
    /// Maximum number of a tenant's runs that are not over. A further one is [`StoreError::Full`]. Defaults to 1,000,000.
    pub open_runs: usize,
    /// Maximum number of a tenant's runs that are over and remain in the ledger. The store removes the oldest. Defaults to
    /// 100,000.
    ///
    /// If the event of a removed run is delivered again, the run is executed again.
    pub finished_runs: usize,
    /// Maximum number of a tenant's events that subscribers can still read. The store removes the oldest. Defaults to 100,000.
    ///
    /// A subscriber that is further behind receives
    /// [`SourceError::Lagged`](crate::source::SourceError::Lagged).
    pub events: usize,
    /// Maximum size in bytes of the breadcrumbs that a tenant's event log retains, including replaced and deleted versions.
    /// Beyond it, the oldest events are delivered without context, and the runtime reads the breadcrumb from the store. Defaults
    /// to 64 MiB.
    pub event_bytes: usize,
    /// Maximum number of a tenant's tombstones of deleted breadcrumbs. The store removes the oldest. Defaults to 10,000.
    ///
    /// With 0, the store has no tombstones, and deletions trigger no executor.
    pub tombstones: usize,
    /// Maximum size of all tombstones of a tenant in bytes. A tombstone has the last version of a deleted breadcrumb. The store
    /// removes the oldest. Defaults to 64 MiB.
    pub tombstone_bytes: usize,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self {
            breadcrumbs: 1_000_000,
            breadcrumb_bytes: 1 << 20,
            bytes: 1 << 30,
            open_runs: 1_000_000,
            finished_runs: 100_000,
            events: 100_000,
            event_bytes: 64 << 20,
            tombstones: 10_000,
            tombstone_bytes: 64 << 20,
        }
    }
}

struct Shared {
    limits: MemoryLimits,
    /// The background tasks that embed breadcrumbs; `None` for a store without an embedder.
    maintainers: Option<VectorMaintainers>,
    clock: Clock,
    tenants: Tenants<Tenant>,
    /// [`StoreId`] of the store's default tenant. The IDs of the other tenants are derived from this ID.
    id: StoreId,
}

struct Tenant {
    name: String,
    state: RwLock<State>,
    /// The position of the last committed event of the tenant.
    committed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    table: Table,
    runs: Runs,
    log: Log,
    workers: Workers,
    positions: Positions,
    requests: Requests,
    /// The time of the tenant's last commit.
    latest: i64,
}

impl State {
    /// Returns an error if a change makes the total size of the tenant's breadcrumbs and saved states exceed `limit` bytes.
    /// `more` is the growth in bytes, and `less` is the size of other data that the change removes. A change without growth never
    /// fails.
    fn check_bytes(&self, more: isize, less: usize, limit: usize) -> Result<(), StoreError> {
        let before = self.table.bytes() + self.runs.bytes();
        let after = before.saturating_add_signed(more).saturating_sub(less);
        if more > 0 && after > limit {
            return Err(StoreError::Full {
                store: NAME,
                what: "bytes of breadcrumbs and saved states",
                limit,
            });
        }
        Ok(())
    }
}

const NAME: &str = "MemoryStore";

impl MemoryStore {
    /// Creates an empty store in memory with these limits.
    ///
    /// The limits apply to each tenant separately. The store has no vector search.
    #[must_use]
    pub fn with_limits(limits: MemoryLimits) -> Self {
        Self::with(limits, None)
    }

    /// Creates an empty store in memory with these limits, and with vector search by the embedder in `config`. The vectors are in
    /// memory too, with four bytes for each dimension.
    ///
    /// The [`embedding`](super::embedding) module has an example.
    #[must_use]
    pub fn with_embeddings(limits: MemoryLimits, config: EmbeddingConfig) -> Self {
        Self::with(limits, Some(VectorMaintainers::new(config)))
    }

    fn with(limits: MemoryLimits, maintainers: Option<VectorMaintainers>) -> Self {
        let shared = Arc::new(Shared {
            limits,
            maintainers,
            clock: Clock::start(),
            tenants: Tenants::new(),
            id: StoreId::unique("default"),
        });
        Self::handle(shared, "default")
    }

    /// Returns a handle on the same store, bound to the tenant with this name. A tenant without data uses no memory after its last
    /// handle is dropped.
    ///
    /// The name can be any string, and the tenant needs no registration. The result replaces the
    /// tenant of this handle. It does not combine the two names.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{BreadcrumbStore, MemoryStore};
    ///
    /// let acme = MemoryStore::default().in_tenant("acme");
    /// assert_eq!(acme.tenant(), "acme");
    /// assert_eq!(acme.in_tenant("default").tenant(), "default");
    /// assert_eq!(acme.identity(), acme.clone().identity());
    /// assert_ne!(acme.identity(), acme.in_tenant("other").identity());
    /// ```
    #[must_use]
    pub fn in_tenant(&self, tenant: &str) -> Self {
        Self::handle(Arc::clone(&self.shared), tenant)
    }

    /// Returns a source of the events of this tenant's commits. A subscriber that is more than [`MemoryLimits::events`] behind
    /// receives an error with the number of missed events.
    ///
    /// [`Runtime::on`](crate::Runtime::on) uses this source, so most programs do not call the
    /// method. Use it to subscribe outside of a runtime, or with
    /// [`Runtime::on_source`](crate::Runtime::on_source).
    ///
    /// # Examples
    /// ```
    /// use futures::StreamExt;
    /// use universal_executor::source::StartAt;
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, EventKind, EventSource, MemoryStore, NewBreadcrumb,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let note = store.create(NewBreadcrumb::new("note.v1")).await?;
    /// store.delete(note.id).await?;
    ///
    /// // The store retains the events of both commits.
    /// let mut events = store.events().subscribe(StartAt::Beginning).await?;
    /// for kind in [EventKind::Created, EventKind::Deleted] {
    ///     let delivery = events.next().await.ok_or("the stream ended")??;
    ///     assert_eq!(delivery.event.effective_kind(), kind);
    ///     delivery.ack().await?;
    /// }
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn events(&self) -> impl EventSource + use<> {
        MemoryEvents {
            tenant: Arc::clone(&self.tenant),
        }
    }

    /// Waits until all breadcrumbs that were written to this tenant before the call have vectors. Returns the number of
    /// breadcrumbs whose text the embedder rejects. The store retries these only after they change. Returns 0 at once for a store
    /// without an embedder.
    ///
    /// Use it in tests and after an import, before the first search.
    ///
    /// # Errors
    /// [`StoreError::Embedding`] if the embedder fails.
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

    /// Adds whole breadcrumbs to the store with their IDs, versions and times, without publishing events for them. The
    /// breadcrumbs count as written from outside of runs.
    #[cfg(feature = "mock")]
    pub(in crate::store) fn seed(&self, breadcrumbs: impl Iterator<Item = Arc<Breadcrumb>>) {
        let mut state = self.tenant.write();
        for breadcrumb in breadcrumbs {
            state.latest = state.latest.max(breadcrumb.updated_at.as_micros());
            state.table.put(breadcrumb, None);
        }
    }

    fn handle(shared: Arc<Shared>, name: &str) -> Self {
        let has_vectors = shared.maintainers.is_some();
        let tenant = shared
            .tenants
            .of(name, Tenant::is_unused, || Tenant::new(name, has_vectors));
        let maintainer = shared
            .maintainers
            .as_ref()
            .map(|maintainers| maintainers.of(name));
        let id = shared.id.in_tenant(name);
        Self {
            id,
            shared,
            tenant,
            maintainer,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.shared.clock.micros())
    }

    /// Returns the writer of a run's trigger as an [`Origin`]: the run's own executor, or another writer and its lineage. Returns
    /// [`Origin::Unknown`] if the trigger's breadcrumb is missing or has a newer version.
    fn origin(table: &Table, run: &RunRef) -> Origin {
        match table.writer(run.trigger_id, run.trigger_version) {
            None => Origin::Unknown,
            Some(None) => Origin::Known(Lineage::origin(run.trigger_id)),
            Some(Some(writer)) if writer.executor == run.executor => Origin::Own,
            Some(Some(writer)) => Origin::Known(writer.lineage.clone()),
        }
    }

    fn commit_now(
        &self,
        writes: Vec<Write>,
        end: Option<(Lease, RunEnd)>,
    ) -> Result<Committed, StoreError> {
        let now = self.now();
        let mut state = self.tenant.write();
        let committed = stage::commit(
            &mut state,
            writes,
            end,
            &self.shared.limits,
            &self.tenant.name,
            now,
        )?;
        let last = state.log.last();
        drop(state);
        self.tenant.committed.send_replace(last);
        Ok(committed)
    }

    /// Returns an error if `more` additional open runs would exceed the maximum number of open runs.
    fn check_open_runs(&self, runs: &Runs, more: usize) -> Result<(), StoreError> {
        let limit = self.shared.limits.open_runs;
        rules::check_open_runs(NAME, runs.open(), more, limit)
    }
}

impl Tenant {
    fn new(name: &str, has_vectors: bool) -> Self {
        let mut state = State::default();
        if has_vectors {
            state.table.enable_vectors();
        }
        Self {
            name: name.to_owned(),
            state: RwLock::new(state),
            committed: watch::Sender::new(0),
        }
    }

    /// Returns `true` if nothing was ever stored in this tenant. Such a tenant equals a new tenant.
    fn is_unused(&self) -> bool {
        let state = self.read();
        state.latest == 0
            && state.log.last() == 0
            && state.runs.is_unused()
            && state.workers.is_empty()
            && state.positions.is_empty()
            && state.requests.is_empty()
    }

    // A panic while the lock is held cannot leave a partial change: changes are staged, then applied.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_limits(MemoryLimits::default())
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(NAME)
            .field("tenant", &self.tenant.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[async_trait]
impl BreadcrumbStore for MemoryStore {
    fn tenant(&self) -> &str {
        &self.tenant.name
    }

    fn identity(&self) -> StoreId {
        self.id.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
            .reads_own_writes(true)
            .tombstones(self.shared.limits.tombstones > 0)
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
        let now = self.now();
        let state = self.tenant.read();
        match state.table.get(id, now) {
            Some(breadcrumb) => Ok(Arc::clone(breadcrumb)),
            None => Err(StoreError::NotFound {
                id,
                tombstone: state.table.tombstone(id).cloned(),
            }),
        }
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        query.selector.check().map_err(StoreError::InvalidQuery)?;
        let now = self.now();
        let state = self.tenant.read();
        let mut found: Vec<Arc<Breadcrumb>> = state.table.search(query, now).cloned().collect();
        drop(state);
        if query.order == Order::OldestFirst {
            found.reverse();
        }
        Ok(found)
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
        let Some(to) = maintainer.config.of_query(&query.text).await? else {
            return Ok(Vec::new());
        };
        let now = self.now();
        let mut nearest = Nearest::new(query);
        let vectors = self
            .tenant
            .read()
            .table
            .compare_few(&mut nearest, &to, query, now);
        // Many vectors are compared without the lock, and the task yields meanwhile.
        for some in vectors.unwrap_or_default().chunks(vectors::AT_ONCE) {
            for chunk in some {
                chunk.add_nearest(&mut nearest, &to, &query.query, now);
            }
            tokio::task::yield_now().await;
        }
        Ok(nearest.into_scored())
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        let writes = canonical::writes(commit.writes, self.shared.limits.breadcrumb_bytes)?;
        let end = canonical::end(commit.end, self.shared.limits.breadcrumb_bytes)?;
        let Some(maintainer) = &self.maintainer else {
            return self.commit_now(writes, end);
        };
        let (guard, deleted) = (maintainer.begin(), embedding::deleted(&writes));
        let committed = self.commit_now(writes, end)?;
        // The future is boxed, so that it does not enlarge the futures of commits to stores without embeddings.
        Box::pin(guard.committed(self, &committed.written, deleted)).await;
        Ok(committed)
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        Some(self)
    }
}

#[async_trait]
impl VectorStore for MemoryStore {
    fn reopen(&self) -> impl Fn() -> Option<Self> + Send + Sync + 'static {
        let (shared, name) = (Arc::downgrade(&self.shared), self.tenant.name.clone());
        move || Some(Self::handle(shared.upgrade()?, &name))
    }

    async fn without_vector(
        &self,
        after: Timestamp,
        most: usize,
    ) -> Result<UnembeddedPage, StoreError> {
        let state = self.tenant.read();
        let until = Timestamp::from_micros(state.latest);
        Ok(state.table.without_vector(after, most, until))
    }

    async fn put_vectors(&self, new_vectors: Vec<BreadcrumbVector>) -> Result<(), StoreError> {
        self.tenant.write().table.put_vectors(new_vectors);
        Ok(())
    }
}

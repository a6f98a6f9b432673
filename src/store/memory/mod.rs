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

use super::embedding::{self, EmbeddingConfig, Keeper, Keepers, Made, Nearest, Page, Vectors};
use super::row::{ASIDE, Origin};
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

/// A store in memory: the whole contract, and nothing left when the process ends.
///
/// A clone is another handle on the same data. The clock starts at the wall time of the store's creation and then
/// runs with tokio's clock, so a test that pauses time controls leases and update times. Every commit gets a later
/// time than the one before.
///
/// Memory is bounded by [`MemoryLimits`]. Old versions are not kept; of what is over, the newest 100,000 runs and
/// events are: an event redelivered later than that runs again.
///
/// ```
/// use universal_executor::{BreadcrumbStore, MemoryStore};
///
/// let store = MemoryStore::default();
/// let other = store.in_tenant("acme");
///
/// assert_eq!((store.tenant(), other.tenant()), ("default", "acme"));
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    tenant: Arc<Tenant>,
    keeper: Option<Arc<Keeper>>,
    id: StoreId,
}

/// How much a [`MemoryStore`] holds, per tenant.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct MemoryLimits {
    /// Breadcrumbs; one more is [`StoreError::Full`]. 1,000,000 by default.
    pub breadcrumbs: usize,
    /// Bytes of one breadcrumb, see [`Breadcrumb::size`]; more is [`StoreError::Rejected`]. 1 MiB by default.
    pub breadcrumb_bytes: usize,
    /// Bytes of all breadcrumbs and of the saved states of all runs. A write or a saved state that exceeds it is [`StoreError::Full`];
    /// a change that reduces the sum succeeds. 1 GiB by default.
    pub bytes: usize,
    /// Runs that are not over; one more is [`StoreError::Full`]. 1,000,000 by default.
    pub open_runs: usize,
    /// Runs that are over; the oldest are forgotten. 100,000 by default.
    pub finished_runs: usize,
    /// Events; the oldest are forgotten. 100,000 by default.
    pub events: usize,
    /// Bytes of the breadcrumbs that the events share, also of replaced and deleted ones. Beyond it, the oldest events are delivered without
    /// context, and the runtime reads the breadcrumb from the store. 64 MiB by default.
    pub event_bytes: usize,
    /// Tombstones; the oldest are forgotten. 10,000 by default.
    pub tombstones: usize,
    /// Bytes of all tombstones, which have the last versions of deleted breadcrumbs; the oldest are removed. 64 MiB by default.
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
    /// None: nothing has a vector.
    keepers: Option<Keepers>,
    clock: Clock,
    tenants: Tenants<Tenant>,
    /// Identity of the default tenant.
    id: StoreId,
}

struct Tenant {
    name: String,
    state: RwLock<State>,
    /// The position of the last event.
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
    /// The time of the last commit.
    latest: i64,
}

impl State {
    /// Fails if breadcrumbs and saved states that grow by `more` bytes exceed a limit, after `less` bytes are removed.
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
    /// An empty store with limits of its own.
    #[must_use]
    pub fn with_limits(limits: MemoryLimits) -> Self {
        Self::with(limits, None)
    }

    /// An empty store with limits of its own that can be searched by meaning. Vectors are kept in memory too: four bytes for
    /// each dimension.
    #[must_use]
    pub fn with_embeddings(limits: MemoryLimits, config: EmbeddingConfig) -> Self {
        Self::with(limits, Some(Keepers::new(config)))
    }

    fn with(limits: MemoryLimits, keepers: Option<Keepers>) -> Self {
        let shared = Arc::new(Shared {
            limits,
            keepers,
            clock: Clock::start(),
            tenants: Tenants::new(),
            id: StoreId::unique("default"),
        });
        Self::handle(shared, "default")
    }

    /// A handle on the same store, bound to a tenant. A tenant without data takes no memory once its last handle is dropped.
    #[must_use]
    pub fn in_tenant(&self, tenant: &str) -> Self {
        Self::handle(Arc::clone(&self.shared), tenant)
    }

    /// The commits of this tenant as events. A subscriber that falls more than [`MemoryLimits::events`] behind is
    /// told how many it missed.
    #[must_use]
    pub fn events(&self) -> impl EventSource + use<> {
        MemoryEvents {
            tenant: Arc::clone(&self.tenant),
        }
    }

    /// Waits until everything that was written to this tenant before has a vector, and says of how many breadcrumbs it
    /// found the text to be one that the embedder cannot do: those are not tried again until they change. A
    /// store without an embedder has nothing to wait for.
    ///
    /// # Errors
    /// If the embedder fails.
    pub async fn embedded(&self) -> Result<usize, StoreError> {
        match &self.keeper {
            Some(keeper) => keeper.embedded(self).await,
            None => Ok(0),
        }
    }

    /// Puts whole breadcrumbs in, as they are and without events. They come from outside every run.
    #[cfg(feature = "mock")]
    pub(in crate::store) fn seed(&self, breadcrumbs: impl Iterator<Item = Arc<Breadcrumb>>) {
        let mut state = self.tenant.write();
        for breadcrumb in breadcrumbs {
            state.latest = state.latest.max(breadcrumb.updated_at.as_micros());
            state.table.put(breadcrumb, None);
        }
    }

    fn handle(shared: Arc<Shared>, name: &str) -> Self {
        let has_vectors = shared.keepers.is_some();
        let tenant = shared
            .tenants
            .of(name, Tenant::is_unused, || Tenant::new(name, has_vectors));
        let keeper = shared.keepers.as_ref().map(|keepers| keepers.of(name));
        let id = shared.id.in_tenant(name);
        Self {
            id,
            shared,
            tenant,
            keeper,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.shared.clock.micros())
    }

    /// Where the trigger of a run comes from, if the version is the current one.
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

    /// Room for so many more rows.
    fn check_room(&self, runs: &Runs, more: usize) -> Result<(), StoreError> {
        let limit = self.shared.limits.open_runs;
        rules::check_room(NAME, runs.open(), more, limit)
    }
}

impl Tenant {
    fn new(name: &str, has_vectors: bool) -> Self {
        let mut state = State::default();
        if has_vectors {
            state.table.keep_vectors();
        }
        Self {
            name: name.to_owned(),
            state: RwLock::new(state),
            committed: watch::Sender::new(0),
        }
    }

    /// Reports whether nothing was ever stored in this tenant, so that a new one equals it.
    fn is_unused(&self) -> bool {
        let state = self.read();
        state.latest == 0
            && state.log.last() == 0
            && state.runs.is_unused()
            && state.workers.is_empty()
            && state.positions.is_empty()
            && state.requests.is_empty()
    }

    // A panic while the lock was held cannot leave the state half changed: changes are staged, then applied.
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
            .vector_search(self.keeper.is_some())
            .scores(self.keeper.is_some())
            .embeds_updates(self.keeper.is_some())
            .embeds_hinted(self.keeper.is_some())
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
        let Some(to) = keeper.config.of_query(&query.text).await? else {
            return Ok(Vec::new());
        };
        let now = self.now();
        let mut nearest = Nearest::new(query);
        let vectors = self
            .tenant
            .read()
            .table
            .nearest_of_few(&mut nearest, &to, query, now);
        // Of many the vectors are compared without the lock, and others of the task go on meanwhile.
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
        let Some(keeper) = &self.keeper else {
            return self.commit_now(writes, end);
        };
        let (keeping, deleted) = (keeper.begin(), embedding::deleted(&writes));
        let committed = self.commit_now(writes, end)?;
        // Boxed, so that commits to a store without embeddings need no room for it.
        Box::pin(keeping.committed(self, &committed.written, deleted)).await;
        Ok(committed)
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        Some(self)
    }
}

#[async_trait]
impl Vectors for MemoryStore {
    fn reopen(&self) -> impl Fn() -> Option<Self> + Send + Sync + 'static {
        let (shared, name) = (Arc::downgrade(&self.shared), self.tenant.name.clone());
        move || Some(Self::handle(shared.upgrade()?, &name))
    }

    async fn without_vector(&self, after: Timestamp, most: usize) -> Result<Page, StoreError> {
        let state = self.tenant.read();
        let until = Timestamp::from_micros(state.latest);
        Ok(state.table.without_vector(after, most, until))
    }

    async fn put_vectors(&self, made: Vec<Made>) -> Result<(), StoreError> {
        self.tenant.write().table.put_vectors(made);
        Ok(())
    }
}

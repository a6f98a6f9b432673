//! A store that some executors of the runtime share, with its open `wait_for` calls and the executors' read position.

use super::checkpoint::Checkpoint;
use super::other_versions::OtherVersions;
use super::page_size::PageSize;
use super::wakes::WakeIndex;
use crate::executor::{
    CommitCounter, PendingClaim, RunScope, SchemaHints, SharedStoreState, UniversalExecutor, Waits,
};
use crate::model::Timestamp;
use crate::store::{AddedLedger, BreadcrumbStore, RunLedger, RunRef, RunStore, StoreId};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Maximum number of open `wait_for` calls on one store.
const MAX_WAITS: usize = 10_000;

/// A runtime's data about one store: its ledger, due executors, waiting runs and read position. Executors whose store handles
/// have the same [identity](BreadcrumbStore::identity) share it, so that their runs are enqueued and claimed together.
pub(super) struct StoreContext {
    pub(super) number: u64,
    /// The executor through whose store handle the runtime reads and writes this store. The runtime uses this handle until the
    /// last executor of the store is removed.
    anchor: Arc<dyn UniversalExecutor>,
    id: StoreId,
    /// The run ledger in memory that the runtime adds if the store has none.
    added_ledger: AddedLedger,
    pub(super) waits: Arc<Waits>,
    pub(super) wakes: WakeIndex,
    /// The `llm_hints` of schema definitions, which are applied to breadcrumbs in model input.
    pub(super) hints: Arc<SchemaHints>,
    /// Other versions of the store's executors that live or recent workers run.
    other_versions: RwLock<Arc<OtherVersions>>,
    /// Token that is cancelled when the last executor of this store is removed.
    pub(super) no_executors: CancellationToken,
    /// IDs of executors with due runs that the store's scheduler has to claim.
    due: Mutex<BTreeSet<Arc<str>>>,
    /// Suspended runs that wait to be registered by the task that wakes them.
    suspended: Mutex<Vec<RunRef>>,
    /// Read position of the store's executors: the triggers that already have runs in the ledger.
    pub(super) checkpoint: Checkpoint,
    /// Size of the pages of the next sweep of the store for triggers.
    page_size: Mutex<PageSize>,
    /// If `true`, two checks are requested: of all suspended runs, and of all triggers whose events did not arrive.
    full_check_requested: AtomicBool,
    /// State of a runtime that takes no events because too many deliveries are in flight. `None` while the runtime takes events.
    blocked: Mutex<Option<Blocked>>,
    pub(super) due_changed: Notify,
    pub(super) check_requested: Notify,
    /// The store operations whose last call failed, as the sum of their [`Operation::bit`] values.
    failing: AtomicU8,
}

/// State of a runtime that takes no events because too many deliveries are in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocked {
    /// Commit time up to which the runtime had received all events when too many deliveries in flight blocked it. `None` if it
    /// had received none.
    pub(super) after: Option<Timestamp>,
}

/// A store operation whose failure makes the runtime unready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Operation {
    Claim,
    Enqueue,
    List,
    Read,
}

impl Operation {
    const fn bit(self) -> u8 {
        match self {
            Self::Claim => 1,
            Self::Enqueue => 2,
            Self::Read => 4,
            Self::List => 8,
        }
    }

    /// Returns a description of the store operation, for people.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim runs",
            Self::Enqueue => "enqueue runs",
            Self::List => "list suspended runs",
            Self::Read => "read breadcrumbs",
        }
    }
}

impl StoreContext {
    pub(super) fn of(number: u64, anchor: Arc<dyn UniversalExecutor>) -> Arc<Self> {
        let id = anchor.store().identity();
        Arc::new(Self {
            id,
            added_ledger: AddedLedger::default(),
            number,
            anchor,
            waits: Arc::new(Waits::new(MAX_WAITS)),
            wakes: WakeIndex::default(),
            hints: Arc::default(),
            other_versions: RwLock::default(),
            no_executors: CancellationToken::new(),
            due: Mutex::default(),
            suspended: Mutex::default(),
            checkpoint: Checkpoint::default(),
            page_size: Mutex::default(),
            full_check_requested: AtomicBool::new(false),
            blocked: Mutex::default(),
            due_changed: Notify::new(),
            check_requested: Notify::new(),
            failing: AtomicU8::new(0),
        })
    }

    pub(super) fn store(&self) -> &dyn BreadcrumbStore {
        self.anchor.store()
    }

    /// Returns the store with its run ledger. For a store without a run ledger, the process adds a ledger in memory.
    pub(super) fn runs(&self) -> RunStore<'_> {
        self.added_ledger.with(self.store())
    }

    pub(super) fn ledger(&self) -> &dyn RunLedger {
        self.runs().ledger()
    }

    /// Returns `true` if this [`StoreContext`] belongs to the store on which an executor runs.
    pub(super) fn is_of(&self, executor: &dyn UniversalExecutor) -> bool {
        let store = executor.store();
        self.runs().is_durable() == store.ledger().is_some() && self.id == store.identity()
    }

    /// Returns the other versions of the store's executors that other workers run.
    pub(super) fn other_versions(&self) -> Arc<OtherVersions> {
        Arc::clone(
            &self
                .other_versions
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Sets the other versions of the store's executors that other workers run.
    pub(super) fn set_other_versions(&self, other_versions: OtherVersions) {
        *self
            .other_versions
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(other_versions);
    }

    /// Returns the scope of a claimed run: its lease, and access to the store's `wait_for` calls and ledger during the run.
    pub(super) fn scope(
        &self,
        pending_claim: PendingClaim,
        permits: Arc<Semaphore>,
        permit: OwnedSemaphorePermit,
        commits: Option<Arc<CommitCounter>>,
    ) -> RunScope {
        let lent = SharedStoreState {
            waits: Arc::clone(&self.waits),
            hints: Arc::clone(&self.hints),
            id: self.id.clone(),
        };
        RunScope::new(lent, pending_claim, permits, permit, commits)
    }

    /// Notifies the scheduler of the store that executors have due runs to claim.
    pub(super) fn notify_due(&self, executors: impl IntoIterator<Item = Arc<str>>) {
        lock(&self.due).extend(executors);
        self.due_changed.notify_one();
    }

    /// Removes and returns the executors of the store that have due runs to claim.
    pub(super) fn take_due(&self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut lock(&self.due))
    }

    /// Returns the size of the pages of the next sweep of the store for triggers.
    pub(super) fn page_size(&self) -> PageSize {
        *lock(&self.page_size)
    }

    /// Sets the size of the pages of the next sweep of the store for triggers.
    pub(super) fn set_page_size(&self, page_size: PageSize) {
        *lock(&self.page_size) = page_size;
    }

    /// Requests a sweep of the store because events were missed. The sweep covers everything committed after a time, or after the position.
    pub(super) fn request_sweep(&self, after: Option<Timestamp>) {
        self.checkpoint.note_missed_events(after);
        self.check_requested.notify_one();
    }

    /// Requests two checks of the store: of all suspended runs, and of all breadcrumbs that no event announced.
    pub(super) fn request_full_check(&self) {
        self.full_check_requested.store(true, Ordering::Relaxed);
        self.check_requested.notify_one();
    }

    /// Returns `true` if checks of all suspended runs and of all unannounced breadcrumbs are requested, and clears the request.
    pub(super) fn take_full_check_request(&self) -> bool {
        self.full_check_requested.swap(false, Ordering::Relaxed)
    }

    /// Records that the runtime takes no events because too many deliveries are in flight. `None` records that it takes events again.
    pub(super) fn set_blocked(&self, blocked: Option<Blocked>) {
        *lock(&self.blocked) = blocked;
        if blocked.is_some() {
            self.check_requested.notify_one();
        }
    }

    /// Returns a [`Blocked`] while the runtime takes no events because too many deliveries are in flight, otherwise `None`.
    pub(super) fn blocked(&self) -> Option<Blocked> {
        *lock(&self.blocked)
    }

    /// Returns `true` if an open `wait_for` call or a suspended run waits for a breadcrumb of the store.
    pub(super) fn has_waiting(&self) -> bool {
        self.waits.len() > 0 || !self.wakes.is_empty()
    }

    /// Returns `true` if a sweep must not trigger an executor with a breadcrumb updated at `time`, because the executor starts after this
    /// time. Also returns `true` if the position of the executor is not loaded yet.
    pub(super) fn is_before(&self, executor: &str, time: Timestamp) -> bool {
        self.checkpoint.is_before(executor, time).unwrap_or(true)
    }

    /// Notifies the store's background task of a suspended run. The task wakes the run when a breadcrumb arrives that the run waits for.
    pub(super) fn note_suspended(&self, run: RunRef) {
        /// Maximum number of suspended runs that wait to be registered by the task that wakes them. The periodic check of all suspended
        /// runs finds the others.
        const MAX_SUSPENDED: usize = 10_000;
        let mut suspended = lock(&self.suspended);
        if suspended.len() < MAX_SUSPENDED {
            suspended.push(run);
        }
        drop(suspended);
        self.check_requested.notify_one();
    }

    /// Empties the queue of runs that were suspended since the last call, and returns these runs.
    pub(super) fn take_suspended(&self) -> Vec<RunRef> {
        std::mem::take(&mut lock(&self.suspended))
    }

    /// Records the success or failure of a store operation. Each operation has its own state, because a store can answer reads and still
    /// fail to claim runs.
    pub(super) fn note_result(&self, operation: Operation, succeeded: bool) {
        match succeeded {
            true => self.failing.fetch_and(!operation.bit(), Ordering::Relaxed),
            false => self.failing.fetch_or(operation.bit(), Ordering::Relaxed),
        };
    }

    /// Returns the store operations whose last call failed.
    pub(super) fn failing(&self) -> impl Iterator<Item = Operation> + use<> {
        let failing = self.failing.load(Ordering::Relaxed);
        let all = [
            Operation::Claim,
            Operation::Enqueue,
            Operation::List,
            Operation::Read,
        ];
        all.into_iter()
            .filter(move |operation| failing & operation.bit() != 0)
    }
}

impl fmt::Debug for StoreContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreContext")
            .field("number", &self.number)
            .field("store", &self.store())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

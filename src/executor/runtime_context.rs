//! State that a runtime passes to a run in a task-local variable, because `process_event` has no argument for the state.

use super::profile::Execution;
use super::waits::Waits;
use crate::model::Event;
use crate::store::schema_hints::SchemaHints;
use crate::store::{BreadcrumbStore, Claimed, Lease, RunRef, StoreId};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Maximum number of nested runs (runs that were claimed within the execution of another run) whose leases are released together
/// with the outer run.
const MAX_NESTED: usize = 16;

tokio::task_local! {
    static RUN_SCOPE: Arc<RunScope>;
}

/// Parts of a runtime that all runs on one store share: waits for breadcrumbs, a cache of schemas' `llm_hints`, and the store's
/// ID.
#[derive(Debug)]
pub(crate) struct SharedStoreState {
    pub(crate) waits: Arc<Waits>,
    pub(crate) hints: Arc<SchemaHints>,
    pub(crate) id: StoreId,
}

/// A claimed run that no call of `process_event` has taken yet.
#[derive(Debug)]
pub(crate) struct PendingClaim {
    pub(crate) claimed: Claimed,
    /// The time at which the claim of the run was sent, by the clock of this process. The lease started at this time or later.
    pub(crate) since: Instant,
}

/// State that a runtime shares with one claimed run: the lease, the concurrency permit, data of the store, and the run's
/// progress.
#[derive(Debug)]
pub(crate) struct RunScope {
    pub(super) store: SharedStoreState,
    /// The current lease of the run. The lease changes when the run is replaced by the run of a newer version of its trigger.
    lease: Mutex<Lease>,
    /// The latest leases of nested runs, which were claimed within the execution of this run: one lease for each of at most
    /// [`MAX_NESTED`] runs. They are released together with the lease of the outer run. At-most-once runs are excluded.
    nested: Mutex<Vec<Lease>>,
    pending_claim: Mutex<Option<PendingClaim>>,
    /// If `true`, `process_event` was called for the run.
    began: AtomicBool,
    /// If `true`, `process_event` took the claimed run and its lease.
    taken: AtomicBool,
    /// If `true`, `execute` was called for the run.
    executed: AtomicBool,
    permits: Arc<Semaphore>,
    permit: Mutex<PermitState>,
    /// Counter of this executor's runs whose responses are being committed. `None` for an executor with at most one run in flight, because
    /// its next run has to wait for the commit.
    commits: Option<Arc<CommitCounter>>,
}

/// Counter of the runs of one executor whose responses are being committed.
#[derive(Debug)]
pub(crate) struct CommitCounter {
    runs: AtomicUsize,
    /// Wakes the runtime when a run of the executor starts to commit its response, because another run may start then.
    started: Arc<Notify>,
    /// Permits, shared by all executors, that limit how many runs commit their responses at the same time.
    permits: Arc<Semaphore>,
}

impl CommitCounter {
    pub(crate) fn new(started: Arc<Notify>, permits: Arc<Semaphore>) -> Self {
        Self {
            runs: AtomicUsize::new(0),
            started,
            permits,
        }
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// Returns a permit for one more run that commits its response, or `None` if no permit is free.
    fn acquire(self: &Arc<Self>) -> Option<CommitPermit> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.started.notify_one();
        Some(CommitPermit {
            commits: Arc::clone(self),
            _permit: permit,
        })
    }
}

/// Commit permit, which a run holds while its response is committed. The run is counted as committing until the permit is
/// dropped.
#[derive(Debug)]
struct CommitPermit {
    commits: Arc<CommitCounter>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for CommitPermit {
    fn drop(&mut self) {
        self.commits.runs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// State of a run's permit to run concurrently with other runs. While the run waits, another run can use the permit, so that the
/// awaited run cannot lack one.
#[derive(Debug)]
enum PermitState {
    Held(Option<OwnedSemaphorePermit>),
    /// The run lent its permit to other runs. The value is the number of open waits of the run.
    Lent(usize),
    /// The response of the run is being committed, with a commit permit.
    Committing(#[expect(dead_code, reason = "held, not read")] CommitPermit),
    /// The run has ended and released its concurrency permit.
    Released,
}

impl RunScope {
    /// Creates the state that a runtime shares with a claimed run, with the run's concurrency permit.
    pub(crate) fn new(
        store: SharedStoreState,
        pending_claim: PendingClaim,
        permits: Arc<Semaphore>,
        permit: OwnedSemaphorePermit,
        commits: Option<Arc<CommitCounter>>,
    ) -> Self {
        Self {
            store,
            lease: Mutex::new(pending_claim.claimed.lease.clone()),
            nested: Mutex::default(),
            pending_claim: Mutex::new(Some(pending_claim)),
            began: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            executed: AtomicBool::new(false),
            permits,
            permit: Mutex::new(PermitState::Held(Some(permit))),
            commits,
        }
    }

    /// Takes the claimed run if it belongs to this executor, event and store, and was not taken before.
    pub(super) fn take(
        &self,
        executor: &str,
        event: &Event,
        store: &dyn BreadcrumbStore,
    ) -> Option<PendingClaim> {
        lock(&self.pending_claim).take_if(|pending_claim| {
            let run = &pending_claim.claimed.lease.run;
            let matches_run = (&*run.executor, run.trigger_id, run.trigger_version)
                == (executor, event.breadcrumb_id, event.version);
            matches_run && self.store.id == store.identity()
        })
    }

    /// Records that `process_event` is about to be called for the run.
    pub(crate) fn record_begin(&self) {
        self.began.store(true, Ordering::Relaxed);
    }

    /// Returns the current lease of the run.
    pub(crate) fn lease(&self) -> Lease {
        lock(&self.lease).clone()
    }

    /// Returns the leases of nested runs, which were claimed within the execution of this run and are released together with its
    /// lease. Some of these runs may be over.
    pub(crate) fn nested_leases(&self) -> Vec<Lease> {
        lock(&self.nested).clone()
    }

    /// Returns `true` if `process_event` took the claimed run. The lease was then ended or left on purpose.
    pub(crate) fn was_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// Records that `execute` is about to be called for the run.
    pub(super) fn record_execute(&self) {
        self.executed.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the run had no effect yet: `process_event` was not called, or took the lease without calling `execute`.
    ///
    /// An executor that overrides `process_event` may have effects without taking the lease, so the lease has to be taken.
    pub(crate) fn is_unused(&self) -> bool {
        let executed = self.executed.load(Ordering::Relaxed);
        !self.began.load(Ordering::Relaxed) || (self.was_taken() && !executed)
    }

    /// Releases the concurrency permit of a run that has ended.
    pub(crate) fn release_permit(&self) {
        *lock(&self.permit) = PermitState::Released;
    }

    /// Frees the concurrency permit of the run while its response is committed, if another run may start meanwhile.
    pub(super) fn record_commit(&self) {
        let mut own = lock(&self.permit);
        if let PermitState::Committing(_) = &*own {
            return;
        }
        if let Some(permit) = self.commits.as_ref().and_then(CommitCounter::acquire) {
            *own = PermitState::Committing(permit);
        }
    }

    /// Records that the commit of a run failed and the run continues. Without a free permit, the runs temporarily exceed the limit by
    /// one.
    pub(super) fn record_failed_commit(&self) {
        let mut own = lock(&self.permit);
        if let PermitState::Committing(_) = &*own {
            let permit = Arc::clone(&self.permits).try_acquire_owned();
            *own = PermitState::Held(permit.ok());
        }
    }

    /// Returns `true` if `run` is the run that this state belongs to, or that run for another version of the trigger. Returns
    /// `false` for a nested run.
    pub(super) fn belongs_to(&self, run: &RunRef) -> bool {
        let held = lock(&self.lease);
        (&held.run.executor, held.run.trigger_id) == (&run.executor, run.trigger_id)
    }

    /// Records a lease as the current lease of the run or, for a nested run, as a nested lease. The lease of an at-most-once nested
    /// run is not recorded, because its progress would be unknown.
    pub(super) fn record_lease(&self, lease: &Lease, execution: Execution) {
        if !self.belongs_to(&lease.run) {
            if execution != Execution::AtMostOnce {
                self.record_nested_lease(lease);
            }
            return;
        }
        self.taken.store(true, Ordering::Relaxed);
        *lock(&self.lease) = lease.clone();
    }

    fn record_nested_lease(&self, lease: &Lease) {
        let mut nested = lock(&self.nested);
        nested.retain(|other| other.run != lease.run);
        if nested.len() >= MAX_NESTED {
            nested.remove(0);
        }
        nested.push(lease.clone());
    }

    /// Lends the run's concurrency permit to other runs while this run waits for a breadcrumb.
    pub(super) fn lend_permit(self: &Arc<Self>) -> LentPermit {
        let mut state = lock(&self.permit);
        match &mut *state {
            PermitState::Held(_) => *state = PermitState::Lent(1),
            PermitState::Lent(waits) => *waits += 1,
            PermitState::Committing(_) | PermitState::Released => {}
        }
        drop(state);
        LentPermit {
            scope: Some(Arc::clone(self)),
        }
    }

    /// Records that one of the run's waits for breadcrumbs has ended. Returns `true` after the last wait, when the run needs a
    /// permit again.
    fn end_wait(&self) -> bool {
        match &mut *lock(&self.permit) {
            PermitState::Lent(waits) if *waits > 1 => {
                *waits -= 1;
                false
            }
            state @ PermitState::Lent(_) => {
                *state = PermitState::Held(None);
                true
            }
            PermitState::Held(_) | PermitState::Committing(_) | PermitState::Released => false,
        }
    }
}

/// Guard of one wait of a run for a breadcrumb, during which other runs may use the run's concurrency permit.
#[derive(Debug)]
pub(super) struct LentPermit {
    scope: Option<Arc<RunScope>>,
}

impl LentPermit {
    /// Records that one of the run's waits for breadcrumbs has ended, and acquires a concurrency permit again after the last
    /// wait.
    pub(super) async fn reacquire(mut self) {
        let Some(scope) = self.scope.take() else {
            return;
        };
        if !scope.end_wait() {
            return;
        }
        // The semaphore is never closed. If it were, the run would continue without a permit.
        let permit = Arc::clone(&scope.permits).acquire_owned().await.ok();
        let mut state = lock(&scope.permit);
        if let PermitState::Held(held) = &mut *state {
            *held = permit;
        }
    }
}

impl Drop for LentPermit {
    /// Records that one of the run's waits for breadcrumbs has ended. After the last wait the run continues without a permit, so
    /// the runs temporarily exceed the limit by one.
    fn drop(&mut self) {
        if let Some(scope) = self.scope.take() {
            scope.end_wait();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a future with the runtime's state of a run in a task-local variable. While the future runs, [`scope`] returns this state.
pub(crate) async fn in_scope<T>(scope: Arc<RunScope>, work: impl Future<Output = T>) -> T {
    RUN_SCOPE.scope(scope, work).await
}

/// Returns the runtime's state of the run that the current task processes, or `None` outside a runtime and in a spawned task.
pub(super) fn scope() -> Option<Arc<RunScope>> {
    RUN_SCOPE.try_with(Arc::clone).ok()
}

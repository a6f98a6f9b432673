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

/// Maximum number of leases of nested runs that are released together with their outer run.
const MOST_WITHIN: usize = 16;

tokio::task_local! {
    static RUN_SCOPE: Arc<RunScope>;
}

/// Parts of a runtime that all runs on one store share: the waits, the schema hints and the store's ID.
#[derive(Debug)]
pub(crate) struct LentStore {
    pub(crate) waits: Arc<Waits>,
    pub(crate) hints: Arc<SchemaHints>,
    pub(crate) id: StoreId,
}

/// A claimed run that no call of `process_event` has taken yet.
#[derive(Debug)]
pub(crate) struct Untaken {
    pub(crate) claimed: Claimed,
    /// The time at which the claim of the run was sent, by the clock of this process. The lease started at this time or later.
    pub(crate) since: Instant,
}

/// Resources that a runtime lends to a run, and the progress that the run reports.
#[derive(Debug)]
pub(crate) struct RunScope {
    pub(super) store: LentStore,
    /// The current lease of the run. The lease changes when the run is replaced by the run of a newer version of its trigger.
    lease: Mutex<Lease>,
    /// The newest leases of the nested runs. They are released together with the lease of the outer run. At-most-once runs are excluded.
    within: Mutex<Vec<Lease>>,
    untaken: Mutex<Option<Untaken>>,
    /// If `true`, `process_event` was called for the run.
    begun: AtomicBool,
    /// If `true`, `process_event` took the claimed run and its lease.
    taken: AtomicBool,
    /// If `true`, `execute` was called for the run.
    executed: AtomicBool,
    places: Arc<Semaphore>,
    place: Mutex<Place>,
    /// Counter of this executor's runs whose responses are being committed. `None` for an executor with at most one run in flight, because
    /// its next run has to wait for the commit.
    commits: Option<Arc<Commits>>,
}

/// Counter of the runs of one executor whose responses are being committed.
#[derive(Debug)]
pub(crate) struct Commits {
    runs: AtomicUsize,
    /// Notified when a run of the executor starts to commit its response.
    begun: Arc<Notify>,
    /// Permits for runs that commit their responses. All executors share the permits.
    places: Arc<Semaphore>,
}

impl Commits {
    pub(crate) fn new(begun: Arc<Notify>, places: Arc<Semaphore>) -> Self {
        Self {
            runs: AtomicUsize::new(0),
            begun,
            places,
        }
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// Returns a permit for one more run that commits its response, or `None` if no permit is free.
    fn place(self: &Arc<Self>) -> Option<CommitPlace> {
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.begun.notify_one();
        Some(CommitPlace {
            commits: Arc::clone(self),
            _permit: permit,
        })
    }
}

/// The permit of a run that commits its response. The run counts until its permit is dropped.
#[derive(Debug)]
struct CommitPlace {
    commits: Arc<Commits>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for CommitPlace {
    fn drop(&mut self) {
        self.commits.runs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// State of a run's permit to run concurrently with other runs. While the run waits, another run can use the permit, so that the
/// awaited run cannot lack one.
#[derive(Debug)]
enum Place {
    Taken(Option<OwnedSemaphorePermit>),
    /// The run lent its permit to other runs. The value is the number of open waits of the run.
    Lent(usize),
    /// The response of the run is being committed, with a commit permit.
    Commits(#[expect(dead_code, reason = "held, not read")] CommitPlace),
    /// The run has ended and released its permit.
    Left,
}

impl RunScope {
    /// Creates the scope of a claimed run, with its permit.
    pub(crate) fn new(
        store: LentStore,
        untaken: Untaken,
        places: Arc<Semaphore>,
        place: OwnedSemaphorePermit,
        commits: Option<Arc<Commits>>,
    ) -> Self {
        Self {
            store,
            lease: Mutex::new(untaken.claimed.lease.clone()),
            within: Mutex::default(),
            untaken: Mutex::new(Some(untaken)),
            begun: AtomicBool::new(false),
            taken: AtomicBool::new(false),
            executed: AtomicBool::new(false),
            places,
            place: Mutex::new(Place::Taken(Some(place))),
            commits,
        }
    }

    /// Takes the claimed run if it belongs to this executor, event and store, and was not taken before.
    pub(super) fn take(
        &self,
        executor: &str,
        event: &Event,
        store: &dyn BreadcrumbStore,
    ) -> Option<Untaken> {
        lock(&self.untaken).take_if(|untaken| {
            let run = &untaken.claimed.lease.run;
            let is_it = (&*run.executor, run.trigger_id, run.trigger_version)
                == (executor, event.breadcrumb_id, event.version);
            is_it && self.store.id == store.identity()
        })
    }

    /// Records that `process_event` is about to be called for the run.
    pub(crate) fn begins(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Returns the current lease of the run.
    pub(crate) fn lease(&self) -> Lease {
        lock(&self.lease).clone()
    }

    /// Returns the leases of nested runs, which are released together with the outer run. Some of these runs may be over.
    pub(crate) fn leases_within(&self) -> Vec<Lease> {
        lock(&self.within).clone()
    }

    /// Returns `true` if `process_event` took the claimed run. The lease was then ended or left on purpose.
    pub(crate) fn was_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }

    /// Records that `execute` is about to be called for the run.
    pub(super) fn executes(&self) {
        self.executed.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the run had no effect yet: `process_event` was not called, or took the lease without calling `execute`.
    ///
    /// An executor that overrides `process_event` may have effects without taking the lease, so the lease has to be taken.
    pub(crate) fn is_unused(&self) -> bool {
        let executed = self.executed.load(Ordering::Relaxed);
        !self.begun.load(Ordering::Relaxed) || (self.was_taken() && !executed)
    }

    /// Releases the permit of a run that has ended.
    pub(crate) fn leave(&self) {
        *lock(&self.place) = Place::Left;
    }

    /// Frees the permit of the run while its response is committed, if another run may start meanwhile.
    pub(super) fn commits(&self) {
        let mut own = lock(&self.place);
        if let Place::Commits(_) = &*own {
            return;
        }
        if let Some(place) = self.commits.as_ref().and_then(Commits::place) {
            *own = Place::Commits(place);
        }
    }

    /// Records that the commit of a run failed and the run continues. Without a free permit, the runs temporarily exceed the limit by
    /// one.
    pub(super) fn commit_failed(&self) {
        let mut own = lock(&self.place);
        if let Place::Commits(_) = &*own {
            let place = Arc::clone(&self.places).try_acquire_owned();
            *own = Place::Taken(place.ok());
        }
    }

    /// Returns `true` if this scope belongs to `run`, with any version of the trigger. Returns `false` if this scope belongs to the outer
    /// run of a nested run.
    pub(super) fn is_to(&self, run: &RunRef) -> bool {
        let held = lock(&self.lease);
        (&held.run.executor, held.run.trigger_id) == (&run.executor, run.trigger_id)
    }

    /// Records a lease as the current lease of the run or, for a nested run, as a nested lease. The lease of an at-most-once nested
    /// run is not recorded, because its progress would be unknown.
    pub(super) fn holds(&self, lease: &Lease, execution: Execution) {
        if !self.is_to(&lease.run) {
            if execution != Execution::AtMostOnce {
                self.holds_within(lease);
            }
            return;
        }
        self.taken.store(true, Ordering::Relaxed);
        *lock(&self.lease) = lease.clone();
    }

    fn holds_within(&self, lease: &Lease) {
        let mut within = lock(&self.within);
        within.retain(|other| other.run != lease.run);
        if within.len() >= MOST_WITHIN {
            within.remove(0);
        }
        within.push(lease.clone());
    }

    /// Lends the run's permit to other runs while this run waits.
    pub(super) fn lend_place(self: &Arc<Self>) -> Lent {
        let mut place = lock(&self.place);
        match &mut *place {
            Place::Taken(_) => *place = Place::Lent(1),
            Place::Lent(waits) => *waits += 1,
            Place::Commits(_) | Place::Left => {}
        }
        drop(place);
        Lent {
            scope: Some(Arc::clone(self)),
        }
    }

    /// Ends one wait of the run. Returns `true` after the last wait, when the run needs a permit again.
    fn ends_wait(&self) -> bool {
        match &mut *lock(&self.place) {
            Place::Lent(waits) if *waits > 1 => {
                *waits -= 1;
                false
            }
            place @ Place::Lent(_) => {
                *place = Place::Taken(None);
                true
            }
            Place::Taken(_) | Place::Commits(_) | Place::Left => false,
        }
    }
}

/// Guard of a run's permit that other runs may use while the run waits.
#[derive(Debug)]
pub(super) struct Lent {
    scope: Option<Arc<RunScope>>,
}

impl Lent {
    /// Ends one wait of the run, and acquires a permit again after the last wait.
    pub(super) async fn take_back(mut self) {
        let Some(scope) = self.scope.take() else {
            return;
        };
        if !scope.ends_wait() {
            return;
        }
        // The semaphore is never closed. If it were, the run would continue without a permit.
        let permit = Arc::clone(&scope.places).acquire_owned().await.ok();
        let mut place = lock(&scope.place);
        if let Place::Taken(taken) = &mut *place {
            *taken = permit;
        }
    }
}

impl Drop for Lent {
    /// Ends one wait of the run. After the last wait the run continues without a permit, so the runs temporarily exceed the limit
    /// by one.
    fn drop(&mut self) {
        if let Some(scope) = self.scope.take() {
            scope.ends_wait();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a future in the scope of a run. While the future runs, [`scope`] returns this scope.
pub(crate) async fn under<T>(scope: Arc<RunScope>, work: impl Future<Output = T>) -> T {
    RUN_SCOPE.scope(scope, work).await
}

/// Returns the scope of the run that the current task processes, or `None` outside a runtime and in a spawned task.
pub(super) fn scope() -> Option<Arc<RunScope>> {
    RUN_SCOPE.try_with(Arc::clone).ok()
}

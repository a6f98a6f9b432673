//! The runs of one executor: put into the ledger, claimed from it, processed side by side, given back at the end.

use super::shared::{Owed, PAUSE, Shared, in_time};
use crate::clock::later;
use crate::executor::{Execution, ExecutorError, Outcome, UniversalExecutor};
use crate::model::{BreadcrumbId, Event};
use crate::store::{
    Commit, DeadLetter, ExecutorLimits, FailureClass, Lease, NewRun, Run, RunEnd, RunFilter,
    RunLedger, RunRef, StoreError,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

/// How many deliveries may wait for a ledger that does not answer before the source is held up.
pub(super) const INBOX: usize = 1_024;

/// How many runs are put into the ledger in one step.
const MOST_AT_ONCE: usize = 64;

type Processed = Result<Outcome, ExecutorError>;

pub(super) struct Worker {
    shared: Arc<Shared>,
    executor: Arc<dyn UniversalExecutor>,
    inbox: mpsc::Receiver<Arc<Owed>>,
    /// Deliveries whose runs are not in the ledger yet, and when to try again.
    owed: Vec<Arc<Owed>>,
    owed_at: Instant,
    running: JoinSet<Processed>,
    leases: HashMap<task::Id, Lease>,
    /// When runs that are to be tried again are due; the sweep finds what is left out here.
    due: BTreeSet<Instant>,
    sweep: Instant,
    /// Whether leases may be parked that were never listed.
    parked: bool,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        executor: Arc<dyn UniversalExecutor>,
        inbox: mpsc::Receiver<Arc<Owed>>,
    ) -> Self {
        Self {
            sweep: later(Instant::now(), shared.settings.sweep),
            shared,
            executor,
            inbox,
            owed: Vec::new(),
            owed_at: Instant::now(),
            running: JoinSet::new(),
            leases: HashMap::new(),
            due: BTreeSet::new(),
            parked: false,
        }
    }

    /// Claims and processes runs until it is told to stop, then lets them finish.
    pub(super) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        // Runs may be left over from before.
        let mut look = true;
        loop {
            let wake = self
                .due
                .first()
                .map_or(self.sweep, |due| self.sweep.min(*due));
            let free = self.free() > 0;
            let owes = !self.owed.is_empty();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(finished) = self.running.join_next_with_id() => self.finish(finished).await,
                place = Arc::clone(&self.shared.places).acquire_owned(), if look && free => {
                    look = match place {
                        Ok(place) => self.claim(place).await,
                        Err(_) => false,
                    };
                }
                () = sleep_until(self.owed_at), if owes => look |= self.keep_owed().await,
                arrived = self.inbox.recv_many(&mut self.owed, MOST_AT_ONCE), if !owes => match arrived {
                    // Nothing more can arrive.
                    0 => stop.cancelled().await,
                    _ => look |= self.keep_owed().await,
                },
                () = sleep_until(wake) => {
                    self.forget_due(Instant::now());
                    look = true;
                }
            }
        }
        // What has arrived is kept, so that it need not come again.
        while self.owed.len() < INBOX
            && self
                .inbox
                .try_recv()
                .map(|owed| self.owed.push(owed))
                .is_ok()
        {}
        self.keep_owed().await;
        self.drain().await;
    }

    /// Puts a run into the ledger for every delivery owed, all at once or as many as it has room for; says whether it
    /// did for any.
    async fn keep_owed(&mut self) -> bool {
        let executor = Arc::clone(&self.executor);
        let Some(ledger) = executor.store().ledger() else {
            return false;
        };
        let lease = executor.profile().lease;
        let run = |owed: &Arc<Owed>| RunRef::of(executor.id(), &owed.delivery.event).lasting(lease);
        let (mut at_once, mut kept) = (self.owed.len(), false);
        while !self.owed.is_empty() {
            let runs = self.owed.iter().take(at_once).map(run).map(NewRun::from);
            match in_time(ledger.enqueue(runs.collect())).await {
                Ok(()) => {
                    kept = true;
                    for owed in self.owed.drain(..at_once.min(self.owed.len())) {
                        owed.settle(&self.shared).await;
                    }
                }
                Err(StoreError::Full { .. }) if at_once > 1 => at_once = 1,
                Err(error) => {
                    let id = executor.id();
                    tracing::warn!(
                        executor = id,
                        error = error.code(),
                        "runs could not be enqueued"
                    );
                    self.owed_at = later(Instant::now(), PAUSE);
                    break;
                }
            }
        }
        kept
    }

    fn free(&self) -> usize {
        let most = self.shared.settings.max_inflight;
        most.saturating_sub(self.running.len())
    }

    fn forget_due(&mut self, now: Instant) {
        self.due = self.due.split_off(&later(now, Duration::from_nanos(1)));
        if now >= self.sweep {
            self.sweep = later(now, self.shared.settings.sweep);
        }
    }

    fn look_again_at(&mut self, moment: Instant) {
        const MOST: usize = 10_000;
        if self.due.len() < MOST {
            self.due.insert(moment);
        }
    }

    /// Claims as many due runs as there are places at hand; says whether there may be more.
    async fn claim(&mut self, place: OwnedSemaphorePermit) -> bool {
        const BATCH: usize = 16;
        let mut places = vec![place];
        while places.len() < self.free().min(BATCH) {
            match Arc::clone(&self.shared.places).try_acquire_owned() {
                Ok(place) => places.push(place),
                Err(_) => break,
            }
        }
        let executor = Arc::clone(&self.executor);
        let Some(ledger) = executor.store().ledger() else {
            return false;
        };
        let id = executor.id();
        match in_time(claim_due(ledger, id, places.len(), self.parked)).await {
            Ok(runs) => {
                self.parked = false;
                let wanted = places.len();
                let started: Vec<&RunRef> = self.leases.values().map(|lease| &lease.run).collect();
                let new: Vec<(Lease, u32)> = runs
                    .into_iter()
                    .filter(|(lease, _)| !started.contains(&&lease.run))
                    .collect();
                let more = new.len() >= wanted;
                // What has no place now is parked already and is listed again.
                self.parked = new.len() > wanted;
                for ((lease, attempts), place) in new.into_iter().zip(places) {
                    self.start(lease, attempts, place);
                }
                more
            }
            Err(error) => {
                tracing::warn!(
                    executor = id,
                    error = error.code(),
                    "no runs could be claimed"
                );
                self.parked = true;
                self.look_again_at(later(Instant::now(), PAUSE));
                false
            }
        }
    }

    fn start(&mut self, lease: Lease, attempts: u32, place: OwnedSemaphorePermit) {
        let (executor, claimed) = (Arc::clone(&self.executor), lease.clone());
        let task = self.running.spawn(async move {
            let processed = process(&*executor, &claimed, attempts).await;
            drop(place);
            processed
        });
        self.leases.insert(task.id(), lease);
    }

    async fn finish(&mut self, finished: Result<(task::Id, Processed), JoinError>) {
        let id = finished.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let lease = self.leases.remove(&id);
        match finished {
            Ok((_, processed)) => {
                self.shared.count(|report| report.count(&processed));
                match processed {
                    Err(ExecutorError::Postponed { delay, .. }) => {
                        self.look_again_at(later(Instant::now(), delay));
                    }
                    Err(error) => tracing::debug!(
                        executor = self.executor.id(),
                        error = error.code(),
                        "a run did not end"
                    ),
                    Ok(_) => {}
                }
            }
            Err(error) if error.is_panic() => {
                self.shared.count(|report| report.panics += 1);
                if let Some(lease) = lease {
                    self.look_again_at(later(Instant::now(), lease.run.lease));
                    self.give_back(lease, true).await;
                }
            }
            Err(_) => {
                self.shared.count(|report| report.dropped += 1);
                if let Some(lease) = lease {
                    self.give_back(lease, false).await;
                }
            }
        }
    }

    /// Gives back a run whose task is gone: at once if it was dropped, when its lease would be over if it panicked.
    async fn give_back(&self, lease: Lease, panicked: bool) {
        let executor = &self.executor;
        let Some(ledger) = executor.store().ledger() else {
            return;
        };
        let run = lease.run.clone();
        let given_back = if panicked {
            let at = lease.until;
            in_time(ledger.retry(lease, at, true)).await
        } else if executor.profile().execution == Execution::AtMostOnce {
            // How far it came is unknown; once its lease is over that is what its dead letter says.
            Ok(())
        } else {
            in_time(ledger.release(lease)).await
        };
        match given_back {
            // It ended before its task did, or moved on to a newer version.
            Ok(()) | Err(StoreError::LeaseLost { .. }) => {}
            Err(error) => {
                tracing::warn!(%run, error = error.code(), "a run could not be given back");
            }
        }
    }

    /// Lets running work finish, then drops what is left.
    async fn drain(&mut self) {
        let end = later(Instant::now(), self.shared.settings.drain);
        while let Ok(Some(finished)) = timeout_at(end, self.running.join_next_with_id()).await {
            self.finish(finished).await;
        }
        self.running.abort_all();
        while let Some(finished) = self.running.join_next_with_id().await {
            self.finish(finished).await;
        }
    }
}

/// Claims up to `n` due runs of an executor, and lists what is parked in this handle with the attempts it has had.
async fn claim_due(
    ledger: &dyn RunLedger,
    id: &str,
    n: usize,
    list_anyway: bool,
) -> Result<Vec<(Lease, u32)>, StoreError> {
    let limits = [ExecutorLimits::new(id, n)];
    if ledger.claim_next(n, &limits).await? == 0 && !list_anyway {
        return Ok(Vec::new());
    }
    let parked = ledger.runs(&RunFilter::parked().executor(id)).await?;
    let lease = |run: Run| Some((run.lease?, run.attempts));
    Ok(parked.into_iter().filter_map(lease).collect())
}

/// Processes a claimed run from its row alone, and sees to it that it ends.
async fn process(executor: &dyn UniversalExecutor, lease: &Lease, attempts: u32) -> Processed {
    // Whoever follows the pattern ends a run long before; this one leaves its runs to their leases.
    const BEYOND: u32 = 4;
    if attempts > executor.profile().retry.attempts.saturating_add(BEYOND) {
        let class = FailureClass::CrashLoop;
        let letter = DeadLetter::new(class, "never_ended", attempts);
        let written = end(executor, lease, RunEnd::Failed(letter)).await?;
        return Ok(Outcome::Failed { class, written });
    }
    let outcome = match event_of(executor, lease).await? {
        Some(event) => executor.process_event(&event).await?,
        None => Outcome::Unmatched,
    };
    // Subscriptions may have changed since the run was added, and then nobody has ended it.
    if let Outcome::Unmatched | Outcome::ContextNoted = outcome {
        match end(executor, lease, RunEnd::Skipped("unmatched")).await {
            Ok(_) | Err(ExecutorError::LeaseLost { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(outcome)
}

/// Ends a run that `process_event` did not end.
async fn end(
    executor: &dyn UniversalExecutor,
    lease: &Lease,
    end: RunEnd,
) -> Result<Vec<BreadcrumbId>, ExecutorError> {
    let commit = Commit {
        writes: Vec::new(),
        end: Some((lease.clone(), end)),
    };
    match executor.store().commit(commit).await {
        Ok(committed) => Ok(committed.ids()),
        Err(StoreError::LeaseLost { run }) => Err(ExecutorError::LeaseLost { run }),
        Err(source) => Err(store_error("end the run", source)),
    }
}

/// The event that led to a run. A run that was added by hand keeps none; its breadcrumb tells as much, if it is there.
async fn event_of(
    executor: &dyn UniversalExecutor,
    lease: &Lease,
) -> Result<Option<Arc<Event>>, ExecutorError> {
    let run = &lease.run;
    if let Some(event) = &run.event {
        return Ok(Some(Arc::clone(event)));
    }
    match executor.store().get(run.trigger_id).await {
        Ok(trigger) => Ok(Some(Arc::new(Event {
            version: run.trigger_version,
            ..Event::updated(&trigger)
        }))),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(source) => Err(store_error("read the trigger", source)),
    }
}

fn store_error(operation: &'static str, source: StoreError) -> ExecutorError {
    ExecutorError::Store { operation, source }
}

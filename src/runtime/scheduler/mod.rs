//! Scheduler of the runs on one store: claims runs, starts them concurrently, and releases their leases at the end.

mod claim;
mod finish;
mod release;
mod start;
mod takeover_log;

use super::enqueue::PreparedRuns;
use super::pending_acks::PendingAcks;
use super::process::ReleaseReason;
use super::quota::Quota;
use super::shared::Shared;
use super::store_context::StoreContext;
use crate::clock::later;
use crate::executor::CommitCounter;
use crate::store::{ClaimId, Lease, RunRef};
use claim::Claiming;
use foldhash::fast::RandomState;
use start::{RunTaskResult, RunningTask, StartedRun};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use takeover_log::TakeoverLog;
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};
use tokio::task::{self, JoinSet};
use tokio::time::{Instant, sleep_until};

/// A pending request for a permit to execute a run. It lives across the iterations of the loop, so that the scheduler keeps its position in
/// the queue.
type Acquiring = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// A run lease that the scheduler failed to release.
struct Unreleased {
    lease: Lease,
    reason: ReleaseReason,
    /// The time at which the run's lease expires.
    until: Instant,
}

impl Unreleased {
    fn new((lease, reason): (Lease, ReleaseReason)) -> Self {
        let until = later(Instant::now(), lease.run.lease);
        Self {
            lease,
            reason,
            until,
        }
    }

    /// Returns `true` if the ledger did not answer the heartbeats of the lease.
    fn has_unanswered_heartbeats(&self) -> bool {
        matches!(self.reason, ReleaseReason::HeartbeatsUnanswered { .. })
    }
}

pub(super) struct Scheduler {
    shared: Arc<Shared>,
    store_context: Arc<StoreContext>,
    /// Event deliveries that wait for the end of their runs.
    pending_acks: Arc<PendingAcks>,
    /// Receiver of the runs to be enqueued in the ledger.
    prepared: mpsc::Receiver<PreparedRuns>,
    quotas: HashMap<Arc<str>, Quota>,
    /// Signal for the scheduler, sent when a run starts to commit its response.
    committing: Arc<Notify>,
    /// Executors that may have runs to claim, in the order in which they were queued.
    queued: VecDeque<Arc<str>>,
    /// The times at which executors may have runs to claim. The periodic claim for all executors finds runs whose times are missing here.
    due: BTreeMap<Instant, BTreeSet<Arc<str>>>,
    sweep: Instant,
    /// The claim request for due runs that the ledger has not answered yet. A dropped scheduler completes the request in the background
    /// before it releases its leases.
    claiming: Option<Claiming>,
    /// ID of a claim of due runs, while the ledger has not answered the claim or some of the claimed runs are not started.
    in_doubt: Option<ClaimId>,
    /// Run leases that the scheduler still has to release, for example because a release failed. Leases whose heartbeats the
    /// ledger did not answer are released before the next claim, which would count them as abandoned. The release of other leases
    /// is retried until they expire. The number of leases is bounded by the number of runs in flight.
    unreleased: Vec<Unreleased>,
    /// Time of the next attempt to release the leases whose release failed.
    release_again_at: Instant,
    /// Run leases that the scheduler is releasing: the ledger has not answered yet.
    releasing: Vec<(Lease, ReleaseReason)>,
    running: JoinSet<RunTaskResult>,
    started: HashMap<task::Id, StartedRun, RandomState>,
    /// The running tasks of the scheduler, by run.
    runs: HashMap<RunRef, RunningTask, RandomState>,
    /// Started runs whose earlier worker was lost, collected for the next log line.
    takeovers: TakeoverLog,
    /// If `true`, [`release_all`](Self::release_all) was called for the leases of this scheduler's runs, and further calls have
    /// no effect.
    released: bool,
}

impl Scheduler {
    pub(super) fn new(
        shared: Arc<Shared>,
        pending_acks: Arc<PendingAcks>,
        prepared: mpsc::Receiver<PreparedRuns>,
    ) -> Self {
        Self {
            sweep: later(Instant::now(), shared.settings.sweep),
            shared,
            store_context: Arc::clone(pending_acks.store_context()),
            pending_acks,
            prepared,
            quotas: HashMap::new(),
            committing: Arc::default(),
            queued: VecDeque::new(),
            due: BTreeMap::new(),
            claiming: None,
            in_doubt: None,
            unreleased: Vec::new(),
            release_again_at: Instant::now(),
            releasing: Vec::new(),
            running: JoinSet::new(),
            started: HashMap::default(),
            runs: HashMap::default(),
            takeovers: TakeoverLog::default(),
            released: false,
        }
    }

    /// Claims and processes runs until the runtime stops, then waits for the running runs to end.
    pub(super) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        let (store_context, mut changes) = (
            Arc::clone(&self.store_context),
            self.shared.registry.changes(),
        );
        let committing = Arc::clone(&self.committing);
        let mut acquiring: Option<Acquiring> = None;
        // The ledger may have due runs from an earlier process.
        self.queue_all();
        loop {
            // This comes first, because a branch below that is always ready must not delay due executors.
            self.queue_due(Instant::now());
            if acquiring.is_none() && !self.queued.is_empty() {
                acquiring = Some(Box::pin(Arc::clone(&self.shared).acquire_run_permit()));
            }
            let wake = self.next_due();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = store_context.no_executors.cancelled() => break,
                Some(finished) = self.running.join_next_with_id() => self.finish(finished).await,
                permit = acquired(&mut acquiring), if acquiring.is_some() => {
                    acquiring = None;
                    if let Some(permit) = permit {
                        let prepared = match self.must_release_first() {
                            true => None,
                            false => self.prepared.try_recv().ok(),
                        };
                        self.claim(Some(permit), prepared).await;
                    }
                }
                Some(prepared) = self.prepared.recv() => self.claim(None, Some(prepared)).await,
                () = store_context.due_changed.notified() => {
                    for executor in store_context.take_due() {
                        self.queue(&executor);
                    }
                }
                () = committing.notified() => self.queue_freed(),
                Ok(()) = changes.changed() => self.queue_all(),
                () = sleep_until(wake) => {}
            }
        }
        drop(acquiring);
        self.prepared.close();
        // Without an answer, the enqueuer enqueues these runs itself.
        while self.prepared.try_recv().is_ok() {}
        let (pending_acks, shared) = (Arc::clone(&self.pending_acks), Arc::clone(&self.shared));
        self.drain().await;
        pending_acks.settle_ended(&shared.registry);
    }

    /// Returns `true` if the scheduler must release leases of an earlier claim or attempt before it claims more runs.
    fn must_release_first(&self) -> bool {
        self.in_doubt.is_some()
            || self
                .unreleased
                .iter()
                .any(Unreleased::has_unanswered_heartbeats)
    }

    fn next_due(&self) -> Instant {
        let first = self.due.first_key_value().map(|(due, _)| *due);
        first.map_or(self.sweep, |due| self.sweep.min(due))
    }

    /// Queues all executors of this store for a claim of due runs, and removes the state of removed executors.
    fn queue_all(&mut self) {
        let executors = self.shared.registry.of_store(&self.store_context);
        let (breakers, store_number) = (&self.shared.breakers, self.store_context.number);
        self.quotas.retain(|id, quota| {
            let stays = !quota.is_idle() || executors.binary_search(id).is_ok();
            if !stays {
                breakers.set(store_number, id, None, "removed");
            }
            stays
        });
        for executor in &executors {
            self.queue(executor);
        }
        self.pending_acks.settle_ended(&self.shared.registry);
    }

    /// Queues executors for a claim when some of their runs started to commit. The waiting runs of these executors can start now.
    fn queue_freed(&mut self) {
        let quotas = self.quotas.iter_mut();
        let freed = quotas.filter_map(|(id, quota)| quota.take_freed().then(|| Arc::clone(id)));
        let freed: Vec<Arc<str>> = freed.collect();
        for executor in &freed {
            self.queue(executor);
        }
    }

    /// Queues the executors that are due now for a claim of their runs. At the time of the periodic claim, queues all executors of the
    /// store.
    fn queue_due(&mut self, now: Instant) {
        while let Some(first) = self.due.first_entry().filter(|first| *first.key() <= now) {
            for executor in first.remove() {
                self.queue(&executor);
            }
        }
        if now >= self.sweep {
            self.sweep = later(now, self.shared.settings.sweep);
            self.queue_all();
        }
    }

    /// Queues an executor for a claim of its due runs, unless it is queued already.
    fn queue(&mut self, executor: &Arc<str>) {
        let quota = self.quota(executor);
        if !quota.is_queued {
            quota.is_queued = true;
            self.queued.push_back(Arc::clone(executor));
        }
    }

    /// Schedules an executor to be queued for a claim of its due runs at a moment.
    fn queue_at(&mut self, moment: Instant, executor: Arc<str>) {
        const MAX_MOMENTS: usize = 10_000;
        if self.due.len() < MAX_MOMENTS {
            self.due.entry(moment).or_default().insert(executor);
        }
    }

    fn quota(&mut self, executor: &Arc<str>) -> &mut Quota {
        self.quotas.entry(Arc::clone(executor)).or_insert_with(|| {
            let committing = Arc::clone(&self.committing);
            let commit_permits = Arc::clone(&self.shared.commit_permits);
            Quota::new(
                Instant::now(),
                CommitCounter::new(committing, commit_permits),
            )
        })
    }
}

async fn acquired(acquiring: &mut Option<Acquiring>) -> Option<OwnedSemaphorePermit> {
    match acquiring {
        Some(acquiring) => acquiring.await,
        None => std::future::pending().await,
    }
}

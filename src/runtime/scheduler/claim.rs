//! Claims of due runs from the ledger, and the choice of the executors for each claim.

use super::Scheduler;
use crate::clock::later;
use crate::error::Chain;
use crate::executor::is_suspect;
use crate::runtime::enqueue::PreparedRuns;
use crate::runtime::process::ReleaseReason;
use crate::runtime::quota::StartCapacity;
use crate::runtime::store_context::{Operation, StoreContext};
use crate::runtime::timeouts::{RETRY_PAUSE, with_timeout};
use crate::store::{
    ClaimId, Claimed, Enqueued, ExecutorLimits, Lease, NewRun, RunFilter, StoreError,
};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Maximum number of due runs in one claim from the ledger.
const BATCH: usize = 64;

/// Maximum number of executors in one claim of due runs.
const MAX_EXECUTORS: usize = 256;

impl Scheduler {
    /// Enqueues runs, and claims due runs of the next queued executors, at most one run per free permit.
    pub(super) async fn claim(
        &mut self,
        permit: Option<OwnedSemaphorePermit>,
        prepared: Option<PreparedRuns>,
    ) {
        let (runs, reply) = prepared
            .map(|prepared| (prepared.runs, prepared.reply))
            .unzip();
        let requested = self.next_executors_with(runs.as_deref()).await;
        let permits = self.permits_for(&requested, permit);
        if runs.is_none() && permits.is_empty() {
            self.queue_again(&requested);
            return;
        }
        let requested: Arc<[ExecutorLimits]> = requested.into();
        let (id, since) = (ClaimId::unique(), Instant::now());
        let claims = !permits.is_empty();
        if claims {
            self.in_doubt = Some(id);
        }
        let store_context = Arc::clone(&self.store_context);
        let claim = claim_due(
            Arc::clone(&store_context),
            runs,
            permits.len(),
            Arc::clone(&requested),
            id,
        );
        let claimed = self.claiming.insert(Box::pin(with_timeout(claim))).await;
        self.claiming = None;
        let claimed = match (claimed, reply) {
            (Ok(enqueued), reply) => {
                // The send fails only if the enqueuer has ended, which then enqueues its runs again.
                drop(reply.map(|reply| reply.send(Ok(()))));
                enqueued.claimed
            }
            (Err(error), Some(reply)) => {
                if claims && !matches!(error, StoreError::Unavailable { .. }) {
                    // The ledger refused the new runs, so it has claimed none.
                    self.in_doubt = None;
                }
                drop(reply.send(Err(error)));
                self.queue_again(&requested);
                return;
            }
            (Err(error), None) => Err(error),
        };
        if !claims {
            self.queue_again(&requested);
            return;
        }
        store_context.note_result(Operation::Claim, claimed.is_ok());
        match claimed {
            Ok(claimed) => {
                self.start_or_release(claimed, permits, &requested, since)
                    .await
            }
            Err(error) => {
                tracing::warn!(code = error.code(), error = %Chain(&error), "cannot claim due runs from the run ledger, will retry");
                self.queue_later(&requested);
            }
        }
    }

    fn queue_later(&mut self, requested: &[ExecutorLimits]) {
        let retry_at = later(Instant::now(), RETRY_PAUSE);
        for limits in requested {
            self.queue_at(retry_at, Arc::clone(&limits.executor));
        }
    }

    /// Acquires permits to execute runs: as many as the executors may start, limited by [`BATCH`] and by the free permits.
    fn permits_for(
        &self,
        requested: &[ExecutorLimits],
        permit: Option<OwnedSemaphorePermit>,
    ) -> Vec<OwnedSemaphorePermit> {
        let count = requested
            .iter()
            .fold(0_usize, |count, limits| count.saturating_add(limits.free))
            .min(BATCH);
        let mut permits: Vec<_> = permit.into_iter().take(count).collect();
        permits.extend(self.shared.try_acquire_run_permits(count - permits.len()));
        permits
    }

    /// Returns the next queued executors, including the executors of new runs. New runs do not wait for the release of unreleased leases:
    /// if such leases exist, this method returns no executors, and the new runs are enqueued without a claim.
    async fn next_executors_with(&mut self, new: Option<&[NewRun]>) -> Vec<ExecutorLimits> {
        for new in new.into_iter().flatten() {
            self.queue(&new.run.executor);
        }
        let enqueues_only = new.is_some() && self.must_release_first();
        match !enqueues_only && self.retry_releases().await {
            true => self.next_executors(),
            false => Vec::new(),
        }
    }

    /// Retries the failed releases of run leases. Returns `false` if unreleased leases remain.
    async fn retry_releases(&mut self) -> bool {
        if self.in_doubt.is_none() && self.unreleased.is_empty() {
            return true;
        }
        let is_too_early = Instant::now() < self.release_again_at;
        if !is_too_early {
            let released_all = Box::pin(self.release_remaining()).await;
            if !released_all {
                self.release_again_at = later(Instant::now(), RETRY_PAUSE);
            }
            self.store_context
                .note_result(Operation::Claim, !self.must_release_first());
        }
        let settled = !self.must_release_first();
        if !settled {
            self.postpone_claims(self.release_again_at);
        }
        settled
    }

    /// Starts claimed runs, or releases them if the runtime has stopped.
    async fn start_or_release(
        &mut self,
        claimed: Vec<Claimed>,
        permits: Vec<OwnedSemaphorePermit>,
        requested: &[ExecutorLimits],
        since: Instant,
    ) {
        self.abort_older(&claimed);
        let unstarted = match self.shared.stop.is_cancelled() {
            true => claimed,
            false => {
                let claimed = self.with_one_suspect(claimed).await;
                self.start_all(claimed, permits, requested, since)
            }
        };
        self.in_doubt = None;
        if !unstarted.is_empty() {
            self.release_leases(dropped(unstarted)).await;
        }
    }

    fn queue_again(&mut self, requested: &[ExecutorLimits]) {
        for limits in requested {
            self.queue(&limits.executor);
        }
    }

    /// Postpones the claims of due runs of all executors until a moment.
    fn postpone_claims(&mut self, until: Instant) {
        for executor in std::mem::take(&mut self.queued) {
            self.quota(&executor).is_queued = false;
            self.queue_at(until, executor);
        }
    }

    /// Takes the next executors from the queue of executors that may have due runs. Returns each executor that can start runs now, with the
    /// maximum number of runs.
    fn next_executors(&mut self) -> Vec<ExecutorLimits> {
        let now = Instant::now();
        let mut requested = Vec::new();
        while requested.len() < MAX_EXECUTORS {
            let Some(executor) = self.queued.pop_front() else {
                break;
            };
            let Some(quota) = self.quotas.get_mut(&executor) else {
                continue;
            };
            quota.is_queued = false;
            let Some(member) = self.shared.registry.get(&executor) else {
                continue;
            };
            if member.store_context.number != self.store_context.number {
                continue;
            }
            let max_inflight = self.shared.settings.max_inflight;
            match quota.start_capacity(member.executor.profile(), max_inflight, now) {
                StartCapacity::Runs(free) => requested.push(ExecutorLimits::new(executor, free)),
                StartCapacity::NotBefore(moment) => self.queue_at(moment, executor),
                StartCapacity::Busy => quota.has_more = true,
            }
        }
        requested
    }

    /// Aborts the tasks that hold older leases of claimed runs. A write under an older lease fails.
    fn abort_older(&self, claimed: &[Claimed]) {
        let running = claimed
            .iter()
            .filter_map(|run| self.runs.get(&run.lease.run));
        running.for_each(|running| running.task.abort());
    }

    /// Releases all but one of the claimed runs that may have killed their last workers, because such runs start one at a time. If this
    /// scheduler already executes such a run, all of them are released.
    ///
    /// Runs that lose a worker together are claimed again together. A run that kills its worker must not cost the others their last
    /// lease, so they are released before it starts.
    async fn with_one_suspect(&mut self, mut claimed: Vec<Claimed>) -> Vec<Claimed> {
        let mut one_runs = self.runs.values().any(|running| running.suspect);
        let is_another =
            |run: &mut Claimed| self.is_suspect(run) && std::mem::replace(&mut one_runs, true);
        let others: Vec<Claimed> = claimed.extract_if(.., is_another).collect();
        if !others.is_empty() && !self.postpone_runs(others).await {
            let one = claimed.extract_if(.., |run| self.is_suspect(run));
            let one: Vec<Claimed> = one.collect();
            self.postpone_runs(one).await;
        }
        claimed
    }

    /// Returns `true` if a claimed run may be the cause of the deaths of its last workers.
    fn is_suspect(&self, run: &Claimed) -> bool {
        if run.lease.abandoned == 0 {
            return false;
        }
        let member = self.shared.registry.get(&run.lease.run.executor);
        let profile = member.as_ref().map(|member| member.executor.profile());
        profile.is_some_and(|profile| is_suspect(profile, run.lease.abandoned))
    }

    /// Releases claimed runs, to be due again after [`RETRY_PAUSE`]. Returns `true` if the ledger has released all of them.
    async fn postpone_runs(&mut self, runs: Vec<Claimed>) -> bool {
        let retry_at = later(Instant::now(), RETRY_PAUSE);
        for run in &runs {
            self.queue_at(retry_at, Arc::clone(&run.lease.run.executor));
        }
        let reason = ReleaseReason::Postponed { delay: RETRY_PAUSE };
        let leases = runs.into_iter().map(|run| (run.lease, reason));
        self.release_leases(leases.collect()).await
    }

    /// Starts claimed runs. An executor that may have more due runs keeps its turn. Returns the runs that are not started: their
    /// executor was removed, or no permit is free.
    fn start_all(
        &mut self,
        claimed: Vec<Claimed>,
        permits: Vec<OwnedSemaphorePermit>,
        requested: &[ExecutorLimits],
        since: Instant,
    ) -> Vec<Claimed> {
        let all_permits_used = claimed.len() >= permits.len();
        let mut permits = permits.into_iter();
        let mut started: HashMap<Arc<str>, usize> = HashMap::new();
        let mut unstarted = Vec::new();
        for claimed in claimed {
            let Some(permit) = permits.next() else {
                let retry_at = later(Instant::now(), RETRY_PAUSE);
                self.queue_at(retry_at, Arc::clone(&claimed.lease.run.executor));
                unstarted.push(claimed);
                continue;
            };
            let executor = Arc::clone(&claimed.lease.run.executor);
            match self.start(claimed, since, permit) {
                None => *started.entry(executor).or_default() += 1,
                Some(claimed) => unstarted.push(claimed),
            }
        }
        self.takeovers.log();
        let got = |limits: &&ExecutorLimits| started.get(&limits.executor).copied();
        // Executors that got no run are queued before executors that got one.
        let (served, unserved): (Vec<_>, Vec<_>) =
            requested.iter().partition(|limits| got(limits).is_some());
        if all_permits_used {
            for limits in unserved {
                self.queue(&limits.executor);
            }
        }
        for limits in served {
            if all_permits_used || got(&limits) >= Some(limits.free) {
                self.queue(&limits.executor);
            }
        }
        unstarted
    }
}

/// A claim of due runs that the ledger has not answered yet.
pub(super) type Claiming = Pin<Box<dyn Future<Output = Result<Enqueued, StoreError>> + Send>>;

/// Returns the leases of claimed runs, to release them without an attempt.
pub(super) fn dropped(claimed: Vec<Claimed>) -> Vec<(Lease, ReleaseReason)> {
    let leases = claimed.into_iter().map(|run| run.lease);
    leases
        .map(|lease| (lease, ReleaseReason::Dropped))
        .collect()
}

async fn claim_due(
    store_context: Arc<StoreContext>,
    runs: Option<Vec<NewRun>>,
    n: usize,
    requested: Arc<[ExecutorLimits]>,
    id: ClaimId,
) -> Result<Enqueued, StoreError> {
    match runs {
        Some(runs) => {
            store_context
                .ledger()
                .enqueue_and_claim(runs, n, &requested, id)
                .await
        }
        None => Ok(Enqueued {
            claimed: store_context.ledger().claim_next(n, &requested, id).await,
        }),
    }
}

/// Lists the leases that the ledger granted in a claim, to release them without an attempt.
pub(super) async fn leases_of(
    store_context: &StoreContext,
    id: ClaimId,
) -> Result<Vec<(Lease, ReleaseReason)>, StoreError> {
    let runs = with_timeout(store_context.ledger().runs(&RunFilter::of_claim(id))).await?;
    let leases = runs.into_iter().filter_map(|run| run.lease);
    Ok(leases
        .map(|lease| (lease, ReleaseReason::Dropped))
        .collect())
}

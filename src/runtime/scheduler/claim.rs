//! Claims of due runs from the ledger, and the choice of the executors for each claim.

use super::Scheduler;
use crate::clock::later;
use crate::error::Chain;
use crate::executor::is_suspect;
use crate::runtime::enqueue::PreparedRuns;
use crate::runtime::process::Because;
use crate::runtime::quota::StartCapacity;
use crate::runtime::store_context::{Operation, StoreContext};
use crate::runtime::timeouts::{PAUSE, in_time};
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
const MOST_ASKED: usize = 256;

impl Scheduler {
    /// Enqueues runs, and claims due runs of the executors whose turn it is, at most one run per free permit.
    pub(super) async fn claim(
        &mut self,
        place: Option<OwnedSemaphorePermit>,
        prepared: Option<PreparedRuns>,
    ) {
        let (runs, reply) = prepared
            .map(|prepared| (prepared.runs, prepared.reply))
            .unzip();
        let asked = self.whose_turn_after(runs.as_deref()).await;
        let places = self.places_for(&asked, place);
        if runs.is_none() && places.is_empty() {
            self.heat_again(&asked);
            return;
        }
        let asked: Arc<[ExecutorLimits]> = asked.into();
        let (id, since) = (ClaimId::unique(), Instant::now());
        let claims = !places.is_empty();
        if claims {
            self.in_doubt = Some(id);
        }
        let store_context = Arc::clone(&self.store_context);
        let claim = claim_due(
            Arc::clone(&store_context),
            runs,
            places.len(),
            Arc::clone(&asked),
            id,
        );
        let claimed = self.claiming.insert(Box::pin(in_time(claim))).await;
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
                self.heat_again(&asked);
                return;
            }
            (Err(error), None) => Err(error),
        };
        if !claims {
            self.heat_again(&asked);
            return;
        }
        store_context.note_result(Operation::Claim, claimed.is_ok());
        match claimed {
            Ok(claimed) => self.take(claimed, places, &asked, since).await,
            Err(error) => {
                tracing::warn!(code = error.code(), error = %Chain(&error), "cannot claim due runs from the run ledger, will retry");
                self.heat_later(&asked);
            }
        }
    }

    fn heat_later(&mut self, asked: &[ExecutorLimits]) {
        let again = later(Instant::now(), PAUSE);
        for limits in asked {
            self.heat_at(again, Arc::clone(&limits.executor));
        }
    }

    /// Acquires permits to execute runs: at most one per run that the executors may start, at most [`BATCH`], and at most the free permits.
    fn places_for(
        &self,
        asked: &[ExecutorLimits],
        place: Option<OwnedSemaphorePermit>,
    ) -> Vec<OwnedSemaphorePermit> {
        let wanted = asked
            .iter()
            .fold(0_usize, |wanted, limits| wanted.saturating_add(limits.free))
            .min(BATCH);
        let mut places: Vec<_> = place.into_iter().take(wanted).collect();
        places.extend(self.shared.try_acquire_run_permits(wanted - places.len()));
        places
    }

    /// Returns the executors whose turn to claim runs it is, including the executors of new runs. New runs do not wait for the release of
    /// unsettled leases: if such leases exist, this method returns no executors, and the new runs are enqueued without a claim.
    async fn whose_turn_after(&mut self, new: Option<&[NewRun]>) -> Vec<ExecutorLimits> {
        for new in new.into_iter().flatten() {
            self.heat(&new.run.executor);
        }
        let enqueues_only = new.is_some() && self.is_unsettled();
        match !enqueues_only && self.is_settled().await {
            true => self.whose_turn(),
            false => Vec::new(),
        }
    }

    /// Retries the failed releases of run leases. Returns `false` if unreleased leases remain.
    async fn is_settled(&mut self) -> bool {
        if self.in_doubt.is_none() && self.unreleased.is_empty() {
            return true;
        }
        let is_too_early = Instant::now() < self.settle_again;
        if !is_too_early {
            let released_all = Box::pin(self.settle()).await;
            if !released_all {
                self.settle_again = later(Instant::now(), PAUSE);
            }
            self.store_context
                .note_result(Operation::Claim, !self.is_unsettled());
        }
        let settled = !self.is_unsettled();
        if !settled {
            self.cool(self.settle_again);
        }
        settled
    }

    /// Starts claimed runs, or releases them if the runtime has stopped.
    async fn take(
        &mut self,
        claimed: Vec<Claimed>,
        places: Vec<OwnedSemaphorePermit>,
        asked: &[ExecutorLimits],
        since: Instant,
    ) {
        self.end_older(&claimed);
        let unstarted = match self.shared.stop.is_cancelled() {
            true => claimed,
            false => {
                let claimed = self.with_one_suspect(claimed).await;
                self.start_all(claimed, places, asked, since)
            }
        };
        self.in_doubt = None;
        if !unstarted.is_empty() {
            self.give_back(dropped(unstarted)).await;
        }
    }

    fn heat_again(&mut self, asked: &[ExecutorLimits]) {
        for limits in asked {
            self.heat(&limits.executor);
        }
    }

    /// Postpones the claims of due runs of all executors until a moment.
    fn cool(&mut self, until: Instant) {
        for executor in std::mem::take(&mut self.hot) {
            self.quota(&executor).is_queued = false;
            self.heat_at(until, executor);
        }
    }

    /// Takes the next executors from the queue of executors that may have due runs. Returns each executor that can start runs now, with the
    /// maximum number of runs.
    fn whose_turn(&mut self) -> Vec<ExecutorLimits> {
        let now = Instant::now();
        let mut asked = Vec::new();
        while asked.len() < MOST_ASKED {
            let Some(executor) = self.hot.pop_front() else {
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
            let most = self.shared.settings.max_inflight;
            match quota.start_capacity(member.executor.profile(), most, now) {
                StartCapacity::Runs(free) => asked.push(ExecutorLimits::new(executor, free)),
                StartCapacity::NotBefore(moment) => self.heat_at(moment, executor),
                StartCapacity::Busy => quota.has_more = true,
            }
        }
        asked
    }

    /// Aborts the tasks that hold older leases of claimed runs. A write under an older lease fails.
    fn end_older(&self, claimed: &[Claimed]) {
        let running = claimed
            .iter()
            .filter_map(|run| self.runs.get(&run.lease.run));
        running.for_each(|running| running.task.abort());
    }

    /// Releases all claimed runs that may have killed their last workers, except one. Such suspect runs start one at a time: if this
    /// scheduler already executes a suspect run, all suspect claimed runs are released.
    ///
    /// Runs that lose a worker together are claimed again together. A run that kills its worker must not cost the others their last
    /// lease, so they are released before it starts.
    async fn with_one_suspect(&mut self, mut claimed: Vec<Claimed>) -> Vec<Claimed> {
        let mut one_runs = self.runs.values().any(|running| running.suspect);
        let is_another =
            |run: &mut Claimed| self.is_suspect(run) && std::mem::replace(&mut one_runs, true);
        let others: Vec<Claimed> = claimed.extract_if(.., is_another).collect();
        if !others.is_empty() && !self.put_off(others).await {
            let one = claimed.extract_if(.., |run| self.is_suspect(run));
            let one: Vec<Claimed> = one.collect();
            self.put_off(one).await;
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

    /// Releases claimed runs, to be due again after [`PAUSE`]. Returns `true` if the ledger has released all of them.
    async fn put_off(&mut self, runs: Vec<Claimed>) -> bool {
        let again = later(Instant::now(), PAUSE);
        for run in &runs {
            self.heat_at(again, Arc::clone(&run.lease.run.executor));
        }
        let because = Because::NotNow { delay: PAUSE };
        let leases = runs.into_iter().map(|run| (run.lease, because));
        self.give_back(leases.collect()).await
    }

    /// Starts claimed runs. An executor that may have more due runs keeps its turn. Returns the runs that are not started: their
    /// executor was removed, or no permit is free.
    fn start_all(
        &mut self,
        claimed: Vec<Claimed>,
        places: Vec<OwnedSemaphorePermit>,
        asked: &[ExecutorLimits],
        since: Instant,
    ) -> Vec<Claimed> {
        let all_places_taken = claimed.len() >= places.len();
        let mut places = places.into_iter();
        let mut started: HashMap<Arc<str>, usize> = HashMap::new();
        let mut unstarted = Vec::new();
        for claimed in claimed {
            let Some(place) = places.next() else {
                let again = later(Instant::now(), PAUSE);
                self.heat_at(again, Arc::clone(&claimed.lease.run.executor));
                unstarted.push(claimed);
                continue;
            };
            let executor = Arc::clone(&claimed.lease.run.executor);
            match self.start(claimed, since, place) {
                None => *started.entry(executor).or_default() += 1,
                Some(claimed) => unstarted.push(claimed),
            }
        }
        self.taken_over.log();
        let got = |limits: &&ExecutorLimits| started.get(&limits.executor).copied();
        // Executors that got no run are queued before executors that got one.
        let (served, unserved): (Vec<_>, Vec<_>) =
            asked.iter().partition(|limits| got(limits).is_some());
        if all_places_taken {
            for limits in unserved {
                self.heat(&limits.executor);
            }
        }
        for limits in served {
            if all_places_taken || got(&limits) >= Some(limits.free) {
                self.heat(&limits.executor);
            }
        }
        unstarted
    }
}

/// A claim of due runs that the ledger has not answered yet.
pub(super) type Claiming = Pin<Box<dyn Future<Output = Result<Enqueued, StoreError>> + Send>>;

/// Returns the leases of claimed runs, to release them without an attempt.
pub(super) fn dropped(claimed: Vec<Claimed>) -> Vec<(Lease, Because)> {
    let leases = claimed.into_iter().map(|run| run.lease);
    leases.map(|lease| (lease, Because::Dropped)).collect()
}

async fn claim_due(
    store_context: Arc<StoreContext>,
    runs: Option<Vec<NewRun>>,
    n: usize,
    asked: Arc<[ExecutorLimits]>,
    id: ClaimId,
) -> Result<Enqueued, StoreError> {
    match runs {
        Some(runs) => {
            store_context
                .ledger()
                .enqueue_and_claim(runs, n, &asked, id)
                .await
        }
        None => Ok(Enqueued {
            claimed: store_context.ledger().claim_next(n, &asked, id).await,
        }),
    }
}

/// Lists the leases that the ledger granted in a claim, to release them without an attempt.
pub(super) async fn leases_of(
    store_context: &StoreContext,
    id: ClaimId,
) -> Result<Vec<(Lease, Because)>, StoreError> {
    let runs = in_time(store_context.ledger().runs(&RunFilter::of_claim(id))).await?;
    let leases = runs.into_iter().filter_map(|run| run.lease);
    Ok(leases.map(|lease| (lease, Because::Dropped)).collect())
}

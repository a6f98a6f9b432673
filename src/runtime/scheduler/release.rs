//! Release of the leases of all runs when a scheduler ends.

use super::Scheduler;
use super::claim::{Claiming, dropped, leases_of};
use super::start::{RunTaskResult, StartedRun};
use crate::bugs::planted;
use crate::error::Chain;
use crate::runtime::process::{self, ReleaseReason};
use crate::runtime::store_context::StoreContext;
use crate::store::{ClaimId, Enqueued, Lease};
use foldhash::fast::RandomState;
use futures::stream::{FuturesUnordered, StreamExt as _};
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::{self, JoinError, JoinHandle, JoinSet};

/// The run leases that an ending scheduler leaves behind, and the tasks that may still use these leases.
struct RemainingLeases {
    store_context: Arc<StoreContext>,
    running: JoinSet<RunTaskResult>,
    started: HashMap<task::Id, StartedRun, RandomState>,
    releasing: Vec<(Lease, ReleaseReason)>,
    /// The claim of due runs that the ledger has not answered yet.
    claiming: Option<Claiming>,
    in_doubt: Option<ClaimId>,
}

/// Result of a release of leases in the background: the unreleased leases, and the claim whose leases could not be listed.
pub(super) struct ReleaseOutcome {
    pub(super) unreleased: Vec<(Lease, ReleaseReason)>,
    pub(super) in_doubt: Option<ClaimId>,
}

impl Scheduler {
    /// Releases the leases of all runs of this scheduler in the background. Returns `None` if there are no leases, or outside a tokio
    /// runtime.
    pub(super) fn release_all(&mut self) -> Option<JoinHandle<ReleaseOutcome>> {
        if mem::replace(&mut self.released, true) || planted("drop-at-drain") {
            return None;
        }
        let (running, started) = (mem::take(&mut self.running), mem::take(&mut self.started));
        self.release_in_background(running, started)
    }

    /// Releases the leases of runs that the scheduler has not started, in the background.
    pub(super) fn release_unstarted(&mut self) -> Option<JoinHandle<ReleaseOutcome>> {
        match planted("drop-at-drain") {
            true => None,
            false => self.release_in_background(JoinSet::new(), HashMap::default()),
        }
    }

    fn release_in_background(
        &mut self,
        running: JoinSet<RunTaskResult>,
        started: HashMap<task::Id, StartedRun, RandomState>,
    ) -> Option<JoinHandle<ReleaseOutcome>> {
        let mut releasing = mem::take(&mut self.releasing);
        let unreleased = mem::take(&mut self.unreleased).into_iter();
        releasing.extend(unreleased.map(|one| (one.lease, one.reason)));
        let remaining = RemainingLeases {
            store_context: Arc::clone(&self.store_context),
            running,
            started,
            releasing,
            claiming: self.claiming.take(),
            in_doubt: self.in_doubt.take(),
        };
        if remaining.is_empty() {
            return None;
        }
        Some(Handle::try_current().ok()?.spawn(remaining.release()))
    }
}

/// Releases the leases in the background when [`run_until`](crate::Runtime::run_until) is dropped. Otherwise each drop
/// would count as a crash of the running work.
impl Drop for Scheduler {
    fn drop(&mut self) {
        self.release_all();
    }
}

impl RemainingLeases {
    fn is_empty(&self) -> bool {
        self.in_doubt.is_none() && self.started.is_empty() && self.releasing.is_empty()
    }

    async fn release(self) -> ReleaseOutcome {
        let store_context = &*self.store_context;
        let releasing = process::try_release_all(store_context, &self.releasing);
        let of_claim = release_claim(store_context, self.claiming, self.in_doubt);
        let tasks = release_of_tasks(store_context, self.running, self.started);
        let (mut unreleased, (of_claim, in_doubt), ()) = tokio::join!(releasing, of_claim, tasks);
        unreleased.extend(of_claim);
        ReleaseOutcome {
            unreleased,
            in_doubt,
        }
    }
}

/// Releases the leases of a claim that the ledger did not answer. Returns the unreleased leases, and the claim if its leases are unknown.
async fn release_claim(
    store_context: &StoreContext,
    claiming: Option<Claiming>,
    in_doubt: Option<ClaimId>,
) -> (Vec<(Lease, ReleaseReason)>, Option<ClaimId>) {
    let Some(id) = in_doubt else {
        return (Vec::new(), None);
    };
    let listed = release_listed(store_context, id).await;
    // The claim in flight may hang, and may have leased runs before or after the list was read.
    let Some(claiming) = claiming else {
        return listed;
    };
    match claiming.await {
        Ok(Enqueued {
            claimed: Ok(claimed),
        }) => (
            process::try_release_all(store_context, &dropped(claimed)).await,
            None,
        ),
        Ok(Enqueued { claimed: Err(_) }) | Err(_) => release_listed(store_context, id).await,
    }
}

/// Releases the leases that the ledger lists for a claim of runs.
async fn release_listed(
    store_context: &StoreContext,
    id: ClaimId,
) -> (Vec<(Lease, ReleaseReason)>, Option<ClaimId>) {
    match leases_of(store_context, id).await {
        Ok(leases) => (process::try_release_all(store_context, &leases).await, None),
        Err(error) => {
            tracing::warn!(code = error.code(), error = %Chain(&error), "cannot list the leases of a stopping worker; their runs wait until the leases expire");
            (Vec::new(), Some(id))
        }
    }
}

/// Aborts the tasks of runs, and releases the leases of each task after the end of the task.
async fn release_of_tasks(
    store_context: &StoreContext,
    mut running: JoinSet<RunTaskResult>,
    mut started: HashMap<task::Id, StartedRun, RandomState>,
) {
    let mut releasing = FuturesUnordered::new();
    running.abort_all();
    loop {
        tokio::select! {
            Some(finished) = running.join_next_with_id() => {
                let id = finished.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
                if let Some(started) = started.remove(&id) {
                    started.scope.release_permit();
                    let leases = started.leases().into_iter();
                    releasing.extend(leases.map(|lease| {
                        process::try_release(store_context, lease, ReleaseReason::Dropped)
                    }));
                }
            }
            Some(_) = releasing.next() => {}
            else => return,
        }
    }
}

impl StartedRun {
    /// Returns the leases to release after the early end of a run's task: the leases of nested runs, and the lease of the task's run. An
    /// at-most-once run keeps its lease once `execute` was called, or may have been called under an earlier lease. Its outcome is unknown,
    /// and the next claim of a released run could execute it again.
    pub(super) fn leases(&self) -> Vec<Lease> {
        let own = self.scope.lease();
        let is_free = !self.at_most_once || (self.scope.is_unused() && !own.may_have_executed);
        let own = is_free.then_some(own);
        self.scope.nested_leases().into_iter().chain(own).collect()
    }

    /// Returns the leases to release after the ledger did not answer the heartbeats of a run. Each lease has the reason for its release.
    pub(super) fn unanswered_leases(&self) -> Vec<(Lease, ReleaseReason)> {
        let leases = self.leases().into_iter();
        let reason = |lease: &Lease| {
            let is_own = lease.run == self.run && lease.token == self.token;
            ReleaseReason::HeartbeatsUnanswered {
                executed: !is_own || !self.scope.is_unused(),
            }
        };
        leases
            .map(|lease| (lease.clone(), reason(&lease)))
            .collect()
    }
}

//! Start of the runs that a scheduler has claimed.

use super::Scheduler;
use crate::error::Chain;
use crate::executor::{Execution, Outcome, PendingClaim, RunScope, in_scope, is_suspect};
use crate::runtime::limits::{Ticket, trigger_of};
use crate::runtime::metrics;
use crate::runtime::process::{self, Processed, ReleaseReason};
use crate::runtime::registry::Member;
use crate::runtime::shared::Shared;
use crate::runtime::store_context::StoreContext;
use crate::runtime::timeouts::RETRY_PAUSE;
use crate::store::{Claimed, Lease, RunRef};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// A run whose task was started.
pub(super) struct StartedRun {
    pub(super) executor: Arc<str>,
    pub(super) run: RunRef,
    /// Fencing token of the lease with which the run's task was started.
    pub(super) token: u64,
    pub(super) scope: Arc<RunScope>,
    /// Permission of the executor's circuit breaker to start the run. `None` if the run was postponed.
    pub(super) ticket: Option<Ticket>,
    pub(super) ordered: bool,
    pub(super) at_most_once: bool,
    pub(super) started_at: Instant,
}

pub(super) struct RunningTask {
    pub(super) task: AbortHandle,
    /// If `true`, the last workers that held this run died, so the run may be the cause.
    pub(super) suspect: bool,
}

/// Result of a scheduler's task for one run.
pub(super) enum RunTaskResult {
    Processed {
        processed: Processed,
        /// The run's lease, if the scheduler failed to release the lease.
        unreleased: Option<(Lease, ReleaseReason)>,
    },
    /// The scheduler released the run's lease before the run's attempt started.
    NotStarted {
        /// The run's lease, if the scheduler failed to release the lease.
        unreleased: Option<(Lease, ReleaseReason)>,
    },
}

impl Scheduler {
    /// Starts a claimed run. `since` is the time at which the claim was sent. Returns the run if its executor was removed or moved
    /// since the claim, so that the caller releases it unchanged.
    pub(super) fn start(
        &mut self,
        claimed: Claimed,
        since: Instant,
        permit: OwnedSemaphorePermit,
    ) -> Option<Claimed> {
        let (lease, attempts) = (claimed.lease.clone(), claimed.attempt);
        let id = Arc::clone(&lease.run.executor);
        let is_here = |member: &Member| member.store_context.number == self.store_context.number;
        let Some(member) = self.shared.registry.get(&id).filter(is_here) else {
            return Some(claimed);
        };
        let now = Instant::now();
        let is_retry = attempts > 1 && lease.abandoned == 0;
        let ticket = self.quota(&id).start(is_retry, trigger_of(&lease.run), now);
        let suspect = ticket.is_ok() && self.note_losses(&member, &lease, attempts);
        if let Err(moment) = ticket {
            self.queue_at(moment, Arc::clone(&id));
        }
        self.store_context.wakes.remove(&lease.run);
        let profile = member.executor.profile();
        let permits = Arc::clone(&self.shared.run_permits);
        let pending_claim = PendingClaim { claimed, since };
        let settings = self.shared.settings;
        let commits = self.quota(&id).commits(profile, settings);
        let scope = self
            .store_context
            .scope(pending_claim, permits, permit, commits);
        let scope = Arc::new(scope);
        let started = StartedRun {
            executor: Arc::clone(&id),
            run: lease.run.clone(),
            token: lease.token,
            scope: Arc::clone(&scope),
            ticket: ticket.ok(),
            ordered: lease.run.order.is_some(),
            at_most_once: profile.execution == Execution::AtMostOnce,
            started_at: now,
        };
        let committed = lease.run.event.as_ref().map(|event| event.updated_at);
        let lag = lease
            .granted_at
            .since(committed.unwrap_or(lease.granted_at));
        metrics::started(&id, lag);
        let (shared, store) = (Arc::clone(&self.shared), Arc::clone(&self.store_context));
        let task = match ticket {
            Ok(_) => {
                let work =
                    process_or_release(shared, store, member, lease, attempts, Arc::clone(&scope));
                // Boxed, because each wrapper would contain the future twice: as an argument, and as the future that it polls.
                let work = Box::pin(work);
                let work = Arc::clone(&self.shared).watched(Arc::clone(&id), in_scope(scope, work));
                self.running.spawn(work)
            }
            Err(moment) => {
                let delay = moment.saturating_duration_since(now);
                self.running.spawn(postpone(store, lease, delay, scope))
            }
        };
        let running = RunningTask {
            task: task.clone(),
            suspect,
        };
        self.runs.insert(started.run.clone(), running);
        self.started.insert(task.id(), started);
        None
    }

    /// Records, for the next log line about lost workers, that a run starts. Returns `true` if the run may be the cause of the
    /// deaths of its last workers.
    fn note_losses(&mut self, member: &Member, lease: &Lease, attempt: u32) -> bool {
        let suspect = is_suspect(member.executor.profile(), lease.abandoned);
        self.takeovers.note(lease, attempt, suspect);
        suspect
    }
}

/// Releases the lease of a run that must not start before a delay has passed.
async fn postpone(
    store_context: Arc<StoreContext>,
    lease: Lease,
    delay: Duration,
    scope: Arc<RunScope>,
) -> RunTaskResult {
    let unreleased =
        process::try_release(&store_context, lease, ReleaseReason::Postponed { delay }).await;
    scope.release_permit();
    RunTaskResult::NotStarted { unreleased }
}

/// Processes a claimed run. Releases the run if no executor of this runtime may process the run.
async fn process_or_release(
    shared: Arc<Shared>,
    store_context: Arc<StoreContext>,
    member: Member,
    lease: Lease,
    attempts: u32,
    scope: Arc<RunScope>,
) -> RunTaskResult {
    let reason = match process::executor_for(&shared, member, &lease).await {
        Ok(Some(member)) => {
            scope.record_begin();
            let processed =
                process::process(&store_context, &*member.executor, &lease, attempts).await;
            scope.release_permit();
            let mut unreleased = None;
            let never_began = matches!(
                processed,
                Err(_) | Ok(Outcome::InProgress { .. } | Outcome::Paused { .. })
            );
            if never_began && !scope.was_taken() {
                // The executor did not start, so no other code releases the lease.
                let reason = ReleaseReason::Postponed { delay: RETRY_PAUSE };
                unreleased = process::try_release(&store_context, lease, reason).await;
            }
            return RunTaskResult::Processed {
                processed,
                unreleased,
            };
        }
        Ok(None) => ReleaseReason::Dropped,
        Err(error) => {
            tracing::warn!(run = %lease.run, code = error.code(), error = %Chain(&error), "cannot read the definition of a run's executor, will retry the run");
            ReleaseReason::Postponed { delay: RETRY_PAUSE }
        }
    };
    let unreleased = process::try_release(&store_context, lease, reason).await;
    scope.release_permit();
    RunTaskResult::NotStarted { unreleased }
}

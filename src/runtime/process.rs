//! Processing of one claimed run to its end, and the release of the leases of runs.

use super::registry::Member;
use super::shared::Shared;
use super::store_context::StoreContext;
use super::timeouts::with_timeout;
use crate::error::{Chain, Retry};
use crate::executor::{
    ExecutorError, NEVER_ENDED, Outcome, UniversalExecutor, give_up, log_dead_letter, never_ended,
    transfer_or_skip,
};
use crate::model::{BreadcrumbId, Event, EventKind, Route, Timestamp};
use crate::store::{Commit, DeadLetter, FailureClass, Lease, RunEnd, RunLedger, StoreError};
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;

pub(super) type Processed = Result<Outcome, ExecutorError>;

/// Returns the executor that processes a claimed run, or `None` if no executor of this runtime may process the run.
///
/// Workers load a new definition at different times, and another worker with a newer definition may have enqueued this run. So
/// the definition is read again before its executor ends the run as unmatched.
pub(super) async fn executor_for(
    shared: &Shared,
    member: Member,
    lease: &Lease,
) -> Result<Option<Member>, StoreError> {
    let (Some(loader), Some(definition)) = (&shared.definition_loader, member.definition) else {
        return Ok(Some(member));
    };
    if with_timeout(matches_trigger(&*member.executor, lease)).await? {
        return Ok(Some(member));
    }
    // Boxed, because this rare call would enlarge the future of each run.
    Box::pin(loader.refresh(&shared.registry, definition)).await?;
    let current = shared.registry.get(member.executor.id());
    Ok(current.filter(|current| current.store_context.number == member.store_context.number))
}

/// Returns `true` if the trigger of a claimed run matches the current subscriptions of its executor.
async fn matches_trigger(
    executor: &dyn UniversalExecutor,
    lease: &Lease,
) -> Result<bool, StoreError> {
    let subscriptions = executor.subscriptions();
    if let Some(event) = &lease.run.event {
        match subscriptions.route(event) {
            Route::Trigger { .. } => return Ok(true),
            Route::Unmatched | Route::Context => return Ok(false),
            Route::NeedsContext => {}
        }
    }
    let trigger = match executor.store().get(lease.run.trigger_id).await {
        Ok(trigger) => trigger,
        Err(StoreError::NotFound {
            tombstone: Some(tombstone),
            ..
        }) => tombstone,
        // The trigger is gone for every version of the executor.
        Err(StoreError::NotFound { .. }) => return Ok(true),
        Err(error) => return Err(error),
    };
    let kind = kind_of(lease, trigger.version);
    let route = subscriptions.route_breadcrumb(kind, &trigger);
    Ok(matches!(route, Route::Trigger { .. }))
}

/// Processes a claimed run to its end.
pub(super) async fn process(
    store_context: &StoreContext,
    executor: &dyn UniversalExecutor,
    lease: &Lease,
    attempts: u32,
) -> Processed {
    // An executor ends a run within its configured attempts, unless workers are lost or leases expire. `EXTRA_ATTEMPTS` attempts later,
    // the runtime gives up the run and answers the requester. After another `EXTRA_ATTEMPTS` attempts, it ends the run without an answer.
    const EXTRA_ATTEMPTS: u32 = 4;
    let limit = executor
        .profile()
        .retry
        .attempts
        .saturating_add(EXTRA_ATTEMPTS);
    if attempts > limit {
        let may_answer = attempts <= limit.saturating_add(EXTRA_ATTEMPTS);
        if may_answer && let Some(event) = event_of(executor, lease).await? {
            return give_up(executor, &event).await;
        }
        let class = FailureClass::CrashLoop;
        let mut letter = DeadLetter::new(class, NEVER_ENDED, attempts);
        let cause = never_ended(attempts);
        letter.cause = Some(cause.clone());
        let written = end(store_context, lease, RunEnd::Failed(letter)).await?;
        log_dead_letter(&lease.run, class, NEVER_ENDED, &cause);
        return Ok(Outcome::Failed { class, written });
    }
    let outcome = match event_of(executor, lease).await? {
        Some(event) => executor.process_event(&event).await?,
        None => Outcome::Unmatched,
    };
    // Subscriptions may have changed since the run was enqueued, and then the executor has not ended the run.
    if let Outcome::Unmatched | Outcome::ContextNoted = outcome {
        match transfer_unmatched(store_context, executor, lease).await {
            Ok(()) | Err(StoreError::LeaseLost { .. }) => {}
            Err(error) => {
                let operation = "transfer the run to another version";
                return Err(ExecutorError::of_store(operation, error));
            }
        }
    }
    Ok(outcome)
}

/// Transfers a run to another version of its executor that matches the run's trigger. Without such a version, ends the run as skipped.
async fn transfer_unmatched(
    store_context: &StoreContext,
    executor: &dyn UniversalExecutor,
    lease: &Lease,
) -> Result<(), StoreError> {
    let trigger = match executor.store().get(lease.run.trigger_id).await {
        Ok(trigger) => Some(trigger),
        Err(StoreError::NotFound { tombstone, .. }) => tombstone,
        Err(error) => return Err(error),
    };
    let trigger = trigger.as_deref();
    let trigger = trigger.map(|trigger| (kind_of(lease, trigger.version), trigger));
    transfer_or_skip(executor, store_context.runs(), lease, trigger).await
}

/// Returns the kind of breadcrumb change that triggered a run, for example a creation or an update.
fn kind_of(lease: &Lease, version: u64) -> EventKind {
    match &lease.run.event {
        Some(event) => event.effective_kind(),
        None if version > 1 => EventKind::Updated,
        None => EventKind::Created,
    }
}

/// Returns the outcome of an attempt of a run as a metric label.
pub(super) const fn label(processed: &Processed) -> &'static str {
    match processed {
        Ok(outcome) => outcome.name(),
        Err(ExecutorError::Postponed { .. }) => "postponed",
        Err(_) => "error",
    }
}

/// The reason for the release of a run's lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ReleaseReason {
    /// The task of the run was dropped. The run is due again immediately.
    Dropped,
    /// The task of the run panicked. The run is due again when its lease would have expired.
    Panicked,
    /// The ledger did not answer the heartbeats in time. The worker is alive, so the lease does not count as abandoned.
    HeartbeatsUnanswered {
        /// If `true`, the executor's `execute` was called, and the attempt is used up.
        executed: bool,
    },
    /// The run did not start, for example because of the retry budget, the circuit breaker or an unreadable definition.
    Postponed {
        /// Delay after which the released run is due again, counted from the claim.
        delay: Duration,
    },
}

/// Releases the lease of a run that its executor did not end. Succeeds if the lease is lost, because then the run has ended or
/// another worker has claimed it.
pub(super) async fn release(
    store_context: &StoreContext,
    lease: Lease,
    reason: ReleaseReason,
) -> Result<(), StoreError> {
    let ledger = store_context.ledger();
    let (expires_at, granted_at) = (lease.until, lease.granted_at);
    let released = match reason {
        ReleaseReason::Dropped => with_timeout(ledger.release(lease)).await,
        ReleaseReason::Panicked => {
            let cause = Some("the task of the run panicked");
            with_timeout(ledger.retry(lease, expires_at, true, cause)).await
        }
        ReleaseReason::HeartbeatsUnanswered { executed } => {
            with_timeout(release_unanswered(
                ledger,
                lease,
                executed.then_some(granted_at),
            ))
            .await
        }
        ReleaseReason::Postponed { delay } => {
            with_timeout(ledger.retry(lease, granted_at + delay, false, None)).await
        }
    };
    match released {
        Ok(()) | Err(StoreError::LeaseLost { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Releases a lease whose heartbeats the ledger did not answer. With `retry_at`, the attempt counts, and the run is due again at that time.
/// If another worker has claimed the run, a heartbeat informs the ledger that this worker is alive.
async fn release_unanswered(
    ledger: &dyn RunLedger,
    lease: Lease,
    retry_at: Option<Timestamp>,
) -> Result<(), StoreError> {
    let cause = Some("the ledger did not answer the heartbeats of the worker in time");
    let released = match retry_at {
        Some(at) => ledger.retry(lease.clone(), at, true, cause).await,
        None => ledger.release(lease.clone()).await,
    };
    match released {
        Err(StoreError::LeaseLost { .. }) => ledger.heartbeat(&[lease]).await.map(drop),
        released => released,
    }
}

/// Releases the lease of a run that its executor did not end. Returns the lease if the release failed and a retry can succeed.
pub(super) async fn try_release(
    store_context: &StoreContext,
    lease: Lease,
    reason: ReleaseReason,
) -> Option<(Lease, ReleaseReason)> {
    let error = release(store_context, lease.clone(), reason).await.err()?;
    tracing::warn!(run = %lease.run, code = error.code(), error = %Chain(&error), "cannot release the lease of a run; the run waits until a retry succeeds or the lease expires");
    match error.retry() {
        Retry::After(_) => Some((lease, reason)),
        Retry::Never => None,
    }
}

/// Releases the leases of runs concurrently. Returns the leases whose release failed and that a retry can release.
pub(super) async fn try_release_all(
    store_context: &StoreContext,
    runs: &[(Lease, ReleaseReason)],
) -> Vec<(Lease, ReleaseReason)> {
    let release_one = |(lease, reason): &(Lease, ReleaseReason)| {
        try_release(store_context, lease.clone(), *reason)
    };
    let unreleased = join_all(runs.iter().map(release_one)).await;
    unreleased.into_iter().flatten().collect()
}

/// Commits the end of a run that the runtime ends itself, without a call of the executor.
async fn end(
    store_context: &StoreContext,
    lease: &Lease,
    end: RunEnd,
) -> Result<Vec<BreadcrumbId>, ExecutorError> {
    let commit = Commit {
        writes: Vec::new(),
        end: Some((lease.clone(), end)),
    };
    let committed = store_context.runs().commit(commit).await;
    committed
        .map(|committed| committed.ids())
        .map_err(|error| ExecutorError::of_store("end the run", error))
}

/// Returns the event that triggered a run. A run that was added manually has no stored event, so the event is derived from its breadcrumb.
/// Returns `None` if the breadcrumb is missing.
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
        Err(error) => Err(ExecutorError::of_store("read the trigger", error)),
    }
}

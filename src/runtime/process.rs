//! One run: into the ledger, from its row to its end, and back.

use super::registry::Member;
use super::shared::Shared;
use super::store_context::StoreContext;
use super::timeouts::in_time;
use crate::error::{Chain, Retry};
use crate::executor::{
    ExecutorError, NEVER_ENDED, Outcome, UniversalExecutor, give_up, leave_unmatched,
    log_dead_letter, never_ended,
};
use crate::model::{BreadcrumbId, Event, EventKind, Route, Timestamp};
use crate::store::{Commit, DeadLetter, FailureClass, Lease, RunEnd, RunLedger, StoreError};
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;

pub(super) type Processed = Result<Outcome, ExecutorError>;

/// Who processes a claimed run; none if nobody here may.
///
/// Workers hear of a definition at different times: a run may be here because another one knows a newer definition.
/// So a definition is read again before its executor ends a run as none of its concern.
pub(super) async fn whose(
    shared: &Shared,
    member: Member,
    lease: &Lease,
) -> Result<Option<Member>, StoreError> {
    let (Some(keeper), Some(definition)) = (&shared.keeper, member.definition) else {
        return Ok(Some(member));
    };
    if in_time(is_set_off(&*member.executor, lease)).await? {
        return Ok(Some(member));
    }
    // What is rare is boxed, so that it takes no room in the future of what is common.
    Box::pin(keeper.look_at(&shared.registry, definition)).await?;
    let now = shared.registry.get(member.executor.id());
    Ok(now.filter(|now| now.store_context.number == member.store_context.number))
}

/// Whether a run is its executor's concern, as it will find when it reads the trigger.
async fn is_set_off(executor: &dyn UniversalExecutor, lease: &Lease) -> Result<bool, StoreError> {
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
        // It is gone, whoever asks.
        Err(StoreError::NotFound { .. }) => return Ok(true),
        Err(error) => return Err(error),
    };
    let kind = kind_of(lease, trigger.version);
    let route = subscriptions.route_breadcrumb(kind, &trigger);
    Ok(matches!(route, Route::Trigger { .. }))
}

/// Processes a claimed run from its row alone, and sees to it that it ends.
pub(super) async fn process(
    store_context: &StoreContext,
    executor: &dyn UniversalExecutor,
    lease: &Lease,
    attempts: u32,
) -> Processed {
    // Whoever follows the pattern ends a run long before, unless worker after worker is lost; or leaves its runs to their
    // leases. So often it is tried to tell whoever asked, and then it ends without that.
    const BEYOND: u32 = 4;
    let limit = executor.profile().retry.attempts.saturating_add(BEYOND);
    if attempts > limit {
        let may_tell = attempts <= limit.saturating_add(BEYOND);
        if may_tell && let Some(event) = event_of(executor, lease).await? {
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
    // Subscriptions may have changed since the run was added, and then nobody has ended it.
    if let Outcome::Unmatched | Outcome::ContextNoted = outcome {
        match leave(store_context, executor, lease).await {
            Ok(()) | Err(StoreError::LeaseLost { .. }) => {}
            Err(error) => {
                let operation = "transfer the run to another version";
                return Err(ExecutorError::of_store(operation, error));
            }
        }
    }
    Ok(outcome)
}

/// Transfers an unclaimed run to a version of its executor that matches the trigger, else ends it as skipped.
async fn leave(
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
    leave_unmatched(executor, store_context.runs(), lease, trigger).await
}

/// Returns the kind of event that enqueued a run.
fn kind_of(lease: &Lease, version: u64) -> EventKind {
    match &lease.run.event {
        Some(event) => event.effective_kind(),
        None if version > 1 => EventKind::Updated,
        None => EventKind::Created,
    }
}

/// How an attempt ended, as a label.
pub(super) const fn label(processed: &Processed) -> &'static str {
    match processed {
        Ok(outcome) => outcome.name(),
        Err(ExecutorError::Postponed { .. }) => "postponed",
        Err(_) => "error",
    }
}

/// Why a run is given back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Because {
    /// Its task was dropped: it can go on at once.
    Dropped,
    /// Its task panicked: it waits until its lease would have been over.
    Panicked,
    /// The ledger did not answer the heartbeats in time. The worker lives, so no abandoned lease counts.
    Silence {
        /// `true` if `execute` was called. Then the attempt counts.
        executed: bool,
    },
    /// It was not begun: too much of its executor's traffic is retries, or its definition could not be read.
    NotNow {
        /// When it may be.
        delay: Duration,
    },
}

/// Releases the lease of a run that its executor did not end. Succeeds if the lease is lost: the run ended before its task,
/// or another worker has it.
pub(super) async fn release(
    store_context: &StoreContext,
    lease: Lease,
    because: Because,
) -> Result<(), StoreError> {
    let ledger = store_context.ledger();
    let (over, granted) = (lease.until, lease.granted_at);
    let released = match because {
        Because::Dropped => in_time(ledger.release(lease)).await,
        Because::Panicked => {
            let cause = Some("the task of the run panicked");
            in_time(ledger.retry(lease, over, true, cause)).await
        }
        Because::Silence { executed } => {
            in_time(return_late(ledger, lease, executed.then_some(granted))).await
        }
        Because::NotNow { delay } => {
            in_time(ledger.retry(lease, granted + delay, false, None)).await
        }
    };
    match released {
        Ok(()) | Err(StoreError::LeaseLost { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Releases a lease without heartbeats: as if it had not been claimed, or after an attempt, to be retried at a time. If another
/// claim took the run over, the ledger learns that this worker lives.
async fn return_late(
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

/// Releases the lease of a run that its executor did not end. Returns the lease if a retry can succeed.
pub(super) async fn give_back(
    store_context: &StoreContext,
    lease: Lease,
    because: Because,
) -> Option<(Lease, Because)> {
    let error = release(store_context, lease.clone(), because).await.err()?;
    tracing::warn!(run = %lease.run, code = error.code(), error = %Chain(&error), "cannot release the lease of a run");
    match error.retry() {
        Retry::After(_) => Some((lease, because)),
        Retry::Never => None,
    }
}

/// Releases leases concurrently. Returns the leases that a retry can release.
pub(super) async fn give_all_back(
    store_context: &StoreContext,
    runs: &[(Lease, Because)],
) -> Vec<(Lease, Because)> {
    let back =
        |(lease, because): &(Lease, Because)| give_back(store_context, lease.clone(), *because);
    let given_back = join_all(runs.iter().map(back)).await;
    given_back.into_iter().flatten().collect()
}

/// Ends a run that `process_event` did not end.
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
        Err(error) => Err(ExecutorError::of_store("read the trigger", error)),
    }
}

//! One run: into the ledger, from its row to its end, and back.

use super::home::Home;
use super::roster::Roster;
use super::shared::in_time;
use super::station::Arrival;
use crate::executor::{ExecutorError, Outcome, UniversalExecutor, ordering_key};
use crate::model::{BreadcrumbId, Event};
use crate::store::{Commit, DeadLetter, FailureClass, Lease, NewRun, RunEnd, RunRef, StoreError};
use std::sync::Arc;
use std::time::Duration;

pub(super) type Processed = Result<Outcome, ExecutorError>;

/// Puts a run into the ledger for every executor that a delivery sets off.
pub(super) async fn keep(
    home: &Home,
    roster: &Roster,
    arrivals: &[Arrival],
) -> Result<(), StoreError> {
    let Some(ledger) = home.ledger() else {
        return Ok(());
    };
    let mut runs = Vec::with_capacity(arrivals.len());
    for arrival in arrivals {
        let event = &arrival.owed.delivery.event;
        let envelope = Arc::new(event.envelope());
        for id in &arrival.executors {
            // One that was removed since is not set off any more.
            let Some(member) = roster.get(id) else {
                continue;
            };
            let key = ordering_key(&*member.executor, event).await?;
            let mut run = RunRef::new(Arc::clone(id), event.breadcrumb_id, event.version)
                .lasting(member.executor.profile().lease)
                .ordered_by(key);
            run.event = Some(Arc::clone(&envelope));
            runs.push(NewRun::from(run));
        }
    }
    ledger.enqueue(runs).await
}

/// Processes a claimed run from its row alone, and sees to it that it ends.
pub(super) async fn process(
    executor: &dyn UniversalExecutor,
    lease: &Lease,
    attempts: u32,
) -> Processed {
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
    /// Too much of its executor's traffic is retries.
    TooManyRetries {
        /// When there may be one more.
        delay: Duration,
    },
}

/// Gives a run back that its executor did not end.
pub(super) async fn give_back(home: &Home, lease: Lease, because: Because) {
    let Some(ledger) = home.ledger() else { return };
    let run = lease.run.clone();
    let (over, granted) = (lease.until, lease.granted_at);
    let given_back = match because {
        Because::Dropped => in_time(ledger.release(lease)).await,
        Because::Panicked => in_time(ledger.retry(lease, over, true)).await,
        Because::TooManyRetries { delay } => {
            in_time(ledger.retry(lease, granted + delay, false)).await
        }
    };
    match given_back {
        // It ended before its task did.
        Ok(()) | Err(StoreError::LeaseLost { .. }) => {}
        Err(error) => {
            tracing::warn!(%run, error = error.code(), "a run could not be given back");
        }
    }
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

//! End of a run or of its task in a scheduler: counts, limits, and the release of the run's leases.

use super::claim::leases_of;
use super::start::{RunTaskResult, StartedRun};
use super::{Scheduler, Unreleased};
use crate::clock::later;
use crate::error::{Chain, Retry};
use crate::executor::{ExecutorError, Outcome};
use crate::runtime::limits::trigger_of;
use crate::runtime::metrics;
use crate::runtime::process::{self, Processed, ReleaseReason};
use crate::runtime::quota::Evidence;
use crate::store::Lease;
use futures::future::join_all;
use std::mem;
use std::sync::Arc;
use tokio::task::{self, JoinError};
use tokio::time::{Instant, timeout_at};

type Finished = Result<(task::Id, RunTaskResult), JoinError>;

impl Scheduler {
    pub(super) async fn finish(&mut self, finished: Finished) {
        let id = finished.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let started = self.started.get(&id);
        // The task may have moved on to the run of a newer version.
        let runs = started.map(|started| [started.run.clone(), started.scope.lease().run]);
        let leases = self.note(finished);
        self.release_leases(leases).await;
        for run in runs.iter().flatten() {
            self.pending_acks.note_attempt_ended(run);
        }
    }

    /// Releases the leases of runs concurrently. Returns `true` if the ledger has released all of them.
    pub(super) async fn release_leases(&mut self, leases: Vec<(Lease, ReleaseReason)>) -> bool {
        // The leases stay in `releasing` until the ledger has answered, so that a scheduler that is dropped meanwhile still has them.
        self.releasing.extend(leases);
        let unreleased = process::try_release_all(&self.store_context, &self.releasing).await;
        self.releasing.clear();
        let all = unreleased.is_empty();
        self.retain_unreleased(unreleased);
        all
    }

    /// Records the end of a run's task. Returns the leases to release, with the reasons.
    fn note(&mut self, finished: Finished) -> Vec<(Lease, ReleaseReason)> {
        let id = finished.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(started) = self.started.remove(&id) else {
            return Vec::new();
        };
        let current = self.runs.get(&started.run);
        if current.is_some_and(|running| running.task.id() == id) {
            self.runs.remove(&started.run);
        }
        let now = Instant::now();
        let took = now.saturating_duration_since(started.started_at);
        metrics::ended(&started.executor, outcome_of(&finished), took);
        if let Some(quota) = self.quotas.get_mut(&started.executor) {
            let trigger = trigger_of(&started.run);
            let change = quota.end(started.ticket, trigger, evidence_of(&finished), now);
            let open = quota.open_breaker();
            if mem::take(&mut quota.has_more) || started.ordered {
                self.queue(&started.executor);
            }
            let name = (self.store_context.number, &started.executor);
            let last_error = code_of(&finished);
            self.shared.breakers.note(name, change, open, last_error);
        }
        match finished {
            Ok((_, RunTaskResult::NotStarted { unreleased })) => {
                self.retain_unreleased(unreleased);
                Vec::new()
            }
            Ok((
                _,
                RunTaskResult::Processed {
                    processed,
                    unreleased,
                },
            )) => {
                self.retain_unreleased(unreleased);
                self.count(&started, &processed, now);
                if let Err(ExecutorError::LeaseLost { .. }) = processed {
                    self.retain_unreleased(started.unanswered_leases());
                    self.quota(&started.executor).exempt_one_retry();
                    self.queue(&started.executor);
                }
                Vec::new()
            }
            Err(error) => self.count_aborted(&started, error.is_panic(), now),
        }
    }

    /// Counts the outcome of a run in the runtime's report of the handled events and runs. Schedules the next claim of a run that
    /// waits for a time.
    fn count(&mut self, started: &StartedRun, processed: &Processed, now: Instant) {
        self.shared.count(|report| report.count(processed));
        match processed {
            Ok(Outcome::Suspended { until, .. }) => {
                let lease = started.scope.lease();
                if let Some(until) = until {
                    let due = later(started.started_at, until.since(lease.granted_at));
                    // The sweep finds runs that are due later.
                    if due < self.sweep {
                        self.queue_at(due, Arc::clone(&started.executor));
                    }
                }
                self.store_context.note_suspended(lease.run);
            }
            Ok(_) => {}
            Err(ExecutorError::Postponed { delay, .. }) => {
                self.queue_at(later(now, *delay), Arc::clone(&started.executor));
            }
            // The message of any other error may quote the payload.
            Err(ExecutorError::Store { operation, source }) => tracing::warn!(
                executor = &*started.executor,
                run = %started.run,
                operation,
                code = source.code(),
                error = %Chain(source),
                "a run did not end because a store operation failed; it is claimed again at the latest when its lease expires"
            ),
            Err(error) => tracing::debug!(
                executor = &*started.executor,
                code = error.code(),
                "an attempt ended without ending its run; the field code contains the reason"
            ),
        }
    }

    /// Counts a run whose task was dropped or panicked. Returns its lease and the leases of nested runs, with the reason for their release.
    /// An at-most-once run that may have executed is omitted: its lease expires, and its dead letter states that the outcome is unknown.
    fn count_aborted(
        &mut self,
        started: &StartedRun,
        panicked: bool,
        now: Instant,
    ) -> Vec<(Lease, ReleaseReason)> {
        let stopped = self.shared.stop.is_cancelled();
        self.shared.count(|report| match (panicked, stopped) {
            (true, _) => report.panics += 1,
            (false, true) => report.dropped += 1,
            // The task was aborted because another claim of the run replaced its lease.
            (false, false) => report.errors += 1,
        });
        started.scope.release_permit();
        if panicked {
            let length = started.scope.lease().run.lease;
            self.queue_at(later(now, length), Arc::clone(&started.executor));
        }
        let reason = match panicked {
            true => ReleaseReason::Panicked,
            false => ReleaseReason::Dropped,
        };
        let leases = started.leases().into_iter();
        leases.map(|lease| (lease, reason)).collect()
    }

    /// Releases the run leases whose release failed before, and the leases granted by a claim that the ledger did not answer.
    /// Returns `false` if the ledger does not answer.
    pub(super) async fn release_remaining(&mut self) -> bool {
        if let Some(id) = self.in_doubt {
            match leases_of(&self.store_context, id).await {
                Ok(leases) => {
                    self.retain_unreleased(leases);
                    self.in_doubt = None;
                }
                Err(error) => {
                    tracing::warn!(code = error.code(), error = %Chain(&error), "cannot list the runs that a claim with an unknown \
                        outcome has leased, will retry");
                    return false;
                }
            }
        }
        let store_context = &self.store_context;
        let release = |unreleased: &Unreleased| {
            let (lease, reason) = (unreleased.lease.clone(), unreleased.reason);
            process::release(store_context, lease, reason)
        };
        // The leases stay in the list until the ledger has answered, because this future can be dropped at any await.
        let released = join_all(self.unreleased.iter().map(release)).await;
        let now = Instant::now();
        let all = mem::take(&mut self.unreleased).into_iter().zip(released);
        for (unreleased, released) in all {
            match released.map_err(|error| (error.retry(), error)) {
                Ok(()) => {}
                Err((Retry::After(_), _))
                    if unreleased.has_unanswered_heartbeats() || now < unreleased.until =>
                {
                    self.unreleased.push(unreleased);
                }
                Err((Retry::After(_) | Retry::Never, error)) => {
                    let lease = unreleased.lease;
                    tracing::warn!(run = %lease.run, code = error.code(), error = %Chain(&error), "cannot release the lease of a run; the run waits until the lease expires");
                }
            }
        }
        self.unreleased.is_empty()
    }

    /// Adds run leases to the list of leases that the scheduler releases later.
    fn retain_unreleased(&mut self, leases: impl IntoIterator<Item = (Lease, ReleaseReason)>) {
        self.unreleased
            .extend(leases.into_iter().map(Unreleased::new));
    }

    /// Lets the running work of the scheduler finish and releases the leases of runs that were not started. After a stop, running work is
    /// dropped after the drain timeout, and all its leases are released at once.
    pub(super) async fn drain(mut self) {
        // Runs that were claimed and not started are released without waiting for running ones.
        let unstarted = self.release_unstarted();
        self.wait_for_running().await;
        self.running.abort_all();
        while let Some(finished) = self.running.join_next_with_id().await {
            let leases = self.note(finished);
            self.releasing.extend(leases);
        }
        // The panic hook reports a panic of the release. The leases then expire.
        if let Some(unstarted) = unstarted
            && let Ok(outcome) = unstarted.await
        {
            self.retain_unreleased(outcome.unreleased);
            self.in_doubt = outcome.in_doubt;
        }
        if let Some(released) = self.release_all() {
            drop(released.await);
        }
    }

    /// Waits until the scheduler has no running work. After a stop, waits for at most the drain timeout.
    async fn wait_for_running(&mut self) {
        let stop = self.shared.stop.clone();
        loop {
            // Without a stop, all executors of this store were removed, and their runs may finish without a time limit.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                finished = self.running.join_next_with_id() => match finished {
                    Some(finished) => self.finish(finished).await,
                    None => break,
                }
            }
        }
        let end = later(Instant::now(), self.shared.settings.drain);
        while let Ok(Some(finished)) = timeout_at(end, self.running.join_next_with_id()).await {
            self.finish(finished).await;
        }
    }
}

/// Returns the effect of an attempt of a run on the circuit breaker of its executor.
fn evidence_of(finished: &Finished) -> Evidence {
    match finished {
        Ok((_, RunTaskResult::Processed { processed, .. })) => Evidence::of(processed),
        Ok((_, RunTaskResult::NotStarted { .. })) => Evidence::Unknown,
        Err(error) if error.is_panic() => Evidence::Failing,
        Err(_) => Evidence::Unknown,
    }
}

/// Returns the error code of a failed attempt of a run, or the label of its outcome.
fn code_of(finished: &Finished) -> &'static str {
    match finished {
        Ok((
            _,
            RunTaskResult::Processed {
                processed: Err(error),
                ..
            },
        )) => error.code(),
        Ok((
            _,
            RunTaskResult::Processed {
                processed: Ok(_), ..
            }
            | RunTaskResult::NotStarted { .. },
        ))
        | Err(_) => outcome_of(finished),
    }
}

/// Returns the outcome of an attempt of a run as a metric label.
fn outcome_of(finished: &Finished) -> &'static str {
    match finished {
        Ok((_, RunTaskResult::NotStarted { .. })) => "held",
        Ok((_, RunTaskResult::Processed { processed, .. })) => process::label(processed),
        Err(error) if error.is_panic() => "panic",
        Err(_) => "dropped",
    }
}

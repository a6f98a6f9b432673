//! End of a run's attempt without a response: the run is skipped, released for a retry, or failed.

use super::answer::panic_message;
use super::bound::{AllowedSchemas, admit};
use super::claimed_run::{ClaimedRun, FailedAttempt, store_error};
use super::decide::{self, Attempt, NextState};
use super::error::ExecutorError;
use super::outcome::{Failure, Outcome};
use super::provenance::Stamp;
use super::versions::transfer_or_skip;
use super::{Execution, Profile, UniversalExecutor, heartbeat};
use crate::error::BoxError;
use crate::error::Chain;
use crate::hex::hex;
use crate::model::{Breadcrumb, BreadcrumbId, EventKind, Timestamp};
use crate::store::{Commit, DeadLetter, FailureClass, RunEnd, RunRef, StoreError, Write};
use futures::FutureExt as _;
use sha2::{Digest, Sha256};
use std::error::Error;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Error code in the dead letter of a run that used up its attempts because workers died or leases expired.
pub(crate) const NEVER_ENDED: &str = "never_ended";

impl<E: UniversalExecutor + ?Sized> ClaimedRun<'_, E> {
    /// Ends the run as skipped in the run ledger, with a reason code, and returns the outcome that the caller passed.
    pub(super) async fn skip(
        &self,
        reason: &'static str,
        outcome: Outcome,
    ) -> Result<Outcome, ExecutorError> {
        let commit = Commit {
            writes: Vec::new(),
            end: Some((self.lease.clone(), RunEnd::Skipped(reason))),
        };
        let ended = self.in_time(self.store.commit(commit)).await;
        ended.map_err(store_error("end the run"))?;
        Ok(outcome)
    }

    /// Transfers a run to another version of its executor, whose subscriptions match the trigger. Without such a version, ends the run
    /// as skipped.
    pub(super) async fn unmatched(
        &self,
        kind: EventKind,
        trigger: &Breadcrumb,
    ) -> Result<Outcome, ExecutorError> {
        let trigger = Some((kind, trigger));
        let transfer = transfer_or_skip(self.executor, self.store, &self.lease, trigger);
        let transfer = self.in_time(transfer).await;
        transfer.map_err(store_error("transfer the run to another version"))?;
        Ok(Outcome::Unmatched)
    }

    /// Ends a run as failed after the error of an attempt, or releases the run for a retry.
    pub(super) async fn end_or_retry(
        &self,
        failed_attempt: FailedAttempt,
    ) -> Result<Outcome, ExecutorError> {
        let FailedAttempt {
            error,
            started,
            trigger,
        } = failed_attempt;
        // This worker no longer holds the lease: another worker has the run, or a later attempt writes the saved response.
        if is_released(&error) {
            return Err(error);
        }
        if has_lost_lease(&error, &self.lease.run) {
            return Err(ExecutorError::LeaseLost {
                run: self.lease.run.clone(),
            });
        }
        let now = self.lease.granted_at + self.claimed.elapsed();
        let attempt = Attempt {
            number: self.attempt,
            started,
            age: now.since(self.lease.attempt_since),
            chance: chance(&self.lease.run, self.attempt),
        };
        let next = decide::after_error(&error, self.executor.profile(), attempt);
        self.log_failed_attempt(&error, next);
        match next {
            NextState::Fail(class) => match self.fail(class, Some(error), trigger.as_ref()).await {
                Ok(outcome) => Ok(outcome),
                // The dead letter was not committed, so the run is retried. The retry of a run without attempts left must not count,
                // or the run would end without its failure response.
                Err(error) => {
                    let policy = self.executor.profile().retry;
                    let counts = self.attempt < policy.attempts;
                    let delay = policy.base;
                    Err(self
                        .release_for_retry(error, now, delay, (counts, started))
                        .await)
                }
            },
            NextState::Retry { delay, counts } => Err(self
                .release_for_retry(error, now, delay, (counts, started))
                .await),
        }
    }

    /// Logs a failed attempt of a run with its cause.
    fn log_failed_attempt(&self, error: &ExecutorError, next: NextState) {
        let (run, attempt, code) = (&self.lease.run, self.attempt, error.code());
        let error = &*self.cause(error);
        match next {
            NextState::Fail(class) => {
                tracing::warn!(%run, attempt, %class, code, error, "an attempt of a run failed, will not retry; remove the cause, then call Client::redo");
            }
            NextState::Retry { delay, .. } => {
                tracing::warn!(%run, attempt, ?delay, code, error, "an attempt of a run failed, will retry");
            }
        }
    }

    /// Returns the error text of a failed attempt, without the parts that the executor's profile hides.
    fn cause(&self, error: &ExecutorError) -> String {
        error.cause_text(self.executor.profile().hides_errors)
    }

    /// Releases the lease of a run for a retry, and returns the error of the attempt for the caller.
    ///
    /// An at-most-once run that may have executed is not released: when its lease expires, the run fails with an unknown outcome.
    async fn release_for_retry(
        &self,
        error: ExecutorError,
        now: Timestamp,
        delay: Duration,
        (counts, started): (bool, bool),
    ) -> ExecutorError {
        if is_released(&error) {
            return error;
        }
        let once = self.executor.profile().execution == Execution::AtMostOnce;
        if once && (started || self.lease.may_have_executed) {
            return error;
        }
        let (run, at) = (self.lease.run.clone(), now + delay);
        let cause = self.cause(&error);
        let lease = self.lease.clone();
        let retry = self.store.ledger().retry(lease, at, counts, Some(&cause));
        match retry.await {
            Ok(()) => ExecutorError::Postponed {
                run,
                at,
                delay,
                source: Box::new(error),
            },
            Err(failed) => {
                tracing::warn!(%run, code = failed.code(), error = %Chain(&failed),
                    "cannot release the lease of a run after a failed attempt; the run is retried when the lease expires");
                error
            }
        }
    }

    /// Ends a run as failed, with a dead letter and the executor's failure response to the requester.
    pub(super) async fn fail(
        &self,
        class: FailureClass,
        error: Option<ExecutorError>,
        trigger: Option<&Arc<Breadcrumb>>,
    ) -> Result<Outcome, ExecutorError> {
        let profile = self.executor.profile();
        let (message, code, cause) = match &error {
            Some(error) => (error.message(), error.code(), self.cause(error)),
            None => {
                let reason = reason(class, profile);
                (reason.clone(), class.as_str(), reason)
            }
        };
        let failure = Failure {
            class,
            message,
            attempts: self.attempt,
            error: error.map(BoxError::from),
        };
        self.fail_as(failure, code, cause, trigger).await
    }

    /// Ends a run as failed after too many lost attempts: workers died, or leases expired, before an attempt ended.
    pub(super) async fn never_ended(
        &self,
        trigger: Option<&Arc<Breadcrumb>>,
    ) -> Result<Outcome, ExecutorError> {
        let cause = never_ended(self.attempt);
        let failure = Failure {
            class: FailureClass::CrashLoop,
            message: cause.clone(),
            attempts: self.attempt,
            error: None,
        };
        self.fail_as(failure, NEVER_ENDED, cause, trigger).await
    }

    async fn fail_as(
        &self,
        failure: Failure,
        code: &'static str,
        cause: String,
        trigger: Option<&Arc<Breadcrumb>>,
    ) -> Result<Outcome, ExecutorError> {
        let (profile, class) = (self.executor.profile(), failure.class);
        let mut letter = DeadLetter::new(class, code, self.attempt);
        letter.cause = Some(cause.clone());
        letter.digest = hex(&Sha256::digest(failure.message.as_bytes()));
        let stamp = trigger.map(|trigger| {
            let id = Arc::clone(&self.lease.run.executor);
            Stamp::new(id, profile, trigger, &self.lineage)
        });
        if let Some(stamp) = &stamp {
            letter.tags = inherited_tags(stamp);
            letter.creator = stamp.creator().into();
        }
        let mut writes = Vec::new();
        if let (Some(trigger), Some(stamp)) = (trigger, &stamp)
            && class != FailureClass::HopLimit
        {
            writes = self.failure_response(trigger, &failure, stamp).await?;
        }
        let written = self.commit_dead_letter(writes, letter).await?;
        log_dead_letter(&self.lease.run, class, code, &cause);
        Ok(Outcome::Failed { class, written })
    }

    /// Returns the writes of the executor's failure response, or no writes if `respond_failure` fails.
    async fn failure_response(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
        stamp: &Stamp,
    ) -> Result<Vec<Write>, ExecutorError> {
        let profile = self.executor.profile();
        let after = profile.timeout;
        let respond = timeout(after, self.executor.respond_failure(trigger, failure));
        let respond = respond.map(|response| {
            response.unwrap_or_else(|_| Err(ExecutorError::Timeout { after }.into()))
        });
        let guarded = AssertUnwindSafe(respond).catch_unwind();
        let response = match self.held_lease().during(pending(), guarded).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Ok(Err(error))) => return Ok(self.without_response(&ExecutorError::Respond(error))),
            Ok(Err(panic)) => {
                let message = panic_message(&*panic);
                return Ok(self.without_response(&ExecutorError::Panicked { message }));
            }
            Err(heartbeat::LeaseLost) => {
                return Err(ExecutorError::LeaseLost {
                    run: self.lease.run.clone(),
                });
            }
        };
        let (allowed, store) = (AllowedSchemas::by(profile), self.executor.store());
        match admit(response.into_writes(), Some(stamp), allowed, store).await {
            Ok(Ok(writes)) => Ok(writes),
            Ok(Err(reason)) => Ok(self.without_response(&ExecutorError::BadResponse { reason })),
            Err(error) => {
                let operation = "check the response to the failure";
                Ok(self.without_response(&ExecutorError::of_store(operation, error)))
            }
        }
    }

    /// Logs that `respond_failure` failed, and returns no writes, so that the dead letter is committed alone.
    fn without_response(&self, error: &ExecutorError) -> Vec<Write> {
        let (run, code, error) = (&self.lease.run, error.code(), &*self.cause(error));
        tracing::warn!(%run, code, error, "respond_failure failed, so the dead letter is committed without a response to the requester");
        Vec::new()
    }

    /// Commits the dead letter of a run and the failure response, or the dead letter alone if the response cannot be written.
    async fn commit_dead_letter(
        &self,
        writes: Vec<Write>,
        letter: DeadLetter,
    ) -> Result<Vec<BreadcrumbId>, ExecutorError> {
        let commit = |writes: Vec<Write>, letter: DeadLetter| Commit {
            writes,
            end: Some((self.lease.clone(), RunEnd::Failed(letter))),
        };
        let alone = writes.is_empty();
        let together = commit(writes, letter.clone());
        let committed = match self.in_time(self.store.commit(together)).await {
            // The run has to end even if its failure response cannot be written. If the store is unavailable, the run is
            // retried instead, so that the requester also gets the response.
            Err(error) if !alone && !is_transient(&error) => {
                tracing::warn!(run = %self.lease.run, code = error.code(), error = %Chain(&error),
                    "commit of a failure response failed, so the dead letter is committed without the response");
                let alone = self.store.commit(commit(Vec::new(), letter));
                self.in_time(alone).await
            }
            committed => committed,
        };
        Ok(committed
            .map_err(store_error("commit the dead letter"))?
            .ids())
    }
}

/// Logs the end of a run with a dead letter.
pub(crate) fn log_dead_letter(run: &RunRef, class: FailureClass, code: &str, cause: &str) {
    let error = cause;
    tracing::error!(%run, %class, code, error, "a run failed and has a dead letter; remove the cause, then run it again with Client::redo");
}

/// Returns the failure message for a run that was started `attempts` times and never ended.
pub(crate) fn never_ended(attempts: u32) -> String {
    format!("the run was started {attempts} times and never ended")
}

/// Returns `true` if the error means that this worker no longer holds the lease of the run.
const fn is_released(error: &ExecutorError) -> bool {
    matches!(
        error,
        ExecutorError::LeaseLost { .. } | ExecutorError::Postponed { .. }
    )
}

/// Returns `true` if the store refused an operation because the run's lease is lost: the run was cancelled, or another worker has the run.
fn has_lost_lease(error: &ExecutorError, run: &RunRef) -> bool {
    /// Maximum number of causes of an error that are checked for a lost lease.
    const DEPTH: usize = 32;
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    for _ in 0..DEPTH {
        let Some(cause) = next else {
            return false;
        };
        let cause_of_store = cause.downcast_ref::<StoreError>();
        if matches!(cause_of_store, Some(StoreError::LeaseLost { run: lost }) if lost == run) {
            return true;
        }
        next = cause.source();
    }
    false
}

/// Returns `true` if a commit failed because of the store or the lease, and not because of its data.
fn is_transient(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Unavailable { .. }
            | StoreError::Full { .. }
            | StoreError::LeaseLost { .. }
            | StoreError::ResponseSaved(_)
    )
}

/// Returns the session tags that a dead letter inherits from the trigger: at most 16 tags of at most 256 bytes, so that the store
/// accepts every dead letter.
fn inherited_tags(stamp: &Stamp) -> Vec<String> {
    const MAX_INHERITED_TAGS: usize = 16;
    const MAX_INHERITED_TAG_BYTES: usize = 256;
    let short = stamp
        .session_tags()
        .filter(|tag| tag.len() <= MAX_INHERITED_TAG_BYTES);
    short.take(MAX_INHERITED_TAGS).cloned().collect()
}

/// Returns a sentence with the reason for a failure that no attempt returned as an error, such as a crash loop.
fn reason(class: FailureClass, profile: &Profile) -> String {
    match class {
        FailureClass::HopLimit => format!(
            "the trigger is the end of a chain of more than {} runs; check for executors that trigger one another",
            profile.hop_limit
        ),
        FailureClass::CrashLoop => match profile.retry.crash_limit() {
            1 => "the worker died while it executed the run".to_owned(),
            limit => format!("{limit} workers in a row died while they executed the run"),
        },
        FailureClass::OutcomeUnknown => {
            "the run was interrupted and may execute only once, so its outcome is unknown"
                .to_owned()
        }
        FailureClass::AttemptsUsedUp => {
            format!("all {} attempts were used up", profile.retry.attempts)
        }
        FailureClass::Permanent | FailureClass::Timeout | FailureClass::Panic => class.to_string(),
    }
}

/// Returns the jitter of a retry delay as a fraction of the maximum delay, in `0.0..1.0`, derived from the run and the attempt
/// number. The fraction differs between runs, but is constant for one attempt.
fn chance(run: &RunRef, attempt: u32) -> f64 {
    let key = run.key("", attempt);
    let digits = key
        .get(..8)
        .and_then(|digits| u32::from_str_radix(digits, 16).ok());
    f64::from(digits.unwrap_or_default()) / (f64::from(u32::MAX) + 1.0)
}

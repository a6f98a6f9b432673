use crate::classes::{class_of, verdict};
use crate::error::{BoxError, Chain, Retry, Verdict};
use crate::model::{BreadcrumbId, Timestamp};
use crate::store::{RunRef, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// Error of one attempt of an executor to process an event.
///
/// [`process_event`](super::UniversalExecutor::process_event) returns this error if the attempt did not end the run. A run that
/// failed for good is an [`Outcome`](super::Outcome) instead.
///
/// A [`Runtime`](crate::Runtime) handles these errors itself. A program that calls `process_event`
/// processes the event again after the delay in [`retry`](Self::retry).
///
/// # Examples
/// ```
/// use universal_executor::executor::ExecutorError;
/// use universal_executor::{
///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Subscription, UniversalExecutor,
///     executor,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let clerk = executor("clerk")
///     .on(Subscription::trigger("order.v1"))
///     .execute(|_| async { Err("the service is down".into()) })
///     .bind(&store)?;
///
/// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
/// let error = clerk.process_event(&Event::created(&order)).await.err().ok_or("no error")?;
/// assert!(matches!(error, ExecutorError::Postponed { .. }));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutorError {
    /// A store operation failed during the attempt to process the event.
    #[error("the store failed to {operation}; see the cause")]
    Store {
        /// The failed store operation, for example `read the trigger` or `commit the response`.
        operation: &'static str,
        /// The error that the store returned for the operation.
        source: StoreError,
    },
    /// The store returned an older version of the trigger than the event announced.
    ///
    /// The attempt is retried.
    #[error(
        "breadcrumb {id} is at version {found} in the store, but the event announced version {expected}; the store's reads lag behind \
         the store's events"
    )]
    StaleRead {
        /// The breadcrumb ID of the trigger that the store returned in an older version.
        id: BreadcrumbId,
        /// The version of the trigger that the event announced.
        expected: u64,
        /// The version of the trigger that the store returned.
        found: u64,
    },
    /// The fetch of a required context source failed.
    ///
    /// The class of the store's error decides about a retry.
    #[error("the fetch of the required context source {key:?} failed; see the cause")]
    RequiredSource {
        /// The key of the required context source that was not fetched.
        key: String,
        /// The error that the store returned for the fetch.
        source: Arc<StoreError>,
    },
    /// A required context source of one item found no breadcrumb.
    ///
    /// The attempt is retried, because the breadcrumb may appear later.
    #[error(
        "the required context source {key:?} found no breadcrumb; create one, or make the source optional"
    )]
    RequiredNotFound {
        /// The key of the required context source that found no breadcrumb.
        key: String,
    },
    /// The trigger and the required context sources alone exceed the maximum size of a run's context.
    ///
    /// A retry cannot succeed, so the run fails.
    #[error(
        "the trigger and the required sources have {size} bytes where a context may have at most {limit}; raise \
         Profile::context_bytes, or make a source optional"
    )]
    ContextTooLarge {
        /// The size of the trigger and the required context sources in bytes.
        size: usize,
        /// The maximum size of a run's context in bytes.
        limit: usize,
    },
    /// The `execute` method of the executor returned an error.
    ///
    /// The class of the error decides about a retry, see [`class_of`].
    #[error("the method execute of the executor failed")]
    Execute(#[source] BoxError),
    /// The `respond` method of the executor returned an error.
    ///
    /// The class of the error decides about a retry, see [`class_of`].
    #[error("the method respond of the executor failed")]
    Respond(#[source] BoxError),
    /// The output of `execute` or the response of the run cannot be written to the store.
    ///
    /// Examples are a schema that the executor may not write, and JSON that nests too deeply. A
    /// retry cannot succeed, so the run fails.
    #[error("the response of the executor cannot be written: {reason}")]
    BadResponse {
        /// The reason why the response cannot be written and, if there is one, the remedy.
        reason: String,
    },
    /// `execute` and `respond` together exceeded the timeout of the executor's profile.
    ///
    /// The attempt is retried, unless it was the last one.
    #[error(
        "the methods execute and respond of the executor timed out after {after:?}; raise Profile::timeout if the work takes longer"
    )]
    Timeout {
        /// The timeout of `execute` and `respond` together.
        after: Duration,
    },
    /// The `execute` or `respond` method of the executor panicked.
    ///
    /// The panic is caught, and the process continues. The attempt is retried, unless it was the
    /// last one.
    #[error("the executor panicked: {message}")]
    Panicked {
        /// The text with which the executor panicked.
        message: String,
    },
    /// The lease of the run was lost: another worker may own the run by now, or the lease could not be extended in time.
    ///
    /// If a commit was running, only the ledger records whether it took effect.
    #[error("lost the lease on {run}; another worker may own the run")]
    LeaseLost {
        /// The run whose lease was lost.
        run: RunRef,
    },
    /// The attempt of the run failed, and the lease was released for a retry.
    ///
    /// This is the usual result of a failed attempt with a ledger. The field `source` has the
    /// cause.
    #[error("{run} failed with {} and will be retried at {at}", source.code())]
    Postponed {
        /// The run that will be retried.
        run: RunRef,
        /// The earliest time of the run's retry, by the store's clock.
        at: Timestamp,
        /// The delay of the run's retry, from the time of the failure.
        delay: Duration,
        /// The error with which the run's attempt failed.
        source: Box<Self>,
    },
}

impl ExecutorError {
    /// Converts the error of a store operation to the error of a run's attempt.
    pub(crate) fn of_store(operation: &'static str, source: StoreError) -> Self {
        match source {
            StoreError::LeaseLost { run } => Self::LeaseLost { run },
            StoreError::ResponseSaved(saved) => Self::Postponed {
                run: saved.run,
                at: saved.at,
                delay: saved.delay,
                source: Box::new(Self::of_store(operation, saved.source)),
            },
            source => Self::Store { operation, source },
        }
    }

    /// Returns whether another attempt to process the event may succeed, and after what delay.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Store { source, .. } => source.retry(),
            Self::RequiredSource { source, .. } => source.retry(),
            Self::Execute(source) | Self::Respond(source) => class_of(source.as_ref()).retry(),
            Self::Postponed { delay, .. } => Retry::After(*delay),
            Self::StaleRead { .. }
            | Self::RequiredNotFound { .. }
            | Self::Timeout { .. }
            | Self::Panicked { .. }
            | Self::LeaseLost { .. } => Retry::After(Duration::ZERO),
            Self::ContextTooLarge { .. } | Self::BadResponse { .. } => Retry::Never,
        }
    }

    /// Returns a stable code of the error for dead letters and metrics, for example `timeout`. An error of the store, of `execute`
    /// or of `respond` has the code of its cause.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store { source, .. } => source.code(),
            Self::RequiredSource { source, .. } => source.code(),
            Self::StaleRead { .. } => "stale_read",
            Self::RequiredNotFound { .. } => "required_not_found",
            Self::ContextTooLarge { .. } => "context_too_large",
            Self::Execute(source) | Self::Respond(source) => class_of(source.as_ref()).code(),
            Self::BadResponse { .. } => "bad_response",
            Self::Timeout { .. } => "timeout",
            Self::Panicked { .. } => "panic",
            Self::LeaseLost { .. } => "lease_lost",
            Self::Postponed { source, .. } => source.code(),
        }
    }

    /// Returns the decision on a retry of the run after this error, and the cost of the retry in attempts.
    pub(super) fn verdict(&self) -> Verdict {
        match self.returned() {
            Some(error) => verdict(error.as_ref()),
            None => self.retry().into(),
        }
    }

    /// Returns the error and its sources on one line and without credentials, for log lines, runs and dead letters.
    ///
    /// If `hides` is `true`, the text of errors and panics of the executor is omitted.
    pub(super) fn cause_text(&self, hides: bool) -> String {
        match self {
            Self::Execute(_) | Self::Respond(_) if hides => self.to_string(),
            Self::Panicked { .. } if hides => "the executor panicked".to_owned(),
            Self::Postponed { source, .. } => source.cause_text(hides),
            Self::Store { .. }
            | Self::StaleRead { .. }
            | Self::RequiredSource { .. }
            | Self::RequiredNotFound { .. }
            | Self::ContextTooLarge { .. }
            | Self::Execute(_)
            | Self::Respond(_)
            | Self::BadResponse { .. }
            | Self::Timeout { .. }
            | Self::Panicked { .. }
            | Self::LeaseLost { .. } => Chain(self).to_string(),
        }
    }

    /// Returns the error text for the requester of the failed run: the error that the executor returned, otherwise a description
    /// of the failure.
    ///
    /// A panic message may contain anything and is meant for the author of the executor, so it is omitted.
    pub(super) fn message(&self) -> String {
        match (self, self.returned()) {
            (Self::Panicked { .. }, _) => "the executor panicked".to_owned(),
            (_, Some(returned)) => returned.to_string(),
            (_, None) => self.to_string(),
        }
    }

    /// Returns the error that `execute` or `respond` returned, or `None` for any other error.
    fn returned(&self) -> Option<&BoxError> {
        match self {
            Self::Execute(error) | Self::Respond(error) => Some(error),
            Self::Store { .. }
            | Self::StaleRead { .. }
            | Self::RequiredSource { .. }
            | Self::RequiredNotFound { .. }
            | Self::ContextTooLarge { .. }
            | Self::BadResponse { .. }
            | Self::Timeout { .. }
            | Self::Panicked { .. }
            | Self::LeaseLost { .. }
            | Self::Postponed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_text_is_in_the_display_form_but_not_in_the_message() {
        let error = ExecutorError::Panicked {
            message: "key sk-1".to_owned(),
        };

        assert_eq!(error.message(), "the executor panicked");
        assert_eq!(error.to_string(), "the executor panicked: key sk-1");
    }
}

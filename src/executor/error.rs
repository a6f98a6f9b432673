use crate::classes::{class_of, verdict};
use crate::error::{BoxError, Chain, Retry, Verdict};
use crate::model::{BreadcrumbId, Timestamp};
use crate::store::{RunRef, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// Why an event could not be processed this time. Only what may be tried again reaches the caller of
/// `process_event`; everything else is an [`Outcome`](super::Outcome).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutorError {
    /// The store failed.
    #[error("the store failed to {operation}")]
    Store {
        /// What was asked of it: `read the trigger`, `commit the response`.
        operation: &'static str,
        /// Its error.
        source: StoreError,
    },
    /// The store answered with an older version than the event announced.
    #[error("breadcrumb {id} is at version {found} in the store, the event says {expected}")]
    StaleRead {
        /// The trigger.
        id: BreadcrumbId,
        /// The version of the event.
        expected: u64,
        /// The version read.
        found: u64,
    },
    /// A required source could not be fetched.
    #[error("the required source {key:?} could not be fetched")]
    RequiredSource {
        /// Its key.
        key: String,
        /// Why.
        source: Arc<StoreError>,
    },
    /// A required source that is one item found none.
    #[error("nothing was found for the required source {key:?}")]
    RequiredNotFound {
        /// Its key.
        key: String,
    },
    /// The trigger and the required sources alone are larger than a context may be.
    #[error(
        "the trigger and the required sources are {size} bytes where a context may have {limit}"
    )]
    ContextTooLarge {
        /// Their size.
        size: usize,
        /// The most allowed.
        limit: usize,
    },
    /// `execute` failed.
    #[error("execute failed")]
    Execute(#[source] BoxError),
    /// `respond` failed.
    #[error("respond failed")]
    Respond(#[source] BoxError),
    /// What `execute` or `respond` returned cannot be written.
    #[error("the response cannot be written: {reason}")]
    BadResponse {
        /// Why, and what to change.
        reason: String,
    },
    /// `execute` and `respond` took too long.
    #[error("no response within {after:?}")]
    Timeout {
        /// The time they had.
        after: Duration,
    },
    /// `execute` or `respond` panicked.
    #[error("panicked: {message}")]
    Panicked {
        /// What the panic said.
        message: String,
    },
    /// Another worker has the run by now, or the lease could not be kept; nothing was written.
    #[error("lost the lease on {run}")]
    LeaseLost {
        /// The run.
        run: RunRef,
    },
    /// The run failed this time and was given back to be tried again.
    #[error("{run} failed with {} and will be tried again at {at}", source.code())]
    Postponed {
        /// The run.
        run: RunRef,
        /// When, by the store's clock.
        at: Timestamp,
        /// How long that is from now.
        delay: Duration,
        /// What failed.
        source: Box<Self>,
    },
}

impl ExecutorError {
    /// Returns the error of a run whose store operation failed.
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

    /// Whether trying again could succeed, and when.
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

    /// A short name for dead letters and metrics.
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

    /// What the dispatcher makes of it.
    pub(super) fn verdict(&self) -> Verdict {
        match self.returned() {
            Some(error) => verdict(error.as_ref()),
            None => self.retry().into(),
        }
    }

    /// Returns the error and its sources on one line and without credentials, for log lines, runs and dead letters.
    ///
    /// `hides` omits the text of errors and panics of the executor.
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

    /// A sentence for whoever asked: the error that `execute` or `respond` gave, else this one. What a panic said is
    /// for whoever wrote the executor and may hold anything, so it is not passed on.
    pub(super) fn message(&self) -> String {
        match (self, self.returned()) {
            (Self::Panicked { .. }, _) => "the executor panicked".to_owned(),
            (_, Some(returned)) => returned.to_string(),
            (_, None) => self.to_string(),
        }
    }

    /// The error that `execute` or `respond` returned.
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
    fn what_a_panic_said_is_in_the_error_and_not_in_the_message() {
        let error = ExecutorError::Panicked {
            message: "key sk-1".to_owned(),
        };

        assert_eq!(error.message(), "the executor panicked");
        assert_eq!(error.to_string(), "panicked: key sk-1");
    }
}

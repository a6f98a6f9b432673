use super::above::{AgentError, AgentRunError, ModelError, ToolError};
use super::check::InvalidExecutor;
use super::context_error::ContextError;
use super::for_model::BudgetError;
use super::waits::WaitError;
use crate::error::{BoxError, Chain, Mark, Retry, mark_of};
use crate::model::{BreadcrumbId, DefinitionError, JsonError, PathError, Timestamp};
use crate::source::SourceError;
use crate::store::{RunRef, StoreError};
use std::error::Error;
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
            Self::Execute(source) | Self::Respond(source) => match verdict(source.as_ref()) {
                Verdict::Permanent => Retry::Never,
                Verdict::Transient(delay) | Verdict::RateLimited(delay) => Retry::After(delay),
            },
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
            Self::Execute(source) | Self::Respond(source) => match verdict(source.as_ref()) {
                Verdict::RateLimited(_) => "rate_limited",
                Verdict::Permanent | Verdict::Transient(_) => "error",
            },
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

/// Whether an error may be tried again, and whether that uses an attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    Permanent,
    /// Not sooner than this.
    Transient(Duration),
    RateLimited(Duration),
}

impl From<Retry> for Verdict {
    fn from(retry: Retry) -> Self {
        match retry {
            Retry::After(delay) => Self::Transient(delay),
            Retry::Never => Self::Permanent,
        }
    }
}

/// What an error says of itself: a mark, or the `retry()` of this crate's own errors, looked for in the error and then
/// in its sources. A serde_json error is permanent; anything else is transient.
pub(crate) fn verdict(error: &(dyn Error + 'static)) -> Verdict {
    const DEPTH: usize = 16;
    if error.is::<serde_json::Error>() {
        return Verdict::Permanent;
    }
    let mut link = Some(error);
    for _ in 0..DEPTH {
        let Some(current) = link else { break };
        if let Some(verdict) = own_verdict(current) {
            return verdict;
        }
        link = current.source();
    }
    Verdict::Transient(Duration::ZERO)
}

/// What an error itself says, by a mark or as one of this crate's; none for anybody else's.
pub(crate) fn own_verdict(error: &(dyn Error + 'static)) -> Option<Verdict> {
    if let Some(mark) = mark_of(error) {
        return Some(match mark {
            Mark::Permanent => Verdict::Permanent,
            Mark::RateLimited(delay) => Verdict::RateLimited(delay),
        });
    }
    let retry = own_retry(error)?;
    let limited = error.downcast_ref();
    Some(match (limited, retry) {
        (Some(ModelError::RateLimited { .. }), Retry::After(delay)) => Verdict::RateLimited(delay),
        (Some(_) | None, retry) => retry.into(),
    })
}

/// What `retry()` of one of this crate's errors says.
fn own_retry(error: &(dyn Error + 'static)) -> Option<Retry> {
    fn of<E: Error + 'static>(
        error: &(dyn Error + 'static),
        retry: fn(&E) -> Retry,
    ) -> Option<Retry> {
        error.downcast_ref::<E>().map(retry)
    }
    of(error, StoreError::retry)
        .or_else(|| of(error, ContextError::retry))
        .or_else(|| of(error, BudgetError::retry))
        .or_else(|| of(error, WaitError::retry))
        .or_else(|| of(error, ExecutorError::retry))
        .or_else(|| of(error, ModelError::retry))
        .or_else(|| of(error, SourceError::retry))
        .or_else(|| of(error, DefinitionError::retry))
        .or_else(|| of(error, InvalidExecutor::retry))
        .or_else(|| of(error, AgentError::retry))
        .or_else(|| of(error, AgentRunError::retry))
        .or_else(|| of(error, ToolError::retry))
        .or_else(|| of(error, |_: &PathError| Retry::Never))
        .or_else(|| of(error, |_: &JsonError| Retry::Never))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{permanent, retry_after};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn marks_and_this_crates_errors_say_whether_to_retry_and_anything_else_is_transient() {
        let json = serde_json::from_str::<u8>("x").unwrap_err();
        let missing = StoreError::NotFound {
            id: BreadcrumbId::NIL,
            tombstone: None,
        };
        let busy = StoreError::Unavailable {
            store: "s",
            retry_after: SECOND,
            source: "down".into(),
        };
        for (error, expected) in [
            (permanent("no"), Verdict::Permanent),
            (
                retry_after(SECOND, "slow down"),
                Verdict::RateLimited(SECOND),
            ),
            (json.into(), Verdict::Permanent),
            (missing.into(), Verdict::Permanent),
            (busy.into(), Verdict::Transient(SECOND)),
            (
                "connection reset".into(),
                Verdict::Transient(Duration::ZERO),
            ),
        ] {
            assert_eq!(verdict(error.as_ref()), expected, "{error}");
        }
    }

    #[test]
    fn no_error_requests_a_delay_of_more_than_an_hour() {
        let day = || 24 * 60 * 60 * SECOND;
        let hour = 60 * 60 * SECOND;
        let unavailable = StoreError::Unavailable {
            store: "s",
            retry_after: day(),
            source: "down".into(),
        };
        let source_error = SourceError::Unavailable {
            retry_after: day(),
            source: "down".into(),
        };
        let limited = || ModelError::RateLimited { retry_after: day() };
        let overloaded = ModelError::Overloaded { retry_after: day() };
        for (error, expected) in [
            (unavailable.into(), Verdict::Transient(hour)),
            (source_error.into(), Verdict::Transient(hour)),
            (overloaded.into(), Verdict::Transient(hour)),
            (limited().into(), Verdict::RateLimited(hour)),
            (limited().marked(), Verdict::RateLimited(hour)),
            (retry_after(day(), "slow down"), Verdict::RateLimited(hour)),
        ] {
            let error: BoxError = error;
            assert_eq!(verdict(error.as_ref()), expected, "{error}");
        }
    }

    #[test]
    fn the_errors_of_models_agents_and_tools_say_for_themselves_whether_to_retry() {
        let down = || ModelError::Unavailable("connection reset".into());
        let no_id = || InvalidExecutor::NoId;
        let errors: [(BoxError, Verdict); 7] = [
            (
                (ModelError::RateLimited {
                    retry_after: SECOND,
                })
                .into(),
                Verdict::RateLimited(SECOND),
            ),
            (ModelError::Unauthorized.into(), Verdict::Permanent),
            (ModelError::ContextTooLong.into(), Verdict::Permanent),
            (down().into(), Verdict::Transient(Duration::ZERO)),
            (no_id().into(), Verdict::Permanent),
            (AgentError::from(no_id()).into(), Verdict::Permanent),
            (
                (ToolError::BadName {
                    name: String::new(),
                })
                .into(),
                Verdict::Permanent,
            ),
        ];
        for (error, expected) in errors {
            assert_eq!(verdict(error.as_ref()), expected, "{error}");
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one value of each variant")]
    fn of_a_stores_errors_only_what_waiting_mends_may_be_tried_again() {
        let run = || RunRef::new("x", BreadcrumbId::NIL, 1);
        let text = String::new;
        let id = BreadcrumbId::NIL;
        let conflict = StoreError::Conflict {
            id,
            expected: 1,
            found: 2,
        };
        let full = StoreError::Full {
            store: "s",
            what: "runs",
            limit: 1,
        };
        let [count, size, limit] = [2, 2, 1];

        assert_eq!(conflict.retry(), Retry::After(Duration::ZERO));
        assert!(matches!(full.retry(), Retry::After(delay) if !delay.is_zero()));
        for never in [
            StoreError::NotFound {
                id,
                tombstone: None,
            },
            StoreError::LeaseLost { run: run() },
            StoreError::UnknownRun { run: run() },
            StoreError::Rejected {
                what: text(),
                source: crate::model::JsonError::TooDeep,
            },
            StoreError::Forbidden { reason: text() },
            StoreError::TooManyWrites { count, limit },
            StoreError::TooManyTags {
                write: 0,
                count,
                limit,
            },
            StoreError::TagTooLong {
                write: 0,
                size,
                limit,
            },
            StoreError::SchemaTooLong {
                write: 0,
                size,
                limit,
            },
            StoreError::EmptyWake,
            StoreError::PositionTooLarge {
                executor: "e".into(),
                size: count,
                limit,
            },
            StoreError::TooFar {
                store: "s",
                looked_at: count,
            },
            StoreError::Refused {
                store: "s",
                source: "no".into(),
            },
            StoreError::Unsupported {
                store: "s",
                operation: "o",
            },
        ] {
            assert_eq!(never.retry(), Retry::Never, "{never}");
        }
    }

    #[test]
    fn what_a_panic_said_is_in_the_error_and_not_in_the_message() {
        let error = ExecutorError::Panicked {
            message: "key sk-1".to_owned(),
        };

        assert_eq!(error.message(), "the executor panicked");
        assert_eq!(error.to_string(), "panicked: key sk-1");
    }

    #[test]
    fn an_error_of_this_crate_inside_a_users_error_keeps_its_retry() {
        #[derive(Debug, thiserror::Error)]
        #[error("could not look up the customer")]
        struct Lookup(#[source] StoreError);

        let error = Lookup(StoreError::Unsupported {
            store: "s",
            operation: "o",
        });

        assert_eq!(verdict(&error), Verdict::Permanent);
    }
}

//! Error of a request without a reply.

use super::{ClientError, QuestionView};
use crate::error::Retry;
use crate::store::{RunRef, RunState};
use std::time::Duration;

/// Error returned when a request has no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The run ended as failed.
    #[error("{run} failed with {code}{}", cause.as_deref().map(|cause| format!(": {cause}")).unwrap_or_default())]
    Failed {
        /// The run.
        run: RunRef,
        /// The code of the last error.
        code: String,
        /// The class of the failure, such as `permanent` or `attempts_used_up`.
        class: Option<String>,
        /// The last error and its sources, without credentials.
        cause: Option<String>,
    },
    /// The run was cancelled.
    #[error("{run} was cancelled")]
    Cancelled {
        /// The run.
        run: RunRef,
    },
    /// The run ended without an answer, because its executor does not match the trigger, or the trigger was deleted.
    #[error("{run} was skipped: {reason}")]
    Skipped {
        /// The run.
        run: RunRef,
        /// The reason, such as `unmatched` or `gone`.
        reason: String,
    },
    /// A later version of the trigger has another run, which replaces this run.
    #[error("{run} was superseded by a later version of its trigger")]
    Superseded {
        /// The run.
        run: RunRef,
    },
    /// The run has not ended within the timeout, and continues.
    #[error("{run} has not ended within {after:?}; it {}", describe(*state, question.is_some()))]
    TimedOut {
        /// The run.
        run: RunRef,
        /// The timeout of the wait.
        after: Duration,
        /// The state of the run. `None` if no worker has enqueued it.
        state: Option<RunState>,
        /// The question to a person that the run waits for.
        question: Option<Box<QuestionView>>,
    },
    /// The run cannot be read.
    #[error("cannot read the run of a request")]
    Client(#[from] ClientError),
}

fn describe(state: Option<RunState>, is_asking: bool) -> &'static str {
    match state {
        None => "was not enqueued yet: no worker with the executor has received the event",
        Some(_) if is_asking => "waits for the answer of a person",
        Some(RunState::Ready) => "is ready and waits for a worker",
        Some(RunState::Running) => "is running",
        Some(RunState::Suspended) => "is suspended",
        Some(RunState::Done | RunState::Failed | RunState::Skipped | RunState::Superseded) => {
            "ended a moment ago"
        }
    }
}

impl ReplyError {
    /// Returns when a retry of the wait can succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Failed { .. }
            | Self::Cancelled { .. }
            | Self::Skipped { .. }
            | Self::Superseded { .. } => Retry::Never,
            Self::TimedOut { .. } => Retry::After(Duration::ZERO),
            Self::Client(source) => source.retry(),
        }
    }

    /// Returns the code of the error, for logs and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Failed { .. } => "request_failed",
            Self::Cancelled { .. } => "cancelled",
            Self::Skipped { .. } => "skipped",
            Self::Superseded { .. } => "superseded",
            Self::TimedOut { .. } => "timed_out",
            Self::Client(source) => source.code(),
        }
    }
}

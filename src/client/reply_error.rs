//! Error of a client's request without a reply.

use super::{ClientError, QuestionView};
use crate::error::Retry;
use crate::store::{RunRef, RunState};
use std::time::Duration;

/// Error returned when a client's request has no reply.
///
/// Returned by [`RequestHandle::wait`](super::RequestHandle::wait) and
/// [`Turn::wait_for_end`](super::Turn::wait_for_end). Only [`TimedOut`](Self::TimedOut) and
/// [`Client`](Self::Client) can change with a further wait; [`retry`](Self::retry) returns which.
///
/// | variant | [code](Self::code) | remedy |
/// |---|---|---|
/// | `Failed` | `request_failed` | remove the cause, then [`Client::redo`](super::Client::redo) |
/// | `Cancelled` | `cancelled` | [`Client::redo`](super::Client::redo), or another key |
/// | `Skipped` | `skipped` | correct the breadcrumb or the subscription |
/// | `Superseded` | `superseded` | wait for the run of the later trigger version |
/// | `TimedOut` | `timed_out` | wait again, or answer the question |
/// | `Client` | that of the client error | see [`ClientError`] |
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The run that the client's request triggered has failed.
    ///
    /// The executor returned a permanent error, or no attempt is left. A dead letter
    /// (`executor.failed.v1`) has the same facts.
    #[error("{run} failed with {code}{}", cause.as_deref().map(|cause| format!(": {cause}")).unwrap_or_default())]
    Failed {
        /// The run that failed.
        run: RunRef,
        /// The code of the run's last error.
        code: String,
        /// The class of the run's failure, such as `permanent` or `attempts_used_up`.
        class: Option<String>,
        /// The run's last error and its sources, without credentials.
        cause: Option<String>,
    },
    /// The run that the client's request triggered was cancelled.
    ///
    /// [`Client::cancel`](super::Client::cancel), [`Runtime::cancel`](crate::Runtime::cancel) or an
    /// operator ended the run. No dead letter exists.
    #[error("{run} was cancelled")]
    Cancelled {
        /// The run that was cancelled.
        run: RunRef,
    },
    /// The run that the client's request triggered was skipped, because its executor does not match the trigger, or the trigger
    /// was deleted.
    ///
    /// With the reason `unmatched`, compare the breadcrumb with the subscriptions by
    /// [`Client::explain`](super::Client::explain).
    #[error("{run} was skipped: {reason}")]
    Skipped {
        /// The run that was skipped.
        run: RunRef,
        /// The reason why the run was skipped, such as `unmatched` or `gone`.
        reason: String,
    },
    /// A later version of the trigger has another run, which replaces the run that the client's request triggered.
    ///
    /// Another program updated the trigger before the run started. To follow the later run, list it
    /// with [`Client::explain`](super::Client::explain).
    #[error("{run} was superseded by a later version of its trigger")]
    Superseded {
        /// The run that was replaced.
        run: RunRef,
    },
    /// The run that the client's request triggered has not ended within the timeout, and continues.
    ///
    /// Without a `state`, usually no worker has received the trigger: start a worker, or check the
    /// executor ID. With a `question`, answer it with [`Questions`](super::Questions).
    #[error(
        "{run} has not ended within {after:?}; the run {}; wait again, or cancel the request",
        describe(*state, question.is_some())
    )]
    TimedOut {
        /// The run that has not ended.
        run: RunRef,
        /// The duration after which the client stopped waiting for the end of the run.
        after: Duration,
        /// The state that the run had in the store after the wait for its end timed out. `None` if no worker has enqueued it, if
        /// the ledger has deleted it, or if the store did not answer the last read.
        state: Option<RunState>,
        /// The open question to a person, if the run waits for the person's answer.
        question: Option<Box<QuestionView>>,
    },
    /// The run that the client's request triggered cannot be read from the store.
    ///
    /// The run is not affected, and a further wait can succeed after the delay of
    /// [`retry`](Self::retry).
    #[error("cannot read the run of a request from the store; see the cause")]
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
    /// Returns the delay after which another wait for the run can succeed, or [`Retry::Never`].
    ///
    /// [`TimedOut`](Self::TimedOut) allows an immediate retry. For [`Client`](Self::Client), the
    /// store's error decides. All other errors are final for this run.
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

    /// Returns a stable code of the error for logs and metrics, for example `timed_out`.
    ///
    /// The code is stable, unlike the message, and contains no data of the request.
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

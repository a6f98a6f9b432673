use super::event::WorkloadEventKind;
use super::session_error::SessionError;
use crate::error::BoxError;
use crate::model::Json;
use crate::store::Wake;
use crate::workflow::{MayRetry, StepFailure};
use std::time::Duration;

/// The end of a turn.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TurnStatus {
    /// It came to something.
    Completed {
        /// What it returned, else the last result of its steps.
        output: Json,
    },
    /// It failed.
    Failed {
        /// What went wrong.
        failure: StepFailure,
        /// Whether it may go better another time.
        retry: MayRetry,
    },
    /// It waits for others, or is due at once for another attempt.
    Suspended {
        /// What wakes it.
        wake: Wake,
        /// What it goes on with.
        state: Json,
    },
    /// It was stopped from outside.
    Cancelled,
}

impl TurnStatus {
    pub(super) fn failed(code: &str, message: impl Into<String>, retry: MayRetry) -> Self {
        Self::Failed {
            failure: StepFailure::new(code, message),
            retry,
        }
    }

    /// What a turn of code that panicked came to. Another time it may go better.
    pub(super) fn panicked() -> Self {
        let retry = MayRetry::After(Duration::ZERO);
        Self::failed("panic", "the workload panicked", retry)
    }

    pub(super) fn of_error(error: &BoxError) -> Self {
        Self::of_end(WorkloadEventKind::of_error(error))
    }

    pub(super) fn of_session(error: SessionError) -> Self {
        Self::of_error(&error.into())
    }

    /// Logs why the session does not have the end of a failed turn, without the message of the failure.
    pub(super) fn log_unsaved(&self, run: &str) {
        let code = match self {
            Self::Failed { failure, .. } => &*failure.code,
            Self::Completed { .. } => "completed",
            Self::Suspended { .. } => "suspended",
            Self::Cancelled => "cancelled",
        };
        tracing::warn!(
            run,
            code,
            "cannot save the end of a failed turn in its session"
        );
    }

    /// The last event of a turn that came to this.
    pub(super) fn end(&self) -> WorkloadEventKind {
        match self.clone() {
            Self::Completed { output } => WorkloadEventKind::Final { output },
            Self::Failed { failure, retry } => WorkloadEventKind::Error { failure, retry },
            Self::Suspended { wake, state } => WorkloadEventKind::Suspended { wake, state },
            Self::Cancelled => WorkloadEventKind::failed("cancelled", "the turn was stopped"),
        }
    }

    /// What a turn came to by the last event of its run.
    pub(super) fn of_end(end: WorkloadEventKind) -> Self {
        match end {
            WorkloadEventKind::Final { output } => Self::Completed { output },
            WorkloadEventKind::Error { failure, retry } => Self::Failed { failure, retry },
            WorkloadEventKind::Suspended { wake, state } => Self::Suspended { wake, state },
            WorkloadEventKind::Started
            | WorkloadEventKind::Restarted { .. }
            | WorkloadEventKind::Step(_)
            | WorkloadEventKind::Asked
            | WorkloadEventKind::Text(_)
            | WorkloadEventKind::Usage(_)
            | WorkloadEventKind::Repaired { .. }
            | WorkloadEventKind::ToolCalled { .. }
            | WorkloadEventKind::ToolAnswered { .. }
            | WorkloadEventKind::Compacted { .. }
            | WorkloadEventKind::Missed { .. } => Self::failed(
                "broke_off",
                "the workload ended without saying what it came to",
                MayRetry::Never,
            ),
        }
    }
}

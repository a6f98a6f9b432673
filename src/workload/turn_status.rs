use super::event::WorkloadEventKind;
use crate::error::BoxError;
use crate::model::Json;
use crate::session_log::SessionError;
use crate::store::Wake;
use crate::workflow::{MayRetry, StepFailure};
use std::time::Duration;

/// The status of a turn of a workload at its end.
///
/// [`TurnOutcome::status`](super::TurnOutcome::status) has it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TurnStatus {
    /// The turn completed with an output.
    Completed {
        /// The output of the turn: the value that the workload returned, otherwise the last result of its steps.
        output: Json,
    },
    /// The turn of the workload failed.
    ///
    /// The code is `panic` for a panic of the workload, `not_made` if no workload could be created,
    /// `broke_off` for a stream without an end, `store` or `session` for their errors, and
    /// otherwise the code of the run.
    Failed {
        /// The code and the message of the turn's failure.
        failure: StepFailure,
        /// The decision whether and when the turn is retried.
        retry: MayRetry,
    },
    /// The turn is suspended: it waits for a breadcrumb or a time, or it yields to another attempt, which is due at once.
    ///
    /// `Supervisor::resume` of the feature `workloads` continues it. An executor's run is continued
    /// by the runtime.
    Suspended {
        /// The breadcrumbs or the time that the suspended turn waits for.
        wake: Wake,
        /// The saved state from which the suspended turn resumes.
        state: Json,
    },
    /// The turn was stopped from outside its workload.
    Cancelled,
}

impl TurnStatus {
    pub(super) fn failed(code: &str, message: impl Into<String>, retry: MayRetry) -> Self {
        Self::Failed {
            failure: StepFailure::new(code, message),
            retry,
        }
    }

    /// Creates the status of a turn whose workload panicked. A retry can succeed.
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

    /// Logs that the session could not save the end of a failed turn. The log event has the code of the error of the
    /// save. The message of the error is not logged.
    #[cfg(feature = "workloads")]
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
            "cannot save the end of a failed turn; its session still counts as suspended: resume or give up the turn"
        );
    }

    /// Creates the last event of a turn from this status.
    pub(super) fn end(&self) -> WorkloadEventKind {
        match self.clone() {
            Self::Completed { output } => WorkloadEventKind::Final { output },
            Self::Failed { failure, retry } => WorkloadEventKind::Error { failure, retry },
            Self::Suspended { wake, state } => WorkloadEventKind::Suspended { wake, state },
            Self::Cancelled => WorkloadEventKind::failed("cancelled", "the turn was stopped"),
        }
    }

    /// Converts the last event of a turn's run to the status of the turn.
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
                "the workload ended its event stream without a final event",
                MayRetry::Never,
            ),
        }
    }
}

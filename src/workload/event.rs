use crate::agent::Usage;
use crate::classes::class_of;
use crate::error::{BoxError, Retry};
use crate::executor::Record;
use crate::model::{Json, Timestamp};
use crate::session_log::SessionError;
use crate::store::{StoreError, Wake};
use crate::workflow::{FlowEventKind, MayRetry, StepEvent, StepEventKind, StepFailure, StepPath};
use std::sync::Arc;
use std::time::Duration;

/// An event of a run of a workload.
///
/// Read events from an [`EventStream`](super::EventStream), or receive them in the closure of
/// [`WorkloadExecutor::with_events`](super::WorkloadExecutor::with_events). Programs match on
/// [`kind`](Self::kind), and pair the events of a run by [`run`](Self::run).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WorkloadEvent {
    /// The name of the workload run that emitted the event.
    pub run: Arc<str>,
    /// The name of the outer run, if the workload run that emitted the event runs within an outer run.
    pub parent: Option<Arc<str>>,
    /// Path of the step that the event is about, or an empty path for the workload run itself. For an agent that another agent
    /// called, the names of the called agents follow.
    pub path: StepPath,
    /// Number of the workload event in the stream of its run, counted from 1 without gaps.
    pub sequence: u64,
    /// Time of the workload event, by the clock of the machine that emitted it.
    pub at: Timestamp,
    /// Kind of the workload event, with its data.
    pub kind: WorkloadEventKind,
}

/// Kinds of events of a workload run.
///
/// The first event of a stream is [`Started`](Self::Started). Only the last one [ends it](Self::is_end). Between them, each step that
/// starts ends once, after the steps below it, unless the run is suspended first. A suspended run continues in a new stream, in which
/// steps of the earlier stream can end.
///
/// A listener of a `Supervisor` or a [`WorkloadExecutor`](super::WorkloadExecutor) receives the end of a turn after the session is
/// saved and all resources are closed. [`TurnOutcome`](super::TurnOutcome) then has the same result. A turn that is stopped, also
/// before it started, ends as an [`Error`](Self::Error) with the code `cancelled`. A step that runs when a turn ends or is
/// [repeated](Self::Restarted) ends as cancelled.
///
/// ```
/// use universal_executor::workload::WorkloadEventKind;
///
/// let failed = WorkloadEventKind::failed("no_stock", "the item is sold out");
/// assert!(failed.is_end());
/// assert!(!WorkloadEventKind::Started.is_end());
/// assert!(!WorkloadEventKind::Text("Hel".to_owned()).is_end());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WorkloadEventKind {
    /// The workload run starts, or continues after it was suspended.
    Started,
    /// The workload run failed with a temporary error and starts again from the beginning. Discard its earlier events.
    /// An attempt that could not read its session has no such event.
    Restarted {
        /// The number of the run's next attempt.
        attempt: u32,
        /// The error of the run's previous attempt.
        failure: StepFailure,
        /// The delay before the run's next attempt.
        after: Duration,
    },
    /// A change of a step in the run's flow, for example its start, its end or its wait for a person.
    Step(FlowEventKind),
    /// A model call started.
    Asked,
    /// A further part of the text of a model's answer.
    ///
    /// Joined in their order, the parts are the answer that the model writes. Discard the parts of
    /// a model call after [`Repaired`](Self::Repaired).
    Text(String),
    /// Token usage of the current model call so far.
    ///
    /// A later event of the same model call replaces an earlier one.
    Usage(Usage),
    /// The answer of a model was invalid. The model receives the problem and answers again.
    Repaired {
        /// The reason why the model's answer was invalid.
        problem: String,
    },
    /// An agent of the run calls a tool.
    ToolCalled {
        /// ID of the tool call.
        call: String,
        /// Name of the called tool, as the model wrote it.
        tool: String,
    },
    /// An agent of the run received the result of a tool call.
    ToolAnswered {
        /// ID of the tool call.
        call: String,
        /// If `true`, the result of the tool call is an error.
        is_error: bool,
    },
    /// A session's or an agent's conversation with a model was too long and was shortened. The shortened form is saved.
    Compacted {
        /// Number of turns that were omitted from the conversation. If a running agent shortened its own turn, this is the number of
        /// omitted messages.
        left_out: u64,
        /// If `true`, a summary replaces the omitted turns in the conversation.
        summed_up: bool,
    },
    /// Events with details of the run were dropped, because the reader of the run's event stream is too slow.
    Missed {
        /// Number of events that were dropped from the run's event stream.
        events: u64,
    },
    /// The workload run succeeded.
    Final {
        /// The output: the value that the run returned, otherwise the last result of its steps.
        output: Json,
    },
    /// The workload run failed.
    Error {
        /// The code and the message of the run's failure.
        failure: StepFailure,
        /// The decision whether and when the run is retried.
        retry: MayRetry,
    },
    /// The workload run is suspended. The run waits for a breadcrumb or a time, or is due at once for
    /// [another attempt](crate::workflow#what-a-driver-does). The run continues when the workload runs again with a context that is
    /// [resumed](crate::ExecutionContext::with_resumed) with this state.
    Suspended {
        /// The breadcrumbs or the time that the suspended run waits for.
        wake: Wake,
        /// The saved state from which the suspended run continues.
        state: Json,
    },
}

impl WorkloadEventKind {
    /// Returns `true` for the last event of a run's event stream.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(
            self,
            Self::Final { .. } | Self::Error { .. } | Self::Suspended { .. }
        )
    }

    /// Returns `true` for an event that starts a workload run, or starts it again.
    pub(super) const fn begins(&self) -> bool {
        matches!(self, Self::Started | Self::Restarted { .. })
    }

    /// Creates the last event of a workload run that failed and would fail again.
    ///
    /// The code is for programs, and the message for people. The failure has no step path.
    #[must_use]
    pub fn failed(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Error {
            failure: StepFailure::new(code, message),
            retry: MayRetry::Never,
        }
    }

    /// Creates the last event of a workload run that an error ended. Omits the message of an error from outside this crate, because
    /// events have many readers.
    pub(super) fn of_error(error: &BoxError) -> Self {
        let retry = match class_of(error.as_ref()).retry() {
            Retry::Never => MayRetry::Never,
            Retry::After(delay) => MayRetry::After(delay),
        };
        let failure = if let Some(error) = error.downcast_ref::<StoreError>() {
            StepFailure::new("store", error.to_string())
        } else if let Some(error) = error.downcast_ref::<SessionError>() {
            StepFailure::new("session", error.to_string())
        } else {
            StepFailure::new(
                "failed",
                "run failed; the error text is omitted, because it can contain confidential data",
            )
        };
        Self::Error { failure, retry }
    }

    /// Converts the event to an event for chat clients, or returns `None` if chat clients do not receive this kind of event.
    pub(super) fn into_record(self) -> Option<Record> {
        match self {
            Self::Text(text) => Some(Record::Text(text)),
            Self::ToolCalled { call, tool } => Some(Record::ToolCalled { call, tool }),
            Self::ToolAnswered { call, is_error } => Some(Record::ToolAnswered { call, is_error }),
            Self::Missed { .. } => Some(Record::Missed),
            // The client receives the text of the repeated model call from the start.
            Self::Repaired { .. } | Self::Step(FlowEventKind::Retried { .. }) => {
                Some(Record::Repeated)
            }
            Self::Started
            | Self::Restarted { .. }
            | Self::Step(_)
            | Self::Asked
            | Self::Usage(_)
            | Self::Compacted { .. }
            | Self::Final { .. }
            | Self::Error { .. }
            | Self::Suspended { .. } => None,
        }
    }

    /// Returns `true` for an event with details of a run, which may be dropped when the buffer of the event stream is
    /// full. Starts and ends of steps and runs are no details.
    pub(super) const fn is_detail(&self) -> bool {
        match self {
            Self::Asked
            | Self::Text(_)
            | Self::Usage(_)
            | Self::Repaired { .. }
            | Self::ToolCalled { .. }
            | Self::ToolAnswered { .. } => true,
            Self::Started
            | Self::Restarted { .. }
            | Self::Step(_)
            | Self::Compacted { .. }
            | Self::Missed { .. }
            | Self::Final { .. }
            | Self::Error { .. }
            | Self::Suspended { .. } => false,
        }
    }
}

impl From<StepEvent> for WorkloadEventKind {
    fn from(event: StepEvent) -> Self {
        match event.kind {
            StepEventKind::Flow { kind, .. } => Self::Step(kind),
            StepEventKind::Asked => Self::Asked,
            StepEventKind::Text(text) => Self::Text(text),
            StepEventKind::Usage(usage) => Self::Usage(usage),
            StepEventKind::Repaired { problem } => Self::Repaired { problem },
            StepEventKind::Compacted {
                left_out,
                summed_up,
            } => Self::Compacted {
                left_out,
                summed_up,
            },
            StepEventKind::ToolCalled { call, tool } => Self::ToolCalled { call, tool },
            StepEventKind::ToolAnswered { call, is_error } => Self::ToolAnswered { call, is_error },
        }
    }
}

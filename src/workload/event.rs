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

/// Something that happens in a run of a workload.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WorkloadEvent {
    /// The run.
    pub run: Arc<str>,
    /// The run that this one belongs to, if there is one.
    pub parent: Option<Arc<str>>,
    /// The step it happens in, and within it the agents that its agent asked, each by its name; empty for the run itself.
    pub path: StepPath,
    /// Its number among those of the run in the stream, counted from 1 without gaps.
    pub sequence: u64,
    /// When, by the clock of the machine.
    pub at: Timestamp,
    /// What.
    pub kind: WorkloadEventKind,
}

/// What can happen in a run of a workload.
///
/// The first event of a stream is [`Started`](Self::Started). Only the last one [ends it](Self::is_end). Between them, each step that
/// starts ends once, after the steps below it, unless the run is suspended first. A suspended run continues in a new stream, in which
/// steps of the earlier stream can end.
///
/// A listener of a `Supervisor` or a [`WorkloadExecutor`](super::WorkloadExecutor) receives the end of a turn after the session is
/// saved and all resources are closed. [`TurnOutcome`](super::TurnOutcome) then has the same result. A turn that is stopped, also
/// before it started, ends as an [`Error`](Self::Error) with the code `cancelled`. A step that runs when a turn ends or is
/// [repeated](Self::Restarted) ends as cancelled.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WorkloadEventKind {
    /// The run starts, or continues after a wait.
    Started,
    /// The run failed with a temporary error and starts again from the beginning. Discard its earlier events. An attempt that could
    /// not read its session has no such event.
    Restarted {
        /// The number of the next attempt.
        attempt: u32,
        /// The error of the attempt before.
        failure: StepFailure,
        /// How long is waited.
        after: Duration,
    },
    /// Something of a step: it began, ended, waits for somebody, ..
    Step(FlowEventKind),
    /// A model is asked.
    Asked,
    /// More of the text that a model answers.
    Text(String),
    /// What an answer of a model cost so far.
    Usage(Usage),
    /// The answer of a model is not what it should be, and it is told why.
    Repaired {
        /// What is wrong with it.
        problem: String,
    },
    /// An agent calls a tool.
    ToolCalled {
        /// The call.
        call: String,
        /// The tool, as the model wrote its name.
        tool: String,
    },
    /// An agent is given what a call came to.
    ToolAnswered {
        /// The call.
        call: String,
        /// Whether that is an error.
        is_error: bool,
    },
    /// A conversation became too long and was made shorter, and that is kept.
    Compacted {
        /// How many turns are not shown any more; of an agent at work, how many of the messages within its turn.
        left_out: u64,
        /// Whether a summary stands in their place.
        summed_up: bool,
    },
    /// Details that found no room, since whoever listens is slow: they are left out.
    Missed {
        /// How many.
        events: u64,
    },
    /// The run is over, and has come to something.
    Final {
        /// What it returned, else the last result of its steps.
        output: Json,
    },
    /// The run is over, and has failed.
    Error {
        /// What went wrong.
        failure: StepFailure,
        /// Whether it may go better another time.
        retry: MayRetry,
    },
    /// The run waits for others, or is due at once for [another attempt](crate::workflow#what-a-driver-does). It goes on if it is run again on a context that is
    /// [resumed](crate::ExecutionContext::with_resumed) with this state.
    Suspended {
        /// What wakes it.
        wake: Wake,
        /// What it goes on with.
        state: Json,
    },
}

impl WorkloadEventKind {
    /// Whether it is the last event of its stream.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(
            self,
            Self::Final { .. } | Self::Error { .. } | Self::Suspended { .. }
        )
    }

    /// Whether it says that a run begins, or begins again.
    pub(super) const fn begins(&self) -> bool {
        matches!(self, Self::Started | Self::Restarted { .. })
    }

    /// A run that has failed, and would again.
    #[must_use]
    pub fn failed(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Error {
            failure: StepFailure::new(code, message),
            retry: MayRetry::Never,
        }
    }

    /// How a run ends that an error ended. Of one that is not of this crate nothing is said, since events are read by many.
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
                "the run failed; what its error says is kept out of here",
            )
        };
        Self::Error { failure, retry }
    }

    /// Returns the event for the client of a chat turn. `None` for events that such a client does not get.
    pub(super) fn into_record(self) -> Option<Record> {
        match self {
            Self::Text(text) => Some(Record::Text(text)),
            Self::ToolCalled { call, tool } => Some(Record::ToolCalled { call, tool }),
            Self::ToolAnswered { call, is_error } => Some(Record::ToolAnswered { call, is_error }),
            Self::Missed { .. } => Some(Record::Missed),
            // The model call is repeated.
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

    /// Whether it says what the run does rather than where it is: it may be left out where there is no room.
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

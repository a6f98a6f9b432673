//! Events of a flow run, reported while the run is in progress.

use crate::agent::Usage;
use crate::workflow::{FlowEvent, FlowEventKind, StepPath};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Receives the events of a flow run while the run is in progress.
///
/// The run calls the sink directly, so the sink must not block. A slow receiver should put the events into a bounded queue, and drop
/// events that do not fit.
///
/// A later attempt continues from the last saved state of the run. Events that an earlier attempt reported after its last save are
/// reported again, and can differ, with the same number of the [`FlowEvent`]. The later event counts.
///
/// Set it with [`RunOptions::events`](crate::workflow::RunOptions::events).
///
/// ```
/// use std::sync::Arc;
/// use universal_executor::workflow::{EventSink, StepEvent, StepEventKind};
///
/// let sink: EventSink = Arc::new(|event: StepEvent| {
///     if let StepEventKind::Text(text) = &event.kind {
///         print!("{text}");
///     }
/// });
/// # drop(sink);
/// ```
pub type EventSink = Arc<dyn Fn(StepEvent) + Send + Sync>;

/// An event of a flow run: progress of a step, a request or answer of a model, or a tool call. Each process that works on the run reports
/// an event once.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepEvent {
    /// ID of the flow run, as in [`Progress::run`](crate::workflow::Progress::run).
    pub run: Arc<str>,
    /// ID of the run that contains the flow run, if there is one.
    pub parent: Option<Arc<str>>,
    /// Path of the step to which the event belongs. For an agent that another agent called, the names of the called agents follow.
    pub path: StepPath,
    /// Number of the event among all events of the flow run that this process reports, counted from 1 without gaps.
    pub sequence: u64,
    /// Kind of the event, with its data, such as the text of a model's answer or the ID of a tool call.
    ///
    /// Match on it, with an arm for kinds that later versions add.
    pub kind: StepEventKind,
}

/// Kind of an event of a flow run, with the data of the event.
///
/// [`Flow`](Self::Flow) events repeat after a crash with the same number. The other kinds describe
/// one attempt: a repeated model call sends its text again.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StepEventKind {
    /// Event of the flow itself: the start, end, retry, suspension or pause of a step or of the run.
    Flow {
        /// Sequence number of the [`FlowEvent`] in the flow run. The number is the same in each process that reports the event.
        /// Of two events with the same number, the later one counts.
        sequence: u64,
        /// Kind of the flow run's event, such as the start or the end of a step.
        kind: FlowEventKind,
    },
    /// An agent or model step sends a request to a model.
    Asked,
    /// The next part of the text of a model's answer.
    Text(String),
    /// The token usage of a model's answer so far.
    Usage(Usage),
    /// The answer of a model is invalid. The model receives the problem and answers again.
    Repaired {
        /// Problem of the model's invalid answer.
        problem: String,
    },
    /// The conversation of a running agent was compacted, and the shorter conversation is saved.
    Compacted {
        /// Number of messages of the conversation that the model no longer receives.
        left_out: u64,
        /// If `true`, a summary replaces the messages that the model no longer receives.
        summed_up: bool,
    },
    /// An agent calls a tool.
    ToolCalled {
        /// ID of the agent's tool call.
        call: String,
        /// Name of the called tool as the model wrote it, cut to 80 bytes.
        tool: String,
    },
    /// An agent receives the result of a tool call.
    ToolAnswered {
        /// ID of the tool call to which the result belongs.
        call: String,
        /// If `true`, the result of the tool call is an error.
        is_error: bool,
    },
}

/// Numbers the events of a flow run and passes them to the caller's receiver of events, if there is one.
pub(super) struct Emitter {
    run: Arc<str>,
    parent: Option<Arc<str>>,
    last: AtomicU64,
    sink: Option<EventSink>,
}

impl Emitter {
    pub(super) fn new(run: &str, parent: Option<&str>, sink: Option<EventSink>) -> Self {
        Self {
            run: run.into(),
            parent: parent.map(Arc::from),
            last: AtomicU64::new(0),
            sink,
        }
    }

    /// Returns `true` if the run has a receiver of its events.
    pub(super) fn has_sink(&self) -> bool {
        self.sink.is_some()
    }

    pub(super) fn send(&self, path: &StepPath, kind: StepEventKind) {
        let Some(sink) = &self.sink else { return };
        let sequence = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        sink(StepEvent {
            run: Arc::clone(&self.run),
            parent: self.parent.clone(),
            path: path.clone(),
            sequence,
            kind,
        });
    }

    pub(super) fn send_flow_event(&self, event: &FlowEvent) {
        let FlowEvent {
            sequence,
            path,
            kind,
        } = event;
        if self.has_sink() {
            let (sequence, kind) = (*sequence, kind.clone());
            self.send(path, StepEventKind::Flow { sequence, kind });
        }
    }
}

impl fmt::Debug for Emitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emitter")
            .field("run", &self.run)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

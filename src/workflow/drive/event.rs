//! What happens in a run, told while it happens.

use crate::agent::Usage;
use crate::workflow::{FlowEvent, FlowEventKind, StepPath};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Takes events of runs as they happen. It is called within the run, so it must not block: one that is slow puts them
/// into a queue of its own, and leaves out what finds no room there.
///
/// A later attempt at a run goes on from what was kept. What an earlier one told and could not keep is told again, and may
/// come out otherwise, with the same number of the [`FlowEvent`]: the later counts.
pub type EventSink = Arc<dyn Fn(StepEvent) + Send + Sync>;

/// Something that happens in a run, told once by each process that works on it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepEvent {
    /// The run, as its [`Progress`](crate::workflow::Progress::run) has it.
    pub run: Arc<str>,
    /// The run that this one belongs to, if there is one.
    pub parent: Option<Arc<str>>,
    /// The step, and within it the agents that its agent asked, each by its name.
    pub path: StepPath,
    /// Its number among all that this process tells of the run, counted from 1 without gaps.
    pub sequence: u64,
    /// What happens.
    pub kind: StepEventKind,
}

/// What can happen in a run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StepEventKind {
    /// Something of the flow itself.
    Flow {
        /// The number that it has in the [`FlowEvent`], the same whoever tells it. Of two with one number the later counts.
        sequence: u64,
        /// What.
        kind: FlowEventKind,
    },
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
    /// The conversation of an agent at work became too long and was made shorter, and that is kept.
    Compacted {
        /// How many of its messages are not shown any more.
        left_out: u64,
        /// Whether a summary stands in their place.
        summed_up: bool,
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
}

/// Numbers the events of a run, and tells them.
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

    /// Whether somebody listens.
    pub(super) fn is_heard(&self) -> bool {
        self.sink.is_some()
    }

    pub(super) fn tell(&self, path: &StepPath, kind: StepEventKind) {
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

    pub(super) fn tell_flow(&self, event: &FlowEvent) {
        let FlowEvent {
            sequence,
            path,
            kind,
        } = event;
        if self.is_heard() {
            let (sequence, kind) = (*sequence, kind.clone());
            self.tell(path, StepEventKind::Flow { sequence, kind });
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

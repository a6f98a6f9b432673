use super::{Conversations, EventSink};
use crate::model::Json;
use crate::store::Wake;
use crate::workflow::{Finish, RunError};
use std::fmt;
use std::sync::Arc;

/// Options with which a run of a flow starts.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RunOptions {
    /// The flow.
    pub flow: String,
    /// The input of the flow. Models see it: an executor that takes it from a breadcrumb uses
    /// [`for_model`](crate::ExecutionContext::for_model), which applies the breadcrumb's hints.
    pub input: Json,
    /// The run that this one belongs to, for its events.
    pub parent: Option<String>,
    /// The receiver of the events of the run.
    pub events: Option<EventSink>,
    /// If `true`, the events of the run are also stored, as `workflow.progress.v1`. Defaults to `false`.
    pub stores_progress: bool,
    /// The text of the user's message that started the turn. A model step whose whole input is this text sends it as the user's
    /// message, not as data.
    pub(crate) user_message: Option<Arc<str>>,
    /// Who keeps what its agents say.
    pub(crate) conversations: Option<Arc<dyn Conversations>>,
}

/// How far a run of a flow came.
#[derive(Clone, Debug, PartialEq)]
pub enum Driven {
    /// It did not begin, or cannot go on.
    Refused(RunError),
    /// To its end.
    Finished(Finish),
    /// It waits for others, or has made way for [another attempt](crate::workflow#what-a-driver-does) and is due at once. It goes
    /// on with this state once it is woken.
    Suspended {
        /// What wakes it.
        wake: Wake,
        /// What [`ExecutionContext::resumed`](crate::ExecutionContext::resumed) has to give then.
        state: Json,
    },
}

impl RunOptions {
    /// Creates options to run a flow without a receiver of its events.
    #[must_use]
    pub fn new(flow: impl Into<String>, input: impl Into<Json>) -> Self {
        Self {
            flow: flow.into(),
            input: input.into(),
            ..Self::default()
        }
    }

    /// Sets the receiver of the events of the run.
    #[must_use]
    pub fn events(mut self, sink: EventSink) -> Self {
        self.events = Some(sink);
        self
    }

    /// Stores the events of the run as well, each time the run is saved: `workflow.progress.v1` with `run`, the id of the trigger,
    /// and `events`, which are [`FlowEvent`](crate::workflow::FlowEvent)s. After a crash some may be told again, with their numbers; and
    /// where an attempt could not keep what it came to, the next one may tell otherwise under the same number: the later counts.
    #[must_use]
    pub fn store_progress(mut self) -> Self {
        self.stores_progress = true;
        self
    }

    /// Sets the run that this one belongs to.
    #[must_use]
    pub fn parent(mut self, run: impl Into<String>) -> Self {
        self.parent = Some(run.into());
        self
    }
}

impl fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunOptions")
            .field("flow", &self.flow)
            .field("parent", &self.parent)
            .field("is_heard", &self.events.is_some())
            .finish_non_exhaustive()
    }
}

use super::{Conversations, EventSink};
use crate::model::Json;
use crate::store::Wake;
use crate::workflow::{Finish, RunError};
use std::fmt;
use std::sync::Arc;

/// Options of a run of a flow, for [`Assembly::drive`](crate::workflow::Assembly::drive).
///
/// ```
/// use serde_json::json;
/// use universal_executor::workflow::RunOptions;
///
/// let options = RunOptions::new("main", json!("crabs")).parent("run-7").store_progress();
/// assert_eq!(options.flow, "main");
/// assert_eq!(options.parent.as_deref(), Some("run-7"));
/// assert!(options.stores_progress);
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RunOptions {
    /// Name of the flow to run.
    pub flow: String,
    /// Input of the flow to run. Models can see the input: an executor that takes it from a breadcrumb uses
    /// [`for_model`](crate::ExecutionContext::for_model), which applies the breadcrumb's hints.
    pub input: Json,
    /// ID of the run that contains this flow run, or `None` if there is no such run. The events of the flow run contain this ID.
    pub parent: Option<String>,
    /// Receiver of the events of the flow run.
    pub events: Option<EventSink>,
    /// If `true`, the events of the flow run are also stored, as `workflow.progress.v1`. Defaults to `false`.
    ///
    /// The executor must be permitted to write this schema.
    pub stores_progress: bool,
    /// Text of the user's chat message that the flow run processes, or `None` if the input is not from a user. A model step whose whole
    /// input is this text sends it as the user's message, not as data.
    pub(crate) user_message: Option<Arc<str>>,
    /// Store of the conversations of the agents in the flow run.
    pub(crate) conversations: Option<Arc<dyn Conversations>>,
}

/// Outcome of an attempt at a flow run with [`Assembly::drive`](crate::workflow::Assembly::drive).
#[derive(Clone, Debug, PartialEq)]
pub enum Driven {
    /// The flow run did not begin, or cannot continue.
    ///
    /// Nothing was executed in this attempt. A repeated attempt is refused again.
    Refused(RunError),
    /// The flow run ended: it completed, failed or was cancelled.
    Finished(Finish),
    /// The flow run is suspended: it waits, or it yields to [another attempt](crate::workflow#what-a-driver-does), which is due
    /// at once. It continues from this state when it is woken.
    ///
    /// Return [`suspend(wake, state)`](crate::suspend) from `execute` to suspend the run of the
    /// executor.
    Suspended {
        /// Condition that wakes the suspended flow run.
        wake: Wake,
        /// State to save with the suspended flow run. When the run continues,
        /// [`ExecutionContext::resumed`](crate::ExecutionContext::resumed) must return this state.
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

    /// Sets the receiver of the events of the flow run.
    #[must_use]
    pub fn events(mut self, sink: EventSink) -> Self {
        self.events = Some(sink);
        self
    }

    /// Stores the events of the flow run as `workflow.progress.v1` breadcrumbs, each time the run is saved.
    ///
    /// The context of such a breadcrumb has `run`, the ID of the trigger, and `events`, a list of
    /// [`FlowEvent`](crate::workflow::FlowEvent)s. After a crash, some events can be stored again with the same numbers. If an attempt
    /// could not save its progress, the next attempt can store different events with the same numbers. The later event counts.
    #[must_use]
    pub fn store_progress(mut self) -> Self {
        self.stores_progress = true;
        self
    }

    /// Sets the ID of the outer run within which the flow run starts. The events of the flow run contain this ID.
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

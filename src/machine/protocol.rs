use super::call::{Answer, Deferral, MachineCall, ToolOutcome, ToolResult};
use super::id::{CallId, RunId};
use crate::model::Json;
use serde::{Deserialize, Serialize};

/// Something that happened, and to which run. Recorded inputs can be replayed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Input {
    /// The run it belongs to.
    pub run: RunId,
    /// What happened.
    pub signal: Signal,
}

impl Input {
    /// Something that happened to a run.
    #[must_use]
    pub fn new(run: &RunId, signal: Signal) -> Self {
        Self {
            run: run.clone(),
            signal,
        }
    }
}

/// What can happen to a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// The agent asks for a tool.
    ToolCallReceived {
        /// What it asks for.
        call: MachineCall,
        /// Whether another call of the same turn follows. A batch waits for the last one; without this, tools that
        /// finish before the next call was received would split the turn. Has no effect under
        /// [`ResultDelivery::Each`](super::ResultDelivery::Each).
        more: bool,
    },
    /// The execution of a call ended.
    ToolCallFinished {
        /// Which call.
        call_id: CallId,
        /// How it ended.
        outcome: ToolOutcome,
    },
    /// A deferred call has its answer.
    DeferredResolved {
        /// Which call.
        call_id: CallId,
        /// Its answer.
        result: Answer,
    },
    /// The agent ended by itself.
    AgentCompleted {
        /// What it said last; `null` if nothing.
        output: Json,
    },
    /// The agent broke down: not a tool that failed, which is a result.
    AgentFailed {
        /// Why. What is longer than 4,096 bytes is cut.
        error: String,
    },
    /// The run shall end.
    Cancel,
}

/// What the driver has to do. Effects are carried out in their order.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Execute this call; its end is a [`Signal::ToolCallFinished`]. At most one of each call comes out of
    /// [`Machine::step`](super::Machine::step).
    Execute(MachineCall),
    /// Give callers their answers. Each item is for one caller: a call that was sent twice is in here twice. An answer
    /// that comes from the very step that received a call is for the sender of that call; a later one is the same for
    /// all who wait for it.
    Deliver(Vec<ToolResult>),
    /// See to it that a deferred call gets its answer, which is a [`Signal::DeferredResolved`].
    Defer {
        /// Which call.
        call_id: CallId,
        /// Where its answer comes from.
        action: Deferral,
    },
    /// Stop what is under way for a call, if that is possible. Its caller has been answered; what still comes of it is
    /// an anomaly.
    CancelCall(CallId),
    /// Let the agent go on, and remind it of outputs that it has not handed in.
    Remind {
        /// The tools it has to call.
        missing: Vec<String>,
    },
    /// The run is over.
    Finish(Exit),
    /// Something did not fit and changed nothing: worth an event for whoever watches, and no more.
    Report(MachineAnomaly),
}

/// How a run ended. Outputs are in [`Machine::outputs`](super::Machine::outputs), however it ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// With all that was required.
    WithOutput {
        /// What the agent said last.
        output: Json,
    },
    /// Without an error, but something that was required is missing: neither a success nor an error.
    WithoutOutput {
        /// What the agent said last.
        output: Json,
        /// The slots that are empty.
        missing: Vec<String>,
    },
    /// The agent broke down.
    Error {
        /// Why.
        error: String,
    },
    /// It was cancelled from outside.
    Cancelled,
}

/// An input that did not fit. It changed nothing but what its variant says.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineAnomaly {
    /// Something ended that is not being executed: no call of this id was accepted, or it waits in the queue.
    UnknownCall {
        /// The id in the input.
        call_id: CallId,
    },
    /// A call ended again that had ended, was deferred or was cancelled.
    DuplicateCompletion {
        /// Which call.
        call_id: CallId,
    },
    /// A call came with the id of another one. Its caller gets an error result.
    ConflictingCall {
        /// The id of both.
        call_id: CallId,
    },
    /// An answer came for a call that is not the one the run is suspended for.
    NotDeferred {
        /// Which call.
        call_id: CallId,
    },
    /// The run is over. The caller of a call that came too late is answered `cancelled`.
    AfterTerminal,
    /// The input belongs to another run, and nobody is answered: the driver has to tell its caller.
    StaleRun {
        /// The run in the input.
        run: RunId,
    },
}

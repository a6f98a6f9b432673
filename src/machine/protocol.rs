use super::call::{Answer, Deferral, MachineCall, ToolOutcome, ToolResult};
use super::id::{CallId, RunId};
use crate::model::Json;
use serde::{Deserialize, Serialize};

/// An event for a run, with the run's ID. Recorded inputs can be replayed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Input {
    /// The ID of the run that the event belongs to.
    pub run: RunId,
    /// The event.
    pub signal: Signal,
}

impl Input {
    /// Creates an input for `run`.
    #[must_use]
    pub fn new(run: &RunId, signal: Signal) -> Self {
        Self {
            run: run.clone(),
            signal,
        }
    }
}

/// An event in an agent run that a driver reports to the machine.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// The agent requests a tool call.
    ToolCallReceived {
        /// The requested call.
        call: MachineCall,
        /// If `true`, another call of the same turn follows, and a batch is not delivered before the last call was received.
        /// Without this flag, a tool that finishes before the next call is received would split the turn. Has no effect
        /// under [`ResultDelivery::Each`](super::ResultDelivery::Each).
        more: bool,
    },
    /// The execution of a call ended.
    ToolCallFinished {
        /// The ID of the call that finished.
        call_id: CallId,
        /// The result of the execution.
        outcome: ToolOutcome,
    },
    /// The answer of a deferred call arrived.
    DeferredResolved {
        /// The ID of the deferred call.
        call_id: CallId,
        /// The answer of the call.
        result: Answer,
    },
    /// The agent finished on its own.
    AgentCompleted {
        /// The agent's last output, or `null` if there is no output.
        output: Json,
    },
    /// The agent itself failed. A failed tool is not this event but an error result of its call.
    AgentFailed {
        /// The reason. The machine truncates it to 4,096 bytes.
        error: String,
    },
    /// A request from outside to cancel the run.
    Cancel,
}

/// An action for the driver. The driver carries out the effects of one step in order.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The execution of this call, after which the driver sends [`Signal::ToolCallFinished`].
    /// [`Machine::step`](super::Machine::step) returns this effect at most once per call.
    Execute(MachineCall),
    /// The delivery of these answers. Each item is for one caller, so a call that was sent twice appears twice. An answer
    /// from the step that received a call belongs to the sender of that call. An answer from a later step is the same for
    /// all callers that wait for the call.
    Deliver(Vec<ToolResult>),
    /// A request for the answer of a deferred call, which the driver sends as [`Signal::DeferredResolved`].
    Defer {
        /// The ID of the deferred call.
        call_id: CallId,
        /// The source of the answer.
        action: Deferral,
    },
    /// The cancellation of an executing or deferred call, if possible. The callers of this call receive `cancelled`. A
    /// later result of the call is reported as an anomaly.
    CancelCall(CallId),
    /// The continuation of the agent, with a reminder of missing required outputs.
    Remind {
        /// The tools that the agent still has to call.
        missing: Vec<String>,
    },
    /// The end of the run.
    Finish(Exit),
    /// The report of an unexpected input that changed nothing, for logs or monitoring.
    Report(MachineAnomaly),
}

/// The end of a run. [`Machine::outputs`](super::Machine::outputs) returns the accepted outputs for every exit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// The agent completed with all required outputs.
    WithOutput {
        /// The agent's last output.
        output: Json,
    },
    /// The agent completed without an error, but required outputs are missing.
    WithoutOutput {
        /// The agent's last output.
        output: Json,
        /// The tools of the required slots that are empty.
        missing: Vec<String>,
    },
    /// The agent failed.
    Error {
        /// The reason.
        error: String,
    },
    /// The run was cancelled from outside.
    Cancelled,
}

/// An unexpected input. The machine reports it and changes nothing, except as stated by the variant.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineAnomaly {
    /// A call was finished or resolved that is not executing: no call with this ID was accepted, or the call is queued.
    UnknownCall {
        /// The ID in the input.
        call_id: CallId,
    },
    /// A call was finished or resolved after it had finished, was deferred or was cancelled.
    DuplicateCompletion {
        /// The ID of the call.
        call_id: CallId,
    },
    /// A call arrived with the ID of a different call. Its caller receives an error result.
    ConflictingCall {
        /// The ID that both calls have.
        call_id: CallId,
    },
    /// A pending call was resolved, but the run is not suspended for that call.
    NotDeferred {
        /// The ID of the call.
        call_id: CallId,
    },
    /// The input arrived after the end of the run. If the input is a call, its caller receives `cancelled`.
    AfterTerminal,
    /// The input belongs to another run. The machine answers no caller, so the driver must answer the caller of a stale call.
    StaleRun {
        /// The run ID in the input.
        run: RunId,
    },
}

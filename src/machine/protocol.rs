use super::call::{Answer, Deferral, MachineCall, ToolOutcome, ToolResult};
use super::id::{CallId, RunId};
use crate::model::Json;
use serde::{Deserialize, Serialize};

/// Input of an agent run's state machine: an event of the run, and the run's ID. Recorded inputs can be replayed.
///
/// A driver creates one input for each event, and passes it to
/// [`Machine::step`](super::Machine::step). An input for another run is reported and changes
/// nothing.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Input {
    /// The ID of the run that the event belongs to.
    pub run: RunId,
    /// The event that happened in the agent run.
    pub signal: Signal,
}

impl Input {
    /// Creates an input of the state machine of the agent run `run`.
    #[must_use]
    pub fn new(run: &RunId, signal: Signal) -> Self {
        Self {
            run: run.clone(),
            signal,
        }
    }
}

/// An event in an agent run, reported to the run's state machine by the program that drives it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// The agent requests a tool call.
    ToolCallReceived {
        /// The requested tool call.
        call: MachineCall,
        /// If `true`, more tool calls of the same model answer (turn) follow, and no results of the turn are delivered until the
        /// last call is received. Without this flag, a tool that finishes before the next call is received would split the turn.
        /// Has no effect under [`ResultDelivery::Each`](super::ResultDelivery::Each).
        more: bool,
    },
    /// The execution of a tool call ended.
    ToolCallFinished {
        /// The ID of the tool call that finished.
        call_id: CallId,
        /// The result of the call's execution.
        outcome: ToolOutcome,
    },
    /// The answer of a deferred tool call arrived.
    DeferredResolved {
        /// The ID of the deferred tool call.
        call_id: CallId,
        /// The answer of the deferred tool call.
        result: Answer,
    },
    /// The agent finished on its own, without an error or a cancellation.
    AgentCompleted {
        /// The agent's last output, or `null` if there is no output.
        output: Json,
    },
    /// The agent itself failed. A failed tool is not this event but an error result of its call.
    ///
    /// The run ends as [`Exit::Error`]. Retry the model in the driver before this signal.
    AgentFailed {
        /// The reason why the agent failed. The machine truncates it to 4,096 bytes.
        error: String,
    },
    /// A request from outside to cancel the run.
    ///
    /// Calls in progress are cancelled, and the run ends as [`Exit::Cancelled`].
    Cancel,
}

/// An action that the state machine of an agent run requests from the program that drives it. The effects of one step must be carried out
/// in order.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// A request of the state machine to execute this tool call. After the execution, the driver sends
    /// [`Signal::ToolCallFinished`]. [`Machine::step`](super::Machine::step) returns this effect at most once per call.
    ///
    /// Save the state machine before the execution. [`Machine::outstanding`](super::Machine::outstanding) returns the call again after a
    /// crash.
    Execute(MachineCall),
    /// A request of the state machine to deliver these answers to the agent, which requested the tool calls. Each item is for one
    /// caller (one request for a call), so a call that was sent twice appears twice. An answer from the step that received a call
    /// belongs to the sender of that call. An answer from a later step is the same for all callers that wait for the call.
    Deliver(Vec<ToolResult>),
    /// A request of the state machine to obtain the answer of a deferred tool call from the answer's source. The driver sends the
    /// answer as [`Signal::DeferredResolved`].
    Defer {
        /// The ID of the deferred tool call.
        call_id: CallId,
        /// The source of the deferred call's answer.
        action: Deferral,
    },
    /// A request of the state machine to cancel an executing or deferred tool call, if possible. The callers of this call receive
    /// `cancelled`. A later result of the call is reported as an anomaly.
    CancelCall(CallId),
    /// A request of the state machine to continue the agent with a reminder of missing required outputs.
    Remind {
        /// The names of the tools that the agent must still call to submit its required outputs.
        missing: Vec<String>,
    },
    /// A notice of the state machine that the agent run has ended.
    ///
    /// It is the last effect of the run, apart from later reports and answers to late callers.
    Finish(Exit),
    /// A report of the state machine about an unexpected input that did not change its state, for logs or monitoring.
    ///
    /// Log it. No action is necessary, except for [`MachineAnomaly::StaleRun`].
    Report(MachineAnomaly),
}

/// The outcome of an agent run: completed with or without all required outputs, failed for a reason, or cancelled.
/// [`Machine::outputs`](super::Machine::outputs) returns the accepted outputs for every exit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// The agent completed with all required outputs.
    WithOutput {
        /// The agent's last output.
        output: Json,
    },
    /// The agent completed without an error, but required outputs are missing.
    ///
    /// The agent received up to [`Policy::reminders`](super::Policy::reminders) reminders before.
    WithoutOutput {
        /// The agent's last output.
        output: Json,
        /// The names of the tools that the agent should have called to submit the missing outputs.
        missing: Vec<String>,
    },
    /// The agent failed, or its last output exceeds a limit.
    Error {
        /// The reason why the run failed.
        error: String,
    },
    /// The agent run was cancelled from outside.
    Cancelled,
}

/// An unexpected input of the state machine. The machine reports the input and changes nothing, except as stated by the variant.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineAnomaly {
    /// The state machine received the outcome of an unknown or queued tool call, or the answer of an unknown tool call. A call is
    /// unknown if the state machine accepted no call with this ID.
    UnknownCall {
        /// The tool call ID in the unexpected input of the state machine.
        call_id: CallId,
    },
    /// The state machine received another outcome of an already deferred tool call, or an outcome or answer of an already
    /// answered call.
    ///
    /// The machine ignores the result.
    DuplicateCompletion {
        /// The ID of the tool call in the unexpected input of the state machine.
        call_id: CallId,
    },
    /// A tool call arrived with the ID of an earlier call, but with another tool or other arguments. Its caller receives an error result.
    ConflictingCall {
        /// The ID that both tool calls have.
        call_id: CallId,
    },
    /// The state machine received the answer of a pending tool call, but the run is not suspended for that call.
    ///
    /// If the call is deferred, send the answer again after its [`Effect::Defer`].
    NotDeferred {
        /// The ID of the pending tool call in the unexpected input of the state machine.
        call_id: CallId,
    },
    /// The state machine received an input after the end of the agent run. If the input is a call, its caller receives
    /// `cancelled`.
    AfterTerminal,
    /// The state machine received an input of another agent run. The state machine answers no caller, so the driver must answer
    /// the caller of a stale call.
    StaleRun {
        /// The run ID in the unexpected input, which is not the ID of the state machine's run.
        run: RunId,
    },
}

use super::call::Deferral;
use super::id::CallId;
use super::protocol::Effect;
use super::size;
use crate::model::Json;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The phase of an agent run: idle, running, suspended, complete or failed. Calls and outputs are stored separately and remain in
/// every state.
///
/// [`Machine::state`](super::Machine::state) returns it. `Idle` becomes `Running` at the first
/// call, and `Complete` and `Failed` are final.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The run has received no tool call yet.
    Idle,
    /// The agent or its tools are running.
    Running,
    /// The run waits for the answer of a deferred tool call.
    ///
    /// New calls are queued or refused, see [`WhileSuspended`](super::WhileSuspended).
    Suspended {
        /// The deferred tool call that the run waits for. Only this call can be resolved.
        deferred: DeferredCall,
        /// Tool calls that were deferred while the run was already suspended, in order. Each becomes `deferred` once
        /// the call before it is resolved.
        behind: VecDeque<DeferredCall>,
    },
    /// The agent finished on its own, without an error or a cancellation.
    Complete {
        /// The agent's last output.
        output: Json,
        /// The tools of the required outputs that the agent has not submitted. Empty if no output is missing.
        missing: Vec<String>,
    },
    /// The agent failed, its last output exceeds a limit, or the run was cancelled.
    Failed {
        /// The reason of the failure, or `None` if the run was cancelled.
        error: Option<String>,
    },
}

/// A tool call whose answer arrives later from another source.
///
/// The driver ends the deferral with [`Signal::DeferredResolved`](super::Signal::DeferredResolved).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DeferredCall {
    /// The ID of the deferred tool call.
    pub call_id: CallId,
    /// The source of the deferred call's answer.
    pub action: Deferral,
}

impl DeferredCall {
    pub(super) fn bytes(&self) -> usize {
        size::of_deferral(&self.action) + size::of_text(self.call_id.as_str())
    }
}

impl From<DeferredCall> for Effect {
    fn from(deferred: DeferredCall) -> Self {
        Self::Defer {
            call_id: deferred.call_id,
            action: deferred.action,
        }
    }
}

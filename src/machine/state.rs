use super::call::Deferral;
use super::id::CallId;
use super::protocol::Effect;
use super::size;
use crate::model::Json;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Where a run is. What is known of calls and outputs is beside it, and stays in every state.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No call has come yet.
    Idle,
    /// The agent, its tools or both are at work.
    Running,
    /// A call waits for an answer from elsewhere.
    Suspended {
        /// The call that the run waits for, and the only one that can be resolved.
        deferred: DeferredCall,
        /// Calls that were deferred since. Each has its turn once the one before it is resolved.
        behind: VecDeque<DeferredCall>,
    },
    /// The agent ended by itself.
    Complete {
        /// What it said last.
        output: Json,
        /// The required slots that are empty; none if the run has all it needs.
        missing: Vec<String>,
    },
    /// The run was broken off.
    Failed {
        /// Why the agent broke down, or `None` if the run was cancelled.
        error: Option<String>,
    },
}

/// A call whose answer comes from elsewhere.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct DeferredCall {
    /// Which call.
    pub call_id: CallId,
    /// Where its answer comes from.
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

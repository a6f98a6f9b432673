use super::call::{Answer, ToolResult};
use super::calls::Calls;
use super::id::CallId;
use super::policy::ResultDelivery;
use super::size;
use serde::{Deserialize, Serialize};

/// Overhead in bytes of one request that waits for a tool call's answer, in the saved state machine of an agent run. Excludes the
/// call ID and an error that refuses the call.
const CALLER_BYTES: usize = 64;

/// Maximum size in bytes of an error that refuses a tool call, in the saved state machine of an agent run.
const REFUSAL_BYTES: usize = 448;

/// The callers, which are the agent's requests for tool calls that wait for an answer, in order of arrival. A call that was sent
/// twice has two callers.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Turn {
    callers: Vec<Caller>,
    /// If `true`, the agent's current model answer has more tool calls that the state machine has not received yet.
    open: bool,
    /// If `true`, the answers of all tool calls that the agent requested at once were delivered together. The callers remain
    /// until the next signal of the agent, so that a restarted worker can deliver the answers again.
    delivered: bool,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Caller {
    pub(super) call_id: CallId,
    /// The error that answers only this request for a tool call, because the state machine refused the request. `None` if the
    /// request receives the same answer as the other requests for the tool call.
    pub(super) own: Option<Answer>,
}

impl Caller {
    /// Returns the maximum size in bytes of one agent request for this tool call in the saved state machine of an agent run.
    pub(super) fn max_bytes(call_id: &CallId) -> usize {
        CALLER_BYTES + REFUSAL_BYTES + size::of_text(call_id.as_str())
    }

    fn bytes(&self) -> usize {
        CALLER_BYTES
            + size::of_text(self.call_id.as_str())
            + self.own.as_ref().map_or(0, size::of_answer)
    }

    fn answered(&self, calls: &Calls) -> Option<ToolResult> {
        let answer = match &self.own {
            Some(own) => own.clone(),
            None => calls.answer(&self.call_id)?,
        };
        Some(ToolResult {
            call_id: self.call_id.clone(),
            answer,
        })
    }
}

impl Turn {
    /// Forgets the delivered answers of tool calls, because the agent's next tool call or completion proves their arrival.
    pub(super) fn confirm_delivery(&mut self) {
        if self.delivered {
            *self = Self::default();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.callers.len()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &CallId> {
        self.callers.iter().map(|caller| &caller.call_id)
    }

    pub(super) fn add(&mut self, caller: Caller) {
        self.callers.push(caller);
    }

    pub(super) fn set_open(&mut self, open: bool) {
        self.open = open;
    }

    /// Returns `true` if a request of the agent still waits for the answer of this tool call.
    pub(super) fn needs(&self, id: &CallId) -> bool {
        self.callers.iter().any(|caller| caller.call_id == *id)
    }

    /// Returns the tool call answers that can be delivered to the agent now, each only once.
    pub(super) fn take_ready(
        &mut self,
        delivery: ResultDelivery,
        calls: &Calls,
    ) -> Vec<ToolResult> {
        match delivery {
            ResultDelivery::Each => {
                let mut ready = Vec::new();
                self.callers.retain(|caller| match caller.answered(calls) {
                    Some(result) => {
                        ready.push(result);
                        false
                    }
                    None => true,
                });
                ready
            }
            ResultDelivery::Batch if self.open || self.delivered => Vec::new(),
            ResultDelivery::Batch => {
                let all: Option<Vec<_>> = self.answers(calls).collect();
                let ready = all.unwrap_or_default();
                self.delivered = !ready.is_empty();
                ready
            }
        }
    }

    /// Returns the tool call answers that were delivered together to the agent, until the agent's next tool call or completion
    /// proves their arrival. Afterwards, returns an empty list.
    pub(super) fn delivered(&self, calls: &Calls) -> Vec<ToolResult> {
        if self.delivered {
            self.answers(calls).flatten().collect()
        } else {
            Vec::new()
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.callers.iter().map(Caller::bytes).sum()
    }

    fn answers(&self, calls: &Calls) -> impl Iterator<Item = Option<ToolResult>> {
        self.callers.iter().map(|caller| caller.answered(calls))
    }
}

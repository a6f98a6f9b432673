use super::call::{Answer, ToolResult};
use super::calls::Calls;
use super::id::CallId;
use super::policy::ResultDelivery;
use super::size;
use serde::{Deserialize, Serialize};

/// What a caller takes besides the bytes of its call id and an answer of its own.
const CALLER: usize = 64;

/// What an answer of its own takes at the most, which is an error result of this module.
const OWN: usize = 448;

/// The callers that wait, in the order they came. A call that was sent twice has two.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Turn {
    callers: Vec<Caller>,
    /// Whether more calls of this turn follow.
    open: bool,
    /// Whether this batch went out. It is kept until the agent is heard of again, to go out once more after a restart.
    delivered: bool,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Caller {
    pub(super) call_id: CallId,
    /// The answer of a caller whose call is not the one that is known by this id.
    pub(super) own: Option<Answer>,
}

impl Caller {
    /// What the caller of some call takes at the most.
    pub(super) fn most_bytes(call_id: &CallId) -> usize {
        CALLER + OWN + size::of_text(call_id.as_str())
    }

    fn bytes(&self) -> usize {
        CALLER + size::of_text(self.call_id.as_str()) + self.own.as_ref().map_or(0, size::of_answer)
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
    /// The agent goes on, so what was delivered has arrived.
    pub(super) fn agent_went_on(&mut self) {
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

    /// Whether a caller still depends on what is known of a call.
    pub(super) fn needs(&self, id: &CallId) -> bool {
        self.callers.iter().any(|caller| caller.call_id == *id)
    }

    /// Takes the answers that are to be delivered now.
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

    /// What went out as a batch and may not have arrived.
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

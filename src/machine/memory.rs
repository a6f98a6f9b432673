//! Memory limits of the state machine of an agent run, and the eviction of old answers.

use super::call::{Answer, Deferral};
use super::id::CallId;
use super::refusal::Refusal;
use super::run::Machine;
use super::size;
use super::state::State;
use super::turn::Caller;
use crate::model::Json;

impl Machine {
    pub(super) fn stored_answer(&mut self, answer: Answer) -> Answer {
        let limits = self.policy.limits;
        let stored = match answer {
            Answer::Success(value) => self.stored_json(&value).map(Answer::Success),
            error @ Answer::Error { .. } => {
                let bytes = size::of_answer(&error);
                (bytes <= limits.item_bytes && self.free_memory(bytes)).then_some(error)
            }
        };
        let limit = limits.item_bytes;
        stored.unwrap_or_else(|| Refusal::ResultTooLarge { limit }.answer())
    }

    pub(super) fn stored_deferral(
        &mut self,
        call_id: &CallId,
        action: Deferral,
    ) -> Option<Deferral> {
        let limits = self.policy.limits;
        let action = match action {
            handoff @ Deferral::Handoff { .. } => handoff,
            Deferral::PlannerOutput(plan) => {
                Deferral::PlannerOutput(size::stored_form(&plan, &limits)?)
            }
            Deferral::Other { kind, payload } => Deferral::Other {
                kind,
                payload: size::stored_form(&payload, &limits)?,
            },
        };
        let bytes = size::of_deferral(&action) + size::of_text(call_id.as_str());
        (bytes <= limits.item_bytes && self.free_memory(bytes)).then_some(action)
    }

    /// Returns a JSON value in the canonical form that the state machine stores, or `None` if the value exceeds a size or memory
    /// limit.
    pub(super) fn stored_json(&mut self, json: &Json) -> Option<Json> {
        let json = size::stored_form(json, &self.policy.limits)?;
        self.free_memory(json.size()).then_some(json)
    }

    pub(super) fn can_add_caller(&mut self, call_id: &CallId) -> bool {
        let limits = self.policy.limits;
        let bytes = Caller::max_bytes(call_id);
        bytes <= limits.item_bytes && self.turn.len() < limits.callers && self.free_memory(bytes)
    }

    /// Discards answered tool calls of the agent run until its state machine may use `bytes` more bytes of memory. Returns `false` if
    /// that is impossible.
    pub(super) fn free_memory(&mut self, bytes: usize) -> bool {
        while self.bytes().saturating_add(bytes) > self.policy.limits.bytes {
            let turn = &self.turn;
            if !self.calls.discard_answered(|id| turn.needs(id)) {
                return false;
            }
        }
        true
    }

    /// Discards answered tool calls of the agent run until their total size is within
    /// [`MachineLimits::answered_bytes`](super::MachineLimits). The last answered call and calls with waiting callers remain.
    pub(super) fn discard_excess_answers(&mut self) {
        let last = self.calls.last_answered().cloned();
        while self.calls.answered_bytes() > self.policy.limits.answered_bytes {
            let turn = &self.turn;
            let needed = |id: &CallId| turn.needs(id) || last.as_ref() == Some(id);
            if !self.calls.discard_answered(needed) {
                break;
            }
        }
    }

    fn bytes(&self) -> usize {
        let deferred = match &self.state {
            State::Suspended { deferred, behind } => {
                deferred.bytes() + behind.iter().map(|one| one.bytes()).sum::<usize>()
            }
            State::Idle | State::Running | State::Complete { .. } | State::Failed { .. } => 0,
        };
        self.calls.bytes() + self.turn.bytes() + self.outputs.bytes() + deferred
    }
}

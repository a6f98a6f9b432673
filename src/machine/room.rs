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
    pub(super) fn kept_answer(&mut self, answer: Answer) -> Answer {
        let limits = self.policy.limits;
        let kept = match answer {
            Answer::Success(value) => self.kept(&value).map(Answer::Success),
            error @ Answer::Error { .. } => {
                let bytes = size::of_answer(&error);
                (bytes <= limits.item_bytes && self.make_room(bytes)).then_some(error)
            }
        };
        let limit = limits.item_bytes;
        kept.unwrap_or_else(|| Refusal::ResultTooLarge { limit }.answer())
    }

    pub(super) fn kept_deferral(&mut self, call_id: &CallId, action: Deferral) -> Option<Deferral> {
        let limits = self.policy.limits;
        let action = match action {
            handoff @ Deferral::Handoff { .. } => handoff,
            Deferral::PlannerOutput(plan) => Deferral::PlannerOutput(size::kept(&plan, &limits)?),
            Deferral::Other { kind, payload } => Deferral::Other {
                kind,
                payload: size::kept(&payload, &limits)?,
            },
        };
        let bytes = size::of_deferral(&action) + size::of_text(call_id.as_str());
        (bytes <= limits.item_bytes && self.make_room(bytes)).then_some(action)
    }

    /// Returns the JSON in its stored form, or `None` if the JSON exceeds a limit or the machine has no memory left for it.
    pub(super) fn kept(&mut self, json: &Json) -> Option<Json> {
        let json = size::kept(json, &self.policy.limits)?;
        self.make_room(json.size()).then_some(json)
    }

    pub(super) fn has_room_for_caller(&mut self, call_id: &CallId) -> bool {
        let limits = self.policy.limits;
        let bytes = Caller::most_bytes(call_id);
        bytes <= limits.item_bytes && self.turn.len() < limits.callers && self.make_room(bytes)
    }

    /// Makes room for `bytes` more bytes in the machine by forgetting answered tool calls. Returns `false` if that is impossible.
    pub(super) fn make_room(&mut self, bytes: usize) -> bool {
        while self.bytes().saturating_add(bytes) > self.policy.limits.bytes {
            let turn = &self.turn;
            if !self.calls.forget_one(|id| turn.needs(id)) {
                return false;
            }
        }
        true
    }

    /// Forgets answered tool calls until their total size is within [`MachineLimits::answered_bytes`](super::MachineLimits). The last
    /// answered call and calls with waiting callers remain.
    pub(super) fn forget_what_is_over(&mut self) {
        let last = self.calls.last_answered().cloned();
        while self.calls.answered_bytes() > self.policy.limits.answered_bytes {
            let turn = &self.turn;
            let needed = |id: &CallId| turn.needs(id) || last.as_ref() == Some(id);
            if !self.calls.forget_one(needed) {
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

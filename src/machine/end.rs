use super::calls::Phase;
use super::policy::MachineLimits;
use super::protocol::Effect;
use super::refusal::Refusal;
use super::run::Machine;
use super::state::State;
use crate::model::Json;

impl Machine {
    pub(super) fn complete(&mut self, output: &Json, effects: &mut Vec<Effect>) {
        self.confirm_delivery();
        // Calls are cancelled before missing outputs are counted, because an unaccepted output can no longer be accepted.
        self.cancel_all(effects);
        let missing = self.outputs.missing(&self.policy.slots);
        if !missing.is_empty() && self.reminded < self.policy.reminders {
            self.reminded += 1;
            self.reminding = true;
            self.state = State::Running;
            effects.push(self.remind());
            return;
        }
        let state = match self.stored_json(output) {
            Some(output) => State::Complete { output, missing },
            None => State::Failed {
                error: Some(format!(
                    "the output of the agent is larger than {} bytes, nests deeper than {} levels or exceeds the run's memory limit",
                    self.policy.limits.item_bytes,
                    MachineLimits::DEPTH
                )),
            },
        };
        self.end(state, effects);
    }

    pub(super) fn end(&mut self, state: State, effects: &mut Vec<Effect>) {
        self.cancel_all(effects);
        self.reminding = false;
        self.state = state;
        effects.extend(self.exit().map(Effect::Finish));
    }

    /// Cancels all unanswered tool calls of the agent run, then delivers to the agent the answers that its requests wait for.
    fn cancel_all(&mut self, effects: &mut Vec<Effect>) {
        self.cancel(|_| true, effects);
        self.turn.set_open(false);
        self.deliver(effects);
    }

    pub(super) fn cancel(&mut self, which: impl Fn(&Phase) -> bool, effects: &mut Vec<Effect>) {
        let pending: Vec<_> = self
            .calls
            .pending()
            .filter(|(_, phase)| which(phase))
            .map(|(call, phase)| (call.id.clone(), phase.clone()))
            .collect();
        for (id, phase) in pending {
            self.outputs.release(&id);
            match phase {
                Phase::Executing | Phase::Deferred => {
                    self.calls.set(&id, Phase::Cancelled);
                    effects.push(Effect::CancelCall(id));
                }
                // A queued call has not started, so there is no execution to cancel.
                Phase::Queued => {
                    let answer = Refusal::Cancelled.answer();
                    self.calls.set(&id, Phase::Answered(answer));
                }
                Phase::Answered(_) | Phase::Cancelled | Phase::Forgotten => {}
            }
        }
    }
}

use super::call::{MachineCall, ToolArguments, ToolResult};
use super::calls::Phase;
use super::outputs::Outputs;
use super::policy::{MachineLimits, WhileSuspended};
use super::protocol::{Effect, MachineAnomaly};
use super::refusal::Refusal;
use super::run::Machine;
use super::size;
use super::state::State;
use super::turn::Caller;

impl Machine {
    pub(super) fn receive(&mut self, call: MachineCall, more: bool, effects: &mut Vec<Effect>) {
        self.confirm_delivery();
        self.turn.set_open(more);
        if self.state == State::Idle {
            self.state = State::Running;
        }
        let call_id = call.id.clone();
        let has_capacity = self.can_add_caller(&call_id);
        let refused = self.admit(call, has_capacity, effects).err();
        let own = refused.map(|refusal| refusal.answer());
        match own {
            Some(answer) if !has_capacity => {
                effects.push(Effect::Deliver(vec![ToolResult { call_id, answer }]));
            }
            own => self.turn.add(Caller { call_id, own }),
        }
        self.deliver(effects);
    }

    /// Accepts a new tool call, or a repetition of a known call, which is not executed again.
    /// A refused call is not recorded.
    fn admit(
        &mut self,
        call: MachineCall,
        has_capacity: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let limits = self.policy.limits;
        // Stores replace U+0000, so a saved call would have another ID than the same call after a resume, and run twice.
        if call.id.as_str().contains(char::is_control) {
            return Err(Refusal::ControlCharacter);
        }
        let is_known = self.calls.phase(&call.id).is_some();
        let call_id = call.id.clone();
        let call = stored_call(call, &limits);
        if is_known && !call.as_ref().is_ok_and(|call| self.calls.is_same(call)) {
            effects.push(Effect::Report(MachineAnomaly::ConflictingCall { call_id }));
            return Err(Refusal::Conflicting);
        }
        let call = call?;
        if !has_capacity {
            return Err(Refusal::TooManyPending);
        }
        if is_known {
            return Ok(());
        }
        self.accept(call, effects)
    }

    /// Accepts a new tool call within the limits, and executes or queues it.
    fn accept(&mut self, call: MachineCall, effects: &mut Vec<Effect>) -> Result<(), Refusal> {
        let limits = self.policy.limits;
        let queued = match (&self.state, self.policy.while_suspended) {
            (State::Suspended { .. }, WhileSuspended::Refuse) => return Err(Refusal::Suspended),
            (State::Suspended { .. }, WhileSuspended::Queue) => true,
            (
                State::Idle | State::Running | State::Complete { .. } | State::Failed { .. },
                WhileSuspended::Queue | WhileSuspended::Refuse,
            ) => false,
        };
        if self.calls.len() >= limits.calls {
            let limit = limits.calls;
            return Err(Refusal::TooManyCalls { limit });
        }
        if self.pending().count() >= limits.pending {
            return Err(Refusal::TooManyPending);
        }
        let report = match &call.arguments {
            ToolArguments::Json(json) if self.is_slot(&call.tool) => Some(json.clone()),
            ToolArguments::Json(_) | ToolArguments::Unreadable { .. } => None,
        };
        if report.is_some() && self.outputs.is_claimed(&call.tool) {
            return Err(Refusal::AlreadyReported);
        }
        let claimed = report.as_ref();
        let claimed = claimed.map_or(0, |report| Outputs::cost(&call.tool, &call.id, report));
        if !self.free_memory(size::of_call(&call).saturating_add(claimed)) {
            return Err(Refusal::MemoryLimit);
        }
        if let Some(report) = report {
            self.outputs.claim(&call.tool, &call.id, report);
        }
        if queued {
            self.calls.add(call, Phase::Queued);
        } else {
            self.calls.add(call.clone(), Phase::Executing);
            effects.push(Effect::Execute(call));
        }
        Ok(())
    }

    fn is_slot(&self, tool: &str) -> bool {
        self.policy.slots.iter().any(|slot| slot.tool == tool)
    }
}

/// Returns a tool call with its arguments in canonical form, or a refusal if the arguments are
/// unreadable or over a limit.
fn stored_call(call: MachineCall, limits: &MachineLimits) -> Result<MachineCall, Refusal> {
    let limit = limits.item_bytes;
    let arguments = match call.arguments {
        ToolArguments::Json(json) => {
            size::stored_form(&json, limits).ok_or(Refusal::TooLarge { limit })?
        }
        ToolArguments::Unreadable { problem, .. } => {
            return Err(Refusal::InvalidArguments { problem });
        }
    };
    let call = MachineCall {
        arguments: arguments.into(),
        ..call
    };
    if size::of_call(&call) > limit {
        return Err(Refusal::TooLarge { limit });
    }
    Ok(call)
}

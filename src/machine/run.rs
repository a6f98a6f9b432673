use super::call::{Answer, MachineCall};
use super::calls::{Calls, Phase};
use super::id::{CallId, RunId};
use super::outputs::Outputs;
use super::policy::Policy;
use super::protocol::{Effect, Exit};
use super::state::State;
use super::turn::Turn;
use crate::model::Json;
use serde::{Deserialize, Serialize};

/// The tool calls of one run, from its first call to its end.
///
/// [`step`](Self::step) takes an input and says what to do; that is all that ever changes it. Saved as JSON after each
/// step and read back, it goes on where it was: [`outstanding`](Self::outstanding) says what to do again. The same
/// inputs give the same machine and the same effects.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Machine {
    pub(super) run: RunId,
    pub(super) policy: Policy,
    pub(super) state: State,
    pub(super) calls: Calls,
    pub(super) turn: Turn,
    pub(super) outputs: Outputs,
    /// How often the agent was reminded.
    pub(super) reminded: u32,
    /// Whether it was, and has not been heard of since.
    pub(super) reminding: bool,
}

impl Machine {
    /// A run without any calls yet.
    #[must_use]
    pub fn new(run: impl Into<RunId>, policy: Policy) -> Self {
        Self {
            run: run.into(),
            policy,
            state: State::Idle,
            calls: Calls::default(),
            turn: Turn::default(),
            outputs: Outputs::default(),
            reminded: 0,
            reminding: false,
        }
    }

    /// The run it belongs to.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// How it decides.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Where the run is.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The calls without an answer, in the order requested: executing, deferred or in the queue.
    pub fn pending(&self) -> impl Iterator<Item = &MachineCall> {
        self.calls.pending().map(|(call, _)| call)
    }

    /// Whether a call of this id was accepted, whatever became of it.
    #[cfg(feature = "agents")]
    pub(crate) fn knows(&self, call: &CallId) -> bool {
        self.calls.phase(call).is_some()
    }

    /// The calls that have an answer which is still kept, in the order they were answered.
    pub fn answered(&self) -> impl Iterator<Item = (&MachineCall, &Answer)> {
        self.calls.answered()
    }

    /// Who waits for an answer, in the order they came: the calls of the turn, those that were sent again and those that
    /// were refused included. A batch that was delivered is in here until the agent is heard of again, so a driver that
    /// was interrupted while it told of a turn goes on with the calls of the turn that come after these.
    pub fn callers(&self) -> impl Iterator<Item = &CallId> {
        self.turn.ids()
    }

    /// What was handed in, by tool: the arguments of the calls that succeeded.
    pub fn outputs(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.outputs.accepted()
    }

    /// How the run ended, or `None` while it goes on.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        match &self.state {
            State::Idle | State::Running | State::Suspended { .. } => None,
            State::Complete { output, missing } if missing.is_empty() => Some(Exit::WithOutput {
                output: output.clone(),
            }),
            State::Complete { output, missing } => Some(Exit::WithoutOutput {
                output: output.clone(),
                missing: missing.clone(),
            }),
            State::Failed { error: Some(error) } => Some(Exit::Error {
                error: error.clone(),
            }),
            State::Failed { error: None } => Some(Exit::Cancelled),
        }
    }

    /// What to do again after a restart: the effects that came out of [`step`](Self::step) and that may not have been
    /// carried out, as far as the inputs tell. Changes nothing, and may be asked again.
    ///
    /// - `CancelCall` of each call that was cancelled while it was under way, as far as it is not forgotten.
    /// - `Execute` of each call under way. Whether a tool may run twice is up to the driver, which has run and call id
    ///   to make a key of.
    /// - `Deliver` of the last batch, as long as the agent was not heard of since. Under
    ///   [`ResultDelivery::Each`](super::ResultDelivery::Each) callers are gone with the worker they called: one that calls again
    ///   is answered from what is known.
    /// - `Defer` of the call that the run waits for, `Remind` of a reminder, and `Finish` of a run that is over.
    #[must_use]
    pub fn outstanding(&self) -> Vec<Effect> {
        let cancelled = self.calls.cancelled().cloned().map(Effect::CancelCall);
        let mut effects: Vec<_> = cancelled.collect();
        if let Some(exit) = self.exit() {
            effects.push(Effect::Finish(exit));
            return effects;
        }
        for (call, phase) in self.calls.pending() {
            if *phase == Phase::Executing {
                effects.push(Effect::Execute(call.clone()));
            }
        }
        let delivered = self.turn.delivered(&self.calls);
        if !delivered.is_empty() {
            effects.push(Effect::Deliver(delivered));
        }
        if let State::Suspended { deferred, .. } = &self.state {
            effects.push(deferred.clone().into());
        }
        if self.reminding {
            effects.push(self.remind());
        }
        effects
    }

    pub(super) fn remind(&self) -> Effect {
        Effect::Remind {
            missing: self.outputs.missing(&self.policy.slots),
        }
    }
}

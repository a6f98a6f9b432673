use super::call::{Answer, Deferral, ToolOutcome, ToolResult};
use super::calls::Phase;
use super::id::CallId;
use super::policy::Siblings;
use super::protocol::{Effect, Input, MachineAnomaly, Signal};
use super::refusal::{Refusal, truncate};
use super::run::Machine;
use super::state::{DeferredCall, State};
use std::collections::VecDeque;
use std::mem;

/// Maximum length of the error of a failed agent, in bytes.
const ERROR_BYTES: usize = 4_096;

impl Machine {
    /// Applies one input to the state machine and returns the actions that the calling program must carry out, in order.
    ///
    /// This method never fails. An unexpected input returns an [`Effect::Report`], and a call that cannot be accepted is answered
    /// with an error result. Save the state machine before you carry out the effects.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::machine::{
    ///     Effect, Exit, Input, Machine, MachineAnomaly, Policy, RunId, Signal,
    /// };
    ///
    /// let run = RunId::new("run-1");
    /// let mut machine = Machine::new(run.clone(), Policy::batch());
    ///
    /// let effects = machine.step(Input::new(&run, Signal::Cancel));
    /// assert_eq!(effects, [Effect::Finish(Exit::Cancelled)]);
    /// let effects = machine.step(Input::new(&run, Signal::Cancel));
    /// assert_eq!(effects, [Effect::Report(MachineAnomaly::AfterTerminal)]);
    /// ```
    #[must_use = "the effects are what the machine wants done"]
    pub fn step(&mut self, input: Input) -> Vec<Effect> {
        let Input { run, signal } = input;
        if run != self.run {
            return vec![Effect::Report(MachineAnomaly::StaleRun { run })];
        }
        match &self.state {
            State::Idle | State::Running | State::Suspended { .. } => {
                let mut effects = Vec::new();
                self.apply(signal, &mut effects);
                self.discard_excess_answers();
                effects
            }
            State::Complete { .. } | State::Failed { .. } => absorb(signal),
        }
    }

    fn apply(&mut self, signal: Signal, effects: &mut Vec<Effect>) {
        match signal {
            Signal::ToolCallReceived { call, more } => self.receive(call, more, effects),
            Signal::ToolCallFinished { call_id, outcome } => {
                self.finish_call(call_id, outcome, effects);
            }
            Signal::DeferredResolved { call_id, result } => self.resolve(call_id, result, effects),
            Signal::AgentCompleted { output } => self.complete(&output, effects),
            Signal::AgentFailed { error } => {
                let error = Some(truncate(&error, ERROR_BYTES).to_owned());
                self.end(State::Failed { error }, effects);
            }
            Signal::Cancel => self.end(State::Failed { error: None }, effects),
        }
    }

    fn finish_call(&mut self, call_id: CallId, outcome: ToolOutcome, effects: &mut Vec<Effect>) {
        let anomaly = match self.calls.phase(&call_id) {
            Some(Phase::Executing) => {
                match outcome {
                    ToolOutcome::Answered(answer) => self.answer(&call_id, answer),
                    ToolOutcome::Deferred(action) => self.defer(call_id, action, effects),
                }
                self.deliver(effects);
                return;
            }
            None | Some(Phase::Queued) => MachineAnomaly::UnknownCall { call_id },
            Some(Phase::Deferred | Phase::Answered(_) | Phase::Cancelled | Phase::Forgotten) => {
                MachineAnomaly::DuplicateCompletion { call_id }
            }
        };
        effects.push(Effect::Report(anomaly));
    }

    /// Suspends the run for a deferred tool call, or queues the deferral if the run is already suspended.
    fn defer(&mut self, call_id: CallId, action: Deferral, effects: &mut Vec<Effect>) {
        let Some(action) = self.stored_deferral(&call_id, action) else {
            let limit = self.policy.limits.item_bytes;
            self.answer(&call_id, Refusal::ResultTooLarge { limit }.answer());
            return;
        };
        self.calls.set(&call_id, Phase::Deferred);
        let deferred = DeferredCall { call_id, action };
        match &mut self.state {
            State::Suspended { behind, .. } => behind.push_back(deferred),
            State::Idle | State::Running | State::Complete { .. } | State::Failed { .. } => {
                effects.push(deferred.clone().into());
                self.state = State::Suspended {
                    deferred,
                    behind: VecDeque::new(),
                };
                match self.policy.siblings {
                    Siblings::Finish => {}
                    Siblings::Cancel => self.cancel(|phase| *phase == Phase::Executing, effects),
                }
            }
        }
    }

    fn resolve(&mut self, call_id: CallId, result: Answer, effects: &mut Vec<Effect>) {
        let is_next = match &self.state {
            State::Suspended { deferred, .. } => deferred.call_id == call_id,
            State::Idle | State::Running | State::Complete { .. } | State::Failed { .. } => false,
        };
        if !is_next {
            effects.push(Effect::Report(match self.calls.phase(&call_id) {
                None => MachineAnomaly::UnknownCall { call_id },
                Some(Phase::Queued | Phase::Executing | Phase::Deferred) => {
                    MachineAnomaly::NotDeferred { call_id }
                }
                Some(Phase::Answered(_) | Phase::Cancelled | Phase::Forgotten) => {
                    MachineAnomaly::DuplicateCompletion { call_id }
                }
            }));
            return;
        }
        // The deferral is removed first, so that its answer can use the freed memory.
        let mut next = Vec::new();
        self.activate_next(&mut next);
        self.answer(&call_id, result);
        self.deliver(effects);
        effects.append(&mut next);
    }

    /// Removes the resolved deferral of a tool call, then activates the next deferral or resumes the run.
    fn activate_next(&mut self, effects: &mut Vec<Effect>) {
        let mut behind = match mem::replace(&mut self.state, State::Running) {
            State::Suspended { behind, .. } => behind,
            State::Idle | State::Running | State::Complete { .. } | State::Failed { .. } => {
                VecDeque::new()
            }
        };
        if let Some(deferred) = behind.pop_front() {
            effects.push(deferred.clone().into());
            self.state = State::Suspended { deferred, behind };
            return;
        }
        let queued: Vec<_> = self
            .calls
            .pending()
            .filter(|(_, phase)| **phase == Phase::Queued)
            .map(|(call, _)| call.clone())
            .collect();
        for call in queued {
            self.calls.set(&call.id, Phase::Executing);
            effects.push(Effect::Execute(call));
        }
    }

    /// Stores the answer of a tool call. A success accepts the call's output for its output slot, and an error releases the slot.
    fn answer(&mut self, call_id: &CallId, answer: Answer) {
        let answer = self.stored_answer(answer);
        match &answer {
            Answer::Success(_) => self.outputs.accept(call_id),
            Answer::Error { .. } => self.outputs.release(call_id),
        }
        self.calls.set(call_id, Phase::Answered(answer));
    }

    pub(super) fn deliver(&mut self, effects: &mut Vec<Effect>) {
        let ready = self.turn.take_ready(self.policy.delivery, &self.calls);
        if !ready.is_empty() {
            effects.push(Effect::Deliver(ready));
        }
    }

    /// Forgets the delivered tool call answers and the reminder of missing outputs, because the agent's next tool call or
    /// completion proves their arrival.
    pub(super) fn confirm_delivery(&mut self) {
        self.turn.confirm_delivery();
        self.reminding = false;
    }
}

/// Returns the requested actions for an input that arrives after the agent run has ended: a report of the unexpected input. If
/// the input is a tool call, its caller receives the error `cancelled`.
fn absorb(signal: Signal) -> Vec<Effect> {
    let mut effects = vec![Effect::Report(MachineAnomaly::AfterTerminal)];
    match signal {
        Signal::ToolCallReceived { call, .. } => effects.push(Effect::Deliver(vec![ToolResult {
            call_id: call.id,
            answer: Refusal::Cancelled.answer(),
        }])),
        Signal::ToolCallFinished { .. }
        | Signal::DeferredResolved { .. }
        | Signal::AgentCompleted { .. }
        | Signal::AgentFailed { .. }
        | Signal::Cancel => {}
    }
    effects
}

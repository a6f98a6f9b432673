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

/// The state machine for the tool calls of one agent run.
///
/// Only [`step`](Self::step) changes a machine: it applies an input and returns the effects for the driver. Save the machine
/// as JSON after each step. After a restart, load the machine and carry out the effects that
/// [`outstanding`](Self::outstanding) returns. The machine is deterministic: the same inputs lead to the same state and the
/// same effects.
///
/// The crate's own agents use it. Use it directly to drive a model or a CLI agent that the crate
/// does not support. The machine is a value: it holds no tools, and a clone is an independent copy.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::machine::{
///     Effect, Input, Machine, MachineCall, Policy, RunId, Signal, State,
/// };
///
/// let run = RunId::new("run-1");
/// let mut machine = Machine::new(run.clone(), Policy::each());
/// assert_eq!(machine.state(), &State::Idle);
///
/// let call = MachineCall::new("call-1", "adder", json!({"a": 1, "b": 2}));
/// let received = Signal::ToolCallReceived { call: call.clone(), more: false };
/// assert_eq!(machine.step(Input::new(&run, received)), [Effect::Execute(call)]);
/// assert_eq!(machine.pending().count(), 1);
/// assert_eq!(machine.exit(), None);
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Machine {
    pub(super) run: RunId,
    pub(super) policy: Policy,
    pub(super) state: State,
    pub(super) calls: Calls,
    pub(super) turn: Turn,
    pub(super) outputs: Outputs,
    /// The number of reminders of missing outputs that the agent received so far.
    pub(super) reminded: u32,
    /// If `true`, the agent has not reacted to the last reminder yet.
    pub(super) reminding: bool,
}

impl Machine {
    /// Creates the state machine of a new agent run, in which the model has not called a tool yet.
    ///
    /// The run ID must be unique, because the machine ignores inputs with another ID.
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

    /// Returns the ID of the agent run.
    #[must_use]
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the settings of the state machine: result delivery, suspension, outputs and limits.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the phase of the agent run: idle, running, suspended, complete or failed.
    ///
    /// A run has ended in [`State::Complete`] and [`State::Failed`].
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the tool calls without an answer (executing, deferred or queued), in request order.
    ///
    /// Use it to show the calls in progress, for example in a log line.
    pub fn pending(&self) -> impl Iterator<Item = &MachineCall> {
        self.calls.pending().map(|(call, _)| call)
    }

    /// Returns `true` if the state machine has recorded a tool call with this ID, even if the call has finished since.
    #[cfg(feature = "agents")]
    pub(crate) fn knows(&self, call: &CallId) -> bool {
        self.calls.phase(call).is_some()
    }

    /// Returns the tool calls with a retained answer, in the order of their answers. Cancelled and forgotten calls are omitted.
    ///
    /// The number of retained answers is limited by
    /// [`MachineLimits::answered_bytes`](super::MachineLimits::answered_bytes).
    pub fn answered(&self) -> impl Iterator<Item = (&MachineCall, &Answer)> {
        self.calls.answered()
    }

    /// Returns the tool call ID of each request that waits for an answer, in order of arrival. Resent and refused calls are
    /// included.
    ///
    /// The callers of a delivered batch are included until the next signal of the agent. A driver that was interrupted while
    /// it passed on the calls of a turn continues with the first call that is not in this list.
    pub fn callers(&self) -> impl Iterator<Item = &CallId> {
        self.turn.ids()
    }

    /// Returns the outputs that tool calls of the run have successfully submitted, as pairs of tool name and arguments.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::machine::{
    ///     Answer, Input, Machine, MachineCall, Policy, RunId, Signal, Slot,
    /// };
    ///
    /// let run = RunId::new("run-1");
    /// let mut machine = Machine::new(run.clone(), Policy::batch().slot(Slot::required("report")));
    ///
    /// let call = MachineCall::new("call-1", "report", json!({"summary": "done"}));
    /// let received = Signal::ToolCallReceived { call, more: false };
    /// let _ = machine.step(Input::new(&run, received));
    /// let outcome = Answer::success(json!("ok")).into();
    /// let finished = Signal::ToolCallFinished { call_id: "call-1".into(), outcome };
    /// let _ = machine.step(Input::new(&run, finished));
    ///
    /// let outputs: Vec<_> = machine.outputs().collect();
    /// assert_eq!(outputs[0].0, "report");
    /// assert_eq!(outputs[0].1["summary"], "done");
    /// ```
    pub fn outputs(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.outputs.accepted()
    }

    /// Returns the outcome of the agent run, or `None` if the run has not ended.
    ///
    /// [`Effect::Finish`] has the same value when the run ends.
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

    /// Returns the requested actions (effects of [`step`](Self::step)) that may not have been carried out before a restart and
    /// must be repeated. This method changes nothing and may be called repeatedly.
    ///
    /// - `CancelCall` for each call that was cancelled while it executed, unless the call is forgotten.
    /// - `Execute` for each executing call. The driver decides if a tool may run twice. The run ID and the call ID form an
    ///   idempotency key.
    /// - `Deliver` for the last batch, until the next signal of the agent. Under
    ///   [`ResultDelivery::Each`](super::ResultDelivery::Each), the callers are lost with the worker. A caller that sends its
    ///   call again receives the stored answer.
    /// - `Defer` for the deferred call that the run waits for.
    /// - `Remind` for a reminder without a later signal of the agent.
    /// - `Finish` for a run that has ended.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::machine::{
    ///     Effect, Input, Machine, MachineCall, Policy, RunId, Signal,
    /// };
    ///
    /// let run = RunId::new("run-1");
    /// let mut machine = Machine::new(run.clone(), Policy::batch());
    /// let call = MachineCall::new("call-1", "adder", json!({"a": 1}));
    /// let received = Signal::ToolCallReceived { call: call.clone(), more: false };
    /// let _ = machine.step(Input::new(&run, received));
    ///
    /// let saved = serde_json::to_string(&machine)?;
    /// let restarted: Machine = serde_json::from_str(&saved)?;
    /// assert_eq!(restarted.outstanding(), [Effect::Execute(call)]);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
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

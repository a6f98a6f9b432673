use serde::{Deserialize, Serialize};

/// The settings of an agent run's state machine ([`Machine`](super::Machine)): result delivery, suspension, outputs and limits. Saved with
/// the state machine.
///
/// Start with [`batch`](Self::batch) or [`each`](Self::each). A policy cannot change after
/// [`Machine::new`](super::Machine::new).
///
/// ```
/// use universal_executor::machine::{Policy, Siblings, Slot};
///
/// let policy = Policy::batch()
///     .slot(Slot::required("completion-report"))
///     .siblings(Siblings::Cancel)
///     .reminders(2);
///
/// assert_eq!(policy.slots.len(), 1);
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct Policy {
    /// The delivery mode of tool results: all results of one model answer together, or each result alone. Defaults to
    /// [`ResultDelivery::Batch`].
    pub delivery: ResultDelivery,
    /// The handling of tool calls that are still executing when another call is deferred. Defaults to [`Siblings::Finish`].
    pub siblings: Siblings,
    /// The handling of new tool calls while the run is suspended. Defaults to [`WhileSuspended::Queue`].
    pub while_suspended: WhileSuspended,
    /// The outputs that the agent submits in the run, each required or optional. Empty by default.
    pub slots: Vec<Slot>,
    /// The maximum number of reminders to an agent that completes without a required output. Defaults to 1.
    pub reminders: u32,
    /// The limits on the tool calls of the agent run and on the memory of its state machine.
    pub limits: MachineLimits,
}

impl Policy {
    /// Creates a policy with [`ResultDelivery::Batch`], for agents that request all tool calls of one model answer together, as
    /// in an API response.
    #[must_use]
    pub fn batch() -> Self {
        Self {
            delivery: ResultDelivery::Batch,
            siblings: Siblings::default(),
            while_suspended: WhileSuspended::default(),
            slots: Vec::new(),
            reminders: 1,
            limits: MachineLimits::default(),
        }
    }

    /// Creates a policy with [`ResultDelivery::Each`], for agents that wait for the result of each call, such as CLI agents.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::machine::{Policy, ResultDelivery};
    ///
    /// assert_eq!(Policy::each().delivery, ResultDelivery::Each);
    /// assert_eq!(Policy::batch(), Policy::default());
    /// ```
    #[must_use]
    pub fn each() -> Self {
        Self {
            delivery: ResultDelivery::Each,
            ..Self::batch()
        }
    }

    /// Sets the handling of tool calls that are still executing when another call is deferred.
    ///
    /// Defaults to [`Siblings::Finish`].
    #[must_use]
    pub fn siblings(mut self, siblings: Siblings) -> Self {
        self.siblings = siblings;
        self
    }

    /// Sets the handling of new tool calls while the run is suspended.
    ///
    /// Defaults to [`WhileSuspended::Queue`].
    #[must_use]
    pub fn while_suspended(mut self, calls: WhileSuspended) -> Self {
        self.while_suspended = calls;
        self
    }

    /// Adds an output that the agent submits by calling a certain tool.
    ///
    /// Call it once for each output.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::machine::{Effect, Input, Machine, Policy, RunId, Signal, Slot};
    ///
    /// let run = RunId::new("run-1");
    /// let policy = Policy::batch().slot(Slot::required("report"));
    /// let mut machine = Machine::new(run.clone(), policy);
    ///
    /// let completed = Signal::AgentCompleted { output: json!("Done.").into() };
    /// let effects = machine.step(Input::new(&run, completed));
    /// assert_eq!(effects, [Effect::Remind { missing: vec!["report".to_owned()] }]);
    /// ```
    #[must_use]
    pub fn slot(mut self, slot: Slot) -> Self {
        self.slots.push(slot);
        self
    }

    /// Sets the maximum number of reminders to an agent that completes without a required output.
    ///
    /// Defaults to 1. With 0, the run ends without a reminder.
    #[must_use]
    pub fn reminders(mut self, times: u32) -> Self {
        self.reminders = times;
        self
    }

    /// Sets the limits on the tool calls of the agent run and on the memory of its state machine.
    ///
    /// Defaults to [`MachineLimits::default`].
    #[must_use]
    pub fn limits(mut self, limits: MachineLimits) -> Self {
        self.limits = limits;
        self
    }
}

impl Default for Policy {
    /// Creates the default policy, [`Policy::batch`], which delivers all tool results of one model answer together.
    fn default() -> Self {
        Self::batch()
    }
}

/// The delivery mode of tool results: all results of one model answer together, or each result alone.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultDelivery {
    /// All tool results of a turn are delivered together, in request order, once every call of the turn has an answer.
    #[default]
    Batch,
    /// Each tool result is delivered as soon as its call has an answer.
    Each,
}

/// The handling of tool calls that are still executing when another call is deferred.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Siblings {
    /// Executing tool calls continue when another call is deferred, and the state machine stores their results.
    ///
    /// Use it for tools that cannot be cancelled.
    #[default]
    Finish,
    /// Executing tool calls are cancelled when another call is deferred, and their callers receive `cancelled`.
    ///
    /// A later result of a cancelled call is reported and ignored.
    Cancel,
}

/// The handling of new tool calls while the run is suspended.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhileSuspended {
    /// New tool calls are queued and executed in order of arrival once the run resumes.
    ///
    /// Queued calls count for [`MachineLimits::pending`].
    #[default]
    Queue,
    /// New tool calls are answered with the error `suspended`.
    ///
    /// The model can send the call again after the run resumes.
    Refuse,
}

/// An output that an agent submits by calling a certain tool, at most once per run.
///
/// The driver offers the tool to the model, and executes it like any other tool.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Slot {
    /// The name of the tool whose arguments are the output, for example `completion-report` or `planner-output`.
    pub tool: String,
    /// If `true`, a run without this output ends as [`Exit::WithoutOutput`](super::Exit::WithoutOutput).
    pub required: bool,
}

impl Slot {
    /// Creates the slot of a required output that the agent submits by calling `tool`.
    #[must_use]
    pub fn required(tool: impl Into<String>) -> Self {
        Self {
            tool: tool.into(),
            required: true,
        }
    }

    /// Creates the slot of an optional output that the agent submits by calling `tool`.
    #[must_use]
    pub fn optional(tool: impl Into<String>) -> Self {
        Self {
            tool: tool.into(),
            required: false,
        }
    }
}

/// Limits on the tool calls of an agent run and on the memory of its state machine ([`Machine`](super::Machine)). A call or result over a
/// limit becomes an error result for the model.
///
/// With the defaults, a saved state machine stays below a store's limits of 1 MiB and 64 levels of JSON.
///
/// ```
/// use universal_executor::machine::{MachineLimits, Policy};
///
/// let mut limits = MachineLimits::default();
/// limits.calls = 50;
///
/// assert_eq!(Policy::each().limits(limits).limits.calls, 50);
/// ```
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
#[serde(default)]
pub struct MachineLimits {
    /// Maximum number of tool calls in one agent run. Defaults to 1,000. Further calls are refused.
    pub calls: usize,
    /// Maximum number of tool calls without an answer at one time. Defaults to 64. Further calls are refused.
    pub pending: usize,
    /// Maximum number of callers (requests of the agent for tool calls) that wait for an answer at one time, resent and refused
    /// requests included. Defaults to 256. Further callers are refused immediately, even under [`ResultDelivery::Batch`].
    pub callers: usize,
    /// Maximum size of one tool call, result or output in bytes of JSON. Defaults to 128 KiB.
    pub item_bytes: usize,
    /// Maximum size in bytes of the answered tool calls that are retained to answer a resent call. Defaults to 256 KiB. Over the limit,
    /// the state machine forgets the calls that were answered first. A forgotten call is answered `forgotten` and never executed again.
    /// The last answer is always retained.
    pub answered_bytes: usize,
    /// Maximum size in bytes of the saved state machine of an agent run, without its policy. Defaults to 768 KiB.
    pub bytes: usize,
}

impl MachineLimits {
    /// Maximum nesting depth of the arguments, results and outputs of tool calls. A store accepts 64 levels, and the saved state machine
    /// itself needs some.
    pub const DEPTH: usize = 48;
}

impl Default for MachineLimits {
    fn default() -> Self {
        Self {
            calls: 1_000,
            pending: 64,
            callers: 256,
            item_bytes: 128 << 10,
            answered_bytes: 256 << 10,
            bytes: 768 << 10,
        }
    }
}

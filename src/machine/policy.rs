use serde::{Deserialize, Serialize};

/// How a [`Machine`](super::Machine) decides where both ways make sense. It is saved with the machine.
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
    /// When results are delivered.
    pub delivery: ResultDelivery,
    /// What becomes of the calls under way when one is deferred.
    pub siblings: Siblings,
    /// What becomes of calls that come while the run is suspended.
    pub while_suspended: WhileSuspended,
    /// The outputs that this run may or has to have.
    pub slots: Vec<Slot>,
    /// How often a run that ends without a required output is reminded of it. 1 by default.
    pub reminders: u32,
    /// What the machine keeps at the most.
    pub limits: MachineLimits,
}

impl Policy {
    /// For agents whose calls come in turns, as in the response of an API: [`ResultDelivery::Batch`].
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

    /// For agents whose calls come one by one, each with a caller that waits: [`ResultDelivery::Each`].
    #[must_use]
    pub fn each() -> Self {
        Self {
            delivery: ResultDelivery::Each,
            ..Self::batch()
        }
    }

    /// Sets what becomes of the calls under way when one is deferred.
    #[must_use]
    pub fn siblings(mut self, siblings: Siblings) -> Self {
        self.siblings = siblings;
        self
    }

    /// Sets what becomes of calls that come while the run is suspended.
    #[must_use]
    pub fn while_suspended(mut self, calls: WhileSuspended) -> Self {
        self.while_suspended = calls;
        self
    }

    /// Declares an output.
    #[must_use]
    pub fn slot(mut self, slot: Slot) -> Self {
        self.slots.push(slot);
        self
    }

    /// Sets how often a run that ends without a required output is reminded of it.
    #[must_use]
    pub fn reminders(mut self, times: u32) -> Self {
        self.reminders = times;
        self
    }

    /// Sets what the machine keeps at the most.
    #[must_use]
    pub fn limits(mut self, limits: MachineLimits) -> Self {
        self.limits = limits;
        self
    }
}

impl Default for Policy {
    /// [`Policy::batch`].
    fn default() -> Self {
        Self::batch()
    }
}

/// When results are delivered.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultDelivery {
    /// All of a turn together, in the order requested, once none of them is missing.
    #[default]
    Batch,
    /// Each as soon as it is there.
    Each,
}

/// What becomes of the calls under way when one is deferred.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Siblings {
    /// They go on, and their results are kept.
    #[default]
    Finish,
    /// They are cancelled, and answered so.
    Cancel,
}

/// What becomes of calls that come while the run is suspended.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhileSuspended {
    /// They are kept, and executed in the order they came once the run goes on.
    #[default]
    Queue,
    /// They are answered with an error result, `suspended`.
    Refuse,
}

/// An output that a run hands in by calling the tool of that name, once.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Slot {
    /// The tool whose arguments are the output: `completion-report`, `planner-output`.
    pub tool: String,
    /// Whether the run is incomplete without it.
    pub required: bool,
}

impl Slot {
    /// An output that the run has to have.
    #[must_use]
    pub fn required(tool: impl Into<String>) -> Self {
        Self {
            tool: tool.into(),
            required: true,
        }
    }

    /// An output that the run may have.
    #[must_use]
    pub fn optional(tool: impl Into<String>) -> Self {
        Self {
            tool: tool.into(),
            required: false,
        }
    }
}

/// What a machine keeps at the most. What is over a limit becomes an error result, so that the model can react.
///
/// With the defaults a saved machine stays below the 1 MiB that a store takes, and its JSON below 64 levels.
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
    /// Calls of one run; 1,000 by default. More are refused.
    pub calls: usize,
    /// Calls without an answer at one time; 64 by default. More are refused.
    pub pending: usize,
    /// Callers that wait for answers at one time, resent and refused calls included; 256 by default. What is over it
    /// is refused at once, also where answers wait for a batch.
    pub callers: usize,
    /// Bytes of one call, one result or one output, as JSON; 128 KiB by default.
    pub item_bytes: usize,
    /// Bytes of calls that were answered, kept to answer them again; 256 KiB by default. What is over it is forgotten,
    /// what was answered first before the rest: such a call is answered `forgotten` from then on and never executed
    /// again. The last answer is kept whatever its size.
    pub answered_bytes: usize,
    /// Bytes of everything that is kept, the policy apart; 768 KiB by default.
    pub bytes: usize,
}

impl MachineLimits {
    /// How deep arguments, results and outputs may nest. A store takes 64 levels, and some of those are the machine's.
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

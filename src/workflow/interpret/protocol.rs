use super::path::StepPath;
use crate::model::{Json, NewBreadcrumb, Selector};
use crate::workflow::ModelInput;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What comes of a step of the interpreter. The driver carries it out in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Next {
    /// Steps under way that have to be stopped; nothing is told of them any more.
    pub cancel: Vec<StepPath>,
    /// Steps to do. Each ends with [`FlowRun::tell`](super::FlowRun::tell).
    pub ready: Vec<Ready>,
    /// What happened, in order.
    pub events: Vec<FlowEvent>,
    /// How the run ended, if it has by this.
    pub finished: Option<Finish>,
    /// What did not fit and changed nothing.
    pub anomaly: Option<FlowAnomaly>,
}

/// A step for the driver to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Ready {
    /// Which step.
    pub path: StepPath,
    /// The same at each attempt and after each restart, for the outside world: run and path.
    pub idempotency_key: String,
    /// Which attempt, counted from 1.
    pub attempt: u32,
    /// Whether it may have been begun before, by a worker that was lost. Whether it is then done again is up to the
    /// driver, which knows what the step does.
    pub again: bool,
    /// How long to wait before. A driver may wait less, to spread attempts.
    pub after: Duration,
    /// How long it may take, if the definition says so.
    pub timeout: Option<Duration>,
    /// What to do.
    pub task: StepTask,
}

/// What a driver does.
#[derive(Clone, Debug, PartialEq)]
pub enum StepTask {
    /// Run an agent; its answer is the result.
    Agent {
        /// Its name in `agents`.
        agent: String,
        /// What it is asked.
        input: Json,
    },
    /// Call a tool; what it returns is the result.
    Tool {
        /// Its name in `tools`.
        tool: String,
        /// Its arguments.
        input: Json,
    },
    /// Ask a model; its answer is the result.
    Model {
        /// Its name in `models`.
        model: String,
        /// What it is told, by a name in `prompts`.
        prompt: Option<String>,
        /// The task, and the data for the task.
        input: ModelInput,
        /// The schema of its answer, by a name in `schemas`.
        output: Option<String>,
    },
    /// Wait for a breadcrumb; its context is the result.
    WaitFor {
        /// Which breadcrumb.
        event: Selector,
    },
    /// Ask people; what they answer is the result.
    Ask {
        /// The question.
        question: String,
        /// Who may answer; anybody if empty.
        of: Vec<String>,
        /// The schema of the answer, by a name in `schemas`.
        output: Option<String>,
    },
    /// Write a breadcrumb. There is no result.
    Emit {
        /// What to write.
        breadcrumb: NewBreadcrumb,
    },
}

/// How a step that the driver did ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// It has a result.
    Succeeded(Json),
    /// It has none.
    Failed {
        /// What went wrong.
        failure: StepFailure,
        /// Whether it may be tried again.
        retry: MayRetry,
    },
    /// It took longer than its timeout. It may be tried again.
    TimedOut,
    /// Its result comes later, by [`FlowRun::resume`](super::FlowRun::resume).
    Suspended {
        /// What the result comes with; no two of a run are the same.
        ticket: String,
    },
}

impl StepOutcome {
    /// A result.
    #[must_use]
    pub fn success(value: impl Into<Json>) -> Self {
        Self::Succeeded(value.into())
    }

    /// A failure that trying again cannot mend.
    #[must_use]
    pub fn failure(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Failed {
            failure: StepFailure::new(code, message),
            retry: MayRetry::Never,
        }
    }

    /// A failure that may pass.
    #[must_use]
    pub fn transient(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Failed {
            failure: StepFailure::new(code, message),
            retry: MayRetry::After(Duration::ZERO),
        }
    }
}

/// Whether a step that failed may be tried again.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MayRetry {
    /// No sooner than this, if its definition lets it.
    After(Duration),
    /// It would fail again.
    Never,
    /// It was not begun, since something is missing here: where that is there it may go on. A step is not tried again for it.
    Elsewhere,
}

/// What went wrong in a step.
///
/// The interpreter has codes of its own:
///
/// | code | what happened |
/// |---|---|
/// | `unresolved` | an expression has no value |
/// | `too_large` | a value is over `value_bytes`, or nests too deep; of a driver also: what is kept of the run, or of an agent, is too large |
/// | `not_a_list` | `for_each` was given something else |
/// | `too_many_items` | `for_each` was given more than `items` |
/// | `bad_input`, `bad_output` | what a flow is given, or comes to, does not fit its schema |
/// | `timed_out` | the step took longer than its timeout |
/// | `escalated` | an escalation of the step says `abort` |
/// | `too_many_steps` | the run has begun as many steps as it may |
/// | `misfit` | the progress is not one of this definition |
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct StepFailure {
    /// What kind of failure, for programs.
    pub code: String,
    /// What happened, for people and models.
    pub message: String,
    /// The step that failed; filled in by the interpreter.
    pub step: Option<StepPath>,
}

impl StepFailure {
    /// A failure.
    #[must_use]
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            step: None,
        }
    }

    /// The failure of this step, unless it comes from one within.
    pub(super) fn of(mut self, path: &StepPath) -> Self {
        self.step.get_or_insert_with(|| path.clone());
        self
    }
}

/// How a run ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// With what it returned, else with the last result of its steps, else with null.
    Completed {
        /// That.
        output: Json,
    },
    /// By a failure that no step took up.
    Failed {
        /// What went wrong.
        failure: StepFailure,
    },
    /// From outside.
    Cancelled,
}

/// Something that happened in a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FlowEvent {
    /// Its number, counted from 1 without gaps. One that was told before a crash and is told again has the same.
    pub sequence: u64,
    /// Where it happened.
    pub path: StepPath,
    /// What happened.
    pub kind: FlowEventKind,
}

/// What can happen in a run.
///
/// Each path that is started ends once: finished, failed or cancelled. A path begins after the one it is below, and
/// ends before it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowEventKind {
    /// It began.
    Started,
    /// It ended well.
    Finished,
    /// It ended with a failure, which may be taken up further out.
    Failed(StepFailure),
    /// It was stopped.
    Cancelled,
    /// It failed, and is tried again.
    Retried {
        /// The attempt to come.
        attempt: u32,
        /// What went wrong in the one before.
        failure: StepFailure,
        /// How long is waited.
        after: Duration,
    },
    /// It waits for a person, a tool, an agent or a breadcrumb.
    Suspended {
        /// Ticket of the result. If the step, or an agent in it, asks a person, this is the ID of the question: the `requestId` of
        /// its `human.request.v1` breadcrumb. An agent that asks again is suspended again, with the ID of the next question.
        ticket: String,
    },
    /// What it waited for is there.
    Resumed {
        /// What it came with.
        ticket: String,
    },
    /// Its result is not what it should be.
    Escalated {
        /// Which of its escalations takes it up, counted from 0.
        escalation: usize,
    },
    /// It repeated its steps as often as it may, and `until` still does not hold.
    LoopExhausted {
        /// How often.
        iterations: u32,
    },
    /// No further steps begin.
    Paused,
    /// Further steps begin.
    Unpaused,
}

/// Something told that does not fit. It changed nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FlowAnomaly {
    /// No step of this path is under way: it has ended, was cancelled, or never began.
    NotUnderWay {
        /// The path that was told of.
        path: StepPath,
    },
    /// The attempt that was told of is not the one under way.
    StaleAttempt {
        /// The path that was told of.
        path: StepPath,
        /// The attempt that was told of.
        attempt: u32,
    },
    /// No step waits for this ticket.
    UnknownTicket {
        /// The ticket.
        ticket: String,
    },
    /// Another step waits for this ticket already.
    TicketInUse {
        /// The ticket.
        ticket: String,
    },
    /// The run is over.
    AfterEnd,
}

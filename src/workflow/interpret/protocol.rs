use super::path::StepPath;
use crate::model::{Json, NewBreadcrumb, Selector};
use crate::workflow::ModelInput;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Actions for the driver after a call of a [`FlowRun`](super::FlowRun). The driver carries them out in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Next {
    /// Steps in flight to stop. The driver must not report their outcomes.
    pub cancel: Vec<StepPath>,
    /// Steps to execute. The driver reports each outcome with [`FlowRun::tell`](super::FlowRun::tell).
    pub ready: Vec<Ready>,
    /// Events of this call, in order.
    pub events: Vec<FlowEvent>,
    /// End of the run, if this call ended the run.
    pub finished: Option<Finish>,
    /// Reason why the call was ignored, if it did not match the state of the run.
    pub anomaly: Option<FlowAnomaly>,
}

/// A step for the driver to execute.
#[derive(Clone, Debug, PartialEq)]
pub struct Ready {
    /// Path of the step.
    pub path: StepPath,
    /// Idempotency key for external systems: run ID and path. It is the same in each attempt and after each restart.
    pub idempotency_key: String,
    /// Number of the attempt, counted from 1.
    pub attempt: u32,
    /// If `true`, a lost worker may have started this attempt. The driver decides whether to execute the step again, because it knows the
    /// effects of the step.
    pub again: bool,
    /// Delay before the attempt. A driver may wait less, to spread attempts.
    pub after: Duration,
    /// Timeout of the attempt, if the definition sets one.
    pub timeout: Option<Duration>,
    /// Task of the step.
    pub task: StepTask,
}

/// Task of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepTask {
    /// Run an agent. Its answer is the result.
    Agent {
        /// Name of the agent in `agents`.
        agent: String,
        /// Input of the agent.
        input: Json,
    },
    /// Call a tool. Its output is the result.
    Tool {
        /// Name of the tool in `tools`.
        tool: String,
        /// Arguments of the call.
        input: Json,
    },
    /// Call a model. Its answer is the result.
    Model {
        /// Name of the model in `models`.
        model: String,
        /// Name in `prompts` of the system message.
        prompt: Option<String>,
        /// The task, and the data for the task.
        input: ModelInput,
        /// Name in `schemas` of the schema of the answer.
        output: Option<String>,
    },
    /// Wait for a breadcrumb. Its context is the result.
    WaitFor {
        /// Selector of the breadcrumb.
        event: Selector,
    },
    /// Ask people. The answer is the result.
    Ask {
        /// The question.
        question: String,
        /// People allowed to answer. Everyone if empty.
        of: Vec<String>,
        /// Name in `schemas` of the schema of the answer.
        output: Option<String>,
    },
    /// Write a breadcrumb. There is no result.
    Emit {
        /// The new breadcrumb.
        breadcrumb: NewBreadcrumb,
    },
}

/// Outcome of an attempt at a step, which the driver reports.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// The step has a result.
    Succeeded(Json),
    /// The attempt failed.
    Failed {
        /// Description of the failure.
        failure: StepFailure,
        /// Permission to retry the step.
        retry: MayRetry,
    },
    /// The attempt took longer than its timeout. The step can be retried.
    TimedOut,
    /// The result comes later, through [`FlowRun::resume`](super::FlowRun::resume).
    Suspended {
        /// ID with which the result is reported. Must be unique within the run.
        ticket: String,
    },
}

impl StepOutcome {
    /// Creates a success with a result.
    #[must_use]
    pub fn success(value: impl Into<Json>) -> Self {
        Self::Succeeded(value.into())
    }

    /// Creates a failure that a retry cannot fix.
    #[must_use]
    pub fn failure(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Failed {
            failure: StepFailure::new(code, message),
            retry: MayRetry::Never,
        }
    }

    /// Creates a transient failure, which can be retried after the delay in the definition.
    #[must_use]
    pub fn transient(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Failed {
            failure: StepFailure::new(code, message),
            retry: MayRetry::After(Duration::ZERO),
        }
    }
}

/// Permission to retry a failed step.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MayRetry {
    /// The step can be retried if its definition allows another attempt, after this delay at the earliest.
    After(Duration),
    /// A retry would fail again.
    Never,
    /// The step did not begin, because something is missing on this worker. A worker that has it can continue the run. The step itself is
    /// not retried.
    Elsewhere,
}

/// Failure of a step or a run.
///
/// The interpreter itself uses these codes:
///
/// | code | meaning |
/// |---|---|
/// | `unresolved` | an expression or a condition has no value |
/// | `too_large` | a value exceeds `value_bytes` or nests too deep, all values exceed `total_bytes`, or the saved state is too large |
/// | `too_much_work` | the paths of a step search too much, or the run compiles too many regular expressions with variables |
/// | `not_a_list` | the value of `for_each` is not a list |
/// | `too_many_items` | the list of `for_each` has more than `items` items |
/// | `bad_input`, `bad_output` | the input or output of a flow does not match its schema |
/// | `timed_out` | the step took longer than its timeout |
/// | `escalated` | an escalation of the step has `abort` |
/// | `too_many_steps` | the run exceeds the limit `steps` |
/// | `misfit` | the saved progress does not match the definition |
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct StepFailure {
    /// Kind of the failure, for programs.
    pub code: String,
    /// Description of the failure, for people and models.
    pub message: String,
    /// Path of the failed step. The interpreter sets it.
    pub step: Option<StepPath>,
}

impl StepFailure {
    /// Creates a failure without a path.
    #[must_use]
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            step: None,
        }
    }

    /// Sets the path of the failed step, unless the failure has the path of an inner step.
    pub(super) fn of(mut self, path: &StepPath) -> Self {
        self.step.get_or_insert_with(|| path.clone());
        self
    }
}

/// End of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The run completed.
    Completed {
        /// The value that the flow returned, otherwise the last result of its steps, otherwise null.
        output: Json,
    },
    /// The run failed, because no step handled a failure.
    Failed {
        /// The failure.
        failure: StepFailure,
    },
    /// The run was cancelled from outside.
    Cancelled,
}

/// An event of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FlowEvent {
    /// Number of the event, counted from 1 without gaps. An event that is reported again after a crash has the same number.
    pub sequence: u64,
    /// Path of the step, or of the flow for an event of the whole run.
    pub path: StepPath,
    /// Kind of the event.
    pub kind: FlowEventKind,
}

/// Kind of a [`FlowEvent`].
///
/// Each path that starts ends once: finished, failed or cancelled. A path starts after the enclosing path, and ends before the enclosing
/// path does.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowEventKind {
    /// The step or run began.
    Started,
    /// The step or run succeeded.
    Finished,
    /// The step or run failed. An enclosing `try` can handle the failure of a step.
    Failed(StepFailure),
    /// The step or run was cancelled.
    Cancelled,
    /// An attempt at the step failed, and the step is retried.
    Retried {
        /// Number of the next attempt.
        attempt: u32,
        /// Failure of the previous attempt.
        failure: StepFailure,
        /// Delay before the next attempt.
        after: Duration,
    },
    /// The step waits for a person, a tool, an agent or a breadcrumb.
    Suspended {
        /// Ticket of the result. If the step, or an agent in it, asks a person, this is the ID of the question: the `requestId` of
        /// its `human.request.v1` breadcrumb. An agent that asks again is suspended again, with the ID of the next question.
        ticket: String,
    },
    /// The result of the suspended step arrived.
    Resumed {
        /// Ticket of the result.
        ticket: String,
    },
    /// An escalation of the step handles its result.
    Escalated {
        /// Index of the escalation in the step, counted from 0.
        escalation: usize,
    },
    /// The loop ended because it reached its maximum number of iterations, and not because `until` held.
    LoopExhausted {
        /// Number of iterations.
        iterations: u32,
    },
    /// The run was paused, so no further steps begin.
    Paused,
    /// The pause ended, so steps begin again.
    Unpaused,
}

/// Reason why a [`FlowRun`](super::FlowRun) ignored a call. The call changed nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FlowAnomaly {
    /// No step with this path is in flight: it has ended, was cancelled, or never began.
    NotUnderWay {
        /// Path in the report.
        path: StepPath,
    },
    /// The reported attempt is not the current attempt of the step.
    StaleAttempt {
        /// Path in the report.
        path: StepPath,
        /// Attempt in the report.
        attempt: u32,
    },
    /// No step waits for this ticket.
    UnknownTicket {
        /// The ticket.
        ticket: String,
    },
    /// Another step already waits for this ticket.
    TicketInUse {
        /// The ticket.
        ticket: String,
    },
    /// The run has ended.
    AfterEnd,
}

use super::path::StepPath;
use crate::model::{Json, NewBreadcrumb, Selector};
use crate::workflow::ModelInput;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Actions that a method of [`FlowRun`](super::FlowRun) requests from its caller, the driver. The driver carries them out in the
/// order of the fields.
///
/// Save [`FlowRun::progress`](super::FlowRun::progress) before you carry out the actions. A run
/// with neither ready steps nor steps in flight waits for
/// [`FlowRun::resume`](super::FlowRun::resume), is paused, or has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Next {
    /// Running or suspended steps that the driver, which called the flow run, has to stop. The driver must not report their
    /// outcomes.
    ///
    /// A branch that lost in a `first` or `fail_fast` is an example.
    pub cancel: Vec<StepPath>,
    /// Steps that the driver, which called the flow run, has to execute. The driver reports each outcome with
    /// [`FlowRun::tell`](super::FlowRun::tell).
    pub ready: Vec<Ready>,
    /// Events of the flow run that the method call caused, in order.
    pub events: Vec<FlowEvent>,
    /// End of the flow run, or `None` if the method call did not end the run.
    pub finished: Option<Finish>,
    /// Reason why the [`FlowRun`](super::FlowRun) ignored the method call, such as a late report of a step's outcome, or
    /// `None` if it accepted the call.
    pub anomaly: Option<FlowAnomaly>,
}

/// A step of a flow run that the driver, the caller of the interpreter, has to execute.
#[derive(Clone, Debug, PartialEq)]
pub struct Ready {
    /// Path of the step to execute.
    pub path: StepPath,
    /// Idempotency key for the step's calls to external systems. The key consists of the run ID and the step path, and is the same in each
    /// attempt and after each restart.
    pub idempotency_key: String,
    /// Number of the attempt at the step, counted from 1.
    pub attempt: u32,
    /// If `true`, this attempt at the step may have started before, on a worker that failed. The driver decides whether to
    /// execute the step again, because it knows the effects of the step.
    ///
    /// `false` in the steps of a [`Next`], and `true` in the steps of `outstanding` and `waiting`.
    pub again: bool,
    /// Delay before the attempt at the step. A driver may wait less, to spread attempts.
    pub after: Duration,
    /// Timeout of the attempt at the step, if the definition sets one.
    pub timeout: Option<Duration>,
    /// Work to execute for the step, such as an agent run or a tool call.
    pub task: StepTask,
}

/// Task of a step in a flow, in which the variables are replaced by their values.
///
/// The values are ready to use: the driver resolves no variables. Names refer to the sections of
/// the [`Workflow`](crate::workflow::Workflow), such as `tools` and `models`.
#[derive(Clone, Debug, PartialEq)]
pub enum StepTask {
    /// The task runs an agent, whose answer is the result of the step.
    Agent {
        /// Name of the agent to run, from the section `agents` of the workflow definition.
        agent: String,
        /// Input of the agent to run.
        input: Json,
    },
    /// The task calls a tool, whose output is the result of the step.
    Tool {
        /// Name of the tool to call, from the section `tools` of the workflow definition.
        tool: String,
        /// Arguments of the tool call.
        input: Json,
    },
    /// The task calls a model, whose answer is the result of the step.
    Model {
        /// Name of the model to call, from the section `models` of the workflow definition.
        model: String,
        /// Name of the system message to the model, from the section `prompts` of the workflow definition.
        prompt: Option<String>,
        /// Input of the model: the task, and the data for the task.
        input: ModelInput,
        /// Name of the JSON Schema of the model's answer, from the section `schemas` of the workflow definition.
        output: Option<String>,
    },
    /// The task waits for a breadcrumb, whose context is the result of the step.
    WaitFor {
        /// Selector of the breadcrumb for which the step waits.
        event: Selector,
    },
    /// The task asks people a question, whose answer is the result of the step.
    Ask {
        /// The question that the step asks people.
        question: String,
        /// People allowed to answer the question. Everyone if empty.
        of: Vec<String>,
        /// Name of the JSON Schema of the answer to the question, from the section `schemas` of the workflow definition.
        output: Option<String>,
    },
    /// The task writes a breadcrumb. The step has no result.
    Emit {
        /// The new breadcrumb that the step writes.
        breadcrumb: NewBreadcrumb,
    },
}

/// Outcome of an attempt at a flow step, which the driver that executed the step reports to the interpreter.
///
/// ```
/// use serde_json::json;
/// use universal_executor::workflow::{MayRetry, StepOutcome};
///
/// assert_eq!(StepOutcome::success(json!(7)), StepOutcome::Succeeded(json!(7).into()));
/// let failure = StepOutcome::failure("no_stock", "the item is sold out");
/// assert!(matches!(failure, StepOutcome::Failed { retry: MayRetry::Never, .. }));
/// let failure = StepOutcome::transient("offline", "no network");
/// assert!(matches!(failure, StepOutcome::Failed { retry: MayRetry::After(_), .. }));
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// The step succeeded with this result.
    Succeeded(Json),
    /// The attempt at the step failed.
    Failed {
        /// Code and message of the step's failure.
        failure: StepFailure,
        /// Decision whether and when the failed step can be retried.
        retry: MayRetry,
    },
    /// The attempt at the step took longer than its timeout. The step can be retried.
    TimedOut,
    /// The result of the step comes later, through [`FlowRun::resume`](super::FlowRun::resume).
    Suspended {
        /// ID with which the driver passes the later result of the suspended step to [`FlowRun::resume`](super::FlowRun::resume).
        /// Must be unique within the run.
        ticket: String,
    },
}

impl StepOutcome {
    /// Creates the outcome of a step that succeeded with a result.
    #[must_use]
    pub fn success(value: impl Into<Json>) -> Self {
        Self::Succeeded(value.into())
    }

    /// Creates the outcome of a step with a failure that a retry cannot fix.
    ///
    /// An enclosing `try` can handle it. Without one, the flow run fails with this code and
    /// message.
    #[must_use]
    pub fn failure(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Failed {
            failure: StepFailure::new(code, message),
            retry: MayRetry::Never,
        }
    }

    /// Creates the outcome of a step with a transient failure, which can be retried after the delay in the step's `retry` field.
    ///
    /// Without `retry` in the definition of the step, the step fails after the first attempt.
    #[must_use]
    pub fn transient(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Failed {
            failure: StepFailure::new(code, message),
            retry: MayRetry::After(Duration::ZERO),
        }
    }
}

/// Decision whether and when a failed step can be retried.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MayRetry {
    /// The step can be retried if its definition allows another attempt, after this delay at the earliest.
    After(Duration),
    /// The step is not retried, because a retry would fail again.
    Never,
    /// This worker could not begin the step, because the worker lacks something that the step needs. A worker that has it can
    /// continue the run. The step itself is not retried.
    ///
    /// A worker that runs an older version of the service is an example.
    Elsewhere,
}

/// Failure of a step or of a whole flow run.
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
    /// Code for the kind of the failure, for programs.
    ///
    /// A driver chooses other codes for its failures. `on_failure` reads the code from
    /// `${error.code}`.
    pub code: String,
    /// Description of the step's failure, for people and models.
    pub message: String,
    /// Path of the failed step. The interpreter sets it.
    pub step: Option<StepPath>,
}

impl StepFailure {
    /// Creates the failure of a step from a code and a message, without the step path, which the interpreter sets.
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

/// End of a flow run: it completed, failed or was cancelled.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The flow run completed, without an unhandled failure.
    Completed {
        /// The value that the flow returned, otherwise the last result of its steps, otherwise null.
        output: Json,
    },
    /// The flow run failed, because no step handled a failure.
    Failed {
        /// The failure that ended the run.
        failure: StepFailure,
    },
    /// The flow run was cancelled from outside.
    Cancelled,
}

/// An event of a flow run, such as the start, end, retry or suspension of a step.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FlowEvent {
    /// Sequence number of the event in the run, counted from 1 without gaps. An event that is reported again after a crash has
    /// the same number.
    ///
    /// Use it to detect events that are missing or repeated.
    pub sequence: u64,
    /// Path of the step to which the event belongs. For an event of the whole run, this is the path of the flow.
    pub path: StepPath,
    /// Kind of the flow run's event, with the data of this kind.
    pub kind: FlowEventKind,
}

/// Kind of a flow run's event, such as the start, retry or end of a step.
///
/// Each path that starts ends once: finished, failed or cancelled. A path starts after the enclosing path, and ends before the enclosing
/// path does.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowEventKind {
    /// The step or the whole flow run began.
    Started,
    /// The step or the whole flow run succeeded.
    Finished,
    /// The step or the whole flow run failed. An enclosing `try` can handle the failure of a step.
    Failed(StepFailure),
    /// The step or the whole flow run was cancelled.
    Cancelled,
    /// An attempt at the step failed, and the step is retried.
    ///
    /// The retry follows `retry` of the step. The step has not failed yet.
    Retried {
        /// Number of the next attempt at the step.
        attempt: u32,
        /// Failure of the previous attempt at the step.
        failure: StepFailure,
        /// Delay before the next attempt at the step.
        after: Duration,
    },
    /// The step waits for a person, a tool, an agent or a breadcrumb.
    Suspended {
        /// Ticket of the suspended step: the ID of the awaited result. If the step, or an agent in it, asks a person, this is the ID of the
        /// question: the `requestId` of its `human.request.v1` breadcrumb. An agent that asks again is suspended again, with the ID of the
        /// next question.
        ticket: String,
    },
    /// The result of the suspended step arrived.
    Resumed {
        /// Ticket of the suspended step: the ID of the result that arrived.
        ticket: String,
    },
    /// An escalation of the step handles its result.
    Escalated {
        /// Index of the escalation in the step, counted from 0.
        escalation: usize,
    },
    /// The loop ended because it reached its maximum number of iterations, and not because `until` held.
    ///
    /// The loop succeeds nevertheless. Read the result to decide whether it is good enough.
    LoopExhausted {
        /// Number of iterations of the loop that ran.
        iterations: u32,
    },
    /// The flow run was paused, so no further steps begin.
    Paused,
    /// The pause of the flow run ended, so further steps can begin.
    Unpaused,
}

/// Reason why a [`FlowRun`](super::FlowRun) ignored a method call, for example a late report of a step's outcome. The call
/// changed nothing.
///
/// [`Next::anomaly`] has it. A late report after a crash or a cancellation is usual: a driver can
/// log and ignore it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FlowAnomaly {
    /// No step with the reported step path is in flight: the step has ended, was cancelled, or never began.
    NotUnderWay {
        /// Path of the step in the ignored report of a step's outcome.
        path: StepPath,
    },
    /// The reported attempt is not the current attempt of the step.
    StaleAttempt {
        /// Path of the step in the ignored report of a step's outcome.
        path: StepPath,
        /// Number of the attempt at the step whose outcome was reported.
        attempt: u32,
    },
    /// No step of the run waits for the result with this ticket.
    UnknownTicket {
        /// The ticket for which no step waits.
        ticket: String,
    },
    /// Another step of the run already waits for the result with this ticket.
    TicketInUse {
        /// The ticket for which another step waits.
        ticket: String,
    },
    /// The flow run has ended, so a call can no longer change it.
    AfterEnd,
}

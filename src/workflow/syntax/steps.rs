//! Syntax of the kinds of steps in a workflow definition, and of branches, cases and escalations.

#![expect(
    dead_code,
    reason = "the compiler reads nested and common fields on their own"
)]

use super::parts::{Condition, Emit, Event, Retry};
use super::read::{Written, names};
use super::values::{Nested, seconds, some, whole, word};
use crate::workflow::error::WorkflowLoadError;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::time::Duration;

kinds! {
    /// A step of a flow.
    Step {
        "agent" => Agent(AgentStep),
        "tool" => Tool(ToolStep),
        "model" => Model(ModelStep),
        "flow" => Flow(FlowStep),
        "parallel" => Parallel(ParallelStep),
        "for_each" => ForEach(ForEachStep),
        "loop" => Loop(LoopStep),
        "if" => If(IfStep),
        "match" => Match(MatchStep),
        "try" => Try(TryStep),
        "set" => Set(SetStep),
        "wait_for" => WaitFor(WaitForStep),
        "ask" => Ask(AskStep),
        "emit" => Emit(EmitStep),
        "return" => Return(ReturnStep),
        "fail" => Fail(FailStep),
        /// Several steps with an input, allowed only as a branch of `parallel`.
        #[cfg_attr(feature = "schema", schemars(skip))]
        "steps" => Steps(Branch),
    }
}

kinds! {
    /// A case of a `match` step.
    Case {
        "is" => Is(EqualCase),
        "op" => Op(OpCase),
    }
}

kinds! {
    /// An escalation of a step, which takes an action if the step's result meets a condition.
    Escalation {
        "return" => Return(ReturnEscalation),
        "continue" => Continue(ContinueEscalation),
        "abort" => Abort(AbortEscalation),
        "steps" => Steps(StepsEscalation),
    }
}

// The JSON Schema of an inline struct is a part of the schema of its enum.
objects! {
    /// A case that matches if the value of the `match` step equals the value in `is`.
    #[cfg_attr(feature = "schema", schemars(inline))]
    EqualCase {
        /// The value that the field `match` of the `match` step must equal.
        is: Value,
        /// The steps that run if the case matches.
        then: Nested<Vec<Step>>,
    }

    /// A case that matches if a comparison of the value of the `match` step holds.
    #[cfg_attr(feature = "schema", schemars(inline))]
    OpCase {
        /// JSONPath of the value to compare in the value of the step's field `match`. Defaults to the whole value.
        path: Option<String>,
        /// The comparison operator: any operator that conditions of subscriptions can have, such as `eq`.
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::op"))]
        op: String,
        /// The value to compare with the value at `path` in the step's field `match`.
        #[serde(default, deserialize_with = "some")]
        value: Option<Value>,
        /// The steps that run if the case matches.
        then: Nested<Vec<Step>>,
    }

    /// An escalation that ends the flow with a value if a condition holds.
    #[cfg_attr(feature = "schema", schemars(inline))]
    ReturnEscalation {
        /// Condition on the variable `result` under which the flow ends.
        when: Nested<Condition>,
        /// Result of the flow that the escalation ends.
        r#return: Value,
    }

    /// An escalation that replaces the step's result with another value if a condition holds.
    #[cfg_attr(feature = "schema", schemars(inline))]
    ContinueEscalation {
        /// Condition on the variable `result` under which the result is replaced.
        when: Nested<Condition>,
        /// Value that becomes the result of the step if the condition `when` holds.
        r#continue: Value,
    }

    /// An escalation that fails the step with an error message if a condition holds.
    #[cfg_attr(feature = "schema", schemars(inline))]
    AbortEscalation {
        /// Condition on the variable `result` under which the step fails.
        when: Nested<Condition>,
        /// Message of the step's failure.
        abort: String,
    }

    /// An escalation that runs steps if a condition holds. The result of these steps replaces the result of the escalated step.
    #[cfg_attr(feature = "schema", schemars(inline))]
    StepsEscalation {
        /// Condition on the variable `result` under which the steps run.
        when: Nested<Condition>,
        /// The steps that run if the condition `when` holds.
        steps: Nested<Vec<Step>>,
    }

    /// A branch of a `parallel` step that has several steps and its own input.
    Branch {
        /// ID of the branch, which is part of the paths that identify the branch's steps in a run.
        #[serde(default)]
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::variable"))]
        id: Option<String>,
        /// Input of the branch of a `parallel` step. Defaults to the input of the flow.
        #[serde(default, deserialize_with = "some")]
        input: Option<Value>,
        /// The steps of the branch.
        steps: Nested<Vec<Step>>,
    }
}

/// Rule for the end of a `parallel` or `for_each` step, depending on the outcomes of its branches or items.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub(in crate::workflow) enum Join {
    /// The step ends when every branch has ended. One failure fails the step.
    All,
    /// The first failure of a branch fails the step and cancels the other branches.
    FailFast,
    /// The first success of a branch is the result of the step and cancels the other branches.
    First,
}

/// The fields that several kinds of steps have: `id`, `as` and `timeout_seconds`.
#[derive(Debug, Deserialize)]
pub(in crate::workflow) struct Common {
    pub(in crate::workflow) id: Option<String>,
    pub(in crate::workflow) r#as: Option<String>,
    #[serde(default, deserialize_with = "seconds")]
    pub(in crate::workflow) timeout_seconds: Option<Duration>,
}

/// Declares the structs of the kinds of steps of a workflow definition. Every step has the fields of `every`, a `composite` step contains
/// other steps or runs a flow, and the interpreter hands out a `driven` step.
macro_rules! steps {
    (@driven $head:tt $($field:tt)*) => {
        steps! { @composite $head
            $($field)*
            /// Maximum number of attempts at the step, and the delays between them. Defaults to the policies of the workflow for
            /// agents, tools and models, otherwise to one.
            retry: Option<Nested<Retry>>,
            /// Timeout of the step in seconds. Defaults to the policies for agents, tools and models, to one week for waits.
            #[serde(default, deserialize_with = "seconds")]
            #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::seconds"))]
            timeout_seconds: Option<Duration>,
        }
    };
    (@composite $head:tt $($field:tt)*) => {
        steps! { @every $head
            $($field)*
            /// Escalations of the step, which take an action if the step's result meets a condition. Only the first escalation whose
            /// condition holds applies.
            #[serde(default)]
            escalate: Nested<Vec<Escalation>>,
        }
    };
    (@every [$($head:tt)*] $($field:tt)*) => {
        objects! {
            $($head)* {
                $($field)*
                /// ID of the step, which is part of the path that identifies the step in a run. Also the default name of the
                /// variable for the step's result.
                #[serde(default)]
                #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::variable"))]
                id: Option<String>,
                /// Name of the variable that takes the step's result. Defaults to the ID.
                #[serde(default)]
                #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::variable"))]
                r#as: Option<String>,
            }
        }
    };
    ($($(#[$about:meta])* $shared:ident $name:ident { $($field:tt)* })+) => {
        $(steps! { @$shared [$(#[$about])* $name] $($field)* })+
    };
}

steps! {
    /// A step that runs an agent.
    driven AgentStep {
        /// Name of the agent that the step runs, from the section `agents` of the workflow definition.
        agent: String,
        /// Input of the agent that the step runs. Defaults to the input of the flow.
        #[serde(default, deserialize_with = "some")]
        input: Option<Value>,
    }

    /// A step that calls a tool.
    driven ToolStep {
        /// Name of the tool that the step calls, from the section `tools` of the workflow definition.
        tool: String,
        /// Input of the tool that the step calls. Defaults to the input of the flow.
        #[serde(default, deserialize_with = "some")]
        input: Option<Value>,
    }

    /// A step that calls a model.
    driven ModelStep {
        /// Name of the model that the step calls, from the section `models` of the workflow definition.
        model: String,
        /// Name of the system message to the model, from the section `prompts` of the workflow definition.
        prompt: Option<String>,
        /// Task or data for the model. The text of a string is the task, and the values of its variables are data. Defaults to the input of
        /// the flow.
        #[serde(default, deserialize_with = "some")]
        input: Option<Value>,
        /// Name of the JSON Schema of the model's answer, from the section `schemas` of the workflow definition.
        output: Option<String>,
    }

    /// A step that runs another flow, with its own variables.
    composite FlowStep {
        /// Name of the flow that the step runs, from the section `flows` of the workflow definition.
        flow: String,
        /// Input of the flow that the step runs. Defaults to the input of the flow that contains the step.
        #[serde(default, deserialize_with = "some")]
        input: Option<Value>,
    }

    /// A step that runs branches side by side.
    composite ParallelStep {
        /// The branches that run side by side.
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::branches"))]
        parallel: Nested<Vec<Step>>,
        /// Rule that decides when the step ends and the remaining branches are cancelled. Defaults to `all`.
        #[serde(default = "all", deserialize_with = "word")]
        join: Join,
    }

    /// A step that runs other steps for each item of a list.
    composite ForEachStep {
        /// The list whose items the steps process. The steps run once for each item.
        for_each: Value,
        /// Name of the variable that holds the current item of the list. Defaults to `item`.
        #[serde(default)]
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::item"))]
        item: Option<String>,
        /// Maximum number of items of the list that are in flight at the same time. Defaults to 8.
        #[serde(default = "at_once", deserialize_with = "whole::<1, 256, _, _>")]
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 256)))]
        at_once: usize,
        /// Rule that decides when the step ends and the remaining items are cancelled. Defaults to `fail_fast`.
        #[serde(default = "fail_fast", deserialize_with = "word")]
        join: Join,
        /// The steps that run for each item.
        steps: Nested<Vec<Step>>,
    }

    /// A step that repeats other steps.
    composite LoopStep {
        /// The steps that the loop repeats.
        r#loop: Nested<Vec<Step>>,
        /// Maximum number of repetitions of the loop.
        #[serde(deserialize_with = "whole::<1, 10_000, _, _>")]
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
        max: u32,
        /// Condition that ends the loop.
        until: Option<Nested<Condition>>,
    }

    /// A step that runs other steps if a condition holds.
    composite IfStep {
        /// The condition that decides which steps run.
        r#if: Nested<Condition>,
        /// The steps that run if the condition holds.
        then: Nested<Vec<Step>>,
        /// The steps that run if the condition does not hold.
        r#else: Option<Nested<Vec<Step>>>,
    }

    /// A step that runs the first case that matches a value.
    composite MatchStep {
        /// The value that the step tests against its cases.
        r#match: Value,
        /// The cases of the `match` step, which are tested in order. Only the first case that matches runs.
        #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
        cases: Nested<Vec<Case>>,
        /// The steps that run if no case matches.
        r#else: Option<Nested<Vec<Step>>>,
    }

    /// A step that runs other steps, and handles their failure.
    composite TryStep {
        /// The steps whose failure the `try` step handles.
        r#try: Nested<Vec<Step>>,
        /// The steps that run if a step in `try` fails.
        on_failure: Nested<Vec<Step>>,
    }

    /// A step that sets variables of the flow.
    every SetStep {
        /// The values to set, by variable name.
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::variables"))]
        set: Map<String, Value>,
    }

    /// A step that waits for a breadcrumb.
    driven WaitForStep {
        /// The breadcrumb that the step waits for.
        wait_for: Nested<Event>,
    }

    /// A step that asks people a question.
    driven AskStep {
        /// The question that the step asks.
        ask: String,
        /// People with the right to answer the question. Defaults to everyone.
        #[serde(default)]
        of: Vec<String>,
        /// Name of the JSON Schema of the answer to the question, from the section `schemas` of the workflow definition.
        output: Option<String>,
    }

    /// A step that writes a breadcrumb.
    driven EmitStep {
        /// The breadcrumb that the step writes.
        emit: Nested<Emit>,
    }

    /// A step that ends the flow with a value.
    every ReturnStep {
        /// Result of the flow that the step ends.
        r#return: Value,
    }

    /// A step that fails with an error message. An enclosing `try` can handle the failure.
    every FailStep {
        /// Message of the step's failure.
        fail: String,
        /// Code of the step's failure. Defaults to `failed`.
        code: Option<String>,
    }
}

/// Returns the default maximum number of steps of a graph, or of items of a `for_each` step, that run at the same time.
pub(super) const fn at_once() -> usize {
    8
}

const fn all() -> Join {
    Join::All
}

const fn fail_fast() -> Join {
    Join::FailFast
}

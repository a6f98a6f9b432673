//! The kinds of steps, and the parts of steps that contain other steps.

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
        /// Only in `parallel`.
        #[cfg_attr(feature = "schema", schemars(skip))]
        "steps" => Steps(Branch),
    }
}

kinds! {
    /// A case of a `match`.
    Case {
        "is" => Is(EqualCase),
        "op" => Op(OpCase),
    }
}

kinds! {
    /// An action for a result that is not as it should be.
    Escalation {
        "return" => Return(ReturnEscalation),
        "continue" => Continue(ContinueEscalation),
        "abort" => Abort(AbortEscalation),
        "steps" => Steps(StepsEscalation),
    }
}

// The JSON Schema of an inline struct is a part of the schema of its enum.
objects! {
    /// Matches if the value equals another value.
    #[cfg_attr(feature = "schema", schemars(inline))]
    EqualCase {
        /// The other value.
        is: Value,
        /// The steps of the case.
        then: Nested<Vec<Step>>,
    }

    /// Matches if a comparison holds.
    #[cfg_attr(feature = "schema", schemars(inline))]
    OpCase {
        /// JSONPath in the value. Defaults to the whole value.
        path: Option<String>,
        /// The operator, as in subscriptions.
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::op"))]
        op: String,
        /// The value to compare with.
        #[serde(default, deserialize_with = "some")]
        value: Option<Value>,
        /// The steps of the case.
        then: Nested<Vec<Step>>,
    }

    /// Ends the flow.
    #[cfg_attr(feature = "schema", schemars(inline))]
    ReturnEscalation {
        /// Condition on the variable `result`.
        when: Nested<Condition>,
        /// Result of the flow.
        r#return: Value,
    }

    /// Replaces the result.
    #[cfg_attr(feature = "schema", schemars(inline))]
    ContinueEscalation {
        /// Condition on the variable `result`.
        when: Nested<Condition>,
        /// Result of the step.
        r#continue: Value,
    }

    /// Fails the step with a message.
    #[cfg_attr(feature = "schema", schemars(inline))]
    AbortEscalation {
        /// Condition on the variable `result`.
        when: Nested<Condition>,
        /// Message of the failure.
        abort: String,
    }

    /// Runs steps, whose result is the result of the step.
    #[cfg_attr(feature = "schema", schemars(inline))]
    StepsEscalation {
        /// Condition on the variable `result`.
        when: Nested<Condition>,
        /// The steps.
        steps: Nested<Vec<Step>>,
    }

    /// The steps of a branch, with a separate input.
    Branch {
        /// ID of the branch: its part of the path.
        #[serde(default)]
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::variable"))]
        id: Option<String>,
        /// Input of the branch. Defaults to the input of the flow.
        #[serde(default, deserialize_with = "some")]
        input: Option<Value>,
        /// The steps.
        steps: Nested<Vec<Step>>,
    }
}

/// Rule for the end of branches or items that run side by side.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub(in crate::workflow) enum Join {
    /// Every branch ends. One failure fails the step.
    All,
    /// The first failure cancels the other branches.
    FailFast,
    /// The first success cancels the other branches.
    First,
}

/// The fields that several kinds of steps have, and that the compiler reads from all of them.
#[derive(Debug, Deserialize)]
pub(in crate::workflow) struct Common {
    pub(in crate::workflow) id: Option<String>,
    pub(in crate::workflow) r#as: Option<String>,
    #[serde(default, deserialize_with = "seconds")]
    pub(in crate::workflow) timeout_seconds: Option<Duration>,
}

/// Declares the kinds of steps. Every step has the fields of `every`, a `composite` step contains other steps or runs a flow, and
/// the interpreter hands out a `driven` step.
macro_rules! steps {
    (@driven $head:tt $($field:tt)*) => {
        steps! { @composite $head
            $($field)*
            /// Attempts of the step. Defaults to the policies of the workflow for agents, tools and models, otherwise to one.
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
            /// Actions for results that are not as they should be. The first action whose condition holds is taken.
            #[serde(default)]
            escalate: Nested<Vec<Escalation>>,
        }
    };
    (@every [$($head:tt)*] $($field:tt)*) => {
        objects! {
            $($head)* {
                $($field)*
                /// ID of the step: its part of the path, and the variable that takes its result.
                #[serde(default)]
                #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::variable"))]
                id: Option<String>,
                /// The variable that takes the result. Defaults to the ID.
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
    /// Runs an agent.
    driven AgentStep {
        /// Name of the agent in `agents`.
        agent: String,
        /// Input of the agent. Defaults to the input of the flow.
        #[serde(default, deserialize_with = "some")]
        input: Option<Value>,
    }

    /// Runs a tool.
    driven ToolStep {
        /// Name of the tool in `tools`.
        tool: String,
        /// Input of the tool. Defaults to the input of the flow.
        #[serde(default, deserialize_with = "some")]
        input: Option<Value>,
    }

    /// Calls a model.
    driven ModelStep {
        /// Name of the model in `models`.
        model: String,
        /// Name of the system message in `prompts`.
        prompt: Option<String>,
        /// Task and data of the model: a string is the task, values of variables are fenced data. Defaults to the input of the flow.
        #[serde(default, deserialize_with = "some")]
        input: Option<Value>,
        /// Name of the answer's schema in `schemas`.
        output: Option<String>,
    }

    /// Runs another flow, with its own variables.
    composite FlowStep {
        /// Name of the flow in `flows`.
        flow: String,
        /// Input of that flow. Defaults to the input of this flow.
        #[serde(default, deserialize_with = "some")]
        input: Option<Value>,
    }

    /// Runs branches side by side.
    composite ParallelStep {
        /// The branches.
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::branches"))]
        parallel: Nested<Vec<Step>>,
        /// Rule for the end of the branches. Defaults to `all`.
        #[serde(default = "all", deserialize_with = "word")]
        join: Join,
    }

    /// Runs steps for each item of a list.
    composite ForEachStep {
        /// The list.
        for_each: Value,
        /// Variable of the current item. Defaults to `item`.
        #[serde(default)]
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::item"))]
        item: Option<String>,
        /// Maximum number of items in flight. Defaults to 8.
        #[serde(default = "at_once", deserialize_with = "whole::<1, 256, _, _>")]
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 256)))]
        at_once: usize,
        /// Rule for the end of the items. Defaults to `fail_fast`.
        #[serde(default = "fail_fast", deserialize_with = "word")]
        join: Join,
        /// The steps for each item.
        steps: Nested<Vec<Step>>,
    }

    /// Repeats steps.
    composite LoopStep {
        /// The steps.
        r#loop: Nested<Vec<Step>>,
        /// Maximum number of repetitions.
        #[serde(deserialize_with = "whole::<1, 10_000, _, _>")]
        #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
        max: u32,
        /// Condition that ends the loop.
        until: Option<Nested<Condition>>,
    }

    /// Runs steps if a condition holds.
    composite IfStep {
        /// The condition.
        r#if: Nested<Condition>,
        /// The steps if the condition holds.
        then: Nested<Vec<Step>>,
        /// The steps if the condition does not hold.
        r#else: Option<Nested<Vec<Step>>>,
    }

    /// Runs the first case that matches a value.
    composite MatchStep {
        /// The value.
        r#match: Value,
        /// The cases.
        #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
        cases: Nested<Vec<Case>>,
        /// The steps if no case matches.
        r#else: Option<Nested<Vec<Step>>>,
    }

    /// Runs steps that may fail.
    composite TryStep {
        /// The steps.
        r#try: Nested<Vec<Step>>,
        /// The steps after a failure.
        on_failure: Nested<Vec<Step>>,
    }

    /// Sets variables.
    every SetStep {
        /// Values by variable name.
        #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::variables"))]
        set: Map<String, Value>,
    }

    /// Waits for a breadcrumb.
    driven WaitForStep {
        /// The breadcrumb.
        wait_for: Nested<Event>,
    }

    /// Asks people.
    driven AskStep {
        /// The question.
        ask: String,
        /// People with the right to answer. Defaults to everyone.
        #[serde(default)]
        of: Vec<String>,
        /// Name of the answer's schema in `schemas`.
        output: Option<String>,
    }

    /// Writes a breadcrumb.
    driven EmitStep {
        /// The breadcrumb.
        emit: Nested<Emit>,
    }

    /// Ends the flow.
    every ReturnStep {
        /// Result of the flow.
        r#return: Value,
    }

    /// Fails with a message, which an enclosing `try` can handle.
    every FailStep {
        /// Message of the failure.
        fail: String,
        /// Code of the failure. Defaults to `failed`.
        code: Option<String>,
    }
}

/// Default number of steps or items in flight.
pub(super) const fn at_once() -> usize {
    8
}

const fn all() -> Join {
    Join::All
}

const fn fail_fast() -> Join {
    Join::FailFast
}

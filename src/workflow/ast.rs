//! Compiled form of workflow flows, which is the input of the interpreter. Sequences and graphs of steps both compile to this form.

use super::event_form::EventForm;
use super::expression::{Expression, Test};
use super::policies::StepRetry;
use super::syntax::Join;
use crate::model::DefinitionPath;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) description: Option<String>,
    /// Name of the schema that the flow's input must match, from the section `schemas` of the workflow definition.
    pub(super) input: Option<String>,
    /// Name of the schema that the flow's output must match, from the section `schemas` of the workflow definition.
    pub(super) output: Option<String>,
    pub(super) body: Body,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Steps(Block),
    Graph(Graph),
}

/// A compiled sequence of steps of a flow, with at least one step.
#[derive(Clone, Debug)]
pub(super) struct Block(pub(super) Vec<Step>);

/// A compiled graph of steps of a flow. A step begins when all its dependencies have ended.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    /// Steps of the graph in topological order: each step follows the steps on which it depends.
    pub(super) nodes: Vec<GraphNode>,
    /// Maximum number of steps of the graph that are in flight at a time.
    pub(super) at_once: usize,
}

#[derive(Clone, Debug)]
pub(super) struct GraphNode {
    pub(super) step: Step,
    /// Positions in [`Graph::nodes`] of the steps on which this step depends.
    pub(super) depends_on: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The segment that this step adds to a step path, which identifies a step within a run. The segment is the step's ID, or its
    /// position in the list of steps.
    pub(super) segment: String,
    pub(super) location: DefinitionPath,
    /// Name of the flow's variable that takes the step's result, or `None` to store no result.
    pub(super) into: Option<String>,
    pub(super) escalations: Vec<Escalation>,
    pub(super) work: Work,
}

#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Work that the driver of the flow run executes, such as the call of an agent or a tool.
    Do(Box<DriverTask>),
    Flow {
        flow: String,
        input: Expression,
    },
    Parallel {
        branches: Vec<Branch>,
        join: Join,
    },
    ForEach(Box<ForEach>),
    Loop {
        most: u32,
        until: Option<Test>,
        body: Block,
    },
    /// An `if` or `match`, which runs the first arm whose condition holds. `on` is the value of a `match`, or `None` for an `if`.
    Choose {
        on: Option<Expression>,
        arms: Vec<Arm>,
    },
    Try {
        body: Block,
        on_failure: Block,
    },
    Set(Vec<(String, Expression)>),
    Return(Expression),
    Fail {
        code: String,
        message: Expression,
    },
}

#[derive(Clone, Debug)]
pub(super) struct DriverTask {
    pub(super) task: TaskForm,
    pub(super) retry: StepRetry,
    pub(super) timeout: Option<Duration>,
}

/// Compiled task of a step: a [`StepTask`](super::StepTask) with variables that are not resolved yet.
#[derive(Clone, Debug)]
pub(super) enum TaskForm {
    Agent {
        agent: String,
        input: Expression,
    },
    Tool {
        tool: String,
        input: Expression,
    },
    Model {
        model: String,
        prompt: Option<String>,
        input: Expression,
        output: Option<String>,
    },
    WaitFor {
        event: EventForm,
    },
    Ask {
        question: Expression,
        of: Vec<String>,
        output: Option<String>,
    },
    Emit {
        breadcrumb: Expression,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) segment: String,
    /// Value of the variable `input` in a branch of `parallel`. Defaults to the input of the flow.
    pub(super) input: Option<Expression>,
    pub(super) body: Block,
}

#[derive(Clone, Debug)]
pub(super) struct ForEach {
    pub(super) list: Expression,
    /// Name of the variable that has the current item of a `for_each`.
    pub(super) item: String,
    pub(super) at_once: usize,
    pub(super) join: Join,
    pub(super) body: Block,
}

#[derive(Clone, Debug)]
pub(super) struct Arm {
    pub(super) segment: String,
    /// Condition under which this arm of an `if` or `match` runs, or `None` for the last arm, `else`.
    pub(super) test: Option<Test>,
    pub(super) body: Block,
}

/// A compiled escalation of a step: a condition on the step's result, and the action to take if the condition holds.
#[derive(Clone, Debug)]
pub(super) struct Escalation {
    pub(super) when: Test,
    pub(super) handler: Handler,
}

#[derive(Clone, Debug)]
pub(super) enum Handler {
    /// Action if the condition of an escalation holds: ends the flow, with this value as the flow's result.
    Return(Expression),
    /// Action if the condition of an escalation holds: replaces the step's result with this value.
    Continue(Expression),
    /// Action if the condition of an escalation holds: fails the step, with this message.
    Abort(Expression),
    /// Action if the condition of an escalation holds: runs these steps. The result of the last step becomes the result of the
    /// escalated step.
    Steps(Block),
}

impl Step {
    /// Returns the lists of inner steps that the step contains, including the lists of its escalations.
    pub(super) fn blocks(&self) -> Vec<&Block> {
        let mut blocks: Vec<&Block> = match &self.work {
            Work::Do(_)
            | Work::Flow { .. }
            | Work::Set(_)
            | Work::Return(_)
            | Work::Fail { .. } => Vec::new(),
            Work::Parallel { branches, .. } => branches.iter().map(|branch| &branch.body).collect(),
            Work::ForEach(each) => vec![&each.body],
            Work::Loop { body, .. } => vec![body],
            Work::Choose { arms, .. } => arms.iter().map(|arm| &arm.body).collect(),
            Work::Try { body, on_failure } => vec![body, on_failure],
        };
        blocks.extend(
            self.escalations
                .iter()
                .filter_map(|one| match &one.handler {
                    Handler::Steps(block) => Some(block),
                    Handler::Return(_) | Handler::Continue(_) | Handler::Abort(_) => None,
                }),
        );
        blocks
    }
}

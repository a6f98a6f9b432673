//! The compiled form of flows. The interpreter runs this form of both sequences and graphs.

use super::event_form::EventForm;
use super::expression::{Expression, Test};
use super::policies::StepRetry;
use super::syntax::Join;
use crate::model::DefinitionPath;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) description: Option<String>,
    /// Name of the input's schema.
    pub(super) input: Option<String>,
    /// Name of the output's schema.
    pub(super) output: Option<String>,
    pub(super) body: Body,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Steps(Block),
    Graph(Graph),
}

/// A sequence of steps, with at least one step.
#[derive(Clone, Debug)]
pub(super) struct Block(pub(super) Vec<Step>);

/// A graph of steps. A step begins when all its dependencies have ended.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    /// Nodes in topological order: each node follows its dependencies.
    pub(super) nodes: Vec<GraphNode>,
    /// Maximum number of steps in flight.
    pub(super) at_once: usize,
}

#[derive(Clone, Debug)]
pub(super) struct GraphNode {
    pub(super) step: Step,
    /// Positions of the dependencies in [`Graph::nodes`].
    pub(super) depends_on: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The step's part of the path: its ID, or its position in the list.
    pub(super) segment: String,
    pub(super) place: DefinitionPath,
    /// The variable that takes the step's result.
    pub(super) into: Option<String>,
    pub(super) escalations: Vec<Escalation>,
    pub(super) work: Work,
}

#[derive(Clone, Debug)]
pub(super) enum Work {
    /// A task for the driver.
    Do(Box<Doing>),
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
    /// Runs the first arm whose test holds. `on` is the value of a `match`, or `None` for an `if`.
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
pub(super) struct Doing {
    pub(super) task: TaskForm,
    pub(super) retry: StepRetry,
    pub(super) timeout: Option<Duration>,
}

/// A [`StepTask`](super::StepTask) with variables that are not resolved yet.
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
    /// The variable `input` of the branch. Defaults to the input of the flow.
    pub(super) input: Option<Expression>,
    pub(super) body: Block,
}

#[derive(Clone, Debug)]
pub(super) struct ForEach {
    pub(super) list: Expression,
    /// The variable of the current item.
    pub(super) item: String,
    pub(super) at_once: usize,
    pub(super) join: Join,
    pub(super) body: Block,
}

#[derive(Clone, Debug)]
pub(super) struct Arm {
    pub(super) segment: String,
    /// The condition of the arm, or `None` for the last arm, `else`.
    pub(super) test: Option<Test>,
    pub(super) body: Block,
}

/// An action for a result that meets a condition.
#[derive(Clone, Debug)]
pub(super) struct Escalation {
    pub(super) when: Test,
    pub(super) handler: Handler,
}

#[derive(Clone, Debug)]
pub(super) enum Handler {
    /// Ends the flow with this value.
    Return(Expression),
    /// Replaces the result of the step.
    Continue(Expression),
    /// Fails the step with this message.
    Abort(Expression),
    /// Runs steps, whose result becomes the result of the step.
    Steps(Block),
}

impl Step {
    /// Returns the blocks that the step contains, including the blocks of its escalations.
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

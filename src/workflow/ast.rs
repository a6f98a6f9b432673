//! What a flow is made of, compiled: both forms of a definition become this, and one interpreter runs it.

use super::event_form::EventForm;
use super::expression::{Expression, Test};
use super::policies::StepRetry;
use super::syntax::Join;
use crate::model::DefinitionPath;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) description: Option<String>,
    /// The schemas of what goes in and comes out.
    pub(super) input: Option<String>,
    pub(super) output: Option<String>,
    pub(super) body: Body,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Steps(Block),
    Graph(Graph),
}

/// Steps one after another; never empty.
#[derive(Clone, Debug)]
pub(super) struct Block(pub(super) Vec<Step>);

/// Steps that each begin once all they depend on have ended.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    /// Each after all it depends on.
    pub(super) nodes: Vec<GraphNode>,
    /// How many are under way at once.
    pub(super) at_once: usize,
}

#[derive(Clone, Debug)]
pub(super) struct GraphNode {
    pub(super) step: Step,
    /// By their position among the nodes.
    pub(super) depends_on: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Its part of the path: its id, or its position in the list.
    pub(super) segment: String,
    pub(super) place: DefinitionPath,
    /// The variable that takes its result.
    pub(super) into: Option<String>,
    pub(super) escalations: Vec<Escalation>,
    pub(super) work: Work,
}

#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Something that the driver does.
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
    /// The first arm whose test holds. `if` has arms of its own, `match` has a value that they are about.
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

/// A [`StepTask`](super::StepTask) with places for variables.
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
    /// What `input` is within; that of the flow if absent.
    pub(super) input: Option<Expression>,
    pub(super) body: Block,
}

#[derive(Clone, Debug)]
pub(super) struct ForEach {
    pub(super) list: Expression,
    /// The variable that has the item.
    pub(super) item: String,
    pub(super) at_once: usize,
    pub(super) join: Join,
    pub(super) body: Block,
}

#[derive(Clone, Debug)]
pub(super) struct Arm {
    pub(super) segment: String,
    /// None of the last arm, which is for all else.
    pub(super) test: Option<Test>,
    pub(super) body: Block,
}

/// What happens if the result of a step is not what it should be.
#[derive(Clone, Debug)]
pub(super) struct Escalation {
    pub(super) when: Test,
    pub(super) handler: Handler,
}

#[derive(Clone, Debug)]
pub(super) enum Handler {
    /// The flow ends with this.
    Return(Expression),
    /// The step has this result instead.
    Continue(Expression),
    /// The step fails with this message.
    Abort(Expression),
    /// These are run, and the step has their result.
    Steps(Block),
}

impl Step {
    /// The blocks within it, each with the name that its part of the path has.
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

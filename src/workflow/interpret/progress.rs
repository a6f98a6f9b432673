use super::path::StepPath;
use super::protocol::{Finish, StepFailure, StepOutcome};
use crate::model::Json;
use crate::workflow::ast::{Body, Flow};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Returns the size in bytes of a flow's variable: its name and its value.
pub(super) fn variable_bytes(name: &str, value: &Json) -> usize {
    name.len().saturating_add(value.size())
}

/// Variables of a flow or branch, by name. Clones share the values.
pub(super) type Vars = BTreeMap<String, Json>;

/// Progress of a flow run: plain data, to be saved after each call of a [`FlowRun`](super::FlowRun).
///
/// It contains the steps in flight and the variables. Of the ended steps it retains only results that can still be used, so its
/// size does not depend on the number of ended steps.
///
/// Serialize it with `serde`, and pass the restored value to
/// [`FlowRun::restore`](super::FlowRun::restore), as the example of the [module](crate::workflow)
/// does.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Progress {
    /// ID of the flow run, which is the prefix of its steps' idempotency keys.
    pub(super) run: String,
    /// Hash of the workflow definition with which the flow run began.
    pub(super) definition: String,
    pub(super) flow: String,
    pub(super) paused: bool,
    pub(super) finished: Option<Finish>,
    /// Number of steps that the run has started.
    pub(super) steps: u64,
    /// Sequence number of the last event of the run.
    pub(super) sequence: u64,
    /// Number of regular expressions with variables that the run has compiled.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(super) patterns: u64,
    /// State of the run's steps in flight, by step path.
    pub(super) nodes: BTreeMap<StepPath, Node>,
}

impl Progress {
    /// Returns the ID of the run, as passed to [`FlowRun::begin`](super::FlowRun::begin).
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Returns the name of the outermost flow, with which the run began.
    #[must_use]
    pub fn flow(&self) -> &str {
        &self.flow
    }

    /// Returns the [hash](crate::workflow::Workflow::hash) of the workflow definition with which the flow run began.
    #[must_use]
    pub fn definition(&self) -> &str {
        &self.definition
    }

    /// Returns `true` if the flow run is paused, so that no further steps begin.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns how the flow run ended (completed, failed or cancelled), or `None` if the run has not ended.
    ///
    /// A saved run with an end needs no driver.
    #[must_use]
    pub fn finished(&self) -> Option<&Finish> {
        self.finished.as_ref()
    }

    /// Returns the number of steps that the run has started, including ended steps.
    ///
    /// The limit is [`WorkflowLimits::steps`](crate::workflow::WorkflowLimits::steps).
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the sequence number of the last event of the run, or 0 before the first event.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns `true` if the step with this step path is in flight.
    pub(in crate::workflow) fn is_in_flight(&self, path: &StepPath) -> bool {
        self.nodes.contains_key(path)
    }

    /// Returns the steps in flight that enclose the step at `path`, the innermost first. The flag is `true` if the inner steps run one
    /// after another, and `false` if they run side by side.
    pub(in crate::workflow) fn around(
        &self,
        path: &StepPath,
    ) -> impl Iterator<Item = (StepPath, bool)> {
        path.outer().filter_map(|outer| {
            let is_line = match self.nodes.get(&outer)? {
                Node::Fan { .. }
                | Node::Flow {
                    body: BodyState::Graph(_),
                    ..
                } => false,
                Node::Leaf(_)
                | Node::Flow { .. }
                | Node::Branch { .. }
                | Node::Loop { .. }
                | Node::Chosen { .. }
                | Node::Try { .. }
                | Node::Escalated { .. } => true,
            };
            Some((outer, is_line))
        })
    }

    /// Returns the approximate size in bytes of the values of the steps that enclose a step. The sum covers the enclosing steps from the
    /// inside out, and stops before an enclosing step that runs its steps side by side.
    pub(in crate::workflow) fn part_of(&self, path: &StepPath) -> usize {
        let line = self.around(path).take_while(|(_, is_line)| *is_line);
        let nodes = line.filter_map(|(outer, _)| self.nodes.get(&outer));
        nodes.map(Node::bytes).sum()
    }

    /// Returns the size in bytes of all values of the flow run. A value counts each time that the saved state contains it.
    pub(super) fn bytes(&self) -> usize {
        let nodes = self.nodes.values().map(Node::bytes);
        nodes.fold(0, usize::saturating_add)
    }

    /// Returns a lower bound of the size in bytes of the saved progress, without serialising the progress.
    pub(in crate::workflow) fn min_size(&self) -> usize {
        let paths = self.nodes.keys().map(|path| path.as_str().len());
        paths.fold(self.bytes_in_state(), usize::saturating_add)
    }

    /// Returns the size in bytes of the values in the saved state of the run. The inputs of steps are not part of the saved state.
    fn bytes_in_state(&self) -> usize {
        let nodes = self.nodes.values().map(|node| match node {
            Node::Leaf(_) => 0,
            Node::Flow { .. }
            | Node::Branch { .. }
            | Node::Fan { .. }
            | Node::Loop { .. }
            | Node::Chosen { .. }
            | Node::Try { .. }
            | Node::Escalated { .. } => node.bytes(),
        });
        nodes.fold(0, usize::saturating_add)
    }

    /// Returns the path and the ticket (ID of the awaited result) of each suspended step of the run, ordered by path.
    ///
    /// Pass a ticket to [`FlowRun::resume`](super::FlowRun::resume) when its answer arrives.
    pub fn suspended(&self) -> impl Iterator<Item = (&StepPath, &str)> {
        self.nodes.iter().filter_map(|(path, node)| {
            let Node::Leaf(Leaf {
                phase: Phase::Suspended { ticket },
                ..
            }) = node
            else {
                return None;
            };
            Some((path, ticket.as_str()))
        })
    }
}

/// State of a step in flight in a flow run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Node {
    /// A step that code outside of the interpreter executes, such as an agent or tool step.
    Leaf(Leaf),
    /// A flow, with its variables and the state of its steps.
    Flow {
        vars: Vars,
        body: BodyState,
    },
    /// A branch of a `parallel` step or an item of a `for_each` step, with the variables that it set.
    Branch {
        vars: Vars,
        cursor: Cursor,
    },
    /// A `parallel` or `for_each` step: the number of started branches, and the outcomes of ended branches.
    Fan {
        begun: usize,
        settled: BTreeMap<usize, Settled>,
    },
    Loop {
        iteration: u32,
        cursor: Cursor,
    },
    /// The chosen arm of an `if` or `match`.
    Chosen {
        arm: usize,
        cursor: Cursor,
    },
    Try {
        failure: Option<StepFailure>,
        cursor: Cursor,
    },
    /// A step with a result that the steps of an escalation handle.
    Escalated {
        escalation: usize,
        result: Json,
        cursor: Cursor,
    },
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BodyState {
    Steps(Cursor),
    /// Ended steps of a flow that is a graph, as positions in the flow's list of steps. The results of these steps are variables.
    Graph(BTreeSet<usize>),
}

/// Position of a flow run in a sequence of steps.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Cursor {
    /// Index of the current step in the sequence.
    pub(super) at: usize,
    /// Most recent result that a step before the current step in the sequence had.
    pub(super) value: Produced,
}

/// Result of a step of a flow run. Some steps, `set` for example, have no result.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Produced {
    #[default]
    Nothing,
    Value(Json),
}

impl Cursor {
    fn bytes(&self) -> usize {
        self.value.bytes()
    }
}

impl Produced {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Value(value) => value.size(),
        }
    }

    pub(super) fn into_json(self) -> Json {
        match self {
            Self::Nothing => Json::default(),
            Self::Value(value) => value,
        }
    }
}

/// Outcome of an ended branch of a `parallel` step, or of an ended item of a `for_each` step.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Settled {
    Succeeded(Produced),
    Failed(StepFailure),
}

impl Settled {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Succeeded(produced) => produced.bytes(),
            Self::Failed(failure) => failure.message.len(),
        }
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Leaf {
    pub(super) attempt: u32,
    /// Delay before this attempt at the step.
    pub(super) after: Duration,
    pub(super) phase: Phase,
    /// Size in bytes of the input that was built for the last attempt at the step, or 0 before the first attempt.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) input_bytes: usize,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(bytes: &usize) -> bool {
    *bytes == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_none(patterns: &u64) -> bool {
    *patterns == 0
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// The step waits until the interpreter hands it to the driver, which executes it. With `again`, the driver may have
    /// started the step before.
    Due {
        again: bool,
    },
    /// The driver, which executes the step, has received it and has not reported an outcome.
    Doing,
    Suspended {
        ticket: String,
    },
    /// The driver, which executed the step, has reported this outcome. The interpreter handles the outcome in the same call.
    Told(StepOutcome),
}

impl Node {
    /// Creates the state of a flow before its first step.
    pub(super) fn of_flow(flow: &Flow, input: Json) -> Self {
        let body = match &flow.body {
            Body::Steps(_) => BodyState::Steps(Cursor::default()),
            Body::Graph(_) => BodyState::Graph(BTreeSet::new()),
        };
        let vars = Vars::from([("input".to_owned(), input)]);
        Self::Flow { vars, body }
    }

    /// Returns the size in bytes of the values in the state of the step.
    pub(super) fn bytes(&self) -> usize {
        let of = |vars: &Vars, cursor: usize| {
            let vars = vars.iter().map(|(name, value)| variable_bytes(name, value));
            vars.fold(cursor, usize::saturating_add)
        };
        match self {
            Self::Leaf(leaf) => leaf.input_bytes,
            Self::Flow { vars, body } => match body {
                BodyState::Steps(cursor) => of(vars, cursor.bytes()),
                BodyState::Graph(_) => of(vars, 0),
            },
            Self::Branch { vars, cursor } => of(vars, cursor.bytes()),
            Self::Fan { settled, .. } => {
                let settled = settled.values().map(Settled::bytes);
                settled.fold(0, usize::saturating_add)
            }
            Self::Loop { cursor, .. } | Self::Chosen { cursor, .. } => cursor.bytes(),
            Self::Try { failure, cursor } => {
                let message = failure.as_ref().map_or(0, |failure| failure.message.len());
                cursor.bytes().saturating_add(message)
            }
            Self::Escalated { result, cursor, .. } => result.size().saturating_add(cursor.bytes()),
        }
    }

    /// Returns `true` if the driver, which executes the step, has received it: the step is running or suspended.
    pub(super) fn is_with_driver(&self) -> bool {
        match self {
            Self::Leaf(leaf) => leaf.is_with_driver(),
            Self::Flow { .. }
            | Self::Branch { .. }
            | Self::Fan { .. }
            | Self::Loop { .. }
            | Self::Chosen { .. }
            | Self::Try { .. }
            | Self::Escalated { .. } => false,
        }
    }
}

impl Leaf {
    pub(super) fn is_with_driver(&self) -> bool {
        match self.phase {
            Phase::Doing | Phase::Suspended { .. } => true,
            Phase::Due { .. } | Phase::Told(_) => false,
        }
    }
}

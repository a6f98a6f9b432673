use super::path::StepPath;
use super::protocol::{Finish, StepFailure, StepOutcome};
use crate::model::Json;
use crate::workflow::ast::{Body, Flow};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Returns the bytes that a variable takes.
pub(super) fn variable_bytes(name: &str, value: &Json) -> usize {
    name.len().saturating_add(value.size())
}

/// Variables by name. Values are shared.
pub(super) type Vars = BTreeMap<String, Json>;

/// Where a run is: plain data, to be saved after each step of it.
///
/// It has what is under way and the variables. Of what has ended only the results that can still be used are kept, so
/// it stays small however long a run goes on.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Progress {
    /// What idempotency keys begin with.
    pub(super) run: String,
    /// The hash of the definition.
    pub(super) definition: String,
    pub(super) flow: String,
    pub(super) paused: bool,
    pub(super) finished: Option<Finish>,
    /// How many steps have begun.
    pub(super) steps: u64,
    /// The number of the last event.
    pub(super) sequence: u64,
    /// The number of regular expressions with variables that the run has compiled.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(super) patterns: u64,
    /// What has begun and not ended, by path.
    pub(super) nodes: BTreeMap<StepPath, Node>,
}

impl Progress {
    /// The run, as it was called when it began.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The flow that it began with.
    #[must_use]
    pub fn flow(&self) -> &str {
        &self.flow
    }

    /// The [hash](crate::workflow::Workflow::hash) of the definition that it began with.
    #[must_use]
    pub fn definition(&self) -> &str {
        &self.definition
    }

    /// Whether no further steps begin for now.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// How it ended, or `None` while it goes on.
    #[must_use]
    pub fn finished(&self) -> Option<&Finish> {
        self.finished.as_ref()
    }

    /// How many steps have begun.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The number of the last event.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether something has begun at a path and not ended.
    pub(in crate::workflow) fn is_under_way(&self, path: &StepPath) -> bool {
        self.nodes.contains_key(path)
    }

    /// What is under way around a path, the innermost first, and whether the steps in it go one after another.
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

    /// About how many bytes are kept for a step and those around it that goes on beside others, and for nothing else.
    pub(in crate::workflow) fn part_of(&self, path: &StepPath) -> usize {
        let line = self.around(path).take_while(|(_, is_line)| *is_line);
        let nodes = line.filter_map(|(outer, _)| self.nodes.get(&outer));
        nodes.map(Node::bytes).sum()
    }

    /// Returns the bytes that the values of the run take, each as often as the saved state contains it.
    pub(super) fn bytes(&self) -> usize {
        let nodes = self.nodes.values().map(Node::bytes);
        nodes.fold(0, usize::saturating_add)
    }

    /// Returns a size that the saved form of the run has at least, without writing it.
    pub(in crate::workflow) fn least_size(&self) -> usize {
        let paths = self.nodes.keys().map(|path| path.as_str().len());
        paths.fold(self.bytes_in_state(), usize::saturating_add)
    }

    /// Returns the bytes that values take in the saved state, to which inputs of steps do not belong.
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

    /// The steps that wait for somebody, each with its ticket, by path.
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

/// Something that has begun and not ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Node {
    /// What the driver does.
    Leaf(Leaf),
    /// A flow, with variables of its own.
    Flow {
        vars: Vars,
        body: BodyState,
    },
    /// One branch of steps side by side, with the variables that it set.
    Branch {
        vars: Vars,
        cursor: Cursor,
    },
    /// Steps side by side.
    Fan {
        begun: usize,
        settled: BTreeMap<usize, Settled>,
    },
    Loop {
        iteration: u32,
        cursor: Cursor,
    },
    /// An arm that was chosen.
    Chosen {
        arm: usize,
        cursor: Cursor,
    },
    Try {
        failure: Option<StepFailure>,
        cursor: Cursor,
    },
    /// A step that has a result, which an escalation has taken up.
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
    /// What has ended, by its position in the graph; results are variables.
    Graph(BTreeSet<usize>),
}

/// How far steps one after another have come.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Cursor {
    /// The step that is next or under way.
    pub(super) at: usize,
    /// The last result before it.
    pub(super) value: Produced,
}

/// What comes of a step: some steps, `set` for example, have no result.
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

/// A branch that has ended.
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
    /// How long was to be waited before this attempt.
    pub(super) after: Duration,
    pub(super) phase: Phase,
    /// The size of the input that was built for the step in bytes, while the driver has it.
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
    /// To be handed to the driver, which may have had it before.
    Due {
        again: bool,
    },
    /// With the driver.
    Doing,
    Suspended {
        ticket: String,
    },
    /// Told of, and looked at in this very step.
    Told(StepOutcome),
}

impl Node {
    /// A flow at its beginning.
    pub(super) fn of_flow(flow: &Flow, input: Json) -> Self {
        let body = match &flow.body {
            Body::Steps(_) => BodyState::Steps(Cursor::default()),
            Body::Graph(_) => BodyState::Graph(BTreeSet::new()),
        };
        let vars = Vars::from([("input".to_owned(), input)]);
        Self::Flow { vars, body }
    }

    /// Returns the bytes that its values take.
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

    /// Whether a driver is at it.
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

use super::path::StepPath;
use super::protocol::{Finish, Outcome, StepFailure};
use crate::model::Json;
use crate::workflow::ast::{Body, Flow};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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

impl Produced {
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
            Self::Succeeded(Produced::Value(value)) => value.size(),
            Self::Succeeded(Produced::Nothing) => 0,
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
    Told(Outcome),
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

    /// About how many bytes its values take.
    fn bytes(&self) -> usize {
        match self {
            Self::Flow { vars, .. } | Self::Branch { vars, .. } => {
                vars.values().map(Json::size).sum()
            }
            Self::Escalated { result, .. } => result.size(),
            Self::Leaf(_)
            | Self::Fan { .. }
            | Self::Loop { .. }
            | Self::Chosen { .. }
            | Self::Try { .. } => 0,
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

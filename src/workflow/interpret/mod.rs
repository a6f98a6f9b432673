//! Flows run step by step, without doing anything: the driver does, and tells.

mod budget;
mod control;
mod driven;
mod fan;
mod held;
mod nodes;
mod path;
mod progress;
mod protocol;
mod scope;
mod walk;

pub use path::StepPath;
pub use progress::Progress;
pub use protocol::{
    Finish, FlowAnomaly, FlowEvent, FlowEventKind, MayRetry, Next, Ready, StepFailure, StepOutcome,
    StepTask,
};

use super::definition::Workflow;
use crate::error::{Retry, excerpt};
use crate::model::{Json, nearest};
use progress::{Leaf, Node, Phase};
use std::collections::BTreeMap;
use std::sync::Arc;
use walk::Walk;

/// A run of a flow: a definition, and how far it has come.
///
/// Each step of the interpreter takes something that happened and gives what comes [`Next`]. The same steps always give
/// the same. The driver saves [`progress`](Self::progress) after each, before it does what is next; after a restart
/// [`restore`](Self::restore) goes on from there and [`outstanding`](Self::outstanding) says what was under way.
#[derive(Clone, Debug)]
pub struct FlowRun {
    workflow: Arc<Workflow>,
    progress: Progress,
    /// How many steps begin in one step of the interpreter.
    stride: u64,
    /// Whether more could begin.
    goes_on: bool,
}

/// A run cannot begin, or go on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The workflow has no such flow.
    #[error("the workflow has no flow {name:?}{}", nearest.as_ref().map_or(String::new(), |name| format!("; did you mean {name:?}?")))]
    NoSuchFlow {
        /// The name asked for.
        name: String,
        /// The closest name that exists.
        nearest: Option<String>,
    },
    /// The request names a flow that requests cannot start.
    #[error("a request cannot start flow {name:?}; it can start {}", entries.join(", "))]
    NotAnEntry {
        /// The flow that the request names.
        name: String,
        /// The flows that requests can start.
        entries: Vec<String>,
    },
    /// The input is over `value_bytes`, or nests too deep.
    #[error("the input is larger than {most} bytes or nests too deep")]
    InputTooLarge {
        /// The most that is allowed.
        most: usize,
    },
    /// The input does not fit the schema of the flow.
    #[error("the input does not fit the schema of flow {flow:?}: {reason}")]
    BadInput {
        /// The flow.
        flow: String,
        /// What does not fit.
        reason: String,
    },
    /// The definition that the run began with was replaced, and cannot be had or used any more.
    #[error("the run began with the definition {began}, which {reason}; ask for a new run")]
    DefinitionGone {
        /// The hash of the definition that it began with.
        began: String,
        /// Why it cannot go on with that one.
        reason: String,
    },
    /// The run began with another definition; read that one.
    #[error("the run began with the definition {began}, and this is {found}")]
    OtherDefinition {
        /// The hash of the definition that it began with.
        began: String,
        /// The hash of the definition given.
        found: String,
    },
}

impl RunError {
    /// Always [`Retry::Never`]: something else has to be given.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::Never
    }
}

impl FlowRun {
    /// Begins a run. `run` is what its idempotency keys begin with: no other run has it.
    ///
    /// # Errors
    /// [`RunError`] if there is no such flow, or the input is too large.
    pub fn begin(
        workflow: Arc<Workflow>,
        flow: &str,
        run: impl Into<String>,
        input: impl Into<Json>,
    ) -> Result<(Self, Next), RunError> {
        Self::begin_in_strides(u64::MAX, workflow, flow, run, input)
    }

    /// The same for a run of which no more than so many steps begin at a time: [`go_on`](Self::go_on) lets the next ones begin.
    pub(super) fn begin_in_strides(
        stride: u64,
        workflow: Arc<Workflow>,
        flow: &str,
        run: impl Into<String>,
        input: impl Into<Json>,
    ) -> Result<(Self, Next), RunError> {
        let Some(found) = workflow.flow(flow) else {
            let known = workflow.flows().map(|flow| flow.name);
            return Err(RunError::NoSuchFlow {
                name: excerpt(flow, 80).into_owned(),
                nearest: nearest(flow, known).map(str::to_owned),
            });
        };
        let most = workflow.policies.limits.value_bytes;
        let input: Json = input.into();
        let input = input.canonical(most).ok();
        let input = input.and_then(|input| super::expression::kept(input, most).ok());
        let input = input.ok_or(RunError::InputTooLarge { most })?;
        workflow
            .check(found.input.as_deref(), &input)
            .map_err(|reason| RunError::BadInput {
                flow: flow.to_owned(),
                reason,
            })?;
        let root = StepPath::new(flow);
        let node = Node::of_flow(found, input);
        let progress = Progress {
            run: run.into(),
            definition: workflow.hash().to_owned(),
            flow: flow.to_owned(),
            paused: false,
            finished: None,
            steps: 0,
            sequence: 0,
            patterns: 0,
            nodes: BTreeMap::from([(root.clone(), node)]),
        };
        let mut begun = Self {
            workflow,
            progress,
            stride,
            goes_on: false,
        };
        let next = begun.walk(|walk| walk.event(&root, FlowEventKind::Started));
        Ok((begun, next))
    }

    /// Goes on with a run that was saved.
    ///
    /// # Errors
    /// [`RunError::OtherDefinition`] if it began with another definition.
    pub fn restore(workflow: Arc<Workflow>, progress: Progress) -> Result<Self, RunError> {
        if progress.definition != workflow.hash() {
            return Err(RunError::OtherDefinition {
                began: excerpt(&progress.definition, 80).into_owned(),
                found: workflow.hash().to_owned(),
            });
        }
        Ok(Self {
            workflow,
            progress,
            stride: u64::MAX,
            goes_on: false,
        })
    }

    /// Lets no more than so many steps begin at a time from now on, and whatever could have begun when the run was saved.
    pub(super) fn in_strides(self, stride: u64) -> Self {
        Self {
            stride,
            goes_on: true,
            ..self
        }
    }

    /// Whether more steps could begin than did at a time.
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on && self.progress.finished.is_none()
    }

    /// Lets the steps begin for which there was no room before.
    pub(super) fn go_on(&mut self) -> Next {
        self.walk(|_| {})
    }

    /// Where it is, to be saved.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Its definition.
    #[must_use]
    pub fn workflow(&self) -> &Arc<Workflow> {
        &self.workflow
    }

    /// Tells how an attempt at a step ended. One that is suspended may end so too, if its driver gives up waiting.
    #[must_use = "what is next has to be done"]
    pub fn tell(&mut self, path: &StepPath, attempt: u32, outcome: StepOutcome) -> Next {
        let leaf = match self.leaf_under_way(path) {
            Ok(leaf) => leaf,
            Err(anomaly) => return odd(anomaly),
        };
        if leaf.attempt != attempt {
            let path = path.clone();
            return odd(FlowAnomaly::StaleAttempt { path, attempt });
        }
        let StepOutcome::Suspended { ticket } = outcome else {
            leaf.phase = Phase::Told(outcome);
            return self.walk(|_| {});
        };
        self.suspend(path, ticket)
    }

    /// Gives a suspended step its result.
    #[must_use = "what is next has to be done"]
    pub fn resume(&mut self, ticket: &str, answer: impl Into<Json>) -> Next {
        if self.progress.finished.is_some() {
            return odd(FlowAnomaly::AfterEnd);
        }
        let mut suspended = self.progress.suspended();
        let found = suspended.find(|(_, waiting)| *waiting == ticket);
        let Some(path) = found.map(|(path, _)| path.clone()) else {
            let ticket = excerpt(ticket, 80).into_owned();
            return odd(FlowAnomaly::UnknownTicket { ticket });
        };
        drop(suspended);
        match self.leaf_under_way(&path) {
            Ok(leaf) => leaf.phase = Phase::Told(StepOutcome::Succeeded(answer.into())),
            Err(anomaly) => return odd(anomaly),
        }
        let ticket = ticket.to_owned();
        self.walk(|walk| walk.event(&path, FlowEventKind::Resumed { ticket }))
    }

    /// Lets no further steps begin; what is under way may end. Does nothing if it is so already.
    #[must_use = "what is next has to be done"]
    pub fn pause(&mut self) -> Next {
        self.set_paused(true, FlowEventKind::Paused)
    }

    /// Lets steps begin again.
    #[must_use = "what is next has to be done"]
    pub fn unpause(&mut self) -> Next {
        self.set_paused(false, FlowEventKind::Unpaused)
    }

    /// Ends the run, and all that is under way in it.
    #[must_use = "what is next has to be done"]
    pub fn cancel(&mut self) -> Next {
        if self.progress.finished.is_some() {
            return odd(FlowAnomaly::AfterEnd);
        }
        let root = self.root();
        let mut walk = Walk::new(&self.workflow, &mut self.progress);
        walk.cancel_below(&root);
        walk.cancel(&root);
        walk.finish(Finish::Cancelled);
        walk.next
    }

    /// What is with the driver, to be looked at again after a restart: each as it was handed out, with `again`. What is
    /// suspended is in [`waiting`](Self::waiting). Changes nothing, and may be asked again.
    #[must_use]
    pub fn outstanding(&self) -> Vec<Ready> {
        self.handed_out(|phase| *phase == Phase::Doing)
    }

    /// What is suspended, each as it was handed out, with `again`. Changes nothing, and may be asked again.
    #[must_use]
    pub fn waiting(&self) -> Vec<Ready> {
        self.handed_out(|phase| matches!(phase, Phase::Suspended { .. }))
    }

    fn handed_out(&self, which: impl Fn(&Phase) -> bool) -> Vec<Ready> {
        let mut progress = self.progress.clone();
        // So that nothing else begins.
        progress.paused = true;
        for node in progress.nodes.values_mut() {
            if let Node::Leaf(leaf) = node
                && which(&leaf.phase)
            {
                leaf.phase = Phase::Due { again: true };
            }
        }
        let mut walk = Walk::new(&self.workflow, &mut progress);
        walk.run();
        walk.next.ready
    }

    fn root(&self) -> StepPath {
        StepPath::new(self.progress.flow.as_str())
    }

    fn leaf_under_way(&mut self, path: &StepPath) -> Result<&mut Leaf, FlowAnomaly> {
        if self.progress.finished.is_some() {
            return Err(FlowAnomaly::AfterEnd);
        }
        match self.progress.nodes.get_mut(path) {
            Some(Node::Leaf(leaf)) if leaf.is_with_driver() => Ok(leaf),
            Some(_) | None => Err(FlowAnomaly::NotUnderWay { path: path.clone() }),
        }
    }

    fn suspend(&mut self, path: &StepPath, ticket: String) -> Next {
        let mut suspended = self.progress.suspended();
        let taken = suspended.any(|(other, waiting)| waiting == ticket && other != path);
        drop(suspended);
        if taken {
            return odd(FlowAnomaly::TicketInUse { ticket });
        }
        match self.leaf_under_way(path) {
            Ok(leaf) => {
                let ticket = ticket.clone();
                leaf.phase = Phase::Suspended { ticket };
            }
            Err(anomaly) => return odd(anomaly),
        }
        self.walk(|walk| walk.event(path, FlowEventKind::Suspended { ticket }))
    }

    fn set_paused(&mut self, paused: bool, kind: FlowEventKind) -> Next {
        if self.progress.finished.is_some() {
            return odd(FlowAnomaly::AfterEnd);
        }
        if self.progress.paused == paused {
            return Next::default();
        }
        self.progress.paused = paused;
        let root = self.root();
        self.walk(|walk| walk.event(&root, kind))
    }

    fn walk(&mut self, first: impl FnOnce(&mut Walk<'_>)) -> Next {
        let mut walk = Walk::in_stride(&self.workflow, &mut self.progress, self.stride);
        first(&mut walk);
        walk.run();
        self.goes_on = walk.left_out;
        walk.next
    }
}

/// Nothing came of it.
fn odd(anomaly: FlowAnomaly) -> Next {
    Next {
        anomaly: Some(anomaly),
        ..Next::default()
    }
}

#[cfg(test)]
mod tests;

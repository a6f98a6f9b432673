//! Interpreter of flows: pure state transitions. A driver executes the steps and reports their outcomes.

mod budget;
mod control;
mod driver_steps;
mod fan_out;
mod nodes;
mod path;
mod progress;
mod protocol;
mod scope;
mod total_size;
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

/// A run of a flow: the workflow that contains the flow, and the progress of the run.
///
/// Each call takes an event, such as the outcome of a step, and returns the actions that come [`Next`]. The same calls always have the
/// same results. The driver saves [`progress`](Self::progress) after each call, before it carries out the actions. After a restart,
/// [`restore`](Self::restore) continues from the saved progress, and [`outstanding`](Self::outstanding) returns the steps in flight.
///
/// Most programs do not use it: [`Assembly::drive`](crate::workflow::Assembly::drive) is a driver
/// that executes the steps. Use it to write another driver, or to test the order of the steps
/// without models and tools.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::workflow::{Finish, FlowRun, StepOutcome, Workflow};
///
/// let workflow = Arc::new(Workflow::from_json(&json!({
///     "tools": {"find": {}},
///     "flows": {"main": {"steps": [
///         {"try": [{"id": "found", "tool": "find"}], "on_failure": [{"return": "${error.code}"}]},
///     ]}},
/// }))?);
/// let (mut run, next) = FlowRun::begin(workflow, "main", "run-1", json!("crabs"))?;
///
/// let step = &next.ready[0];
/// let next = run.tell(&step.path, step.attempt, StepOutcome::failure("offline", "no network"));
/// assert_eq!(next.finished, Some(Finish::Completed { output: json!("offline").into() }));
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FlowRun {
    workflow: Arc<Workflow>,
    progress: Progress,
    /// Maximum number of steps that begin in one call of the flow interpreter.
    stride: u64,
    /// If `true`, further steps can begin, because the last interpreter call reached its maximum number of started steps.
    is_incomplete: bool,
}

/// Error of a flow run that cannot begin or continue.
///
/// [`Driven::Refused`](crate::workflow::Driven::Refused) has it, too. The same call fails again:
/// change the request, or start a new run.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The workflow has no flow with the requested name.
    #[error("the workflow has no flow {name:?}{}", nearest.as_ref().map_or(String::new(), |name| format!("; did you mean {name:?}?")))]
    NoSuchFlow {
        /// Name of the requested flow.
        name: String,
        /// Name of the existing flow that is closest to the requested name.
        nearest: Option<String>,
    },
    /// A workflow request names a flow that may run only as a step of other flows.
    ///
    /// Requests can start the default flow, and each flow that no other flow runs as a step.
    #[error("a request cannot start flow {name:?}; flows that requests can start: {}", entries.join(", "))]
    NotAnEntry {
        /// Name of the flow that the request cannot start.
        name: String,
        /// Names of the flows that requests can start.
        entries: Vec<String>,
    },
    /// The input of the flow is larger than `policies.limits.value_bytes`, or nested too deeply.
    #[error(
        "the input of the flow is larger than {most} bytes or nests too deep; pass a smaller input"
    )]
    InputTooLarge {
        /// Maximum size of the flow's input in bytes.
        most: usize,
    },
    /// The input does not match the schema for inputs of the flow.
    #[error("the input does not match the input schema of flow {flow:?}: {reason}")]
    BadInput {
        /// Name of the flow whose schema the input does not match.
        flow: String,
        /// Description of the mismatch between the input and the schema.
        reason: String,
    },
    /// The workflow definition with which the flow run began was replaced, and is no longer available or usable.
    ///
    /// A worker finishes runs of an old definition as long as the store has its `workflow.kept.v1`
    /// breadcrumb.
    #[error("the flow run began with definition {began}, which {reason}; start a new run")]
    DefinitionGone {
        /// Hash of the workflow definition with which the flow run began.
        began: String,
        /// Reason why the flow run cannot continue with the workflow definition with which it began.
        reason: String,
    },
    /// The given workflow definition is not the one with which the saved flow run began.
    #[error(
        "the flow run began with definition {began} and cannot continue with definition {found}; load the original definition"
    )]
    OtherDefinition {
        /// Hash of the workflow definition with which the flow run began.
        began: String,
        /// Hash of the given workflow definition, with which the flow run cannot continue.
        found: String,
    },
}

impl RunError {
    /// Returns [`Retry::Never`]: the flow, its input or the workflow definition has to change.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::Never
    }
}

impl FlowRun {
    /// Begins a run of a flow.
    ///
    /// `run` is the ID of the run. It must be unique, because the idempotency keys of all steps start with it.
    ///
    /// `flow` is the name of a flow of the workflow, and `input` its input, of at most
    /// [`value_bytes`](crate::workflow::WorkflowLimits::value_bytes). The returned [`Next`] has the
    /// first steps.
    ///
    /// # Errors
    /// Returns [`RunError::NoSuchFlow`], [`RunError::InputTooLarge`] or [`RunError::BadInput`].
    pub fn begin(
        workflow: Arc<Workflow>,
        flow: &str,
        run: impl Into<String>,
        input: impl Into<Json>,
    ) -> Result<(Self, Next), RunError> {
        Self::begin_in_strides(u64::MAX, workflow, flow, run, input)
    }

    /// Begins a run like [`begin`](Self::begin), but starts at most `stride` steps per call of the interpreter.
    /// [`start_more_steps`](Self::start_more_steps) starts further steps.
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
        let input = input.and_then(|input| super::expression::flow_value(input, most).ok());
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
        let mut run = Self {
            workflow,
            progress,
            stride,
            is_incomplete: false,
        };
        let next = run.walk(|walk| walk.event(&root, FlowEventKind::Started));
        Ok((run, next))
    }

    /// Restores a run of a flow from its saved progress.
    ///
    /// Call [`outstanding`](Self::outstanding) next: its steps may have been started by the lost
    /// worker. [`waiting`](Self::waiting) has the steps that wait for an answer.
    ///
    /// # Errors
    /// Returns [`RunError::OtherDefinition`] if the run began with another definition.
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
            is_incomplete: false,
        })
    }

    /// Sets the maximum number of steps that begin in one call of the interpreter. [`start_more_steps`](Self::start_more_steps)
    /// then also starts steps that could already begin when the run was saved.
    pub(super) fn in_strides(self, stride: u64) -> Self {
        Self {
            stride,
            is_incomplete: true,
            ..self
        }
    }

    /// Returns `true` if further steps can begin, because the last interpreter call reached its maximum number of started steps.
    pub(super) fn has_more_steps(&self) -> bool {
        self.is_incomplete && self.progress.finished.is_none()
    }

    /// Starts further steps after an interpreter call that reached its maximum number of started steps.
    pub(super) fn start_more_steps(&mut self) -> Next {
        self.walk(|_| {})
    }

    /// Returns the progress of the flow run, which the caller saves after each method call that changes the run.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns the workflow whose flow the run executes.
    #[must_use]
    pub fn workflow(&self) -> &Arc<Workflow> {
        &self.workflow
    }

    /// Reports the outcome of an attempt at a step to the flow run. A suspended step can also end this way, for example when its
    /// wait times out.
    ///
    /// A report for a step or attempt that is not in flight changes nothing and returns an [anomaly](Next::anomaly).
    #[must_use = "the driver has to carry out the returned actions"]
    pub fn tell(&mut self, path: &StepPath, attempt: u32, outcome: StepOutcome) -> Next {
        let leaf = match self.running_leaf(path) {
            Ok(leaf) => leaf,
            Err(anomaly) => return ignored(anomaly),
        };
        if leaf.attempt != attempt {
            let path = path.clone();
            return ignored(FlowAnomaly::StaleAttempt { path, attempt });
        }
        let StepOutcome::Suspended { ticket } = outcome else {
            leaf.phase = Phase::Told(outcome);
            return self.walk(|_| {});
        };
        self.suspend(path, ticket)
    }

    /// Reports the result of a suspended step to the flow run. `ticket` identifies the result, as in the
    /// [`StepOutcome::Suspended`] of the step.
    ///
    /// An unknown ticket changes nothing and returns an [anomaly](Next::anomaly).
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use std::sync::Arc;
    /// use universal_executor::workflow::{Finish, FlowRun, StepOutcome, StepTask, Workflow};
    ///
    /// let workflow = Workflow::from_json(&json!({
    ///     "flows": {"main": {"steps": [{"id": "answer", "ask": "Publish ${input}?"}]}},
    /// }))?;
    /// let (mut run, next) = FlowRun::begin(Arc::new(workflow), "main", "run-1", json!("it"))?;
    /// let step = &next.ready[0];
    /// assert!(matches!(&step.task, StepTask::Ask { question, .. } if question == "Publish it?"));
    ///
    /// // The driver writes the question, and reports the ticket of its answer.
    /// let ticket = StepOutcome::Suspended { ticket: "q-1".to_owned() };
    /// assert!(run.tell(&step.path, step.attempt, ticket).finished.is_none());
    /// assert_eq!(run.waiting().len(), 1);
    ///
    /// let next = run.resume("q-1", json!("yes"));
    /// assert_eq!(next.finished, Some(Finish::Completed { output: json!("yes").into() }));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use = "the driver has to carry out the returned actions"]
    pub fn resume(&mut self, ticket: &str, answer: impl Into<Json>) -> Next {
        if self.progress.finished.is_some() {
            return ignored(FlowAnomaly::AfterEnd);
        }
        let mut suspended = self.progress.suspended();
        let found = suspended.find(|(_, waiting)| *waiting == ticket);
        let Some(path) = found.map(|(path, _)| path.clone()) else {
            let ticket = excerpt(ticket, 80).into_owned();
            return ignored(FlowAnomaly::UnknownTicket { ticket });
        };
        drop(suspended);
        match self.running_leaf(&path) {
            Ok(leaf) => leaf.phase = Phase::Told(StepOutcome::Succeeded(answer.into())),
            Err(anomaly) => return ignored(anomaly),
        }
        let ticket = ticket.to_owned();
        self.walk(|walk| walk.event(&path, FlowEventKind::Resumed { ticket }))
    }

    /// Pauses the flow run: no further steps begin, and steps in flight can end. Does nothing if the run is paused.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use std::sync::Arc;
    /// use universal_executor::workflow::{Finish, FlowRun, StepOutcome, Workflow};
    ///
    /// let steps = json!([{"tool": "one"}, {"tool": "two"}]);
    /// let workflow = Workflow::from_json(&json!({
    ///     "tools": {"one": {}, "two": {}},
    ///     "flows": {"main": {"steps": steps}},
    /// }))?;
    /// let (mut run, next) = FlowRun::begin(Arc::new(workflow), "main", "run-1", json!(null))?;
    /// let first = next.ready[0].path.clone();
    ///
    /// assert!(run.pause().ready.is_empty());
    /// // The step in flight ends, but the next one does not begin.
    /// assert!(run.tell(&first, 1, StepOutcome::success(json!(1))).ready.is_empty());
    /// assert_eq!(run.unpause().ready.len(), 1);
    /// assert_eq!(run.cancel().finished, Some(Finish::Cancelled));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use = "the driver has to carry out the returned actions"]
    pub fn pause(&mut self) -> Next {
        self.set_paused(true, FlowEventKind::Paused)
    }

    /// Ends a [pause](Self::pause) of the flow run, so that further steps can begin. Does nothing if the run is not paused.
    #[must_use = "the driver has to carry out the returned actions"]
    pub fn unpause(&mut self) -> Next {
        self.set_paused(false, FlowEventKind::Unpaused)
    }

    /// Ends the flow run and cancels its steps in flight.
    ///
    /// [`Next::cancel`] has the steps to stop. Later calls change nothing, and return an anomaly.
    #[must_use = "the driver has to carry out the returned actions"]
    pub fn cancel(&mut self) -> Next {
        if self.progress.finished.is_some() {
            return ignored(FlowAnomaly::AfterEnd);
        }
        let root = self.root();
        let mut walk = Walk::new(&self.workflow, &mut self.progress);
        walk.cancel_below(&root);
        walk.cancel(&root);
        walk.finish(Finish::Cancelled);
        walk.next
    }

    /// Returns the running steps of the flow run: the driver has received them for execution, and has not reported their
    /// outcomes to the interpreter. [`again`](Ready::again) is `true` in each of them.
    ///
    /// A driver calls this method after a restart. [`waiting`](Self::waiting) returns the suspended steps. The run does not change.
    ///
    /// After a restart, execute a step again only if its effects permit it. Otherwise report its
    /// failure with [`tell`](Self::tell), so that the flow can handle it.
    #[must_use]
    pub fn outstanding(&self) -> Vec<Ready> {
        self.steps_in_phase(|phase| *phase == Phase::Doing)
    }

    /// Returns the suspended steps of the run. [`again`](Ready::again) is `true` in each of them. The run does not change.
    #[must_use]
    pub fn waiting(&self) -> Vec<Ready> {
        self.steps_in_phase(|phase| matches!(phase, Phase::Suspended { .. }))
    }

    fn steps_in_phase(&self, is_selected: impl Fn(&Phase) -> bool) -> Vec<Ready> {
        let mut progress = self.progress.clone();
        // In a paused copy, no other steps begin.
        progress.paused = true;
        for node in progress.nodes.values_mut() {
            if let Node::Leaf(leaf) = node
                && is_selected(&leaf.phase)
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

    fn running_leaf(&mut self, path: &StepPath) -> Result<&mut Leaf, FlowAnomaly> {
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
            return ignored(FlowAnomaly::TicketInUse { ticket });
        }
        match self.running_leaf(path) {
            Ok(leaf) => {
                let ticket = ticket.clone();
                leaf.phase = Phase::Suspended { ticket };
            }
            Err(anomaly) => return ignored(anomaly),
        }
        self.walk(|walk| walk.event(path, FlowEventKind::Suspended { ticket }))
    }

    fn set_paused(&mut self, paused: bool, kind: FlowEventKind) -> Next {
        if self.progress.finished.is_some() {
            return ignored(FlowAnomaly::AfterEnd);
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
        self.is_incomplete = walk.is_incomplete;
        walk.next
    }
}

/// Returns the reply to a method call that a flow run ignored: the reason, and no actions for the caller.
fn ignored(anomaly: FlowAnomaly) -> Next {
    Next {
        anomaly: Some(anomaly),
        ..Next::default()
    }
}

#[cfg(test)]
mod tests;

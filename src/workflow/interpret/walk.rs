//! Advances a flow run: each call of the interpreter advances every step in flight once.
//!
//! The walk recurses as deep as steps are nested, which the loader limits. Ended steps are not walked again, because a cursor has the
//! position in each list of steps.

use super::budget::WorkBudget;
use super::path::StepPath;
use super::progress::{BodyState, Cursor, Node, Produced, Progress};
use super::protocol::{Finish, Next, StepFailure};
use super::scope::Scope;
use super::total_size::TotalSize;
use crate::model::Json;
use crate::workflow::ast::{Block, Body, DriverTask, Flow, Step, Work};
use crate::workflow::expression::{Expression, Unresolved};
use crate::workflow::{ModelInput, Workflow};
use std::mem;
use std::rc::Rc;

pub(super) struct Walk<'r> {
    pub(super) workflow: &'r Workflow,
    pub(super) progress: &'r mut Progress,
    pub(super) next: Next,
    /// Work budget of this interpreter call. Searches and regular expressions in the variable scopes use the same budget.
    pub(super) work: Rc<WorkBudget>,
    /// If `true`, a step of the flow run did not begin because the work budget of the interpreter call is used up.
    pub(super) is_incomplete: bool,
    /// Total size of all values of the flow run.
    pub(super) total_size: TotalSize,
}

/// State of a step after the interpreter has advanced it: in flight, or ended.
pub(super) enum Walked {
    /// The step is still in flight.
    Open,
    Ended(End),
}

/// End of a step of a flow run: with a result, with a failure, or with the end of its flow.
#[derive(Clone)]
pub(super) enum End {
    Produced(Produced),
    /// The step ended the flow that contains the step, with this value as the flow's result.
    Return(Json),
    /// The step failed. An enclosing `try` can handle the failure.
    Failed(StepFailure),
    /// The whole run failed. No `try` handles the failure.
    Broken(StepFailure),
}

impl Walked {
    pub(super) fn produced(value: Json) -> Self {
        Self::Ended(End::Produced(Produced::Value(value)))
    }

    pub(super) fn failed(failure: StepFailure) -> Self {
        Self::Ended(End::Failed(failure))
    }

    pub(super) fn of(value: Result<Json, StepFailure>) -> Self {
        match value {
            Ok(value) => Self::produced(value),
            Err(failure) => Self::failed(failure),
        }
    }
}

impl End {
    /// Adds the step path of the failed step to a failure without a step path.
    pub(super) fn of(self, path: &StepPath) -> Self {
        match self {
            Self::Failed(failure) => Self::Failed(failure.of(path)),
            Self::Broken(failure) => Self::Broken(failure.of(path)),
            end @ (Self::Produced(_) | Self::Return(_)) => end,
        }
    }
}

impl<'r> Walk<'r> {
    pub(super) fn new(workflow: &'r Workflow, progress: &'r mut Progress) -> Self {
        Self::in_stride(workflow, progress, u64::MAX)
    }

    /// Creates the data of one interpreter call, in which at most `stride` further steps of the flow run begin.
    pub(super) fn in_stride(
        workflow: &'r Workflow,
        progress: &'r mut Progress,
        stride: u64,
    ) -> Self {
        let patterns = progress.patterns;
        let total_size = TotalSize::new(progress.bytes(), workflow.policies.limits.total_bytes);
        Self {
            workflow,
            progress,
            next: Next::default(),
            work: Rc::new(WorkBudget::new(stride, patterns)),
            is_incomplete: false,
            total_size,
        }
    }

    /// Advances all steps in flight of the run, and ends the run if no step is left.
    pub(super) fn run(&mut self) {
        if self.progress.finished.is_some() {
            return;
        }
        self.walk();
        self.progress.patterns = self.work.compiled();
        debug_assert_eq!(
            self.total_size.bytes(),
            self.progress.bytes(),
            "the running total differs from the size of the values"
        );
    }

    fn walk(&mut self) {
        let path = StepPath::new(self.progress.flow.as_str());
        let walked = match self.workflow.flow(&self.progress.flow) {
            Some(flow) => {
                let walked = self.flow(flow, &path, &path);
                self.checked(flow, walked)
            }
            None => self.misfit(&path),
        };
        let Walked::Ended(end) = walked else { return };
        self.close(&path, &end);
        self.finish(match end {
            End::Produced(produced) => Finish::Completed {
                output: produced.into_json(),
            },
            End::Return(output) => Finish::Completed { output },
            End::Failed(failure) | End::Broken(failure) => Finish::Failed { failure },
        });
    }

    pub(super) fn finish(&mut self, finish: Finish) {
        self.progress.finished = Some(finish.clone());
        self.next.finished = Some(finish);
    }

    /// Checks the output of a flow against the flow's output schema. Returns a failure if it does not match.
    fn checked(&self, flow: &Flow, walked: Walked) -> Walked {
        let Walked::Ended(End::Produced(Produced::Value(value)) | End::Return(value)) = &walked
        else {
            return walked;
        };
        match self.workflow.check(flow.output.as_deref(), value) {
            Ok(()) => walked,
            Err(reason) => {
                let message = format!("the output of the flow does not match its schema: {reason}");
                Walked::failed(StepFailure::new("bad_output", message))
            }
        }
    }

    fn flow(&mut self, flow: &'r Flow, path: &StepPath, base: &StepPath) -> Walked {
        let Some(Node::Flow { vars, .. }) = self.progress.nodes.get_mut(path) else {
            return self.misfit(path);
        };
        let mut scope = Scope::of_flow(mem::take(vars), &self.work);
        let walked = match &flow.body {
            Body::Steps(block) => self.block(block, path, base, &mut scope),
            Body::Graph(graph) => self.graph(graph, path, base, &mut scope),
        };
        if let Some(Node::Flow { vars, .. }) = self.progress.nodes.get_mut(path) {
            *vars = scope.vars;
        }
        walked
    }

    /// Advances the steps of a sequence in a flow run. The cursor of the sequence is in the node at `node`.
    pub(super) fn block(
        &mut self,
        block: &'r Block,
        node: &StepPath,
        base: &StepPath,
        scope: &mut Scope<'_>,
    ) -> Walked {
        loop {
            let Some(cursor) = self.cursor(node) else {
                return self.misfit(node);
            };
            let Some(step) = block.0.get(cursor.at) else {
                let value = mem::take(&mut cursor.value);
                self.total_size.remove(value.bytes());
                return Walked::Ended(End::Produced(value));
            };
            let produced = match self.step(step, &base.child(&step.segment), scope) {
                Walked::Ended(End::Produced(produced)) => produced,
                walked @ (Walked::Open | Walked::Ended(_)) => return walked,
            };
            if let Some(name) = &step.into {
                let value = produced.clone().into_json();
                self.total_size.set(&mut scope.vars, name, value);
            }
            let Some(cursor) = self.cursor(node) else {
                return self.misfit(node);
            };
            cursor.at += 1;
            match produced {
                Produced::Nothing => {}
                Produced::Value(value) => {
                    let before = mem::replace(&mut cursor.value, Produced::Value(value.clone()));
                    self.total_size.remove(before.bytes());
                    self.total_size.add(value.size());
                    self.total_size.set(&mut scope.vars, "last", value);
                }
            }
        }
    }

    fn cursor(&mut self, path: &StepPath) -> Option<&mut Cursor> {
        match self.progress.nodes.get_mut(path)? {
            Node::Flow {
                body: BodyState::Steps(cursor),
                ..
            }
            | Node::Branch { cursor, .. }
            | Node::Loop { cursor, .. }
            | Node::Chosen { cursor, .. }
            | Node::Try { cursor, .. }
            | Node::Escalated { cursor, .. } => Some(cursor),
            Node::Flow {
                body: BodyState::Graph(_),
                ..
            }
            | Node::Leaf(_)
            | Node::Fan { .. } => None,
        }
    }

    pub(super) fn step(
        &mut self,
        step: &'r Step,
        path: &StepPath,
        scope: &mut Scope<'_>,
    ) -> Walked {
        self.work.renew_searches();
        let is_escalated = matches!(self.progress.nodes.get(path), Some(Node::Escalated { .. }));
        let walked = if is_escalated {
            self.handler(step, path, scope)
        } else {
            match self.work(&step.work, path, scope) {
                Walked::Ended(End::Produced(Produced::Value(result))) => {
                    self.escalate(step, path, result, scope)
                }
                walked @ (Walked::Open | Walked::Ended(_)) => walked,
            }
        };
        // The searches of the enclosing step must not depend on the walk in which this step ended.
        self.work.renew_searches();
        match walked {
            Walked::Open => Walked::Open,
            Walked::Ended(end) => {
                let end = self.within_total_size(end).of(path);
                self.close(path, &end);
                Walked::Ended(end)
            }
        }
    }

    /// Replaces the end of a step by a failure if the step's result would exceed the size limit for all values of the run
    /// together.
    fn within_total_size(&self, end: End) -> End {
        match end {
            End::Produced(Produced::Value(value)) => match self.total_size.check(value.size()) {
                Ok(()) => End::Produced(Produced::Value(value)),
                Err(failure) => End::Failed(failure),
            },
            end @ (End::Produced(Produced::Nothing)
            | End::Return(_)
            | End::Failed(_)
            | End::Broken(_)) => end,
        }
    }

    fn work(&mut self, work: &'r Work, path: &StepPath, scope: &mut Scope<'_>) -> Walked {
        let walked = match work {
            Work::Do(driver_task) => return self.leaf(driver_task, path, scope),
            Work::Flow { flow, input } => self.sub_flow(flow, input, path, scope),
            Work::Parallel { branches, join } => self.parallel(branches, *join, path, scope),
            Work::ForEach(each) => self.for_each(each, path, scope),
            Work::Loop { most, until, body } => {
                self.repeat(*most, until.as_ref(), body, path, scope)
            }
            Work::Choose { on, arms } => self.choose(on.as_ref(), arms, path, scope),
            Work::Try { body, on_failure } => self.attempt(body, on_failure, path, scope),
            Work::Set(variables) => self.set(variables, path, scope),
            Work::Return(value) => {
                self.begin(path, None)
                    .map(|()| match self.value(value, scope) {
                        Ok(value) => Walked::Ended(End::Return(value)),
                        Err(failure) => Walked::failed(failure),
                    })
            }
            Work::Fail { code, message } => self.begin(path, None).map(|()| {
                Walked::failed(match self.value(message, scope) {
                    Ok(message) => StepFailure::new(code.as_str(), text(&message)),
                    Err(failure) => failure,
                })
            }),
        };
        walked.unwrap_or_else(|walked| walked)
    }

    fn sub_flow(
        &mut self,
        name: &str,
        input: &Expression,
        path: &StepPath,
        scope: &Scope<'_>,
    ) -> Result<Walked, Walked> {
        let Some(flow) = self.workflow.flow(name) else {
            return Err(self.misfit(path));
        };
        if !self.progress.nodes.contains_key(path) {
            self.begin(path, None)?;
            let input = self.value(input, scope).map_err(Walked::failed)?;
            let checked = self.workflow.check(flow.input.as_deref(), &input);
            checked.map_err(|reason| {
                let message = format!("the input does not match the schema of the flow: {reason}");
                Walked::failed(StepFailure::new("bad_input", message))
            })?;
            self.total_size
                .check(input.size())
                .map_err(Walked::failed)?;
            self.insert(path, Node::of_flow(flow, input));
        }
        let walked = self.flow(flow, path, &path.child(name));
        Ok(match self.checked(flow, walked) {
            Walked::Ended(End::Return(value)) => Walked::produced(value),
            walked @ (Walked::Open | Walked::Ended(_)) => walked,
        })
    }

    fn set(
        &mut self,
        variables: &[(String, Expression)],
        path: &StepPath,
        scope: &mut Scope<'_>,
    ) -> Result<Walked, Walked> {
        self.begin(path, None)?;
        let (mut values, mut bytes) = (Vec::new(), 0_usize);
        for (name, value) in variables {
            let value = self.value(value, scope).map_err(Walked::failed)?;
            // Each value is counted before the next one is built.
            bytes = bytes.saturating_add(value.size());
            self.total_size.check(bytes).map_err(Walked::failed)?;
            values.push((name, value));
        }
        for (name, value) in values {
            self.total_size.set(&mut scope.vars, name, value);
        }
        Ok(Walked::Ended(End::Produced(Produced::Nothing)))
    }

    pub(super) fn value(
        &self,
        expression: &Expression,
        scope: &Scope<'_>,
    ) -> Result<Json, StepFailure> {
        let most = self.workflow.policies.limits.value_bytes;
        let value = expression
            .resolve(scope, most)
            .map_err(|error| unresolved(&error))?;
        if !expression.is_shared() {
            self.work.build(value.size());
        }
        Ok(value)
    }

    pub(super) fn model_input(
        &self,
        expression: &Expression,
        scope: &Scope<'_>,
    ) -> Result<ModelInput, StepFailure> {
        let most = self.workflow.policies.limits.value_bytes;
        let input = expression.model_input(scope, most);
        input.map_err(|error| unresolved(&error))
    }

    pub(super) fn misfit(&self, path: &StepPath) -> Walked {
        let message = format!("the saved progress does not match the definition at {path}");
        Walked::Ended(End::Broken(StepFailure::new("misfit", message)))
    }

    /// Advances a step that the caller of the interpreter executes, such as an agent or tool step: hands it to the caller, or
    /// handles the reported outcome.
    fn leaf(&mut self, driver_task: &'r DriverTask, path: &StepPath, scope: &Scope<'_>) -> Walked {
        match self.driven(driver_task, path, scope) {
            Ok(walked) | Err(walked) => walked,
        }
    }
}

pub(super) fn unresolved(error: &Unresolved) -> StepFailure {
    let code = match error {
        Unresolved::TooLarge(_) => "too_large",
        Unresolved::Searches(_) | Unresolved::Patterns(_) => "too_much_work",
        Unresolved::Missing(_) | Unresolved::Path(_) | Unresolved::Condition(_) => "unresolved",
    };
    StepFailure::new(code, error.to_string())
}

/// Formats a value of a flow for people: a string unchanged, any other value as JSON.
pub(super) fn text(value: &Json) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}

//! Checks of the variables in the flows of a workflow definition. A variable that no step sets is an error. A variable that hides an outer
//! variable is a warning.

use super::MATCHED;
use crate::model::DefinitionPath;
use crate::workflow::ast::{Block, Body, Flow, Handler, Step, TaskForm, Work};
use crate::workflow::error::{Oddity, WorkflowLoadError, WorkflowWarning};
use crate::workflow::expression::{Expression, Test};
use std::collections::BTreeSet;

pub(super) fn check(
    flow: &Flow,
    warnings: &mut Vec<WorkflowWarning>,
) -> Result<(), WorkflowLoadError> {
    let mut checker = Checker {
        visible: BTreeSet::from(["input".to_owned()]),
        warnings,
    };
    match &flow.body {
        Body::Steps(block) => {
            checker.visible.insert("last".to_owned());
            checker.visible.extend(assigned(block));
            checker.block(block)
        }
        Body::Graph(graph) => {
            let ids = graph.nodes.iter().map(|node| node.step.segment.clone());
            checker.visible.extend(ids);
            let mut nodes = graph.nodes.iter();
            nodes.try_for_each(|node| checker.step(&node.step))
        }
    }
}

/// Returns the names of the variables that a list of steps sets. The variables of its branches are not visible in the list, so they are
/// excluded.
fn assigned(block: &Block) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut open: Vec<&Block> = vec![block];
    while let Some(block) = open.pop() {
        for step in &block.0 {
            names.extend(step.into.clone());
            match &step.work {
                Work::Set(variables) => {
                    names.extend(variables.iter().map(|(name, _)| name.clone()));
                    open.extend(step.blocks());
                }
                Work::Parallel { .. } | Work::ForEach(_) => {
                    open.extend(
                        step.escalations
                            .iter()
                            .filter_map(|one| match &one.handler {
                                Handler::Steps(block) => Some(block),
                                Handler::Return(_) | Handler::Continue(_) | Handler::Abort(_) => {
                                    None
                                }
                            }),
                    );
                }
                Work::Do(_)
                | Work::Flow { .. }
                | Work::Loop { .. }
                | Work::Choose { .. }
                | Work::Try { .. }
                | Work::Return(_)
                | Work::Fail { .. } => open.extend(step.blocks()),
            }
        }
    }
    names
}

struct Checker<'c> {
    visible: BTreeSet<String>,
    warnings: &'c mut Vec<WorkflowWarning>,
}

impl Checker<'_> {
    fn block(&mut self, block: &Block) -> Result<(), WorkflowLoadError> {
        block.0.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &Step) -> Result<(), WorkflowLoadError> {
        let location = &step.location;
        match &step.work {
            Work::Do(driver_task) => self.task(&driver_task.task, location)?,
            Work::Flow { input, .. } => self.expression(input, &location.field("input"))?,
            Work::Parallel { branches, .. } => {
                for branch in branches {
                    if let Some(input) = &branch.input {
                        self.expression(input, location)?;
                    }
                    self.branch(&branch.body, &[], location)?;
                }
            }
            Work::ForEach(each) => {
                self.expression(&each.list, &location.field("for_each"))?;
                self.branch(&each.body, &[&each.item, "index"], location)?;
            }
            Work::Loop { until, body, .. } => self.within(&["iteration"], |checker| {
                if let Some(until) = until {
                    checker.test(until, &location.field("until"))?;
                }
                checker.block(body)
            })?,
            Work::Choose { on, arms } => {
                if let Some(on) = on {
                    self.expression(on, &location.field("match"))?;
                }
                for arm in arms {
                    if let Some(test) = &arm.test {
                        self.within(&[MATCHED], |checker| checker.test(test, location))?;
                    }
                    self.block(&arm.body)?;
                }
            }
            Work::Try { body, on_failure } => {
                self.block(body)?;
                self.within(&["error"], |checker| checker.block(on_failure))?;
            }
            Work::Set(variables) => {
                for (name, value) in variables {
                    self.expression(value, &location.field("set").field(name))?;
                }
            }
            Work::Return(value) => self.expression(value, &location.field("return"))?,
            Work::Fail { message, .. } => self.expression(message, &location.field("fail"))?,
        }
        self.within(&["result"], |checker| checker.escalations(step))
    }

    fn escalations(&mut self, step: &Step) -> Result<(), WorkflowLoadError> {
        for (at, escalation) in step.escalations.iter().enumerate() {
            let location = step.location.field("escalate").item(at);
            self.test(&escalation.when, &location.field("when"))?;
            match &escalation.handler {
                Handler::Return(value) => self.expression(value, &location.field("return"))?,
                Handler::Continue(value) => self.expression(value, &location.field("continue"))?,
                Handler::Abort(message) => self.expression(message, &location.field("abort"))?,
                Handler::Steps(block) => self.block(block)?,
            }
        }
        Ok(())
    }

    fn task(
        &mut self,
        task: &TaskForm,
        location: &DefinitionPath,
    ) -> Result<(), WorkflowLoadError> {
        match task {
            TaskForm::Agent { input, .. }
            | TaskForm::Tool { input, .. }
            | TaskForm::Model { input, .. } => self.expression(input, &location.field("input")),
            TaskForm::WaitFor { event } => {
                self.expression(event.expression(), &location.field("wait_for"))
            }
            TaskForm::Ask { question, .. } => self.expression(question, &location.field("ask")),
            TaskForm::Emit { breadcrumb } => self.expression(breadcrumb, &location.field("emit")),
        }
    }

    /// Checks that the steps in a branch of `parallel` or in the body of `for_each` use only known variables, including variables
    /// that exist only there. Adds a warning for each variable of the branch that hides an outer variable.
    fn branch(
        &mut self,
        block: &Block,
        locals: &[&str],
        location: &DefinitionPath,
    ) -> Result<(), WorkflowLoadError> {
        let own = assigned(block);
        let hidden = own.iter().map(String::as_str).chain(locals.iter().copied());
        for name in hidden.filter(|name| self.visible.contains(*name)) {
            let name = name.to_owned();
            // In a nested `for_each`, `index` intentionally refers to the inner loop.
            if name != "index" {
                let warning = WorkflowWarning::new(location.clone(), Oddity::Shadowed { name });
                self.warnings.push(warning);
            }
        }
        let outside = self.visible.clone();
        self.visible.extend(own);
        let locals = locals.iter().map(|name| (*name).to_owned());
        self.visible.extend(locals);
        let checked = self.block(block);
        self.visible = outside;
        checked
    }

    /// Runs `check` on expressions that can use the variables in `names` in addition to the other known variables. The
    /// interpreter sets these variables.
    fn within(
        &mut self,
        names: &[&'static str],
        check: impl FnOnce(&mut Self) -> Result<(), WorkflowLoadError>,
    ) -> Result<(), WorkflowLoadError> {
        let outside = self.visible.clone();
        self.visible
            .extend(names.iter().map(|name| (*name).to_owned()));
        let checked = check(self);
        self.visible = outside;
        checked
    }

    fn expression(
        &self,
        expression: &Expression,
        location: &DefinitionPath,
    ) -> Result<(), WorkflowLoadError> {
        self.all_known(location, |visit| expression.each_variable(visit))
    }

    fn test(&self, test: &Test, location: &DefinitionPath) -> Result<(), WorkflowLoadError> {
        self.all_known(location, |visit| test.each_variable(visit))
    }

    fn all_known(
        &self,
        location: &DefinitionPath,
        each: impl FnOnce(&mut dyn FnMut(&str)),
    ) -> Result<(), WorkflowLoadError> {
        let mut unknown = None;
        each(&mut |name| {
            if !self.visible.contains(name) && unknown.is_none() {
                unknown = Some(name.to_owned());
            }
        });
        match unknown {
            None => Ok(()),
            Some(name) => {
                let known = self.visible.iter().map(String::as_str);
                Err(WorkflowLoadError::unknown(
                    location.clone(),
                    "variable",
                    &name,
                    known,
                ))
            }
        }
    }
}

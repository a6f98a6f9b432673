//! Interprets the flow steps that the driver (the code that calls the interpreter) executes, such as agent and tool steps.

use super::path::StepPath;
use super::progress::{Leaf, Node, Phase, Produced};
use super::protocol::{FlowEventKind, MayRetry, Ready, StepFailure, StepOutcome, StepTask};
use super::scope::Scope;
use super::walk::{End, Walk, Walked, text, unresolved};
use crate::error::excerpt;
use crate::model::{Json, NewBreadcrumb};
use crate::workflow::ast::{DriverTask, TaskForm};
use crate::workflow::event_form::texts;
use crate::workflow::expression::{Expression, Unresolved, flow_value};
use serde_json::Value;
use std::cell::Cell;
use std::time::Duration;

/// Maximum size of the message of a step's failure in bytes. Longer messages are cut.
const MESSAGE_BYTES: usize = 4_096;

impl Walk<'_> {
    pub(super) fn driven(
        &mut self,
        driver_task: &DriverTask,
        path: &StepPath,
        scope: &Scope<'_>,
    ) -> Result<Walked, Walked> {
        let due = Leaf {
            attempt: 1,
            after: Duration::ZERO,
            phase: Phase::Due { again: false },
            input_bytes: 0,
        };
        self.enter(path, Node::Leaf(due))?;
        let Some(Node::Leaf(leaf)) = self.progress.nodes.get(path) else {
            return Err(self.misfit(path));
        };
        match &leaf.phase {
            Phase::Doing | Phase::Suspended { .. } => Ok(Walked::Open),
            Phase::Due { again } if self.progress.paused && !again => Ok(Walked::Open),
            Phase::Due { .. } => self.hand_to_driver(driver_task, path, scope),
            Phase::Told(outcome) => {
                let outcome = outcome.clone();
                self.ended(driver_task, path, outcome, scope)
            }
        }
    }

    fn hand_to_driver(
        &mut self,
        driver_task: &DriverTask,
        path: &StepPath,
        scope: &Scope<'_>,
    ) -> Result<Walked, Walked> {
        let (task, bytes) = self
            .task(&driver_task.task, scope)
            .map_err(Walked::failed)?;
        let Some(Node::Leaf(leaf)) = self.progress.nodes.get_mut(path) else {
            return Err(self.misfit(path));
        };
        let again = matches!(leaf.phase, Phase::Due { again: true });
        // The input of a step that is handed out again was counted the first time.
        if !again {
            self.total_size.check(bytes).map_err(Walked::failed)?;
            self.total_size.add(bytes);
            self.total_size
                .remove(std::mem::replace(&mut leaf.input_bytes, bytes));
        }
        leaf.phase = Phase::Doing;
        self.next.ready.push(Ready {
            path: path.clone(),
            idempotency_key: format!("{}/{path}", self.progress.run),
            attempt: leaf.attempt,
            again,
            after: leaf.after,
            timeout: driver_task.timeout,
            task,
        });
        Ok(Walked::Open)
    }

    fn ended(
        &mut self,
        driver_task: &DriverTask,
        path: &StepPath,
        outcome: StepOutcome,
        scope: &Scope<'_>,
    ) -> Result<Walked, Walked> {
        let (failure, retry) = match outcome {
            StepOutcome::Succeeded(value) => return Ok(self.result(&driver_task.task, &value)),
            StepOutcome::Failed { failure, retry } => (failure, retry),
            StepOutcome::TimedOut => (
                StepFailure::new("timed_out", "the step took longer than its timeout"),
                MayRetry::After(Duration::ZERO),
            ),
            // `FlowRun::tell` handles this outcome itself, so a walk never sees it.
            StepOutcome::Suspended { .. } => return Err(self.misfit(path)),
        };
        let failure = StepFailure {
            message: excerpt(&failure.message, MESSAGE_BYTES).into_owned(),
            code: excerpt(&failure.code, 64).into_owned(),
            step: None,
        };
        let Some(Node::Leaf(leaf)) = self.progress.nodes.get_mut(path) else {
            return Err(self.misfit(path));
        };
        let after = match retry {
            MayRetry::After(after) if leaf.attempt < driver_task.retry.attempts => after,
            MayRetry::After(_) | MayRetry::Never | MayRetry::Elsewhere => {
                return Ok(Walked::failed(failure));
            }
        };
        let after = driver_task.retry.delay(leaf.attempt).max(after);
        *leaf = Leaf {
            attempt: leaf.attempt + 1,
            after,
            phase: Phase::Due { again: false },
            input_bytes: leaf.input_bytes,
        };
        let retried = FlowEventKind::Retried {
            attempt: leaf.attempt,
            failure,
            after,
        };
        self.event(path, retried);
        if self.progress.paused {
            return Ok(Walked::Open);
        }
        self.hand_to_driver(driver_task, path, scope)
    }

    fn result(&self, task: &TaskForm, value: &Json) -> Walked {
        match task {
            TaskForm::Emit { .. } => return Walked::Ended(End::Produced(Produced::Nothing)),
            TaskForm::Agent { .. }
            | TaskForm::Tool { .. }
            | TaskForm::Model { .. }
            | TaskForm::WaitFor { .. }
            | TaskForm::Ask { .. } => {}
        }
        let most = self.workflow.policies.limits.value_bytes;
        // The canonical form is the form that a store returns, so the value is the same before and after a restart.
        let canonical = value.canonical(most).ok();
        let value = canonical.and_then(|value| flow_value(value, most).ok());
        match value {
            Some(value) => Walked::produced(value),
            None => {
                let message = format!("the result is larger than {most} bytes or nests too deep");
                Walked::failed(StepFailure::new("too_large", message))
            }
        }
    }

    /// Returns the task of a step with the values of its variables, and the size of the newly built values in bytes. Shared values do not
    /// count.
    fn task(&self, form: &TaskForm, scope: &Scope<'_>) -> Result<(StepTask, usize), StepFailure> {
        let bytes = Cell::new(0);
        let value = |expression: &Expression| {
            let value = self.value(expression, scope)?;
            if !expression.is_shared() {
                bytes.set(bytes.get() + value.size());
            }
            Ok::<_, StepFailure>(value)
        };
        let task = match form {
            TaskForm::Agent { agent, input } => StepTask::Agent {
                agent: agent.clone(),
                input: value(input)?,
            },
            TaskForm::Tool { tool, input } => StepTask::Tool {
                tool: tool.clone(),
                input: value(input)?,
            },
            TaskForm::Model {
                model,
                prompt,
                input,
                output,
            } => StepTask::Model {
                model: model.clone(),
                prompt: prompt.clone(),
                input: {
                    let input_value = self.model_input(input, scope)?;
                    if !input.is_shared() {
                        bytes.set(bytes.get() + input_value.size());
                    }
                    input_value
                },
                output: output.clone(),
            },
            TaskForm::WaitFor { event } => StepTask::WaitFor {
                event: match event.fixed() {
                    Some(fixed) => fixed.clone(),
                    None => {
                        let found = value(event.expression())?;
                        let selector = event.selector(&found).map_err(Unresolved::Condition);
                        selector.map_err(|error| unresolved(&error))?
                    }
                },
            },
            TaskForm::Ask {
                question,
                of,
                output,
            } => StepTask::Ask {
                question: text(&value(question)?),
                of: of.clone(),
                output: output.clone(),
            },
            TaskForm::Emit { breadcrumb } => StepTask::Emit {
                breadcrumb: new_breadcrumb(&value(breadcrumb)?)?,
            },
        };
        Ok((task, bytes.get()))
    }
}

fn new_breadcrumb(value: &Json) -> Result<NewBreadcrumb, StepFailure> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    let context = value
        .get("context")
        .cloned()
        .unwrap_or_else(|| serde_json::json!({}));
    if !context.is_object() {
        let message = "the context of the emitted breadcrumb is not an object";
        return Err(StepFailure::new("unresolved", message));
    }
    let mut breadcrumb = NewBreadcrumb::new(text("schema_name")).title(text("title"));
    breadcrumb.tags = texts(value, "tags").unwrap_or_default();
    breadcrumb.context = context.into();
    Ok(breadcrumb)
}

//! Compiler of the steps of a workflow definition.

use super::breadcrumbs::{emit, wait_for};
use crate::model::DefinitionPath;
use crate::workflow::ast::{Block, DriverTask, Escalation, Handler, Step, TaskForm, Work};
use crate::workflow::error::{LoadProblem, WorkflowLoadError};
use crate::workflow::expression::{Expression, Test};
use crate::workflow::policies::{Policies, StepRetry};
use crate::workflow::syntax::{self, Common, NAME_BYTES, RESERVED, Retry, VARIABLES, Written};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum number of steps in a workflow definition, in all flows together.
const STEPS: usize = 2_000;

/// Compiles the steps of a workflow definition, and counts them for the limit [`STEPS`].
pub(super) struct Compiler<'p> {
    policies: &'p Policies,
    steps: usize,
}

/// Retry setting and timeout in the definition of a step, each `None` if the definition does not set it.
struct RetryAndTimeout {
    retry: Option<StepRetry>,
    timeout: Option<Duration>,
}

impl<'p> Compiler<'p> {
    pub(super) fn new(policies: &'p Policies) -> Self {
        Self { policies, steps: 0 }
    }

    /// Compiles the list of steps in a field of a flow, step or branch.
    ///
    /// # Errors
    /// Returns an error if the list is empty, a step is invalid, or two steps have the same ID.
    pub(super) fn block(
        &mut self,
        object: &Written<'_>,
        field: &str,
    ) -> Result<Block, WorkflowLoadError> {
        let mut seen = BTreeSet::new();
        let mut compiled = Vec::new();
        for (at, written) in steps(object, field)?.into_iter().enumerate() {
            let step = self.step(at, syntax::Step::read(&written)?, &written)?;
            if !seen.insert(step.segment.clone()) {
                return Err(duplicate_id(&written.path, &step.segment));
            }
            compiled.push(step);
        }
        Ok(Block(compiled))
    }

    pub(super) fn step(
        &mut self,
        at: usize,
        step: syntax::Step,
        written: &Written<'_>,
    ) -> Result<Step, WorkflowLoadError> {
        let location = &written.path;
        self.count(location)?;
        let common: Common = written.read_some()?;
        for (field, name) in [("id", &common.id), ("as", &common.r#as)] {
            if let Some(name) = name {
                check_variable(name, &location.field(field))?;
            }
        }
        let retry = written.field("retry");
        let retry = retry.map(|retry| Retry::read(&retry));
        let retry_and_timeout = RetryAndTimeout {
            retry: retry.transpose()?.map(StepRetry::from),
            timeout: common.timeout_seconds,
        };
        let segment = common.id.clone();
        let escalations = written.list("escalate")?;
        let escalations = escalations.iter().map(|one| self.escalation(one));
        let escalations = escalations.collect::<Result<_, _>>()?;
        Ok(Step {
            work: self.work(step, &retry_and_timeout, written)?,
            escalations,
            into: common.r#as.or(common.id),
            segment: segment.unwrap_or_else(|| at.to_string()),
            location: location.clone(),
        })
    }

    fn count(&mut self, location: &DefinitionPath) -> Result<(), WorkflowLoadError> {
        self.steps += 1;
        if self.steps <= STEPS {
            return Ok(());
        }
        let (what, found, most) = ("steps", self.steps, STEPS);
        let problem = LoadProblem::TooMany { what, found, most };
        Err(WorkflowLoadError::new(location.clone(), problem))
    }

    fn work(
        &mut self,
        step: syntax::Step,
        retry_and_timeout: &RetryAndTimeout,
        written: &Written<'_>,
    ) -> Result<Work, WorkflowLoadError> {
        let location = &written.path;
        Ok(match step {
            syntax::Step::Agent(step) => {
                let (agent, input) = (step.agent, input(step.input, location)?);
                self.run(TaskForm::Agent { agent, input }, retry_and_timeout)
            }
            syntax::Step::Tool(step) => {
                let (tool, input) = (step.tool, input(step.input, location)?);
                self.run(TaskForm::Tool { tool, input }, retry_and_timeout)
            }
            syntax::Step::Model(step) => {
                let task = TaskForm::Model {
                    model: step.model,
                    prompt: step.prompt,
                    input: input(step.input, location)?,
                    output: step.output,
                };
                self.run(task, retry_and_timeout)
            }
            syntax::Step::WaitFor(_) => exchange(wait_for(written)?, retry_and_timeout),
            syntax::Step::Emit(_) => exchange(emit(written)?, retry_and_timeout),
            syntax::Step::Ask(step) => {
                let task = TaskForm::Ask {
                    question: Expression::compile(&step.ask.into(), &location.field("ask"))?,
                    of: step.of,
                    output: step.output,
                };
                exchange(task, retry_and_timeout)
            }
            syntax::Step::Flow(step) => Work::Flow {
                flow: step.flow,
                input: input(step.input, location)?,
            },
            syntax::Step::Parallel(step) => self.parallel(step.join, written)?,
            syntax::Step::ForEach(step) => self.for_each(step, written)?,
            syntax::Step::Loop(step) => self.repeat(step.max, written)?,
            syntax::Step::If(_) => self.choice(written)?,
            syntax::Step::Match(step) => self.cases(&step.r#match, written)?,
            syntax::Step::Try(_) => Work::Try {
                body: self.block(written, "try")?,
                on_failure: self.block(written, "on_failure")?,
            },
            syntax::Step::Set(step) => set(&step.set, &location.field("set"))?,
            syntax::Step::Return(step) => Work::Return(Expression::compile(
                &step.r#return,
                &location.field("return"),
            )?),
            syntax::Step::Fail(step) => Work::Fail {
                code: step.code.unwrap_or_else(|| "failed".to_owned()),
                message: Expression::compile(&step.fail.into(), &location.field("fail"))?,
            },
            syntax::Step::Steps(_) => {
                let reason =
                    "a list of steps is allowed only in \"parallel\"; write its steps here";
                return Err(WorkflowLoadError::fields(location.clone(), reason));
            }
        })
    }

    /// Compiles an agent, tool or model step to the [`Work`] that the flow's driver executes. The retry and timeout of the step
    /// default to the workflow's policies.
    fn run(&self, task: TaskForm, retry_and_timeout: &RetryAndTimeout) -> Work {
        driver_work(
            task,
            self.policies.retry,
            self.policies.timeout,
            retry_and_timeout,
        )
    }

    fn escalation(&mut self, written: &Written<'_>) -> Result<Escalation, WorkflowLoadError> {
        let compile =
            |value: &Value, field: &str| Expression::compile(value, &written.path.field(field));
        let handler = match syntax::Escalation::read(written)? {
            syntax::Escalation::Return(one) => Handler::Return(compile(&one.r#return, "return")?),
            syntax::Escalation::Continue(one) => {
                Handler::Continue(compile(&one.r#continue, "continue")?)
            }
            syntax::Escalation::Abort(one) => Handler::Abort(compile(&one.abort.into(), "abort")?),
            syntax::Escalation::Steps(_) => Handler::Steps(self.block(written, "steps")?),
        };
        let when = Test::of_field(written, "when")?;
        Ok(Escalation { when, handler })
    }
}

/// Returns the definitions of the steps in a field of a flow, step or branch. An empty list is an error.
pub(super) fn steps<'v>(
    object: &Written<'v>,
    field: &str,
) -> Result<Vec<Written<'v>>, WorkflowLoadError> {
    let steps = object.list(field)?;
    if steps.is_empty() {
        let location = object.path.field(field);
        return Err(WorkflowLoadError::missing(location, "a list of steps"));
    }
    Ok(steps)
}

/// Compiles a `wait_for`, `ask` or `emit` step to the [`Work`] that the flow's driver executes. The workflow's policies do not
/// apply to such a step.
fn exchange(task: TaskForm, retry_and_timeout: &RetryAndTimeout) -> Work {
    driver_work(task, StepRetry::default(), None, retry_and_timeout)
}

fn driver_work(
    task: TaskForm,
    retry: StepRetry,
    timeout: Option<Duration>,
    retry_and_timeout: &RetryAndTimeout,
) -> Work {
    Work::Do(Box::new(DriverTask {
        task,
        retry: retry_and_timeout.retry.unwrap_or(retry),
        timeout: retry_and_timeout.timeout.or(timeout),
    }))
}

pub(super) fn duplicate_id(location: &DefinitionPath, id: &str) -> WorkflowLoadError {
    let name = id.to_owned();
    let reason = "another step of this list has the same ID; choose another ID";
    WorkflowLoadError::new(location.field("id"), LoadProblem::Name { name, reason })
}

/// Checks the length and characters of a variable name or step ID, and that the name is not reserved. A step ID is also a variable name.
pub(super) fn check_variable(
    name: &str,
    location: &DefinitionPath,
) -> Result<(), WorkflowLoadError> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let reason = if !starts || !name.chars().all(plain) {
        "a name starts with a letter or _ and continues with letters, digits, _ and -"
    } else if name.len() > NAME_BYTES {
        "a name has at most 64 bytes"
    } else if RESERVED.contains(&name) {
        "only the interpreter sets this variable; choose another name"
    } else {
        return Ok(());
    };
    let name = crate::error::excerpt(name, 80).into_owned();
    Err(WorkflowLoadError::new(
        location.clone(),
        LoadProblem::Name { name, reason },
    ))
}

fn set(
    variables: &Map<String, Value>,
    location: &DefinitionPath,
) -> Result<Work, WorkflowLoadError> {
    let (found, most) = (variables.len(), VARIABLES);
    if found == 0 {
        let expected = "at least one variable";
        return Err(WorkflowLoadError::missing(location.clone(), expected));
    }
    if found > most {
        let what = "names";
        let problem = LoadProblem::TooMany { what, found, most };
        return Err(WorkflowLoadError::new(location.clone(), problem));
    }
    let compiled = variables.iter().map(|(name, value)| {
        let location = location.field(name);
        check_variable(name, &location)?;
        Ok((name.clone(), Expression::compile(value, &location)?))
    });
    Ok(Work::Set(
        compiled.collect::<Result<_, WorkflowLoadError>>()?,
    ))
}

/// Compiles the input of a step of a workflow definition. Defaults to the input of the flow.
fn input(value: Option<Value>, location: &DefinitionPath) -> Result<Expression, WorkflowLoadError> {
    match value {
        Some(input) => Expression::compile(&input, &location.field("input")),
        None => Expression::compile(&"${input}".into(), location),
    }
}

//! The steps of a flow.

use super::composites::{emit, wait_for};
use super::kind::Kind;
use crate::model::DefinitionPath;
use crate::workflow::ast::{Block, Doing, Escalation, Handler, Step, TaskForm, Work};
use crate::workflow::error::{LoadProblem, WorkflowLoadError};
use crate::workflow::expression::{Expression, Test};
use crate::workflow::fields::Fields;
use crate::workflow::policies::{Policies, StepRetry};
use crate::workflow::shape;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// The most steps of a definition, all flows together.
const STEPS: usize = 2_000;

/// Reads steps, and counts them.
pub(super) struct Reader<'p> {
    policies: &'p Policies,
    steps: usize,
}

impl<'p> Reader<'p> {
    pub(super) fn new(policies: &'p Policies) -> Self {
        Self { policies, steps: 0 }
    }

    /// A list of steps, of which there is at least one, and whose ids differ.
    pub(super) fn block(
        &mut self,
        fields: &Fields<'_>,
        field: &str,
    ) -> Result<Block, WorkflowLoadError> {
        let list = fields.list(field)?;
        let list = list.filter(|list| !list.is_empty());
        let list = list.ok_or_else(|| fields.missing(field, "a list of steps"))?;
        let mut seen = BTreeSet::new();
        let mut steps = Vec::new();
        for (at, (value, place)) in list.into_iter().enumerate() {
            let step = self.step(at, value, &place)?;
            if !seen.insert(step.segment.clone()) {
                return Err(twice(&place, &step.segment));
            }
            steps.push(step);
        }
        Ok(Block(steps))
    }

    pub(super) fn step(
        &mut self,
        at: usize,
        value: &Value,
        place: &DefinitionPath,
    ) -> Result<Step, WorkflowLoadError> {
        self.count(place)?;
        let fields = Fields::of_any(value, place)?;
        let kind = Kind::of(&fields)?;
        let id = id(&fields)?;
        let into = fields.text("as")?;
        if let Some(name) = &into {
            check_variable(name, &place.field("as"))?;
        }
        Ok(Step {
            work: self.work(kind, &fields)?,
            escalations: self.escalations(&fields)?,
            into: into.or_else(|| id.clone()),
            segment: id.unwrap_or_else(|| at.to_string()),
            place: place.clone(),
        })
    }

    fn count(&mut self, place: &DefinitionPath) -> Result<(), WorkflowLoadError> {
        self.steps += 1;
        if self.steps <= STEPS {
            return Ok(());
        }
        let (what, found, most) = ("steps", self.steps, STEPS);
        let problem = LoadProblem::TooMany { what, found, most };
        Err(WorkflowLoadError::new(place.clone(), problem))
    }

    fn work(&mut self, kind: Kind, fields: &Fields<'_>) -> Result<Work, WorkflowLoadError> {
        Ok(match kind {
            Kind::Agent => {
                let agent = fields.required_text("agent", "the name of an agent")?;
                let input = input(fields)?;
                self.run(TaskForm::Agent { agent, input }, fields)?
            }
            Kind::Tool => {
                let tool = fields.required_text("tool", "the name of a tool")?;
                let input = input(fields)?;
                self.run(TaskForm::Tool { tool, input }, fields)?
            }
            Kind::Model => {
                let task = TaskForm::Model {
                    model: fields.required_text("model", "the name of a model")?,
                    prompt: fields.text("prompt")?,
                    input: input(fields)?,
                    output: fields.text("output")?,
                };
                self.run(task, fields)?
            }
            Kind::WaitFor => exchange(wait_for(fields)?, fields)?,
            Kind::Emit => exchange(emit(fields)?, fields)?,
            Kind::Ask => {
                let task = TaskForm::Ask {
                    question: text_expression(fields, "ask")?,
                    of: fields.texts("of")?,
                    output: fields.text("output")?,
                };
                exchange(task, fields)?
            }
            Kind::Flow => Work::Flow {
                flow: fields.required_text("flow", "the name of a flow")?,
                input: input(fields)?,
            },
            Kind::Parallel => self.parallel(fields)?,
            Kind::ForEach => self.for_each(fields)?,
            Kind::Loop => self.repeat(fields)?,
            Kind::If => self.choice(fields)?,
            Kind::Match => self.cases(fields)?,
            Kind::Try => Work::Try {
                body: self.block(fields, "try")?,
                on_failure: self.block(fields, "on_failure")?,
            },
            Kind::Set => set(fields)?,
            Kind::Return => Work::Return(expression(fields, "return")?),
            Kind::Fail => Work::Fail {
                code: fields.text("code")?.unwrap_or_else(|| "failed".to_owned()),
                message: text_expression(fields, "fail")?,
            },
        })
    }

    /// Something that is run, for which the policies say what holds by default.
    fn run(&self, task: TaskForm, fields: &Fields<'_>) -> Result<Work, WorkflowLoadError> {
        doing(task, self.policies.retry, self.policies.timeout, fields)
    }

    fn escalations(&mut self, fields: &Fields<'_>) -> Result<Vec<Escalation>, WorkflowLoadError> {
        let list = fields.list("escalate")?.unwrap_or_default().into_iter();
        list.map(|(value, place)| self.escalation(value, &place))
            .collect()
    }

    fn escalation(
        &mut self,
        value: &Value,
        place: &DefinitionPath,
    ) -> Result<Escalation, WorkflowLoadError> {
        const HANDLERS: [&str; 4] = ["return", "continue", "abort", "steps"];
        let fields = Fields::of(value, place, &shape::ESCALATION)?;
        let handler = match fields.only_one_of(&HANDLERS)? {
            "return" => Handler::Return(expression(&fields, "return")?),
            "continue" => Handler::Continue(expression(&fields, "continue")?),
            "abort" => Handler::Abort(text_expression(&fields, "abort")?),
            _ => Handler::Steps(self.block(&fields, "steps")?),
        };
        Ok(Escalation {
            when: test(&fields, "when")?,
            handler,
        })
    }
}

/// Something that others have to answer, or that is only written.
fn exchange(task: TaskForm, fields: &Fields<'_>) -> Result<Work, WorkflowLoadError> {
    doing(task, StepRetry::default(), None, fields)
}

fn doing(
    task: TaskForm,
    retry: StepRetry,
    timeout: Option<Duration>,
    fields: &Fields<'_>,
) -> Result<Work, WorkflowLoadError> {
    let own = fields.get("retry");
    let own = own.map(|(value, place)| StepRetry::read(value, &place));
    Ok(Work::Do(Box::new(Doing {
        task,
        retry: own.transpose()?.unwrap_or(retry),
        timeout: fields.seconds("timeout_seconds")?.or(timeout),
    })))
}

pub(super) fn id(fields: &Fields<'_>) -> Result<Option<String>, WorkflowLoadError> {
    let id = fields.text("id")?;
    if let Some(id) = &id {
        check_variable(id, &fields.place().field("id"))?;
    }
    Ok(id)
}

pub(super) fn twice(place: &DefinitionPath, id: &str) -> WorkflowLoadError {
    let name = id.to_owned();
    let reason = "another step of this list has it";
    WorkflowLoadError::new(place.field("id"), LoadProblem::Name { name, reason })
}

/// A name that a variable can have, and the id of a step, which names one.
pub(super) fn check_variable(name: &str, place: &DefinitionPath) -> Result<(), WorkflowLoadError> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let reason = if !starts || !name.chars().all(plain) {
        "it has to begin with a letter and go on with letters, digits, _ and -"
    } else if name.len() > shape::NAME_BYTES {
        "it is longer than 64 bytes"
    } else if shape::RESERVED.contains(&name) {
        "this variable is set by itself"
    } else {
        return Ok(());
    };
    let name = crate::error::excerpt(name, 80).into_owned();
    Err(WorkflowLoadError::new(
        place.clone(),
        LoadProblem::Name { name, reason },
    ))
}

fn set(fields: &Fields<'_>) -> Result<Work, WorkflowLoadError> {
    let place = fields.place().field("set");
    let mut variables = Vec::new();
    for (name, value, place) in fields.named("set", shape::VARIABLES)? {
        check_variable(name, &place)?;
        variables.push((name.to_owned(), Expression::compile(value, &place)?));
    }
    if variables.is_empty() {
        return Err(WorkflowLoadError::missing(place, "at least one variable"));
    }
    Ok(Work::Set(variables))
}

/// What a step is given; all that the flow was given if it does not say.
fn input(fields: &Fields<'_>) -> Result<Expression, WorkflowLoadError> {
    if fields.has("input") {
        return expression(fields, "input");
    }
    Expression::compile(&Value::from("${input}"), fields.place())
}

pub(super) fn expression(
    fields: &Fields<'_>,
    field: &str,
) -> Result<Expression, WorkflowLoadError> {
    Expression::compile(fields.raw(field), &fields.place().field(field))
}

/// A text, which may have variables in it.
pub(super) fn text_expression(
    fields: &Fields<'_>,
    field: &str,
) -> Result<Expression, WorkflowLoadError> {
    fields.required_text(field, "a text")?;
    expression(fields, field)
}

pub(super) fn test(fields: &Fields<'_>, field: &str) -> Result<Test, WorkflowLoadError> {
    match fields.get(field) {
        Some((value, place)) => Test::compile(value, &place),
        None => Err(fields.missing(field, "a condition: {\"path\", \"op\", \"value\"}")),
    }
}

//! Steps that have steps within them, and the long forms of others.

use super::kind::Kind;
use super::steps::{Reader, check_variable, expression, id, test, twice};
use crate::model::Condition;
use crate::model::DefinitionPath;
use crate::workflow::ast::{Arm, Block, Branch, ForEach, Join, TaskForm, Work};
use crate::workflow::error::{LoadProblem, WorkflowLoadError};
use crate::workflow::event_form::EventForm;
use crate::workflow::expression::{Expression, Test};
use crate::workflow::fields::Fields;
use crate::workflow::shape;
use serde_json::Value;
use std::collections::BTreeSet;

const JOINS: [(&str, Join); 3] = [
    (shape::JOINS[0], Join::All),
    (shape::JOINS[1], Join::FailFast),
    (shape::JOINS[2], Join::First),
];

impl Reader<'_> {
    pub(super) fn parallel(&mut self, fields: &Fields<'_>) -> Result<Work, WorkflowLoadError> {
        let mut seen = BTreeSet::new();
        let mut branches = Vec::new();
        for (at, (value, place)) in some(fields, "parallel", "a list of branches")?
            .into_iter()
            .enumerate()
        {
            let branch = self.branch(at, value, &place)?;
            if !seen.insert(branch.segment.clone()) {
                return Err(twice(&place, &branch.segment));
            }
            branches.push(branch);
        }
        let join = fields.word("join", &JOINS)?.unwrap_or(Join::All);
        Ok(Work::Parallel { branches, join })
    }

    /// Some steps with an id and an input of their own, or a single step.
    fn branch(
        &mut self,
        at: usize,
        value: &Value,
        place: &DefinitionPath,
    ) -> Result<Branch, WorkflowLoadError> {
        let fields = Fields::of_any(value, place)?;
        let id = id(&fields)?;
        let segment = id.unwrap_or_else(|| at.to_string());
        if !fields.has("steps") || Kind::is_step(&fields) {
            let mut step = self.step(0, value, place)?;
            "0".clone_into(&mut step.segment);
            // The id is the name of the branch.
            step.into = None;
            let (input, body) = (None, Block(vec![step]));
            return Ok(Branch {
                segment,
                input,
                body,
            });
        }
        fields.only(&shape::BRANCH.names())?;
        let input = fields.has("input").then(|| expression(&fields, "input"));
        Ok(Branch {
            segment,
            input: input.transpose()?,
            body: self.block(&fields, "steps")?,
        })
    }

    pub(super) fn for_each(&mut self, fields: &Fields<'_>) -> Result<Work, WorkflowLoadError> {
        let item = fields.text("item")?;
        if let Some(name) = item.as_deref().filter(|name| *name != "item") {
            check_variable(name, &fields.place().field("item"))?;
        }
        let at_once = fields.whole("at_once", 1..=256)?.unwrap_or(8);
        Ok(Work::ForEach(Box::new(ForEach {
            list: expression(fields, "for_each")?,
            item: item.unwrap_or_else(|| "item".to_owned()),
            at_once: usize::try_from(at_once).unwrap_or(1),
            join: fields.word("join", &JOINS)?.unwrap_or(Join::FailFast),
            body: self.block(fields, "steps")?,
        })))
    }

    pub(super) fn repeat(&mut self, fields: &Fields<'_>) -> Result<Work, WorkflowLoadError> {
        let most = fields.whole("max", 1..=10_000)?;
        let most = most.ok_or_else(|| fields.missing("max", "how often at the most"))?;
        let until = fields.get("until");
        let until = until.map(|(value, place)| Test::compile(value, &place));
        Ok(Work::Loop {
            most: u32::try_from(most).unwrap_or(u32::MAX),
            until: until.transpose()?,
            body: self.block(fields, "loop")?,
        })
    }

    pub(super) fn choice(&mut self, fields: &Fields<'_>) -> Result<Work, WorkflowLoadError> {
        let mut arms = vec![Arm {
            segment: "then".to_owned(),
            test: Some(test(fields, "if")?),
            body: self.block(fields, "then")?,
        }];
        arms.extend(self.otherwise(fields)?);
        Ok(Work::Choose { on: None, arms })
    }

    pub(super) fn cases(&mut self, fields: &Fields<'_>) -> Result<Work, WorkflowLoadError> {
        let mut arms = Vec::new();
        for (at, (value, place)) in some(fields, "cases", "a list of cases")?
            .into_iter()
            .enumerate()
        {
            arms.push(self.case(at, value, &place)?);
        }
        arms.extend(self.otherwise(fields)?);
        let on = Some(expression(fields, "match")?);
        Ok(Work::Choose { on, arms })
    }

    /// `{"is": value, "then": ..}`, or a condition on the value with `path`, `op` and `value`.
    fn case(
        &mut self,
        at: usize,
        value: &Value,
        place: &DefinitionPath,
    ) -> Result<Arm, WorkflowLoadError> {
        let fields = Fields::of(value, place, &shape::CASE)?;
        let given = |field: &str| fields.has(field).then(|| fields.raw(field));
        let test = match fields.only_one_of(&["is", "op"])? {
            "is" => {
                fields.refuse("path", "it goes with \"op\"")?;
                fields.refuse("value", "it goes with \"op\"")?;
                Test::of_variable(MATCHED, "$", "eq", given("is"), place)
            }
            _ => {
                let path = fields.text("path")?.unwrap_or_else(|| "$".to_owned());
                let op = fields.required_text("op", "an operator such as \"matches\"")?;
                Test::of_variable(MATCHED, &path, &op, given("value"), place)
            }
        };
        Ok(Arm {
            segment: format!("case{at}"),
            test: Some(test?),
            body: self.block(&fields, "then")?,
        })
    }

    fn otherwise(&mut self, fields: &Fields<'_>) -> Result<Option<Arm>, WorkflowLoadError> {
        if fields.get("else").is_none() {
            return Ok(None);
        }
        Ok(Some(Arm {
            segment: "else".to_owned(),
            test: None,
            body: self.block(fields, "else")?,
        }))
    }
}

/// The variable that has the value of a `match`.
pub(in crate::workflow) const MATCHED: &str = "matched";

/// A list with something in it, and not too much.
fn some<'v>(
    fields: &Fields<'v>,
    field: &str,
    expected: &str,
) -> Result<Vec<(&'v Value, DefinitionPath)>, WorkflowLoadError> {
    let list = fields.list(field)?;
    let list = list.ok_or_else(|| fields.missing(field, expected))?;
    if list.is_empty() {
        let place = fields.place().field(field);
        return Err(WorkflowLoadError::shape(place, expected, fields.raw(field)));
    }
    if list.len() <= shape::BRANCHES {
        return Ok(list);
    }
    let (what, found, most) = ("items", list.len(), shape::BRANCHES);
    Err(fields.error(field, LoadProblem::TooMany { what, found, most }))
}

/// A selector as in a subscription, with places for variables in tags and values.
pub(super) fn wait_for(fields: &Fields<'_>) -> Result<TaskForm, WorkflowLoadError> {
    let (value, place) = (fields.raw("wait_for"), fields.place().field("wait_for"));
    let event = Fields::of(value, &place, &shape::WAIT_FOR)?;
    schema_name(&event)?;
    event.texts("any_tags")?;
    event.texts("all_tags")?;
    let mut conditions = Vec::new();
    for (written, place) in event.list("context_match")?.unwrap_or_default() {
        let resolved = Expression::compile(written, &place)?;
        let condition = Fields::of(written, &place, &shape::CONDITION)?;
        let path = condition.required_text("path", "a JSONPath such as \"$.tool\"")?;
        let op = condition.required_text("op", "an operator such as \"eq\"")?;
        let value = condition
            .has("value")
            .then(|| condition.raw("value").clone());
        let checked = Condition::new(path, op, value);
        if let Some(error) = checked.error() {
            let place = place.field(error.field());
            return Err(WorkflowLoadError::new(
                place,
                LoadProblem::Condition(error.clone()),
            ));
        }
        let is_fixed = matches!(&resolved, Expression::Literal(literal) if **literal == *written);
        conditions.push(is_fixed.then_some(checked));
    }
    let form = EventForm::new(Expression::compile(value, &place)?, conditions);
    let event = form.map_err(|error| {
        let place = place.field("context_match");
        WorkflowLoadError::new(place, LoadProblem::Condition(error))
    })?;
    Ok(TaskForm::WaitFor { event })
}

/// A breadcrumb, with places for variables in title, tags and context.
pub(super) fn emit(fields: &Fields<'_>) -> Result<TaskForm, WorkflowLoadError> {
    let (value, place) = (fields.raw("emit"), fields.place().field("emit"));
    let breadcrumb = Fields::of(value, &place, &shape::EMIT)?;
    schema_name(&breadcrumb)?;
    breadcrumb.text("title")?;
    breadcrumb.texts("tags")?;
    match breadcrumb.get("context") {
        None | Some((Value::Object(_) | Value::String(_), _)) => {}
        Some((other, place)) => return Err(WorkflowLoadError::shape(place, "an object", other)),
    }
    Ok(TaskForm::Emit {
        breadcrumb: Expression::compile(value, &place)?,
    })
}

/// Which schemas a flow reads and writes shows in its definition, whatever its variables are.
fn schema_name(fields: &Fields<'_>) -> Result<(), WorkflowLoadError> {
    let schema = fields.required_text("schema_name", "the schema of the breadcrumb")?;
    if schema.contains("${") {
        let reason = "the name of a schema has no variables in it";
        return Err(WorkflowLoadError::fields(
            fields.place().field("schema_name"),
            reason,
        ));
    }
    Ok(())
}

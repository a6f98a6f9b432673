//! Compiled `wait_for` field of a step: a selector of breadcrumbs that can contain variables.

use super::expression::Expression;
use crate::model::{Condition, ConditionError, Selector};
use serde_json::Value;

/// Compiled selector in the `wait_for` field of a step, with tags and values that can contain variables.
///
/// A condition without variables is compiled once, when the definition is read, and shared by all steps that wait: a regular
/// expression takes milliseconds to compile and up to 256 KiB. A regular expression never has variables here.
#[derive(Clone, Debug)]
pub(super) struct EventForm {
    expression: Expression,
    /// Compiled conditions of `wait_for` on the context of the awaited breadcrumb, in the order of the definition. A condition
    /// with variables is `None`.
    conditions: Vec<Option<Condition>>,
    /// Selector of the awaited breadcrumb, or `None` if the `wait_for` field contains variables.
    fixed: Option<Selector>,
}

impl EventForm {
    /// Creates the compiled selector of a `wait_for` step from the fields of `wait_for` and its compiled conditions. A condition
    /// with variables is `None`.
    ///
    /// # Errors
    /// Returns the first condition that does not compile.
    pub(super) fn new(
        expression: Expression,
        conditions: Vec<Option<Condition>>,
    ) -> Result<Self, ConditionError> {
        let fixed = match &expression {
            Expression::Literal(event) => Some(selector(event, &conditions)?),
            Expression::Reference(_)
            | Expression::Text(_)
            | Expression::List(_)
            | Expression::Object(_) => None,
        };
        Ok(Self {
            expression,
            conditions,
            fixed,
        })
    }

    pub(super) fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Returns the selector of the awaited breadcrumb, or `None` if the `wait_for` field contains variables.
    pub(super) fn fixed(&self) -> Option<&Selector> {
        self.fixed.as_ref()
    }

    /// Returns the selector of the awaited breadcrumb from a `wait_for` value whose variables are already replaced by their
    /// values.
    ///
    /// # Errors
    /// Returns the error of the first condition that does not compile. Later conditions are not compiled.
    pub(super) fn selector(&self, event: &Value) -> Result<Selector, ConditionError> {
        selector(event, &self.conditions)
    }
}

fn selector(event: &Value, compiled: &[Option<Condition>]) -> Result<Selector, ConditionError> {
    let mut selector = Selector::schema(text(event, "schema_name"));
    if let Some(tags) = texts(event, "any_tags") {
        selector = selector.any_tags(tags);
    }
    if let Some(tags) = texts(event, "all_tags") {
        selector = selector.all_tags(tags);
    }
    for (at, condition) in written(event).iter().enumerate() {
        let one = match compiled.get(at) {
            Some(Some(compiled)) => compiled.clone(),
            Some(None) | None => Condition::new(
                text(condition, "path"),
                text(condition, "op"),
                condition.get("value").cloned(),
            ),
        };
        if let Some(error) = one.error() {
            return Err(error.clone());
        }
        selector = selector.condition(one);
    }
    Ok(selector)
}

fn written(event: &Value) -> &[Value] {
    let conditions = event.get("context_match").and_then(Value::as_array);
    conditions.map(Vec::as_slice).unwrap_or_default()
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the tags in a field of a `wait_for` or `emit` value as strings, or `None` if the field is not a list. A tag that is
/// only a variable keeps the type of its value, so other types are written as JSON.
pub(super) fn texts(value: &Value, field: &str) -> Option<Vec<String>> {
    let items = value.get(field)?.as_array()?.iter();
    let texts = items.map(|item| match item {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            item.to_string()
        }
    });
    Some(texts.collect())
}

//! Reader of the conditions in definitions, such as `context_match` of a subscription or `when` of an approval rule.

use super::DefinitionProblem;
use crate::model::condition::{Condition, value_excerpt};
use serde_json::Value;

/// Names of the fields of a condition.
pub(crate) const CONDITION_FIELDS: [&str; 3] = ["path", "op", "value"];

impl DefinitionProblem {
    /// Creates the problem of a definition's field whose value has the wrong type.
    pub(crate) fn shape(expected: &'static str, found: &Value) -> Self {
        Self::Shape {
            expected,
            found: value_excerpt(found),
        }
    }
}

/// Reads and compiles one condition of a definition.
///
/// # Errors
/// Returns the field with the problem, or an empty string for the whole condition, and the problem.
pub(super) fn read_condition(json: &Value) -> Result<Condition, (&'static str, DefinitionProblem)> {
    let Value::Object(fields) = json else {
        let expected = "an object with path, op and value";
        return Err(("", DefinitionProblem::shape(expected, json)));
    };
    let text = |name: &'static str, expected: &'static str| match fields.get(name) {
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(other) => Err((name, DefinitionProblem::shape("a string", other))),
        None => Err((name, DefinitionProblem::Missing { expected })),
    };
    let path = text("path", "a JSONPath such as \"$.tool\"")?;
    let op = text("op", "an operator such as \"eq\"")?;
    let condition = Condition::new(path, op, fields.get("value").cloned());
    match condition.error() {
        None => Ok(condition),
        Some(reason) => {
            let problem = DefinitionProblem::Condition(reason.clone());
            Err((reason.field(), problem))
        }
    }
}

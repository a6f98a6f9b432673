//! Lists of conditions at any path of a definition, such as `when` of an approval rule.

use super::conditions::condition;
use super::validate::ConditionCount;
use super::{DefinitionOptions, DefinitionProblem};
use crate::model::condition::Condition;
use crate::model::place::DefinitionPath;
use serde_json::Value;

/// Reads a list of conditions that is at a path of a definition. `count` has the conditions of the definition before the list.
///
/// # Errors
/// The path of the first problem, and the problem.
pub(crate) fn read_conditions(
    written: &Value,
    place: &DefinitionPath,
    count: &mut ConditionCount,
    options: &DefinitionOptions,
) -> Result<Vec<Condition>, (DefinitionPath, DefinitionProblem)> {
    let Value::Array(list) = written else {
        let problem = DefinitionProblem::shape("a list of conditions", written);
        return Err((place.clone(), problem));
    };
    let operators = list.iter().map(|condition| {
        let operator = condition.get("op").and_then(Value::as_str);
        operator.unwrap_or_default()
    });
    // The count comes before the conditions are compiled, because a regular expression takes milliseconds.
    count
        .add(operators, options)
        .map_err(|problem| (place.clone(), problem))?;
    let mut conditions = Vec::with_capacity(list.len());
    for (at, written) in list.iter().enumerate() {
        let read = condition(written).map_err(|(field, problem)| {
            let place = place.item(at);
            match field {
                "" => (place, problem),
                field => (place.field(field), problem),
            }
        })?;
        conditions.push(read);
    }
    Ok(conditions)
}

//! Lists of conditions at any path of a definition, such as `when` of an approval rule.

use super::conditions::condition;
use super::validate::ConditionCount;
use super::{DefinitionOptions, DefinitionProblem};
use crate::model::condition::Condition;
use crate::model::place::DefinitionPath;
use serde_json::Value;

/// Reads a list of conditions at a path of a definition. `count` is the number of conditions in the definition before the list.
///
/// # Errors
/// Returns the path of the first problem, and the problem.
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
    // The limit is checked before the conditions are compiled, because a regular expression takes milliseconds to compile.
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

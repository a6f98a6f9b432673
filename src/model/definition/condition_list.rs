//! Lists of conditions at any path of a definition, such as `when` of an approval rule.

use super::conditions::read_condition;
use super::validate::ConditionCount;
use super::{DefinitionOptions, DefinitionProblem};
use crate::model::condition::Condition;
use crate::model::definition_path::DefinitionPath;
use serde_json::Value;

/// Reads a list of conditions at a path of a definition. `count` is the number of conditions in the definition before the list.
///
/// # Errors
/// Returns the path of the first problem, and the problem.
pub(crate) fn read_conditions(
    json: &Value,
    path: &DefinitionPath,
    count: &mut ConditionCount,
    options: &DefinitionOptions,
) -> Result<Vec<Condition>, (DefinitionPath, DefinitionProblem)> {
    let Value::Array(list) = json else {
        let problem = DefinitionProblem::shape("a list of conditions", json);
        return Err((path.clone(), problem));
    };
    let operators = list.iter().map(|condition| {
        let operator = condition.get("op").and_then(Value::as_str);
        operator.unwrap_or_default()
    });
    // The limit is checked before the conditions are compiled, because a regular expression takes milliseconds to compile.
    count
        .add(operators, options)
        .map_err(|problem| (path.clone(), problem))?;
    let mut conditions = Vec::with_capacity(list.len());
    for (at, json) in list.iter().enumerate() {
        let condition = read_condition(json).map_err(|(field, problem)| {
            let path = path.item(at);
            match field {
                "" => (path, problem),
                field => (path.field(field), problem),
            }
        })?;
        conditions.push(condition);
    }
    Ok(conditions)
}

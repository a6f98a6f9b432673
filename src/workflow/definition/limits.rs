//! Limits on the number of conditions and regular expressions in a workflow definition. A regular expression takes
//! milliseconds to compile, so the definition is counted before any of them is compiled.

use super::super::error::{LoadProblem, WorkflowLoadError};
use crate::model::DefinitionPath;
use crate::model::{MAX_CONDITIONS, MAX_REGEXES, Op};
use serde_json::{Map, Value};

/// Numbers of conditions and of regular expressions in a workflow definition.
#[derive(Default)]
struct Count {
    conditions: usize,
    regexes: usize,
}

/// Checks the number of conditions and regular expressions in the known fields of a workflow definition.
///
/// # Errors
/// Returns the number and the limit that it exceeds.
pub(super) fn check(definition: &Value, fields: &[&str]) -> Result<(), WorkflowLoadError> {
    let mut count = Count::default();
    let mut open: Vec<&Value> = fields
        .iter()
        .filter_map(|name| definition.get(*name))
        .collect();
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                count.object(fields);
                open.extend(fields.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    for (what, found, most) in [
        ("conditions", count.conditions, MAX_CONDITIONS),
        ("regular expressions", count.regexes, MAX_REGEXES),
    ] {
        if found > most {
            let problem = LoadProblem::TooMany { what, found, most };
            return Err(WorkflowLoadError::new(DefinitionPath::default(), problem));
        }
    }
    Ok(())
}

impl Count {
    /// Counts an object of the definition as a condition if it has the fields of a condition, because many parts of a definition can have
    /// conditions.
    fn object(&mut self, fields: &Map<String, Value>) {
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        if let (Some(_), Some(operator)) = (text("path"), text("op")) {
            self.conditions += 1;
            self.regexes += usize::from(operator == Op::Matches.as_str());
        }
        self.regexes += usize::from(text("pattern").is_some());
        let named = fields.get("patternProperties").and_then(Value::as_object);
        self.regexes += named.map_or(0, Map::len);
    }
}

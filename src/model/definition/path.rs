//! Path of the list of subscriptions in a definition.

use crate::model::definition_path::DefinitionPath;
use crate::model::json_check::MAX_DEPTH;
use serde_json::Value;

/// Names of the nested fields that contain a definition's list of subscriptions (`context.subscriptions.selectors`), the
/// innermost first.
pub(super) const STEPS: [&str; 3] = ["selectors", "subscriptions", "context"];

/// Returns the next field of a definition on the path to the list of subscriptions, with the field's value.
pub(super) fn next(value: &Value) -> Option<(&'static str, &Value)> {
    let object = value.as_object()?;
    STEPS
        .into_iter()
        .find_map(|name| Some((name, object.get(name).filter(|value| !value.is_null())?)))
}

/// Returns the path of the list of subscriptions in a definition. If the list is missing, returns the path of the innermost value
/// on the path to it.
pub(super) fn list(definition: &Value) -> DefinitionPath {
    let (mut path, mut value) = (DefinitionPath::default(), definition);
    for _ in 0..MAX_DEPTH {
        let Some((name, inner)) = next(value) else {
            break;
        };
        path = path.field(name);
        value = inner;
    }
    path
}

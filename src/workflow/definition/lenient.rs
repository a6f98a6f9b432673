//! Definitions with unknown fields, which are omitted.

use super::Workflow;
use crate::model::{DefinitionPath, DefinitionPathPart, nearest};
use crate::workflow::error::{LoadProblem, Oddity, WorkflowLoadError, WorkflowWarning};
use crate::workflow::shape::UnknownFields;
use serde_json::Value;

/// Reads a definition without its unknown fields. A field with nearly the name of a known field remains, so the reader refuses it.
pub(super) fn read(definition: &Value) -> Result<Workflow, WorkflowLoadError> {
    let unknown = UnknownFields::of(definition);
    if unknown.count > UnknownFields::MAX {
        let (what, found, most) = ("unknown fields", unknown.count, UnknownFields::MAX);
        let problem = LoadProblem::TooMany { what, found, most };
        return Err(WorkflowLoadError::new(DefinitionPath::default(), problem));
    }
    let mut known = definition.clone();
    let mut warnings = Vec::new();
    for field in unknown.fields {
        if nearest(&field.name, field.nearest.iter().copied()).is_some() {
            continue;
        }
        remove(&mut known, field.place.parts());
        let (name, nearest) = (field.name, field.nearest);
        warnings.push(WorkflowWarning::new(
            field.place,
            Oddity::UnknownField { name, nearest },
        ));
    }
    let mut workflow = Workflow::read_strictly(&known)?;
    workflow.warnings.splice(0..0, warnings);
    Ok(workflow)
}

fn remove(value: &mut Value, path: &[DefinitionPathPart]) {
    match (value, path) {
        (Value::Object(fields), [DefinitionPathPart::Field(name)]) => drop(fields.remove(name)),
        (Value::Object(fields), [DefinitionPathPart::Field(name), rest @ ..]) => {
            if let Some(inner) = fields.get_mut(name) {
                remove(inner, rest);
            }
        }
        (Value::Array(items), [DefinitionPathPart::Item(at), rest @ ..]) => {
            if let Some(inner) = items.get_mut(*at) {
                remove(inner, rest);
            }
        }
        (
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_),
            _,
        ) => {}
    }
}

//! The JSON Schema of the language, from the types of the syntax.

use super::steps::{AgentStep, Branch, FlowStep, ModelStep, Step, ToolStep};
use super::values::YEAR_SECONDS;
use super::{BRANCHES, NAME_BYTES, NAMES, RESERVED, VARIABLES};
use crate::model::Op;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// The fields that are comments in every object.
const COMMENTS: &str = r"^(comment|metadata|\$schema|x-.*|.*_comment)$";

/// Returns the JSON Schema of definitions, whose top is a `T`.
pub(in crate::workflow) fn json_schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with_transform(RecursiveTransform(finish));
    settings.into_generator().into_root_schema_for::<T>()
}

/// Completes a schema. Removes annotations about Rust types, forbids other fields than comments, allows null in optional fields, and
/// requires at least one item in lists of steps.
fn finish(schema: &mut Schema) {
    let Some(keywords) = schema.as_object_mut() else {
        return;
    };
    keywords.remove("default");
    keywords.remove("format");
    if let Some(Value::String(description)) = keywords.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    let items = keywords.get("items").and_then(|items| items.get("$ref"));
    if items
        .and_then(Value::as_str)
        .is_some_and(|items| items.ends_with("Step"))
    {
        keywords.insert("minItems".to_owned(), 1.into());
    }
    let is_object = keywords.get("type").and_then(Value::as_str) == Some("object");
    let required = keywords.get("required").and_then(Value::as_array);
    let required = required.cloned().unwrap_or_default();
    let Some(Value::Object(properties)) = keywords.get_mut("properties").filter(|_| is_object)
    else {
        return;
    };
    for (name, property) in properties {
        let is_required = required
            .iter()
            .any(|field| field.as_str() == Some(name.as_str()));
        if let (false, Value::Object(property)) = (is_required, property) {
            allow_null(property);
        }
    }
    keywords.insert("patternProperties".to_owned(), json!({COMMENTS: {}}));
    keywords.insert("additionalProperties".to_owned(), false.into());
}

/// Allows null in a schema, unless the schema already allows any JSON.
fn allow_null(schema: &mut Map<String, Value>) {
    if let Some(reference) = schema.remove("$ref") {
        schema.insert("anyOf".to_owned(), json!([{"$ref": reference}]));
    }
    for (keyword, null) in [
        ("type", json!("null")),
        ("enum", Value::Null),
        ("anyOf", json!({"type": "null"})),
    ] {
        match schema.get_mut(keyword) {
            Some(Value::Array(choices)) if !choices.contains(&null) => choices.push(null),
            Some(choice @ Value::String(_)) => *choice = json!([choice, "null"]),
            Some(_) | None => {}
        }
    }
}

fn schema(keywords: Value) -> Schema {
    match keywords {
        Value::Object(keywords) => keywords.into(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            true.into()
        }
    }
}

/// Objects of a type by name.
pub(in crate::workflow) fn named<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    by_name(&generator.subschema_for::<T>())
}

/// JSON Schemas by name.
pub(in crate::workflow) fn schemas(_: &mut SchemaGenerator) -> Schema {
    by_name(&schema(json!({"type": ["object", "boolean"]})))
}

fn by_name(value: &Schema) -> Schema {
    let pattern = format!("^[A-Za-z0-9_.-]{{1,{NAME_BYTES}}}$");
    schema(json!({
        "type": "object", "propertyNames": {"pattern": pattern}, "maxProperties": NAMES,
        "additionalProperties": value,
    }))
}

/// The name of a variable that a step can set.
pub(super) fn variable(_: &mut SchemaGenerator) -> Schema {
    let pattern = format!("^[A-Za-z_][A-Za-z0-9_-]{{0,{}}}$", NAME_BYTES - 1);
    schema(json!({"type": "string", "pattern": pattern, "not": {"enum": RESERVED}}))
}

/// The variable of a `for_each`.
pub(super) fn item(generator: &mut SchemaGenerator) -> Schema {
    schema(json!({"anyOf": [{"const": "item"}, variable(generator)]}))
}

/// Values by variable name.
pub(super) fn variables(generator: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "object", "propertyNames": variable(generator), "minProperties": 1,
        "maxProperties": VARIABLES,
    }))
}

/// Branches: each a step, or several steps with an input.
pub(super) fn branches(generator: &mut SchemaGenerator) -> Schema {
    let branch = json!([
        generator.subschema_for::<Step>(),
        generator.subschema_for::<Branch>()
    ]);
    schema(json!({
        "type": "array", "items": {"anyOf": branch}, "minItems": 1, "maxItems": BRANCHES,
    }))
}

/// A step of a graph: of some kinds, with an ID and without `as` and `escalate`.
pub(super) fn graph_step(generator: &mut SchemaGenerator) -> Schema {
    let kinds = [
        AgentStep::json_schema(generator),
        ToolStep::json_schema(generator),
        ModelStep::json_schema(generator),
        FlowStep::json_schema(generator),
    ];
    let kinds = kinds.map(|mut kind| {
        let about = "IDs of the steps that must end before this step begins, in addition to the steps whose results the input uses.";
        let depends_on = json!({"type": "array", "items": {"type": "string"}, "description": about});
        if let Some(Value::Object(fields)) = kind.get_mut("properties") {
            fields.retain(|name, _| name != "as" && name != "escalate");
            fields.insert("depends_on".to_owned(), depends_on);
        }
        if let Some(Value::Array(required)) = kind.get_mut("required") {
            required.push("id".into());
        }
        kind
    });
    schema(json!({"anyOf": kinds}))
}

/// A number of seconds.
pub(in crate::workflow) fn seconds(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "number", "exclusiveMinimum": 0, "maximum": YEAR_SECONDS}))
}

/// An operator of conditions.
pub(super) fn op(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"enum": Op::ALL.map(Op::as_str)}))
}

/// The schema of a breadcrumb, without variables.
pub(super) fn schema_name(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "not": {"pattern": r"\$\{"}}))
}

/// The context of a breadcrumb: an object, or a string with a variable whose value is an object.
pub(super) fn context(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": ["object", "string"]}))
}

/// The instruction of an agent.
pub(in crate::workflow) fn instruction(_: &mut SchemaGenerator) -> Schema {
    let prompt = json!({"type": "string", "description": "Name of the text in `prompts`."});
    schema(json!({"anyOf": [
        {"type": "string"},
        {"type": "object", "properties": {"prompt": prompt}, "required": ["prompt"]},
    ]}))
}

/// The history of an agent.
pub(in crate::workflow) fn history(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"anyOf": [
        {"enum": ["all", "none"]},
        {"type": "integer", "minimum": 1, "maximum": 10_000},
    ]}))
}

//! The JSON Schema of workflow definitions, generated from the Rust types of the syntax.

use super::steps::{AgentStep, Branch, FlowStep, ModelStep, Step, ToolStep};
use super::values::YEAR_SECONDS;
use super::{BRANCHES, NAME_BYTES, NAMES, RESERVED, VARIABLES};
use crate::model::Op;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Regular expression for the names of fields that count as comments in a workflow definition. Every object of a workflow
/// definition can have such fields.
const COMMENTS: &str = r"^(comment|metadata|\$schema|x-.*|.*_comment)$";

/// Returns the JSON Schema of workflow definitions. The Rust type of a whole definition is `T`.
pub(in crate::workflow) fn json_schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with_transform(RecursiveTransform(finish));
    settings.into_generator().into_root_schema_for::<T>()
}

/// Adapts a generated schema to the rules of workflow definitions. Removes annotations about Rust types, forbids other fields than
/// comments, allows null in optional fields, and requires at least one item in lists of steps.
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

/// Allows null in the schema of an optional field, unless the schema already allows any JSON.
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

/// Returns the JSON Schema of a section that maps names to objects of the type `T`.
pub(in crate::workflow) fn named<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    by_name(&generator.subschema_for::<T>())
}

/// Returns the JSON Schema of the section `schemas`.
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

/// Returns the JSON Schema of the name of a variable that a step can set.
pub(super) fn variable(_: &mut SchemaGenerator) -> Schema {
    let pattern = format!("^[A-Za-z_][A-Za-z0-9_-]{{0,{}}}$", NAME_BYTES - 1);
    schema(json!({"type": "string", "pattern": pattern, "not": {"enum": RESERVED}}))
}

/// Returns the JSON Schema of the variable name of a `for_each` step.
pub(super) fn item(generator: &mut SchemaGenerator) -> Schema {
    schema(json!({"anyOf": [{"const": "item"}, variable(generator)]}))
}

/// Returns the JSON Schema of a `set` step's values by variable name.
pub(super) fn variables(generator: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "object", "propertyNames": variable(generator), "minProperties": 1,
        "maxProperties": VARIABLES,
    }))
}

/// Returns the JSON Schema of the branches of a `parallel` step. Each branch is a step, or several steps with an input.
pub(super) fn branches(generator: &mut SchemaGenerator) -> Schema {
    let branch = json!([
        generator.subschema_for::<Step>(),
        generator.subschema_for::<Branch>()
    ]);
    schema(json!({
        "type": "array", "items": {"anyOf": branch}, "minItems": 1, "maxItems": BRANCHES,
    }))
}

/// Returns the JSON Schema of a step of a graph: an agent, tool, model or flow step. Such a step requires an ID, and cannot have `as` or
/// `escalate`.
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

/// Returns the JSON Schema of a number of seconds in a workflow definition.
pub(in crate::workflow) fn seconds(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "number", "exclusiveMinimum": 0, "maximum": YEAR_SECONDS}))
}

/// Returns the JSON Schema of an operator of conditions.
pub(super) fn op(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"enum": Op::ALL.map(Op::as_str)}))
}

/// Returns the JSON Schema of a workflow definition's field `schema_name`, whose value must not contain variables.
pub(super) fn schema_name(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "not": {"pattern": r"\$\{"}}))
}

/// Returns the JSON Schema of the context of an emitted breadcrumb. The context is an object, or a string with a variable that has an
/// object as its value.
pub(super) fn context(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": ["object", "string"]}))
}

/// Returns the JSON Schema of the `instruction` of an agent.
pub(in crate::workflow) fn instruction(_: &mut SchemaGenerator) -> Schema {
    let prompt = json!({"type": "string", "description": "Name of the text in `prompts`."});
    schema(json!({"anyOf": [
        {"type": "string"},
        {"type": "object", "properties": {"prompt": prompt}, "required": ["prompt"]},
    ]}))
}

/// Returns the JSON Schema of the `history` of an agent.
pub(in crate::workflow) fn history(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"anyOf": [
        {"enum": ["all", "none"]},
        {"type": "integer", "minimum": 1, "maximum": 10_000},
    ]}))
}

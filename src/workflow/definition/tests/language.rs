//! The objects of the definition language, read from its JSON Schema.

use super::*;
use std::sync::LazyLock;

pub(super) static SCHEMA: LazyLock<Value> = LazyLock::new(|| Workflow::json_schema().to_value());

/// A kind of object in definitions, with all the ways to write the object.
pub(super) struct Object {
    pub(super) name: &'static str,
    pub(super) forms: Vec<ObjectForm>,
}

/// One way to write an object.
pub(super) struct ObjectForm {
    /// The schema of each field.
    pub(super) fields: &'static Map<String, Value>,
    pub(super) required: Vec<&'static str>,
}

/// Returns all kinds of objects. The top level of a definition is `Workflow`.
pub(super) fn objects() -> Vec<Object> {
    let object = |(name, schema)| Object {
        name,
        forms: alternatives(schema)
            .into_iter()
            .filter_map(object_form)
            .collect(),
    };
    let objects = definitions().map(object);
    objects.filter(|object| !object.forms.is_empty()).collect()
}

/// Returns the named schemas: `Workflow` and the entries of `$defs`.
pub(super) fn definitions() -> impl Iterator<Item = (&'static str, &'static Value)> {
    let schema: &'static Value = &SCHEMA;
    let named = schema["$defs"].as_object().unwrap().iter();
    let named = named.map(|(name, schema)| (name.as_str(), schema));
    std::iter::once(("Workflow", schema)).chain(named)
}

/// Returns a schema and its inner alternatives, without following references.
pub(super) fn alternatives(schema: &'static Value) -> Vec<&'static Value> {
    let lists = ["anyOf", "oneOf"].map(|keyword| schema.get(keyword));
    let inner = lists.into_iter().flatten().filter_map(Value::as_array);
    let inner = inner.flatten().flat_map(alternatives);
    std::iter::once(schema).chain(inner).collect()
}

/// Returns the fields of an object, or `None` for other schemas.
pub(super) fn object_form(schema: &'static Value) -> Option<ObjectForm> {
    let fields = schema.get("properties")?.as_object()?;
    if schema.get("type") != Some(&json!("object")) {
        return None;
    }
    let required = schema.get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    Some(ObjectForm {
        fields,
        required: required.collect(),
    })
}

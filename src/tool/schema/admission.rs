//! Checks of a JSON Schema before its compilation: the schema must be within limits and use only supported keywords.

use crate::error::excerpt;
use crate::model::size_within;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Maximum size of a compiled pattern of a JSON Schema in bytes.
pub(super) const PATTERN_BYTES: usize = 256 << 10;
const MAX_BYTES: usize = 64 << 10;
const MAX_LEVELS: usize = 32;
const MAX_PATTERNS: usize = 32;

/// Unsupported JSON Schema keywords: they refer to other schemas, or need an amount of work that cannot be measured in advance.
const UNSUPPORTED: [&str; 6] = [
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// JSON Schema keywords whose value is a schema or a list of schemas.
const SCHEMA_KEYWORDS: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
];
/// JSON Schema keywords whose value is an object with a schema for each name.
const SCHEMA_MAP_KEYWORDS: [&str; 6] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// Checks the limits of a JSON Schema, and that all its references point into the schema itself.
///
/// # Errors
/// A sentence with the problem of the schema.
pub(super) fn check_limits(schema: &Value) -> Result<(), String> {
    match size_within(schema, MAX_LEVELS) {
        Err(unfit) => return Err(format!("the schema {unfit}")),
        Ok(size) if size > MAX_BYTES => {
            return Err(format!(
                "the schema has {size} bytes where at most {MAX_BYTES} are allowed"
            ));
        }
        Ok(_) => {}
    }
    if !schema.is_object() && !schema.is_boolean() {
        return Err("the schema must be an object, true or false".to_owned());
    }
    let mut visited = HashSet::new();
    let mut pending = vec![schema];
    let mut patterns = 0;
    while let Some(subschema) = pending.pop() {
        // Many references can lead to one subschema, so subschemas are recognised by their address.
        let Value::Object(fields) = subschema else {
            continue;
        };
        if !visited.insert(std::ptr::from_ref(subschema)) {
            continue;
        }
        refuse_keywords(fields, std::ptr::eq(subschema, schema))?;
        patterns += usize::from(fields.contains_key("pattern"));
        let named = fields.get("patternProperties").and_then(Value::as_object);
        patterns += named.map_or(0, Map::len);
        if patterns > MAX_PATTERNS {
            return Err(format!("the schema has more than {MAX_PATTERNS} patterns"));
        }
        if let Some(reference) = fields.get("$ref") {
            pending.push(target(schema, reference)?);
        }
        pending.extend(subschemas(fields));
    }
    Ok(())
}

fn refuse_keywords(fields: &Map<String, Value>, is_root: bool) -> Result<(), String> {
    if let Some(word) = UNSUPPORTED.iter().find(|word| fields.contains_key(**word)) {
        return Err(format!("{word} is not supported"));
    }
    let nested = fields.get("propertyNames").and_then(Value::as_object);
    let mut words = nested.into_iter().flat_map(Map::keys).map(String::as_str);
    if words.any(|word| {
        word == "$ref"
            || SCHEMA_KEYWORDS.contains(&word)
            || SCHEMA_MAP_KEYWORDS.contains(&word)
            || word == "then"
    }) {
        return Err(
            "propertyNames must not contain subschemas, only keywords for strings".to_owned(),
        );
    }
    let renames = |word: &&&str| fields.contains_key(**word);
    match ["$anchor", "$id", "id", "$vocabulary"].iter().find(renames) {
        Some(word) if !is_root && fields.get(*word).is_some_and(Value::is_string) => {
            Err(format!("{word} is supported only at the top level"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the part of a JSON Schema that a `$ref` points to.
///
/// # Errors
/// A sentence with the problem, if the reference does not point into the schema itself.
pub(super) fn target<'s>(schema: &'s Value, reference: &Value) -> Result<&'s Value, String> {
    let text = reference.as_str().ok_or("$ref must be a string")?;
    let shown = || excerpt(text, 80).into_owned();
    // The validator decodes %41 to A, so it could follow another reference than the code that measures the work.
    if text.contains('%') {
        return Err(format!(
            "$ref {:?} contains a %; rename its target",
            shown()
        ));
    }
    let Some(pointer) = text.strip_prefix('#') else {
        return Err(format!(
            "$ref {:?} points outside of the schema; use a reference that starts with #/",
            shown()
        ));
    };
    schema
        .pointer(pointer)
        .ok_or_else(|| format!("$ref {:?} points to a missing part of the schema", shown()))
}

/// Returns the direct subschemas of a JSON Schema object.
fn subschemas(fields: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let single = SCHEMA_KEYWORDS.iter().filter_map(|word| fields.get(*word));
    let single = single.flat_map(|found| match found {
        Value::Array(items) => items.iter().collect::<Vec<_>>(),
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            vec![found]
        }
    });
    let then = fields.get("then").into_iter();
    let named = SCHEMA_MAP_KEYWORDS
        .iter()
        .filter_map(|word| fields.get(*word)?.as_object());
    single.chain(then).chain(named.flat_map(Map::values))
}

//! How much work a schema makes for a value. Schemas that refer to themselves can make it grow without end, or without
//! measure: the same walk a check will take is taken here first, in steps that are counted and without recursion.

use super::admission::target;
use serde_json::{Map, Value};

/// The most steps of one check.
const MOST_STEPS: usize = 50_000;
/// How many schemas may be entered within one another on the way to one step.
const MOST_LEVELS: usize = 128;
/// How many bytes of text a pattern looks at count as one step.
const BYTES_A_STEP: usize = 16;

/// Schemas that hold for the value itself.
const SAME: [&str; 7] = ["allOf", "anyOf", "else", "if", "not", "oneOf", "then"];
/// Schemas that hold for things of a value whichever they are.
const EACH: [&str; 4] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "items",
];

/// Something to look at: a schema, what it is held against, how many schemas it was entered through.
type Step<'v> = (&'v Value, &'v Value, usize);

/// Walks a value along its schema.
///
/// # Errors
/// If that takes too many steps.
pub(super) fn measure(schema: &Value, value: &Value) -> Result<(), String> {
    let mut open: Vec<Step<'_>> = vec![(schema, value, 0)];
    let mut steps = 0_usize;
    while let Some((part, value, level)) = open.pop() {
        let Value::Object(fields) = part else {
            continue;
        };
        steps += 1 + text_steps(fields, value);
        if let Some(reference) = fields.get("$ref") {
            open.push((target(schema, reference)?, value, level + 1));
        }
        same(fields, value, level + 1, &mut open);
        children(fields, value, level + 1, &mut open);
        // What waits was found, and so costs as much as what was looked at.
        if steps + open.len() > MOST_STEPS || level > MOST_LEVELS {
            return Err(
                "it is too large, or nests too deep, for its schema to be checked".to_owned(),
            );
        }
    }
    Ok(())
}

/// What looking for patterns in a text costs.
fn text_steps(fields: &Map<String, Value>, value: &Value) -> usize {
    match (value, fields.contains_key("pattern")) {
        (Value::String(text), true) => text.len() / BYTES_A_STEP,
        (Value::Object(found), _) => {
            let patterns = fields.get("patternProperties").and_then(Value::as_object);
            let names: usize = found.keys().map(|name| 1 + name.len() / BYTES_A_STEP).sum();
            let for_names = usize::from(fields.contains_key("propertyNames"));
            names * (patterns.map_or(0, Map::len) + for_names)
        }
        (
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
            _,
        ) => 0,
    }
}

/// The schemas that hold for the same value.
fn same<'v>(
    fields: &'v Map<String, Value>,
    value: &'v Value,
    level: usize,
    open: &mut Vec<Step<'v>>,
) {
    for found in SAME.iter().filter_map(|word| fields.get(*word)) {
        match found {
            Value::Array(parts) => open.extend(parts.iter().map(|part| (part, value, level))),
            Value::Object(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_) => open.push((found, value, level)),
        }
    }
    for word in ["dependencies", "dependentSchemas"] {
        let named = fields.get(word).and_then(Value::as_object);
        let parts = named.into_iter().flat_map(Map::values);
        open.extend(parts.map(|part| (part, value, level)));
    }
}

/// The schemas that hold for what is in the value.
fn children<'v>(
    fields: &'v Map<String, Value>,
    value: &'v Value,
    level: usize,
    open: &mut Vec<Step<'v>>,
) {
    // One more than may be looked at is enough to be refused.
    let items: Vec<&Value> = match value {
        Value::Array(items) => items.iter().take(MOST_STEPS + 1).collect(),
        Value::Object(found) => found.values().take(MOST_STEPS + 1).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
    };
    let each = EACH.iter().filter_map(|word| fields.get(*word));
    let patterns = fields.get("patternProperties").and_then(Value::as_object);
    for part in each.chain(patterns.into_iter().flat_map(Map::values)) {
        if open.len() > MOST_STEPS {
            return;
        }
        open.extend(items.iter().map(|item| (part, *item, level)));
    }
    if let (Some(named), Value::Object(found)) =
        (fields.get("properties").and_then(Value::as_object), value)
    {
        let both = named
            .iter()
            .filter_map(|(name, part)| Some((part, found.get(name)?, level)));
        open.extend(both);
    }
    for word in ["items", "prefixItems"] {
        if let (Some(Value::Array(parts)), Value::Array(_)) = (fields.get(word), value) {
            let both = parts.iter().zip(&items);
            open.extend(both.map(|(part, item)| (part, *item, level)));
        }
    }
}

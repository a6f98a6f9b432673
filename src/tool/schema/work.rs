//! Upper limits of the work and memory that the check of a value against a JSON Schema needs.
//!
//! Schemas that refer to themselves can multiply both without limit. This module therefore first walks the value along its schema,
//! in counted steps and without recursion.

use super::admission::target;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Maximum number of steps in the check of one value against its JSON Schema, as a limit on the work of the check.
const MAX_STEPS: usize = 50_000;
/// Maximum nesting depth of the schemas that one schema check applies.
const MAX_LEVELS: usize = 128;
/// Number of string bytes whose check by a schema keyword such as `pattern` counts as one step.
const BYTES_PER_STEP: usize = 16;
/// Number of names, enum values or array items whose comparison by a schema keyword counts as one step of a check.
const NAMES_PER_STEP: usize = 8;
/// Maximum memory in bytes of all errors of one schema check. `jsonschema` collects all errors before it returns the first one.
pub(super) const MAX_ERROR_BYTES: usize = 16 << 20;
/// Memory in bytes of one schema violation's error, not counting the strings and values that the error copies.
const ERROR_BYTES: usize = 512;
/// Estimated length in bytes of an array index in the path of a schema violation's error.
const INDEX_BYTES: usize = 8;

/// JSON Schema keywords whose schemas apply to the checked value itself, and not to its items or fields.
const IN_PLACE_KEYWORDS: [&str; 7] = ["allOf", "anyOf", "else", "if", "not", "oneOf", "then"];
/// JSON Schema keywords whose error contains the errors of all their schemas.
const CHOICES: [&str; 2] = ["anyOf", "oneOf"];
/// JSON Schema keywords whose schema applies to the items or fields of the checked value, and not to the value itself.
const CHILD_KEYWORDS: [&str; 4] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "items",
];

/// JSON Schema keywords that themselves report no error.
const SILENT: [&str; 19] = [
    "$comment",
    "$defs",
    "$id",
    "$ref",
    "$schema",
    "allOf",
    "default",
    "definitions",
    "description",
    "else",
    "examples",
    "format",
    "if",
    "items",
    "patternProperties",
    "prefixItems",
    "properties",
    "then",
    "title",
];

/// JSON Schema keywords whose value is never copied as a whole into an error. The values are schemas or lists of names. An error can
/// copy the value of any other keyword, for example `not` and `pattern`.
const NOT_COPIED: [&str; 9] = [
    "additionalItems",
    "additionalProperties",
    "anyOf",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "oneOf",
    "propertyNames",
];

/// Limit on the errors of one schema check (all, the first or none), so that the errors need at most [`MAX_ERROR_BYTES`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reportable {
    All,
    First,
    /// The check of a value can report no error within [`MAX_ERROR_BYTES`], because even the first error contains the errors of
    /// all alternatives.
    Nothing,
}

/// A step of a schema check that is not yet measured: a schema, and the value that it applies to.
#[derive(Clone, Copy)]
struct Step<'v> {
    subschema: &'v Value,
    value: &'v Value,
    level: usize,
    /// Length in bytes of the path to the value that this step of the check reads. Each error contains the path.
    path_bytes: usize,
    /// If `true`, this step of the check belongs to an `anyOf` or a `oneOf`, whose error contains the errors of the step.
    in_choice: bool,
}

impl<'v> Step<'v> {
    /// Returns the step of a schema check that applies another schema to the same value.
    fn with(self, subschema: &'v Value, in_choice: bool) -> Self {
        Self {
            subschema,
            level: self.level + 1,
            in_choice: self.in_choice || in_choice,
            ..self
        }
    }

    /// Returns the step of a schema check that applies a schema to an item or a field of the value.
    fn into_child(self, subschema: &'v Value, value: &'v Value, key_bytes: usize) -> Self {
        Self {
            subschema,
            value,
            level: self.level + 1,
            path_bytes: self.path_bytes + key_bytes + 1,
            in_choice: self.in_choice,
        }
    }
}

/// Upper bounds for the check of any value against the keywords of one schema object, without its subschemas: compared names,
/// errors and error bytes.
#[derive(Clone, Copy, Default)]
struct Cost {
    /// Number of property names and values that the check of one value compares.
    names: usize,
    errors: usize,
    error_bytes: usize,
}

/// Measures the work and memory that the check of a value against its JSON Schema would need. Returns how many errors the check can report.
///
/// # Errors
/// Returns a message if the check needs too many steps or levels.
pub(super) fn measure(schema: &Value, value: &Value) -> Result<Reportable, String> {
    let mut costs = HashMap::new();
    let mut sizes = HashMap::new();
    let mut pending = vec![Step {
        subschema: schema,
        value,
        level: 0,
        path_bytes: 0,
        in_choice: false,
    }];
    let (mut steps, mut all_bytes, mut choice_bytes) = (0_usize, 0_usize, 0_usize);
    while let Some(step) = pending.pop() {
        steps += 1;
        let mut error_bytes = ERROR_BYTES + step.path_bytes;
        if step.in_choice {
            // The error of an alternative owns a copy of the value.
            error_bytes += *sizes
                .entry(std::ptr::from_ref(step.value))
                .or_insert_with(|| copied_bytes(step.value));
        }
        if let Value::Object(fields) = step.subschema {
            let cost = costs
                .entry(std::ptr::from_ref(fields))
                .or_insert_with(|| cost(fields));
            let names = names_cost(fields, step.value, error_bytes);
            steps += cost.names / NAMES_PER_STEP + value_steps(fields, step.value) + names.names;
            error_bytes = error_bytes
                .saturating_mul(cost.errors)
                .saturating_add(cost.error_bytes)
                .saturating_add(unknown_bytes(fields, step.value))
                .saturating_add(names.error_bytes);
            if let Some(reference) = fields.get("$ref") {
                pending.push(step.with(target(schema, reference)?, false));
            }
            push_in_place(fields, step, &mut pending);
            push_children(fields, step, &mut pending);
        }
        all_bytes = all_bytes.saturating_add(error_bytes);
        if step.in_choice {
            choice_bytes = choice_bytes.saturating_add(error_bytes);
        }
        // A pending step costs as much as a finished one.
        if steps + pending.len() > MAX_STEPS || step.level > MAX_LEVELS {
            return Err(format!(
                "the value is too large or too deeply nested for its schema: the check is limited to {MAX_STEPS} steps \
                 and {MAX_LEVELS} levels; send fewer items or fields"
            ));
        }
    }
    Ok(match (all_bytes, choice_bytes) {
        (..=MAX_ERROR_BYTES, _) => Reportable::All,
        (_, ..=MAX_ERROR_BYTES) => Reportable::First,
        _ => Reportable::Nothing,
    })
}

/// Returns the upper bounds for the check of one value against the keywords of a schema object: compared names, errors and error
/// bytes. Each keyword reports at most one error, except keywords with lists of names.
fn cost(fields: &Map<String, Value>) -> Cost {
    let words = fields.keys().map(String::as_str);
    let mut cost = Cost {
        errors: words.filter(|word| !SILENT.contains(word)).count(),
        ..Cost::default()
    };
    let mut require = |names: &Value| {
        let names = names.as_array().map_or(&[][..], Vec::as_slice);
        cost.names += names.len();
        cost.errors += names.len();
        cost.error_bytes += names.iter().map(text_bytes).sum::<usize>();
    };
    fields.get("required").into_iter().for_each(&mut require);
    for word in ["dependencies", "dependentRequired"] {
        let lists = fields.get(word).and_then(Value::as_object);
        lists
            .into_iter()
            .flat_map(Map::values)
            .for_each(&mut require);
    }
    if let Some(Value::Array(options)) = fields.get("enum") {
        cost.names += options.len();
    }
    let is_copied =
        |word: &str| word != "required" && !SILENT.contains(&word) && !NOT_COPIED.contains(&word);
    let copied = fields.iter().filter(|(word, _)| is_copied(word));
    cost.error_bytes += copied.map(|(_, value)| copied_bytes(value)).sum::<usize>();
    cost
}

/// Returns the work and the memory for errors that the keyword `propertyNames` needs, whose schema applies to each field name of
/// an object. In the result, `names` is the number of steps, and `error_bytes` is the memory of the errors in bytes. Each error
/// contains a second error with the field name. The parameter `error_bytes` is the memory of the outer error.
fn names_cost(fields: &Map<String, Value>, value: &Value, error_bytes: usize) -> Cost {
    let (Some(subschema), Value::Object(found)) = (fields.get("propertyNames"), value) else {
        return Cost::default();
    };
    let none = Map::new();
    let inner = subschema.as_object().unwrap_or(&none);
    let per_name = cost(inner);
    // `false` allows no name.
    let errors = per_name.errors.max(usize::from(subschema == false));
    let mut total = Cost::default();
    for name in found.keys() {
        let error = error_bytes.saturating_add(ERROR_BYTES + name.len());
        let error = error.saturating_mul(errors);
        total.names += 1 + per_name.names / NAMES_PER_STEP + text_steps(inner, name);
        total.error_bytes = total
            .error_bytes
            .saturating_add(error)
            .saturating_add(per_name.error_bytes);
    }
    total
}

fn text_bytes(value: &Value) -> usize {
    value.as_str().map_or(0, str::len)
}

/// Returns the memory in bytes that a copy of a JSON value needs. The depth of schemas and of values is bounded elsewhere.
fn copied_bytes(value: &Value) -> usize {
    let inner: usize = match value {
        Value::Array(items) => items.iter().map(copied_bytes).sum(),
        Value::Object(fields) => {
            let pairs = fields.iter();
            pairs
                .map(|(name, value)| name.len() + copied_bytes(value))
                .sum()
        }
        Value::String(text) => text.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + inner
}

/// Returns the memory in bytes of the field names that the error of `additionalProperties` copies.
fn unknown_bytes(fields: &Map<String, Value>, value: &Value) -> usize {
    match (fields.get("additionalProperties"), value) {
        (Some(Value::Bool(false)), Value::Object(found)) => {
            let names = found.keys();
            names.map(|name| size_of::<String>() + name.len()).sum()
        }
        _ => 0,
    }
}

/// Returns the number of steps of the schema keywords whose work grows with the size of the value.
fn value_steps(fields: &Map<String, Value>, value: &Value) -> usize {
    let has = |word: &str| fields.contains_key(word);
    match value {
        Value::String(text) => text_steps(fields, text),
        Value::Array(items) => usize::from(has("uniqueItems")) * items.len() / NAMES_PER_STEP,
        Value::Object(found) => {
            let count = |word: &str| {
                fields
                    .get(word)
                    .and_then(Value::as_object)
                    .map_or(0, Map::len)
            };
            let patterns = count("patternProperties");
            let matched = match patterns {
                0 => 0,
                _ => {
                    let names = found.keys();
                    let steps: usize = names.map(|name| 1 + name.len() / BYTES_PER_STEP).sum();
                    steps * patterns
                }
            };
            matched + count("properties").min(found.len()) / NAMES_PER_STEP
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Returns the number of steps of the schema keywords that read a string.
fn text_steps(fields: &Map<String, Value>, text: &str) -> usize {
    let has = |word: &str| fields.contains_key(word);
    if has("pattern") {
        return text.len() / BYTES_PER_STEP;
    }
    // Counting and comparing characters is faster than matching them, and still reads all of them.
    let reads = has("maxLength") || has("minLength") || has("const") || has("enum");
    usize::from(reads) * text.len() / (BYTES_PER_STEP * NAMES_PER_STEP)
}

/// Adds to `pending` the steps that apply subschemas, such as those of `allOf`, to the value of `step` itself.
fn push_in_place<'v>(fields: &'v Map<String, Value>, step: Step<'v>, pending: &mut Vec<Step<'v>>) {
    for word in IN_PLACE_KEYWORDS {
        let in_choice = CHOICES.contains(&word);
        match fields.get(word) {
            Some(Value::Array(subschemas)) => {
                pending.extend(
                    subschemas
                        .iter()
                        .map(|subschema| step.with(subschema, in_choice)),
                );
            }
            Some(subschema) => pending.push(step.with(subschema, in_choice)),
            None => {}
        }
    }
    for word in ["dependencies", "dependentSchemas"] {
        let named = fields.get(word).and_then(Value::as_object);
        let subschemas = named.into_iter().flat_map(Map::values);
        pending.extend(subschemas.map(|subschema| step.with(subschema, false)));
    }
}

/// Adds to `pending` the steps that apply subschemas, such as those of `items`, to the items or fields in the value of `step`.
fn push_children<'v>(fields: &'v Map<String, Value>, step: Step<'v>, pending: &mut Vec<Step<'v>>) {
    let each = CHILD_KEYWORDS.iter().filter_map(|word| fields.get(*word));
    let patterns = fields.get("patternProperties").and_then(Value::as_object);
    for subschema in each.chain(patterns.into_iter().flat_map(Map::values)) {
        // One step more than the limit is enough for a refusal.
        let remaining = (MAX_STEPS + 1).saturating_sub(pending.len());
        match step.value {
            Value::Array(items) => {
                let items = items.iter().take(remaining);
                pending.extend(items.map(|item| step.into_child(subschema, item, INDEX_BYTES)));
            }
            Value::Object(found) => {
                let found = found.iter().take(remaining);
                pending.extend(
                    found.map(|(name, value)| step.into_child(subschema, value, name.len())),
                );
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
        }
    }
    if let (Some(Value::Object(named)), Value::Object(found)) =
        (fields.get("properties"), step.value)
    {
        let child = |(name, subschema, value): (&String, &'v Value, &'v Value)| {
            step.into_child(subschema, value, name.len())
        };
        // The schema and the value may both come from an untrusted writer, so the walk iterates over the shorter side.
        if named.len() <= found.len() {
            let both = named
                .iter()
                .filter_map(|(name, subschema)| Some((name, subschema, found.get(name)?)));
            pending.extend(both.map(child));
        } else {
            let both = found
                .iter()
                .filter_map(|(name, value)| Some((name, named.get(name)?, value)));
            pending.extend(both.map(child));
        }
    }
    for word in ["items", "prefixItems"] {
        if let (Some(Value::Array(subschemas)), Value::Array(items)) =
            (fields.get(word), step.value)
        {
            let both = subschemas.iter().zip(items);
            pending.extend(
                both.map(|(subschema, item)| step.into_child(subschema, item, INDEX_BYTES)),
            );
        }
    }
}

//! Evaluation of conditions in rules that restrict tool calls. A condition that cannot be decided holds, so the rule applies.

use super::{CompiledCondition, Condition, REGEX_HAYSTACK};
use crate::model::compare::order;
use crate::model::op::Op;
use crate::model::path::{PatternStep, Step, item, pattern};
use serde_json::Value;
use std::mem::discriminant;

/// Result of following the path of a condition in the checked value, such as the arguments of a tool call.
enum PathLookup<'v> {
    Value(&'v Value),
    /// An object has no member with the name, or an array has no item at the index.
    Missing,
    /// A step of the path cannot be applied: a name to a value that is not an object, or an index to a value that is not an array.
    Undecided,
}

impl Condition {
    /// Returns `true` if the condition holds or cannot be decided, and `false` only if it surely does not hold.
    ///
    /// The result is also `true` if the path has no value, if a value and the compared value have different types, or if the evaluation
    /// fails. With wildcards, an element without a value gives `true`. A path with a filter, a slice, a union or `..` always gives
    /// `true`. `exists` alone decides about a path without a value, provided that the path has only names and indexes.
    pub(crate) fn may_hold(&self, value: &Value) -> bool {
        let Ok(compiled) = &self.compiled else {
            return true;
        };
        let is_exists = matches!(compiled.op, Op::Exists);
        let Some(steps) = compiled.path.steps() else {
            return match pattern(compiled.path.source()) {
                Ok(steps) if !is_exists => compiled.may_hold_at(&steps, value),
                Ok(_) | Err(_) => true,
            };
        };
        let expects_value = compiled.value != Value::Bool(false);
        match walk(steps, value) {
            PathLookup::Value(_) if is_exists => expects_value,
            PathLookup::Missing if is_exists => !expects_value,
            PathLookup::Value(node) => compiled.node_may_hold(node),
            PathLookup::Missing | PathLookup::Undecided => true,
        }
    }
}

impl CompiledCondition {
    /// Returns `true` if the condition may hold for a node that a JSONPath with wildcards selects in `value`. The recursion is at
    /// most 32 steps deep.
    fn may_hold_at(&self, steps: &[PatternStep], value: &Value) -> bool {
        let Some((step, rest)) = steps.split_first() else {
            return self.node_may_hold(value);
        };
        let next = match (step, value) {
            (PatternStep::Name(name), _) => member(value, name),
            (PatternStep::Index(index), _) => item_at(value, *index),
            (PatternStep::Each, Value::Array(items)) => {
                let mut holds = items.iter().map(|item| self.may_hold_at(rest, item));
                return items.is_empty() || holds.any(|holds| holds);
            }
            (PatternStep::Each, Value::Object(fields)) => {
                let mut holds = fields.values().map(|field| self.may_hold_at(rest, field));
                return fields.is_empty() || holds.any(|holds| holds);
            }
            (PatternStep::Each | PatternStep::Anywhere(_), _) => PathLookup::Undecided,
        };
        match next {
            PathLookup::Value(next) => self.may_hold_at(rest, next),
            PathLookup::Missing | PathLookup::Undecided => true,
        }
    }

    fn node_may_hold(&self, node: &Value) -> bool {
        self.node_holds(node) || !self.compares(node)
    }

    /// Returns `true` if the node has a type that the operator can compare with the condition's value.
    fn compares(&self, node: &Value) -> bool {
        match self.op {
            Op::Eq => have_same_types(node, &self.value),
            Op::In => match &self.value {
                Value::Array(list) => {
                    !list.is_empty() && list.iter().all(|item| have_same_types(node, item))
                }
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Object(_) => false,
            },
            Op::Gt | Op::Gte | Op::Lt | Op::Lte => order(node, &self.value).is_some(),
            Op::Contains => match node {
                Value::Array(items) => items.iter().all(|item| have_same_types(item, &self.value)),
                Value::String(_) | Value::Object(_) => self.value.is_string(),
                Value::Null | Value::Bool(_) | Value::Number(_) => false,
            },
            Op::ContainsAny | Op::ContainsAll => match (node, &self.value) {
                (Value::Array(items), Value::Array(list)) => items
                    .iter()
                    .all(|item| list.iter().all(|expected| have_same_types(item, expected))),
                (
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::String(_)
                    | Value::Array(_)
                    | Value::Object(_),
                    _,
                ) => false,
            },
            Op::StartsWith | Op::EndsWith => node.is_string() && self.value.is_string(),
            Op::Matches => {
                let text = node.as_str();
                self.regex.is_some() && text.is_some_and(|text| text.len() <= REGEX_HAYSTACK)
            }
            Op::Ne | Op::Exists => true,
        }
    }
}

/// Follows a path of names and indexes in a value, and returns the node at the end, or the reason why it does not exist.
fn walk<'v>(steps: &[Step], value: &'v Value) -> PathLookup<'v> {
    let mut node = value;
    for step in steps {
        let next = match step {
            Step::Name(name) => member(node, name),
            Step::Index(index) => item_at(node, *index),
        };
        match next {
            PathLookup::Value(next) => node = next,
            PathLookup::Missing | PathLookup::Undecided => return next,
        }
    }
    PathLookup::Value(node)
}

fn member<'v>(value: &'v Value, name: &str) -> PathLookup<'v> {
    match value.as_object() {
        Some(fields) => fields
            .get(name)
            .map_or(PathLookup::Missing, PathLookup::Value),
        None => PathLookup::Undecided,
    }
}

fn item_at(value: &Value, index: i64) -> PathLookup<'_> {
    match value.is_array() {
        true => item(value, index).map_or(PathLookup::Missing, PathLookup::Value),
        false => PathLookup::Undecided,
    }
}

/// Returns `true` if two JSON values and their nested members have the same types, so that a comparison decides a condition. Returns
/// `false` for `5` and `"5"`. The depth of the shallower value limits the recursion, and one of the values comes from a validated
/// definition.
fn have_same_types(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() != b.len() || a.iter().zip(b).all(|(a, b)| have_same_types(a, b))
        }
        (Value::Object(a), Value::Object(b)) => a
            .iter()
            .all(|(key, a)| b.get(key).is_none_or(|b| have_same_types(a, b))),
        (Value::Null | Value::Bool(_) | Value::String(_), _)
        | (Value::Number(_) | Value::Array(_) | Value::Object(_), _) => {
            discriminant(a) == discriminant(b)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn may_hold(path: &str, op: &str, value: Value, arguments: &Value) -> bool {
        Condition::new(path, op, Some(value)).may_hold(arguments)
    }

    #[test]
    fn a_decidable_condition_has_the_same_result_as_in_a_subscription() {
        let arguments = json!({"n": 5, "s": "abc", "list": ["a", "b"], "t": true});
        for (path, op, value, expected) in [
            ("$.n", "gt", json!(4), true),
            ("$.n", "gt", json!(5), false),
            ("$.s", "lt", json!("b"), true),
            ("$.s", "gte", json!("b"), false),
            ("$.t", "eq", json!(false), false),
            ("$.s", "in", json!(["x", "y"]), false),
            ("$.list", "contains", json!("c"), false),
            ("$.list", "contains_any", json!(["c", "b"]), true),
            ("$.list", "contains_all", json!(["a", "c"]), false),
            ("$.s", "starts_with", json!("b"), false),
            ("$.s", "matches", json!("^b"), false),
            ("$.list[*]", "eq", json!("z"), false),
            ("$.missing", "exists", json!(true), false),
            ("$.missing", "ne", json!(1), true),
            ("$.n", "ne", json!(5), false),
        ] {
            let found = may_hold(path, op, value.clone(), &arguments);
            assert_eq!(found, expected, "{path} {op} {value}");
        }
    }

    #[test]
    fn a_condition_that_cannot_be_decided_holds() {
        let arguments = json!({
            "n": "5", "s": 5, "list": "a", "mixed": [1, "2"], "long": "x".repeat(REGEX_HAYSTACK + 1), "null": null,
        });
        for (path, op, value) in [
            ("$.n", "gt", json!(100)),
            ("$.n", "eq", json!(6)),
            ("$.n", "in", json!([1, 2])),
            ("$.s", "starts_with", json!("a")),
            ("$.s", "contains", json!("a")),
            ("$.s", "matches", json!("^a")),
            ("$.long", "matches", json!("^a")),
            ("$.list", "contains_any", json!(["b"])),
            ("$.mixed[*]", "gt", json!(100)),
            ("$.null", "lte", json!(100)),
            ("$.missing", "gt", json!(100)),
            ("$.missing", "eq", json!(1)),
            ("$.n", "gt", json!(true)),
            ("$.n[", "eq", json!(1)),
            ("$.n", "gtt", json!(1)),
        ] {
            let found = may_hold(path, op, value.clone(), &arguments);
            assert!(found, "{path} {op} {value}");
        }
    }

    #[test]
    fn a_condition_holds_unless_each_value_of_its_path_decides_against_it() {
        let arguments = json!({
            "lines": [{"amount": 5, "country": "NO"}, {"amount": 6, "country": "NO"}],
            "partial": [{"amount": 5}, {}], "empty": [], "text": "x", "null": null,
            "deep": {"a": {"n": 1}, "b": {"n": 1}}, "numbers": [1, 2], "mixed": [1, "2"], "to": {"iban": 5},
        });
        for (path, op, value, expected) in [
            ("$.lines[*].amount", "gt", json!(6), false),
            ("$.lines[*].amount", "gt", json!(5), true),
            ("$.lines[*].country", "ne", json!("NO"), false),
            ("$.lines[*].country", "ne", json!("DE"), true),
            ("$.lines[*].missing", "ne", json!("NO"), true),
            ("$.partial[*].amount", "gt", json!(100), true),
            ("$.partial[*].amount", "ne", json!(5), true),
            ("$.empty[*].amount", "gt", json!(100), true),
            ("$.empty[*]", "ne", json!(1), true),
            ("$.text[*]", "eq", json!("y"), true),
            ("$.deep.*.n", "gt", json!(1), false),
            ("$..amount", "gt", json!(100), true),
            ("$.lines[?@.amount > 100].amount", "gt", json!(100), true),
            ("$.lines[0:1].amount", "gt", json!(100), true),
            ("$.lines[0,1].amount", "gt", json!(100), true),
            ("$.lines[0].amount", "exists", json!(true), true),
            ("$.lines[0].amount", "exists", json!(false), false),
            ("$.lines[7]", "exists", json!(true), false),
            ("$.lines[*].missing", "exists", json!(true), true),
            ("$.lines[?@.amount > 100]", "exists", json!(true), true),
            ("$.text.missing", "exists", json!(true), true),
            ("$.null.missing", "exists", json!(true), true),
            ("$.missing", "exists", json!(false), true),
            ("$.numbers", "contains", json!(3), false),
            ("$.numbers", "contains", json!("3"), true),
            ("$.mixed", "contains", json!(3), true),
            ("$.numbers", "contains_any", json!([3]), false),
            ("$.numbers", "contains_any", json!(["1"]), true),
            ("$.numbers", "contains_all", json!([1, "2"]), true),
            ("$.lines[0].amount", "in", json!([1, 2]), false),
            ("$.lines[0].amount", "in", json!([1, "5"]), true),
            ("$.lines[0].amount", "in", json!([]), true),
            ("$.to", "eq", json!({"iban": 6}), false),
            ("$.to", "eq", json!({"iban": "5"}), true),
        ] {
            let found = may_hold(path, op, value.clone(), &arguments);
            assert_eq!(found, expected, "{path} {op} {value}");
        }
        for arguments in [json!(null), json!([5]), json!("x")] {
            let found = may_hold("$.amount", "exists", json!(true), &arguments);
            assert!(found, "{arguments}");
        }
    }
}

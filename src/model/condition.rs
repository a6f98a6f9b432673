use super::compare::{equal, order};
use super::json_check::is_too_deep;
use super::nearest::nearest;
use super::path::{Path, PathError};
use crate::error::excerpt;
use regex::{Regex, RegexBuilder};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// One test of a `context_match`: a path into the context, an operator and a value.
///
/// Compiled once, when it is made. One that could not be compiled keeps the reason, is refused by
/// [`Subscriptions::new`](super::Subscriptions::new) and never holds.
#[derive(Clone, Debug)]
pub struct Condition {
    path: String,
    op: String,
    value: Option<Value>,
    test: Result<Test, ConditionError>,
}

/// How a condition compares the nodes at its path with its value.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Op {
    /// Deep equality; numbers by value.
    Eq,
    /// No node is equal, or there is none.
    Ne,
    /// Greater: two numbers, or two strings by code point.
    Gt,
    /// Greater or equal.
    Gte,
    /// Less.
    Lt,
    /// Less or equal.
    Lte,
    /// The value, a list, has an equal of the node.
    In,
    /// A string with that substring, an array with an equal, an object with that key.
    Contains,
    /// An array with an equal of some of the value, a list.
    ContainsAny,
    /// An array with an equal of each of the value, a list.
    ContainsAll,
    /// A string that begins so.
    StartsWith,
    /// A string that ends so.
    EndsWith,
    /// A string in which the regular expression (syntax of the `regex` crate, linear time) finds a match.
    Matches,
    /// The path has a node; with the value `false`: has none.
    Exists,
}

impl Op {
    /// Every operator.
    pub const ALL: [Self; 14] = [
        Self::Eq,
        Self::Ne,
        Self::Gt,
        Self::Gte,
        Self::Lt,
        Self::Lte,
        Self::In,
        Self::Contains,
        Self::ContainsAny,
        Self::ContainsAll,
        Self::StartsWith,
        Self::EndsWith,
        Self::Matches,
        Self::Exists,
    ];

    /// The name in definitions: `eq`, `contains_any`, ..
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Ne => "ne",
            Self::Gt => "gt",
            Self::Gte => "gte",
            Self::Lt => "lt",
            Self::Lte => "lte",
            Self::In => "in",
            Self::Contains => "contains",
            Self::ContainsAny => "contains_any",
            Self::ContainsAll => "contains_all",
            Self::StartsWith => "starts_with",
            Self::EndsWith => "ends_with",
            Self::Matches => "matches",
            Self::Exists => "exists",
        }
    }
}

impl AsRef<str> for Op {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl FromStr for Op {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|op| op.as_str() == text);
        known.ok_or_else(|| ConditionError::UnknownOp {
            op: excerpt(text, 64).into_owned(),
            nearest: nearest(text, Self::ALL.map(Self::as_str)),
        })
    }
}

/// Why a condition can never be evaluated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    /// The path is no JSONPath within the limits.
    #[error("{0}")]
    Path(PathError),
    /// The operator does not exist.
    #[error("op {op:?} is not known{}", did_you_mean(*nearest))]
    UnknownOp {
        /// The text found.
        op: String,
        /// The closest operator.
        nearest: Option<&'static str>,
    },
    /// Every operator but `exists` compares with a value.
    #[error("op {:?} needs a value", op.as_str())]
    NoValue {
        /// The operator.
        op: Op,
    },
    /// `exists` takes `true`, `false` or no value.
    #[error("op \"exists\" takes true or false, not {found}")]
    NotABoolean {
        /// The value found.
        found: String,
    },
    /// The value nests too deep.
    #[error("the value nests deeper than {} levels", super::json_check::MAX_DEPTH)]
    ValueTooDeep,
    /// The regular expression does not compile, or is too large when compiled.
    #[error("{reason}")]
    Regex {
        /// What the regex compiler says.
        reason: String,
    },
}

impl ConditionError {
    /// The field of the condition that is wrong.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Path(_) => "path",
            Self::UnknownOp { .. } => "op",
            Self::NoValue { .. }
            | Self::NotABoolean { .. }
            | Self::ValueTooDeep
            | Self::Regex { .. } => "value",
        }
    }
}

pub(super) fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or(String::new(), |name| format!("; did you mean {name:?}?"))
}

/// The compiled form.
#[derive(Clone, Debug)]
struct Test {
    path: Path,
    op: Op,
    value: Value,
    regex: Option<Regex>,
}

/// The largest compiled regex, in bytes.
const REGEX_BYTES: usize = 256 << 10;
/// The longest regex, and the longest string it is run on, in bytes.
const REGEX_PATTERN: usize = 4 << 10;
const REGEX_HAYSTACK: usize = 64 << 10;

impl Condition {
    /// Compiles a condition; what is wrong with it is kept and told by [`error`](Self::error).
    pub fn new(path: impl Into<String>, op: impl AsRef<str>, value: Option<Value>) -> Self {
        let (path, op) = (path.into(), op.as_ref().to_owned());
        let test = Test::compile(&path, &op, value.as_ref());
        Self {
            path,
            op,
            value,
            test,
        }
    }

    /// Why it never holds, if it could not be compiled.
    #[must_use]
    pub fn error(&self) -> Option<&ConditionError> {
        self.test.as_ref().err()
    }

    /// The path as it was written.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The compiled path and operator.
    pub(super) fn compiled(&self) -> Option<(&Path, Op, &Value)> {
        let test = self.test.as_ref().ok()?;
        Some((&test.path, test.op, &test.value))
    }

    /// Whether it holds on a context. What cannot be evaluated does not hold.
    #[must_use]
    pub fn holds(&self, context: &Value) -> bool {
        let Ok(test) = &self.test else { return false };
        let any = |check: &dyn Fn(&Value) -> bool| test.path.any(context, check);
        let outcome = match test.op {
            Op::Ne => any(&|node| equal(node, &test.value)).map(|equal| !equal),
            Op::Exists => any(&|_| true).map(|exists| exists == (test.value != Value::Bool(false))),
            Op::Eq
            | Op::Gt
            | Op::Gte
            | Op::Lt
            | Op::Lte
            | Op::In
            | Op::Contains
            | Op::ContainsAny
            | Op::ContainsAll
            | Op::StartsWith
            | Op::EndsWith
            | Op::Matches => any(&|node| test.node_holds(node)),
        };
        outcome.unwrap_or(false)
    }

    /// Says why it does not hold: `$.tool: "adder" is not eq "web-analyzer"`.
    pub(super) fn explain(&self, context: &Value) -> String {
        const SHOWN: usize = 3;
        let test = match &self.test {
            Ok(test) => test,
            Err(error) => return format!("{}: {error}", excerpt(&self.path, 80)),
        };
        let path = excerpt(test.path.source(), 80).into_owned();
        let nodes = match test.path.nodes(context) {
            Ok(nodes) => nodes,
            Err(error) => return format!("{path}: {error}"),
        };
        let (op, value) = (test.op.as_str(), shown(&test.value));
        match test.op {
            Op::Exists if nodes.is_empty() => return format!("{path}: missing"),
            Op::Exists => return format!("{path}: exists"),
            Op::Ne => return format!("{path}: {value} is not ne {value}"),
            Op::Eq
            | Op::Gt
            | Op::Gte
            | Op::Lt
            | Op::Lte
            | Op::In
            | Op::Contains
            | Op::ContainsAny
            | Op::ContainsAll
            | Op::StartsWith
            | Op::EndsWith
            | Op::Matches => {}
        }
        if nodes.is_empty() {
            return format!("{path}: missing, so it is not {op} {value}");
        }
        let mut found: String = nodes
            .iter()
            .take(SHOWN)
            .map(|node| shown(node))
            .collect::<Vec<_>>()
            .join(", ");
        if nodes.len() > SHOWN {
            found.push_str(&format!(" and {} more", nodes.len() - SHOWN));
        }
        format!("{path}: {found} is not {op} {value}")
    }

    /// Why it can never hold, where that is certain from its value alone.
    pub(super) fn never_holds(&self) -> Option<String> {
        let (_, op, value) = self.compiled()?;
        let fits = match op {
            Op::Gt | Op::Gte | Op::Lt | Op::Lte => value.is_number() || value.is_string(),
            Op::In | Op::ContainsAny => value.as_array().is_some_and(|list| !list.is_empty()),
            Op::ContainsAll => value.is_array(),
            Op::StartsWith | Op::EndsWith | Op::Matches => value.is_string(),
            Op::Eq | Op::Ne | Op::Contains | Op::Exists => true,
        };
        (!fits).then(|| {
            format!(
                "op {:?} never holds with the value {}",
                op.as_str(),
                shown(value)
            )
        })
    }
}

impl fmt::Display for Condition {
    /// What it asks for, for people: `$.tool eq "adder"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", excerpt(&self.path, 80), excerpt(&self.op, 80))?;
        match &self.value {
            Some(value) => write!(f, " {}", shown(value)),
            None => Ok(()),
        }
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.op, &self.value) == (&other.path, &other.op, &other.value)
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("path", &self.path)?;
        map.serialize_entry("op", &self.op)?;
        if let Some(value) = &self.value {
            map.serialize_entry("value", value)?;
        }
        map.end()
    }
}

impl Test {
    fn compile(path: &str, op: &str, value: Option<&Value>) -> Result<Self, ConditionError> {
        let op: Op = op.parse()?;
        let path = Path::parse(path).map_err(ConditionError::Path)?;
        if value.is_some_and(is_too_deep) {
            return Err(ConditionError::ValueTooDeep);
        }
        let value = match (op, value) {
            (Op::Exists, None) => Value::Bool(true),
            (Op::Exists, Some(Value::Bool(wanted))) => Value::Bool(*wanted),
            (Op::Exists, Some(other)) => {
                return Err(ConditionError::NotABoolean {
                    found: shown(other),
                });
            }
            (_, Some(value)) => value.clone(),
            (_, None) => return Err(ConditionError::NoValue { op }),
        };
        let regex = match (op, &value) {
            (Op::Matches, Value::String(pattern)) => Some(compile_regex(pattern)?),
            _ => None,
        };
        Ok(Self {
            path,
            op,
            value,
            regex,
        })
    }

    fn node_holds(&self, node: &Value) -> bool {
        let (value, text) = (&self.value, node.as_str());
        let ordered = |wanted: fn(Ordering) -> bool| order(node, value).is_some_and(wanted);
        let list = || value.as_array().map(Vec::as_slice).unwrap_or_default();
        let holds_equal =
            |items: &[Value], wanted: &Value| items.iter().any(|item| equal(item, wanted));
        match self.op {
            Op::Eq => equal(node, value),
            Op::Ne => !equal(node, value),
            Op::Gt => ordered(Ordering::is_gt),
            Op::Gte => ordered(Ordering::is_ge),
            Op::Lt => ordered(Ordering::is_lt),
            Op::Lte => ordered(Ordering::is_le),
            Op::In => holds_equal(list(), node),
            Op::Contains => match node {
                Value::String(text) => value.as_str().is_some_and(|part| text.contains(part)),
                Value::Array(items) => holds_equal(items, value),
                Value::Object(fields) => value.as_str().is_some_and(|key| fields.contains_key(key)),
                Value::Null | Value::Bool(_) | Value::Number(_) => false,
            },
            Op::ContainsAny => node
                .as_array()
                .is_some_and(|items| list().iter().any(|wanted| holds_equal(items, wanted))),
            Op::ContainsAll => {
                value.is_array()
                    && node
                        .as_array()
                        .is_some_and(|items| list().iter().all(|wanted| holds_equal(items, wanted)))
            }
            Op::StartsWith => text
                .zip(value.as_str())
                .is_some_and(|(text, part)| text.starts_with(part)),
            Op::EndsWith => text
                .zip(value.as_str())
                .is_some_and(|(text, part)| text.ends_with(part)),
            Op::Matches => text
                .zip(self.regex.as_ref())
                .is_some_and(|(text, regex)| text.len() <= REGEX_HAYSTACK && regex.is_match(text)),
            Op::Exists => true,
        }
    }
}

fn compile_regex(pattern: &str) -> Result<Regex, ConditionError> {
    let shown = excerpt(pattern, 80);
    if pattern.len() > REGEX_PATTERN {
        let reason = format!(
            "the regex {shown:?} has {} bytes where at most {REGEX_PATTERN} are allowed",
            pattern.len()
        );
        return Err(ConditionError::Regex { reason });
    }
    RegexBuilder::new(pattern)
        .size_limit(REGEX_BYTES)
        .dfa_size_limit(REGEX_BYTES)
        .build()
        .map_err(|error| ConditionError::Regex {
            reason: match error {
                regex::Error::CompiledTooBig(limit) => {
                    format!("the regex {shown:?} is larger than {limit} bytes when compiled")
                }
                error => {
                    // Before its last line the error draws the whole pattern.
                    let text = error.to_string();
                    let reason = text.lines().last().unwrap_or_default();
                    format!(
                        "{shown:?} is not a regex: {}",
                        reason.trim_start_matches("error: ")
                    )
                }
            },
        })
}

/// A value as a message shows it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() > 16 => format!("a list of {} items", items.len()),
        Value::Object(fields) => format!("an object of {} fields", fields.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            excerpt(&value.to_string(), 80).into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn holds(path: &str, op: &str, value: Value, context: &Value) -> bool {
        Condition::new(path, op, Some(value)).holds(context)
    }

    #[test]
    fn each_operator_holds_where_the_table_says_and_only_there() {
        let context = json!({
            "n": 5, "f": 5.0, "s": "web-analyzer", "list": ["a", 1, [2]], "object": {"key": null}, "t": true, "null": null
        });
        for (path, op, value, expected) in [
            ("n", "eq", json!(5.0), true),
            ("n", "eq", json!("5"), false),
            ("object", "eq", json!({"key": null}), true),
            ("null", "eq", json!(null), true),
            ("n", "ne", json!(5.0), false),
            ("n", "ne", json!(6), true),
            ("n", "gt", json!(4.5), true),
            ("n", "gt", json!(5), false),
            ("n", "gte", json!(5), true),
            ("s", "lt", json!("x"), true),
            ("s", "lte", json!("web"), false),
            ("t", "gt", json!(false), false),
            ("n", "lt", json!("9"), false),
            ("n", "in", json!([1, 5.0]), true),
            ("n", "in", json!([]), false),
            ("s", "contains", json!("-ana"), true),
            ("list", "contains", json!([2.0]), true),
            ("list", "contains", json!("b"), false),
            ("object", "contains", json!("key"), true),
            ("n", "contains", json!(5), false),
            ("list", "contains_any", json!(["z", 1.0]), true),
            ("list", "contains_any", json!([]), false),
            ("s", "contains_any", json!(["web-analyzer"]), false),
            ("list", "contains_all", json!(["a", 1]), true),
            ("list", "contains_all", json!(["a", "b"]), false),
            ("list", "contains_all", json!([]), true),
            ("s", "starts_with", json!("web"), true),
            ("n", "starts_with", json!("5"), false),
            ("s", "ends_with", json!("lyzer"), true),
            ("s", "matches", json!("^web-[a-z]+$"), true),
            ("s", "matches", json!("^analyzer"), false),
            ("n", "matches", json!("5"), false),
            ("n", "exists", json!(true), true),
            ("null", "exists", json!(true), true),
            ("n", "exists", json!(false), false),
        ] {
            assert_eq!(
                holds(path, op, value.clone(), &context),
                expected,
                "{path} {op} {value}"
            );
        }
    }

    #[test]
    fn a_missing_path_fails_every_operator_but_ne_and_exists_false() {
        let context = json!({});
        for op in Op::ALL {
            let value = if op == Op::Exists {
                json!(true)
            } else {
                json!(["a"])
            };
            assert_eq!(
                holds("$.gone", op.as_str(), value, &context),
                op == Op::Ne,
                "{op:?}"
            );
        }
        assert!(holds("$.gone", "exists", json!(false), &context));
    }

    #[test]
    fn of_several_nodes_any_may_hold_and_for_ne_none_may_be_equal() {
        let context = json!({"tags": ["a", "b"]});

        assert!(holds("$.tags[*]", "eq", json!("b"), &context));
        assert!(!holds("$.tags[*]", "ne", json!("b"), &context));
        assert!(holds("$.tags[*]", "ne", json!("c"), &context));
    }

    #[test]
    fn a_condition_that_cannot_be_evaluated_never_holds() {
        for (path, op, value) in [
            ("$[", "ne", Some(json!(1))),
            ("$[", "exists", Some(json!(false))),
            ("$.a", "sounds_like", Some(json!(1))),
            ("$.a", "eq", None),
        ] {
            let condition = Condition::new(path, op, value);
            assert!(
                condition.error().is_some() && !condition.holds(&json!({})),
                "{path} {op}"
            );
        }
    }

    #[test]
    fn a_regex_beyond_the_limits_is_an_error_and_a_long_string_does_not_match() {
        for pattern in ["(", r"\w{2000}", &"a".repeat(5_000)] {
            let condition = Condition::new("a", "matches", Some(json!(pattern)));
            assert!(
                matches!(condition.error(), Some(ConditionError::Regex { .. })),
                "{}",
                excerpt(pattern, 20)
            );
        }
        assert!(!holds(
            "a",
            "matches",
            json!("x"),
            &json!({"a": "x".repeat(REGEX_HAYSTACK + 1)})
        ));
    }

    #[test]
    fn an_explanation_names_path_node_operator_and_value() {
        let context = json!({"tool": "adder", "many": [1, 2, 3, 4, 5]});
        for (path, op, value, expected) in [
            (
                "tool",
                "eq",
                json!("web-analyzer"),
                r#"$.tool: "adder" is not eq "web-analyzer""#,
            ),
            ("gone", "eq", json!(1), "$.gone: missing, so it is not eq 1"),
            ("gone", "exists", json!(true), "$.gone: missing"),
            ("tool", "exists", json!(false), "$.tool: exists"),
            (
                "tool",
                "ne",
                json!("adder"),
                r#"$.tool: "adder" is not ne "adder""#,
            ),
            (
                "$.many[*]",
                "gt",
                json!(9),
                "$.many[*]: 1, 2, 3 and 2 more is not gt 9",
            ),
        ] {
            assert_eq!(
                Condition::new(path, op, Some(value)).explain(&context),
                expected
            );
        }
    }
}

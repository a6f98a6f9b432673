mod error;
mod fail_closed;

pub use error::ConditionError;
pub(super) use error::did_you_mean;

use super::compare::{equal, order};
use super::json_check::{JsonError, admit};
use super::op::Op;
use super::path::{MAX_SEARCH_STEPS, Path};
use crate::error::{Chain, excerpt};
use regex::{Regex, RegexBuilder};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A condition on a breadcrumb's context: a JSONPath, an operator and a value. An item of `context_match` in definitions.
///
/// [`Condition::new`] compiles the path and the value. A condition that does not compile stores the error and never holds, and
/// [`Subscriptions::new`](super::Subscriptions::new) rejects it.
///
/// All conditions of one selector must hold. A path that selects several nodes holds if one node
/// passes, see [`Op`].
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::model::Condition;
///
/// let large = Condition::new("$.lines[*].count", "gte", Some(json!(10)));
///
/// assert!(large.holds(&json!({"lines": [{"count": 1}, {"count": 12}]})));
/// assert!(!large.holds(&json!({"lines": []})));
/// assert_eq!(large.to_string(), "$.lines[*].count gte 10");
/// ```
#[derive(Clone, Debug)]
pub struct Condition {
    path: String,
    op: String,
    value: Option<Value>,
    /// The compiled JSONPath, operator and value of the condition, or the reason why they cannot be compiled. All clones share
    /// one compiled regular expression.
    compiled: Result<Arc<CompiledCondition>, ConditionError>,
}

/// A breadcrumb's context on which conditions are evaluated. Implemented for parsed values, JSON payloads and unreadable
/// contexts.
pub(super) trait ConditionContext {
    /// Returns `true` if the breadcrumb's context is available, so that conditions on the context can be decided. If `false`, the
    /// context counts as missing.
    fn is_available(&self) -> bool;

    /// Returns `true` if `check` holds for a node that the JSONPath `path` selects in the breadcrumb's context. Returns `None` if
    /// the evaluation of the path fails or takes more than `limit` steps.
    fn any(&self, path: &Path, limit: usize, check: &dyn Fn(&Value) -> bool) -> Option<bool>;
}

impl ConditionContext for Value {
    fn is_available(&self) -> bool {
        true
    }

    fn any(&self, path: &Path, limit: usize, check: &dyn Fn(&Value) -> bool) -> Option<bool> {
        search(path, self, limit, check)
    }
}

/// Returns `true` if `check` holds for a node that `path` selects in `value`. Returns `None` if the evaluation of the path fails or takes
/// more than `limit` steps.
pub(super) fn search(
    path: &Path,
    value: &Value,
    limit: usize,
    check: &dyn Fn(&Value) -> bool,
) -> Option<bool> {
    if let Err(error) = path.admit_search(value, limit) {
        tracing::warn!(error = %Chain(&error), "condition does not match because its path takes too many steps to search the breadcrumb's context");
        return None;
    }
    path.any(value, check).ok()
}

/// The compiled JSONPath, operator and value of a condition, with the regular expression if the operator needs one.
#[derive(Clone, Debug)]
struct CompiledCondition {
    path: Path,
    op: Op,
    value: Value,
    regex: Option<Regex>,
}

/// Maximum size of a condition's compiled regular expression in bytes.
const REGEX_BYTES: usize = 256 << 10;
/// Maximum length of a condition's regular expression in bytes.
const REGEX_PATTERN: usize = 4 << 10;
/// Maximum length in bytes of a string that a condition's regular expression can match. Longer strings never match.
const REGEX_HAYSTACK: usize = 64 << 10;

impl Condition {
    /// Returns the condition's operator as written, even if no such operator exists.
    pub(super) fn op_name(&self) -> &str {
        &self.op
    }

    /// Compiles a condition from a JSONPath, an operator and a value.
    ///
    /// The prefix `$.` of the path is optional. `op` is an [`Op`] or its name. All operators except `exists` need a value. A
    /// condition that does not compile never holds, and [`error`](Self::error) returns the reason.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::model::{Condition, Op};
    ///
    /// let paid = Condition::new("paid_at", Op::Exists, None);
    /// assert_eq!(paid.error(), None);
    /// assert!(paid.holds(&serde_json::json!({"paid_at": "2026-11-21"})));
    ///
    /// let wrong = Condition::new("count", "greater", Some(3.into()));
    /// assert!(wrong.error().is_some());
    /// assert!(!wrong.holds(&serde_json::json!({"count": 4})));
    /// ```
    pub fn new(path: impl Into<String>, op: impl AsRef<str>, value: Option<Value>) -> Self {
        let (path, op) = (path.into(), op.as_ref().to_owned());
        let compiled = CompiledCondition::compile(&path, &op, value.as_ref()).map(Arc::new);
        Self {
            path,
            op,
            value,
            compiled,
        }
    }

    /// Returns a copy of the condition in which `value` replaces the value to compare with. The path is not compiled again.
    #[cfg(feature = "workflows")]
    pub(crate) fn with_value(&self, value: Value) -> Self {
        let compiled = match &self.compiled {
            Ok(compiled) => {
                CompiledCondition::new(compiled.path.clone(), compiled.op, Some(&value))
                    .map(Arc::new)
            }
            Err(error) => Err(error.clone()),
        };
        Self {
            path: self.path.clone(),
            op: self.op.clone(),
            value: Some(value),
            compiled,
        }
    }

    /// Returns `true` if the condition has a regular expression.
    #[cfg(feature = "workflows")]
    pub(crate) fn has_regex(&self) -> bool {
        self.op == Op::Matches.as_str()
    }

    /// Returns the error if the condition did not compile, or `None` if it did.
    #[must_use]
    pub fn error(&self) -> Option<&ConditionError> {
        self.compiled.as_ref().err()
    }

    /// Returns the condition's JSONPath as written.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the condition's compiled path, operator and value, or `None` if the condition did not compile.
    pub(crate) fn compiled(&self) -> Option<(&Path, Op, &Value)> {
        let compiled = self.compiled.as_ref().ok()?;
        Some((&compiled.path, compiled.op, &compiled.value))
    }

    /// Returns `true` if the condition holds on a breadcrumb's context.
    ///
    /// A condition that did not compile, or whose path needs too many steps to search the context, does not hold.
    ///
    /// The steps are limited to 4,194,304 for one call. A path of only names and indexes takes no
    /// steps.
    #[must_use]
    pub fn holds(&self, context: &Value) -> bool {
        self.holds_in(context, MAX_SEARCH_STEPS)
    }

    /// Returns the condition's JSONPath if it needs a search, or `None` if it has only names and indexes.
    pub(crate) fn search_path(&self) -> Option<&Path> {
        let (path, _, _) = self.compiled()?;
        (!path.is_plain()).then_some(path)
    }

    /// Returns `true` if the condition holds on a breadcrumb's context, and its evaluation takes at most `limit` JSONPath search
    /// steps. Returns `false` if the evaluation of the condition's path fails or takes more than `limit` steps.
    pub(super) fn holds_in(&self, context: &dyn ConditionContext, limit: usize) -> bool {
        self.outcome(context, limit).unwrap_or(false)
    }

    /// Returns the result of the condition on a breadcrumb's context, or `None` if the evaluation fails or takes more than
    /// `limit` search steps.
    fn outcome(&self, context: &dyn ConditionContext, limit: usize) -> Option<bool> {
        let compiled = self.compiled.as_ref().ok()?;
        let any = |check: &dyn Fn(&Value) -> bool| context.any(&compiled.path, limit, check);
        match compiled.op {
            Op::Ne => any(&|node| equal(node, &compiled.value)).map(|equal| !equal),
            Op::Exists => {
                any(&|_| true).map(|exists| exists == (compiled.value != Value::Bool(false)))
            }
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
            | Op::Matches => any(&|node| compiled.node_holds(node)),
        }
    }

    /// Returns the reason why the condition does not hold on a breadcrumb's context, for example
    /// `$.tool: "adder" is not eq "web-analyzer"`.
    pub(super) fn explain(&self, context: &Value, limit: usize) -> String {
        const SHOWN: usize = 3;
        let compiled = match &self.compiled {
            Ok(compiled) => compiled,
            Err(error) => return format!("{}: {error}", excerpt(&self.path, 80)),
        };
        let path = excerpt(compiled.path.source(), 80).into_owned();
        let nodes = compiled.path.admit_search(context, limit);
        let nodes = match nodes.and_then(|()| compiled.path.nodes(context)) {
            Ok(nodes) => nodes,
            Err(error) => return format!("{path}: {error}"),
        };
        let (op, value) = (compiled.op.as_str(), value_excerpt(&compiled.value));
        match compiled.op {
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
            .map(|node| value_excerpt(node))
            .collect::<Vec<_>>()
            .join(", ");
        if nodes.len() > SHOWN {
            found.push_str(&format!(" and {} more", nodes.len() - SHOWN));
        }
        format!("{path}: {found} is not {op} {value}")
    }

    /// Returns the reason why the condition can never hold with its operator and value, such as `in` with an empty list. Returns `None` if
    /// the condition can hold.
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
                value_excerpt(value)
            )
        })
    }
}

impl fmt::Display for Condition {
    /// Formats the condition for people, for example as `$.tool eq "adder"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", excerpt(&self.path, 80), excerpt(&self.op, 80))?;
        match &self.value {
            Some(value) => write!(f, " {}", value_excerpt(value)),
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

impl CompiledCondition {
    fn compile(path: &str, op: &str, value: Option<&Value>) -> Result<Self, ConditionError> {
        let op: Op = op.parse()?;
        let path = Path::parse(path).map_err(ConditionError::Path)?;
        Self::new(path, op, value)
    }

    fn new(path: Path, op: Op, value: Option<&Value>) -> Result<Self, ConditionError> {
        match value.map_or(Ok(()), admit) {
            Ok(()) => {}
            Err(JsonError::ReservedKey) => return Err(ConditionError::ReservedKey),
            Err(JsonError::TooDeep | JsonError::Syntax(_) | JsonError::TooLarge { .. }) => {
                return Err(ConditionError::ValueTooDeep);
            }
        }
        let value = match (op, value) {
            (Op::Exists, None) => Value::Bool(true),
            (Op::Exists, Some(Value::Bool(expected))) => Value::Bool(*expected),
            (Op::Exists, Some(other)) => {
                return Err(ConditionError::NotABoolean {
                    found: value_excerpt(other),
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
        let ordered = |expected: fn(Ordering) -> bool| order(node, value).is_some_and(expected);
        let list = || value.as_array().map(Vec::as_slice).unwrap_or_default();
        let holds_equal =
            |items: &[Value], expected: &Value| items.iter().any(|item| equal(item, expected));
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
                .is_some_and(|items| list().iter().any(|expected| holds_equal(items, expected))),
            Op::ContainsAll => {
                value.is_array()
                    && node.as_array().is_some_and(|items| {
                        list().iter().all(|expected| holds_equal(items, expected))
                    })
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
            "regex {shown:?} has {} bytes where at most {REGEX_PATTERN} are allowed",
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
                    format!(
                        "regex {shown:?} needs more than {limit} bytes when compiled; simplify it"
                    )
                }
                error => {
                    // The lines before the last one repeat the whole pattern.
                    let text = error.to_string();
                    let reason = text.lines().last().unwrap_or_default();
                    format!(
                        "invalid regex {shown:?}: {}",
                        reason.trim_start_matches("error: ")
                    )
                }
            },
        })
}

/// Formats a JSON value for an error message. Long values are shortened.
pub(super) fn value_excerpt(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() > 16 => format!("a list of {} items", items.len()),
        Value::Object(fields) => format!("an object of {} fields", fields.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            excerpt(&value.to_string(), 80).into_owned()
        }
    }
}

#[cfg(test)]
mod tests;

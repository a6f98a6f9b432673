//! Compiled JSONPath (RFC 9535) for untrusted paths and documents.
//!
//! A path with only names and indexes is *plain*: this module parses it and follows it without allocation. Every other path is
//! checked against the limits (see [`PathError`]) and then compiled once by `jsonpath_rust`. The document is checked before each
//! evaluation. A caller that treats every error as "does not match" therefore fails closed.
//!
//! ```
//! use serde_json::json;
//! use universal_executor::model::Path;
//!
//! let order = json!({"lines": [{"sku": "a", "price": 5}, {"sku": "b", "price": 50}]});
//!
//! let sku = Path::parse("lines[0].sku")?;
//! assert!(sku.is_plain());
//! assert_eq!(sku.first(&order)?, Some(&json!("a")));
//!
//! let dear = Path::parse("$.lines[?@.price > 10].sku")?;
//! assert!(dear.any(&order, |sku| sku == "b")?);
//! # Ok::<(), universal_executor::model::PathError>(())
//! ```

use std::fmt;
use std::sync::Arc;

use jsonpath_rust::parser::errors::JsonPathError;
use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

mod admission;
mod cost;
mod cursor;
mod document;
mod pattern;
mod plain;
#[cfg(test)]
mod tests;
mod typing;

pub(crate) use cost::{MAX_SEARCH_STEPS, search_steps};
use cursor::is_blank;
pub(crate) use pattern::{PatternStep, pattern};
pub(super) use plain::{Step, item};

/// A compiled JSONPath (RFC 9535).
///
/// A clone copies a pointer. Two paths are equal if their [sources](Path::source) are equal.
///
/// Compile a path once and evaluate it many times. Conditions, ordering keys and hints use the same
/// syntax. A path has at most 512 bytes, 32 segments, one `..`, and two wildcards, unions, slices
/// or filters.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::model::{Path, PathError};
///
/// let prices = Path::parse("$.lines[*].price")?;
/// let order = json!({"lines": [{"price": 5}, {"price": 50}]});
/// assert_eq!(prices.nodes(&order)?, [&json!(5), &json!(50)]);
///
/// assert!(matches!(Path::parse("$..a..b"), Err(PathError::OverLimit { .. })));
/// # Ok::<(), PathError>(())
/// ```
#[derive(Clone)]
pub struct Path(Arc<Compiled>);

struct Compiled {
    source: String,
    program: Program,
}

enum Program {
    Plain(Vec<Step>),
    Query(JpQuery),
}

impl Path {
    /// Compiles a JSONPath.
    ///
    /// The leading `$` is optional: `a.b` is `$.a.b`, and `[0]` is `$[0]`. Blanks around the text are ignored. In a plain path, an
    /// unquoted name can contain `-`, as in `$.user-name`.
    ///
    /// # Errors
    ///
    /// Returns [`PathError::Syntax`] if the text is not a JSONPath, and another variant if the path exceeds a limit. The limits keep the
    /// evaluation linear in the size of the document.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let source = normalise(text)?;
        admission::admit(&source)?;
        let program = match plain::parse(&source)? {
            Some(steps) => Program::Plain(steps),
            None => Program::Query(compile(&source)?),
        };
        Ok(Self(Arc::new(Compiled { source, program })))
    }

    /// Returns the text of the JSONPath, normalised to start with `$`.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::model::Path;
    ///
    /// assert_eq!(Path::parse("order.id")?.source(), "$.order.id");
    /// # Ok::<(), universal_executor::model::PathError>(())
    /// ```
    #[must_use]
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Returns `true` if the JSONPath has only names and indexes, so it selects at most one node.
    ///
    /// A plain path is followed without allocation, and its evaluation never fails.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        matches!(self.0.program, Program::Plain(_))
    }

    /// Returns the names and indexes of the path, or `None` if the path has other parts, such as wildcards or filters.
    pub(super) fn steps(&self) -> Option<&[Step]> {
        match &self.0.program {
            Program::Plain(steps) => Some(steps),
            Program::Query(_) => None,
        }
    }

    /// Returns the first node that the JSONPath selects in `value`, or `None` if it selects no node.
    ///
    /// # Errors
    ///
    /// See [`nodes`](Path::nodes).
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::model::Path;
    ///
    /// let order = json!({"customer": {"name": "Ann"}});
    /// assert_eq!(Path::parse("customer.name")?.first(&order)?, Some(&json!("Ann")));
    /// assert_eq!(Path::parse("customer.mail")?.first(&order)?, None);
    /// # Ok::<(), universal_executor::model::PathError>(())
    /// ```
    pub fn first<'v>(&self, value: &'v Value) -> Result<Option<&'v Value>, PathError> {
        match &self.0.program {
            Program::Plain(steps) => Ok(plain::walk(steps, value)),
            Program::Query(query) => Ok(self.evaluate(query, value)?.next()),
        }
    }

    /// Returns `true` if `test` returns `true` for a node that the JSONPath selects in `value`. Stops at the first such node.
    ///
    /// # Errors
    ///
    /// See [`nodes`](Path::nodes).
    pub fn any(&self, value: &Value, test: impl FnMut(&Value) -> bool) -> Result<bool, PathError> {
        match &self.0.program {
            Program::Plain(steps) => Ok(plain::walk(steps, value).is_some_and(test)),
            Program::Query(query) => Ok(self.evaluate(query, value)?.any(test)),
        }
    }

    /// Returns all nodes that the JSONPath selects in `value`.
    ///
    /// A path that selects nothing returns an empty list.
    ///
    /// # Errors
    ///
    /// A plain path never fails. Another path returns [`PathError::DocumentOverLimit`] if the document would exhaust the stack or the
    /// memory, and [`PathError::Evaluation`] if the evaluator fails.
    pub fn nodes<'v>(&self, value: &'v Value) -> Result<Vec<&'v Value>, PathError> {
        match &self.0.program {
            Program::Plain(steps) => Ok(plain::walk(steps, value).into_iter().collect()),
            Program::Query(query) => Ok(self.evaluate(query, value)?.collect()),
        }
    }

    fn evaluate<'v>(
        &self,
        query: &JpQuery,
        value: &'v Value,
    ) -> Result<impl Iterator<Item = &'v Value> + use<'v>, PathError> {
        document::admit(self.source(), value)?;
        let found = js_path_process(query, value).map_err(|error| PathError::Evaluation {
            path: shorten(self.source()),
            reason: shorten(&error.to_string()),
        })?;
        Ok(found.into_iter().map(|hit| hit.val))
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Path").field(&self.source()).finish()
    }
}

impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        self.source() == other.source()
    }
}

impl Eq for Path {}

/// Error of a JSONPath that is invalid or over a limit, or that cannot be evaluated on a document.
///
/// The fields mean the same in all variants. `path` is the text of the path, truncated to 80 characters. `what` names the counted
/// parts, and `found` is the first count above `limit`. `reason` is the cause and `way_out` the remedy, both for people.
///
/// [`DocumentOverLimit`](Self::DocumentOverLimit), [`TooManySteps`](Self::TooManySteps) and
/// [`Evaluation`](Self::Evaluation) depend on the document. Each other variant means that the path
/// must change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "the documentation of the type describes the fields, which mean the same in all variants"
)]
pub enum PathError {
    /// The text cannot be parsed as a JSONPath.
    #[error(
        "path `{path}` is not a valid JSONPath: {reason}; see RFC 9535, and quote unusual names as ['name']"
    )]
    Syntax { path: String, reason: String },
    /// The JSONPath has too many bytes, segments, `..`, wildcards, union members, parentheses or comparisons.
    #[error("path `{path}` has {found} {what} where at most {limit} are allowed: {way_out}")]
    OverLimit {
        path: String,
        what: &'static str,
        found: usize,
        limit: usize,
        way_out: &'static str,
    },
    /// A union in the JSONPath has a duplicate member, which would multiply the result.
    #[error("path `{path}` repeats member `{member}` in a union: name it once")]
    RepeatedMember { path: String, member: String },
    /// A filter in the JSONPath contains another filter.
    #[error("path `{path}` has a filter inside a filter, which is not allowed: use one filter")]
    NestedFilter { path: String },
    /// A filter in the JSONPath refers to the document's root with `$`.
    #[error("path `{path}` has `$` inside a filter, which is not allowed: compare members of `@`")]
    RootInFilter { path: String },
    /// A filter in the JSONPath descends to all levels with `..`.
    #[error("path `{path}` has `..` inside a filter, which is not allowed: name the members")]
    DescentInFilter { path: String },
    /// A filter in the JSONPath calls a function other than `length` and `value`.
    ///
    /// `match` and `search` compile a regular expression for each node. `count` never returns 0 in the evaluator. The other functions
    /// are not in RFC 9535, and some take quadratic time.
    #[error("path `{path}` calls function `{function}`: only length() and value() are allowed")]
    Function { path: String, function: String },
    /// A function argument in the JSONPath contains parentheses, which the parser reads in exponential time.
    #[error(
        "path `{path}` has parentheses in the arguments of a function: pass a path such as @.a"
    )]
    NestedCall { path: String },
    /// A function in the JSONPath is used in a position that RFC 9535 does not define.
    #[error(
        "path `{path}` uses function `{function}` in a position that is not allowed: {way_out}"
    )]
    FunctionUse {
        path: String,
        function: String,
        way_out: &'static str,
    },
    /// A number in a filter of the JSONPath is too large. The evaluator would read it as `null`.
    #[error("path `{path}` compares with a number that is not finite: write a smaller number")]
    NumberOutOfRange { path: String },
    /// The JSON document to search exceeds a limit for searches by a JSONPath. The limits concern the nesting depth, and the
    /// memory for the locations of the document's nodes.
    #[error(
        "path `{path}` searches a document with more than {limit} {what}: {way_out}, or use only names and indexes"
    )]
    DocumentOverLimit {
        path: String,
        what: &'static str,
        limit: usize,
        way_out: &'static str,
    },
    /// The search of a document by the JSONPath takes too many steps. The conditions of one definition share the steps for a document.
    #[error(
        "path `{path}` takes more than {limit} steps to search the document: shorten the document, use fewer paths that search, or use only names and indexes"
    )]
    TooManySteps { path: String, limit: usize },
    /// The JSONPath evaluator failed during the search of a JSON document.
    #[error("cannot evaluate path `{path}`: {reason}; simplify the path")]
    Evaluation { path: String, reason: String },
}

fn syntax(path: &str, reason: impl Into<String>) -> PathError {
    PathError::Syntax {
        path: shorten(path),
        reason: reason.into(),
    }
}

/// Checks the number of one kind of part of a JSONPath, such as segments, against the limit for this kind.
fn within(
    path: &str,
    (what, found, limit): (&'static str, usize, usize),
    way_out: &'static str,
) -> Result<(), PathError> {
    match found <= limit {
        true => Ok(()),
        false => Err(PathError::OverLimit {
            path: shorten(path),
            what,
            found,
            limit,
            way_out,
        }),
    }
}

/// Truncates a text for an error message, so untrusted input does not fill the log.
fn shorten(text: &str) -> String {
    const CHARS: usize = 80;
    match text.char_indices().nth(CHARS) {
        Some(_) => text.chars().take(CHARS).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

fn normalise(text: &str) -> Result<String, PathError> {
    let text = text.trim_matches(is_blank);
    admission::length(text)?;
    match text.chars().next() {
        None => Err(syntax(
            text,
            "the path is empty; write `$` for the whole document",
        )),
        Some('$') => Ok(text.to_owned()),
        Some('[' | '.') => Ok(format!("${text}")),
        Some(_) => Ok(format!("$.{text}")),
    }
}

fn compile(source: &str) -> Result<JpQuery, PathError> {
    let query = parse_json_path(source).map_err(|error| match error {
        // The full text of a pest error shows the path on several lines.
        JsonPathError::PestError(error) => syntax(source, shorten(&error.variant.message())),
        other => syntax(source, shorten(&other.to_string())),
    })?;
    typing::check(source, &query)?;
    Ok(query)
}

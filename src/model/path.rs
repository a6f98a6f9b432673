//! Compiled JSONPath (RFC 9535) for documents and paths that may both be hostile.
//!
//! A path made only of names and indexes is *plain*: this module parses and walks it itself,
//! without allocation. Every other path is first admitted (see [`PathError`] for the limits),
//! then compiled once by `jsonpath_rust`; before it is evaluated, the document is admitted too.
//! A caller that treats every error as "does not match" therefore fails closed.
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

/// A compiled JSONPath.
///
/// Cloning copies a pointer. Two paths are equal when their [source](Path::source) is.
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
    /// Text without a leading `$` is read from the root: `a.b` is `$.a.b`, and a text that
    /// begins with `[` or `.` is put right after the `$`. Blanks around the text are dropped. A
    /// plain path may also use `-` inside an unquoted name, as in `$.user-name`.
    ///
    /// # Errors
    ///
    /// [`PathError::Syntax`] for text that is no JSONPath, and one variant for each limit that
    /// a path must keep so that evaluating it stays linear in the size of the document.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let source = normalise(text)?;
        admission::admit(&source)?;
        let program = match plain::parse(&source)? {
            Some(steps) => Program::Plain(steps),
            None => Program::Query(compile(&source)?),
        };
        Ok(Self(Arc::new(Compiled { source, program })))
    }

    /// The text of the path, normalised to begin with `$`.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Whether the path holds only names and indexes, and so yields at most one node.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        matches!(self.0.program, Program::Plain(_))
    }

    /// The steps of a plain path.
    pub(super) fn steps(&self) -> Option<&[Step]> {
        match &self.0.program {
            Program::Plain(steps) => Some(steps),
            Program::Query(_) => None,
        }
    }

    /// The first node the path selects in `value`, in the order of the document.
    ///
    /// # Errors
    ///
    /// As [`nodes`](Path::nodes).
    pub fn first<'v>(&self, value: &'v Value) -> Result<Option<&'v Value>, PathError> {
        match &self.0.program {
            Program::Plain(steps) => Ok(plain::walk(steps, value)),
            Program::Query(query) => Ok(self.evaluate(query, value)?.next()),
        }
    }

    /// Whether `test` holds for a node the path selects; stops at the first that does.
    ///
    /// # Errors
    ///
    /// As [`nodes`](Path::nodes).
    pub fn any(&self, value: &Value, test: impl FnMut(&Value) -> bool) -> Result<bool, PathError> {
        match &self.0.program {
            Program::Plain(steps) => Ok(plain::walk(steps, value).is_some_and(test)),
            Program::Query(query) => Ok(self.evaluate(query, value)?.any(test)),
        }
    }

    /// All nodes the path selects in `value`.
    ///
    /// # Errors
    ///
    /// None for a plain path. Otherwise [`PathError::DocumentOverLimit`] for a document that would exhaust the stack or the
    /// memory, and [`PathError::Evaluation`] if the evaluator refuses it.
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

/// Why a path was refused, or could not be evaluated on a document.
///
/// In every variant `path` is the text of the path, cut after 80 characters; `found` is where the
/// check stopped, the first count beyond `limit`; `what` names the counted parts; `reason` and `way_out` are for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "the fields mean the same in every variant, said above"
)]
pub enum PathError {
    /// The text is not a JSONPath.
    #[error(
        "path `{path}` is not valid jsonpath: {reason}; see rfc 9535, and quote unusual names as ['name']"
    )]
    Syntax { path: String, reason: String },
    /// The path has more bytes, segments, `..`, wildcards, union members, parentheses or comparisons than the limit.
    #[error("path `{path}` has {found} {what}, at most {limit} are allowed: {way_out}")]
    OverLimit {
        path: String,
        what: &'static str,
        found: usize,
        limit: usize,
        way_out: &'static str,
    },
    /// A union names a member twice, which would multiply the result.
    #[error("path `{path}` repeats member `{member}` in a union: name it once")]
    RepeatedMember { path: String, member: String },
    /// A filter holds another filter.
    #[error("path `{path}` has a filter inside a filter, none is allowed: use one filter")]
    NestedFilter { path: String },
    /// A filter refers to the root with `$`.
    #[error("path `{path}` has `$` inside a filter, none is allowed: compare members of `@`")]
    RootInFilter { path: String },
    /// A filter descends with `..`.
    #[error("path `{path}` has `..` inside a filter, none is allowed: name the members")]
    DescentInFilter { path: String },
    /// A filter calls a function other than `length` and `value`.
    ///
    /// `match` and `search` compile a regular expression for each node; `count` of the
    /// evaluator does not answer 0; the others are not in RFC 9535, and some are quadratic.
    #[error("path `{path}` calls function `{function}`: only length() and value() are allowed")]
    Function { path: String, function: String },
    /// A function argument holds parentheses, which the parser reads in exponential time.
    #[error(
        "path `{path}` has parentheses in the arguments of a function: pass a path such as @.a"
    )]
    NestedCall { path: String },
    /// A function is used where RFC 9535 gives it no meaning.
    #[error("path `{path}` uses function `{function}` out of place: {way_out}")]
    FunctionUse {
        path: String,
        function: String,
        way_out: &'static str,
    },
    /// A number in a filter is too large; the evaluator would take it for `null`.
    #[error("path `{path}` compares with a number that is not finite: write a smaller number")]
    NumberOutOfRange { path: String },
    /// The document nests too deep for a search, or the locations of its nodes, written out, need too much memory.
    #[error(
        "path `{path}` searches a document with more than {limit} {what}: {way_out}, or use only names and indexes"
    )]
    DocumentOverLimit {
        path: String,
        what: &'static str,
        limit: usize,
        way_out: &'static str,
    },
    /// The search takes too many steps. Conditions of one definition share the steps of a document.
    #[error(
        "path `{path}` takes more than {limit} steps to search the document: shorten the document, use fewer paths that search, or use only names and indexes"
    )]
    TooManySteps { path: String, limit: usize },
    /// The evaluator failed.
    #[error("path `{path}` could not be evaluated: {reason}; simplify the path")]
    Evaluation { path: String, reason: String },
}

fn syntax(path: &str, reason: impl Into<String>) -> PathError {
    PathError::Syntax {
        path: shorten(path),
        reason: reason.into(),
    }
}

/// Checks a number of parts of a path against its limit.
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

/// Cuts a text for an error message, so that hostile input does not fill the log.
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
            "it is empty, write `$` for the whole document",
        )),
        Some('$') => Ok(text.to_owned()),
        Some('[' | '.') => Ok(format!("${text}")),
        Some(_) => Ok(format!("$.{text}")),
    }
}

fn compile(source: &str) -> Result<JpQuery, PathError> {
    let query = parse_json_path(source).map_err(|error| match error {
        // The full text of a pest error draws the path over several lines.
        JsonPathError::PestError(error) => syntax(source, shorten(&error.variant.message())),
        other => syntax(source, shorten(&other.to_string())),
    })?;
    typing::check(source, &query)?;
    Ok(query)
}

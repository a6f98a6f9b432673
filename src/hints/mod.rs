//! What of a breadcrumb a model sees: `llm_hints`, as pure functions of a context.
//!
//! [`Hints`] are read and checked once, then applied to any number of contexts. They only take away or rewrite; a rule
//! that fails gives an error and never the context it was to shape.
//!
//! ```
//! use serde_json::json;
//! use universal_executor::{Json, hints::Hints};
//!
//! let hints = Hints::from_json(&json!({
//!     "exclude": ["user.token"],
//!     "mode": "merge",
//!     "transform": {
//!         "line": {"type": "format", "format": "User ({user.name}): {content}"},
//!         "names": {"type": "extract", "value": "$.files[*].name"},
//!     },
//! }))?;
//! let context = Json::from(json!({
//!     "content": "hi", "files": [{"name": "a.txt"}], "user": {"name": "ann", "token": "t-1"},
//! }));
//!
//! assert_eq!(hints.apply(&context)?, json!({
//!     "content": "hi", "files": [{"name": "a.txt"}], "user": {"name": "ann"},
//!     "line": "User (ann): hi", "names": ["a.txt"],
//! }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Order
//! `include` and `exclude` first, together, then every rule of `transform` on what they leave, then `mode`: `replace`
//! (the default) gives an object of what the rules made, `merge` puts that over the filtered context, field by field.
//! Without rules the result is the filtered context. A field that is `null` counts as absent.
//!
//! # Include and exclude
//! Lists of paths: names and indexes (`user.token`, `$.files[-1]`, `['odd name']`), `[*]` or `.*` for every member, and
//! `..name` for a name at any depth. A name looks into each item of a list, so `files.name` and `files[*].name` keep the
//! same. A node is kept if it is under an included path, or there are none, and under no excluded one; what is above a
//! kept node stays, without its other members. Paths mean the original context: what `include` leaves out does not move
//! what an index of `exclude` points to. Nothing left is an empty object, an empty list, or null.
//!
//! # Rules
//! | type | field | gives |
//! |---|---|---|
//! | `extract` | `value`: a JSONPath | a list if the path can yield many, whatever the number of hits; else the node, or null |
//! | `format` | `format`: a text with `{path}` | the text; strings raw, anything else as JSON, null and absent as nothing; `{{` and `}}` are braces |
//! | `literal` | `literal`: any JSON | that |
//! | `template` | `template`: Handlebars | the text; needs the feature `templates` |
//!
//! A template finds the filtered context as `context`. It has the blocks `if`, `unless`, `each` and `with`, the helpers
//! `lookup`, `len`, `eq`, `ne`, `gt`, `gte`, `lt`, `lte`, `and`, `or` and `not` (also as blocks, those that say yes or
//! no), `@index`, `@key`, `@first`, `@last`, `@root` and block parameters. Nothing is escaped. What is missing is empty.
//! A list has a `length`, its items; a text too, its characters; an object only if it has such a field. A list or object
//! is written as JSON. There are no partials, decorators, raw blocks or list literals, and nothing that logs.
//!
//! # Bounds
//! Hints and contexts may come from anybody. What is too large, too deep or not understood in hints is refused by
//! [`Hints::from_json`]: [`MAX_HINTS_BYTES`], [`MAX_PATHS`], [`MAX_TRANSFORMS`], [`MAX_TEMPLATE_BYTES`]. What is
//! too much for one context, 2,097,152 steps, [`MAX_OUTPUT_BYTES`] or a depth of
//! [`MAX_DEPTH`](crate::model::MAX_DEPTH), fails in
//! [`Hints::apply`]. A step is a node that the filter visits or a rule copies, a fourth of a node that a path searches, or a piece of a
//! template that is rendered. Long strings and names take more.
//!
//! # Failures
//! [`HintsError`] names the field and what to mend. [`HintsFailure`] names the rule and why it failed, and holds nothing
//! of the context; one rule that fails fails all of them.

mod budget;
mod error;
mod extract;
mod filter;
mod format;
mod kept;
mod read;
#[cfg(feature = "templates")]
mod template;
#[cfg(test)]
mod tests;
mod transform;

pub use error::{HintsError, HintsFailure, HintsProblem, HintsReason};

use crate::model::Json;
pub(crate) use budget::Budget;
use filter::Filter;
use kept::Kept;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;
use transform::Transform;

/// The most bytes of hints, as compact JSON: 64 KiB.
pub const MAX_HINTS_BYTES: usize = 64 * 1024;
/// The most paths in `include`, in `exclude` and in one format: 64 each.
pub const MAX_PATHS: usize = 64;
/// The most rules in `transform`: 64.
pub const MAX_TRANSFORMS: usize = 64;
/// The most bytes of one template: 16 KiB.
pub const MAX_TEMPLATE_BYTES: usize = 16 * 1024;
/// Maximum number of steps that one [`Hints::apply`] takes, filter and rules together: 2,097,152.
///
/// A step is a node that the filter visits or a rule copies, a fourth of a node that a path searches, or a piece of a
/// template that is rendered, also one that writes nothing. Long texts and names take more.
pub(crate) const MAX_STEPS: usize = 1 << 21;
/// The most bytes that hints make of one context: 1 MiB, as of any [`Json`].
pub const MAX_OUTPUT_BYTES: usize = Json::MAX_BYTES;

/// Compiled `llm_hints`; a clone is a pointer.
#[derive(Clone, Debug)]
pub struct Hints(Option<Arc<Program>>);

#[derive(Debug)]
struct Program {
    /// The field that stands for the filter in a failure.
    first: &'static str,
    filter: Option<Filter>,
    mode: Mode,
    transforms: Vec<(String, Transform)>,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    Replace,
    Merge,
}

impl Hints {
    /// Reads hints and checks all of them.
    ///
    /// # Errors
    /// [`HintsError`] names the field to mend.
    pub fn from_json(hints: &Value) -> Result<Self, HintsError> {
        Ok(Self(read::hints(hints)?.map(Arc::new)))
    }

    /// What a model sees of a context; the same pointer if nothing is changed.
    ///
    /// # Errors
    /// [`HintsFailure`] names the rule that failed, and never says what was in the context.
    pub fn apply(&self, context: &Json) -> Result<Json, HintsFailure> {
        self.apply_within(context, &mut Budget::of(MAX_STEPS, MAX_OUTPUT_BYTES))
    }

    /// The same, of what is left of a budget.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub(crate) fn apply_within(
        &self,
        context: &Json,
        budget: &mut Budget,
    ) -> Result<Json, HintsFailure> {
        match &self.0 {
            Some(program) => program.apply(context, budget),
            None => Ok(context.clone()),
        }
    }
}

impl Program {
    fn apply(&self, context: &Json, budget: &mut Budget) -> Result<Json, HintsFailure> {
        let failed = |rule: &str| {
            let rule = rule.to_owned();
            move |reason| HintsFailure { rule, reason }
        };
        let first = match &self.filter {
            Some(_) => self.first,
            None => "transform",
        };
        // Counted once for each context; everything below recurses into it.
        if context.size() == usize::MAX {
            return Err(failed(first)(HintsReason::Unreadable));
        }
        let kept = match &self.filter {
            Some(filter) => filter.apply(context, budget).map_err(failed(first))?,
            None => Kept::All(context),
        };
        if self.transforms.is_empty() {
            return match kept {
                Kept::All(_) => as_read(context, &kept).map_err(failed(first)),
                Kept::List(_) | Kept::Object(_) => kept.to_json().map_err(failed(first)),
            };
        }
        let filtered = match kept {
            Kept::All(value) => Cow::Borrowed(value),
            Kept::List(_) | Kept::Object(_) => Cow::Owned(kept.to_value()),
        };
        let mut made = Map::new();
        for (name, transform) in &self.transforms {
            let value = transform.apply(&filtered, budget);
            let value = value.map_err(|reason| failed(&read::place(name))(reason))?;
            made.insert(name.clone(), value);
        }
        let made = sized(Value::Object(made)).map_err(failed("transform"))?;
        match self.mode {
            Mode::Replace => Ok(made),
            Mode::Merge => merge(&filtered, &made).map_err(failed("mode")),
        }
    }
}

/// A context of which nothing is left out. Its text may hold more than was looked at: of two equal keys the first.
fn as_read(context: &Json, kept: &Kept<'_>) -> Result<Json, HintsReason> {
    match kept {
        Kept::All(value) if std::ptr::eq::<Value>(*value, &raw const **context) => {
            let canonical = context.canonical(usize::MAX);
            canonical.map_err(|_| HintsReason::Unreadable)
        }
        Kept::All(_) | Kept::List(_) | Kept::Object(_) => kept.to_json(),
    }
}

fn merge(filtered: &Value, made: &Value) -> Result<Json, HintsReason> {
    let (Value::Object(filtered), Value::Object(made)) = (filtered, made) else {
        return Err(HintsReason::NotAnObject);
    };
    let fields = filtered.iter().chain(made);
    let fields = fields.map(|(name, field)| (name.as_str(), Kept::All(field)));
    Kept::Object(fields.collect()).to_json()
}

/// A result that is no larger and no deeper than any JSON may be.
fn sized(value: Value) -> Result<Json, HintsReason> {
    let made = Json::from(value);
    match made.size() {
        usize::MAX => Err(HintsReason::TooDeep),
        size if size > MAX_OUTPUT_BYTES => Err(HintsReason::TooLarge),
        _ => Ok(made),
    }
}

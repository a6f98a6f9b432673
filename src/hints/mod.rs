//! The rules `llm_hints`, which select the part of a breadcrumb's context for a model.
//!
//! Use hints to remove secrets and bulk from a context, or to rewrite a context for a model. [`Hints::from_json`] validates and
//! compiles hints once, and [`Hints::apply`] applies them to any number of contexts. Both are pure functions. If a rule fails, the
//! result is an error and never the unfiltered context.
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
//! 1. `include` and `exclude` filter the context.
//! 2. Each rule of `transform` computes a value from the filtered context.
//! 3. `mode` decides the result. With `replace`, the default, the result is an object of the computed values. With `merge`, the
//!    computed values replace or extend the fields of the filtered context.
//!
//! Without rules, the result is the filtered context. A field of hints that is `null` counts as absent.
//!
//! # Include and exclude
//! `include` and `exclude` are lists of paths with these parts:
//! - Names and indexes: `user.token`, `$.files[-1]`, `['odd name']`.
//! - `[*]` or `.*` for all members.
//! - `..name` for a name at any depth.
//!
//! A name applies to each item of a list, so `files.name` and `files[*].name` select the same nodes. A node remains if it is at or
//! below an included path, or if there is no `include`, and if it is not at or below an excluded path. The parents of a remaining node
//! remain, without their other members. Paths refer to the original context, so `include` does not shift the indexes of `exclude`. If
//! nothing remains, the result is an empty object, an empty list or null, depending on the type of the context.
//!
//! # Rules
//! | type | field | value |
//! |---|---|---|
//! | `extract` | `value`: a JSONPath | for a path of names and indexes, the node or null; for another path, the list of all nodes |
//! | `format` | `format`: a string with `{path}` | the string with the values of the paths |
//! | `literal` | `literal`: any JSON | the literal |
//! | `template` | `template`: Handlebars | the rendered template; needs the feature `templates` |
//!
//! A format inserts strings as they are, null and missing values as nothing, and other values as JSON. `{{` and `}}` are braces.
//!
//! A template accesses the filtered context as `context`. It can use the blocks `if`, `unless`, `each` and `with`, the helpers
//! `lookup`, `len`, `eq`, `ne`, `gt`, `gte`, `lt`, `lte`, `and`, `or` and `not`, the variables `@index`, `@key`, `@first`, `@last` and
//! `@root`, and block parameters. All helpers except `lookup` and `len` can also be blocks. Nothing is escaped. A missing value renders
//! as an empty string. `length` is the number of items of a list or the number of characters of a string. An object has a `length` only
//! if it has a field of this name. Lists and objects render as JSON. Partials, decorators, raw blocks, list literals and logging are not
//! supported.
//!
//! # Limits
//! Hints and contexts can come from untrusted origins. [`Hints::from_json`] rejects unknown fields and hints that exceed
//! [`MAX_HINTS_BYTES`], [`MAX_PATHS`], [`MAX_TRANSFORMS`], [`MAX_TEMPLATE_BYTES`] or a depth of
//! [`MAX_DEPTH`](crate::model::MAX_DEPTH). [`Hints::apply`] fails if a context needs more than 2,097,152 steps, or if the result exceeds
//! [`MAX_OUTPUT_BYTES`] or a depth of [`MAX_DEPTH`](crate::model::MAX_DEPTH). Each node that the filter visits or a rule copies and each
//! rendered piece of a template take one step, and each node that a path searches takes four steps. Long strings and names take more.
//!
//! # Errors
//! [`HintsError`] names the field of the hints to fix. [`HintsFailure`] names the failed rule and the reason, and contains no data of the
//! context. If one rule fails, there is no result.

mod budget;
mod error;
mod extract;
mod filter;
mod filtered;
mod format;
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
use filtered::Filtered;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;
use transform::Transform;

/// Maximum size of `llm_hints` as compact JSON, in bytes: 64 KiB.
///
/// Larger hints are refused with [`HintsProblem::TooLarge`].
pub const MAX_HINTS_BYTES: usize = 64 * 1024;
/// Maximum number of paths in `include`, in `exclude` and in one `format` rule of `llm_hints`: 64 each.
///
/// More paths are refused with [`HintsProblem::TooMany`].
pub const MAX_PATHS: usize = 64;
/// Maximum number of rules in `transform` of `llm_hints`: 64.
///
/// More rules are refused with [`HintsProblem::TooMany`].
pub const MAX_TRANSFORMS: usize = 64;
/// Maximum size of one template of `llm_hints` in bytes: 16 KiB.
///
/// A larger template is refused with [`HintsProblem::TooLarge`].
pub const MAX_TEMPLATE_BYTES: usize = 16 * 1024;
/// Maximum number of computation steps of one call of [`Hints::apply`]: 2,097,152. `include`, `exclude` and all rules share the
/// steps.
///
/// Each node that the filter visits or a rule copies and each rendered piece of a template take one step, even if the piece writes
/// nothing. Each node that a path searches takes four steps. Long strings and names take more.
pub(crate) const MAX_STEPS: usize = 1 << 21;
/// Maximum size in bytes of the result of applying `llm_hints` to a context: 1 MiB, the maximum size of any [`Json`].
///
/// A larger result is a failure with [`HintsReason::TooLarge`].
pub const MAX_OUTPUT_BYTES: usize = Json::MAX_BYTES;

/// Validated and compiled `llm_hints`. A clone copies a pointer.
///
/// In a run, [`ExecutionContext::for_model`](crate::ExecutionContext::for_model) compiles and
/// applies the hints itself. Use this type to check hints before they are written, or outside of a
/// run.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::{Json, hints::Hints};
///
/// let hints = Hints::from_json(&json!({"include": ["order.id", "order.lines.sku"]}))?;
/// let context = Json::from(json!({
///     "order": {"id": 7, "card": "4111", "lines": [{"sku": "a", "margin": 3}]},
/// }));
/// let shown = hints.apply(&context)?;
/// assert_eq!(shown, json!({"order": {"id": 7, "lines": [{"sku": "a"}]}}));
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Hints(Option<Arc<Program>>);

#[derive(Debug)]
struct Program {
    /// Name of the `llm_hints` field that errors of the filter report: `include`, or `exclude` if the hints have no `include`.
    filter_field: &'static str,
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
    /// Validates and compiles `llm_hints` from JSON.
    ///
    /// JSON `null` is accepted and changes nothing. The cost is that of compiling the paths and
    /// templates once.
    ///
    /// # Errors
    /// Returns [`HintsError`] with the field to fix if the hints have an unknown field, an invalid value or path, or exceed a limit.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::hints::{Hints, HintsProblem};
    ///
    /// let error = Hints::from_json(&json!({"exlude": ["token"]})).unwrap_err();
    /// assert_eq!(error.field, "exlude");
    /// assert!(matches!(
    ///     error.problem,
    ///     HintsProblem::UnknownField { nearest: Some("exclude"), .. }
    /// ));
    /// ```
    pub fn from_json(hints: &Value) -> Result<Self, HintsError> {
        Ok(Self(read::hints(hints)?.map(Arc::new)))
    }

    /// Applies these hints to a breadcrumb's context, and returns the part that a model receives. Returns the same pointer if the
    /// hints change nothing.
    ///
    /// The call is synchronous and takes at most 2,097,152 steps, see
    /// [Limits](crate::hints#limits).
    ///
    /// # Errors
    /// Returns [`HintsFailure`] with the failed rule, and without data of the context, if the context cannot be read, if `merge` meets a
    /// context that is not an object, or if a limit is exceeded.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::Json;
    /// use universal_executor::hints::{Hints, HintsReason};
    ///
    /// let hints = Hints::from_json(&json!({
    ///     "mode": "merge",
    ///     "transform": {"kind": {"type": "literal", "literal": "order"}},
    /// }))?;
    /// let merged = hints.apply(&Json::from(json!({"id": 7})))?;
    /// assert_eq!(merged, json!({"id": 7, "kind": "order"}));
    ///
    /// let failure = hints.apply(&Json::from(json!([7]))).unwrap_err();
    /// assert_eq!(failure.reason, HintsReason::NotAnObject);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn apply(&self, context: &Json) -> Result<Json, HintsFailure> {
        self.apply_within(context, &mut Budget::new(MAX_STEPS, MAX_OUTPUT_BYTES))
    }

    /// Applies the `llm_hints` to a context like [`apply`](Self::apply), and subtracts the computation steps and output bytes
    /// from the caller's budget.
    ///
    /// # Errors
    /// See [`apply`](Self::apply).
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
        let first_rule = match &self.filter {
            Some(_) => self.filter_field,
            None => "transform",
        };
        // The size is `usize::MAX` for a context that cannot be read or nests too deep. The code below recurses into the context.
        if context.size() == usize::MAX {
            return Err(failed(first_rule)(HintsReason::Unreadable));
        }
        let filtered = match &self.filter {
            Some(filter) => filter.apply(context, budget).map_err(failed(first_rule))?,
            None => Filtered::All(context),
        };
        if self.transforms.is_empty() {
            return match filtered {
                Filtered::All(_) => filtered_json(context, &filtered).map_err(failed(first_rule)),
                Filtered::List(_) | Filtered::Object(_) => {
                    filtered.to_json().map_err(failed(first_rule))
                }
            };
        }
        let filtered = match filtered {
            Filtered::All(value) => Cow::Borrowed(value),
            Filtered::List(_) | Filtered::Object(_) => Cow::Owned(filtered.to_value()),
        };
        let mut computed = Map::new();
        for (name, transform) in &self.transforms {
            let value = transform.apply(&filtered, budget);
            let value = value.map_err(|reason| failed(&read::rule_path(name))(reason))?;
            computed.insert(name.clone(), value);
        }
        let computed = check_size(Value::Object(computed)).map_err(failed("transform"))?;
        match self.mode {
            Mode::Replace => Ok(computed),
            Mode::Merge => merge(&filtered, &computed).map_err(failed("mode")),
        }
    }
}

/// Converts a filtered context (the part that `include` and `exclude` of `llm_hints` did not remove) to JSON. If the filter
/// removed nothing, the result is the context in canonical form, because the context's text can contain values of duplicate keys
/// that the filter did not see.
fn filtered_json(context: &Json, filtered: &Filtered<'_>) -> Result<Json, HintsReason> {
    match filtered {
        Filtered::All(value) if std::ptr::eq::<Value>(*value, &raw const **context) => {
            let canonical = context.canonical(usize::MAX);
            canonical.map_err(|_| HintsReason::Unreadable)
        }
        Filtered::All(_) | Filtered::List(_) | Filtered::Object(_) => filtered.to_json(),
    }
}

fn merge(filtered: &Value, computed: &Value) -> Result<Json, HintsReason> {
    let (Value::Object(filtered), Value::Object(computed)) = (filtered, computed) else {
        return Err(HintsReason::NotAnObject);
    };
    let fields = filtered.iter().chain(computed);
    let fields = fields.map(|(name, field)| (name.as_str(), Filtered::All(field)));
    Filtered::Object(fields.collect()).to_json()
}

/// Checks the size and the depth of the values that the rules of `llm_hints` computed.
fn check_size(value: Value) -> Result<Json, HintsReason> {
    let computed = Json::from(value);
    match computed.size() {
        usize::MAX => Err(HintsReason::TooDeep),
        size if size > MAX_OUTPUT_BYTES => Err(HintsReason::TooLarge),
        _ => Ok(computed),
    }
}

//! Errors of invalid `llm_hints`, and errors of valid `llm_hints` that cannot be applied to a breadcrumb's context.

use super::{MAX_OUTPUT_BYTES, MAX_STEPS};
use crate::model::{MAX_DEPTH, PathError, RESERVED_KEY};

/// Error of invalid `llm_hints`, with the field to fix.
///
/// [`Hints::from_json`](super::Hints::from_json) returns it. Hints must change, so a retry cannot
/// succeed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("cannot read llm_hints: {field}: {problem}")]
#[non_exhaustive]
pub struct HintsError {
    /// The path of the field to fix in the `llm_hints`, for example `transform.summary.template`.
    pub field: String,
    /// The reason why the field of the `llm_hints` is invalid.
    pub problem: HintsProblem,
}

/// Reason why a field of `llm_hints` is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HintsProblem {
    /// A field of the `llm_hints` has a value of the wrong type.
    ///
    /// Change the value in the hints to the type in `expected`.
    #[error("the value must be {expected}, not {found}")]
    Shape {
        /// Description of a valid value for the field of the `llm_hints`.
        expected: &'static str,
        /// Type of the invalid value in the `llm_hints`.
        found: &'static str,
    },
    /// A required field of the `llm_hints` is missing.
    ///
    /// Add the field, for example `format` of a rule of the type `format`.
    #[error("missing value; write {expected}")]
    Missing {
        /// Description of a valid value for the missing field of the `llm_hints`.
        expected: &'static str,
    },
    /// The `llm_hints` or one of their rules have an unknown field.
    ///
    /// Write the field in `nearest`, or remove the unknown field.
    #[error("unknown field; {}", instead(*nearest, known))]
    UnknownField {
        /// The known field of the `llm_hints` or the rule whose name is closest to the unknown name, or `None` if no name is
        /// close.
        nearest: Option<&'static str>,
        /// All known fields of the `llm_hints`, or of the rule with the unknown field.
        known: &'static [&'static str],
    },
    /// A field of the `llm_hints` that accepts only certain names, such as the field `mode`, has another value.
    ///
    /// Write one of the names in `known`.
    #[error("unknown value {value:?}; {}", instead(*nearest, known))]
    Unknown {
        /// The unknown name in the `llm_hints`, truncated to 64 bytes.
        value: String,
        /// The known name that is closest to the unknown name in the `llm_hints`, or `None` if no name is close.
        nearest: Option<&'static str>,
        /// All names that the field of the `llm_hints` accepts.
        known: &'static [&'static str],
    },
    /// A rule of the `llm_hints` has the type `jq`, which is not supported.
    #[error("jq is not supported; use \"extract\" with a JSONPath, or \"template\"")]
    Jq,
    /// A rule of the `llm_hints` is a template, and the crate was built without the feature `templates`.
    ///
    /// Enable the feature, or write a `format` rule, which inserts values without conditions and
    /// loops.
    #[error(
        "templates need the feature \"templates\" of universal-executor; build with it, or use \"format\""
    )]
    NoTemplates,
    /// The field `include` of the `llm_hints` is an empty list, which would remove the whole context.
    ///
    /// To hide the whole context, exclude its fields.
    #[error("an empty list would remove the whole context; add paths, or remove the field")]
    EmptyInclude,
    /// A field of the `llm_hints` has too many paths or rules.
    ///
    /// Merge paths with a wildcard, or exclude a parent instead of its members.
    #[error("{count} entries where at most {most} are allowed; remove some")]
    TooMany {
        /// The number of paths or rules in the field of the `llm_hints`.
        count: usize,
        /// The maximum number of paths in `include` or `exclude`, [`MAX_PATHS`](super::MAX_PATHS), or of rules,
        /// [`MAX_TRANSFORMS`](super::MAX_TRANSFORMS).
        most: usize,
    },
    /// The `llm_hints` nest deeper than [`MAX_DEPTH`].
    #[error("the hints nest deeper than {MAX_DEPTH} levels; flatten them")]
    TooDeep,
    /// The `llm_hints` have the object key `$serde_json::private::RawValue`, which is reserved.
    #[error("object key {RESERVED_KEY:?} is reserved; rename the key")]
    ReservedKey,
    /// The `llm_hints` are larger than [`MAX_HINTS_BYTES`](super::MAX_HINTS_BYTES), or a template is larger
    /// than [`MAX_TEMPLATE_BYTES`](super::MAX_TEMPLATE_BYTES).
    #[error("the value is larger than {limit} bytes; shorten it")]
    TooLarge {
        /// The maximum size of the `llm_hints` or the template in bytes.
        limit: usize,
    },
    /// A path in `include` or `exclude` of the `llm_hints` is not valid.
    ///
    /// `include` and `exclude` accept names, indexes, wildcards and `..name`, and no filters.
    #[error("invalid path {path:?}: {reason}")]
    Pattern {
        /// The invalid path in `include` or `exclude` of the hints (`llm_hints`), truncated to 64 bytes.
        path: String,
        /// The reason why the path in `include` or `exclude` is invalid.
        reason: &'static str,
    },
    /// The JSONPath of an `extract` rule, or a JSONPath in a `format` rule, does not compile.
    ///
    /// See [`Path::parse`](crate::model::Path::parse) for the syntax and the limits.
    #[error("{0}")]
    Path(PathError),
    /// The braces in a `format` rule of `llm_hints` do not match, or contain no path.
    ///
    /// The causes are a `{` without an end, a `}` without a start, and an empty `{}`.
    #[error("invalid format: {reason}; write {{path}} for a value, and {{{{ or }}}} for a brace")]
    Format {
        /// The reason why the `format` rule of the `llm_hints` is invalid.
        reason: &'static str,
    },
    /// A template in the `llm_hints` does not compile, or uses a feature of Handlebars that is not supported.
    ///
    /// See [Rules](crate::hints#rules) for the supported helpers.
    #[error("invalid template: {reason}")]
    Template {
        /// The reason why the template in the `llm_hints` is invalid.
        reason: String,
    },
}

fn instead(nearest: Option<&str>, known: &[&str]) -> String {
    match nearest {
        Some(name) => format!("did you mean {name:?}?"),
        None => format!("expected one of {}", known.join(", ")),
    }
}

/// Failure of valid `llm_hints` on a breadcrumb's context, with the rule that failed.
///
/// Neither the fields nor the printed forms contain data of the context.
///
/// [`Hints::apply`](super::Hints::apply) returns it. Change the rule, or the program that writes
/// the context. The message is safe to log.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("rule {rule:?} of llm_hints failed: {reason}")]
#[non_exhaustive]
pub struct HintsFailure {
    /// The path of the failed rule or field in the `llm_hints`, for example `transform.summary`.
    pub rule: String,
    /// The reason why the rule of the `llm_hints` failed, without data of the context.
    pub reason: HintsReason,
}

/// Reason why a rule of `llm_hints` failed on a breadcrumb's context.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HintsReason {
    /// The breadcrumb's context cannot be parsed to a JSON value, for example because of the number `1e400`, or nests deeper than
    /// [`MAX_DEPTH`].
    ///
    /// Only the writer of the breadcrumb can fix it.
    #[error(
        "the context is not readable as JSON or nests deeper than {MAX_DEPTH} levels; rewrite the context"
    )]
    Unreadable,
    /// Applying the `llm_hints` to a context takes more than 2,097,152 computation steps. See [Limits](crate::hints#limits).
    ///
    /// The limit protects the worker against hints and contexts from untrusted writers.
    #[error(
        "applying the hints takes more than {MAX_STEPS} steps; exclude more of the context, or loop over shorter lists"
    )]
    TooManySteps,
    /// The result of applying the `llm_hints` to a context is larger than [`MAX_OUTPUT_BYTES`].
    #[error(
        "the result of the hints is larger than {MAX_OUTPUT_BYTES} bytes; exclude more of the context, or extract less of it"
    )]
    TooLarge,
    /// The result of applying the `llm_hints` to a context nests deeper than [`MAX_DEPTH`].
    #[error(
        "the result of the hints nests deeper than {MAX_DEPTH} levels; extract a deeper part of the context"
    )]
    TooDeep,
    /// The mode of the `llm_hints` is `merge`, and the filtered context is not an object.
    ///
    /// Lists and strings cannot be merged.
    #[error(
        "the mode \"merge\" needs an object, and the filtered context is not an object; set the mode to \"replace\""
    )]
    NotAnObject,
    /// The context is too large or nests too deep to be searched with the JSONPath of a rule of `llm_hints`.
    ///
    /// A path of names and indexes has no such limit.
    #[error(
        "the JSONPath of the rule cannot be evaluated, because the context is too large or too deep; use a path of only names and indexes"
    )]
    Search,
}

impl HintsError {
    pub(super) fn new(field: impl Into<String>, problem: HintsProblem) -> Self {
        Self {
            field: field.into(),
            problem,
        }
    }
}

impl HintsProblem {
    pub(super) fn too_many(count: usize, most: usize) -> Result<(), Self> {
        match count > most {
            true => Err(Self::TooMany { count, most }),
            false => Ok(()),
        }
    }
}

//! Errors of invalid hints, and failures of valid hints on a context.

use super::{MAX_OUTPUT_BYTES, MAX_STEPS};
use crate::model::{MAX_DEPTH, PathError, RESERVED_KEY};

/// Error of invalid hints, with the field to fix.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("hints: {field}: {problem}")]
#[non_exhaustive]
pub struct HintsError {
    /// The path of the field in the hints: `transform.summary.template`.
    pub field: String,
    /// The problem of the field.
    pub problem: HintsProblem,
}

/// Problem of a field of hints.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HintsProblem {
    /// The field has the wrong type.
    #[error("must be {expected}, not {found}")]
    Shape {
        /// Description of a valid value.
        expected: &'static str,
        /// Type of the value in the hints.
        found: &'static str,
    },
    /// The required field is missing.
    #[error("missing value; write {expected}")]
    Missing {
        /// Description of a valid value.
        expected: &'static str,
    },
    /// The field does not exist.
    #[error("unknown field; {}", instead(*nearest, known))]
    UnknownField {
        /// The closest known field.
        nearest: Option<&'static str>,
        /// All known fields.
        known: &'static [&'static str],
    },
    /// The value is not a known name.
    #[error("unknown value {value:?}; {}", instead(*nearest, known))]
    Unknown {
        /// The value in the hints, truncated to 64 bytes.
        value: String,
        /// The closest known name.
        nearest: Option<&'static str>,
        /// All known names.
        known: &'static [&'static str],
    },
    /// The rule has the type `jq`, which is not supported.
    #[error("jq is not supported; use \"extract\" with a JSONPath, or \"template\"")]
    Jq,
    /// The rule is a template, and the crate was built without the feature `templates`.
    #[error(
        "templates need the feature \"templates\" of universal-executor; build with it, or use \"format\""
    )]
    NoTemplates,
    /// `include` is an empty list, which would remove the whole context.
    #[error("an empty list would remove the whole context; add paths, or remove the field")]
    EmptyInclude,
    /// The field has more entries than the limit.
    #[error("{count} entries where at most {most} are allowed")]
    TooMany {
        /// The number of entries.
        count: usize,
        /// The limit: [`MAX_PATHS`](super::MAX_PATHS) or [`MAX_TRANSFORMS`](super::MAX_TRANSFORMS).
        most: usize,
    },
    /// The hints nest deeper than [`MAX_DEPTH`].
    #[error("nesting deeper than {MAX_DEPTH} levels is not allowed")]
    TooDeep,
    /// The hints have the object key `$serde_json::private::RawValue`, which is reserved.
    #[error("object key {RESERVED_KEY:?} is reserved; rename the key")]
    ReservedKey,
    /// The hints are larger than [`MAX_HINTS_BYTES`](super::MAX_HINTS_BYTES), or a template is larger than
    /// [`MAX_TEMPLATE_BYTES`](super::MAX_TEMPLATE_BYTES).
    #[error("more than {limit} bytes are not allowed; shorten the value")]
    TooLarge {
        /// The maximum size in bytes.
        limit: usize,
    },
    /// The path is not valid in `include` and `exclude`.
    #[error("invalid path {path:?}: {reason}")]
    Pattern {
        /// The path, truncated to 64 bytes.
        path: String,
        /// The reason.
        reason: &'static str,
    },
    /// The JSONPath does not compile.
    #[error("{0}")]
    Path(PathError),
    /// The braces of the format do not match.
    #[error("{reason}; write {{path}} for a value, and {{{{ or }}}} for a brace")]
    Format {
        /// The reason.
        reason: &'static str,
    },
    /// The template does not compile, or uses a feature of Handlebars that is not supported.
    #[error("invalid template: {reason}")]
    Template {
        /// The reason.
        reason: String,
    },
}

fn instead(nearest: Option<&str>, known: &[&str]) -> String {
    match nearest {
        Some(name) => format!("did you mean {name:?}?"),
        None => format!("expected one of {}", known.join(", ")),
    }
}

/// Failure of a rule on a context.
///
/// Neither the fields nor the printed forms contain data of the context.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("rule {rule:?} failed: {reason}")]
#[non_exhaustive]
pub struct HintsFailure {
    /// The path of the rule in the hints: `transform.summary`.
    pub rule: String,
    /// The reason, without data of the context.
    pub reason: HintsReason,
}

/// Reason for the failure of a rule on a context.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HintsReason {
    /// No value can hold the context, or the context nests deeper than [`MAX_DEPTH`].
    #[error("the context cannot be read, or nests deeper than {MAX_DEPTH} levels")]
    Unreadable,
    /// The hints need more than 2,097,152 steps. See [Limits](crate::hints#limits).
    #[error("the hints need more than {MAX_STEPS} steps; exclude more, or loop over less")]
    TooManySteps,
    /// The result is larger than [`MAX_OUTPUT_BYTES`].
    #[error("the result is larger than {MAX_OUTPUT_BYTES} bytes; exclude more, or extract less")]
    TooLarge,
    /// The result nests deeper than [`MAX_DEPTH`].
    #[error(
        "the result nests deeper than {MAX_DEPTH} levels; extract a deeper part of the context"
    )]
    TooDeep,
    /// The mode is `merge`, and the filtered context is not an object.
    #[error("the filtered context is not an object; use the mode \"replace\"")]
    NotAnObject,
    /// The path cannot be evaluated on a context with this size or depth.
    #[error("the path cannot be evaluated on this context; use only names and indexes")]
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

//! What can be wrong with hints, and what can go wrong when they are applied.

use super::{MAX_OUTPUT_BYTES, MAX_STEPS};
use crate::model::{MAX_DEPTH, PathError, RESERVED_KEY};

/// Hints that cannot be used, and what to mend.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("hints: {field}: {problem}")]
#[non_exhaustive]
pub struct HintsError {
    /// The field, as a path from the hints: `transform.summary.template`.
    pub field: String,
    /// What is wrong with it.
    pub problem: HintsProblem,
}

/// What is wrong with a field of hints.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HintsProblem {
    /// The field has the wrong type.
    #[error("it must be {expected}, not {found}")]
    Shape {
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// The field is absent and has no default.
    #[error("it is missing; write {expected}")]
    Missing {
        /// What to write.
        expected: &'static str,
    },
    /// There is no such field here.
    #[error("there is no such field here; {}", instead(*nearest, known))]
    UnknownField {
        /// The closest field that exists.
        nearest: Option<&'static str>,
        /// The fields that exist.
        known: &'static [&'static str],
    },
    /// The value is not one of the names that exist.
    #[error("{value:?} is not known; {}", instead(*nearest, known))]
    Unknown {
        /// The value found, cut after 64 bytes.
        value: String,
        /// The closest name that exists.
        nearest: Option<&'static str>,
        /// The names that exist.
        known: &'static [&'static str],
    },
    /// A rule in the language of jq.
    #[error("jq is not supported; use \"extract\" with a JSONPath, or \"template\"")]
    Jq,
    /// A template, and the crate was built without the feature `templates`.
    #[error(
        "templates need the feature \"templates\" of universal-executor; build with it, or use \"format\""
    )]
    NoTemplates,
    /// An include that lets nothing through.
    #[error("an empty list would leave nothing; name what to keep, or leave the field out")]
    EmptyInclude,
    /// More entries than are read.
    #[error("{count} entries where at most {most} are allowed")]
    TooMany {
        /// How many there are.
        count: usize,
        /// [`MAX_PATHS`](super::MAX_PATHS) or [`MAX_TRANSFORMS`](super::MAX_TRANSFORMS).
        most: usize,
    },
    /// The hints nest deeper than [`MAX_DEPTH`].
    #[error("it nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The hints have an object key that no JSON may have here.
    #[error("it has the object key {RESERVED_KEY:?}, which is reserved: rename the key")]
    ReservedKey,
    /// The hints have more than [`MAX_HINTS_BYTES`](super::MAX_HINTS_BYTES), or a template more than [`MAX_TEMPLATE_BYTES`](super::MAX_TEMPLATE_BYTES).
    #[error("it has more than {limit} bytes: shorten it")]
    TooLarge {
        /// The most that is allowed.
        limit: usize,
    },
    /// A path of `include` or `exclude` that cannot be used there.
    #[error("path {path:?} cannot be used: {reason}")]
    Pattern {
        /// The path, cut after 64 bytes.
        path: String,
        /// Why not.
        reason: &'static str,
    },
    /// A JSONPath that does not compile.
    #[error("{0}")]
    Path(PathError),
    /// A format whose braces do not match.
    #[error("{reason}; write {{path}} for a value, and {{{{ or }}}} for a brace")]
    Format {
        /// What is wrong.
        reason: &'static str,
    },
    /// A template that does not compile, or asks for what is not offered.
    #[error("the template cannot be used: {reason}")]
    Template {
        /// What is wrong.
        reason: String,
    },
}

fn instead(nearest: Option<&str>, known: &[&str]) -> String {
    match nearest {
        Some(name) => format!("did you mean {name:?}?"),
        None => format!("there are {}", known.join(", ")),
    }
}

/// A rule that failed on a context.
///
/// It holds nothing that was in the context, and neither does what it prints.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("rule {rule:?} failed: {reason}")]
#[non_exhaustive]
pub struct HintsFailure {
    /// The rule, as a path from the hints: `transform.summary`.
    pub rule: String,
    /// Why, without anything that was in the context.
    pub reason: HintsReason,
}

/// Why a rule failed on a context.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HintsReason {
    /// No value can hold the context, or it nests too deep to be walked.
    #[error("the context cannot be read, or nests deeper than {MAX_DEPTH} levels")]
    Unreadable,
    /// Applying the hints took more than 2,097,152 steps; see [Bounds](crate::hints#bounds).
    #[error("it takes more than {MAX_STEPS} steps: exclude more, or loop over less")]
    TooManySteps,
    /// More than [`MAX_OUTPUT_BYTES`].
    #[error("it makes more than {MAX_OUTPUT_BYTES} bytes: exclude more, or extract less")]
    TooLarge,
    /// The result nests deeper than [`MAX_DEPTH`].
    #[error("the result nests deeper than {MAX_DEPTH} levels: extract from further down")]
    TooDeep,
    /// `merge` has nothing to merge with.
    #[error("the filtered context is no object to merge with; use the mode \"replace\"")]
    NotAnObject,
    /// A path cannot be evaluated on a context of this size.
    #[error("its path cannot be evaluated on this context: use only names and indexes")]
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

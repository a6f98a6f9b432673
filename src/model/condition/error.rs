//! The error of a condition that cannot be evaluated.

use crate::error::excerpt;
use crate::model::json_check::{MAX_DEPTH, RESERVED_KEY};
use crate::model::nearest::nearest;
use crate::model::op::Op;
use crate::model::path::PathError;
use std::str::FromStr;

/// Reason that a condition can never be evaluated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    /// The path is no JSONPath within the limits.
    #[error("{0}")]
    Path(PathError),
    /// The operator does not exist.
    #[error("op {op:?} is not known{}", did_you_mean_op(*nearest))]
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
    #[error("the value nests deeper than {MAX_DEPTH} levels")]
    ValueTooDeep,
    /// The value has an object key that no JSON may have here.
    #[error("the value has the object key {RESERVED_KEY:?}, which is reserved; rename the key")]
    ReservedKey,
    /// The regular expression does not compile, or is too large when compiled.
    #[error("{reason}")]
    Regex {
        /// The error message of the regex compiler.
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
            | Self::ReservedKey
            | Self::Regex { .. } => "value",
        }
    }
}

/// The nearest operator, or all of them if none is near.
fn did_you_mean_op(nearest: Option<&str>) -> String {
    match nearest {
        Some(_) => did_you_mean(nearest),
        None => format!("; there are {}", Op::ALL.map(Op::as_str).join(", ")),
    }
}

/// Returns the suggestion at the end of an error message, or an empty string.
pub(in crate::model) fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or(String::new(), |name| format!("; did you mean {name:?}?"))
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

//! Error of a condition that does not compile.

use crate::error::excerpt;
use crate::model::json_check::{MAX_DEPTH, RESERVED_KEY};
use crate::model::nearest::nearest;
use crate::model::op::Op;
use crate::model::path::PathError;
use std::str::FromStr;

/// Error of a [`Condition`](super::Condition) that does not compile.
///
/// The definition must change, so a retry cannot succeed. [`field`](Self::field) names the part to
/// fix.
///
/// # Examples
/// ```
/// use universal_executor::model::{ConditionError, Op};
///
/// assert_eq!("contains_any".parse::<Op>()?, Op::ContainsAny);
/// let error = "greater".parse::<Op>().unwrap_err();
/// assert!(matches!(error, ConditionError::UnknownOp { .. }));
/// # Ok::<(), ConditionError>(())
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    /// The condition's path is not a valid JSONPath, or exceeds a limit.
    #[error("{0}")]
    Path(PathError),
    /// The condition's operator does not exist.
    ///
    /// Write the name in `nearest`, or another name of [`Op::ALL`].
    #[error("unknown op {op:?}{}", did_you_mean_op(*nearest))]
    UnknownOp {
        /// The unknown operator as the condition writes it.
        op: String,
        /// The known condition operator with the name closest to the unknown operator, or `None` if no name is close.
        nearest: Option<&'static str>,
    },
    /// The condition has no value to compare with, but its operator needs one. Only the operator `exists` needs none.
    ///
    /// Add the field `value`, or pass `Some(value)` to [`Condition::new`](super::Condition::new).
    #[error("op {:?} needs a value; add \"value\"", op.as_str())]
    NoValue {
        /// The operator of the condition, which needs a value to compare with.
        op: Op,
    },
    /// The value of an `exists` condition is not a boolean. `exists` takes `true`, `false` or no value.
    ///
    /// To compare with a value, use the operator `eq`.
    #[error("op \"exists\" takes true or false, not {found}")]
    NotABoolean {
        /// The value of the `exists` condition that is not a boolean, shortened.
        found: String,
    },
    /// The condition's value nests deeper than 64 levels.
    ///
    /// Compare with a smaller part of the context, by a longer path.
    #[error("the value of a condition nests deeper than {MAX_DEPTH} levels; flatten it")]
    ValueTooDeep,
    /// The condition's value has the object key `$serde_json::private::RawValue`, which is reserved.
    #[error(
        "the value of a condition has the reserved object key {RESERVED_KEY:?}; rename the key"
    )]
    ReservedKey,
    /// The condition's regular expression does not compile, or is too large.
    ///
    /// A pattern has at most 4 KiB, and at most 256 KiB when it is compiled. Lookaround and
    /// backreferences are not supported.
    #[error("{reason}")]
    Regex {
        /// The reason why the regular expression is rejected. The reason contains the start of the regular expression.
        reason: String,
    },
}

impl ConditionError {
    /// Returns the name of the invalid field of the condition, which is `path`, `op` or `value`.
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

/// Returns the end of the error message about an unknown operator: the nearest operator, or all operators if none is near.
fn did_you_mean_op(nearest: Option<&str>) -> String {
    match nearest {
        Some(_) => did_you_mean(nearest),
        None => format!("; expected one of {}", Op::ALL.map(Op::as_str).join(", ")),
    }
}

/// Returns the end of an error message with the nearest known name, such as `; did you mean "eq"?`. Returns an empty string if no known
/// name is near.
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

use crate::error::excerpt;
use crate::hints::{HintsError, HintsFailure};
use std::fmt;

/// Hints that cannot shape what they should, so that it is not shown.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WithheldBy {
    /// They cannot be read.
    #[error("{hints} cannot be used: {error}")]
    Unreadable {
        /// Which ones.
        hints: HintsOf,
        /// What to mend.
        error: HintsError,
    },
    /// One of their rules failed.
    #[error("of {hints} {failure}")]
    Failed {
        /// Which ones.
        hints: HintsOf,
        /// The rule and why, without anything that it was applied to.
        failure: HintsFailure,
    },
    /// Nobody knows them.
    #[error("{hints} are not known")]
    Unknown {
        /// Which ones.
        hints: HintsOf,
    },
    /// One more of so many different ones of a source that they are not told apart any more.
    #[error("its hints cannot be used, as those of other items")]
    More,
}

/// Whose hints.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HintsOf {
    /// The breadcrumb's own.
    Breadcrumb,
    /// Those of the definition of this schema.
    Schema(String),
}

impl fmt::Display for HintsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Breadcrumb => f.write_str("its own hints"),
            Self::Schema(schema) => {
                write!(f, "the hints of schema {:?}", excerpt(schema, 128))
            }
        }
    }
}

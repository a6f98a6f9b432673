use crate::error::excerpt;
use crate::hints::{HintsError, HintsFailure};
use std::fmt;

/// Reason why an item of a context is withheld from a model: the item's hints cannot be applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WithheldBy {
    /// The hints cannot be read.
    #[error("{hints} cannot be used: {error}")]
    Unreadable {
        /// The owner of the hints.
        hints: HintsOf,
        /// The invalid field of the hints, and its problem.
        error: HintsError,
    },
    /// A rule of the hints failed.
    #[error("{hints} cannot be applied: {failure}")]
    Failed {
        /// The owner of the hints.
        hints: HintsOf,
        /// The rule and the reason, without values of the context.
        failure: HintsFailure,
    },
    /// The hints of the schema were not loaded.
    #[error("{hints} were not loaded")]
    Unknown {
        /// The owner of the hints.
        hints: HintsOf,
    },
    /// A further cause in a source that already has the maximum number of different causes.
    #[error("other hints of this source cannot be used either")]
    More,
}

/// The owner of hints.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HintsOf {
    /// The breadcrumb itself.
    Breadcrumb,
    /// The definition of the schema with this name.
    Schema(String),
}

impl fmt::Display for HintsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Breadcrumb => f.write_str("the breadcrumb's own hints"),
            Self::Schema(schema) => {
                write!(f, "the hints of schema {:?}", excerpt(schema, 128))
            }
        }
    }
}

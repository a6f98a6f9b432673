use crate::error::excerpt;
use crate::hints::{HintsError, HintsFailure};
use std::fmt;

/// Reason why an item of a context is withheld from a model: the item's `llm_hints` cannot be applied.
///
/// Fix the hints to show the item to the model. An item is never shown unfiltered instead.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WithheldBy {
    /// The `llm_hints` that apply to the item cannot be read.
    #[error("{hints} are invalid: {}: {}", error.field, error.problem)]
    Unreadable {
        /// The owner of the `llm_hints`: the breadcrumb or its schema.
        hints: HintsOf,
        /// The invalid field of the `llm_hints`, and its problem.
        error: HintsError,
    },
    /// A rule of the `llm_hints` that apply to the item failed.
    #[error("{hints} cannot be applied: {failure}")]
    Failed {
        /// The owner of the `llm_hints`: the breadcrumb or its schema.
        hints: HintsOf,
        /// The failed rule of the `llm_hints` and the reason, without values of the context.
        failure: HintsFailure,
    },
    /// The `llm_hints` of the item's schema were not loaded.
    #[error(
        "{hints} were not loaded for this execution context; set them with ExecutionContext::with_schema_hints"
    )]
    Unknown {
        /// The owner of the `llm_hints`: the schema of the breadcrumb.
        hints: HintsOf,
    },
    /// Hints withhold further items from the model, and their causes are omitted because the list of causes has reached its
    /// maximum length.
    #[error(
        "the llm_hints of further breadcrumbs cannot be applied; their causes are omitted, because the list of causes is full"
    )]
    More,
}

/// The owner of the `llm_hints` that apply to a breadcrumb: the breadcrumb itself, or the definition of its schema.
///
/// The hints of a breadcrumb take precedence over the hints of its schema.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HintsOf {
    /// The breadcrumb itself has the hints, in its `llm_hints`.
    Breadcrumb,
    /// The definition of the schema with this name has the `llm_hints`.
    Schema(String),
}

impl fmt::Display for HintsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Breadcrumb => f.write_str("the llm_hints of the breadcrumb"),
            Self::Schema(schema) => {
                write!(f, "the llm_hints of schema {:?}", excerpt(schema, 128))
            }
        }
    }
}

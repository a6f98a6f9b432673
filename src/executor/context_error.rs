use super::sources::MissingReason;
use super::waits::WaitError;
use super::withheld::WithheldBy;
use crate::error::Retry;
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Duration;

/// The operation of a store that reads the hints of schemas.
pub(super) const READ_HINTS: &str = "read the hints of schemas";

/// What a context was asked for and cannot give.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// No subscription has this key.
    #[error("no source is named {key:?}; there are {known}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The keys there are.
        known: String,
    },
    /// Nothing was found for this key.
    #[error("nothing was found for {key:?}")]
    NotFound {
        /// The key.
        key: String,
    },
    /// The source is not there.
    #[error("{key:?} is missing")]
    Missing {
        /// The key.
        key: String,
        /// Why.
        source: MissingReason,
    },
    /// The source is a list.
    #[error("{key:?} is a list of {items}; use many({key:?})")]
    IsList {
        /// The key.
        key: String,
        /// How many items it has.
        items: usize,
    },
    /// The context does not have the shape asked for.
    #[error("{key:?} does not have the shape asked for")]
    Shape {
        /// The key.
        key: String,
        /// What serde says.
        source: Arc<serde_json::Error>,
    },
    /// This needs a runtime or a run ledger.
    #[error("{operation} is not supported here: {reason}")]
    Unsupported {
        /// What was asked for.
        operation: &'static str,
        /// What is lacking.
        reason: &'static str,
    },
    /// The breadcrumb that was waited for did not come.
    #[error("the breadcrumb that was waited for did not come")]
    Wait(#[source] WaitError),
    /// Nothing is left to show to a model of what cannot be left out.
    #[error("{key:?} is withheld from the model: {cause}")]
    Withheld {
        /// `trigger`, the key of a required source, or the schema of an answer.
        key: String,
        /// What was to shape it.
        cause: Arc<WithheldBy>,
    },
    /// The store failed.
    #[error("the store failed to {operation}")]
    Store {
        /// The failed operation, for example `save the state of the run`.
        operation: &'static str,
        /// Error of the store.
        source: Arc<StoreError>,
    },
}

impl ContextError {
    pub(super) fn of_store(operation: &'static str, source: StoreError) -> Self {
        Self::Store {
            operation,
            source: Arc::new(source),
        }
    }

    /// A stable short name for logs, metrics and dead letters.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownKey { .. } => "unknown_key",
            Self::NotFound { .. } => "required_not_found",
            Self::Missing { .. } => "missing_source",
            Self::IsList { .. } => "is_list",
            Self::Shape { .. } => "wrong_shape",
            Self::Unsupported { .. } => "unsupported",
            Self::Wait(source) => source.code(),
            Self::Withheld { .. } => "withheld",
            Self::Store { source, .. } => source.code(),
        }
    }

    /// Whether asking again later could succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::NotFound { .. } => Retry::After(Duration::ZERO),
            Self::Missing { source, .. } => source.retry(),
            Self::Store { source, .. } => source.retry(),
            Self::Wait(source) => source.retry(),
            Self::Withheld { .. }
            | Self::UnknownKey { .. }
            | Self::IsList { .. }
            | Self::Shape { .. }
            | Self::Unsupported { .. } => Retry::Never,
        }
    }
}

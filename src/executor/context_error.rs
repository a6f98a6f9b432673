use super::sources::MissingReason;
use super::waits::WaitError;
use super::withheld::WithheldBy;
use crate::error::Retry;
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Duration;

/// Name of the store operation that reads the hints of schemas, for errors.
pub(super) const READ_HINTS: &str = "read the hints of schemas";

/// Error of an [`ExecutionContext`](super::ExecutionContext) method.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// No source has this key.
    #[error("no source has the key {key:?}; known keys: {known}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The known keys, separated by commas.
        known: String,
    },
    /// The source with this key found no breadcrumb.
    #[error("source {key:?} found no breadcrumb")]
    NotFound {
        /// The key.
        key: String,
    },
    /// The source is missing or incomplete.
    #[error("source {key:?} is missing")]
    Missing {
        /// The key.
        key: String,
        /// The reason.
        source: MissingReason,
    },
    /// The source is a list.
    #[error("source {key:?} is a list of {items} items; use many({key:?})")]
    IsList {
        /// The key.
        key: String,
        /// The number of items.
        items: usize,
    },
    /// The context does not deserialize to the requested type.
    #[error("the context of source {key:?} does not match the requested type")]
    Shape {
        /// The key.
        key: String,
        /// The serde error.
        source: Arc<serde_json::Error>,
    },
    /// The operation needs a runtime, a run ledger or a run that has not ended.
    #[error("{operation} is not supported here: {reason}")]
    Unsupported {
        /// The operation, for example `save`.
        operation: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// A wait for a breadcrumb failed.
    #[error("waiting for a breadcrumb failed")]
    Wait(#[source] WaitError),
    /// The trigger, a required source or an answer is withheld from the model, because its hints cannot be applied.
    #[error("{key:?} is withheld from the model: {cause}")]
    Withheld {
        /// `trigger`, the key of a required source, or the schema of an answer.
        key: String,
        /// The hints, and why they cannot be applied.
        cause: Arc<WithheldBy>,
    },
    /// The store failed.
    #[error("the store failed to {operation}")]
    Store {
        /// The failed operation, for example `save the state of the run`.
        operation: &'static str,
        /// The error of the store.
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

    /// Returns a stable code for logs, metrics and dead letters, for example `missing_source`.
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

    /// Returns whether a retry may succeed, and after what delay.
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

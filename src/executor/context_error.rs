use super::sources::MissingReason;
use super::waits::WaitError;
use super::withheld::WithheldBy;
use crate::error::Retry;
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Duration;

/// Name of the store operation that reads the `llm_hints` of schemas, for errors.
pub(super) const READ_HINTS: &str = "read the hints of schemas";

/// Error of an [`ExecutionContext`](super::ExecutionContext) method.
///
/// Return it from `execute` with `?`. Its class decides about a retry of the run:
///
/// - [`NotFound`](Self::NotFound) is retried with backoff, because the breadcrumb may appear later.
/// - [`Missing`](Self::Missing), [`Wait`](Self::Wait) and [`Store`](Self::Store) have the class of
///   their cause.
/// - All other variants fail the run at once, because the code or a definition must change.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// The execution context has no source with the requested key.
    ///
    /// Fix the key, or add a context subscription with this key.
    #[error("no context source has the key {key:?}; known keys: {known}")]
    UnknownKey {
        /// The requested key, which no source of the execution context has.
        key: String,
        /// The keys of all sources of the execution context, separated by commas.
        known: String,
    },
    /// The context source with the requested key found no breadcrumb.
    ///
    /// Create the breadcrumb, or read the source with [`get`](super::ExecutionContext::get).
    #[error("context source {key:?} found no breadcrumb; create one, or use get({key:?})")]
    NotFound {
        /// The key of the context source that found no breadcrumb.
        key: String,
    },
    /// The context source with the requested key is missing or incomplete.
    ///
    /// The reason in the field `source` has the remedy.
    #[error("context source {key:?} is missing or incomplete; see the cause")]
    Missing {
        /// The key of the context source that is missing or incomplete.
        key: String,
        /// The reason why the context source is missing or incomplete.
        source: MissingReason,
    },
    /// The context source with the requested key is a list, where a single item was requested.
    ///
    /// Read it with [`many`](super::ExecutionContext::many), or subscribe with a limit of 1.
    #[error("context source {key:?} is a list of {items} items; use many({key:?})")]
    IsList {
        /// The key of the context source that is a list.
        key: String,
        /// The number of breadcrumbs in the context source.
        items: usize,
    },
    /// The context of the requested breadcrumb does not deserialize to the requested type.
    ///
    /// Fix the type, or the program that writes the breadcrumb.
    #[error("context source {key:?} does not match the requested type; see the cause")]
    Shape {
        /// The key of the context source whose breadcrumb does not deserialize.
        key: String,
        /// The serde error of the deserialization.
        source: Arc<serde_json::Error>,
    },
    /// The execution context does not support the operation, which needs a runtime, a run ledger or a run that has not ended.
    ///
    /// Process the run in a [`Runtime`](crate::Runtime), on a store with a run ledger.
    #[error("the execution context does not support {operation}: {reason}")]
    Unsupported {
        /// The unsupported operation of the execution context, for example `save`.
        operation: &'static str,
        /// The reason why the execution context does not support the operation.
        reason: &'static str,
    },
    /// A run's wait for a breadcrumb failed, for example after its timeout.
    ///
    /// Wait longer, or suspend the run with [`suspend`](super::suspend).
    #[error("the run's wait for a breadcrumb failed; see the cause")]
    Wait(#[source] WaitError),
    /// The trigger, a required source or an answer is withheld from the model, because the `llm_hints` for its breadcrumb cannot
    /// be applied.
    ///
    /// Fix the hints of the breadcrumb or of its schema.
    #[error("context item {key:?} is withheld from the model: {cause}")]
    Withheld {
        /// Name of the withheld item: `trigger`, the key of a required context source, or the schema of an answer.
        key: String,
        /// The `llm_hints` that withhold the breadcrumb from the model, and the reason why they cannot be applied.
        cause: Arc<WithheldBy>,
    },
    /// A store operation that the execution context needs failed.
    ///
    /// The run is retried if a retry of the operation can succeed.
    #[error("the store failed to {operation}; see the cause")]
    Store {
        /// The failed store operation, for example `save the state of the run`.
        operation: &'static str,
        /// The error that the store returned for the operation.
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

    /// Returns whether a retry of the failed operation may succeed, and after what delay.
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

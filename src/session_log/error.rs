use crate::error::Retry;
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Duration;

/// Error of an operation on a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Another writer has added to the session since it was read. Read the session again before another attempt.
    #[error(
        "cannot add to session {session:?}: another writer added to it since it was read; read it again"
    )]
    Conflict {
        /// The session ID.
        session: Arc<str>,
    },
    /// The session was deleted during the operation. A turn must not create the session again.
    #[error("session {session:?} was deleted during the operation")]
    Deleted {
        /// The session ID.
        session: Arc<str>,
    },
    /// A breadcrumb of the session is not valid.
    #[error("cannot parse a breadcrumb of session {session:?}")]
    Unreadable {
        /// The session ID.
        session: Arc<str>,
        /// The error of the JSON reader.
        source: serde_json::Error,
    },
    /// The store failed.
    #[error("cannot read or write session {session:?}")]
    Store {
        /// The session ID.
        session: Arc<str>,
        /// The error of the store.
        source: StoreError,
    },
}

impl SessionError {
    /// Returns the error of the later one of two writers.
    pub(crate) fn conflict(session: &Arc<str>) -> Self {
        Self::Conflict {
            session: Arc::clone(session),
        }
    }

    /// Returns the error of a turn whose session was deleted.
    pub(crate) fn deleted(session: &Arc<str>) -> Self {
        Self::Deleted {
            session: Arc::clone(session),
        }
    }

    /// Converts an error of the store into the error of a session.
    pub(crate) fn of_store(session: &Arc<str>, error: StoreError) -> Self {
        match error {
            StoreError::Conflict { .. } => Self::conflict(session),
            StoreError::NotFound { .. } => Self::deleted(session),
            source => Self::Store {
                session: Arc::clone(session),
                source,
            },
        }
    }

    /// Returns the decision on a retry: at once after a conflict, never for a deleted or invalid session, and otherwise
    /// as the store specifies. A retry must read the session again.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Conflict { .. } => Retry::After(Duration::ZERO),
            Self::Deleted { .. } | Self::Unreadable { .. } => Retry::Never,
            Self::Store { source, .. } => source.retry(),
        }
    }
}

use crate::error::Retry;
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Duration;

/// Error of an operation that reads a session or adds to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Another writer has added to the session since it was read. Read the session again before the next attempt to add
    /// to it.
    #[error(
        "cannot add to session {session:?}: another writer added to it since it was read; read it again"
    )]
    Conflict {
        /// The session ID.
        session: Arc<str>,
    },
    /// The session was deleted during the turn. The turn must not create it again.
    #[error("session {session:?} was deleted meanwhile")]
    Deleted {
        /// The session ID.
        session: Arc<str>,
    },
    /// An entry of the session cannot be read.
    #[error("an entry of session {session:?} cannot be read")]
    Unreadable {
        /// The session ID.
        session: Arc<str>,
        /// The error of the JSON reader.
        source: serde_json::Error,
    },
    /// The store failed.
    #[error("session {session:?} cannot be reached")]
    Store {
        /// The session ID.
        session: Arc<str>,
        /// The error of the store.
        source: StoreError,
    },
}

impl SessionError {
    /// Returns the error of a writer that comes after another one.
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

    /// Returns an error of the store as the error of a session.
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

    /// Returns the decision on a retry that reads the session again.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Conflict { .. } => Retry::After(Duration::ZERO),
            Self::Deleted { .. } | Self::Unreadable { .. } => Retry::Never,
            Self::Store { source, .. } => source.retry(),
        }
    }
}

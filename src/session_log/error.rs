use crate::error::Retry;
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Duration;

/// Error of a read, write or deletion of a chat session's log in the store.
///
/// A client returns it inside [`ClientError::SessionLog`](crate::client::ClientError::SessionLog).
/// [`retry`](Self::retry) says whether another attempt can succeed.
///
/// # Examples
/// ```
/// use universal_executor::client::SessionError;
/// use universal_executor::error::Retry;
///
/// let error = SessionError::Deleted { session: "session-1".into() };
/// assert_eq!(error.retry(), Retry::Never);
/// assert!(error.to_string().contains("session-1"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Another writer has added to the session log since the caller read the log. Read the session again before another
    /// attempt.
    #[error(
        "cannot add to session {session:?}: another writer added to the session since it was read; read the session again"
    )]
    Conflict {
        /// The ID of the session that another writer changed.
        session: Arc<str>,
    },
    /// The session was deleted while its log was read or written. A turn must not create the session again.
    #[error("session {session:?} was deleted during the operation; a new message starts it again")]
    Deleted {
        /// The ID of the deleted session.
        session: Arc<str>,
    },
    /// A breadcrumb of the session log is not valid.
    ///
    /// A program other than this crate changed the breadcrumb, or another version of the crate
    /// wrote it. Delete the session, or correct the breadcrumb.
    #[error("cannot parse a breadcrumb of session {session:?}; see the cause")]
    Unreadable {
        /// The ID of the session whose log has the invalid breadcrumb.
        session: Arc<str>,
        /// The error of the JSON reader for the breadcrumb of the session log.
        source: serde_json::Error,
    },
    /// The store failed to read or write the session log.
    ///
    /// The source says whether a retry helps.
    #[error("cannot read or write session {session:?}; see the cause")]
    Store {
        /// The ID of the session whose log cannot be read or written.
        session: Arc<str>,
        /// The error of the store that contains the session log.
        source: StoreError,
    },
}

impl SessionError {
    /// Returns the conflict error of a session write: another writer added to the session since the session was read.
    pub(crate) fn conflict(session: &Arc<str>) -> Self {
        Self::Conflict {
            session: Arc::clone(session),
        }
    }

    /// Returns the error of a read or write of a session that was deleted in the meantime.
    pub(crate) fn deleted(session: &Arc<str>) -> Self {
        Self::Deleted {
            session: Arc::clone(session),
        }
    }

    /// Converts the store's error from a read or write of a session log.
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

    /// Returns when a retry of the failed session operation can succeed. This is at once after a conflict, never for a
    /// deleted or invalid session, and otherwise as the store specifies. A retry must read the session again.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Conflict { .. } => Retry::After(Duration::ZERO),
            Self::Deleted { .. } | Self::Unreadable { .. } => Retry::Never,
            Self::Store { source, .. } => source.retry(),
        }
    }
}

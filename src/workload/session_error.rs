use crate::error::Retry;
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Duration;

/// A session cannot be read, or added to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Somebody else has added to it since it was read: read it again and decide anew.
    #[error("session {session:?} was added to by somebody else")]
    Conflict {
        /// The session.
        session: Arc<str>,
    },
    /// It was deleted while the turn was under way. The turn is not to begin it anew.
    #[error("session {session:?} was deleted meanwhile")]
    Deleted {
        /// The session.
        session: Arc<str>,
    },
    /// What is there cannot be read.
    #[error("an entry of session {session:?} cannot be read")]
    Unreadable {
        /// The session.
        session: Arc<str>,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The store does not do what it should.
    #[error("session {session:?} cannot be reached")]
    Store {
        /// The session.
        session: Arc<str>,
        /// What it says.
        source: StoreError,
    },
}

impl SessionError {
    /// Whether doing the same from the beginning could succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Conflict { .. } => Retry::After(Duration::ZERO),
            Self::Deleted { .. } | Self::Unreadable { .. } => Retry::Never,
            Self::Store { source, .. } => source.retry(),
        }
    }
}

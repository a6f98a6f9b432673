//! The error of a client.

use crate::error::Retry;
use crate::model::BreadcrumbId;
use crate::session_log::SessionError;
use crate::store::StoreError;
use std::sync::Arc;
use std::time::Duration;

/// Error of a [`Client`](super::Client).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The store has no run ledger.
    #[error("the store of the client has no run ledger; add one with WithLedger")]
    NoLedger,
    /// A text is not the ID of a request.
    #[error("{id:?} is not the ID of a request; pass the text that RequestHandle::id returned")]
    BadId {
        /// The first 300 bytes of the text.
        id: String,
    },
    /// An earlier request to the executor with this key had another breadcrumb.
    #[error(
        "key {key:?} belongs to an earlier request to executor {executor:?} with another breadcrumb, {earlier}; use another key"
    )]
    KeyConflict {
        /// The executor ID.
        executor: Arc<str>,
        /// The key.
        key: Arc<str>,
        /// The trigger of the earlier request.
        earlier: BreadcrumbId,
    },
    /// No live worker has the executor with subscriptions that match the breadcrumb.
    #[error(
        "no live worker would answer a request to executor {executor:?}: {reason}; start a worker, or send without require_listener"
    )]
    NoListener {
        /// The executor ID.
        executor: Arc<str>,
        /// The reason.
        reason: String,
    },
    /// A session ID is empty or too long.
    #[error("session ID {session:?} has {size} bytes; use 1 to 200 bytes")]
    BadSession {
        /// The first 300 bytes of the session ID.
        session: String,
        /// The length of the session ID in bytes.
        size: usize,
    },
    /// The store does not record writers, so it has no chat sessions.
    #[error(
        "the store of the client does not record writers, which chat sessions need; use a memory, SQLite or PostgreSQL store"
    )]
    NoSessions,
    /// The log of a workload under the ID of a session cannot be deleted.
    #[error("cannot delete the log of a session")]
    SessionLog(#[from] SessionError),
    /// The store failed, or refused the operation.
    #[error("the store of the client failed")]
    Store(#[from] StoreError),
}

impl ClientError {
    /// Returns when a retry can succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::NoLedger
            | Self::BadId { .. }
            | Self::KeyConflict { .. }
            | Self::BadSession { .. }
            | Self::NoSessions => Retry::Never,
            Self::NoListener { .. } => Retry::After(Duration::from_secs(1)),
            Self::SessionLog(source) => source.retry(),
            Self::Store(source) => source.retry(),
        }
    }

    /// Returns the code of the error, for logs and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoLedger => "no_ledger",
            Self::BadId { .. } => "bad_id",
            Self::KeyConflict { .. } => "key_conflict",
            Self::NoListener { .. } => "no_listener",
            Self::BadSession { .. } => "bad_session",
            Self::NoSessions => "no_sessions",
            Self::SessionLog(_) => "session",
            Self::Store(source) => source.code(),
        }
    }
}

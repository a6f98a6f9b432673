//! Errors of clients.

use super::QuestionView;
use crate::error::Retry;
use crate::model::BreadcrumbId;
use crate::store::{RunRef, RunState, StoreError};
use crate::workload::SessionError;
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

/// A request has no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The run failed for good.
    #[error("{run} failed with {code}{}", cause.as_deref().map(|cause| format!(": {cause}")).unwrap_or_default())]
    Failed {
        /// The run.
        run: RunRef,
        /// The code of the last error.
        code: String,
        /// The class of the failure, such as `permanent` or `attempts_used_up`.
        class: Option<String>,
        /// The last error and its sources, without credentials.
        cause: Option<String>,
    },
    /// The run was cancelled.
    #[error("{run} was cancelled")]
    Cancelled {
        /// The run.
        run: RunRef,
    },
    /// The run ended without an answer, because its executor does not match the trigger, or the trigger was deleted.
    #[error("{run} was skipped: {reason}")]
    Skipped {
        /// The run.
        run: RunRef,
        /// The reason, such as `unmatched` or `gone`.
        reason: String,
    },
    /// A later version of the trigger has its own run.
    #[error("{run} was superseded by a later version of its trigger")]
    Superseded {
        /// The run.
        run: RunRef,
    },
    /// The run has not ended in time. It continues.
    #[error("{run} has not ended within {after:?}; it {}", describe(*state, question.is_some()))]
    TimedOut {
        /// The run.
        run: RunRef,
        /// The time that was waited.
        after: Duration,
        /// The state of the run. `None` if no worker has enqueued it.
        state: Option<RunState>,
        /// The question to a person that the run waits for.
        question: Option<Box<QuestionView>>,
    },
    /// The run cannot be read.
    #[error("cannot read the run of a request")]
    Client(#[from] ClientError),
}

fn describe(state: Option<RunState>, is_asking: bool) -> &'static str {
    match state {
        None => "was not enqueued yet: no worker with the executor has received the event",
        Some(_) if is_asking => "waits for the answer of a person",
        Some(RunState::Ready) => "is ready and waits for a worker",
        Some(RunState::Running) => "is running",
        Some(RunState::Suspended) => "is suspended",
        Some(RunState::Done | RunState::Failed | RunState::Skipped | RunState::Superseded) => {
            "ended a moment ago"
        }
    }
}

impl ReplyError {
    /// Returns when a retry of the wait can succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Failed { .. }
            | Self::Cancelled { .. }
            | Self::Skipped { .. }
            | Self::Superseded { .. } => Retry::Never,
            Self::TimedOut { .. } => Retry::After(Duration::ZERO),
            Self::Client(source) => source.retry(),
        }
    }

    /// Returns the code of the error, for logs and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Failed { .. } => "request_failed",
            Self::Cancelled { .. } => "cancelled",
            Self::Skipped { .. } => "skipped",
            Self::Superseded { .. } => "superseded",
            Self::TimedOut { .. } => "timed_out",
            Self::Client(source) => source.code(),
        }
    }
}

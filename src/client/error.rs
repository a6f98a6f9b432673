//! Errors of a client, which sends requests to the executors on its store.

use crate::error::Retry;
use crate::model::BreadcrumbId;
use crate::session_log::SessionError;
use crate::store::{RunRef, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// Error returned by the methods of a [`Client`](super::Client).
///
/// [`retry`](Self::retry) returns if and when a repeated call can succeed. The cause in the store
/// is in `source()`; print the chain of sources in logs.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::client::ClientError;
/// use universal_executor::error::Retry;
///
/// /// Returns the delay before the next try, or the error for the user.
/// fn delay(error: ClientError) -> Result<Duration, ClientError> {
///     match error.retry() {
///         Retry::After(delay) => Ok(delay),
///         Retry::Never => Err(error),
///     }
/// }
/// assert!(delay(ClientError::NoLedger).is_err());
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The store of the client has no run ledger.
    ///
    /// Requests and sessions need a ledger, which the memory, SQLite and PostgreSQL stores have.
    /// [`WithLedger`](crate::WithLedger) adds one to another store.
    #[error("the store of the client has no run ledger; add one with WithLedger")]
    NoLedger,
    /// A string that was passed to [`Client::attach`](super::Client::attach) is not the ID of a request.
    ///
    /// The string was changed, or comes from another source. Treat it like an unknown URL: a
    /// repeated call cannot succeed.
    #[error("{id:?} is not the ID of a request; pass the string that RequestHandle::id returned")]
    BadId {
        /// The string that is not a request ID, cut to its first 300 bytes.
        id: String,
    },
    /// An earlier request has the same executor and idempotency key, but its breadcrumb differs from the breadcrumb of the new request.
    ///
    /// The caller reused a key for another request, or the breadcrumb contains a value that
    /// changes, such as a timestamp. Use another key, or send the original breadcrumb.
    #[error(
        "key {key:?} belongs to an earlier request to executor {executor:?} with different content, breadcrumb {earlier}; use another key"
    )]
    KeyConflict {
        /// ID of the executor to which the client sent both the earlier and the new request.
        executor: Arc<str>,
        /// The idempotency key that the client's earlier request and its new request share.
        key: Arc<str>,
        /// The trigger breadcrumb that the client's earlier request created.
        earlier: BreadcrumbId,
    },
    /// No live worker would answer the client's request to the executor. Either no live worker has the executor, or the
    /// executor's subscriptions do not match the breadcrumb.
    ///
    /// The request or message was not written. Only a request or message with `require_listener`
    /// fails like this. A retry after 1 s can succeed if a worker is starting.
    #[error(
        "no live worker would answer a request to executor {executor:?}: {reason}; start a worker, or send without require_listener"
    )]
    NoListener {
        /// ID of the executor that has no live worker to answer the client's request.
        executor: Arc<str>,
        /// The reason why no live worker would answer the client's request.
        reason: String,
    },
    /// The client cannot cancel the run: the ledger does not have the run, and the store does not have the breadcrumb version
    /// that would trigger the run.
    ///
    /// The trigger was deleted or has expired, or the [`RunRef`] names a version that does not
    /// exist. Nothing is left to cancel, unless the version is wrong.
    #[error("cannot cancel {run}: the ledger does not have the run, and {}", missing(*found))]
    NoTrigger {
        /// The run that cannot be cancelled.
        run: RunRef,
        /// Number of the trigger's current version, if the store has the trigger in another version than the run names. `None` if
        /// the store does not have the trigger.
        found: Option<u64>,
    },
    /// A chat session ID is empty or too long.
    ///
    /// The limit is [`Session::MAX_ID_BYTES`](super::Session::MAX_ID_BYTES). Shorten or hash the
    /// ID.
    #[error("session ID {session:?} has {size} bytes; use 1 to 200 bytes")]
    BadSession {
        /// The invalid chat session ID, cut to its first 300 bytes.
        session: String,
        /// The length of the invalid chat session ID in bytes.
        size: usize,
    },
    /// The chat session has no turn with the event cursor or request ID that the caller passed, or the turn was deleted.
    ///
    /// The cursor or ID may come from a user, so report it like a missing page.
    #[error(
        "session {session:?} has no turn with the cursor or request ID {turn:?}: the turn belongs to another session, or was deleted; \
         pass an Envelope::cursor or a request ID of this session"
    )]
    NoTurn {
        /// ID of the chat session in which the requested turn was not found, cut to its first 300 bytes.
        session: String,
        /// The event cursor or request ID of the chat turn that was not found, cut to its first 300 bytes.
        turn: String,
    },
    /// The client's store does not record the writers of breadcrumbs, so the client has no chat sessions.
    ///
    /// A store in [`WithLedger`](crate::WithLedger) has no
    /// [lineage](crate::store::Capabilities::lineage), so it cannot have sessions.
    #[error(
        "the store of the client does not record writers, which chat sessions need; use a memory, SQLite or PostgreSQL store"
    )]
    NoSessions,
    /// A client deleted a chat session, but could not delete the log that workloads wrote for a session with the same ID.
    ///
    /// The messages of the session are deleted already. Call
    /// [`Session::delete`](super::Session::delete) again.
    #[error("cannot delete the workload log of a deleted chat session; see the cause")]
    SessionLog(#[from] SessionError),
    /// The client's store failed, or refused the operation.
    ///
    /// The field `source` of [`StoreFailure`] has the reason. Common ones are
    /// [`StoreError::Unavailable`] (retry later), [`StoreError::NotFound`],
    /// [`StoreError::UnknownRun`] and [`StoreError::WrongState`] (no retry).
    #[error(transparent)]
    Store(Box<StoreFailure>),
}

/// A client operation that failed in the store.
///
/// Content of [`ClientError::Store`]. Match on `source` to tell a missing breadcrumb from a store
/// that is unavailable.
///
/// # Examples
/// ```
/// use universal_executor::client::ClientError;
/// use universal_executor::store::StoreError;
/// use universal_executor::{BreadcrumbId, Client, MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let client = Client::new(&MemoryStore::default());
/// let Err(ClientError::Store(failure)) = client.explain(BreadcrumbId::NIL).await else {
///     return Err("the breadcrumb exists".into());
/// };
/// assert!(matches!(failure.source, StoreError::NotFound { .. }));
/// assert!(failure.operation.starts_with("read breadcrumb"));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}{}", remedy(source))]
#[non_exhaustive]
pub struct StoreFailure {
    /// The failed operation of the client with its argument, such as `read breadcrumb 01980f..`.
    pub operation: String,
    /// The error of the client's store.
    pub source: StoreError,
}

fn missing(found: Option<u64>) -> String {
    match found {
        None => "its trigger was deleted, has expired, or never existed, so no worker will execute the run".to_owned(),
        Some(version) => {
            format!("its trigger is at version {version}; pass a version from 1 to {version}")
        }
    }
}

fn remedy(error: &StoreError) -> &'static str {
    match matches!(error, StoreError::UnknownRun { .. }) {
        true => {
            "; no worker has received its trigger, or the store has deleted the row of the run: see Client::explain"
        }
        false => "; see the cause",
    }
}

impl ClientError {
    /// Creates a client error from the operation that failed and the store's error.
    pub(super) fn of_store(operation: impl Into<String>, source: StoreError) -> Self {
        Self::Store(Box::new(StoreFailure {
            operation: operation.into(),
            source,
        }))
    }

    /// Returns the delay after which a retry of the client's operation can succeed, or [`Retry::Never`].
    ///
    /// [`NoListener`](Self::NoListener) allows a retry after 1 s. [`Store`](Self::Store) and
    /// [`SessionLog`](Self::SessionLog) return the decision of their cause. All other errors need
    /// another call.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::NoLedger
            | Self::BadId { .. }
            | Self::KeyConflict { .. }
            | Self::NoTrigger { .. }
            | Self::NoTurn { .. }
            | Self::BadSession { .. }
            | Self::NoSessions => Retry::Never,
            Self::NoListener { .. } => Retry::After(Duration::from_secs(1)),
            Self::SessionLog(source) => source.retry(),
            Self::Store(failure) => failure.source.retry(),
        }
    }

    /// Returns the code of the client error, for logs and metrics.
    ///
    /// Each variant has one code, such as `key_conflict` or `no_listener`. [`Store`](Self::Store)
    /// returns the code of the store's error, such as `not_found`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoLedger => "no_ledger",
            Self::BadId { .. } => "bad_id",
            Self::KeyConflict { .. } => "key_conflict",
            Self::NoListener { .. } => "no_listener",
            Self::NoTrigger { .. } => "no_trigger",
            Self::NoTurn { .. } => "no_turn",
            Self::BadSession { .. } => "bad_session",
            Self::NoSessions => "no_sessions",
            Self::SessionLog(_) => "session",
            Self::Store(failure) => failure.source.code(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Chain;

    fn run() -> RunRef {
        RunRef::new("clerk", BreadcrumbId::NIL, 2)
    }

    #[test]
    fn an_error_of_the_store_names_the_operation_and_the_value() {
        let id = BreadcrumbId::NIL;
        let tombstone = None;
        let source = StoreError::NotFound { id, tombstone };

        let error = ClientError::of_store(format!("read breadcrumb {id}"), source);

        let expected = format!("cannot read breadcrumb {id}; see the cause");
        assert_eq!(error.to_string(), expected);
        let expected = format!("{expected}: breadcrumb {id} does not exist");
        assert_eq!(Chain(&error).to_string(), expected);
        assert_eq!((error.retry(), error.code()), (Retry::Never, "not_found"));
    }

    #[test]
    fn the_error_about_an_unknown_run_names_the_run_and_a_remedy() {
        let unknown = StoreError::UnknownRun { run: run() };

        let error = ClientError::of_store(format!("redo {}", run()), unknown).to_string();

        assert!(
            error.starts_with(&format!("cannot redo {};", run())),
            "{error}"
        );
        assert!(error.ends_with("see Client::explain"), "{error}");
    }

    #[test]
    fn the_error_about_a_missing_trigger_names_the_run_and_the_version_that_exists() {
        let error = |found| ClientError::NoTrigger { run: run(), found }.to_string();

        let (deleted, older) = (error(None), error(Some(1)));

        assert!(
            deleted.starts_with(&format!("cannot cancel {}", run())),
            "{deleted}"
        );
        assert!(deleted.contains("was deleted"), "{deleted}");
        assert!(older.ends_with("pass a version from 1 to 1"), "{older}");
    }
}

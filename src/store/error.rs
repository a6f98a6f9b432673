use super::embed_error::EmbedError;
use super::run::{RunRef, RunState};
use crate::error::{BoxError, Retry};
use crate::model::{Breadcrumb, BreadcrumbId, ConditionError, JsonError, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Error of an operation of a [`BreadcrumbStore`](super::BreadcrumbStore) or its [`RunLedger`](super::RunLedger). Each variant
/// permits a different reaction of the caller.
///
/// [`retry`](Self::retry) returns whether a retry can succeed, and [`code`](Self::code) a short
/// name for logs. An executor can return the error unchanged: the runtime then retries or ends the
/// run by the same rule. The cause is in `source()`.
///
/// | variant | code | retry |
/// |---|---|---|
/// | [`Conflict`](Self::Conflict) | `conflict` | at once, with the current version |
/// | [`Full`](Self::Full), [`Partial`](Self::Partial) | `full`, `partial` | after 1 s |
/// | [`Unavailable`](Self::Unavailable) | `unavailable` | after `retry_after` |
/// | [`Embedding`](Self::Embedding) | `embedding` | [`EmbedError::retry`] |
/// | each other variant | its name in snake case | never |
///
/// ```
/// use std::time::Duration;
/// use universal_executor::error::Retry;
/// use universal_executor::store::StoreError;
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Patch};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let note = store.create(NewBreadcrumb::new("note.v1")).await?;
/// store.update(note.id, 1, Patch::new().title("a")).await?;
///
/// // Another update from version 1.
/// let error = store.update(note.id, 1, Patch::new().title("b")).await.unwrap_err();
/// assert_eq!(error.code(), "conflict");
/// assert_eq!(error.retry(), Retry::After(Duration::ZERO));
/// assert!(error.to_string().contains("the current version is 2"));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The breadcrumb does not exist in this tenant, or was deleted.
    ///
    /// An expired breadcrumb is also not found. Handles of other tenants cannot see the breadcrumb.
    #[error("breadcrumb {id} does not exist")]
    NotFound {
        /// The ID of the missing breadcrumb.
        id: BreadcrumbId,
        /// The last version of a deleted breadcrumb, if the store retains tombstones.
        tombstone: Option<Arc<Breadcrumb>>,
    },
    /// The breadcrumb has changed since the caller read it. Read the new version, then decide again.
    #[error(
        "cannot update breadcrumb {id} from version {expected}: the current version is {found}; read the breadcrumb again"
    )]
    Conflict {
        /// The ID of the breadcrumb that changed.
        id: BreadcrumbId,
        /// The breadcrumb version from which the caller made the update.
        expected: u64,
        /// The current version of the breadcrumb.
        found: u64,
    },
    /// The lease of the run is lost: another worker has claimed the run, or the run was released or has ended. Write nothing for
    /// the run.
    ///
    /// A runtime then drops the attempt, because another worker continues the run or it has ended.
    #[error(
        "the lease of {run} is lost: another worker has claimed the run, or the run was released or has ended"
    )]
    LeaseLost {
        /// The run whose lease is lost.
        run: RunRef,
    },
    /// The response of the run could not be written now, so [`WithLedger`](super::WithLedger) saved the response in the ledger
    /// and released the lease. The claim of a later attempt writes the response. Write nothing else for the run.
    #[error(transparent)]
    ResponseSaved(Box<SavedResponse>),
    /// The run ledger has no row for the run.
    ///
    /// Stores retain a limited number of finished runs.
    /// [`RunLedger::enqueue`](super::RunLedger::enqueue) adds the run.
    #[error("{run} is not in the run ledger: it was never enqueued, or its row was deleted")]
    UnknownRun {
        /// The run that the ledger does not have.
        run: RunRef,
    },
    /// The state of the run does not permit the operation.
    ///
    /// Read the state with [`RunLedger::runs`](super::RunLedger::runs). For example,
    /// [`redo`](super::RunLedger::redo) needs a failed or unmatched run, and
    /// [`resume`](super::RunLedger::resume) a suspended run.
    #[error("cannot {operation} {run}: it is {state}")]
    WrongState {
        /// The operation that the state does not permit, such as `redo` or `resume`.
        operation: &'static str,
        /// The run whose state does not permit the operation.
        run: RunRef,
        /// The current state of the run.
        state: RunState,
    },
    /// The content of a write exceeds a limit that all stores have, for example on size or depth. Write less content.
    ///
    /// Move large content, such as a file, to another storage, and save its address in the
    /// breadcrumb.
    #[error(
        "{what} cannot be stored, because it exceeds a limit that each store has; see the cause"
    )]
    Rejected {
        /// The rejected part of the write, such as `the context of write 0`.
        what: String,
        /// The JSON error that states the exceeded limit.
        source: JsonError,
    },
    /// A rule of the executor, the ledger or the store forbids the operation.
    ///
    /// The reason describes the permitted alternative, for example which role a token needs.
    #[error("{reason}")]
    Forbidden {
        /// The reason why the operation is forbidden, and the permitted alternative.
        reason: String,
    },
    /// A commit has too many writes.
    ///
    /// The maximum is [`Commit::MAX_WRITES`](super::Commit::MAX_WRITES).
    #[error("the commit has {count} writes where at most {limit} are allowed; split the commit")]
    TooManyWrites {
        /// The number of writes in the commit.
        count: usize,
        /// The maximum number of writes in one commit.
        limit: usize,
    },
    /// A breadcrumb in a commit has too many tags.
    ///
    /// The maximum is [`Breadcrumb::MAX_TAGS`]. The commit wrote nothing.
    #[error(
        "the breadcrumb in write {write} of the commit has {count} tags where at most {limit} are allowed; remove some tags"
    )]
    TooManyTags {
        /// The index of the write in the commit's list of writes, counted from 0.
        write: usize,
        /// The number of tags of the breadcrumb.
        count: usize,
        /// The maximum number of tags of one breadcrumb.
        limit: usize,
    },
    /// A tag of a breadcrumb in a commit is too long.
    ///
    /// The maximum is [`Breadcrumb::MAX_TAG_BYTES`]. The commit wrote nothing.
    #[error(
        "the breadcrumb in write {write} of the commit has a tag of {size} bytes where at most {limit} are allowed; use a shorter tag"
    )]
    TagTooLong {
        /// The index of the write in the commit's list of writes, counted from 0.
        write: usize,
        /// The size of the tag in bytes.
        size: usize,
        /// The maximum size of a tag in bytes.
        limit: usize,
    },
    /// The schema name of a breadcrumb in a commit is too long.
    ///
    /// The maximum is [`Breadcrumb::MAX_SCHEMA_BYTES`]. The commit wrote nothing.
    #[error(
        "the breadcrumb in write {write} of the commit has a schema name of {size} bytes where at most {limit} are allowed; use a shorter name"
    )]
    SchemaTooLong {
        /// The index of the write in the commit's list of writes, counted from 0.
        write: usize,
        /// The size of the schema name in bytes.
        size: usize,
        /// The maximum size of a schema name in bytes.
        limit: usize,
    },
    /// The event position of an executor, up to which its triggers were received, is too large to be saved.
    ///
    /// Only a caller of [`save_positions`](super::RunLedger::save_positions) receives it.
    #[error(
        "the saved position of executor {executor:?} has {size} bytes where at most {limit} are allowed"
    )]
    PositionTooLarge {
        /// The ID of the executor whose event position is saved.
        executor: Arc<str>,
        /// The size of the executor's event position in bytes.
        size: usize,
        /// The maximum size of an executor's event position in bytes.
        limit: usize,
    },
    /// The idempotency key of a [request](super::RunLedger::request) is empty or too long.
    ///
    /// The maximum is [`NewRequest::MAX_KEY_BYTES`](super::NewRequest::MAX_KEY_BYTES). Use a hash
    /// of a longer key.
    #[error(
        "the key of a request for executor {executor:?} has {size} bytes; use 1 to {limit} bytes"
    )]
    InvalidKey {
        /// The ID of the executor in the ledger request with the invalid idempotency key.
        executor: Arc<str>,
        /// The size of the invalid idempotency key in bytes.
        size: usize,
        /// The maximum size of an idempotency key in bytes.
        limit: usize,
    },
    /// The idempotency key of a [request](super::RunLedger::request) belongs to an earlier request with another breadcrumb.
    ///
    /// All fields of the two breadcrumbs must be equal, also `ttl` and the order of the tags.
    #[error(
        "key {key:?} of executor {executor:?} belongs to a request with another breadcrumb, {id}; use another key for this one"
    )]
    KeyConflict {
        /// The ID of the executor to which the conflicting idempotency key belongs.
        executor: Arc<str>,
        /// The idempotency key that an earlier request used with another breadcrumb.
        key: Arc<str>,
        /// The ID of the breadcrumb that the earlier request with the same idempotency key created.
        id: BreadcrumbId,
    },
    /// The wake condition of a run has neither a selector nor a time, so the run would be suspended for ever. Add a selector or a
    /// time to the run's [`Wake`](super::Wake).
    #[error(
        "cannot suspend the run: the wake condition has neither a selector nor a time; add a selector or a time"
    )]
    EmptyWake,
    /// The selector of a query or of a suspended run is invalid, so the store cannot evaluate it.
    ///
    /// [`Selector::check`](crate::Selector::check) finds the mistake before a query, for example an
    /// invalid JSONPath.
    #[error("cannot evaluate the selector of the query or of the suspended run; see the cause")]
    InvalidQuery(#[source] ConditionError),
    /// The store read only a part of the queried interval of time. The rest of the interval takes too long to read, or cannot be
    /// read now. The interval is between [`after`](super::Query::after()) and [`before`](super::Query::before()). Query the rest
    /// from [`PartialSearch::next`].
    #[error(transparent)]
    Partial(Box<PartialSearch>),
    /// The store stopped an incomplete search, because it had read the maximum number of breadcrumbs. Select a schema or a tag
    /// that fewer breadcrumbs have.
    #[error(
        "{store} read {looked_at} breadcrumbs without completing the search; select a schema or a tag that fewer breadcrumbs have"
    )]
    TooFar {
        /// The name of the store that stopped the search.
        store: &'static str,
        /// The number of breadcrumbs that the store read.
        looked_at: usize,
    },
    /// The backend of the store rejects the operation. A retry cannot succeed.
    ///
    /// Examples are a damaged file and a write to a store that was opened for reading.
    #[error("{store} rejects the operation, and a retry cannot succeed; see the cause")]
    Refused {
        /// The name of the store that rejects the operation.
        store: &'static str,
        /// Cause of the rejection, as reported by the backend.
        source: BoxError,
    },
    /// The embedder of the store failed for the text of a vector search or of a breadcrumb.
    ///
    /// A commit never fails with it, because the store embeds again later.
    #[error("cannot compute the vector of a text; see the cause")]
    Embedding(#[from] EmbedError),
    /// The store or its ledger has the maximum number of items of one kind, such as open runs.
    ///
    /// Delete breadcrumbs, wait until runs end, or raise the limit of the store.
    #[error("{store} is full: it holds at most {limit} {what}")]
    Full {
        /// The name of the store that is full.
        store: &'static str,
        /// The kind of the limited items, such as `open runs`.
        what: &'static str,
        /// The maximum number of items of the kind `what`, such as open runs, that the store can contain.
        limit: usize,
    },
    /// The store does not have the requested operation; check [`Capabilities`](super::Capabilities) first.
    ///
    /// Use another store, or [`WithLedger`](super::WithLedger) for a store without a ledger.
    #[error("{store} does not support {operation}")]
    Unsupported {
        /// The name of the store without the operation.
        store: &'static str,
        /// The operation that the store does not have.
        operation: &'static str,
    },
    /// The backend of the store is unreachable or overloaded. The operation may have succeeded.
    ///
    /// Before you repeat a creation, check whether the first one succeeded, or use a
    /// [request](super::RunLedger::request) with an idempotency key. An update and a delete can be
    /// repeated: the second attempt then fails with a conflict or [`NotFound`](Self::NotFound).
    #[error("{store} is unavailable or overloaded; see the cause")]
    Unavailable {
        /// The name of the unavailable store.
        store: &'static str,
        /// Delay after which the failed store operation can be repeated.
        retry_after: Duration,
        /// Cause of the outage, as reported by the store's database driver or client library.
        source: BoxError,
    },
}

/// Error for a run whose response cannot be written to the store now, and will be written by a later attempt.
/// [`WithLedger`](super::WithLedger) saved the response in the ledger.
///
/// A caller does nothing: a worker claims the run again at [`at`](Self::at) and writes the
/// response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error(
    "cannot write the response of {run} yet; the ledger saved the response, and the attempt at {at} will write it"
)]
pub struct SavedResponse {
    /// The run whose response waits in the ledger to be written to the store.
    pub run: RunRef,
    /// The earliest time of the attempt that will write the response, by the ledger's clock.
    pub at: Timestamp,
    /// Delay until the attempt of the run that will write the response to the store.
    pub delay: Duration,
    /// The error of the commit that could not write the response.
    pub source: StoreError,
}

/// Error of a query that read only a part of its interval of time, with the result for this part. See [`StoreError::Partial`].
///
/// Use [`found`](Self::found), then continue with a query whose `before` is [`next`](Self::next).
/// Only an `RcrtStore` returns it.
#[derive(Debug, thiserror::Error)]
#[error(
    "{store} read only a part of the queried interval; query the rest from PartialSearch::next"
)]
pub struct PartialSearch {
    /// The name of the store that answered the query.
    pub store: &'static str,
    /// The matching breadcrumbs in the part of the interval that the store read, in the order that the query sets.
    pub found: Vec<Arc<Breadcrumb>>,
    /// Bound for [`Query::before`](super::Query::before()) with which the next query searches the unread rest of the interval.
    /// `None` if the store has read the whole interval.
    pub next: Option<(Timestamp, u64, BreadcrumbId)>,
    /// The update times of unreadable breadcrumbs in the part of the interval that the store read. The store cannot read these
    /// breadcrumbs now.
    pub unread: Vec<Timestamp>,
}

impl StoreError {
    /// Returns whether and when a retry of the failed store operation can succeed. A dispatcher needs no other information about
    /// the error.
    ///
    /// A delay is at most one hour.
    ///
    /// ```
    /// use universal_executor::error::Retry;
    /// use universal_executor::store::StoreError;
    ///
    /// assert_eq!(StoreError::EmptyWake.retry(), Retry::Never);
    /// ```
    #[must_use]
    pub fn retry(&self) -> Retry {
        const WHEN_FULL: Duration = Duration::from_secs(1);
        const WHEN_PARTIAL: Duration = Duration::from_secs(1);
        match self {
            Self::Unavailable { retry_after, .. } => Retry::after(*retry_after),
            Self::Full { .. } => Retry::After(WHEN_FULL),
            Self::Partial(_) => Retry::After(WHEN_PARTIAL),
            Self::Conflict { .. } => Retry::After(Duration::ZERO),
            Self::Embedding(error) => error.retry(),
            Self::NotFound { .. }
            | Self::LeaseLost { .. }
            | Self::ResponseSaved(_)
            | Self::UnknownRun { .. }
            | Self::WrongState { .. }
            | Self::Rejected { .. }
            | Self::Forbidden { .. }
            | Self::TooManyWrites { .. }
            | Self::TooManyTags { .. }
            | Self::TagTooLong { .. }
            | Self::SchemaTooLong { .. }
            | Self::EmptyWake
            | Self::InvalidQuery(_)
            | Self::PositionTooLarge { .. }
            | Self::InvalidKey { .. }
            | Self::KeyConflict { .. }
            | Self::TooFar { .. }
            | Self::Refused { .. }
            | Self::Unsupported { .. } => Retry::Never,
        }
    }

    /// Returns the short name of this error for dead letters, log lines and metrics, such as `not_found` or `conflict`.
    ///
    /// [`Instrumented`](super::Instrumented) logs the code of each failed call.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::Conflict { .. } => "conflict",
            Self::LeaseLost { .. } => "lease_lost",
            Self::ResponseSaved(_) => "response_saved",
            Self::UnknownRun { .. } => "unknown_run",
            Self::WrongState { .. } => "wrong_state",
            Self::Rejected { .. } => "rejected",
            Self::Forbidden { .. } => "forbidden",
            Self::TooManyWrites { .. } => "too_many_writes",
            Self::TooManyTags { .. } => "too_many_tags",
            Self::TagTooLong { .. } => "tag_too_long",
            Self::SchemaTooLong { .. } => "schema_too_long",
            Self::EmptyWake => "empty_wake",
            Self::InvalidQuery(_) => "invalid_query",
            Self::PositionTooLarge { .. } => "position_too_large",
            Self::InvalidKey { .. } => "invalid_key",
            Self::KeyConflict { .. } => "key_conflict",
            Self::Partial(_) => "partial",
            Self::TooFar { .. } => "too_far",
            Self::Refused { .. } => "refused",
            Self::Embedding(_) => "embedding",
            Self::Full { .. } => "full",
            Self::Unsupported { .. } => "unsupported",
            Self::Unavailable { .. } => "unavailable",
        }
    }
}

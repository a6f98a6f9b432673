use super::embed_error::EmbedError;
use super::run::{RunRef, RunState};
use crate::error::{BoxError, Retry};
use crate::model::{Breadcrumb, BreadcrumbId, ConditionError, JsonError, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Error of an operation of a [`BreadcrumbStore`](super::BreadcrumbStore) or its [`RunLedger`](super::RunLedger). Each variant
/// permits a different reaction of the caller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The breadcrumb does not exist in this tenant, or was deleted.
    #[error("breadcrumb {id} does not exist")]
    NotFound {
        /// The ID of the breadcrumb.
        id: BreadcrumbId,
        /// The last version of a deleted breadcrumb, if the store retains tombstones.
        tombstone: Option<Arc<Breadcrumb>>,
    },
    /// The breadcrumb has changed since the caller read it. Read the new version, then decide again.
    #[error(
        "cannot update breadcrumb {id} from version {expected}: it is at version {found} now; read it again"
    )]
    Conflict {
        /// The ID of the breadcrumb.
        id: BreadcrumbId,
        /// The version that the update names.
        expected: u64,
        /// The current version.
        found: u64,
    },
    /// Another worker has claimed the run, or the run was released or has ended. Write nothing for the run.
    #[error(
        "the lease of {run} is lost: another worker has claimed the run, or the run was released or has ended"
    )]
    LeaseLost {
        /// The run.
        run: RunRef,
    },
    /// [`WithLedger`](super::WithLedger) saved the response of the run and released the lease, because the response could not
    /// be written now. The claim of a later attempt writes the response: write nothing else for the run.
    #[error(transparent)]
    ResponseSaved(Box<SavedResponse>),
    /// The ledger has no such run.
    #[error("{run} is not in the ledger")]
    UnknownRun {
        /// The run.
        run: RunRef,
    },
    /// The state of the run does not permit the operation.
    #[error("cannot {operation} {run}: it is {state}")]
    WrongState {
        /// The operation, such as `redo` or `resume`.
        operation: &'static str,
        /// The run.
        run: RunRef,
        /// The state of the run.
        state: RunState,
    },
    /// The content exceeds a limit that all stores have, for example on size or depth. Write less content.
    #[error("{what} cannot be stored")]
    Rejected {
        /// The rejected part of the write, such as `the context of write 0`.
        what: String,
        /// The exceeded limit.
        source: JsonError,
    },
    /// The caller is not permitted to write this.
    #[error("{reason}")]
    Forbidden {
        /// The reason, and the permitted writes.
        reason: String,
    },
    /// A commit has too many writes.
    #[error("the commit has {count} writes where at most {limit} are allowed")]
    TooManyWrites {
        /// The number of writes.
        count: usize,
        /// The maximum number of writes.
        limit: usize,
    },
    /// A breadcrumb has too many tags.
    #[error("write {write} has {count} tags where at most {limit} are allowed")]
    TooManyTags {
        /// The index of the write in the commit.
        write: usize,
        /// The number of tags.
        count: usize,
        /// The maximum number of tags.
        limit: usize,
    },
    /// A tag is too long.
    #[error("write {write} has a tag of {size} bytes where at most {limit} are allowed")]
    TagTooLong {
        /// The index of the write in the commit.
        write: usize,
        /// The size of the tag in bytes.
        size: usize,
        /// The maximum size in bytes.
        limit: usize,
    },
    /// A schema name is too long.
    #[error("write {write} has a schema name of {size} bytes where at most {limit} are allowed")]
    SchemaTooLong {
        /// The index of the write in the commit.
        write: usize,
        /// The size of the schema name in bytes.
        size: usize,
        /// The maximum size in bytes.
        limit: usize,
    },
    /// The saved position of a worker is too large.
    #[error(
        "the position of executor {executor:?} has {size} bytes where at most {limit} are allowed"
    )]
    PositionTooLarge {
        /// The executor ID.
        executor: Arc<str>,
        /// The size in bytes.
        size: usize,
        /// The maximum size in bytes.
        limit: usize,
    },
    /// A key of a [request](super::RunLedger::request) is empty or too long.
    #[error(
        "the key of a request for executor {executor:?} has {size} bytes where 1 to {limit} are allowed"
    )]
    InvalidKey {
        /// The executor ID.
        executor: Arc<str>,
        /// The size in bytes.
        size: usize,
        /// The maximum size in bytes.
        limit: usize,
    },
    /// An earlier [request](super::RunLedger::request) with this key had another breadcrumb.
    #[error(
        "key {key:?} of executor {executor:?} belongs to a request with another breadcrumb, {id}; use another key for this one"
    )]
    KeyConflict {
        /// The executor ID.
        executor: Arc<str>,
        /// The key.
        key: Arc<str>,
        /// The breadcrumb of the earlier request.
        id: BreadcrumbId,
    },
    /// A run would be suspended for ever. Add a selector or a time to its [`Wake`](super::Wake).
    #[error("cannot suspend the run: its wake has neither a selector nor a time")]
    EmptyWake,
    /// The selector of a query or of a suspended run cannot be evaluated.
    #[error("cannot evaluate the selector of the query or the wait")]
    InvalidQuery(#[source] ConditionError),
    /// The result of a query for an interval of time ([`before`](super::Query::before()) and [`after`](super::Query::after()))
    /// has only a part of the interval, because the rest takes long or cannot be read now. Query the rest from
    /// [`PartialSearch::next`].
    #[error(transparent)]
    Partial(Box<PartialSearch>),
    /// The store read the maximum number of breadcrumbs, and the search is not complete. Select a schema or a tag that fewer
    /// breadcrumbs have.
    #[error(
        "{store} read {looked_at} breadcrumbs without completing the search; select a schema or a tag that fewer breadcrumbs have"
    )]
    TooFar {
        /// The store name.
        store: &'static str,
        /// The number of breadcrumbs that the store read.
        looked_at: usize,
    },
    /// The backend rejects the operation. A retry cannot succeed.
    #[error("{store} rejects the operation; a retry cannot succeed")]
    Refused {
        /// The store name.
        store: &'static str,
        /// Cause, as reported by the backend.
        source: BoxError,
    },
    /// The embedder of the store failed for a text, so there is no result of a vector search.
    #[error("the text cannot be embedded")]
    Embedding(#[from] EmbedError),
    /// A limit of the store is reached.
    #[error("{store} is full: it holds at most {limit} {what}")]
    Full {
        /// The store name.
        store: &'static str,
        /// The limited items, such as `open runs`.
        what: &'static str,
        /// The maximum number of items.
        limit: usize,
    },
    /// The backend lacks this operation; check [`Capabilities`](super::Capabilities) first.
    #[error("{store} does not support {operation}")]
    Unsupported {
        /// The store name.
        store: &'static str,
        /// The unsupported operation.
        operation: &'static str,
    },
    /// The backend is unreachable or overloaded. The operation may have succeeded.
    #[error("{store} is unavailable")]
    Unavailable {
        /// The store name.
        store: &'static str,
        /// Delay before the next attempt.
        retry_after: Duration,
        /// Cause, as reported by the driver of the backend.
        source: BoxError,
    },
}

/// A response that [`WithLedger`](super::WithLedger) saved and could not write yet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error(
    "cannot write the response of {run} yet; the ledger saved the response, and the attempt at {at} will write it"
)]
pub struct SavedResponse {
    /// The run.
    pub run: RunRef,
    /// The earliest time of the next attempt, by the ledger's clock.
    pub at: Timestamp,
    /// Delay before the next attempt.
    pub delay: Duration,
    /// The error of the commit.
    pub source: StoreError,
}

/// A part of an interval of time that a query selects, see [`StoreError::Partial`].
#[derive(Debug, thiserror::Error)]
#[error("{store} read only a part of the queried interval; query the rest from `next`")]
pub struct PartialSearch {
    /// The store name.
    pub store: &'static str,
    /// The breadcrumbs in this part, in the order of the query.
    pub found: Vec<Arc<Breadcrumb>>,
    /// [`Query::before`](super::Query::before()) of a query for the rest. `None` if the store has read the whole interval.
    pub next: Option<(Timestamp, u64, BreadcrumbId)>,
    /// The update times of breadcrumbs in this part that cannot be read now.
    pub unread: Vec<Timestamp>,
}

impl StoreError {
    /// Returns whether and when the same operation can succeed. A dispatcher needs no other information about the error.
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

    /// Returns a short name for records and metrics, such as `not_found` or `conflict`.
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

use super::embed_error::EmbedError;
use super::run::{RunRef, RunState};
use crate::error::{BoxError, Retry};
use crate::model::{Breadcrumb, BreadcrumbId, ConditionError, JsonError, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Why a store operation failed. Variants name what the caller can do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such breadcrumb in this tenant (any more).
    #[error("breadcrumb {id} does not exist")]
    NotFound {
        /// Its id.
        id: BreadcrumbId,
        /// Its last version, if it was deleted and the store keeps tombstones.
        tombstone: Option<Arc<Breadcrumb>>,
    },
    /// The breadcrumb has changed since it was read: read it again and decide anew.
    #[error("breadcrumb {id} is at version {found}, not {expected}")]
    Conflict {
        /// Its id.
        id: BreadcrumbId,
        /// The version the change was made from.
        expected: u64,
        /// The version it has.
        found: u64,
    },
    /// The run belongs to another worker by now, or has ended: write nothing for it.
    #[error("the lease on {run} is lost")]
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
    /// The run is not in a state that allows the operation.
    #[error("cannot {operation} {run}: it is {state}")]
    WrongState {
        /// What was asked for.
        operation: &'static str,
        /// The run.
        run: RunRef,
        /// Its state.
        state: RunState,
    },
    /// The content is nothing a store keeps: make it smaller or flatter.
    #[error("{what} cannot be stored")]
    Rejected {
        /// The part of the write that is refused: `write 0, context`.
        what: String,
        /// Why.
        source: JsonError,
    },
    /// The caller may not write this.
    #[error("{reason}")]
    Forbidden {
        /// Why, and what it may write.
        reason: String,
    },
    /// A commit has more writes than the store takes at once.
    #[error("a commit of {count} writes where at most {limit} are allowed")]
    TooManyWrites {
        /// How many there are.
        count: usize,
        /// How many may be.
        limit: usize,
    },
    /// A breadcrumb has more tags than a store keeps.
    #[error("write {write} has {count} tags where at most {limit} are allowed")]
    TooManyTags {
        /// The index of the write.
        write: usize,
        /// How many there are.
        count: usize,
        /// How many may be.
        limit: usize,
    },
    /// A tag is longer than a store keeps.
    #[error("write {write} has a tag of {size} bytes where at most {limit} are allowed")]
    TagTooLong {
        /// The index of the write.
        write: usize,
        /// Its size in bytes.
        size: usize,
        /// The most that is allowed.
        limit: usize,
    },
    /// The name of a schema is longer than a store keeps.
    #[error("write {write} has a schema name of {size} bytes where at most {limit} are allowed")]
    SchemaTooLong {
        /// The index of the write.
        write: usize,
        /// Its size in bytes.
        size: usize,
        /// The most that is allowed.
        limit: usize,
    },
    /// A saved position of a worker is larger than a ledger stores.
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
    /// A run would be suspended for ever: say what or when it waits for.
    #[error("nothing could wake the run: it waits for neither a breadcrumb nor a time")]
    EmptyWake,
    /// The selector of a query, or one that a run waits for, cannot be evaluated.
    #[error("the query cannot be evaluated")]
    InvalidQuery(#[source] ConditionError),
    /// The answer to a query for an interval ([`before`](super::Query::before()) and [`after`](super::Query::after())) has only a
    /// part of the interval, because the rest takes long or cannot be read now. Query the rest from [`PartialSearch::next`].
    #[error(transparent)]
    Partial(Box<PartialSearch>),
    /// The store would have to look at more breadcrumbs than it may, and those it saw are not all: name a schema or a tag
    /// that fewer have.
    #[error(
        "{store} looked at {looked_at} breadcrumbs, and there are more; name a schema or a tag that fewer have"
    )]
    TooFar {
        /// The store.
        store: &'static str,
        /// How many it looked at.
        looked_at: usize,
    },
    /// The backend answered and will not do it, however often it is asked.
    #[error("{store} refuses the operation")]
    Refused {
        /// The store.
        store: &'static str,
        /// What it says.
        source: BoxError,
    },
    /// A text has no vector, so that nothing is found by its meaning.
    #[error("the text cannot be embedded")]
    Embedding(#[from] EmbedError),
    /// A bound of the store is reached.
    #[error("{store} is full: it holds at most {limit} {what}")]
    Full {
        /// The store.
        store: &'static str,
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// The backend lacks this operation; check [`Capabilities`](super::Capabilities) first.
    #[error("{store} does not support {operation}")]
    Unsupported {
        /// The store.
        store: &'static str,
        /// What was asked for.
        operation: &'static str,
    },
    /// The backend is unreachable or sheds load.
    #[error("{store} is unavailable")]
    Unavailable {
        /// The store.
        store: &'static str,
        /// When to try again.
        retry_after: Duration,
        /// What its driver says.
        source: BoxError,
    },
}

/// A response that [`WithLedger`](super::WithLedger) saved and could not write yet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("the response of {run} is saved and will be written at {at}, because the commit failed")]
pub struct SavedResponse {
    /// The run.
    pub run: RunRef,
    /// The earliest time of the next attempt, by the ledger's clock.
    pub at: Timestamp,
    /// The pause before the next attempt.
    pub delay: Duration,
    /// The error of the commit.
    pub source: StoreError,
}

/// The part of an interval that a store has read.
#[derive(Debug, thiserror::Error)]
#[error("{store} has read only a part of the interval; query the rest of it")]
pub struct PartialSearch {
    /// The store.
    pub store: &'static str,
    /// The breadcrumbs in this part, in the order of the query.
    pub found: Vec<Arc<Breadcrumb>>,
    /// [`Query::before`](super::Query::before()) of a query for the rest. `None` if the store has read the whole interval.
    pub next: Option<(Timestamp, u64, BreadcrumbId)>,
    /// The update times of breadcrumbs in this part that cannot be read now.
    pub unread: Vec<Timestamp>,
}

impl StoreError {
    /// Whether repeating the operation could succeed; whoever dispatches asks nothing else.
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

    /// A short name for records and metrics: `not_found`, `conflict`, ..
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

//! State of the backfill queries, which find the events that an event stream omitted.

use crate::error::BoxError;
use crate::model::{Event, Timestamp};
use futures::future::{BoxFuture, pending};
use tokio::time::{Instant, sleep_until};

/// Result of a backfill query for events that the event stream omitted.
pub(super) struct BackfillResult {
    pub(super) events: Vec<Event>,
    /// Time of the newest breadcrumb change when the backfill query started. All changes up to this time are known
    /// after the query.
    pub(super) newest: Timestamp,
}

/// State of the backfill queries of one event stream connection.
pub(super) enum BackfillState {
    /// No backfill queries are configured for the event stream.
    Disabled,
    /// The next backfill query starts at this time.
    Scheduled(Instant),
    /// A backfill query is in flight.
    InFlight(BoxFuture<'static, Result<BackfillResult, BoxError>>),
    /// The backfill query has found events. The source delivers them at the time `until`, unless the event stream
    /// itself delivers them before.
    Settling {
        found: BackfillResult,
        until: Instant,
    },
}

/// Next action for the backfill queries of a connection: to start a query, to handle its result, or to deliver the
/// found events. The connection replaces its [`BackfillState`] after each action.
pub(super) enum BackfillStep {
    Begin,
    Answered(Result<BackfillResult, BoxError>),
    Settled(BackfillResult),
}

impl BackfillState {
    /// Waits until the connection's backfill queries require an action: to start a query, to handle its result, or to
    /// deliver the found events. Cancel safe.
    pub(super) async fn next(&mut self) -> BackfillStep {
        match self {
            Self::Disabled => pending().await,
            Self::Scheduled(at) => {
                sleep_until(*at).await;
                BackfillStep::Begin
            }
            Self::InFlight(answer) => BackfillStep::Answered(answer.await),
            Self::Settling { found, until } => {
                sleep_until(*until).await;
                BackfillStep::Settled(BackfillResult {
                    events: std::mem::take(&mut found.events),
                    newest: found.newest,
                })
            }
        }
    }
}

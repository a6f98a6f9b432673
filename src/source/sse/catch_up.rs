//! State of the backfill queries, which find the events that an event stream omitted.

use crate::error::BoxError;
use crate::model::{Event, Timestamp};
use futures::future::{BoxFuture, pending};
use tokio::time::{Instant, sleep_until};

/// Result of a backfill query for events that the event stream omitted.
pub(super) struct Found {
    pub(super) events: Vec<Event>,
    /// Time of the newest breadcrumb change when the backfill query started. All changes up to this time are known
    /// after the query.
    pub(super) newest: Timestamp,
}

/// State of the backfill queries of one event stream connection.
pub(super) enum Look {
    /// No backfill queries are configured for the event stream.
    Never,
    /// The next backfill query starts at this time.
    Waits(Instant),
    /// A backfill query is in flight.
    Asks(BoxFuture<'static, Result<Found, BoxError>>),
    /// The backfill query has returned. The stream may still deliver the found events until `until`.
    Settles { found: Found, until: Instant },
}

/// Step in the backfill queries of a connection: a query is due, has returned, or its found events are due for
/// delivery. The connection replaces its [`Look`] after each step.
pub(super) enum Step {
    Begin,
    Answered(Result<Found, BoxError>),
    Settled(Found),
}

impl Look {
    /// Waits for the next step of the connection's backfill queries. Cancel safe.
    pub(super) async fn next(&mut self) -> Step {
        match self {
            Self::Never => pending().await,
            Self::Waits(at) => {
                sleep_until(*at).await;
                Step::Begin
            }
            Self::Asks(answer) => Step::Answered(answer.await),
            Self::Settles { found, until } => {
                sleep_until(*until).await;
                Step::Settled(Found {
                    events: std::mem::take(&mut found.events),
                    newest: found.newest,
                })
            }
        }
    }
}

//! State of the backfill queries of a connection, which run next to the event stream.

use crate::error::BoxError;
use crate::model::{Event, Timestamp};
use futures::future::{BoxFuture, pending};
use tokio::time::{Instant, sleep_until};

/// Result of a backfill query.
pub(super) struct Found {
    pub(super) events: Vec<Event>,
    /// Time of the newest change when the query started. All changes up to this time are known after the query.
    pub(super) newest: Timestamp,
}

/// State of the backfill queries of one connection.
pub(super) enum Look {
    /// No backfill is configured.
    Never,
    /// The next query starts at this time.
    Waits(Instant),
    /// A query is in flight.
    Asks(BoxFuture<'static, Result<Found, BoxError>>),
    /// The query has returned. The stream may still deliver the found events until `until`.
    Settles { found: Found, until: Instant },
}

/// Event that changes a [`Look`].
pub(super) enum Step {
    Begin,
    Answered(Result<Found, BoxError>),
    Settled(Found),
}

impl Look {
    /// Waits for the next step. Cancel safe.
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

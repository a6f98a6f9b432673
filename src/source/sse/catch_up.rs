//! Looking for what a stream left out, step by step beside the stream.

use crate::error::BoxError;
use crate::model::{Event, Timestamp};
use futures::future::{BoxFuture, pending};
use tokio::time::{Instant, sleep_until};

/// What a look found.
pub(super) struct Found {
    pub(super) events: Vec<Event>,
    /// The time of the newest change there was when it began: all up to then is known with it.
    pub(super) newest: Timestamp,
}

/// Where a look for what was left out stands.
pub(super) enum Look {
    /// Nobody can be asked.
    Never,
    /// It begins then.
    Waits(Instant),
    /// The server is asked.
    Asks(BoxFuture<'static, Result<Found, BoxError>>),
    /// What was found may still come by the stream until then.
    Settles { found: Found, until: Instant },
}

/// What a look has come to.
pub(super) enum Step {
    Begin,
    Answered(Result<Found, BoxError>),
    Settled(Found),
}

impl Look {
    /// What comes next of it. Whoever stops waiting loses nothing.
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

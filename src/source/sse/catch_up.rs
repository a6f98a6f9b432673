//! Looking for what a stream left out, step by step beside the stream.

use crate::error::BoxError;
use crate::model::{Event, Timestamp};
use futures::future::{BoxFuture, pending};
use tokio::time::{Instant, sleep_until};

/// Where a look for what was left out stands.
pub(super) enum Look {
    /// Nobody can be asked.
    Never,
    /// It begins then.
    Waits(Instant),
    /// The server is asked; `newest` is the time of what was known when it was.
    Asks {
        answer: BoxFuture<'static, Result<Vec<Event>, BoxError>>,
        newest: Timestamp,
    },
    /// What was found may still come by the stream until then.
    Settles {
        found: Vec<Event>,
        newest: Timestamp,
        until: Instant,
    },
}

/// What a look has come to.
pub(super) enum Step {
    Begin,
    Answered(Result<Vec<Event>, BoxError>, Timestamp),
    Settled(Vec<Event>, Timestamp),
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
            Self::Asks { answer, newest } => {
                let found = answer.await;
                Step::Answered(found, *newest)
            }
            Self::Settles {
                found,
                newest,
                until,
            } => {
                sleep_until(*until).await;
                Step::Settled(std::mem::take(found), *newest)
            }
        }
    }
}

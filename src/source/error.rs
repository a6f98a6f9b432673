use crate::error::{BoxError, Retry};
use crate::model::Timestamp;
use std::time::Duration;

/// Why a source could not deliver or be told. Variants name what the caller can do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The subscriber was too slow and events were dropped: look into the store for what was missed.
    #[error("{missed} events were dropped because the subscriber was too slow")]
    Lagged {
        /// Number of dropped events.
        missed: u64,
        /// A time that every dropped event follows: each event committed up to it was delivered or acknowledged, or
        /// precedes the subscription. `None` if the source does not know such a time.
        after: Option<Timestamp>,
    },
    /// The event will not come again; process it now.
    #[error("the event is not taken back: {reason}")]
    NotTakenBack {
        /// Why.
        reason: &'static str,
    },
    /// The source will not deliver, however often it is subscribed to.
    #[error("the event source refuses to deliver")]
    Refused(#[source] BoxError),
    /// The source is unreachable.
    #[error("the event source is unavailable")]
    Unavailable {
        /// When to try again.
        retry_after: Duration,
        /// What its driver says.
        source: BoxError,
    },
}

impl SourceError {
    /// Whether repeating the operation could succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unavailable { retry_after, .. } => Retry::after(*retry_after),
            Self::Lagged { .. } => Retry::After(Duration::ZERO),
            Self::NotTakenBack { .. } | Self::Refused(_) => Retry::Never,
        }
    }

    /// A short name for records and metrics: `lagged`, `not_taken_back`, `refused`, `unavailable`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Lagged { .. } => "lagged",
            Self::NotTakenBack { .. } => "not_taken_back",
            Self::Refused(_) => "refused",
            Self::Unavailable { .. } => "unavailable",
        }
    }
}

use crate::error::{BoxError, Retry};
use crate::model::Timestamp;
use std::time::Duration;

/// Error of an [`EventSource`](super::EventSource), its subscription or an acknowledgement.
///
/// [`retry`](Self::retry) returns whether and when a retry can succeed.
///
/// A [`Runtime`](crate::Runtime) handles these errors itself, and retries. A program that reads a
/// source on its own waits as long as [`retry`](Self::retry) says, and continues with the same
/// stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The subscriber was too slow, and the event source dropped events. Search the store for the missed triggers. The
    /// stream continues.
    #[error("the event source dropped {missed} events, because the subscriber was too slow")]
    Lagged {
        /// Number of events that the source dropped because the subscriber was too slow.
        missed: u64,
        /// Lower bound of the commit times of the dropped events. Each event up to this time was delivered, was
        /// acknowledged, or was committed before the subscription. `None` if the source does not know such a time.
        after: Option<Timestamp>,
    },
    /// The event source rejected the request to redeliver an event. The caller has to process or redeliver the event
    /// itself.
    #[error(
        "the event source cannot redeliver the nacked event: {reason}; process the event without a redelivery"
    )]
    NoRedelivery {
        /// Reason why the source cannot redeliver the nacked event, for example a source without acknowledgements.
        reason: &'static str,
    },
    /// The event source rejects the subscription. A retry does not help: the configuration has to change.
    #[error(
        "the event source rejected the subscription; see the cause, and fix the source's configuration"
    )]
    Refused(#[source] BoxError),
    /// The event source is unreachable, or its server failed. A retry can succeed.
    ///
    /// The stream of a subscription delivers this error as an item, and continues once the source
    /// is reachable.
    #[error("the event source is unavailable; retry in {retry_after:?}")]
    Unavailable {
        /// Minimum delay before the next attempt to reach the event source.
        retry_after: Duration,
        /// The error of the connection or the client library of the event source.
        source: BoxError,
    },
}

impl SourceError {
    /// Returns when a retry of the failed source operation can succeed. This is at once after [`Lagged`](Self::Lagged), after the
    /// requested delay (at most one hour) after [`Unavailable`](Self::Unavailable), and never for the other variants.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unavailable { retry_after, .. } => Retry::after(*retry_after),
            Self::Lagged { .. } => Retry::After(Duration::ZERO),
            Self::NoRedelivery { .. } | Self::Refused(_) => Retry::Never,
        }
    }

    /// Returns a short name of the source error for log lines and metrics, one of `lagged`, `no_redelivery`,
    /// `refused` and `unavailable`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Lagged { .. } => "lagged",
            Self::NoRedelivery { .. } => "no_redelivery",
            Self::Refused(_) => "refused",
            Self::Unavailable { .. } => "unavailable",
        }
    }
}

use crate::error::{BoxError, Retry};
use std::time::Duration;

/// Why NATS cannot be used. No text in it has an address or a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The server cannot be reached, or does not let this client in.
    #[error("the NATS server cannot be reached")]
    Unreachable(#[source] BoxError),
    /// The server has no JetStream, or none for this account.
    #[error("the NATS server has no JetStream; start it with -js")]
    NoJetStream(#[source] BoxError),
    /// The stream is there, and is for something else.
    #[error("stream {stream:?} has the subjects {found}, and {wanted} is needed")]
    OtherStream {
        /// The stream.
        stream: String,
        /// Its subjects.
        found: String,
        /// What it should have.
        wanted: String,
    },
    /// The consumer of the group is there, and is set up otherwise.
    #[error(
        "consumer {consumer:?} is set up otherwise: {difference}; delete it, or take another group"
    )]
    OtherConsumer {
        /// The consumer.
        consumer: String,
        /// What is different.
        difference: String,
    },
    /// The server did not do something.
    #[error("NATS could not {operation}")]
    Failed {
        /// What.
        operation: &'static str,
        /// What it says.
        source: BoxError,
    },
}

impl NatsError {
    /// Whether trying again could succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unreachable(_) | Self::Failed { .. } => Retry::After(Duration::from_secs(1)),
            Self::NoJetStream(_) | Self::OtherStream { .. } | Self::OtherConsumer { .. } => {
                Retry::Never
            }
        }
    }
}

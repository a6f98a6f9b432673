use crate::error::{BoxError, Retry};
use std::time::Duration;

/// Why NATS cannot be used. No text in it has an address or a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The server cannot be reached.
    #[error("the NATS server cannot be reached")]
    Unreachable(#[source] BoxError),
    /// The server does not let this client in, or the client does not trust the server.
    #[error("the NATS server and this client do not trust each other")]
    Refused(#[source] BoxError),
    /// Something that was said of the server cannot be used.
    #[error("the {setting} for NATS cannot be used")]
    Setting {
        /// What.
        setting: &'static str,
        /// Why.
        source: BoxError,
    },
    /// The server is so old that its answers mean something else.
    #[error(
        "the NATS server is of version {version:?}, and {oldest} is the oldest that can be used"
    )]
    TooOld {
        /// What it says of itself.
        version: String,
        /// What would do.
        oldest: &'static str,
    },
    /// The server has no JetStream, or none for this account.
    #[error("the NATS server has no JetStream for this account; start it with -js")]
    NoJetStream(#[source] BoxError),
    /// The stream, or the consumer of the group, exists and has other settings than this crate needs.
    #[error(
        "the NATS {what} {name:?} has other settings: {difference}; delete it, or use another name"
    )]
    OtherSettings {
        /// `stream` or `consumer`.
        what: &'static str,
        /// The name of the stream or the consumer.
        name: String,
        /// The setting that differs.
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
            Self::Refused(_)
            | Self::Setting { .. }
            | Self::TooOld { .. }
            | Self::NoJetStream(_)
            | Self::OtherSettings { .. } => Retry::Never,
        }
    }

    /// It could not do something.
    pub(super) fn failed(operation: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Failed {
            operation,
            source: source.into(),
        }
    }
}

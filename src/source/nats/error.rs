use crate::error::{BoxError, Retry};
use std::time::Duration;

/// Error of a NATS connection, stream or consumer. No message contains an address or a password.
///
/// [`NatsSourceBuilder::connect`](super::NatsSourceBuilder::connect),
/// [`NatsRelay::connect`](super::NatsRelay::connect) and
/// [`NatsRelay::publish`](super::NatsRelay::publish) return it. After the connect, a source reports
/// errors as [`SourceError`](crate::source::SourceError).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The NATS server cannot be reached.
    #[error("cannot connect to the NATS server; check that the server runs and can be reached")]
    Unreachable(#[source] BoxError),
    /// The NATS server rejected the login, or the client does not trust the server's certificate.
    #[error(
        "the NATS server rejected the login, or the client does not trust the server's TLS certificate; check the login and the root \
         certificates"
    )]
    Refused(#[source] BoxError),
    /// A setting of the [`NatsServer`](super::NatsServer) or the tenant is invalid.
    #[error("invalid {setting} for the NATS connection; see the cause")]
    Setting {
        /// Name of the invalid NATS setting, for example `address`.
        setting: &'static str,
        /// Reason why the value of the NATS setting is invalid.
        source: BoxError,
    },
    /// The NATS server is too old: it does not support the JetStream features that this crate uses.
    #[error("NATS server version {version:?} is not supported; use {oldest} or later")]
    TooOld {
        /// Version that the NATS server reports.
        version: String,
        /// Oldest supported version of the NATS server.
        oldest: &'static str,
    },
    /// JetStream is not enabled on the NATS server, or not for this account.
    #[error(
        "JetStream is not enabled on the NATS server for this account; start the server with -js"
    )]
    NoJetStream(#[source] BoxError),
    /// The existing NATS stream, or the existing consumer of a group of workers, has settings that this crate cannot
    /// use.
    #[error(
        "the existing NATS {what} {name:?} has settings that this crate cannot use: {difference}; delete the {what}, or use another name"
    )]
    OtherSettings {
        /// Kind of the NATS object with unsuitable settings, `stream` or `consumer`.
        what: &'static str,
        /// Name of the NATS stream or consumer with unsuitable settings.
        name: String,
        /// The unsuitable setting of the NATS stream or consumer, with the expected value.
        difference: String,
    },
    /// A request to the NATS server failed. A retry can succeed.
    #[error("NATS failed to {operation}; see the cause")]
    Failed {
        /// The NATS operation that failed, for example `create the stream`.
        operation: &'static str,
        /// The error of the NATS client or server.
        source: BoxError,
    },
}

impl NatsError {
    /// Returns the delay before a retry: one second for [`Unreachable`](Self::Unreachable) and
    /// [`Failed`](Self::Failed), and [`Retry::Never`] for the other variants.
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

    /// Returns the error for a failed NATS operation.
    pub(super) fn failed(operation: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Failed {
            operation,
            source: source.into(),
        }
    }
}

//! Connection to a NATS server, and the JetStream stream that stores the events.

use super::{NatsError, NatsServer, subject};
use crate::backoff::full_jitter;
use crate::clock::later;
use crate::error::Chain;
use crate::error::Retry;
use async_nats::jetstream::context::{
    ConsumerInfoError, ConsumerInfoErrorKind, CreateStreamErrorKind,
};
use async_nats::jetstream::stream::{self, RetentionPolicy, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, ConnectError, ConnectErrorKind, Event};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Logs that the NATS connection was opened or lost. The client reconnects by itself.
async fn log_event(event: Event) {
    match event {
        Event::Connected => tracing::info!("connected to NATS"),
        Event::Disconnected => tracing::warn!("connection to NATS lost, will reconnect"),
        Event::LameDuckMode
        | Event::Draining
        | Event::Closed
        | Event::SlowConsumer(_)
        | Event::ServerError(_)
        | Event::ClientError(_) => {}
    }
}

#[derive(Clone)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) jetstream: Context,
    pub(super) stream: String,
    replicas: usize,
    max_bytes: Option<u64>,
    /// Maximum message size in bytes, headers included, that the settings of the NATS stream allow. Negative if the
    /// stream has no limit.
    max_message_size: Arc<AtomicI32>,
}

impl Connection {
    /// The oldest supported version of the NATS server.
    const OLDEST_SUPPORTED: (i64, i64, i64) = (2, 9, 0);
    /// The oldest NATS server version without known losses of messages or consumers.
    const OLDEST_WITHOUT_LOSS: (i64, i64, i64) = (2, 10, 23);

    /// Connects to the NATS server, and creates the event stream if it does not exist. Retries an unreachable server
    /// for the configured time.
    pub(super) async fn open(server: &NatsServer) -> Result<Self, NatsError> {
        let until = later(Instant::now(), server.connect_retry_time);
        let mut attempts = 0;
        loop {
            match Self::try_open(server).await {
                Err(error) if error.retry() != Retry::Never && Instant::now() < until => {
                    attempts += 1;
                    tracing::warn!(error = %Chain(&error), attempts, "connecting to NATS failed, will retry");
                    sleep(pause(attempts).min(until.saturating_duration_since(Instant::now())))
                        .await;
                }
                opened => return opened,
            }
        }
    }

    async fn try_open(server: &NatsServer) -> Result<Self, NatsError> {
        let (addresses, options) = server.options().await?;
        let client = options
            .name("universal-executor")
            .connection_timeout(Duration::from_secs(5))
            .reconnect_delay_callback(|attempts| pause(u32::try_from(attempts).unwrap_or(u32::MAX)))
            .event_callback(log_event)
            .connect(addresses)
            .await
            .map_err(not_connected)?;
        let connection = Self {
            jetstream: jetstream::new(client.clone()),
            client,
            stream: server.stream.clone(),
            replicas: server.replicas,
            max_bytes: server.max_bytes,
            max_message_size: Arc::new(AtomicI32::new(-1)),
        };
        connection.check_version()?;
        let stream = connection.get_or_create_event_stream().await?;
        if stream.cached_info().config.num_replicas <= 1 && stream.cached_info().cluster.is_some() {
            let stream = &connection.stream;
            tracing::warn!(
                stream,
                "NATS stream has only one replica in a cluster; increase its replicas so that it survives the loss of a server"
            );
        }
        Ok(connection)
    }

    fn check_version(&self) -> Result<(), NatsError> {
        let is_at_least = |(major, minor, patch)| {
            let client = &self.client;
            client.is_server_compatible(major, minor, patch)
        };
        let version = || self.client.server_info().version;
        if !is_at_least(Self::OLDEST_SUPPORTED) {
            return Err(NatsError::TooOld {
                version: version(),
                oldest: "2.9.0",
            });
        }
        if !is_at_least(Self::OLDEST_WITHOUT_LOSS) {
            let version = version();
            tracing::warn!(
                version,
                "NATS server is older than 2.10.23 and may lose messages or consumers; upgrade the server"
            );
        }
        Ok(())
    }

    /// Returns the number of messages that a NATS consumer has not acknowledged, or `None` if the consumer does not
    /// exist.
    pub(super) async fn behind(&self, consumer: &str) -> Result<Option<u64>, NatsError> {
        const READ_STATE: &str = "read the state of the consumer";
        let stream = self.jetstream.get_stream_no_info(&self.stream).await;
        let stream = stream.map_err(|error| NatsError::failed(READ_STATE, error))?;
        match stream.consumer_info(consumer).await {
            Ok(info) => {
                let unacknowledged = u64::try_from(info.num_ack_pending).unwrap_or(u64::MAX);
                Ok(Some(info.num_pending.saturating_add(unacknowledged)))
            }
            Err(error) if is_unknown(&error) => Ok(None),
            Err(error) => Err(NatsError::failed(READ_STATE, error)),
        }
    }

    /// Creates the NATS stream for events, or checks the settings of the existing one.
    pub(super) async fn get_or_create_event_stream(&self) -> Result<Stream, NatsError> {
        let config = stream::Config {
            name: self.stream.clone(),
            subjects: vec![subject::of_all()],
            max_age: Duration::from_secs(7 * 24 * 60 * 60),
            duplicate_window: Duration::from_secs(120),
            // -1 means no limit.
            max_bytes: self
                .max_bytes
                .map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
            num_replicas: self.replicas,
            ..stream::Config::default()
        };
        let stream_result = self.jetstream.get_or_create_stream(config).await;
        let stream = stream_result.map_err(|error| match error.kind() {
            CreateStreamErrorKind::JetStreamUnavailable => NatsError::NoJetStream(error.into()),
            CreateStreamErrorKind::JetStream(server_error)
                if [
                    ErrorCode::JETSTREAM_NOT_ENABLED,
                    ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT,
                ]
                .contains(&server_error.error_code()) =>
            {
                NatsError::NoJetStream(error.into())
            }
            _ => NatsError::failed("create the stream", error),
        })?;
        match difference(&stream.cached_info().config) {
            None => {
                let max_message_size = stream.cached_info().config.max_message_size;
                self.max_message_size
                    .store(max_message_size, Ordering::Relaxed);
                Ok(stream)
            }
            Some(difference) => Err(NatsError::OtherSettings {
                what: "stream",
                name: self.stream.clone(),
                difference,
            }),
        }
    }
}

impl Connection {
    /// Returns the maximum message size in bytes that the NATS server and its stream accept, headers included.
    pub(super) fn max_message_size(&self) -> usize {
        let of_stream = usize::try_from(self.max_message_size.load(Ordering::Relaxed));
        let of_server = self.client.max_payload();
        // A stream without a limit reports -1, and on some servers 0.
        match of_stream {
            Ok(of_stream) if of_stream > 0 => of_server.min(of_stream),
            Ok(_) | Err(_) => of_server,
        }
    }
}

/// Returns `true` if the error means that the NATS consumer does not exist.
pub(super) fn is_unknown(error: &ConsumerInfoError) -> bool {
    match error.kind() {
        ConsumerInfoErrorKind::NotFound => true,
        ConsumerInfoErrorKind::JetStream(server_error) => {
            server_error.error_code() == ErrorCode::CONSUMER_NOT_FOUND
        }
        _ => false,
    }
}

/// Returns the setting that makes a NATS stream unsuitable for events, or `None` if the stream is suitable.
fn difference(found: &stream::Config) -> Option<String> {
    let expected = subject::of_all();
    let has_all = |subject: &String| *subject == expected || subject == ">";
    if !found.subjects.iter().any(has_all) {
        let subjects = found.subjects.join(", ");
        Some(format!("subjects are {subjects}, expected {expected}"))
    } else if found.retention != RetentionPolicy::Limits {
        Some("retention policy deletes messages that other groups have not received".to_owned())
    } else if found.no_ack {
        Some("no_ack is set, so the server does not confirm messages".to_owned())
    } else if found.sealed {
        Some("stream is sealed and accepts no messages".to_owned())
    } else {
        None
    }
}

fn not_connected(error: ConnectError) -> NatsError {
    match error.kind() {
        ConnectErrorKind::ServerParse => NatsError::Setting {
            setting: "address",
            source: error.into(),
        },
        ConnectErrorKind::Authentication
        | ConnectErrorKind::AuthorizationViolation
        | ConnectErrorKind::Tls => NatsError::Refused(error.into()),
        ConnectErrorKind::Io if is_untrusted_certificate(&error) => {
            NatsError::Refused(error.into())
        }
        ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => NatsError::Unreachable(error.into()),
    }
}

/// Returns `true` if a NATS connection failed because the client does not trust the server's certificate. The client
/// reports this failure as an I/O error of the kind `InvalidData`.
fn is_untrusted_certificate(error: &ConnectError) -> bool {
    let source = std::error::Error::source(error);
    let source = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == std::io::ErrorKind::InvalidData)
}

/// Returns the delay before a retry of a NATS operation: exponential backoff with full jitter, between 50 ms and 30 s.
pub(super) fn pause(attempts: u32) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(50);
    const FIRST: Duration = Duration::from_millis(200);
    const LONGEST: Duration = Duration::from_secs(30);
    let random = u32::try_from(RandomState::new().hash_one(()) >> 32).unwrap_or_default();
    let chance = f64::from(random) / f64::from(u32::MAX);
    full_jitter(attempts, FIRST, LONGEST, chance).max(SHORTEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_bounded_and_differ() {
        let long: Vec<Duration> = (0..64).map(|_| pause(u32::MAX)).collect();

        let (shortest, longest) = (long.iter().min().unwrap(), long.iter().max().unwrap());
        assert!(*longest <= Duration::from_secs(30), "{longest:?}");
        assert!(*longest > *shortest + Duration::from_secs(5), "{long:?}");
        assert!((0..64).all(|_| pause(1) <= Duration::from_millis(200)));
    }

    #[test]
    fn a_stream_that_would_lose_events_of_a_group_is_not_taken() {
        let fine = || stream::Config {
            subjects: vec![subject::of_all()],
            ..stream::Config::default()
        };
        assert_eq!(difference(&fine()), None);

        let narrow = stream::Config {
            subjects: vec!["breadcrumbs.acme.>".to_owned()],
            ..fine()
        };
        let queue = stream::Config {
            retention: RetentionPolicy::WorkQueue,
            ..fine()
        };
        let silent = stream::Config {
            no_ack: true,
            ..fine()
        };
        for other in [narrow, queue, silent] {
            assert!(difference(&other).is_some(), "{other:?}");
        }
    }
}

//! A connection, and the stream it is about.

use super::NatsError;
use super::subject;
use async_nats::jetstream::{self, Context, stream};
use async_nats::{Client, ConnectOptions};
use std::time::Duration;

#[derive(Clone)]
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) jetstream: Context,
    pub(super) stream: String,
}

impl Link {
    pub(super) const STREAM: &'static str = "BREADCRUMBS";

    /// The oldest server with which all of this was tried.
    const TRIED: (i64, i64, i64) = (2, 10, 23);

    /// Connects, and makes the stream if it is not there.
    pub(super) async fn open(url: &str, stream: &str) -> Result<Self, NatsError> {
        let servers: Vec<_> = url.split(',').map(str::trim).map(str::to_owned).collect();
        let unreachable = |error: async_nats::ConnectError| NatsError::Unreachable(error.into());
        let client = ConnectOptions::new()
            .name("universal-executor")
            .connection_timeout(Duration::from_secs(5))
            .reconnect_delay_callback(pause)
            .connect(servers)
            .await
            .map_err(unreachable)?;
        let (major, minor, patch) = Self::TRIED;
        if !client.is_server_compatible(major, minor, patch) {
            let version = client.server_info().version;
            tracing::warn!(
                version,
                "this NATS server is older than {major}.{minor}.{patch}"
            );
        }
        let link = Self {
            jetstream: jetstream::new(client.clone()),
            client,
            stream: stream.to_owned(),
        };
        link.make_stream().await?;
        Ok(link)
    }

    /// Makes the stream, or checks the one that is there.
    pub(super) async fn make_stream(&self) -> Result<(), NatsError> {
        let config = stream::Config {
            name: self.stream.clone(),
            subjects: vec![subject::of_all()],
            max_age: Duration::from_secs(7 * 24 * 60 * 60),
            duplicate_window: Duration::from_secs(120),
            ..stream::Config::default()
        };
        let found = self.jetstream.get_or_create_stream(config).await;
        let found = found.map_err(|error| NatsError::NoJetStream(error.into()))?;
        let subjects = &found.cached_info().config.subjects;
        let wanted = subject::of_all();
        match subjects
            .iter()
            .any(|subject| *subject == wanted || subject == ">")
        {
            true => Ok(()),
            false => Err(NatsError::OtherStream {
                stream: self.stream.clone(),
                found: subjects.join(", "),
                wanted,
            }),
        }
    }
}

/// How long is waited before the connection is tried again.
fn pause(attempts: usize) -> Duration {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(30);
    let doubled = u32::try_from(attempts.saturating_sub(1))
        .unwrap_or(u32::MAX)
        .min(16);
    FIRST.saturating_mul(1 << doubled).min(LONGEST)
}

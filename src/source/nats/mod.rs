//! Event source over NATS JetStream, for workers on many machines.
//!
//! A [`NatsRelay`] publishes the events of a store to the subjects `breadcrumbs.<tenant>.<schema>`. A [`NatsSource`]
//! delivers each event to one worker of a group.
//!
//! NATS messages are only hints: the store decides which executors run, and a run is in its ledger before its event is
//! acknowledged. A [`Runtime`](crate::Runtime) also sweeps the store for triggers whose events did not arrive. The loss
//! of all data in NATS therefore delays triggers, and loses none.
//!
//! ```no_run
//! use universal_executor::source::{NatsRelay, NatsSource};
//! use universal_executor::{BoxError, Runtime, SqliteStore, UniversalExecutor};
//!
//! async fn serve(store: SqliteStore, agent: impl UniversalExecutor + 'static) -> Result<(), BoxError> {
//!     // On one worker or on each: JetStream removes duplicate messages.
//!     let relay = NatsRelay::connect("nats://127.0.0.1:4222", "default").await?;
//!     let relayed = relay.run(store.events_of("nats"));
//!
//!     let source = NatsSource::builder("nats://127.0.0.1:4222", "default").group("workers").connect().await?;
//!     let runtime = Runtime::builder(source).executor(agent).build()?;
//!     tokio::select! {
//!         ended = relayed => ended?,
//!         ended = runtime.run_until(std::future::pending()) => drop(ended?),
//!     }
//!     Ok(())
//! }
//! ```

mod connection;
mod error;
mod nacked;
mod relay;
mod server;
mod stream_position;
mod subject;
mod subscription;

pub use error::NatsError;
pub use relay::NatsRelay;
pub use server::NatsServer;

use super::{Deliveries, EventSource, SourceError, StartAt};
use crate::model::Event;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_trait::async_trait;
use connection::Connection;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Maximum size in bytes of a NATS message that the source accepts as an event: the size limit of an event's context,
/// plus 64 KiB for the event's other fields. The source skips larger messages.
const LARGEST_MESSAGE: usize = Event::MAX_CONTEXT_BYTES + (64 << 10);

/// An event source that reads the events of one tenant from a NATS JetStream stream (feature `nats`).
///
/// A source with a [`group`](NatsSourceBuilder::group) is one durable consumer, which the workers of the group share.
/// The server delivers each event to one of them, and repeats an unacknowledged event to any of them. The start
/// position applies only when the consumer is created. Without a group, each subscription receives all events from its
/// start position on.
///
/// Positions are sequence numbers of the stream. A nacked delivery is repeated after its delay. The source is not
/// [complete](EventSource::is_complete): a sweep of the store finds the events that a relay has not published or the
/// server lost. With [`FallbackSource`](super::FallbackSource), events that were committed while no worker ran are
/// delivered as well.
///
/// The source reopens a lost connection, with an exponential backoff of at most 30 s. The subscription reports the loss
/// as an error item and continues. The source creates a lost consumer again at its last position, and a lost stream
/// again from its beginning.
///
/// # Security
/// Every client with permission to publish to the subjects can put any message into the stream. The source skips a
/// message that is not an event, or is larger than 320 KiB, with a warning. A forged event starts a run only if the
/// store has a matching breadcrumb.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
/// use universal_executor::source::{FallbackSource, NatsSource};
/// use universal_executor::{BoxError, Runtime, SqliteStore, UniversalExecutor};
///
/// async fn serve(
///     store: SqliteStore,
///     agent: impl UniversalExecutor + 'static,
/// ) -> Result<(), BoxError> {
///     let nats = NatsSource::builder("nats://127.0.0.1:4222", "default")
///         .group("workers")
///         .ack_wait(Duration::from_secs(60))
///         .connect()
///         .await?;
///     // The store delivers the events that NATS lost.
///     let events = FallbackSource::new(nats, store.events_of("workers"));
///     let runtime = Runtime::builder(events).executor(agent).build()?;
///     runtime.run_until(std::future::pending()).await?;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct NatsSource {
    connection: Connection,
    tenant: Arc<str>,
    group: Option<Arc<str>>,
    ack_wait: Duration,
    max_unacknowledged: usize,
}

/// Builder for a [`NatsSource`], with its settings.
///
/// [`NatsSource::builder`] creates it, and [`connect`](Self::connect) opens the source.
#[derive(Clone, Debug)]
#[must_use]
pub struct NatsSourceBuilder {
    server: NatsServer,
    tenant: Arc<str>,
    group: Option<Arc<str>>,
    ack_wait: Duration,
    max_unacknowledged: usize,
}

impl NatsSource {
    /// Returns a builder for a source of a tenant's events on a NATS server. `server` is a [`NatsServer`] or its
    /// address.
    pub fn builder(
        server: impl Into<NatsServer>,
        tenant: impl Into<Arc<str>>,
    ) -> NatsSourceBuilder {
        NatsSourceBuilder {
            server: server.into(),
            tenant: tenant.into(),
            group: None,
            ack_wait: Duration::from_secs(30),
            max_unacknowledged: 1_024,
        }
    }

    /// Returns the JetStream settings of the consumer that a subscription to this source creates.
    fn config(&self, from: StartAt) -> pull::Config {
        let deliver_policy = match from {
            StartAt::Now => DeliverPolicy::New,
            StartAt::Beginning | StartAt::Since(_) => DeliverPolicy::All,
            StartAt::After(position) => DeliverPolicy::ByStartSequence {
                start_sequence: position.saturating_add(1),
            },
        };
        let durable = self
            .group
            .as_deref()
            .map(|group| subject::durable(group, &self.tenant));
        pull::Config {
            durable_name: durable,
            deliver_policy,
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            max_deliver: -1,
            filter_subject: subject::of_tenant(&self.tenant),
            max_ack_pending: i64::try_from(self.max_unacknowledged).unwrap_or(i64::MAX),
            inactive_threshold: match self.group {
                Some(_) => Duration::ZERO,
                None => Duration::from_secs(300),
            },
            ..pull::Config::default()
        }
    }
}

impl NatsSourceBuilder {
    /// Distributes the events of one durable NATS consumer among all subscriptions with this group name, in all
    /// processes. Defaults to no group.
    ///
    /// Use one name for all workers with the same executors. Workers with other executors need
    /// another group, because an event is delivered to only one worker of a group.
    pub fn group(mut self, name: impl Into<Arc<str>>) -> Self {
        self.group = Some(name.into());
        self
    }

    /// Sets the time after which the NATS server delivers an unacknowledged event again. Defaults to 30 s.
    ///
    /// A crashed worker's events reach another worker of the group after this time.
    pub fn ack_wait(mut self, wait: Duration) -> Self {
        self.ack_wait = wait;
        self
    }

    /// Sets the maximum number of events that the NATS server has delivered and whose acknowledgement it still awaits.
    /// Defaults to 1,024, at least 1.
    ///
    /// The limit applies to the consumer: with a group, to all its workers together.
    pub fn max_unacknowledged(mut self, events: usize) -> Self {
        self.max_unacknowledged = events.max(1);
        self
    }

    /// Connects to the NATS server, and creates the event stream if it does not exist.
    ///
    /// # Errors
    /// Returns a [`NatsError`] if a setting is invalid, the server cannot be reached or used, or the existing stream
    /// has other settings than this crate needs.
    ///
    /// - [`NatsError::Unreachable`]: the server does not answer. [`NatsServer::wait_for`] makes
    ///   `connect` retry.
    /// - [`NatsError::Refused`]: the login or the TLS certificate is wrong.
    /// - [`NatsError::Setting`]: an address, a file or the tenant name is invalid.
    /// - [`NatsError::TooOld`], [`NatsError::NoJetStream`]: the server has to be replaced or
    ///   configured.
    /// - [`NatsError::OtherSettings`]: the stream exists with other settings.
    /// - [`NatsError::Failed`]: a request failed, and a retry can succeed.
    pub async fn connect(self) -> Result<NatsSource, NatsError> {
        subject::check_tenant(&self.tenant)?;
        Ok(NatsSource {
            connection: Connection::open(&self.server).await?,
            tenant: self.tenant,
            group: self.group,
            ack_wait: self.ack_wait,
            max_unacknowledged: self.max_unacknowledged,
        })
    }
}

#[async_trait]
impl EventSource for NatsSource {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        subscription::begin(self.clone(), from).await
    }

    fn description(&self) -> String {
        match &self.group {
            Some(group) => format!("NATS, tenant {:?}, group {group:?}", self.tenant),
            None => format!("NATS, tenant {:?}", self.tenant),
        }
    }

    /// Returns `true` for a source with a group: the workers of the group share its events.
    fn is_shared(&self) -> bool {
        self.group.is_some()
    }

    /// Returns the number of events that the workers of this NATS source's group have not acknowledged. Returns `None`
    /// before the group's first subscription, and for a source without a group.
    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        match &self.group {
            Some(group) => {
                let name = subject::durable(group, &self.tenant);
                let behind = self.connection.behind(&name).await;
                behind.map_err(subscription::unavailable)
            }
            None => Ok(None),
        }
    }
}

impl fmt::Debug for NatsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSource")
            .field("stream", &self.connection.stream)
            .field("tenant", &self.tenant)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

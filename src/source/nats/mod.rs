//! Events through NATS JetStream, for workers on many machines.
//!
//! A [`NatsRelay`] publishes what a store commits to `breadcrumbs.<tenant>.<schema>`; a [`NatsSource`] delivers it to the
//! workers of a group, each event to one of them. NATS only says "look": the store decides what runs, a run is in its
//! ledger before the event is acknowledged, and a [`Runtime`](crate::Runtime) looks into the store for what no event told,
//! so that losing all of NATS costs time and no trigger.
//!
//! ```no_run
//! use universal_executor::source::{NatsRelay, NatsSource};
//! use universal_executor::{BoxError, Runtime, SqliteStore, UniversalExecutor};
//!
//! async fn serve(store: SqliteStore, agent: impl UniversalExecutor + 'static) -> Result<(), BoxError> {
//!     // Once, or on each worker: what is published twice is stored once.
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

mod error;
mod link;
mod nacked;
mod place;
mod relay;
mod server;
mod subject;
mod subscription;

pub use error::NatsError;
pub use relay::NatsRelay;
pub use server::NatsServer;

use super::{Deliveries, EventSource, SourceError, StartAt};
use crate::model::Event;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_trait::async_trait;
use link::Link;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The largest message there is: a context, and as much again as schema and tags may take. What is larger is nobody's.
const LARGEST_MESSAGE: usize = Event::MAX_CONTEXT_BYTES + (64 << 10);

/// The events of one tenant, as a stream of JetStream has them.
///
/// With a [`group`](NatsSourceBuilder::group) it is a durable consumer: where it begins counts the first time, what it has
/// not acknowledged comes again, to whichever worker of the group asks, and each event goes to one of them. Without, each
/// subscription has everything, from where it begins on.
///
/// Positions are sequence numbers of the stream. A nacked delivery is repeated after its delay. The source is not
/// [complete](EventSource::is_complete): a sweep of the store finds the events that a relay has not published or the server lost.
/// With [`FallbackSource`](super::FallbackSource), events that were committed while no worker ran are delivered as well.
///
/// A connection that is lost is made again, with longer and longer pauses up to 30 s; the subscription says so with an error
/// and goes on. A consumer that is gone is made again, where it was, and so is a stream, from its beginning on.
///
/// Anyone who may publish there can put anything into the stream. What is no event, or larger than 320 KiB, is left out with
/// a warning and does not come again; what is an event and not true finds nothing in the store, or what is there.
#[derive(Clone)]
pub struct NatsSource {
    link: Link,
    tenant: Arc<str>,
    group: Option<Arc<str>>,
    ack_wait: Duration,
    max_unacknowledged: usize,
}

/// Settings of a [`NatsSource`].
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
    /// A source at a server, of a tenant. An address alone will do for a server: see [`NatsServer::new`].
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

    /// What JetStream is told of a consumer.
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
    /// Makes all subscriptions of this name, in whichever process, one durable consumer.
    pub fn group(mut self, name: impl Into<Arc<str>>) -> Self {
        self.group = Some(name.into());
        self
    }

    /// Sets when an event that was not acknowledged comes again; after 30 s by default.
    pub fn ack_wait(mut self, wait: Duration) -> Self {
        self.ack_wait = wait;
        self
    }

    /// Sets how many events may be on their way without being acknowledged; 1,024 by default.
    pub fn max_unacknowledged(mut self, events: usize) -> Self {
        self.max_unacknowledged = events.max(1);
        self
    }

    /// Connects, and makes the stream if it is not there.
    ///
    /// # Errors
    /// [`NatsError`]: the server cannot be reached or used, or its stream is for something else.
    pub async fn connect(self) -> Result<NatsSource, NatsError> {
        subject::check_tenant(&self.tenant)?;
        Ok(NatsSource {
            link: Link::open(&self.server).await?,
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

    /// None before the group has subscribed, and without one: nobody knows which subscription is meant.
    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        match &self.group {
            Some(group) => {
                let name = subject::durable(group, &self.tenant);
                let behind = self.link.behind(&name).await;
                behind.map_err(subscription::unavailable)
            }
            None => Ok(None),
        }
    }
}

impl fmt::Debug for NatsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSource")
            .field("stream", &self.link.stream)
            .field("tenant", &self.tenant)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

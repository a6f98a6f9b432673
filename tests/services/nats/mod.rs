//! Events through a NATS server, which `scripts/services` starts.

mod downtime;
mod groups;
pub(crate) mod harness;
mod lost;
mod relay;
pub(crate) mod server;
mod workers;

use server::{url, uuid};
use std::time::Duration;
use universal_executor::source::conformance::{Abilities, Change, SourceUnderTest};
use universal_executor::source::{
    Deliveries, NatsRelay, NatsSource, NatsSourceBuilder, SourceError, StartAt,
};
use universal_executor::store::conformance::announce;
use universal_executor::{BoxError, Event, EventSource, MemoryStore, async_trait};

/// A store whose commits are published under a unique tenant.
struct Place {
    store: MemoryStore,
    tenant: String,
}

struct Nats {
    url: String,
    saves_consumers: bool,
}

impl Place {
    fn new() -> Self {
        Self {
            store: MemoryStore::default(),
            tenant: format!("test-{}", uuid()),
        }
    }
}

/// A source that connects at its subscription.
struct Late(NatsSourceBuilder);

#[async_trait]
impl EventSource for Late {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        let connected = self.0.clone().connect().await;
        connected.unwrap().subscribe(from).await
    }

    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        self.0.clone().connect().await.unwrap().behind().await
    }
}

impl Nats {
    fn new(saves_consumers: bool) -> Self {
        Self {
            url: url(),
            saves_consumers,
        }
    }
}

impl SourceUnderTest for Nats {
    type Backend = Place;

    fn abilities(&self) -> Abilities {
        Abilities::default()
            .history(true)
            .redelivers(true)
            .saves_consumers(self.saves_consumers)
    }

    async fn fresh(&self) -> Place {
        Place::new()
    }

    async fn fresh_with_limit(&self, _: usize) -> Option<Place> {
        None
    }

    async fn in_tenant(&self, place: &Place, tenant: &str) -> Option<Place> {
        Some(Place {
            store: place.store.in_tenant(tenant),
            tenant: format!("{}.{tenant}", place.tenant),
        })
    }

    async fn restart(&self, place: Place) -> Option<Place> {
        Some(place)
    }

    fn source(&self, place: &Place, consumer: &str) -> Box<dyn EventSource> {
        let builder =
            NatsSource::builder(&*self.url, &*place.tenant).ack_wait(Duration::from_millis(500));
        Box::new(Late(match self.saves_consumers {
            true => builder.group(consumer),
            false => builder,
        }))
    }

    async fn commit(&self, place: &Place, changes: Vec<Change>) -> Result<Vec<Event>, BoxError> {
        let events = announce(&place.store, changes).await?;
        let relay = NatsRelay::connect(&self.url, &*place.tenant).await?;
        for event in &events {
            relay.publish(event).await?;
        }
        Ok(events)
    }

    async fn advance_clock(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

universal_executor::source_conformance!(events, Nats::new(false));
universal_executor::source_conformance!(events_of_a_group, Nats::new(true));

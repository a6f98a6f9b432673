//! The events of a PostgreSQL store, with and without a named consumer, in the conformance suite for sources.

use crate::consumers::one_consumer_too_many_is_refused;
use crate::postgres::server::{Namespaces, store_in};
use crate::postgres::wrapped::Around;
use std::time::Duration;
use universal_executor::source::conformance::{Abilities, Change, SourceUnderTest};
use universal_executor::store::conformance::announce;
use universal_executor::store::{PostgresLimits, PostgresStore};
use universal_executor::{BoxError, Event, EventSource};

/// Creates stores whose events are delivered to any subscriber or to named consumers.
struct Stores {
    namespaces: Namespaces,
    saves_consumers: bool,
}

impl Stores {
    fn new(saves_consumers: bool) -> Self {
        Self {
            namespaces: Namespaces::default(),
            saves_consumers,
        }
    }

    async fn make(&self, limits: PostgresLimits) -> Connected {
        let namespace = self.namespaces.one();
        let store = store_in(&namespace).limits(limits).connect().await.unwrap();
        Connected { store, namespace }
    }
}

struct Connected {
    store: PostgresStore,
    namespace: String,
}

impl SourceUnderTest for Stores {
    type Backend = Connected;

    fn abilities(&self) -> Abilities {
        Abilities::default()
            .history(true)
            .redelivers(true)
            .saves_consumers(self.saves_consumers)
    }

    async fn fresh(&self) -> Connected {
        self.make(PostgresLimits::default()).await
    }

    async fn fresh_with_limit(&self, events: usize) -> Option<Connected> {
        let mut limits = PostgresLimits::default();
        limits.events = events;
        Some(self.make(limits).await)
    }

    async fn in_tenant(&self, place: &Connected, tenant: &str) -> Option<Connected> {
        Some(Connected {
            store: place.store.in_tenant(tenant),
            namespace: place.namespace.clone(),
        })
    }

    async fn restart(&self, place: Connected) -> Option<Connected> {
        place.store.close().await;
        let store = store_in(&place.namespace).connect().await.unwrap();
        Some(Connected { store, ..place })
    }

    fn source(&self, place: &Connected, consumer: &str) -> Box<dyn EventSource> {
        if self.saves_consumers {
            Box::new(place.store.events_of(consumer))
        } else {
            Box::new(place.store.events())
        }
    }

    async fn commit(
        &self,
        place: &Connected,
        changes: Vec<Change>,
    ) -> Result<Vec<Event>, BoxError> {
        Ok(announce(&place.store, changes).await?)
    }

    async fn advance_clock(&self, duration: Duration) {
        tokio::time::pause();
        tokio::time::advance(duration).await;
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_tenant_has_a_limited_number_of_consumers() {
    let namespaces = Namespaces::default();
    let store = namespaces.builder().connect().await.unwrap();

    one_consumer_too_many_is_refused(|name| Box::new(store.events_of(name))).await;
}

universal_executor::source_conformance!(events, Stores::new(false));
universal_executor::source_conformance!(events_of_a_consumer, Stores::new(true));
universal_executor::source_conformance!(without_faults, Around::faultless(Stores::new(false)));
universal_executor::source_conformance!(that_stumble, Around::stumbling(Stores::new(false)));
universal_executor::source_conformance!(of_one_that_stumbles, Around::stumbling(Stores::new(true)));
universal_executor::source_conformance!(observed, Around::watched(Stores::new(false)));
universal_executor::source_conformance!(observed_of_one, Around::watched(Stores::new(true)));

//! The memory store's events, as a subject of the conformance suite for sources.

use std::time::Duration;
use universal_executor::source::conformance::{Abilities, Change, SourceUnderTest};
use universal_executor::store::MemoryLimits;
use universal_executor::store::conformance::announce;
use universal_executor::{BoxError, Event, EventSource, MemoryStore};

/// Creates fresh memory stores and their events.
pub(crate) struct Events;

impl SourceUnderTest for Events {
    type Backend = MemoryStore;

    fn abilities(&self) -> Abilities {
        Abilities::default().history(true).redelivers(true)
    }

    async fn fresh(&self) -> MemoryStore {
        MemoryStore::default()
    }

    async fn fresh_with_limit(&self, events: usize) -> Option<MemoryStore> {
        let mut limits = MemoryLimits::default();
        limits.events = events;
        Some(MemoryStore::with_limits(limits))
    }

    async fn in_tenant(&self, place: &MemoryStore, tenant: &str) -> Option<MemoryStore> {
        Some(place.in_tenant(tenant))
    }

    async fn restart(&self, _: MemoryStore) -> Option<MemoryStore> {
        None
    }

    fn source(&self, place: &MemoryStore, _: &str) -> Box<dyn EventSource> {
        Box::new(place.events())
    }

    async fn commit(
        &self,
        place: &MemoryStore,
        changes: Vec<Change>,
    ) -> Result<Vec<Event>, BoxError> {
        Ok(announce(place, changes).await?)
    }

    async fn advance_clock(&self, duration: Duration) {
        tokio::time::pause();
        tokio::time::advance(duration).await;
        tokio::time::resume();
    }
}

//! Wrappers of the memory store and its events in the conformance suites.

use crate::memory::source::Events;
use crate::wrappers::watched::{Faultless, Watched};
use crate::wrappers::wrapped::Around;
use std::time::Duration;
use universal_executor::store::conformance::StoreUnderTest;
use universal_executor::{EventSource, MemoryStore};

/// Creates memory stores whose time advances with tokio's clock.
struct Memory;

impl StoreUnderTest for Memory {
    type Store = MemoryStore;

    async fn fresh(&self) -> MemoryStore {
        MemoryStore::default()
    }

    async fn in_tenant(&self, store: &MemoryStore, tenant: &str) -> Option<MemoryStore> {
        Some(store.in_tenant(tenant))
    }

    fn events(&self, store: &MemoryStore) -> Option<Box<dyn EventSource>> {
        Some(Box::new(store.events()))
    }

    async fn advance_clock(&self, duration: Duration) {
        tokio::time::pause();
        tokio::time::advance(duration).await;
        tokio::time::resume();
    }
}

universal_executor::store_conformance!(a_store_without_faults, Faultless(Memory));
universal_executor::store_conformance!(a_store_that_is_observed, Watched(Memory));
universal_executor::source_conformance!(a_source_without_faults, Around::faultless(Events));
universal_executor::source_conformance!(a_source_that_stumbles, Around::stumbling(Events));
universal_executor::source_conformance!(a_source_that_is_observed, Around::watched(Events));

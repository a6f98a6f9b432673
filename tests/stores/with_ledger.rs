//! A store with the ledger of another store: the promises of a store that still hold.

use std::sync::Mutex;
use std::time::Duration;
use universal_executor::store::MemoryLimits;
use universal_executor::store::conformance::{StoreUnderTest, WordCounts};
use universal_executor::store::embedding::EmbeddingConfig;
use universal_executor::{EventSource, MemoryStore, WithLedger};

/// Two memory stores: one for breadcrumbs and their vectors, and one for runs.
#[derive(Default)]
struct Two(Mutex<Option<(MemoryStore, MemoryStore)>>);

impl StoreUnderTest for Two {
    type Store = WithLedger<MemoryStore, MemoryStore>;

    async fn fresh(&self) -> Self::Store {
        let service =
            MemoryStore::with_embeddings(MemoryLimits::default(), EmbeddingConfig::new(WordCounts));
        let ledger = MemoryStore::default();
        *self.0.lock().unwrap() = Some((service.clone(), ledger.clone()));
        WithLedger::new(service, ledger)
    }

    async fn in_tenant(&self, _: &Self::Store, tenant: &str) -> Option<Self::Store> {
        let (service, ledger) = self.0.lock().unwrap().clone()?;
        let (service, ledger) = (service.in_tenant(tenant), ledger.in_tenant(tenant));
        Some(WithLedger::new(service, ledger))
    }

    fn events(&self, _: &Self::Store) -> Option<Box<dyn EventSource>> {
        None
    }

    async fn advance_clock(&self, duration: Duration) {
        tokio::time::pause();
        tokio::time::advance(duration).await;
        tokio::time::resume();
    }
}

/// Two memory stores, with the events of the store of breadcrumbs.
#[derive(Default)]
struct WithEvents(Mutex<MemoryStore>);

impl StoreUnderTest for WithEvents {
    type Store = WithLedger<MemoryStore, MemoryStore>;

    async fn fresh(&self) -> Self::Store {
        let service = MemoryStore::default();
        *self.0.lock().unwrap() = service.clone();
        WithLedger::new(service, MemoryStore::default())
    }

    async fn in_tenant(&self, _: &Self::Store, _: &str) -> Option<Self::Store> {
        None
    }

    fn events(&self, _: &Self::Store) -> Option<Box<dyn EventSource>> {
        Some(Box::new(self.0.lock().unwrap().events()))
    }

    async fn advance_clock(&self, duration: Duration) {
        Two::default().advance_clock(duration).await;
    }
}

crate::versions::versions!(versions_of_executors, WithEvents::default());

universal_executor::store_conformance!(two, Two::default());

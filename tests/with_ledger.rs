//! A store beside the ledger of another: what is left of the promises of a store.

use std::time::Duration;
use universal_executor::store::conformance::Subject;
use universal_executor::{EventSource, MemoryStore, WithLedger};

/// Two stores in memory, one for the breadcrumbs and one for the runs.
struct Two;

impl Subject for Two {
    type Store = WithLedger<MemoryStore, MemoryStore>;

    async fn fresh(&self) -> Self::Store {
        WithLedger::new(MemoryStore::default(), MemoryStore::default())
    }

    async fn in_tenant(&self, _: &Self::Store, _: &str) -> Option<Self::Store> {
        None
    }

    fn events(&self, _: &Self::Store) -> Option<Box<dyn EventSource>> {
        None
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::pause();
        tokio::time::advance(duration).await;
        tokio::time::resume();
    }
}

universal_executor::store_conformance!(two, Two);

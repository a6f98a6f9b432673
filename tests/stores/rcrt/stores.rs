//! The suite for stores, as far as the server can keep its promises.

use super::server::Server;
use super::{OWNER, builder, store};
use std::sync::Mutex;
use std::time::Duration;
use universal_executor::store::conformance::Subject;
use universal_executor::{BreadcrumbStore, EventSource, MemoryStore, RcrtStore, WithLedger};

#[derive(Default)]
struct Rcrt {
    server: Mutex<Option<Server>>,
}

impl Subject for Rcrt {
    type Store = RcrtStore;

    async fn fresh(&self) -> RcrtStore {
        let server = Server::start().await;
        *self.server.lock().unwrap() = Some(server.clone());
        store(&server)
    }

    async fn in_tenant(&self, _: &RcrtStore, tenant: &str) -> Option<RcrtStore> {
        let server = self.server.lock().unwrap().clone()?;
        builder(&server, tenant).build().ok()
    }

    fn events(&self, _: &RcrtStore) -> Option<Box<dyn EventSource>> {
        // The server does not tell of deletions; what it does tell of is tried in sources.rs.
        None
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

universal_executor::store_conformance!(rcrt, Rcrt::default());

/// The server beside a ledger in memory.
#[derive(Default)]
struct Beside(Rcrt, Mutex<Option<MemoryStore>>);

impl Subject for Beside {
    type Store = WithLedger<RcrtStore, MemoryStore>;

    async fn fresh(&self) -> Self::Store {
        let ledger = MemoryStore::default().in_tenant(OWNER);
        *self.1.lock().unwrap() = Some(ledger.clone());
        WithLedger::new(self.0.fresh().await, ledger)
    }

    async fn in_tenant(&self, _: &Self::Store, tenant: &str) -> Option<Self::Store> {
        let ledger = self.1.lock().unwrap().clone()?.in_tenant(tenant);
        let server = self.0.server.lock().unwrap().clone()?;
        let store = builder(&server, tenant).build().ok()?;
        Some(WithLedger::new(store, ledger))
    }

    fn events(&self, _: &Self::Store) -> Option<Box<dyn EventSource>> {
        None
    }

    async fn pass(&self, duration: Duration) {
        self.0.pass(duration).await;
    }
}

universal_executor::store_conformance!(beside, Beside::default());

#[tokio::test]
async fn the_store_says_what_it_cannot_do() {
    let able = store(&Server::start().await).capabilities();

    assert!(able.reads_own_writes && able.vector_search && able.run_keys);
    assert!(
        !able.oldest_first
            && !able.atomic
            && !able.tombstones
            && !able.chosen_author
            && !able.lineage
            && !able.scores
    );
    assert_eq!(store(&Server::start().await).tenant(), OWNER);
}

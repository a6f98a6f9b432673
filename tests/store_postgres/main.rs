//! The store in PostgreSQL: the promises of every store, and those of its own. `scripts/services` starts the server that
//! they need.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on may panic, helpers included"
)]

mod server;
mod source;
#[path = "../store_wrappers/wrapped.rs"]
mod wrapped;

use server::Namespaces;
use std::sync::Mutex;
use std::time::Duration;
use universal_executor::store::conformance::Subject;
use universal_executor::{EventSource, PostgresStore};

/// A fresh namespace for each store, on whose clock time passes by moving it.
#[derive(Default)]
struct Server {
    connected: Mutex<Vec<PostgresStore>>,
    namespaces: Namespaces,
}

impl Subject for Server {
    type Store = PostgresStore;

    async fn fresh(&self) -> PostgresStore {
        let store = self.namespaces.builder().connect().await.unwrap();
        self.connected.lock().unwrap().push(store.clone());
        store
    }

    async fn in_tenant(&self, store: &PostgresStore, tenant: &str) -> Option<PostgresStore> {
        Some(store.in_tenant(tenant))
    }

    fn events(&self, store: &PostgresStore) -> Option<Box<dyn EventSource>> {
        Some(Box::new(store.events()))
    }

    async fn pass(&self, duration: Duration) {
        for store in self.connected.lock().unwrap().iter() {
            store.pass(duration);
        }
    }
}

universal_executor::store_conformance!(postgres, Server::default());
universal_executor::store_conformance!(observed, wrapped::Watched(Server::default()));
universal_executor::store_conformance!(without_faults, wrapped::Faultless(Server::default()));

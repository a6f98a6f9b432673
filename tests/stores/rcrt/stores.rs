//! The conformance suite for stores on a server with the faults of the real one, without and with a separate ledger.

use super::server::Server;
use super::{OWNER, builder, store};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;
use universal_executor::store::conformance::{StoreUnderTest, Unchecked, unchecked};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt as _, EventSource, MemoryStore, NewBreadcrumb, RcrtStore,
    WithLedger,
};

#[derive(Default)]
struct Rcrt {
    server: Mutex<Option<Server>>,
}

impl StoreUnderTest for Rcrt {
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
        // The server does not announce deletions. `sources.rs` tests the other events.
        None
    }

    async fn advance_clock(&self, duration: Duration) {
        let server = self.server.lock().unwrap().clone().unwrap();
        server.lock().crumbs.pass(duration);
    }
}

universal_executor::store_conformance!(rcrt, Rcrt::default());

/// The server with a separate ledger in memory.
#[derive(Default)]
struct Beside(Rcrt, Mutex<Option<MemoryStore>>);

impl StoreUnderTest for Beside {
    type Store = WithLedger<RcrtStore, MemoryStore>;

    async fn fresh(&self) -> Self::Store {
        let ledger = MemoryStore::default().in_tenant(OWNER);
        *self.1.lock().unwrap() = Some(ledger.clone());
        let store = self.0.fresh().await;
        let server = self.0.server.lock().unwrap().clone().unwrap();
        // The promises compare times of the server with times of the ledger.
        tokio::time::pause();
        let clock = ledger.in_tenant("clock");
        let probe = clock.create(NewBreadcrumb::new("clock.v1")).await.unwrap();
        let now = probe.updated_at.as_micros();
        let now = jiff::Timestamp::from_microsecond(now).unwrap();
        server.lock().crumbs.follow_tokio_from(now);
        tokio::time::resume();
        WithLedger::new(store, ledger)
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

    async fn advance_clock(&self, duration: Duration) {
        self.0.advance_clock(duration).await;
        tokio::time::pause();
        tokio::time::advance(duration).await;
        tokio::time::resume();
    }
}

universal_executor::store_conformance!(beside, Beside::default());

/// Returns the capabilities that the store does not declare.
fn capabilities(missing: &[Unchecked]) -> Vec<&'static str> {
    missing.iter().map(|one| one.capability).collect()
}

/// Returns the unchecked promises, except those of the capabilities in `except`.
fn promises(missing: &[Unchecked], except: &[&str]) -> BTreeSet<&'static str> {
    let rest = missing.iter();
    let rest = rest.filter(|one| !except.contains(&one.capability));
    rest.flat_map(|one| one.promises.clone()).collect()
}

#[tokio::test]
async fn each_limit_of_the_server_is_a_capability_that_the_store_does_not_declare() {
    let missing = unchecked(&Rcrt::default()).await;

    let limits = [
        "ledger",
        "events",
        "tombstones",
        "chosen_author",
        "atomic",
        "exclusive_updates",
        "named_tenants",
        "scores",
        "embeds_updates",
        "embeds_hinted",
        "oldest_first",
    ];
    assert_eq!(capabilities(&missing), limits);
    let left_out = [
        "a_deletion_has_a_lineage",
        "a_request_publishes_one_event",
        "equal_scores_are_newest_first",
        "atomic",
        "cancel_safe",
        "a_commit_publishes_its_events",
        "vector_search_ignores_text_that_hints_exclude",
        "vector_search_uses_the_current_text",
        "vector_search_applies_the_minimum_score",
    ];
    assert_eq!(promises(&missing, &["ledger"]), BTreeSet::from(left_out));
}

#[tokio::test]
async fn a_ledger_beside_the_server_adds_its_promises_and_only_its_own_limits() {
    let alone = unchecked(&Rcrt::default()).await;
    let missing = unchecked(&Beside::default()).await;

    let mut limits = capabilities(&alone);
    limits.retain(|limit| *limit != "ledger");
    limits.extend(["lineage", "atomic_ends", "keyed_requests"]);
    assert_eq!(capabilities(&missing), limits);
    assert_eq!(
        promises(&missing, &["lineage", "keyed_requests"]),
        promises(&alone, &["ledger"]),
        "all promises of a ledger without a lineage are checked"
    );
}

#[tokio::test]
async fn the_store_reports_its_unsupported_capabilities() {
    let able = store(&Server::start().await).capabilities();

    assert!(able.reads_own_writes && able.vector_search && able.run_keys);
    assert!(
        !able.oldest_first
            && !able.atomic
            && !able.atomic_ends
            && !able.exclusive_updates
            && !able.embeds_updates
            && !able.embeds_hinted
            && !able.named_tenants
            && !able.tombstones
            && !able.chosen_author
            && !able.lineage
            && !able.scores
    );
    assert_eq!(store(&Server::start().await).tenant(), OWNER);
}

//! The memory store: the promises of every store, and tests of its additional features.
mod events;
mod limits;
pub(crate) mod source;

use crate::{ledger_model, one_store, request_keys, search_model, start_stop};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;
use universal_executor::store::MemoryLimits;
use universal_executor::store::conformance::{StoreUnderTest, WordCounts, unchecked};
use universal_executor::store::embedding::EmbeddingConfig;
use universal_executor::{EventSource, MemoryStore};

/// Creates fresh memory stores, whose time advances with tokio's clock.
pub(crate) struct Memory;

/// Creates memory stores whose clock advances only on request.
#[derive(Default)]
struct Held;

impl StoreUnderTest for Held {
    type Store = MemoryStore;

    async fn fresh(&self) -> MemoryStore {
        tokio::time::pause();
        MemoryStore::default()
    }

    async fn in_tenant(&self, store: &MemoryStore, tenant: &str) -> Option<MemoryStore> {
        Some(store.in_tenant(tenant))
    }

    fn events(&self, store: &MemoryStore) -> Option<Box<dyn EventSource>> {
        Some(Box::new(store.events()))
    }

    async fn advance_clock(&self, duration: Duration) {
        tokio::time::advance(duration).await;
    }
}

/// Creates memory stores with embedding vectors.
struct WithMeaning;

impl StoreUnderTest for WithMeaning {
    type Store = MemoryStore;

    async fn fresh(&self) -> MemoryStore {
        MemoryStore::with_embeddings(MemoryLimits::default(), EmbeddingConfig::new(WordCounts))
    }

    async fn in_tenant(&self, store: &MemoryStore, tenant: &str) -> Option<MemoryStore> {
        Memory.in_tenant(store, tenant).await
    }

    fn events(&self, store: &MemoryStore) -> Option<Box<dyn EventSource>> {
        Memory.events(store)
    }

    async fn advance_clock(&self, duration: Duration) {
        Memory.advance_clock(duration).await;
    }
}

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

#[tokio::test]
async fn a_store_with_an_embedder_is_checked_for_every_promise() {
    assert_eq!(unchecked(&WithMeaning).await, []);
}

#[tokio::test]
async fn old_keys_of_requests_without_a_run_are_deleted() {
    request_keys::old_keys_without_a_run_are_deleted(&Held).await;
}

#[test]
fn the_ledger_behaves_like_its_model() {
    ledger_model::the_ledger_behaves_like_its_model::<Held>(1_000);
}

#[test]
fn a_search_returns_the_same_breadcrumbs_as_a_full_scan() {
    search_model::a_search_returns_the_same_breadcrumbs_as_a_full_scan::<Held>(500);
}

impl start_stop::Restarted for Held {
    fn events_of(_: &MemoryStore, _: &str) -> Option<Box<dyn EventSource>> {
        None
    }
}

#[test]
fn however_runtimes_are_started_and_stopped_each_trigger_is_answered_once() {
    start_stop::each_trigger_is_answered_once::<Held>(32);
}

crate::versions::versions!(versions_of_executors, Held);
crate::client::clients!(clients, Memory);
crate::cancel::cancels!(cancellations, Memory);
crate::deploys::deploys!(rolling_deploys, Held, oldest: 500, now: 100);
crate::session::sessions!(sessions, Memory);

#[tokio::test]
async fn executors_with_clones_of_a_handle_cost_as_much_as_executors_of_one_handle() {
    let store = MemoryStore::default();
    let clone = async || store.clone();
    one_store::executors_cost_as_much_as_on_one_handle(&store, || store.events(), clone).await;
}

universal_executor::store_conformance!(memory, Memory);
universal_executor::store_conformance!(with_embeddings, WithMeaning);
universal_executor::source_conformance!(memory_events, source::Events);

#[test]
fn every_promise_is_on_the_list() -> std::io::Result<()> {
    for (suite, at_least) in [("store", 80), ("source", 25)] {
        let folder = format!("src/{suite}/conformance");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let listed = fs::read_to_string(folder.join("mod.rs"))?;
        let mut promises = 0;
        for file in fs::read_dir(folder)? {
            for line in fs::read_to_string(file?.path())?.lines() {
                let Some(rest) = line.strip_prefix("pub async fn ") else {
                    continue;
                };
                let name = rest.split(['<', '(']).next().unwrap_or_default();
                if ["announce", "unchecked"].contains(&name) {
                    // These functions belong to subjects and to their tests.
                    continue;
                }
                assert!(
                    listed.lines().any(|line| line.trim() == name),
                    "{name} is not in {suite}_conformance!"
                );
                promises += 1;
            }
        }
        assert!(promises > at_least, "only {promises} promises were found");
    }
    Ok(())
}

/// The bold names in the contract of `EventSource` must be exactly the names that the promises of the suite claim to test.
#[test]
fn every_promise_of_a_source_is_tried() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/source");
    let names = |text: &str, begin: &str| -> BTreeSet<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(begin));
        let names = lines.filter_map(|line| line.split_once(".**"));
        names.map(|(name, _)| name.to_owned()).collect()
    };

    let promised = names(&fs::read_to_string(root.join("mod.rs"))?, "/// - **");
    let mut tried = BTreeSet::new();
    for file in fs::read_dir(root.join("conformance"))? {
        tried.extend(names(&fs::read_to_string(file?.path())?, "/// **"));
    }

    assert!(promised.len() > 10, "{promised:?}");
    assert_eq!(promised, tried);
    Ok(())
}

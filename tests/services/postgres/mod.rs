//! The PostgreSQL store: the promises of every store, and tests of its additional features. `scripts/services` starts the required
//! server.
mod alike;
mod backup;
mod broken;
mod counter;
mod far;
mod growth;
mod inbox;
mod incomplete;
mod order;
mod processes;
mod proxy;
mod read_only;
mod restored;
mod round_trips;
mod saved_states;
pub(crate) mod server;
mod source;
mod vectors;
#[path = "../../stores/wrappers/wrapped.rs"]
mod wrapped;

use crate::{clock_jumps, ledger_model, one_store, request_keys, search_model, start_stop};
use server::Namespaces;
use sqlx::Connection as _;
use std::sync::Mutex;
use std::time::Duration;
use universal_executor::store::conformance::{StoreUnderTest, WordCounts, unchecked};
use universal_executor::store::embedding::EmbeddingConfig;
use universal_executor::{EventSource, PostgresStore};

/// Executes statements on a separate connection.
pub(crate) async fn execute(sql: String) {
    let mut connection = sqlx::PgConnection::connect(&server::url()).await.unwrap();
    let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
    sql.execute(&mut connection).await.unwrap();
}

/// Creates stores in fresh namespaces whose clock is moved by tests.
#[derive(Default)]
pub(crate) struct Server {
    connected: Mutex<Vec<PostgresStore>>,
    namespaces: Namespaces,
    config: Option<EmbeddingConfig>,
}

impl Server {
    fn with_embeddings() -> Self {
        Self {
            config: Some(EmbeddingConfig::new(WordCounts)),
            ..Self::default()
        }
    }
}

impl StoreUnderTest for Server {
    type Store = PostgresStore;

    async fn fresh(&self) -> PostgresStore {
        let mut builder = self.namespaces.builder();
        if let Some(config) = &self.config {
            builder = builder.embeddings(config.clone());
        }
        let store = builder.connect().await.unwrap();
        self.connected.lock().unwrap().push(store.clone());
        store
    }

    async fn in_tenant(&self, store: &PostgresStore, tenant: &str) -> Option<PostgresStore> {
        Some(store.in_tenant(tenant))
    }

    fn events(&self, store: &PostgresStore) -> Option<Box<dyn EventSource>> {
        Some(Box::new(store.events()))
    }

    async fn advance_clock(&self, duration: Duration) {
        for store in self.connected.lock().unwrap().iter() {
            store.advance_clock(duration);
        }
    }
}

/// Creates stores whose clock advances only on request, because a busy server may take longer than a lease in the conformance suite.
#[derive(Default)]
struct Held(Server);

impl StoreUnderTest for Held {
    type Store = PostgresStore;

    async fn fresh(&self) -> PostgresStore {
        let store = self.0.fresh().await;
        store.hold_clock();
        store
    }

    async fn in_tenant(&self, store: &PostgresStore, tenant: &str) -> Option<PostgresStore> {
        self.0.in_tenant(store, tenant).await
    }

    fn events(&self, store: &PostgresStore) -> Option<Box<dyn EventSource>> {
        self.0.events(store)
    }

    async fn advance_clock(&self, duration: Duration) {
        self.0.advance_clock(duration).await;
    }
}

#[tokio::test]
async fn old_keys_of_requests_without_a_run_are_deleted() {
    request_keys::old_keys_without_a_run_are_deleted(&Held::default()).await;
}

#[tokio::test]
async fn after_the_clock_was_set_back_ready_runs_are_claimed() {
    let namespaces = Namespaces::default();
    let store = namespaces.builder().connect().await.unwrap();
    clock_jumps::ready_runs_stay_ready(&store, |by| store.move_clock(by)).await;
}

#[tokio::test]
async fn after_the_clock_was_set_back_leases_are_held_and_expire() {
    let namespaces = Namespaces::default();
    let store = namespaces.builder().connect().await.unwrap();
    let pass = async |by| store.advance_clock(by);
    clock_jumps::leases_are_held_and_expire(&store, |by| store.move_clock(by), pass).await;
}

#[tokio::test]
async fn after_the_clock_was_set_back_commits_stay_in_order() {
    let namespaces = Namespaces::default();
    let store = namespaces.builder().connect().await.unwrap();
    clock_jumps::commits_stay_in_order(&store, |by| store.move_clock(by)).await;
}

#[tokio::test]
async fn after_the_clock_jumped_ahead_records_of_workers_stay() {
    let namespaces = Namespaces::default();
    let store = namespaces.builder().connect().await.unwrap();
    let pass = async |by| store.advance_clock(by);
    clock_jumps::records_of_workers_stay(&store, |by| store.move_clock(by), pass).await;
}

#[tokio::test]
async fn a_clock_that_was_far_ahead_is_followed_back() {
    let namespaces = Namespaces::default();
    let store = namespaces.builder().connect().await.unwrap();
    let pass = async |by| store.advance_clock(by);
    clock_jumps::large_set_backs_are_followed(&store, |by| store.move_clock(by), pass).await;
}

#[test]
fn the_ledger_behaves_like_its_model() {
    ledger_model::the_ledger_behaves_like_its_model::<Held>(16);
}

#[test]
fn a_search_returns_the_same_breadcrumbs_as_a_full_scan() {
    search_model::a_search_returns_the_same_breadcrumbs_as_a_full_scan::<Held>(8);
}

impl start_stop::Restarted for Held {
    fn events_of(store: &PostgresStore, consumer: &str) -> Option<Box<dyn EventSource>> {
        Some(Box::new(store.events_of(consumer)))
    }
}

#[test]
fn however_runtimes_are_started_and_stopped_each_trigger_is_answered_once() {
    start_stop::each_trigger_is_answered_once::<Held>(6);
}

crate::versions::versions!(versions_of_executors, Server::default());
crate::client::clients!(clients, Server::default());
crate::cancel::cancels!(cancellations, Server::default());
crate::deploys::deploys!(rolling_deploys, Server, oldest: 8, now: 4);
crate::session::sessions!(sessions, Server::default());

#[tokio::test]
async fn executors_with_clones_of_a_handle_cost_as_much_as_executors_of_one_handle() {
    let server = Server::default();
    let store = server.fresh().await;
    let clone = async || store.clone();
    one_store::executors_cost_as_much_as_on_one_handle(&store, || store.events(), clone).await;
}

universal_executor::store_conformance!(postgres, Held::default());
#[tokio::test]
async fn executors_that_connect_each_cost_as_much_as_executors_of_one_handle() {
    let namespaces = server::Namespaces::default();
    let schema = namespaces.one();
    let connect = async || {
        let builder = PostgresStore::builder(server::url()).schema(schema.clone());
        builder.connections(2).connect().await.unwrap()
    };
    let store = connect().await;
    one_store::executors_cost_as_much_as_on_one_handle(&store, || store.events(), connect).await;
}

#[tokio::test]
async fn a_store_with_an_embedder_is_checked_for_every_promise() {
    assert_eq!(unchecked(&Held(Server::with_embeddings())).await, []);
}

universal_executor::store_conformance!(with_embeddings, Held(Server::with_embeddings()));

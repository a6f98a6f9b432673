//! A server that accepts no writes.

use crate::nats::harness::{answered, ask, eventually, runtime};
use crate::postgres::execute;
use crate::postgres::server::{Namespaces, store_in, url};
use std::error::Error as _;
use std::sync::atomic::{AtomicU64, Ordering};
use universal_executor::error::Retry;
use universal_executor::store::{PostgresError, StoreError};
use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb, PostgresStore};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

/// Returns the server's URL with read-only sessions.
fn read_only_url() -> String {
    let url = url();
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}options=-c%20default_transaction_read_only%3Don")
}

/// Fails unless an error names the read-only server and permits a retry.
fn assert_read_only(error: &StoreError) {
    assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
    let cause = error.source().unwrap();
    let cause = cause.downcast_ref::<PostgresError>().unwrap();
    assert!(matches!(cause, PostgresError::ReadOnly { .. }), "{cause:?}");
    let reason = cause.to_string();
    assert!(reason.contains("primary"), "{reason}");
    assert!(reason.contains("default_transaction_read_only"), "{reason}");
    let driver = cause.source().unwrap().to_string();
    assert!(driver.contains("25006"), "{driver}");
}

/// The database of one test.
struct Own(String);

impl Own {
    async fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("ux_read_only_{}_{number}", std::process::id());
        execute(format!("CREATE DATABASE {name}")).await;
        Self(name)
    }

    fn url(&self) -> String {
        let url = url();
        let (server, _) = url.rsplit_once('/').unwrap();
        format!("{server}/{}", self.0)
    }

    /// Makes the database read-only and closes all its sessions.
    async fn refuse_writes(&self) {
        let name = &self.0;
        execute(format!(
            "ALTER DATABASE {name} SET default_transaction_read_only = on;
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        ))
        .await;
    }

    /// Makes the database writable for new sessions.
    async fn accept_writes(&self) {
        let name = &self.0;
        execute(format!(
            "ALTER DATABASE {name} RESET default_transaction_read_only"
        ))
        .await;
    }

    async fn remove(self) {
        execute(format!("DROP DATABASE {} WITH (FORCE)", self.0)).await;
    }
}

#[tokio::test]
async fn a_store_on_a_database_that_becomes_read_only_recovers_when_it_is_writable_again() {
    let own = Own::new().await;
    let store = PostgresStore::builder(own.url()).connections(4);
    let store = store.connect().await.unwrap();
    let worker = runtime(store.events(), &store).build().unwrap();
    let scenario = async {
        ask(&store, 0).await;
        answered(&store, 1).await;
        assert!(worker.health().ready, "{:?}", worker.health());

        own.refuse_writes().await;

        assert_read_only(&store.create(note()).await.unwrap_err());
        assert_eq!(store.recent("answer.v1", 9).await.unwrap().len(), 1);
        eventually(async || !worker.health().ready).await;
        own.accept_writes().await;

        eventually(async || store.create(note()).await.is_ok()).await;
        eventually(async || worker.health().ready).await;
        ask(&store, 1).await;
        answered(&store, 2).await;
    };
    worker.run_until(scenario).await.unwrap();
    drop((worker, store));
    own.remove().await;
}

#[tokio::test]
async fn a_commit_after_the_server_is_writable_again_uses_no_read_only_session() {
    let own = Own::new().await;
    let store = PostgresStore::builder(own.url()).connect().await.unwrap();
    own.refuse_writes().await;
    // After this, several sessions are read-only.
    let reads = [(); 4].map(|()| store.recent("note.v1", 9));
    futures::future::try_join_all(reads).await.unwrap();
    assert_read_only(&store.create(note()).await.unwrap_err());

    own.accept_writes().await;

    store.create(note()).await.unwrap();
    drop(store);
    own.remove().await;
}

#[tokio::test]
async fn a_read_only_server_without_tables_is_refused_at_start_for_now() {
    let namespaces = Namespaces::default();
    let builder = PostgresStore::builder(read_only_url()).schema(namespaces.one());

    let error = builder.connect().await.unwrap_err();

    assert!(matches!(error, PostgresError::ReadOnly { .. }), "{error:?}");
    assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
}

#[tokio::test]
async fn a_store_on_a_read_only_server_with_tables_reads_and_refuses_commits() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let writable = store_in(&namespace).connect().await.unwrap();
    writable.create(note()).await.unwrap();

    let store = PostgresStore::builder(read_only_url()).schema(&namespace);
    let store = store.connect().await.unwrap();

    assert_eq!(store.recent("note.v1", 9).await.unwrap().len(), 1);
    assert_read_only(&store.create(note()).await.unwrap_err());
}

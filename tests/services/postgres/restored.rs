//! A database that is restored from an older backup while the store is open.

use crate::nats::harness::{answered, answers, ask, ask_all, eventually, runtime};
use crate::postgres::execute;
use crate::postgres::server::{Namespaces, store_in};
use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;
use universal_executor::error::Retry;
use universal_executor::source::{SourceError, StartAt};
use universal_executor::store::{ClaimId, PostgresError, StoreError};
use universal_executor::{
    BreadcrumbStoreExt, EventSource as _, NewBreadcrumb, PostgresStore, RunLedger as _,
};

/// The tables in a backup.
const TABLES: [&str; 7] = [
    "ux_tenants",
    "ux_breadcrumbs",
    "ux_runs",
    "ux_events",
    "ux_consumers",
    "ux_positions",
    "ux_workers",
];

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

async fn back_up(namespace: &str) {
    let copy =
        |table| format!("CREATE TABLE {namespace}.backup_{table} AS TABLE {namespace}.{table};");
    execute(TABLES.map(copy).concat()).await;
}

/// Restores the rows and the counter of tenants, like `pg_restore`.
async fn restore(namespace: &str) {
    let put_back = |table| {
        format!(
            "TRUNCATE {namespace}.{table} CASCADE; INSERT INTO {namespace}.{table} OVERRIDING SYSTEM VALUE
                 SELECT * FROM {namespace}.backup_{table};"
        )
    };
    let counter =
        format!("ALTER TABLE {namespace}.ux_tenants ALTER COLUMN id RESTART WITH 1000000");
    execute(format!(
        "BEGIN; {} {counter}; END",
        TABLES.map(put_back).concat()
    ))
    .await;
}

fn is_lost(error: &StoreError) -> bool {
    let StoreError::Refused { source, .. } = error else {
        return false;
    };
    let cause = source.downcast_ref::<Arc<PostgresError>>();
    cause.is_some_and(|cause| matches!(**cause, PostgresError::LostCommits { .. }))
}

/// Writes a note. Returns the reason of the refusal.
async fn refusal(store: &PostgresStore) -> String {
    let error = store.create(note()).await.unwrap_err();
    assert!(is_lost(&error), "{error:?}");
    assert_eq!(error.retry(), Retry::Never);
    error.source().unwrap().to_string()
}

#[tokio::test]
async fn a_store_whose_commits_a_restore_removed_refuses_writes_until_it_is_opened_again() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();
    store.create(note()).await.unwrap();
    back_up(&namespace).await;
    store.create(note()).await.unwrap();

    restore(&namespace).await;

    for _ in 0..2 {
        let reason = refusal(&store).await;
        assert!(reason.contains("restored from an older backup"), "{reason}");
        assert!(reason.contains("restart each process"), "{reason}");
        assert!(reason.contains(&namespace), "{reason}");
    }
    let claim = store
        .claim_next(1, &[], ClaimId::unique())
        .await
        .unwrap_err();
    assert!(is_lost(&claim), "{claim:?}");
    assert_eq!(store.recent("note.v1", 9).await.unwrap().len(), 1);
    let opened_again = store_in(&namespace).connect().await.unwrap();
    opened_again.create(note()).await.unwrap();
}

#[tokio::test]
async fn events_at_positions_that_a_subscriber_has_passed_are_refused_and_not_skipped() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    // With this polling interval, only notifications make the store read events.
    let builder = store_in(&namespace).poll_every(Duration::from_secs(3_600));
    let store = builder.connect().await.unwrap();
    ask_all(&store, 0..1).await;
    back_up(&namespace).await;
    ask_all(&store, 1..3).await;
    let mut events = store.events().subscribe(StartAt::Beginning).await.unwrap();
    for position in 1..=3 {
        let delivery = events.next().await.unwrap().unwrap();
        assert_eq!(delivery.position, Some(position));
    }

    restore(&namespace).await;
    let other = store_in(&namespace).connect().await.unwrap();
    ask_all(&other, 3..9).await;

    let error = events.next().await.unwrap().unwrap_err();
    assert!(matches!(error, SourceError::Refused(_)), "{error:?}");
    assert_eq!(error.retry(), Retry::Never);
    for from in [StartAt::After(3), StartAt::Now, StartAt::Beginning] {
        let error = store.events().subscribe(from).await.unwrap_err();
        assert!(matches!(error, SourceError::Refused(_)), "{error:?}");
    }
    refusal(&store).await;
}

#[tokio::test]
async fn a_restore_that_contains_all_seen_commits_goes_unnoticed() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();
    let mut events = store.events().subscribe(StartAt::Now).await.unwrap();
    ask_all(&store, 0..2).await;
    for _ in 0..2 {
        events.next().await.unwrap().unwrap();
    }
    back_up(&namespace).await;

    restore(&namespace).await;

    ask_all(&store, 2..3).await;
    let delivery = events.next().await.unwrap().unwrap();
    assert_eq!(delivery.position, Some(3));
}

#[tokio::test]
async fn a_runtime_is_not_ready_after_a_restore_and_a_new_one_answers_open_questions() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();
    ask(&store, 0).await;
    back_up(&namespace).await;
    let old = runtime(store.events_of("worker"), &store).build().unwrap();
    let restored = async {
        ask(&store, 1).await;
        answered(&store, 2).await;
        assert!(old.health().ready, "{:?}", old.health());
        restore(&namespace).await;
        let other = store_in(&namespace).connect().await.unwrap();
        ask(&other, 2).await;
        eventually(async || !old.health().ready).await;
    };

    old.run_until(restored).await.unwrap();

    let store = store_in(&namespace).connect().await.unwrap();
    let new = runtime(store.events_of("worker"), &store).build().unwrap();
    new.run_until(answered(&store, 2)).await.unwrap();
    assert_eq!(answers(&store).await, BTreeMap::from([(0, 1), (2, 1)]));
}

#[tokio::test]
async fn a_tenant_that_a_restore_removed_never_shows_the_data_of_another() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();
    store.create(note()).await.unwrap();
    back_up(&namespace).await;
    let removed = store.in_tenant("removed");
    removed.create(note()).await.unwrap();

    restore(&namespace).await;
    let reset = format!("ALTER TABLE {namespace}.ux_tenants ALTER COLUMN id RESTART WITH 2");
    execute(reset).await;
    let other = store_in(&namespace).connect().await.unwrap();
    other.in_tenant("other").create(note()).await.unwrap();

    assert_eq!(removed.recent("note.v1", 9).await.unwrap(), []);
    refusal(&removed).await;
}

//! A database that temporarily lacks a table, as during a restore.

use crate::nats::harness::{answered, ask, eventually, runtime};
use crate::postgres::execute;
use crate::postgres::server::{Namespaces, store_in};
use std::error::Error as _;
use universal_executor::error::Retry;
use universal_executor::store::{DeadLetter, PostgresError, StoreError};
use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb};

/// Fails unless an error names the missing table and allows a retry.
fn assert_incomplete(error: &StoreError) {
    assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
    let cause = error.source().unwrap();
    let cause = cause.downcast_ref::<PostgresError>().unwrap();
    assert!(matches!(cause, PostgresError::Incomplete(_)), "{cause:?}");
    let driver = cause.source().unwrap().to_string();
    assert!(driver.contains("42P01"), "{driver}");
}

#[tokio::test]
async fn a_store_whose_tables_are_missing_for_a_while_continues_and_no_run_fails() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();
    let worker = runtime(store.events(), &store).build().unwrap();
    let scenario = async {
        ask(&store, 0).await;
        answered(&store, 1).await;

        execute(format!(
            "ALTER TABLE {namespace}.ux_breadcrumbs RENAME TO away"
        ))
        .await;
        let refused = store.create(NewBreadcrumb::new("note.v1")).await;
        assert_incomplete(&refused.unwrap_err());
        assert_incomplete(&store.recent("answer.v1", 9).await.unwrap_err());
        execute(format!(
            "ALTER TABLE {namespace}.away RENAME TO ux_breadcrumbs"
        ))
        .await;

        eventually(async || store.recent("answer.v1", 9).await.is_ok()).await;
        ask(&store, 1).await;
        answered(&store, 2).await;
    };
    worker.run_until(scenario).await.unwrap();

    let letters = store.recent(DeadLetter::SCHEMA, 9).await.unwrap();
    assert!(letters.is_empty(), "{letters:?}");
}

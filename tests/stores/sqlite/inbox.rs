//! Triggers that another program inserts with SQL into the file of a store.

use crate::inbox::{self, Program};
use crate::sqlite::{Folder, quick};
use rusqlite::{Connection, TransactionBehavior};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use universal_executor::store::SqliteLimits;
use universal_executor::{BreadcrumbId, BreadcrumbStore};

/// A program with a separate connection to the file.
struct Shop(Connection);

impl Shop {
    fn open(folder: &Folder) -> Self {
        let connection = Connection::open(folder.file()).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        let orders = "CREATE TABLE orders (number INTEGER PRIMARY KEY)";
        connection.execute_batch(orders).unwrap();
        Self(connection)
    }
}

impl Program for Shop {
    async fn order(&mut self, number: usize, trigger: &Value, commits: bool) {
        let begin = TransactionBehavior::Immediate;
        let transaction = self.0.transaction_with_behavior(begin).unwrap();
        let number = i64::try_from(number).unwrap();
        let order = "INSERT INTO orders VALUES (?1)";
        transaction.execute(order, [number]).unwrap();
        let insert = "INSERT INTO ux_inbox (tenant, breadcrumb) VALUES ('default', ?1)";
        transaction.execute(insert, [trigger.to_string()]).unwrap();
        match commits {
            true => transaction.commit().unwrap(),
            false => transaction.rollback().unwrap(),
        }
        tokio::task::yield_now().await;
    }

    async fn insert(&mut self, id: Option<BreadcrumbId>, breadcrumb: &str) {
        let insert = "INSERT INTO ux_inbox (id, breadcrumb) VALUES (?1, ?2)";
        let id = id.map(|id| *id.as_bytes());
        self.0.execute(insert, (id, breadcrumb)).unwrap();
    }

    async fn orders(&mut self) -> BTreeSet<usize> {
        let mut orders = self.0.prepare("SELECT number FROM orders").unwrap();
        let orders = orders.query_map((), |row| row.get::<_, i64>(0)).unwrap();
        orders
            .map(|order| usize::try_from(order.unwrap()).unwrap())
            .collect()
    }

    async fn refused(&mut self) -> Vec<(String, String)> {
        let refused =
            "SELECT breadcrumb, refused FROM ux_inbox WHERE refused IS NOT NULL ORDER BY serial";
        let mut refused = self.0.prepare(refused).unwrap();
        let refused = refused
            .query_map((), |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        refused.map(Result::unwrap).collect()
    }

    async fn rows(&mut self) -> usize {
        let rows = "SELECT count(*) FROM ux_inbox";
        let rows: i64 = self.0.query_row(rows, (), |row| row.get(0)).unwrap();
        usize::try_from(rows).unwrap()
    }
}

#[tokio::test]
async fn an_order_and_its_trigger_are_committed_or_rolled_back_together() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let mut shop = Shop::open(&folder);
    let handle: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    let events = || store.events();
    inbox::an_order_and_its_trigger_are_committed_or_rolled_back_together(
        handle, events, &mut shop,
    )
    .await;
}

#[tokio::test]
async fn rows_that_cannot_be_taken_in_are_refused() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let mut shop = Shop::open(&folder);
    let handle: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    inbox::rows_that_cannot_be_taken_in_are_refused(handle, store.events(), &mut shop).await;
}

#[tokio::test]
async fn rows_wait_in_a_full_store() {
    let folder = Folder::new();
    let mut limits = SqliteLimits::default();
    limits.breadcrumbs = 5;
    let store = quick(&folder.file()).limits(limits).open().await.unwrap();
    let mut shop = Shop::open(&folder);
    let handle: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    inbox::rows_wait_for_room(handle, store.events(), &mut shop).await;
}

#[tokio::test]
async fn the_file_refuses_a_row_without_a_json_object() {
    let folder = Folder::new();
    let _store = quick(&folder.file()).open().await.unwrap();
    let shop = Shop::open(&folder);
    for breadcrumb in ["", "{", "[]", "1"] {
        let insert = "INSERT INTO ux_inbox (breadcrumb) VALUES (?1)";
        let refused = shop.0.execute(insert, [breadcrumb]).unwrap_err();
        assert!(
            refused.to_string().contains("CHECK constraint failed"),
            "{refused}"
        );
    }
}

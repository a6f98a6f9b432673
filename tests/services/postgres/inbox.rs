//! Triggers that another program inserts with SQL into the database of a store.

use super::server::{Namespaces, store_in, url};
use crate::inbox::{self, Program};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use std::collections::BTreeSet;
use std::sync::Arc;
use universal_executor::store::PostgresLimits;
use universal_executor::{BreadcrumbId, BreadcrumbStore, PostgresStore};

/// A program with a separate connection to the database. Its transactions are serializable.
struct Shop {
    connection: PgConnection,
    schema: String,
}

impl Shop {
    async fn open(schema: &str) -> Self {
        let mut shop = Self {
            connection: PgConnection::connect(&url()).await.unwrap(),
            schema: schema.to_owned(),
        };
        let isolation = "SET default_transaction_isolation = 'serializable'".to_owned();
        shop.run(isolation).await;
        let orders = format!("CREATE TABLE {schema}.orders (number BIGINT PRIMARY KEY)");
        shop.run(orders).await;
        shop
    }

    async fn run(&mut self, sql: String) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        sql.execute(&mut self.connection).await.unwrap();
    }
}

impl Program for Shop {
    async fn order(&mut self, number: usize, trigger: &Value, commits: bool) {
        let schema = &self.schema;
        let end = if commits { "COMMIT" } else { "ROLLBACK" };
        let order = format!(
            "BEGIN; INSERT INTO {schema}.orders VALUES ({number});
             INSERT INTO {schema}.ux_inbox (tenant, breadcrumb) VALUES ('default', '{trigger}'); {end}"
        );
        self.run(order).await;
    }

    async fn insert(&mut self, id: Option<BreadcrumbId>, breadcrumb: &str) {
        let schema = &self.schema;
        let id = id.map_or("NULL".to_owned(), |id| format!("'{id}'"));
        let insert =
            format!("INSERT INTO {schema}.ux_inbox (id, breadcrumb) VALUES ({id}, '{breadcrumb}')");
        self.run(insert).await;
    }

    async fn orders(&mut self) -> BTreeSet<usize> {
        let orders = format!("SELECT number FROM {}.orders", self.schema);
        let orders = sqlx::query(AssertSqlSafe(orders));
        let orders = orders.fetch_all(&mut self.connection).await.unwrap();
        let number = |row: &sqlx::postgres::PgRow| usize::try_from(row.get::<i64, _>(0)).unwrap();
        orders.iter().map(number).collect()
    }

    async fn refused(&mut self) -> Vec<(String, String)> {
        let schema = &self.schema;
        let refused = format!(
            "SELECT breadcrumb::text, refused FROM {schema}.ux_inbox WHERE refused IS NOT NULL ORDER BY serial"
        );
        let refused = sqlx::query(AssertSqlSafe(refused));
        let refused = refused.fetch_all(&mut self.connection).await.unwrap();
        refused.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    async fn rows(&mut self) -> usize {
        let rows = format!("SELECT count(*) FROM {}.ux_inbox", self.schema);
        let rows = sqlx::query_scalar(AssertSqlSafe(rows));
        let rows: i64 = rows.fetch_one(&mut self.connection).await.unwrap();
        usize::try_from(rows).unwrap()
    }
}

async fn connect(namespaces: &Namespaces) -> (PostgresStore, Shop) {
    let schema = namespaces.one();
    let store = super::server::store_in(&schema).connect().await.unwrap();
    let shop = Shop::open(&schema).await;
    (store, shop)
}

#[tokio::test]
async fn an_order_and_its_trigger_are_committed_or_rolled_back_together() {
    let namespaces = Namespaces::default();
    let (store, mut shop) = connect(&namespaces).await;
    let handle: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    let events = || store.events();
    inbox::an_order_and_its_trigger_are_committed_or_rolled_back_together(
        handle, events, &mut shop,
    )
    .await;
}

#[tokio::test]
async fn rows_that_cannot_be_taken_in_are_refused() {
    let namespaces = Namespaces::default();
    let (store, mut shop) = connect(&namespaces).await;
    let handle: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    inbox::rows_that_cannot_be_taken_in_are_refused(handle, store.events(), &mut shop).await;
}

#[tokio::test]
async fn rows_wait_in_a_full_store() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let mut limits = PostgresLimits::default();
    limits.breadcrumbs = 5;
    let store = store_in(&namespace).limits(limits).connect().await.unwrap();
    let mut shop = Shop::open(&namespace).await;
    let handle: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    inbox::rows_wait_for_room(handle, store.events(), &mut shop).await;
}

#[tokio::test]
async fn the_server_refuses_a_row_without_a_json_object() {
    let namespaces = Namespaces::default();
    let (_store, mut shop) = connect(&namespaces).await;
    for breadcrumb in ["", "{", "[]", "1"] {
        let schema = &shop.schema;
        let insert = format!("INSERT INTO {schema}.ux_inbox (breadcrumb) VALUES ('{breadcrumb}')");
        let insert = sqlx::raw_sql(AssertSqlSafe(insert));
        insert.execute(&mut shop.connection).await.unwrap_err();
    }
    assert_eq!(shop.rows().await, 0);
}

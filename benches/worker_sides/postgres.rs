//! Workers on one PostgreSQL server, on loopback or behind a proxy with a delay.

use super::{SharedStore, block_on};
use crate::delay_proxy;
use crate::rounds::Spread;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use universal_executor::store::PostgresBuilder;
use universal_executor::{EventSource, PostgresStore};

/// A PostgreSQL schema with one tenant for each measurement.
pub(crate) struct Postgres {
    url: String,
    schema: String,
    tenants: AtomicUsize,
}

impl Postgres {
    pub(crate) fn new(url: &str, name: &str) -> Self {
        Self {
            url: url.to_owned(),
            schema: format!("ux_workers_{name}_{}", process::id()),
            tenants: AtomicUsize::new(0),
        }
    }

    /// Connects through a new proxy that delays all bytes by `delay` in each direction.
    pub(crate) fn behind_proxy(url: &str, name: &str, delay: Duration) -> Self {
        let options: PgConnectOptions = url.parse().unwrap();
        let server = (options.get_host().to_owned(), options.get_port());
        let port = delay_proxy::start(server, delay).unwrap();
        let options = options.host("127.0.0.1").port(port);
        Self::new(options.to_url_lossy().as_str(), name)
    }

    /// Returns a builder of stores in the schema.
    pub(crate) fn builder(&self) -> PostgresBuilder {
        PostgresStore::builder(&self.url).schema(&self.schema)
    }

    /// Returns the size of all tables in bytes, with their indexes.
    #[allow(dead_code, reason = "only some benches measure sizes")]
    pub(crate) async fn size(&self) -> u64 {
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        let size = sqlx::query_scalar::<_, i64>(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
             JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'",
        );
        let size = size.bind(&self.schema).fetch_one(&mut connection).await;
        connection.close().await.unwrap();
        size.unwrap().unsigned_abs()
    }

    /// Returns the median time of a query that does nothing, in milliseconds.
    pub(crate) fn round_trip(&self) -> f64 {
        const QUERIES: usize = 50;
        block_on(async {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            let mut times = Vec::with_capacity(QUERIES);
            for _ in 0..QUERIES {
                let start = Instant::now();
                sqlx::raw_sql("SELECT 1")
                    .execute(&mut connection)
                    .await
                    .unwrap();
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
            connection.close().await.unwrap();
            Spread::of(times).unwrap().median
        })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let schema = &self.schema;
        let sql =
            format!("SET client_min_messages = 'warning'; DROP SCHEMA IF EXISTS {schema} CASCADE");
        block_on(async {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            let drop = sqlx::raw_sql(AssertSqlSafe(sql));
            drop.execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        });
    }
}

impl SharedStore for Postgres {
    type Handle = PostgresStore;
    type Location = String;

    fn create(&self) -> String {
        let number = self.tenants.fetch_add(1, Ordering::Relaxed);
        format!("tenant-{number}")
    }

    async fn open(&self, location: &String) -> PostgresStore {
        let store = self.builder().connect().await.unwrap();
        store.in_tenant(location)
    }

    fn events(handle: &PostgresStore) -> impl EventSource + use<> {
        handle.events()
    }

    async fn close(handle: PostgresStore) {
        handle.close().await;
    }

    fn remove(&self, _: String) {
        // `drop` removes the schema with all tenants.
    }
}

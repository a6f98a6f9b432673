//! The shared server of the tests, and namespaces on it.

use sqlx::Connection as _;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use universal_executor::PostgresStore;
use universal_executor::store::PostgresBuilder;

/// Returns the server's URL. Without a server, ends the process with all tests skipped, or fails if tests must not be skipped.
pub(crate) fn url() -> String {
    if let Ok(url) = std::env::var("POSTGRES_URL") {
        return url;
    }
    let is_set = |name| std::env::var_os(name).is_some();
    assert!(
        !is_set("CI") && !is_set("UX_REQUIRE_SERVICES"),
        "POSTGRES_URL is not set: see scripts/services"
    );
    // A print macro would be captured by the test harness.
    let skipped =
        "SKIPPED: the tests of PostgresStore, as POSTGRES_URL is not set; see scripts/services\n";
    std::io::stderr().write_all(skipped.as_bytes()).unwrap();
    std::process::exit(0);
}

/// Namespaces on the server, each for one store. They are deleted on drop.
#[derive(Default)]
pub(crate) struct Namespaces(Mutex<Vec<String>>);

impl Namespaces {
    /// Returns the name of a new namespace.
    pub(crate) fn one(&self) -> String {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("ux_test_{}_{number}", std::process::id());
        self.0.lock().unwrap().push(name.clone());
        name
    }

    /// Returns the builder of a store in a new namespace.
    pub(crate) fn builder(&self) -> PostgresBuilder {
        store_in(&self.one())
    }
}

/// Returns the builder of a store in a namespace.
pub(crate) fn store_in(namespace: &str) -> PostgresBuilder {
    PostgresStore::builder(url())
        .schema(namespace)
        .connections(4)
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let names = std::mem::take(&mut *self.0.lock().unwrap());
        if names.is_empty() {
            return;
        }
        // A test may drop this value in its tokio runtime, where blocking is not allowed.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(sql(&names))
        });
        // Leftovers of a failed test do not affect other tests.
        drop(dropped.join());
    }
}

async fn sql(namespaces: &[String]) -> sqlx::Result<()> {
    let mut connection = sqlx::PgConnection::connect(&url()).await?;
    let set = "SET lock_timeout = '5s'; SET client_min_messages = 'warning'";
    sqlx::raw_sql(set).execute(&mut connection).await?;
    for name in namespaces {
        let drop = sqlx::AssertSqlSafe(format!("DROP SCHEMA IF EXISTS {name} CASCADE"));
        sqlx::raw_sql(drop).execute(&mut connection).await?;
    }
    connection.close().await
}

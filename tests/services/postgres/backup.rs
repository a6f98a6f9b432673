//! Dumps of a store's database, restored into another database.

use super::execute;
use super::server::{Namespaces, store_in, url};
use crate::backup::{self, Copied};
use sqlx::{Connection as _, PgConnection};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use universal_executor::{EventSource, PostgresStore};

impl Copied for PostgresStore {
    fn consumer(&self) -> Box<dyn EventSource> {
        Box::new(self.events_of("shop"))
    }

    fn advance_clock(&self, time: Duration) {
        Self::advance_clock(self, time);
    }
}

/// A database with a copy. It is deleted on drop, together with the store.
struct Copy {
    database: String,
}

impl Copy {
    /// Dumps a schema and restores it into a new database, as the documents describe.
    async fn of(namespace: &str) -> Self {
        let database = format!("{namespace}_copy");
        execute(format!("CREATE DATABASE {database}")).await;
        let copy = Self { database };
        let mut connection = PgConnection::connect(&copy.url()).await.unwrap();
        let extension = sqlx::raw_sql("CREATE EXTENSION IF NOT EXISTS vector");
        extension.execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let dump = program("pg_dump")
            .args(["--format=custom", "--schema", namespace, "--dbname", &url()])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&dump.stderr);
        assert!(dump.status.success(), "{errors}");
        let mut restore = program("pg_restore")
            .args(["--exit-on-error", "--dbname", &copy.url()])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut restore.stdin.take().unwrap(), &dump.stdout).unwrap();
        assert!(restore.wait().unwrap().success());
        copy
    }

    fn url(&self) -> String {
        let url = url();
        let (server, _) = url.rsplit_once('/').unwrap();
        format!("{server}/{}", self.database)
    }

    async fn store(&self, namespace: &str) -> PostgresStore {
        let store = PostgresStore::builder(self.url()).schema(namespace);
        store.connections(4).connect().await.unwrap()
    }

    async fn drop(self) {
        execute(format!("DROP DATABASE {} WITH (FORCE)", self.database)).await;
    }
}

/// Returns the command of a PostgreSQL program with the server's version.
fn program(name: &str) -> Command {
    let folder = std::env::var_os("UX_POSTGRES_PROGRAMS").map(PathBuf::from);
    Command::new(folder.map_or_else(|| name.into(), |folder| folder.join(name)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dump_of_a_database_that_is_written_is_continued() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();

    let mut dump = None;
    let copy = async || {
        let copied = dump.insert(Copy::of(&namespace).await);
        copied.store(&namespace).await
    };
    backup::a_copy_of_a_store_that_works_is_continued(&store, copy).await;

    dump.unwrap().drop().await;
}

#[tokio::test]
async fn a_dump_of_a_database_at_rest_is_continued() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();

    let mut dump = None;
    let copy = async |store: PostgresStore| {
        store.close().await;
        let copied = dump.insert(Copy::of(&namespace).await);
        copied.store(&namespace).await
    };
    backup::a_copy_of_a_store_at_rest_is_continued(store, copy).await;

    dump.unwrap().drop().await;
}

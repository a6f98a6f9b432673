//! Dumps of databases that earlier schema versions wrote.

use crate::postgres::execute;
use crate::postgres::server::{Namespaces, store_in, url};
use crate::saved_states::{Saved, continue_all, files, missing_file, write};
use sqlx::Connection as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use universal_executor::{EventSource, PostgresStore};

/// Schema name in a dump. The tests load a dump under another name.
const NAME: &str = "ux_saved_states";

impl Saved for PostgresStore {
    fn events(&self, consumer: Option<&str>) -> Box<dyn EventSource> {
        match consumer {
            Some(name) => Box::new(self.events_of(name)),
            None => Box::new(Self::events(self)),
        }
    }

    fn advance_clock(&self, time: Duration) {
        Self::advance_clock(self, time);
    }
}

async fn version(namespace: &str) -> i64 {
    let mut connection = sqlx::PgConnection::connect(&url()).await.unwrap();
    let version = format!("SELECT version FROM {namespace}.ux_schema_version");
    let version = sqlx::query_scalar(sqlx::AssertSqlSafe(version));
    version.fetch_one(&mut connection).await.unwrap()
}

/// Writes a dump of a schema. It omits the tables for vectors, because a server without the extension `vector` cannot load them.
/// `UX_PG_DUMP` is the path of `pg_dump`.
fn dump(namespace: &str, file: &Path) {
    let program = std::env::var("UX_PG_DUMP").unwrap_or_else(|_| "pg_dump".into());
    let dump = Command::new(program)
        .args(["--inserts", "--no-owner", "--no-privileges", "--schema"])
        .args([
            namespace,
            "--exclude-table",
            &format!("{namespace}.ux_embed*"),
        ])
        .arg(url())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&dump.stderr);
    assert!(dump.status.success(), "{errors}");
    let text = String::from_utf8(dump.stdout).unwrap();
    // Lines that start with a backslash are commands of psql.
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(['\\', '-']));
    let lines: Vec<_> = lines.map(|line| line.replace(namespace, NAME)).collect();
    std::fs::write(file, lines.join("\n") + "\n").unwrap();
}

async fn load(file: &Path, namespace: &str) {
    let dump = std::fs::read_to_string(file).unwrap();
    execute(dump.replace(NAME, namespace)).await;
}

#[tokio::test]
async fn every_run_that_this_version_saves_is_continued() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();
    write(&store).await;
    store.close().await;
    let name = format!("postgres-{}.sql", version(&namespace).await);
    if let Some(missing) = missing_file(&name) {
        dump(&namespace, &missing);
    }

    let store = store_in(&namespace).connect().await.unwrap();

    continue_all(&store).await;
}

#[tokio::test]
async fn every_run_that_an_earlier_version_saved_is_continued() {
    for (expected, file) in files("postgres-", ".sql") {
        let namespaces = Namespaces::default();
        let namespace = namespaces.one();
        load(&file, &namespace).await;
        assert_eq!(version(&namespace).await, expected, "{}", file.display());

        let store = store_in(&namespace).connect().await.unwrap();

        continue_all(&store).await;
    }
}

#[tokio::test]
async fn the_current_schema_version_has_a_fixture() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    drop(store_in(&namespace).connect().await.unwrap());
    let current = version(&namespace).await;

    let versions = files("postgres-", ".sql");
    let versions: Vec<_> = versions.iter().map(|file| file.0).collect();

    assert_eq!(
        versions.last(),
        Some(&current),
        "schema version {current} has no fixture; see tests/fixtures/README.md"
    );
}

#[tokio::test]
async fn an_open_store_continues_after_a_newer_version_migrated_its_tables() {
    let namespaces = Namespaces::default();
    let namespace = namespaces.one();
    let store = store_in(&namespace).connect().await.unwrap();
    execute(format!(
        "UPDATE {namespace}.ux_schema_version SET version = 99;
         ALTER TABLE {namespace}.ux_runs ADD COLUMN newer BIGINT NOT NULL DEFAULT 0"
    ))
    .await;

    write(&store).await;

    let refused = store_in(&namespace).connect().await.unwrap_err();
    assert!(refused.to_string().contains("99"), "{refused}");
}

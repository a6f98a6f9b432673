//! Files that earlier schema versions wrote.

use crate::saved_states::{Saved, continue_all, files, missing_file, write};
use crate::sqlite::{Folder, quick};
use rusqlite::Connection;
use std::path::Path;
use std::time::Duration;
use universal_executor::{EventSource, SqliteStore};

impl Saved for SqliteStore {
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

fn version(file: &Path) -> i64 {
    let file = Connection::open(file).unwrap();
    let version = "SELECT version FROM ux_schema_version";
    file.query_row(version, (), |row| row.get(0)).unwrap()
}

/// Writes a file of the current schema version, without a write-ahead log.
async fn written(folder: &Folder) {
    let store = quick(&folder.file()).open().await.unwrap();
    write(&store).await;
    store.close().await;
    let file = Connection::open(folder.file()).unwrap();
    file.execute_batch("PRAGMA journal_mode = DELETE; VACUUM")
        .unwrap();
}

#[tokio::test]
async fn every_run_that_this_version_saves_is_continued() {
    let folder = Folder::new();
    written(&folder).await;
    let name = format!("sqlite-{}.db", version(&folder.file()));
    if let Some(missing) = missing_file(&name) {
        std::fs::copy(folder.file(), missing).unwrap();
    }

    let store = quick(&folder.file()).open().await.unwrap();

    continue_all(&store).await;
}

#[tokio::test]
async fn every_run_that_an_earlier_version_saved_is_continued() {
    for (expected, file) in files("sqlite-", ".db") {
        let folder = Folder::new();
        std::fs::copy(&file, folder.file()).unwrap();
        assert_eq!(version(&folder.file()), expected, "{}", file.display());

        let store = quick(&folder.file()).open().await.unwrap();

        continue_all(&store).await;
    }
}

#[tokio::test]
async fn the_current_schema_version_has_a_fixture() {
    let folder = Folder::new();
    drop(quick(&folder.file()).open().await.unwrap());
    let current = version(&folder.file());

    let versions: Vec<_> = files("sqlite-", ".db").iter().map(|file| file.0).collect();

    assert_eq!(
        versions.last(),
        Some(&current),
        "schema version {current} has no fixture; see tests/fixtures/README.md"
    );
}

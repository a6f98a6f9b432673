//! A file that is deleted, replaced, truncated, damaged or migrated while the store is open.

use crate::sqlite::{Folder, quick};
use rusqlite::Connection;
use serde_json::json;
use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use universal_executor::error::Retry;
use universal_executor::store::{SqliteError, StoreError};
use universal_executor::tool::{ToolExecutor, json_tool};
use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb, Runtime, SqliteStore};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1").title("x".repeat(200))
}

/// Creates a store with notes, a complete database file and an empty write-ahead log.
async fn store_with_notes(folder: &Folder) -> SqliteStore {
    let store = quick(&folder.file()).open().await.unwrap();
    for _ in 0..200 {
        store.create(note()).await.unwrap();
    }
    let other = Connection::open(folder.file()).unwrap();
    other
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))
        .unwrap();
    store
}

/// Writes two notes. Returns the reason of the refusal, which must be the same for both.
async fn refusal(store: &SqliteStore) -> String {
    let first = store.create(note()).await.unwrap_err();
    let second = store.create(note()).await.unwrap_err();
    for error in [&first, &second] {
        assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
        assert_eq!(error.retry(), Retry::Never);
    }
    let cause = second.source().unwrap();
    assert!(cause.is::<Arc<SqliteError>>(), "{cause:?}");
    cause.to_string()
}

fn write_at(path: &Path, from: usize, byte: u8) {
    use std::os::unix::fs::FileExt as _;
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
    file.write_all_at(&vec![byte; length - from], from as u64)
        .unwrap();
}

#[tokio::test]
async fn a_commit_into_a_deleted_file_is_not_acknowledged() {
    let folder = Folder::new();
    let store = store_with_notes(&folder).await;

    fs::remove_file(folder.file()).unwrap();

    let reason = refusal(&store).await;
    assert!(
        reason.contains("store.db") && reason.contains("was deleted"),
        "{reason}"
    );
    assert!(reason.contains("restore the file"), "{reason}");
}

#[tokio::test]
async fn a_commit_into_a_deleted_write_ahead_log_is_not_acknowledged() {
    let folder = Folder::new();
    let store = store_with_notes(&folder).await;

    fs::remove_file(folder.0.join("store.db-wal")).unwrap();

    let reason = refusal(&store).await;
    assert!(reason.contains("store.db-wal"), "{reason}");
}

#[tokio::test]
async fn a_commit_into_a_replaced_file_is_not_acknowledged() {
    let folder = Folder::new();
    let store = store_with_notes(&folder).await;
    let copy = folder.0.join("copy.db");
    fs::copy(folder.file(), &copy).unwrap();

    fs::rename(&copy, folder.file()).unwrap();

    let reason = refusal(&store).await;
    assert!(reason.contains("replaced"), "{reason}");
}

#[tokio::test]
async fn a_commit_into_a_truncated_file_is_not_acknowledged() {
    let folder = Folder::new();
    let store = store_with_notes(&folder).await;

    let file = fs::OpenOptions::new()
        .write(true)
        .open(folder.file())
        .unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - 4_096).unwrap();

    let reason = refusal(&store).await;
    assert!(
        reason.contains("truncated") || reason.contains("damaged"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_commit_whose_pages_are_cached_is_not_acknowledged_into_a_truncated_file() {
    let folder = Folder::new();
    let store = store_with_notes(&folder).await;
    // SQLite compares the file's length with its header only while the write-ahead log is empty.
    store.create(note()).await.unwrap();

    let file = fs::OpenOptions::new()
        .write(true)
        .open(folder.file())
        .unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();

    let reason = refusal(&store).await;
    assert!(reason.contains("truncated"), "{reason}");
}

#[tokio::test]
async fn writes_are_refused_once_damage_was_read() {
    let folder = Folder::new();
    let store = store_with_notes(&folder).await;

    write_at(&folder.file(), 4_096, 0xA5);

    let read = store.recent("note.v1", 200).await.unwrap_err();
    assert_eq!(read.retry(), Retry::Never, "{read:?}");
    let reason = refusal(&store).await;
    assert!(reason.contains("is damaged; restore a backup"), "{reason}");
}

#[tokio::test]
async fn a_store_refuses_writes_after_a_newer_version_migrated_its_file() {
    let folder = Folder::new();
    let store = store_with_notes(&folder).await;
    let newer = Connection::open(folder.file()).unwrap();

    newer
        .execute("UPDATE ux_schema_version SET version = 99", ())
        .unwrap();

    let reason = refusal(&store).await;
    assert!(reason.contains("schema version 99"), "{reason}");
}

#[tokio::test]
async fn a_file_that_another_process_vacuums_stays_writable() {
    let folder = Folder::new();
    let store = store_with_notes(&folder).await;
    let other = Connection::open(folder.file()).unwrap();
    other
        .execute_batch(
            "CREATE TABLE theirs (b BLOB); INSERT INTO theirs VALUES (zeroblob(1000000));",
        )
        .unwrap();
    store.create(note()).await.unwrap();
    let shrink = "DROP TABLE theirs; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)";
    other.execute_batch(shrink).unwrap();

    store.create(note()).await.unwrap();

    assert_eq!(store.recent("note.v1", 300).await.unwrap().len(), 202);
}

#[tokio::test]
async fn a_read_only_file_is_refused_at_start_with_its_path() {
    let folder = Folder::new();
    quick(&folder.file()).open().await.unwrap().close().await;
    let mut permissions = fs::metadata(folder.file()).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(folder.file(), permissions).unwrap();

    let refused = SqliteStore::open(folder.file()).await.unwrap_err();

    assert!(
        matches!(refused, SqliteError::ReadOnly { .. }),
        "{refused:?}"
    );
    assert_eq!(refused.retry(), Retry::Never);
    assert!(refused.to_string().contains("store.db"), "{refused}");
}

#[tokio::test]
async fn a_file_without_its_version_table_is_refused_for_good() {
    let folder = Folder::new();
    quick(&folder.file()).open().await.unwrap().close().await;
    let other = Connection::open(folder.file()).unwrap();
    other.execute_batch("DROP TABLE ux_schema_version").unwrap();
    other.close().unwrap();

    let refused = SqliteStore::open(folder.file()).await.unwrap_err();

    assert_eq!(refused.retry(), Retry::Never, "{refused:?}");
}

#[tokio::test]
async fn a_truncated_file_is_refused_at_start() {
    let folder = Folder::new();
    store_with_notes(&folder).await.close().await;
    let file = fs::OpenOptions::new()
        .write(true)
        .open(folder.file())
        .unwrap();
    file.set_len(4_096).unwrap();

    let refused = SqliteStore::open(folder.file()).await.unwrap_err();

    assert_eq!(refused.retry(), Retry::Never, "{refused:?}");
}

/// Returns the number of notes.
async fn notes(store: &SqliteStore) -> usize {
    store.recent("note.v1", 10_000).await.unwrap().len()
}

#[tokio::test]
async fn commits_fail_while_the_disk_is_full_and_succeed_once_there_is_space() {
    let folder = Folder::new();
    let store = store_with_notes(&folder).await;
    store.limit_growth(2).await.unwrap();
    let mut acknowledged = 200;

    let full = loop {
        match store.create(note()).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };

    assert!(matches!(full.retry(), Retry::After(_)), "{full:?}");
    let cause = full.source().unwrap();
    let cause = cause.downcast_ref::<SqliteError>().unwrap();
    assert!(matches!(cause, SqliteError::DiskFull { .. }), "{cause:?}");
    assert!(cause.to_string().contains("free some space"), "{cause}");
    assert_eq!(notes(&store).await, acknowledged);

    store.limit_growth(10_000).await.unwrap();

    store.create(note()).await.unwrap();
    store.close().await;
    let store = quick(&folder.file()).open().await.unwrap();
    assert_eq!(notes(&store).await, acknowledged + 1);
}

#[tokio::test]
async fn commits_fail_once_the_file_has_its_maximum_size() {
    const MOST: u64 = 1 << 20;
    let folder = Folder::new();
    let limited = || quick(&folder.file()).max_file_bytes(MOST);
    let store = limited().open().await.unwrap();
    let large = || note().context(json!({"text": "x".repeat(10_000)}));

    let full = loop {
        if let Err(error) = store.create(large()).await {
            break error;
        }
    };

    let cause = full.source().unwrap();
    let cause = cause.downcast_ref::<SqliteError>().unwrap();
    assert!(matches!(cause, SqliteError::DiskFull { .. }), "{cause:?}");
    assert!(cause.to_string().contains("maximum size"), "{cause}");
    store.close().await;
    let size = fs::metadata(folder.file()).unwrap().len();
    assert!((MOST / 2..=MOST).contains(&size), "{size}");
    let store = limited().open().await.unwrap();
    assert!(
        store.create(large()).await.is_err(),
        "the limit must also apply to a new connection"
    );
    store.close().await;
    let store = quick(&folder.file()).open().await.unwrap();
    store.create(large()).await.unwrap();
}

#[tokio::test]
async fn commits_to_a_file_that_became_read_only_are_persisted_or_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    let store = store_with_notes(&folder).await;
    let read_only = fs::Permissions::from_mode(0o400);
    fs::set_permissions(folder.file(), read_only).unwrap();

    let mut acknowledged = 200;
    for _ in 0..20 {
        acknowledged += usize::from(store.create(note()).await.is_ok());
    }
    store.close().await;

    let refused = SqliteStore::open(folder.file()).await.unwrap_err();
    assert!(matches!(refused, SqliteError::ReadOnly { .. }), "{refused}");
    let writable = fs::Permissions::from_mode(0o600);
    fs::set_permissions(folder.file(), writable).unwrap();
    let store = quick(&folder.file()).open().await.unwrap();
    assert_eq!(notes(&store).await, acknowledged);
}

#[tokio::test]
async fn a_runtime_on_a_deleted_file_is_not_ready() {
    let folder = Folder::new();
    let store = store_with_notes(&folder).await;
    let echo = json_tool(
        "echo",
        "Returns its input.",
        json!({}),
        |input, _| async move { Ok(input) },
    );
    let echo = ToolExecutor::new(echo, Arc::new(store.clone())).unwrap();
    let runtime = Runtime::builder(store.events())
        .sweep_every(Duration::from_millis(20))
        .executor(echo)
        .build()
        .unwrap();
    let becomes = async |ready: bool| {
        while runtime.health().ready != ready {
            tokio::task::yield_now().await;
        }
    };
    let deleted = async {
        becomes(true).await;
        fs::remove_file(folder.file()).unwrap();
        becomes(false).await;
    };

    let in_time = async { timeout(Duration::from_secs(60), deleted).await.unwrap() };
    runtime.run_until(in_time).await.unwrap();

    let problems = runtime.health().problems.join("; ");
    assert!(problems.contains("fails to claim runs"), "{problems}");
}

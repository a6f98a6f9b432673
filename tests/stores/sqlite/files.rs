//! Files that cannot be opened, permanently or temporarily.

use crate::sqlite::{Folder, quick, soon};
use rusqlite::Connection;
use std::fs;
use std::path::Path;
use std::time::Duration;
use universal_executor::error::Retry;
use universal_executor::store::conformance::WordCounts;
use universal_executor::store::embedding::EmbeddingConfig;
use universal_executor::store::{
    NewRequest, Query, RunLedger as _, SqliteError, SqliteLimits, StoreError, VectorQuery,
};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Selector, SqliteStore,
};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

#[tokio::test]
async fn a_file_of_the_first_schema_version_is_migrated() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let note = store.create(note().title("apples")).await.unwrap();
    store.close().await;
    let older = Connection::open(folder.file()).unwrap();
    let undo = "DROP TRIGGER ux_vectors_of_changed; DROP TRIGGER ux_vectors_of_removed; DROP TABLE ux_vectors;
                DROP TABLE ux_embedder; DROP TABLE ux_workers; DROP INDEX ux_runs_transferred;
                ALTER TABLE ux_runs DROP COLUMN cause; ALTER TABLE ux_runs DROP COLUMN claim;
                ALTER TABLE ux_runs DROP COLUMN code; ALTER TABLE ux_runs DROP COLUMN added_at; DROP TABLE ux_positions;
                DROP INDEX ux_runs_suspended; DROP TABLE ux_inbox; DROP TABLE ux_listeners; DROP TABLE ux_paused; DROP TABLE ux_requests;
                ALTER TABLE ux_tenants DROP COLUMN requests; ALTER TABLE ux_runs DROP COLUMN has_expired;
                UPDATE ux_schema_version SET version = 1";
    older.execute_batch(undo).unwrap();
    older.close().unwrap();

    let config = EmbeddingConfig::new(WordCounts);
    let store = quick(&folder.file())
        .embeddings(config)
        .open()
        .await
        .unwrap();

    store.embedded().await.unwrap();
    let query = VectorQuery::new(Query::new(Selector::any()), "apples");
    let found = store.vector_search(&query).await.unwrap();
    assert_eq!(found[0].breadcrumb, note);
}

#[tokio::test]
async fn a_migrated_file_knows_how_many_keys_of_requests_it_has() {
    let folder = Folder::new();
    let request = |n: u32| NewRequest::new("agent", n.to_string(), note());
    let store = quick(&folder.file()).open().await.unwrap();
    let first = store.request(request(0)).await.unwrap();
    store.request(request(1)).await.unwrap();
    store.close().await;
    let older = Connection::open(folder.file()).unwrap();
    let undo =
        "DROP TABLE ux_inbox; DROP INDEX ux_runs_suspended; ALTER TABLE ux_runs DROP COLUMN has_expired; ALTER TABLE ux_tenants DROP COLUMN requests;
                DROP INDEX ux_requests_by_check;
                ALTER TABLE ux_requests ADD COLUMN number INTEGER NOT NULL DEFAULT 1;
                CREATE INDEX ux_requests_by_number ON ux_requests (tenant, number, checked_at);
                UPDATE ux_schema_version SET version = 10";
    older.execute_batch(undo).unwrap();
    older.close().unwrap();

    let mut limits = SqliteLimits::default();
    (limits.open_runs, limits.finished_runs) = (2, 1);
    let store = quick(&folder.file()).limits(limits).open().await.unwrap();

    let again = store.request(request(0)).await.unwrap();
    assert_eq!(again.trigger(), first.trigger());
    store.request(request(2)).await.unwrap();
    let full = store.request(request(3)).await.unwrap_err();
    assert_eq!(full.code(), "full");
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    store.create(note()).await.unwrap();
    store.close().await;
    let newer = Connection::open(folder.file()).unwrap();
    newer
        .execute("UPDATE ux_schema_version SET version = 99", ())
        .unwrap();
    newer.close().unwrap();
    let before = fs::read(folder.file()).unwrap();

    let refused = SqliteStore::open(folder.file()).await.unwrap_err();

    assert!(
        matches!(
            refused,
            SqliteError::NewerSchema {
                found: 99,
                known: 14,
                ..
            }
        ),
        "{refused:?}"
    );
    assert_eq!(refused.retry(), Retry::Never);
    assert!(
        fs::read(folder.file()).unwrap() == before,
        "the file must stay unchanged"
    );
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_refused_and_unchanged() {
    let folder = Folder::new();
    let text = "no database, but a diary ".repeat(100);
    fs::write(folder.file(), &text).unwrap();

    let refused = SqliteStore::open(folder.file()).await.unwrap_err();

    assert!(
        matches!(refused, SqliteError::NotADatabase { .. }),
        "{refused:?}"
    );
    assert_eq!(refused.retry(), Retry::Never);
    assert_eq!(fs::read_to_string(folder.file()).unwrap(), text);
}

#[tokio::test]
async fn a_damaged_file_is_refused() {
    let folder = Folder::new();
    quick(&folder.file()).open().await.unwrap().close().await;
    let mut bytes = fs::read(folder.file()).unwrap();
    bytes[100..4_096].fill(0xA5);
    fs::write(folder.file(), &bytes).unwrap();

    let refused = SqliteStore::open(folder.file()).await.unwrap_err();

    assert!(
        matches!(refused, SqliteError::NotADatabase { .. }),
        "{refused:?}"
    );
    assert!(fs::read(folder.file()).unwrap() == bytes);
}

#[tokio::test]
async fn a_folder_that_does_not_exist_is_refused() {
    let folder = Folder::new();

    let refused = SqliteStore::open(folder.0.join("nowhere/store.db"))
        .await
        .unwrap_err();

    assert!(
        matches!(refused, SqliteError::CannotOpen { .. }),
        "{refused:?}"
    );
    assert_eq!(refused.retry(), Retry::Never);
}

#[tokio::test]
async fn a_path_that_is_not_a_file_is_refused_and_creates_none() {
    let folder = Folder::new();

    for path in ["", ":memory:", "file:store.db", "/dev/null", "."] {
        let refused = SqliteStore::open(path).await.unwrap_err();

        assert!(
            matches!(refused, SqliteError::NotAFile { .. }),
            "{path:?}: {refused:?}"
        );
        assert_eq!(refused.retry(), Retry::Never);
    }

    assert!(!Path::new(":memory:").exists());
    assert!(SqliteStore::open(folder.file()).await.is_ok());
}

#[cfg(unix)]
#[tokio::test]
async fn new_files_are_readable_by_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();

    let store = quick(&folder.file()).open().await.unwrap();
    store.create(note()).await.unwrap();

    let files = fs::read_dir(&folder.0).unwrap().map(Result::unwrap);
    let modes: Vec<u32> = files
        .map(|file| file.metadata().unwrap().permissions().mode() & 0o777)
        .collect();
    assert!(modes.len() >= 2, "{modes:?}");
    assert!(modes.iter().all(|mode| *mode == 0o600), "{modes:?}");
}

#[tokio::test]
async fn a_file_can_be_shared_with_tables_of_the_service() {
    let folder = Folder::new();
    let theirs = Connection::open(folder.file()).unwrap();
    theirs
        .execute_batch(
            "CREATE TABLE events (x); INSERT INTO events VALUES (7); PRAGMA user_version = 5",
        )
        .unwrap();

    let store = quick(&folder.file()).open().await.unwrap();
    store.create(note()).await.unwrap();

    let read = |sql| {
        theirs
            .query_row(sql, (), |row| row.get::<_, i64>(0))
            .unwrap()
    };
    assert_eq!(
        (read("SELECT x FROM events"), read("PRAGMA user_version")),
        (7, 5)
    );
}

#[tokio::test]
async fn a_file_locked_for_too_long_is_unavailable_and_nothing_is_lost() {
    let folder = Folder::new();
    let impatient = || quick(&folder.file()).busy_timeout(Duration::from_millis(30));
    let store = impatient().open().await.unwrap();
    let kept = store.create(note()).await.unwrap();
    let other = Connection::open(folder.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();

    let refused = futures::future::join_all((0..10).map(|_| store.create(note()))).await;

    for refused in refused {
        let error = refused.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
        assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert!(
            cause.as_ref().is_some_and(|cause| cause.contains("locked")),
            "{cause:?}"
        );
    }
    assert_eq!(
        *store.recent("note.v1", 10).await.unwrap(),
        [kept],
        "reads must still succeed"
    );
    let refused = impatient().unshared().open().await.unwrap_err();
    assert!(matches!(refused.retry(), Retry::After(_)), "{refused:?}");
    other.execute_batch("COMMIT").unwrap();
    store.create(note()).await.unwrap();
    assert_eq!(store.recent("note.v1", 10).await.unwrap().len(), 2);
}

/// Opens one of the lock files with which writers of several processes queue.
fn lock_file(folder: &Folder, suffix: &str) -> fs::File {
    let mut name = folder.file().into_os_string();
    name.push(suffix);
    fs::File::open(name).unwrap()
}

#[tokio::test]
async fn a_writer_takes_the_next_turn_while_another_process_writes() {
    let folder = Folder::new();
    let patient = quick(&folder.file()).busy_timeout(Duration::from_secs(3_600));
    let store = patient.open().await.unwrap();
    let (turn, write) = (lock_file(&folder, "-turn"), lock_file(&folder, "-write"));
    write.lock().unwrap();

    let note = tokio::spawn(async move { store.create(note()).await });
    let taken = async {
        while turn.try_lock().is_ok() {
            turn.unlock().unwrap();
            tokio::task::yield_now().await;
        }
    };
    soon(taken).await;
    assert!(!note.is_finished());
    write.unlock().unwrap();

    soon(note).await.unwrap().unwrap();
    assert!(turn.try_lock().is_ok() && write.try_lock().is_ok());
}

#[tokio::test]
async fn a_process_that_is_stopped_with_the_turn_delays_commits_and_does_not_block_them() {
    let folder = Folder::new();
    let impatient = quick(&folder.file()).busy_timeout(Duration::from_millis(40));
    let store = impatient.open().await.unwrap();
    let write = lock_file(&folder, "-write");
    write.lock().unwrap();

    store.create(note()).await.unwrap();
    store.create(note()).await.unwrap();

    let other = Connection::open(folder.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.create(note()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_store_without_lock_files_relies_on_the_locks_of_sqlite() {
    let folder = Folder::new();
    for name in ["store.db-turn", "store.db-write"] {
        fs::create_dir(folder.0.join(name)).unwrap();
    }
    let store = quick(&folder.file()).open().await.unwrap();

    store.create(note()).await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_locked_for_a_while_is_waited_for() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let other = Connection::open(folder.file()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();

    let write = store.create(note());
    let unlock = async {
        tokio::task::yield_now().await;
        other.execute_batch("COMMIT").unwrap();
    };
    let (written, ()) = futures::future::join(write, unlock).await;

    written.unwrap();
}

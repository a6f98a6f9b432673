//! Files that are opened read-only.

use crate::sqlite::{Folder, quick};
use rusqlite::Connection;
use std::fs;
use universal_executor::error::Retry;
use universal_executor::store::{SqliteError, StoreError};
use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

#[tokio::test]
async fn a_read_only_store_reads_and_refuses_every_write() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let written = store.create(note()).await.unwrap();
    store.close().await;
    let before = fs::read(folder.file()).unwrap();

    let store = quick(&folder.file()).read_only().open().await.unwrap();
    let read = store.latest("note.v1").await.unwrap();
    let refused = store.create(note()).await.unwrap_err();
    store.close().await;

    assert_eq!(read, Some(written));
    assert_eq!(refused.retry(), Retry::Never);
    let StoreError::Refused { source, .. } = refused else {
        panic!("{refused:?}");
    };
    let cause = source.to_string();
    assert!(
        cause.ends_with("the store was opened for reading; open another store for writing"),
        "{cause}"
    );
    assert!(fs::read(folder.file()).unwrap() == before);
}

#[tokio::test]
async fn a_read_only_store_sees_the_commits_of_another_process_before_they_are_in_the_file() {
    let folder = Folder::new();
    let writer = quick(&folder.file()).open().await.unwrap();
    let store = quick(&folder.file()).read_only().open().await.unwrap();

    let written = writer.create(note()).await.unwrap();

    assert_eq!(store.latest("note.v1").await.unwrap(), Some(written));
}

#[tokio::test]
async fn a_read_only_store_neither_migrates_nor_creates_a_file() {
    let folder = Folder::new();
    let missing = quick(&folder.file()).read_only().open().await.unwrap_err();
    assert!(
        matches!(missing, SqliteError::CannotOpen { .. }),
        "{missing:?}"
    );
    assert!(!folder.file().exists());

    quick(&folder.file()).open().await.unwrap().close().await;
    let file = Connection::open(folder.file()).unwrap();
    let older = "UPDATE ux_schema_version SET version = 1";
    file.execute_batch(older).unwrap();
    drop(file);
    let before = fs::read(folder.file()).unwrap();

    let refused = quick(&folder.file()).read_only().open().await.unwrap_err();

    assert!(
        matches!(refused, SqliteError::OlderSchema { found: 1, .. }),
        "{refused:?}"
    );
    assert_eq!(refused.retry(), Retry::Never);
    assert!(refused.to_string().contains("store.db"), "{refused}");
    assert!(fs::read(folder.file()).unwrap() == before);
}

#[tokio::test]
async fn a_database_without_tables_of_the_crate_is_not_read() {
    let folder = Folder::new();
    let other = Connection::open(folder.file()).unwrap();
    other.execute_batch("CREATE TABLE other (a)").unwrap();
    drop(other);

    let refused = quick(&folder.file()).read_only().open().await.unwrap_err();

    assert!(
        matches!(refused, SqliteError::NotADatabase { .. }),
        "{refused:?}"
    );
}

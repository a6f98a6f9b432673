//! Copies of a store's file.

use crate::backup::{self, Copied};
use crate::sqlite::{Folder, quick};
use rusqlite::Connection;
use std::time::Duration;
use universal_executor::{EventSource, SqliteStore};

impl Copied for SqliteStore {
    fn consumer(&self) -> Box<dyn EventSource> {
        Box::new(self.events_of("shop"))
    }

    fn advance_clock(&self, time: Duration) {
        Self::advance_clock(self, time);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_file_that_is_written_is_continued() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();
    let path = folder.0.join("copy.db");

    let copy = async || {
        let backup = Connection::open(folder.file()).unwrap();
        let path = path.to_str().unwrap();
        backup.execute("VACUUM INTO ?1", [path]).unwrap();
        quick(path.as_ref()).open().await.unwrap()
    };
    backup::a_copy_of_a_store_that_works_is_continued(&store, copy).await;
}

#[tokio::test]
async fn a_copy_of_a_closed_file_is_continued() {
    let folder = Folder::new();
    let store = quick(&folder.file()).open().await.unwrap();

    let copy = async |store: SqliteStore| {
        store.close().await;
        let path = folder.0.join("copy.db");
        std::fs::copy(folder.file(), &path).unwrap();
        quick(&path).open().await.unwrap()
    };
    backup::a_copy_of_a_store_at_rest_is_continued(store, copy).await;
}

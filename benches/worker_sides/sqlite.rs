//! Workers that open the same SQLite file, with [`Durability::Full`].

use super::SharedStore;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use universal_executor::store::Durability;
use universal_executor::{EventSource, SqliteStore};

/// A temporary folder with one file for each measurement.
pub(crate) struct Sqlite {
    folder: PathBuf,
    files: AtomicUsize,
}

impl Sqlite {
    pub(crate) fn new() -> Self {
        let name = format!("universal-executor-workers-{}", process::id());
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self {
            folder,
            files: AtomicUsize::new(0),
        }
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).unwrap();
    }
}

impl SharedStore for Sqlite {
    type Handle = SqliteStore;
    type Location = PathBuf;

    fn create(&self) -> PathBuf {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        self.folder.join(format!("{number}.db"))
    }

    async fn open(&self, location: &PathBuf) -> SqliteStore {
        let builder = SqliteStore::builder(location).durability(Durability::Full);
        builder.open().await.unwrap()
    }

    fn events(handle: &SqliteStore) -> impl EventSource + use<> {
        handle.events()
    }

    async fn close(handle: SqliteStore) {
        handle.close().await;
    }

    fn remove(&self, location: PathBuf) {
        // SQLite removes the write-ahead log when the last handle is closed. Otherwise, `drop` removes that file.
        fs::remove_file(location).unwrap();
    }
}

//! Which store is tortured.

use crate::BoxError;
use std::path::{Path, PathBuf};
use std::time::Duration;
use universal_executor::SqliteStore;
use universal_executor::error::Retry;

/// Opens the SQLite store of a campaign, as every process does: again, as long as that may help.
pub async fn open(folder: &Path) -> Result<SqliteStore, BoxError> {
    let builder = SqliteStore::builder(file(folder))
        .busy_timeout(Duration::from_millis(1_000))
        .poll_every(Duration::from_millis(20));
    loop {
        match builder.clone().open().await {
            Ok(store) => return Ok(store),
            Err(error) => match error.retry() {
                Retry::After(delay) => tokio::time::sleep(delay).await,
                Retry::Never => return Err(error.into()),
            },
        }
    }
}

/// The file of the store.
pub fn file(folder: &Path) -> PathBuf {
    folder.join("store.db")
}

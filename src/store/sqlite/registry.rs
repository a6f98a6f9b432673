//! Registry of the SQLite databases that this process has open. All handles on a file with the same settings share one database.

use super::builder::DatabaseSettings;
use super::connection;
use super::database::{Database, spawn};
use super::error::SqliteError;
use super::guard;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::oneshot;

/// Identity of a SQLite file, and the settings of its connections. The device and the inode distinguish a file from another file that
/// replaced it at the same path.
#[derive(Clone, Debug, Eq, PartialEq)]
struct DatabaseKey {
    path: PathBuf,
    file: guard::Identity,
    settings: DatabaseSettings,
}

/// Entry for the open database of a SQLite file with certain settings. The entry is empty if the database is closed. A thread that opens
/// the database holds the lock of the entry, so other threads wait for that thread.
type RegistryEntry = Mutex<Weak<Database>>;

/// Registry of the open SQLite databases of this process, with an entry for each file and its settings.
struct Registry(Mutex<Vec<(DatabaseKey, Arc<RegistryEntry>)>>);

static OPEN: Registry = Registry(Mutex::new(Vec::new()));

impl Database {
    /// Returns this process's open database for the SQLite file and the settings, or opens one. All calls that can block run on a new
    /// thread, which becomes the writer of a new database.
    pub(super) async fn open(
        path: &Path,
        settings: DatabaseSettings,
    ) -> Result<Arc<Self>, SqliteError> {
        let path = connection::absolute(path)?;
        let (reply, database_receiver) = oneshot::channel();
        let start = move || {
            let mut started = None;
            let database = find_or_open(&path, &settings, |path| {
                let (database, writer_thread) = Self::start(path, &settings)?;
                started = Some(writer_thread);
                Ok(database)
            });
            // The caller may have stopped waiting. Then no handle exists, and the writer ends at once.
            drop(reply.send(database));
            if let Some(writer_thread) = started {
                writer_thread.run();
            }
        };
        drop(spawn("sqlite-writer", start)?);
        database_receiver
            .await
            .map_err(|error| SqliteError::Unavailable {
                retry_after: std::time::Duration::from_secs(1),
                source: error.into(),
            })?
    }
}

/// Returns the open database for the SQLite file and the settings, or opens one. Blocks.
fn find_or_open(
    path: &Path,
    settings: &DatabaseSettings,
    open: impl FnOnce(&Path) -> Result<Arc<Database>, SqliteError>,
) -> Result<Arc<Database>, SqliteError> {
    let path = connection::prepare(path, settings)?;
    if !settings.is_shared {
        return open(&path);
    }
    let metadata = path
        .metadata()
        .map_err(|error| SqliteError::cannot_open(&path, error))?;
    let entry = OPEN.entry(DatabaseKey {
        path: path.clone(),
        file: guard::identity(&metadata),
        settings: settings.clone(),
    });
    let mut entry = lock(&entry);
    // A database that rejects writes never accepts them again. The file may have been restored, so a new handle opens it again.
    if let Some(database) = entry.upgrade().filter(|database| database.is_usable()) {
        return Ok(database);
    }
    let database = open(&path)?;
    *entry = Arc::downgrade(&database);
    Ok(database)
}

impl Registry {
    /// Returns the registry's entry for a SQLite file and its settings. Removes the entries of closed databases, so there are never more
    /// entries than open or opening databases.
    fn entry(&self, key: DatabaseKey) -> Arc<RegistryEntry> {
        let mut entries = lock(&self.0);
        // A thread that opens a database holds a reference to its entry.
        entries.retain(|(_, entry)| Arc::strong_count(entry) > 1 || lock(entry).strong_count() > 0);
        if let Some((_, entry)) = entries.iter().find(|(known, _)| *known == key) {
            return Arc::clone(entry);
        }
        let entry = Arc::new(RegistryEntry::default());
        entries.push((key, Arc::clone(&entry)));
        entry
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::builder::Durability;
    use std::time::Duration;

    fn key(path: &str) -> DatabaseKey {
        DatabaseKey {
            path: path.into(),
            file: guard::Identity::default(),
            settings: DatabaseSettings {
                durability: Durability::Full,
                busy_timeout: Duration::ZERO,
                poll: Duration::ZERO,
                readers: 1,
                vector_cache: 0,
                file_bytes: None,
                is_read_only: false,
                uses_datagrams: true,
                is_shared: true,
            },
        }
    }

    #[test]
    fn entries_of_closed_databases_are_removed() {
        let registry = Registry(Mutex::default());
        let opening = registry.entry(key("opening"));

        for n in 0..1_000 {
            drop(registry.entry(key(&n.to_string())));
        }

        assert!(Arc::ptr_eq(&opening, &registry.entry(key("opening"))));
        assert_eq!(lock(&registry.0).len(), 1);
    }

    #[test]
    fn other_settings_or_a_replaced_file_at_the_path_get_separate_entries() {
        let registry = Registry(Mutex::default());
        let first = registry.entry(key("file"));
        let (mut replaced, mut settings) = (key("file"), key("file"));
        replaced.file = (0, 1);
        settings.settings.durability = Durability::Normal;

        for other in [replaced, settings] {
            assert!(!Arc::ptr_eq(&first, &registry.entry(other)));
        }

        assert!(Arc::ptr_eq(&first, &registry.entry(key("file"))));
    }
}

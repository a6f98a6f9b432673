//! Detection of a deleted, replaced, truncated or damaged SQLite file, so that no commit into a lost file is confirmed.

use super::error::{Fault, SqliteError, unavailable};
use crate::store::StoreError;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::ffi::OsString;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The open files of a SQLite database, and the fault after which the store rejects all writes.
#[derive(Debug, Default)]
pub(super) struct FileGuard {
    /// Paths of the SQLite file and of its write-ahead log. Empty for a database in memory, and for a read-only store.
    files: Vec<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Device and inode of each open file of the SQLite database, in the order of the paths in `FileGuard::files`.
    identities: Vec<Identity>,
    /// Length of the SQLite file at the last check, in bytes.
    length: u64,
    fatal_error: Option<Arc<SqliteError>>,
}

pub(super) type Identity = (u64, u64);

/// The reason why a transaction of the SQLite writer thread has no effect.
#[derive(Clone, Debug)]
pub(super) enum TransactionFailure {
    /// SQLite failed and rolled the transaction back.
    Driver(Arc<rusqlite::Error>),
    /// The SQLite store rejects writes, because it is read-only, or because its file is lost, damaged or of a newer schema
    /// version.
    WritesRefused(Arc<SqliteError>),
}

impl From<rusqlite::Error> for TransactionFailure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Driver(Arc::new(error))
    }
}

impl TransactionFailure {
    pub(super) fn error(&self) -> StoreError {
        match self {
            Self::Driver(error) => unavailable(error),
            Self::WritesRefused(error) => StoreError::Refused {
                store: super::NAME,
                source: Arc::clone(error).into(),
            },
        }
    }
}

impl FileGuard {
    /// Creates a guard that detects deletion, replacement or damage of the SQLite file at `path`, which the caller has just opened.
    pub(super) fn of(path: &Path) -> Result<Self, SqliteError> {
        let mut wal = OsString::from(path);
        wal.push("-wal");
        let files = vec![path.to_owned(), PathBuf::from(wal)];
        let mut state = State::default();
        for file in &files {
            let metadata = file
                .metadata()
                .map_err(|error| SqliteError::cannot_open(file, error))?;
            if file == path {
                state.length = metadata.len();
            }
            state.identities.push(identity(&metadata));
        }
        Ok(Self {
            files,
            state: Mutex::new(state),
        })
    }

    /// Creates a guard that rejects all writes to the SQLite file at `path`, for a store that is opened read-only. The guard
    /// checks no files.
    pub(super) fn read_only(path: &Path) -> Self {
        let path = path.to_owned();
        let state = State {
            fatal_error: Some(Arc::new(SqliteError::OpenedReadOnly { path })),
            ..State::default()
        };
        Self {
            files: Vec::new(),
            state: Mutex::new(state),
        }
    }

    /// Returns a name that identifies the SQLite file among all open databases. Returns `None` for a database in memory and for a
    /// read-only store.
    pub(super) fn name(&self) -> Option<String> {
        let path = self.files.first()?;
        let (device, inode) = *self.state().identities.first()?;
        match inode {
            0 => Some(format!("SQLite file {}", path.display())),
            _ => Some(format!("SQLite file {device}:{inode}")),
        }
    }

    /// Returns the path of the SQLite file for log lines. The path is empty for a database in memory and for a read-only store.
    pub(super) fn path(&self) -> std::borrow::Cow<'_, str> {
        self.files
            .first()
            .map(|path| path.to_string_lossy())
            .unwrap_or_default()
    }

    /// Returns an error if the store no longer accepts writes to its SQLite file.
    pub(super) fn accepts_writes(&self) -> Result<(), TransactionFailure> {
        match &self.state().fatal_error {
            Some(error) => Err(TransactionFailure::WritesRefused(Arc::clone(error))),
            None => Ok(()),
        }
    }

    /// Makes the store reject all later writes to its SQLite file, and records `error` as the cause. An earlier recorded cause remains.
    /// Every later write fails with the recorded cause.
    pub(super) fn refuse_writes(&self, error: SqliteError) -> TransactionFailure {
        let mut state = self.state();
        let fatal_error = state.fatal_error.get_or_insert_with(|| {
            let error = Arc::new(error);
            tracing::error!(
                error = %crate::error::Chain(&*error),
                "the SQLite store rejects all writes from now on; fix the cause, and open the store again"
            );
            error
        });
        TransactionFailure::WritesRefused(Arc::clone(fatal_error))
    }

    /// Returns an error if the open SQLite file or its write-ahead log was deleted or replaced, or if the file was truncated. Called
    /// between a commit and its confirmation.
    pub(super) fn check_files(&self) -> Result<(), TransactionFailure> {
        self.accepts_writes()?;
        let (identities, length) = {
            let state = self.state();
            (state.identities.clone(), state.length)
        };
        for (index, (file, expected)) in self.files.iter().zip(identities).enumerate() {
            let file_lost = |reason| SqliteError::FileLost {
                path: file.clone(),
                reason,
            };
            let metadata = match file.metadata() {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Err(self.refuse_writes(file_lost("deleted")));
                }
                // The commit succeeded, so the open file works. The next commit checks again.
                Err(_) => continue,
            };
            if identity(&metadata) != expected {
                return Err(self.refuse_writes(file_lost("replaced by another file")));
            }
            if index > 0 {
                continue;
            }
            // `VACUUM` in another process also shortens the file.
            if metadata.len() < length && !is_intact(file) {
                return Err(self.refuse_writes(file_lost("truncated")));
            }
            self.state().length = metadata.len();
        }
        Ok(())
    }

    /// Makes the store reject all later writes if the error of a store operation means that the SQLite file is damaged.
    pub(super) fn record_error(&self, fault: &Fault) {
        match fault {
            Fault::Driver(error) => self.record_driver_error(error),
            Fault::Refused(_) => {}
        }
    }

    /// Makes the store reject all later writes if a SQLite error means that the file is damaged.
    pub(super) fn record_driver_error(&self, error: &rusqlite::Error) {
        if is_corruption(error)
            && let Some(path) = self.files.first()
        {
            self.refuse_writes(SqliteError::Damaged {
                path: path.clone(),
                source: error.to_string().into(),
            });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `true` if a SQLite error means that the file is damaged.
pub(super) fn is_corruption(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// Returns `true` if a new connection, which has no cached pages yet, finds no damage in a SQLite file.
fn is_intact(path: &Path) -> bool {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let result = Connection::open_with_flags(path, flags).and_then(|connection| {
        connection.query_row("PRAGMA quick_check(1)", (), |row| row.get::<_, String>(0))
    });
    result.is_ok_and(|result| result == "ok")
}

#[cfg(unix)]
pub(super) fn identity(metadata: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

/// Returns the same identity for every file on systems other than Unix, because such a system does not allow an open file to be deleted
/// or replaced.
#[cfg(not(unix))]
pub(super) fn identity(_: &Metadata) -> Identity {
    (0, 0)
}

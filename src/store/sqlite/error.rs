//! Conversion of SQLite errors to errors of this crate.

use crate::error::{BoxError, Retry};
use crate::store::StoreError;
use crate::store::embedding::EmbedError;
use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Error of [`SqliteBuilder::open`](super::SqliteBuilder::open). Each variant allows a different reaction of the caller.
///
/// An open store reports [`OpenedReadOnly`](Self::OpenedReadOnly), [`FileLost`](Self::FileLost), [`Damaged`](Self::Damaged),
/// [`NewerSchema`](Self::NewerSchema) and [`DiskFull`](Self::DiskFull) as the source of a [`StoreError`].
///
/// [`retry`](Self::retry) is a delay for [`DiskFull`](Self::DiskFull),
/// [`Unavailable`](Self::Unavailable) and some [`Embedder`](Self::Embedder) errors. For all others,
/// an operator must act first.
///
/// ```
/// use universal_executor::SqliteStore;
/// use universal_executor::error::Retry;
/// use universal_executor::store::SqliteError;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let error = SqliteStore::open(":memory:").await.unwrap_err();
/// assert!(matches!(error, SqliteError::NotAFile { .. }));
/// assert_eq!(error.retry(), Retry::Never);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// A newer version of this crate migrated the SQLite file: update this program. Nothing was changed.
    #[error(
        "the SQLite database at {path:?} has schema version {found}, and this program supports versions up to {known}; update this program"
    )]
    NewerSchema {
        /// Path of the SQLite database file.
        path: PathBuf,
        /// Schema version of the SQLite file.
        found: i64,
        /// Newest schema version of a SQLite file that this crate supports.
        known: i64,
    },
    /// The file is not a SQLite database of this crate, or is damaged: use another file, or restore a backup.
    #[error(
        "the file {path:?} is not a SQLite database of this crate, or is damaged; use another file, or restore a backup"
    )]
    NotADatabase {
        /// Path of the file that is not a database of this crate.
        path: PathBuf,
        /// Error of SQLite, or the name of the missing table.
        source: BoxError,
    },
    /// The path of the SQLite database does not name a file. Use a file path, or `MemoryStore` for a store in memory.
    #[error("cannot open the SQLite database at {path:?}: {reason}")]
    NotAFile {
        /// Path of the SQLite database that was passed to the builder.
        path: PathBuf,
        /// Reason why the path cannot be used for a SQLite database.
        reason: &'static str,
    },
    /// The folder of the SQLite file does not exist, or the permissions of the file do not allow reading and writing. The source is the
    /// system's error.
    #[error(
        "cannot open the SQLite database at {path:?}; check the folder and the permissions of the file"
    )]
    CannotOpen {
        /// Path of the SQLite database file.
        path: PathBuf,
        /// Error of SQLite or of the operating system.
        source: BoxError,
    },
    /// An older version of this crate wrote the SQLite file, and a [read-only](super::SqliteBuilder::read_only) store does not migrate it.
    /// Open the file for writing once.
    #[error(
        "cannot open the SQLite database at {path:?} for reading: its schema version {found} is older than {known}; open it for writing once, which migrates it"
    )]
    OlderSchema {
        /// Path of the SQLite database file.
        path: PathBuf,
        /// Schema version of the SQLite file.
        found: i64,
        /// Schema version that a file must have so that this crate can open it read-only.
        known: i64,
    },
    /// The store was opened with [`SqliteBuilder::read_only`](super::SqliteBuilder::read_only), and rejects a write. Open another store for
    /// writing.
    ///
    /// It is the source of [`StoreError::Refused`].
    #[error(
        "cannot write to the SQLite database at {path:?}: the store was opened for reading; open another store for writing"
    )]
    OpenedReadOnly {
        /// Path of the SQLite database file.
        path: PathBuf,
    },
    /// The permissions of the SQLite file do not allow writing. Make the file and its folder writable, or use a copy.
    #[error(
        "cannot open the SQLite database at {path:?}: the file is read-only; make the file and its folder writable"
    )]
    ReadOnly {
        /// Path of the SQLite database file.
        path: PathBuf,
    },
    /// The SQLite file was deleted, replaced or truncated while the store was open. Restore the file, and open the store again.
    #[error(
        "the SQLite file {path:?} was {reason} while the store was open, so commits would be lost; restore the file and open the \
         store again"
    )]
    FileLost {
        /// Path of the lost file: the SQLite database file or its write-ahead log.
        path: PathBuf,
        /// The change by which the file was lost. One of `deleted`, `replaced by another file` and `truncated`.
        reason: &'static str,
    },
    /// SQLite found damage in the store's open file. Restore a backup, and open the store again.
    #[error(
        "the SQLite database at {path:?} is damaged; restore a backup and open the store again"
    )]
    Damaged {
        /// Path of the SQLite database file.
        path: PathBuf,
        /// Error message of SQLite.
        source: BoxError,
    },
    /// The file system of the SQLite file does not support the shared memory that SQLite's WAL mode needs. Most network
    /// file systems do not support such memory. Use a local disk.
    #[error(
        "the SQLite database at {path:?} cannot use WAL mode, only mode {mode:?}; move the file to a local disk"
    )]
    NoWal {
        /// Path of the SQLite database file.
        path: PathBuf,
        /// Journal mode that SQLite offers for the file instead of WAL mode.
        mode: String,
    },
    /// The stored vectors of breadcrumbs come from another model than the store's embedder, see [`EmbedError::OtherModel`]. Nothing was
    /// changed.
    #[error(
        "cannot use the embedder with the vectors in the SQLite file, which come from another model; see the cause"
    )]
    Embedder(#[from] EmbedError),
    /// The disk of the SQLite file is full, or the file has its [maximum size](super::SqliteBuilder::max_file_bytes). The operation stored
    /// nothing. The store continues when there is free space.
    #[error(
        "the disk of the SQLite database is full, or the file has its maximum size; free some space"
    )]
    DiskFull {
        /// Delay after which the caller should retry the operation.
        retry_after: Duration,
        /// Error of SQLite that reports the full disk.
        source: BoxError,
    },
    /// Another process locks the SQLite file for longer than the busy timeout, the disk fails, or the system has no free threads.
    ///
    /// After `retry_after`, open the store or call the operation again.
    #[error(
        "the SQLite database is unavailable: another process locks the file, the disk fails or the system has no free threads; \
         retry, or fix the cause"
    )]
    Unavailable {
        /// Delay after which the caller should retry the operation.
        retry_after: Duration,
        /// Error of SQLite or of the operating system.
        source: BoxError,
    },
}

impl SqliteError {
    /// Returns whether a retry of the failed opening or operation can succeed, and after which delay.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unavailable { retry_after, .. } | Self::DiskFull { retry_after, .. } => {
                Retry::after(*retry_after)
            }
            Self::Embedder(error) => error.retry(),
            Self::NewerSchema { .. }
            | Self::OlderSchema { .. }
            | Self::OpenedReadOnly { .. }
            | Self::ReadOnly { .. }
            | Self::FileLost { .. }
            | Self::Damaged { .. }
            | Self::NotADatabase { .. }
            | Self::NotAFile { .. }
            | Self::CannotOpen { .. }
            | Self::NoWal { .. } => Retry::Never,
        }
    }
}

impl SqliteError {
    /// Converts a SQLite error of an attempt to open a file to a [`SqliteError`].
    fn of(error: rusqlite::Error) -> Self {
        Self::with_source(error, Into::into)
    }

    /// Converts a SQLite error to the matching [`SqliteError`]; `source` converts the SQLite error to the cause of the result.
    fn with_source(
        error: rusqlite::Error,
        source: impl FnOnce(rusqlite::Error) -> BoxError,
    ) -> Self {
        match error.sqlite_error_code() {
            // SQLite reports tables that do not match the statements of this crate as `Unknown`.
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::Unknown) => {
                Self::NotADatabase {
                    path: PathBuf::new(),
                    source: source(error),
                }
            }
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                Self::cannot_open(Path::new(""), source(error))
            }
            Some(_) if is_disk_full(&error) => Self::disk_full(source(error)),
            Some(_) | None => Self::Unavailable {
                retry_after: pause_after(&error),
                source: source(error),
            },
        }
    }

    /// Returns the error for a file that the system or SQLite cannot open.
    pub(super) fn cannot_open(path: &Path, source: impl Into<BoxError>) -> Self {
        Self::CannotOpen {
            path: path.to_owned(),
            source: source.into(),
        }
    }

    /// Adds the path of the file to an error that was converted from an error of SQLite, which has no path.
    pub(super) fn at(mut self, file: &Path) -> Self {
        if let Self::CannotOpen { path, .. } | Self::NotADatabase { path, .. } = &mut self
            && path.as_os_str().is_empty()
        {
            file.clone_into(path);
        }
        self
    }

    fn disk_full(source: BoxError) -> Self {
        Self::DiskFull {
            retry_after: PAUSE,
            source,
        }
    }
}

/// Wrapper of a [`SqliteError`] to which the operator `?` converts driver errors while a store opens a SQLite file. So
/// [`SqliteError`] needs no public conversion from a type of the driver.
#[derive(Debug)]
pub(super) struct OpenFault(SqliteError);

impl OpenFault {
    /// Returns the error of a migration of the store's tables that failed in SQLite. Its source names the version that the tables did not
    /// reach.
    pub(super) fn of_migration(version: i64, error: rusqlite::Error) -> Self {
        Self(SqliteError::with_source(error, |source| {
            MigrationFailed { version, source }.into()
        }))
    }
}

/// Failure of the migration of the store's SQLite tables to one version.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot migrate the tables of the SQLite store to version {version}; the migration changed nothing; see the cause"
)]
struct MigrationFailed {
    version: i64,
    source: rusqlite::Error,
}

impl From<SqliteError> for OpenFault {
    fn from(error: SqliteError) -> Self {
        Self(error)
    }
}

impl From<rusqlite::Error> for OpenFault {
    fn from(error: rusqlite::Error) -> Self {
        Self(SqliteError::of(error))
    }
}

impl From<OpenFault> for SqliteError {
    fn from(fault: OpenFault) -> Self {
        fault.0
    }
}

/// Failure of a read or of a job (store operation in a transaction): the store rejects the operation, or SQLite fails.
#[derive(Debug)]
pub(super) enum Fault {
    Refused(StoreError),
    Driver(rusqlite::Error),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) => error,
            Fault::Driver(error) => unavailable(&Arc::new(error)),
        }
    }
}

/// Converts a SQLite error that rolled back a transaction to the error that the caller of a store operation receives. A retry loses
/// nothing, and can succeed unless the file itself is at fault.
pub(super) fn unavailable(error: &Arc<rusqlite::Error>) -> StoreError {
    let source: BoxError = match is_disk_full(error) {
        true => SqliteError::disk_full(Arc::clone(error).into()).into(),
        false => Arc::clone(error).into(),
    };
    let store = super::NAME;
    match is_permanent(error) {
        true => StoreError::Refused { store, source },
        false => StoreError::Unavailable {
            store,
            retry_after: pause_after(error),
            source,
        },
    }
}

/// Returns `true` if a SQLite error means that the disk is full. SQLite reports an I/O error if there is no space for the index of the
/// write-ahead log.
fn is_disk_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| {
        error.code == ErrorCode::DiskFull || error.extended_code == SQLITE_IOERR_SHMSIZE
    })
}

/// Returns `true` if a retry after a SQLite error can succeed only after an operator has repaired the file.
fn is_permanent(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseCorrupt
            | ErrorCode::NotADatabase
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied,
        ) => true,
        Some(ErrorCode::Unknown) => error.to_string().contains("no such"),
        Some(_) | None => false,
    }
}

/// Returns the error of a store operation whose background thread ended without a result.
pub(super) fn thread_ended() -> StoreError {
    StoreError::Unavailable {
        store: super::NAME,
        retry_after: PAUSE,
        source: "the store's background thread ended before it returned the result of the operation, which may have been committed".into(),
    }
}

/// Returns the error for an invalid value in a column of the SQLite tables. The store itself never writes such a value. `cause`
/// explains why the value is invalid.
pub(super) fn unreadable(
    column: usize,
    kind: rusqlite::types::Type,
    cause: impl Into<BoxError>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, cause.into())
}

fn pause_after(error: &rusqlite::Error) -> Duration {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Duration::from_millis(100),
        Some(_) | None => PAUSE,
    }
}

/// Delay after which the caller should retry the operation.
const PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi::{Error, SQLITE_FULL, SQLITE_IOERR_READ};

    #[test]
    fn a_full_disk_is_distinguished_from_a_failing_disk() {
        for (code, is_full) in [
            (SQLITE_FULL, true),
            (SQLITE_IOERR_SHMSIZE, true),
            (SQLITE_IOERR_READ, false),
        ] {
            let error = || rusqlite::Error::SqliteFailure(Error::new(code), None);
            let StoreError::Unavailable { source, .. } = unavailable(&Arc::new(error())) else {
                panic!("{code}")
            };

            let errors = [Some(&SqliteError::of(error())), source.downcast_ref()];

            let is_disk_full =
                |error: &Option<&SqliteError>| matches!(error, Some(SqliteError::DiskFull { .. }));
            assert!(
                errors.iter().all(|error| is_disk_full(error) == is_full),
                "{code}"
            );
        }
    }
}

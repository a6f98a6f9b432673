//! What the driver says, as errors of this crate.

use crate::error::{BoxError, Retry};
use crate::store::StoreError;
use crate::store::embedding::EmbedError;
use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Why a file cannot be opened as a [`SqliteStore`](super::SqliteStore). Variants name what the caller can do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqliteError {
    /// A newer version of this crate wrote the file: use that one. Nothing was changed.
    #[error("the file has schema version {found}, and versions up to {known} are known")]
    NewerSchema {
        /// The version of the file.
        found: i64,
        /// The newest version that this crate knows.
        known: i64,
    },
    /// The file is no SQLite database, or a damaged one: use another, or a copy.
    #[error("the file is not a database, or is damaged")]
    NotADatabase(#[source] BoxError),
    /// The path does not name a file: use a path, or `MemoryStore` for tests.
    #[error("cannot open the SQLite database at {path:?}: {reason}")]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// The reason.
        reason: &'static str,
    },
    /// The folder does not exist, or the file may not be read and written.
    #[error("the file cannot be opened")]
    CannotOpen(#[source] BoxError),
    /// An older version of this crate wrote the file, and [`SqliteBuilder::read_only`](super::SqliteBuilder::read_only) migrates
    /// nothing: open it for writing once.
    #[error(
        "cannot open the SQLite database at {path:?} for reading: its schema version {found} is older than {known}; open it for writing once, which migrates it"
    )]
    OlderSchema {
        /// The path.
        path: PathBuf,
        /// The version of the file.
        found: i64,
        /// The version that this crate reads.
        known: i64,
    },
    /// The store was opened with [`SqliteBuilder::read_only`](super::SqliteBuilder::read_only): open another one for writing.
    #[error("cannot write to the SQLite database at {path:?}: the store was opened for reading")]
    OpenedReadOnly {
        /// The path.
        path: PathBuf,
    },
    /// The file may not be written: make it writable, or use a copy.
    #[error(
        "cannot open the SQLite database at {path:?}: the file is read-only; make the file and its folder writable"
    )]
    ReadOnly {
        /// The path.
        path: PathBuf,
    },
    /// The file was deleted, replaced or truncated while the store was open: restore it and open the store again.
    #[error(
        "{path:?} was {reason} while the store was open, so commits would be lost; restore the file and open the store again"
    )]
    FileLost {
        /// The database file or its write-ahead log.
        path: PathBuf,
        /// The change of the file.
        reason: &'static str,
    },
    /// SQLite found damage in the open file: restore a copy and open the store again.
    #[error(
        "the SQLite database at {path:?} is damaged; restore a backup and open the store again"
    )]
    Damaged {
        /// The path.
        path: PathBuf,
        /// The message of SQLite.
        source: BoxError,
    },
    /// The file system cannot share memory between processes, as network file systems cannot.
    #[error("the file cannot be kept in WAL mode, only in mode {mode:?}")]
    NoWal {
        /// The journal mode that SQLite offers instead.
        mode: String,
    },
    /// The vectors in the file are by another model, see [`EmbedError::OtherModel`]. Nothing was changed.
    #[error("the embedder does not fit the vectors in the file")]
    Embedder(#[from] EmbedError),
    /// The disk is full, or the file has its [maximum size](super::SqliteBuilder::max_file_bytes). Nothing of the operation was stored.
    /// The store continues when there is space again.
    #[error(
        "the disk of the SQLite database is full, or the file has its maximum size; free some space"
    )]
    DiskFull {
        /// The pause before a retry.
        retry_after: Duration,
        /// The error of SQLite.
        source: BoxError,
    },
    /// The file is locked for longer than the busy timeout, or the disk fails.
    #[error("the file is unavailable")]
    Unavailable {
        /// When to try again.
        retry_after: Duration,
        /// What the driver says.
        source: BoxError,
    },
}

impl SqliteError {
    /// Whether opening the file again could succeed.
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
            | Self::NotADatabase(_)
            | Self::NotAFile { .. }
            | Self::CannotOpen(_)
            | Self::NoWal { .. } => Retry::Never,
        }
    }
}

impl SqliteError {
    /// Returns the error of a step to open a file that failed in the driver.
    fn of(error: rusqlite::Error) -> Self {
        Self::with_source(error, Into::into)
    }

    /// Returns the same as [`of`](Self::of), with a source that is made of the driver's error.
    fn with_source(
        error: rusqlite::Error,
        source: impl FnOnce(rusqlite::Error) -> BoxError,
    ) -> Self {
        match error.sqlite_error_code() {
            // SQLite reports tables that do not fit the statements of this crate as `Unknown`.
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::Unknown) => {
                Self::NotADatabase(source(error))
            }
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                Self::CannotOpen(source(error))
            }
            Some(_) if is_disk_full(&error) => Self::disk_full(source(error)),
            Some(_) | None => Self::Unavailable {
                retry_after: pause_after(&error),
                source: source(error),
            },
        }
    }

    fn disk_full(source: BoxError) -> Self {
        Self::DiskFull {
            retry_after: PAUSE,
            source,
        }
    }
}

/// Error of a step to open a file. The operator `?` converts errors of the driver to it, so [`SqliteError`] has no public
/// conversion from a type of the driver.
#[derive(Debug)]
pub(super) struct OpenFault(SqliteError);

impl OpenFault {
    /// Returns the error of a migration that failed in the driver. Its source names the version of the tables that was not reached.
    pub(super) fn of_migration(version: i64, error: rusqlite::Error) -> Self {
        Self(SqliteError::with_source(error, |source| {
            MigrationFailed { version, source }.into()
        }))
    }
}

/// Failure of the step of a migration that leads to a version.
#[derive(Debug, thiserror::Error)]
#[error("cannot bring the tables of the store to version {version}; nothing was changed")]
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

/// Why a job of the store fails: what it asks for is refused, or the driver gave up.
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

/// The driver failed, and the transaction was rolled back. Repeating it loses nothing, and helps unless the file itself is
/// at fault.
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

/// Returns `true` if the disk is full. SQLite reports an I/O error if that leaves no space for the index of the write-ahead log.
fn is_disk_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| {
        error.code == ErrorCode::DiskFull || error.extended_code == SQLITE_IOERR_SHMSIZE
    })
}

/// Returns `true` if no repetition succeeds before somebody repairs the file.
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

/// A thread of the store has ended.
pub(super) fn ended() -> StoreError {
    StoreError::Unavailable {
        store: super::NAME,
        retry_after: PAUSE,
        source: "the thread of the store has ended".into(),
    }
}

/// What is in a column is not what the store writes there.
pub(super) fn unreadable(
    column: usize,
    kind: rusqlite::types::Type,
    why: impl Into<BoxError>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, why.into())
}

fn pause_after(error: &rusqlite::Error) -> Duration {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Duration::from_millis(100),
        Some(_) | None => PAUSE,
    }
}

/// The pause before a retry.
const PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi::{Error, SQLITE_FULL, SQLITE_IOERR_READ};

    #[test]
    fn a_full_disk_is_told_from_one_that_fails() {
        for (code, is_full) in [
            (SQLITE_FULL, true),
            (SQLITE_IOERR_SHMSIZE, true),
            (SQLITE_IOERR_READ, false),
        ] {
            let error = || rusqlite::Error::SqliteFailure(Error::new(code), None);
            let StoreError::Unavailable { source, .. } = unavailable(&Arc::new(error())) else {
                panic!("{code}")
            };

            let found = [Some(&SqliteError::of(error())), source.downcast_ref()];

            let is_disk_full =
                |found: &Option<&SqliteError>| matches!(found, Some(SqliteError::DiskFull { .. }));
            assert!(
                found.iter().all(|found| is_disk_full(found) == is_full),
                "{code}"
            );
        }
    }
}

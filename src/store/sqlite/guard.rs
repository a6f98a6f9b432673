//! Detects that the open database file was deleted, replaced, truncated or damaged, so that no commit into a lost file
//! is acknowledged.

use super::error::{Fault, SqliteError, unavailable};
use crate::store::StoreError;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::ffi::OsString;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The open files of a database, and the fault after which the store refuses all writes.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// The database file and the write-ahead log; empty for a database in memory.
    files: Vec<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Device and inode of each file, in the order of the files.
    identities: Vec<Identity>,
    /// The length of the database file at the last check, in bytes.
    length: u64,
    broken: Option<Arc<SqliteError>>,
}

pub(super) type Identity = (u64, u64);

/// The reason why a transaction has no effect.
#[derive(Clone, Debug)]
pub(super) enum Undone {
    /// The driver failed and rolled the transaction back.
    Driver(Arc<rusqlite::Error>),
    /// The store accepts no writes any more.
    Broken(Arc<SqliteError>),
}

impl From<rusqlite::Error> for Undone {
    fn from(error: rusqlite::Error) -> Self {
        Self::Driver(Arc::new(error))
    }
}

impl Undone {
    pub(super) fn error(&self) -> StoreError {
        match self {
            Self::Driver(error) => unavailable(error),
            Self::Broken(error) => StoreError::Refused {
                store: super::NAME,
                source: Arc::clone(error).into(),
            },
        }
    }
}

impl Guard {
    /// Guards the file at `path`, which the caller has just opened.
    pub(super) fn of(path: &Path) -> Result<Self, SqliteError> {
        let mut log = OsString::from(path);
        log.push("-wal");
        let files = vec![path.to_owned(), PathBuf::from(log)];
        let mut state = State::default();
        for file in &files {
            let found = file
                .metadata()
                .map_err(|error| SqliteError::CannotOpen(error.into()))?;
            if file == path {
                state.length = found.len();
            }
            state.identities.push(identity(&found));
        }
        Ok(Self {
            files,
            state: Mutex::new(state),
        })
    }

    /// Refuses all writes to the file at `path`, which was opened for reading.
    pub(super) fn read_only(path: &Path) -> Self {
        let path = path.to_owned();
        let state = State {
            broken: Some(Arc::new(SqliteError::OpenedReadOnly { path })),
            ..State::default()
        };
        Self {
            files: Vec::new(),
            state: Mutex::new(state),
        }
    }

    /// Returns a name of the database that no other one has, while its file is open. A database that is not guarded has none.
    pub(super) fn name(&self) -> Option<String> {
        let path = self.files.first()?;
        let (device, inode) = *self.state().identities.first()?;
        match inode {
            0 => Some(format!("SQLite file {}", path.display())),
            _ => Some(format!("SQLite file {device}:{inode}")),
        }
    }

    /// Returns the path of the database file for log lines; an empty string for a database in memory.
    pub(super) fn path(&self) -> std::borrow::Cow<'_, str> {
        self.files
            .first()
            .map(|path| path.to_string_lossy())
            .unwrap_or_default()
    }

    /// Fails if the store accepts no writes any more.
    pub(super) fn accepts_writes(&self) -> Result<(), Undone> {
        match &self.state().broken {
            Some(error) => Err(Undone::Broken(Arc::clone(error))),
            None => Ok(()),
        }
    }

    /// Refuses all writes from now on, with the first cause.
    pub(super) fn refuse_writes(&self, error: SqliteError) -> Undone {
        let mut state = self.state();
        let broken = state.broken.get_or_insert_with(|| {
            let error = Arc::new(error);
            tracing::error!(
                error = %crate::error::Chain(&*error),
                "the store refuses all writes from now on"
            );
            error
        });
        Undone::Broken(Arc::clone(broken))
    }

    /// Fails if the paths do not name the open files any more. Called between a commit and its acknowledgement.
    pub(super) fn check_files(&self) -> Result<(), Undone> {
        self.accepts_writes()?;
        let (identities, length) = {
            let state = self.state();
            (state.identities.clone(), state.length)
        };
        for (index, (file, expected)) in self.files.iter().zip(identities).enumerate() {
            let lost = |reason| SqliteError::FileLost {
                path: file.clone(),
                reason,
            };
            let found = match file.metadata() {
                Ok(found) => found,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Err(self.refuse_writes(lost("deleted")));
                }
                // The commit succeeded, so the open file works. The next commit checks again.
                Err(_) => continue,
            };
            if identity(&found) != expected {
                return Err(self.refuse_writes(lost("replaced by another file")));
            }
            if index > 0 {
                continue;
            }
            // `VACUUM` in another process also shortens the file.
            if found.len() < length && !is_intact(file) {
                return Err(self.refuse_writes(lost("truncated")));
            }
            self.state().length = found.len();
        }
        Ok(())
    }

    /// Refuses writes from now on if the driver reports that the file is damaged.
    pub(super) fn note(&self, fault: &Fault) {
        match fault {
            Fault::Driver(error) => self.note_driver(error),
            Fault::Refused(_) => {}
        }
    }

    /// Refuses writes from now on if the driver reports that the file is damaged.
    pub(super) fn note_driver(&self, error: &rusqlite::Error) {
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

/// Returns `true` if SQLite found that the file is damaged.
pub(super) fn is_corruption(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    )
}

/// Checks a file through a connection of its own, whose cache cannot hide missing pages.
fn is_intact(path: &Path) -> bool {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let checked = Connection::open_with_flags(path, flags).and_then(|connection| {
        connection.query_row("PRAGMA quick_check(1)", (), |row| row.get::<_, String>(0))
    });
    checked.is_ok_and(|found| found == "ok")
}

#[cfg(unix)]
pub(super) fn identity(found: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    (found.dev(), found.ino())
}

/// Other systems do not let anybody delete or replace an open file.
#[cfg(not(unix))]
pub(super) fn identity(_: &Metadata) -> Identity {
    (0, 0)
}

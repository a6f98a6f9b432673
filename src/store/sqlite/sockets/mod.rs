//! Wake-ups of other processes: after a commit with events, the SQLite writer sends a datagram to each socket in the table `ux_listeners`.
//! A datagram has no content and may be lost.
//!
//! The sockets are in a folder next to the database file. All changes of that folder happen inside a write transaction, so
//! no process removes what another one is about to use.

#[cfg(not(unix))]
mod unsupported;
#[cfg(not(unix))]
use unsupported as system;
#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as system;

pub(super) use system::{Bound, Receiver};

use crate::error::Chain;
use rusqlite::Connection;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use system::{Folder, Sender};
use uuid::Uuid;

/// Maximum number of databases on one SQLite file that register a socket for datagrams. Further databases find commits by polling the file.
const MOST: usize = 64;

/// Maximum number of socket files that the registration of a datagram socket checks, to delete the files of ended processes.
const MOST_FILES: usize = 1_024;

/// The datagram sockets of all databases on one SQLite file, and the name of this database's own socket.
#[derive(Debug)]
pub(super) struct Sockets {
    /// Path of the SQLite file. The owner of this file must also own the folder of the sockets.
    database: PathBuf,
    folder: PathBuf,
    own_id: Uuid,
    is_bound: AtomicBool,
    /// Sender of datagrams to the sockets, or `None` if the system has no such sockets.
    sender: Option<Sender>,
}

impl Sockets {
    /// Returns the datagram sockets for the SQLite file at `path`, a path without symbolic links.
    pub(super) fn of(path: &Path) -> Self {
        let mut folder = path.as_os_str().to_owned();
        folder.push("-listeners");
        Self {
            database: path.to_owned(),
            folder: folder.into(),
            own_id: Uuid::new_v4(),
            is_bound: AtomicBool::new(false),
            sender: Sender::new(),
        }
    }

    /// Binds the database's own datagram socket and registers it in the SQLite file. Deletes the rows and files that processes left when
    /// they were killed. Returns `None` if no socket can be bound.
    pub(super) fn register(&self, connection: &Connection) -> rusqlite::Result<Option<Bound>> {
        let registered = listeners(connection)?;
        let (dead, alive) = self.probe(registered);
        self.remove(connection, &dead)?;
        self.remove_files_without_row(&alive);
        if alive.len() >= MOST {
            tracing::debug!(
                listeners = alive.len(),
                "too many listeners for a wake-up socket; the SQLite file is polled instead"
            );
            return Ok(None);
        }
        match Folder::create(&self.folder, &self.database)
            .and_then(|folder| folder.bind(self.own_id))
        {
            Ok(bound) => {
                self.is_bound.store(true, Ordering::SeqCst);
                connection.execute(
                    "INSERT OR IGNORE INTO ux_listeners VALUES (?1)",
                    [self.own_id.into_bytes()],
                )?;
                Ok(Some(bound))
            }
            Err(error) => {
                tracing::debug!(
                    folder = &*self.folder.to_string_lossy(),
                    error = %Chain(&error),
                    "cannot bind the wake-up socket; the SQLite file is polled instead"
                );
                Ok(None)
            }
        }
    }

    /// Deletes the row and the file of the database's own datagram socket, and then the folder of the sockets if it is empty. Does nothing
    /// without a socket.
    pub(super) fn unregister(&self, connection: &Connection) -> rusqlite::Result<()> {
        if !self.is_bound() {
            return Ok(());
        }
        self.remove(connection, &[self.own_id])?;
        self.is_bound.store(false, Ordering::SeqCst);
        // This fails while other sockets are in the folder.
        drop(fs::remove_dir(&self.folder));
        Ok(())
    }

    /// Deletes the file of the database's own datagram socket. Used if the socket's row in the table `ux_listeners` cannot be deleted.
    /// Another process then deletes the row.
    pub(super) fn unlink(&self) {
        if self.is_bound() {
            drop(fs::remove_file(self.file(self.own_id)));
        }
    }

    /// Splits datagram sockets into dead sockets, which no process reads from, and live sockets.
    pub(super) fn probe(&self, ids: Vec<Uuid>) -> (Vec<Uuid>, Vec<Uuid>) {
        if ids.is_empty() {
            return (Vec::new(), Vec::new());
        }
        match self.open() {
            Ok(folder) => ids.into_iter().partition(|id| folder.is_dead(*id)),
            Err(error) if error.kind() == ErrorKind::NotFound => (ids, Vec::new()),
            Err(_) => (Vec::new(), ids),
        }
    }

    /// Returns `true` if the system has datagram sockets in the file system.
    pub(super) fn are_supported(&self) -> bool {
        self.sender.is_some()
    }

    /// Returns `true` if the file of the database's own datagram socket was deleted.
    pub(super) fn is_own_missing(&self) -> bool {
        let metadata = fs::symlink_metadata(self.file(self.own_id));
        metadata.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    fn open(&self) -> std::io::Result<Folder> {
        Folder::open(&self.folder, &self.database)
    }

    pub(super) fn is_bound(&self) -> bool {
        self.is_bound.load(Ordering::SeqCst)
    }

    /// Returns the registered datagram sockets of other databases on the SQLite file. Call it in the write transaction whose events wake
    /// them: a listener that registers later reads those events itself.
    pub(super) fn others(&self, connection: &Connection) -> rusqlite::Result<Vec<Uuid>> {
        let mut listeners = listeners(connection)?;
        listeners.retain(|id| *id != self.own_id);
        Ok(listeners)
    }

    /// Deletes the rows and the files of datagram sockets that no process reads from.
    pub(super) fn remove(&self, connection: &Connection, dead: &[Uuid]) -> rusqlite::Result<()> {
        for id in dead {
            connection
                .prepare_cached("DELETE FROM ux_listeners WHERE id = ?1")?
                .execute([id.into_bytes()])?;
            // The file may be missing already.
            drop(fs::remove_file(self.file(*id)));
        }
        Ok(())
    }

    /// Sends a datagram about new events to each of the sockets, without waiting. Returns the sockets that no process reads from any more.
    pub(super) fn wake(&self, others: &[Uuid]) -> Vec<Uuid> {
        let Some(sender) = self.sender.as_ref().filter(|_| !others.is_empty()) else {
            return Vec::new();
        };
        match self.open() {
            Ok(folder) => {
                let dead = |id: &Uuid| !sender.send(&folder, *id);
                others.iter().copied().filter(dead).collect()
            }
            Err(error) if error.kind() == ErrorKind::NotFound => others.to_vec(),
            Err(_) => Vec::new(),
        }
    }

    /// Deletes the files of dead datagram sockets that have no row in the table `ux_listeners`. Such a file is left if a process was killed
    /// before it committed the socket's row.
    fn remove_files_without_row(&self, known: &[Uuid]) {
        let (Ok(files), Ok(folder)) = (fs::read_dir(&self.folder), self.open()) else {
            return;
        };
        let ids = files
            .take(MOST_FILES)
            .filter_map(|file| Uuid::try_parse(file.ok()?.file_name().to_str()?).ok());
        for id in ids.filter(|id| !known.contains(id) && folder.is_dead(*id)) {
            drop(fs::remove_file(self.file(id)));
        }
    }

    fn file(&self, id: Uuid) -> PathBuf {
        self.folder.join(file_name(id))
    }
}

/// Returns the file name of the datagram socket that has this ID in the table `ux_listeners`. The table contains IDs, not names,
/// so no row can name a file outside of the folder.
fn file_name(id: Uuid) -> String {
    id.simple().to_string()
}

/// Returns all registered datagram sockets of databases on the SQLite file. IDs with another length are ignored, because a row of a foreign
/// program must not make commits fail.
fn listeners(connection: &Connection) -> rusqlite::Result<Vec<Uuid>> {
    let mut listeners =
        connection.prepare_cached("SELECT id FROM ux_listeners WHERE length(id) = 16")?;
    let listeners = listeners.query_map((), |row| row.get(0).map(Uuid::from_bytes))?;
    listeners.collect()
}

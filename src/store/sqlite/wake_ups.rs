//! The sending side of wake-ups: which sockets get a datagram after the transaction of the writer.

use super::guard::Undone;
use super::job::Job;
use super::sockets::Sockets;
use rusqlite::Connection;
use std::sync::Arc;
use uuid::Uuid;

/// Wakes other processes after commits with events.
pub(super) struct WakeUps {
    /// `None` if the database sends no datagrams.
    sockets: Option<Arc<Sockets>>,
    /// The registered sockets, if the current transaction wrote events.
    others: Vec<Uuid>,
    /// Sockets that refused a datagram. The next transaction deletes their rows.
    dead: Vec<Uuid>,
}

impl WakeUps {
    pub(super) fn new(sockets: Option<Arc<Sockets>>) -> Self {
        Self {
            sockets,
            others: Vec::new(),
            dead: Vec::new(),
        }
    }

    /// Reads the registered sockets in a transaction that wrote events, and deletes the rows of dead ones in any transaction.
    pub(super) fn prepare(
        &mut self,
        connection: &Connection,
        has_events: bool,
    ) -> rusqlite::Result<()> {
        self.others.clear();
        if let Some(sockets) = &self.sockets {
            // Since the datagram, a process may have bound the socket again.
            let (dead, _) = sockets.probe(self.dead.clone());
            sockets.remove(connection, &dead)?;
            if has_events {
                self.others = sockets.others(connection)?;
            }
        }
        Ok(())
    }

    /// Notes that the transaction that was prepared last is committed, and sends its datagrams.
    pub(super) fn committed(&mut self) {
        self.dead.clear();
        if let Some(sockets) = &self.sockets {
            self.dead = sockets.wake(&self.others);
        }
    }

    /// Returns the job that deletes the registration of the database's own socket, if there is one.
    pub(super) fn leave(&self) -> Option<Box<dyn Job>> {
        let sockets = self.sockets.as_ref().filter(|sockets| sockets.is_bound())?;
        Some(Box::new(Leave(Arc::clone(sockets))))
    }
}

/// The job that deletes the registration.
struct Leave(Arc<Sockets>);

impl Job for Leave {
    fn begin(&self) -> bool {
        true
    }

    fn run(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.0.leave(connection)
    }

    fn has_events(&self) -> bool {
        false
    }

    fn finish(self: Box<Self>, _: Option<&Undone>) {}
}

impl Drop for WakeUps {
    /// Without this, the socket of a database that could not delete its registration would be left in the folder.
    fn drop(&mut self) {
        if let Some(sockets) = &self.sockets {
            sockets.unlink();
        }
    }
}

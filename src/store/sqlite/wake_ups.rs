//! Sender of the datagrams that wake other processes after the SQLite writer has committed events.

use super::guard::TransactionFailure;
use super::job::Job;
use super::sockets::Sockets;
use rusqlite::Connection;
use std::sync::Arc;
use uuid::Uuid;

/// Sender of datagrams to other processes after SQLite commits with events.
pub(super) struct WakeUps {
    /// Datagram sockets of the databases on the SQLite file, or `None` if the database sends no datagrams.
    sockets: Option<Arc<Sockets>>,
    /// The datagram sockets of other processes that the SQLite writer wakes after the commit of its current transaction. Empty if
    /// the transaction wrote no events.
    others: Vec<Uuid>,
    /// Datagram sockets that refused a datagram, probably because their processes have ended. The next transaction deletes their
    /// rows.
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

    /// Determines the sockets of other processes that receive a datagram after the commit of a transaction of the SQLite writer.
    /// These are all registered sockets if the transaction wrote events, otherwise none. Also deletes the rows of dead sockets,
    /// from which no process reads.
    pub(super) fn prepare(
        &mut self,
        connection: &Connection,
        has_events: bool,
    ) -> rusqlite::Result<()> {
        self.others.clear();
        if let Some(sockets) = &self.sockets {
            // A process may have bound the socket again since the datagram.
            let (dead, _) = sockets.probe(self.dead.clone());
            sockets.remove(connection, &dead)?;
            if has_events {
                self.others = sockets.others(connection)?;
            }
        }
        Ok(())
    }

    /// Records that the last prepared transaction is committed, and sends its datagrams to other processes.
    pub(super) fn committed(&mut self) {
        self.dead.clear();
        if let Some(sockets) = &self.sockets {
            self.dead = sockets.wake(&self.others);
        }
    }

    /// Returns the job (store operation) that deletes the registration of the database's own datagram socket, or `None` without a
    /// socket.
    pub(super) fn unregister_job(&self) -> Option<Box<dyn Job>> {
        let sockets = self.sockets.as_ref().filter(|sockets| sockets.is_bound())?;
        Some(Box::new(UnregisterSocket(Arc::clone(sockets))))
    }
}

/// Job of the SQLite writer that deletes the registration of the database's own datagram socket.
struct UnregisterSocket(Arc<Sockets>);

impl Job for UnregisterSocket {
    fn start(&self) -> bool {
        true
    }

    fn run(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.0.unregister(connection)
    }

    fn has_events(&self) -> bool {
        false
    }

    fn finish(self: Box<Self>, _: Option<&TransactionFailure>) {}
}

impl Drop for WakeUps {
    /// Deletes the file of the database's datagram socket, in case the socket's row in the table `ux_listeners` could not be
    /// deleted. The file would otherwise remain in the folder.
    fn drop(&mut self) {
        if let Some(sockets) = &self.sockets {
            sockets.unlink();
        }
    }
}

//! Thread that detects commits of other processes to the SQLite file, and wakes the event subscribers of this process.
//!
//! Each commit of a process that knows this one sends a datagram. All other commits, including those of foreign programs, change
//! `PRAGMA data_version`, which the thread checks at an interval. The thread is idle while there are no subscribers.

use super::job::{Job, Task};
use super::progress::Progress;
use super::sockets::{Bound, Receiver, Sockets};
use crate::error::Chain;
use rusqlite::Connection;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

/// Number of consecutive checks without a change of the SQLite file after which the pause between two checks doubles. Waking a
/// thread costs more than the check itself, so this halves the cost of an idle process.
const IDLE_AFTER: u32 = 50;

/// Minimum time between two registrations of the socket that receives datagrams about commits of other processes. A registration can fail,
/// and the socket's file can be deleted.
const REPAIR_AFTER: Duration = Duration::from_secs(10);

/// Listener for other processes' commits to a SQLite database, which wakes this process's event subscribers.
pub(super) struct Listener {
    /// SQLite connection with which the listener detects commits of other connections. Its `data_version` changes with every
    /// commit of another connection.
    pub(super) connection: Connection,
    pub(super) progress: Arc<Progress>,
    /// Pause between two checks of the SQLite file for new commits. It doubles after [`IDLE_AFTER`] checks without a change of
    /// the file.
    pub(super) poll: Duration,
    /// Sockets for datagrams about commits of other processes, or `None` if the database receives none.
    pub(super) sockets: Option<Arc<Sockets>>,
    pub(super) jobs: mpsc::WeakSender<Box<dyn Job>>,
    /// Receiver that reports new event subscriptions, because the file is checked only while a subscriber exists. It closes when
    /// the database is dropped.
    pub(super) subscribed: watch::Receiver<()>,
    /// SQLite's `data_version` at the last check of the file, or `None` if the check failed.
    pub(super) data_version: Option<i64>,
    /// Number of consecutive checks that found no new commit in the SQLite file.
    pub(super) unchanged_checks: u32,
}

impl Listener {
    /// Runs the listener thread until the database is dropped.
    pub(super) async fn run(mut self) {
        let mut receiver = None;
        let mut registered_at = Instant::now();
        loop {
            while !self.has_subscribers() {
                if self.subscribed.changed().await.is_err() {
                    return;
                }
            }
            self.wake();
            let mut is_registering = receiver.is_none();
            let mut registering =
                std::pin::pin!(register_socket(self.sockets.clone(), self.jobs.clone()));
            // Other events do not restart the pause, so frequent events do not delay the check.
            let mut pause = std::pin::pin!(sleep(self.pause()));
            while self.has_subscribers() {
                tokio::select! {
                    changed = self.subscribed.changed() => if changed.is_err() {
                        return;
                    },
                    registered = &mut registering, if is_registering => {
                        is_registering = false;
                        registered_at = Instant::now();
                        receiver = registered;
                        // Commits before the registration sent no datagram.
                        self.wake();
                    }
                    () = received(receiver.as_ref()) => self.wake(),
                    () = &mut pause => {
                        self.check();
                        pause.set(sleep(self.pause()));
                        let is_due = !is_registering && registered_at.elapsed() >= REPAIR_AFTER;
                        if is_due && self.needs_socket(receiver.as_ref()) {
                            registering.set(register_socket(self.sockets.clone(), self.jobs.clone()));
                            is_registering = true;
                        }
                    }
                }
            }
        }
    }

    fn has_subscribers(&self) -> bool {
        self.progress.announced.receiver_count() > 0
    }

    /// Returns `true` if the database should bind a datagram socket now, because it has no socket or the file of its socket was
    /// deleted. Without this socket, other processes cannot wake the event subscribers of the database.
    fn needs_socket(&self, receiver: Option<&Receiver>) -> bool {
        let sockets = self.sockets.as_ref();
        sockets.is_some_and(|sockets| match receiver {
            Some(_) => sockets.is_own_missing(),
            None => sockets.are_supported(),
        })
    }

    /// Wakes the event subscribers if another SQLite connection committed.
    fn check(&mut self) {
        if self.has_changed() {
            self.progress.announce();
        }
    }

    /// Wakes the event subscribers, and reads SQLite's `data_version`, against which the next check detects commits.
    fn wake(&mut self) {
        self.has_changed();
        self.progress.announce();
    }

    /// Returns `true` if another SQLite connection has committed since the last check. Commits of this database's own writer count as well.
    /// A subscriber that is woken needlessly reads an empty page.
    fn has_changed(&mut self) -> bool {
        let data_version = self
            .connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut version| version.query_row((), |row| row.get(0)));
        let before = std::mem::replace(&mut self.data_version, data_version.ok());
        let has_changed = self.data_version != before;
        self.unchanged_checks = match has_changed {
            true => 0,
            false => self.unchanged_checks.saturating_add(1),
        };
        has_changed
    }

    fn pause(&self) -> Duration {
        match self.unchanged_checks {
            0..IDLE_AFTER => self.poll,
            IDLE_AFTER.. => self.poll.saturating_mul(2),
        }
    }
}

/// Registers the database's socket for datagrams in a transaction of its writer thread. Returns `None` if that fails.
async fn register_socket(
    sockets: Option<Arc<Sockets>>,
    jobs: mpsc::WeakSender<Box<dyn Job>>,
) -> Option<Receiver> {
    let sockets = sockets?;
    let work = move |connection: &Connection| Ok((sockets.register(connection)?, false));
    let (task, answer, _) = Task::new(work, |_: &Option<Bound>| ());
    jobs.upgrade()?.send(Box::new(task)).await.ok()?;
    let bound = match answer.await.ok()? {
        Ok(bound) => bound?,
        Err(error) => {
            tracing::debug!(error = %Chain(&error), "cannot register the wake-up socket; the SQLite file is polled instead");
            return None;
        }
    };
    Receiver::new(bound).ok()
}

/// Waits for a datagram about a commit of another process. Never ends without a socket.
async fn received(receiver: Option<&Receiver>) {
    match receiver {
        Some(receiver) => receiver.received().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn frequent_subscriptions_do_not_delay_the_check_of_the_file() {
        let folder =
            std::env::temp_dir().join(format!("universal-executor-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("store.db");
        let foreign = Connection::open(&file).unwrap();
        let progress = Arc::<Progress>::default();
        let (jobs, _waiting) = mpsc::channel(1);
        let (subscribed, subscriptions) = watch::channel(());
        let mut announced = progress.announced.subscribe();
        let listener = Listener {
            connection: Connection::open(&file).unwrap(),
            progress: Arc::clone(&progress),
            poll: Duration::from_millis(10),
            sockets: None,
            jobs: jobs.downgrade(),
            subscribed: subscriptions,
            data_version: None,
            unchanged_checks: 0,
        };
        let mut running = std::pin::pin!(listener.run());
        assert!(futures::poll!(&mut running).is_pending());
        announced.mark_unchanged();

        foreign.execute_batch("CREATE TABLE a (b)").unwrap();
        for _ in 0..10 {
            subscribed.send_replace(());
            assert!(futures::poll!(&mut running).is_pending());
            tokio::time::advance(Duration::from_millis(6)).await;
        }

        assert!(announced.has_changed().unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

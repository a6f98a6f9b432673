//! The threads that read, each with a connection of its own, so that they hold up neither each other nor the writer.

use super::error::{Fault, ended};
use crate::store::StoreError;
use rusqlite::Connection;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// Where the threads take their jobs from.
pub(super) type Jobs = Arc<Mutex<mpsc::Receiver<Job>>>;

/// Where jobs are handed over.
pub(super) struct Reads(mpsc::Sender<Job>);

pub(super) fn channel(waiting: usize) -> (Reads, Jobs) {
    let (reads, jobs) = mpsc::channel(waiting);
    (Reads(reads), Arc::new(Mutex::new(jobs)))
}

/// Does jobs until there can be no more, and closes the connection.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the connection is closed when there are no more jobs"
)]
pub(super) fn run(connection: Connection, jobs: &Jobs) {
    loop {
        // Whoever has the lock waits for the next job, the others for the lock.
        let job = jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .blocking_recv();
        match job {
            Some(job) => job(&connection),
            None => return,
        }
    }
}

impl Reads {
    /// Does something with one snapshot of the file. What is done is told whether anybody still waits for it.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &dyn Fn() -> bool) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = move |connection: &Connection| {
            let is_wanted = || !reply.is_closed();
            if is_wanted() {
                let read = snapshot(connection, |connection| work(connection, &is_wanted));
                drop(reply.send(read.map_err(StoreError::from)));
            }
        };
        self.0.send(Box::new(job)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

fn snapshot<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let transaction = connection.unchecked_transaction()?;
    let read = work(&transaction)?;
    transaction.commit()?;
    Ok(read)
}

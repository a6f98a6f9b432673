//! Jobs (store operations) that the SQLite writer thread runs in its transactions.

use super::error::{Fault, unavailable};
use super::guard::{Undone, is_corruption};
use super::progress::Fate;
use crate::store::StoreError;
use rusqlite::Connection;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A store operation that runs in a transaction of the SQLite writer thread.
pub(super) trait Job: Send {
    /// Returns `true` if a caller still waits for the result of the job. The job then runs even if the caller stops waiting.
    fn begin(&self) -> bool;

    /// Runs the job (store operation) in a savepoint of the open transaction.
    ///
    /// # Errors
    /// Fails only if an error of the driver must roll back the whole transaction.
    fn run(&mut self, connection: &Connection) -> Result<(), rusqlite::Error>;

    /// Returns `true` if the job ran and wrote events of breadcrumbs.
    fn has_events(&self) -> bool;

    /// Sends the result of the job to its caller. `undone` is the error that rolled back the transaction, if there was one.
    fn finish(self: Box<Self>, undone: Option<&Undone>);
}

/// A job (store operation) of the SQLite writer that sends a result to its caller.
pub(super) struct Task<W, A, T> {
    fate: Fate,
    work: Option<W>,
    done: Option<Result<(T, bool), StoreError>>,
    then: A,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

type Answer<T> = oneshot::Receiver<Result<T, StoreError>>;

impl<W, A, T> Task<W, A, T>
where
    W: FnOnce(&Connection) -> Result<(T, bool), Fault>,
    A: FnOnce(&T),
{
    /// Creates a job (store operation) for the SQLite writer. `work` returns the result, and `true` if it wrote events. `then` runs after
    /// the commit. Also returns the receiver of the result, and the [`Fate`] with which the caller abandons the job.
    pub(super) fn new(work: W, then: A) -> (Self, Answer<T>, Fate) {
        let (reply, answer) = oneshot::channel();
        let fate = Fate::default();
        let task = Self {
            fate: fate.clone(),
            work: Some(work),
            done: None,
            then,
            reply,
        };
        (task, answer, fate)
    }
}

impl<W, A, T> Job for Task<W, A, T>
where
    W: FnOnce(&Connection) -> Result<(T, bool), Fault> + Send,
    A: FnOnce(&T) + Send,
    T: Send,
{
    fn begin(&self) -> bool {
        self.fate.begin()
    }

    fn run(&mut self, connection: &Connection) -> Result<(), rusqlite::Error> {
        let Some(work) = self.work.take() else {
            return Ok(());
        };
        connection.prepare_cached("SAVEPOINT job")?.execute(())?;
        match work(connection) {
            Ok(done) => self.done = Some(Ok(done)),
            Err(Fault::Refused(error)) => {
                self.done = Some(Err(error));
                connection.prepare_cached("ROLLBACK TO job")?.execute(())?;
            }
            // SQLite can roll back the whole transaction, for example if the disk is full.
            Err(Fault::Driver(error)) if connection.is_autocommit() => return Err(error),
            // The writer must receive a corruption error and pass it to the guard.
            Err(Fault::Driver(error)) if is_corruption(&error) => return Err(error),
            Err(Fault::Driver(error)) => {
                self.done = Some(Err(unavailable(&Arc::new(error))));
                connection.prepare_cached("ROLLBACK TO job")?.execute(())?;
            }
        }
        connection.prepare_cached("RELEASE job")?.execute(())?;
        Ok(())
    }

    fn has_events(&self) -> bool {
        matches!(self.done, Some(Ok((_, true))))
    }

    fn finish(self: Box<Self>, undone: Option<&Undone>) {
        let done = match (self.done, undone) {
            // A rejection becomes an error too, because it may depend on a write that was rolled back.
            (_, Some(undone)) => Err(undone.error()),
            (Some(done), None) => done,
            (None, None) => return,
        };
        if let Ok((answer, _)) = &done {
            (self.then)(answer);
        }
        // The send fails if the caller no longer waits.
        drop(self.reply.send(done.map(|(answer, _)| answer)));
    }
}

//! Jobs (store operations) that the SQLite writer thread runs in its transactions.

use super::error::{Fault, unavailable};
use super::guard::{TransactionFailure, is_corruption};
use super::progress::JobState;
use crate::store::StoreError;
use rusqlite::Connection;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A store operation that runs in a transaction of the SQLite writer thread.
pub(super) trait Job: Send {
    /// Returns `true` if a caller still waits for the result of this job (store operation). The job then runs even if the caller stops
    /// waiting.
    fn start(&self) -> bool;

    /// Runs the job (store operation) in a savepoint of the open transaction.
    ///
    /// # Errors
    /// Fails only if an error of the driver must roll back the whole transaction.
    fn run(&mut self, connection: &Connection) -> Result<(), rusqlite::Error>;

    /// Returns `true` if this job (store operation) ran and wrote breadcrumb events.
    fn has_events(&self) -> bool;

    /// Sends the result of this job (store operation) to its caller. `failure` is the error that rolled back the transaction, if there was
    /// one.
    fn finish(self: Box<Self>, failure: Option<&TransactionFailure>);
}

/// A job (store operation) of the SQLite writer that sends a result to its caller.
pub(super) struct Task<W, A, T> {
    state: JobState,
    work: Option<W>,
    result: Option<Result<(T, bool), StoreError>>,
    after_commit: A,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

type ResultReceiver<T> = oneshot::Receiver<Result<T, StoreError>>;

impl<W, A, T> Task<W, A, T>
where
    W: FnOnce(&Connection) -> Result<(T, bool), Fault>,
    A: FnOnce(&T),
{
    /// Creates a job (store operation) for the SQLite writer. `work` returns the result, and `true` if it wrote events. `after_commit`
    /// runs after the commit. Also returns the receiver of the result, and the [`JobState`] with which the caller abandons the job.
    pub(super) fn new(work: W, after_commit: A) -> (Self, ResultReceiver<T>, JobState) {
        let (reply, answer) = oneshot::channel();
        let state = JobState::default();
        let task = Self {
            state: state.clone(),
            work: Some(work),
            result: None,
            after_commit,
            reply,
        };
        (task, answer, state)
    }
}

impl<W, A, T> Job for Task<W, A, T>
where
    W: FnOnce(&Connection) -> Result<(T, bool), Fault> + Send,
    A: FnOnce(&T) + Send,
    T: Send,
{
    fn start(&self) -> bool {
        self.state.start()
    }

    fn run(&mut self, connection: &Connection) -> Result<(), rusqlite::Error> {
        let Some(work) = self.work.take() else {
            return Ok(());
        };
        connection.prepare_cached("SAVEPOINT job")?.execute(())?;
        match work(connection) {
            Ok(result) => self.result = Some(Ok(result)),
            Err(Fault::Refused(error)) => {
                self.result = Some(Err(error));
                connection.prepare_cached("ROLLBACK TO job")?.execute(())?;
            }
            // SQLite can roll back the whole transaction, for example if the disk is full.
            Err(Fault::Driver(error)) if connection.is_autocommit() => return Err(error),
            // The writer must receive a corruption error and pass it to the guard.
            Err(Fault::Driver(error)) if is_corruption(&error) => return Err(error),
            Err(Fault::Driver(error)) => {
                self.result = Some(Err(unavailable(&Arc::new(error))));
                connection.prepare_cached("ROLLBACK TO job")?.execute(())?;
            }
        }
        connection.prepare_cached("RELEASE job")?.execute(())?;
        Ok(())
    }

    fn has_events(&self) -> bool {
        matches!(self.result, Some(Ok((_, true))))
    }

    fn finish(self: Box<Self>, failure: Option<&TransactionFailure>) {
        let result = match (self.result, failure) {
            // A rejection becomes an error too, because it may depend on a write that was rolled back.
            (_, Some(failure)) => Err(failure.error()),
            (Some(result), None) => result,
            (None, None) => return,
        };
        if let Ok((answer, _)) = &result {
            (self.after_commit)(answer);
        }
        // The send fails if the caller no longer waits.
        drop(self.reply.send(result.map(|(answer, _)| answer)));
    }
}

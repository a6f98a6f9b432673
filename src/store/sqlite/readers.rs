//! Reader threads of a SQLite database, each with its own connection, so that reads block neither each other nor the writer.

use super::error::{Fault, thread_ended};
use crate::store::StoreError;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, oneshot};

type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

/// Queue of reads that wait for a reader thread of the SQLite database. Adding a read wakes one thread. With a shared channel receiver,
/// the threads would wake each other to pass the receiver on.
pub(super) struct ReadQueue {
    state: Mutex<QueueState>,
    job_added: Condvar,
    /// Condition variable that is notified when the last reader thread has ended.
    readers_ended: Condvar,
    /// Semaphore with one permit for each further read that fits into the queue. Closed when all threads have ended.
    permits: Semaphore,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<ReadJob>,
    /// Number of running reader threads.
    readers: usize,
    /// If `true`, no more reads can be added to the queue.
    is_closed: bool,
}

/// Sending side of the queue of reads. Dropping it ends the threads.
pub(super) struct ReadSender(Arc<ReadQueue>);

pub(super) fn queue(capacity: usize) -> (ReadSender, Arc<ReadQueue>) {
    let queue = Arc::new(ReadQueue {
        state: Mutex::default(),
        job_added: Condvar::new(),
        readers_ended: Condvar::new(),
        permits: Semaphore::new(capacity),
    });
    (ReadSender(Arc::clone(&queue)), queue)
}

/// A reader thread that runs the reads of a queue until the queue is closed and empty.
pub(super) struct Reader {
    // Fields drop in this order, so the connection is closed before the thread counts as ended.
    connection: Connection,
    registration: ReaderRegistration,
}

/// Guard that counts a reader thread as running, and closes the queue of reads when the last reader thread drops its guard.
struct ReaderRegistration(Arc<ReadQueue>);

impl Reader {
    pub(super) fn new(connection: Connection, queue: &Arc<ReadQueue>) -> Self {
        queue.lock().readers += 1;
        Self {
            connection,
            registration: ReaderRegistration(Arc::clone(queue)),
        }
    }

    pub(super) fn run(self) {
        while let Some(job) = self.registration.0.next() {
            job(&self.connection);
        }
    }
}

impl Drop for ReaderRegistration {
    /// Closes the queue of reads when the last reader thread ends, even if this thread panicked. Waiting callers then receive an error and
    /// do not wait forever.
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.readers -= 1;
        if state.readers == 0 {
            state.is_closed = true;
            self.0.permits.close();
            drop(std::mem::take(&mut state.jobs));
            self.0.readers_ended.notify_all();
        }
    }
}

impl ReadQueue {
    /// Adds a read to the queue, or drops it if all reader threads have ended.
    fn push(&self, job: ReadJob) {
        let mut state = self.lock();
        if !state.is_closed {
            state.jobs.push_back(job);
        }
        drop(state);
        self.job_added.notify_one();
    }

    /// Waits for the next read in the queue. Returns `None` if the queue is closed and empty.
    fn next(&self) -> Option<ReadJob> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                self.permits.add_permits(1);
                return Some(job);
            }
            if state.is_closed {
                return None;
            }
            state = self
                .job_added
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the last reader thread has ended and its SQLite connection is closed. Blocks.
    pub(super) fn wait_for_readers(&self) {
        let mut state = self.lock();
        while state.readers > 0 {
            state = self
                .readers_ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadSender {
    /// Returns `true` if all reader threads have ended, for example because of panics.
    pub(super) fn is_closed(&self) -> bool {
        self.0.permits.is_closed()
    }

    /// Runs a read on one snapshot of the SQLite file in a reader thread. The second argument of `work` returns `true` while the caller
    /// waits for the result.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &dyn Fn() -> bool) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let job = move |connection: &Connection| {
            let has_caller = || !reply.is_closed();
            if has_caller() {
                let read = snapshot(connection, |connection| work(connection, &has_caller));
                drop(reply.send(read.map_err(StoreError::from)));
            }
        };
        let permit = self.0.permits.acquire().await.map_err(|_| thread_ended())?;
        permit.forget();
        self.0.push(Box::new(job));
        answer.await.map_err(|_| thread_ended())?
    }
}

impl Drop for ReadSender {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.job_added.notify_all();
    }
}

fn snapshot<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let end = |sql| connection.prepare_cached(sql)?.execute(());
    connection.prepare_cached("BEGIN")?.execute(())?;
    let read = work(connection);
    if let Err(error) = end("COMMIT") {
        // If this fails too, the next snapshot cannot begin and reports the cause.
        drop(end("ROLLBACK"));
        return Err(error.into());
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_read_without_reader_threads_is_an_error() {
        let (reads, queue) = queue(1);
        let last = Reader::new(Connection::open_in_memory().unwrap(), &queue);
        let last = std::thread::spawn(|| last.run());

        let unanswered = reads.read(|_, _| -> Result<(), Fault> { panic!("planned by the test") });
        assert!(unanswered.await.is_err());
        assert!(last.join().is_err());

        assert!(reads.read(|_, _| Ok(())).await.is_err());
    }
}

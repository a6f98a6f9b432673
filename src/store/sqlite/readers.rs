//! The threads that read, each with a connection of its own, so that they hold up neither each other nor the writer.

use super::error::{Fault, ended};
use crate::store::StoreError;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, oneshot};

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// Jobs that wait for a thread. A job wakes one thread and a thread that takes it no other, as they would if they took
/// turns in waiting at a channel.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    /// Told when the last thread is gone.
    deserted: Condvar,
    /// One for each job that may still come; closed when nobody is left to do it.
    places: Semaphore,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// How many threads there are.
    readers: usize,
    /// Whether no more jobs come.
    is_closed: bool,
}

/// Where jobs are handed over. When it goes the threads end.
pub(super) struct Reads(Arc<Queue>);

pub(super) fn queue(places: usize) -> (Reads, Arc<Queue>) {
    let queue = Arc::new(Queue {
        waiting: Mutex::default(),
        arrived: Condvar::new(),
        deserted: Condvar::new(),
        places: Semaphore::new(places),
    });
    (Reads(Arc::clone(&queue)), queue)
}

/// A thread that does jobs, until there can be no more.
pub(super) struct Reader {
    // Closed before the thread counts as gone.
    connection: Connection,
    place: Place,
}

/// A thread's place among those that read.
struct Place(Arc<Queue>);

impl Reader {
    pub(super) fn new(connection: Connection, queue: &Arc<Queue>) -> Self {
        queue.lock().readers += 1;
        Self {
            connection,
            place: Place(Arc::clone(queue)),
        }
    }

    pub(super) fn run(self) {
        while let Some(job) = self.place.0.next() {
            job(&self.connection);
        }
    }
}

impl Drop for Place {
    /// After a panic too: once there is no thread left nobody shall wait for one.
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.readers -= 1;
        if waiting.readers == 0 {
            waiting.is_closed = true;
            self.0.places.close();
            drop(std::mem::take(&mut waiting.jobs));
            self.0.deserted.notify_all();
        }
    }
}

impl Queue {
    /// Adds a job, or drops it if nobody is left to do it.
    fn push(&self, job: Job) {
        let mut waiting = self.lock();
        if !waiting.is_closed {
            waiting.jobs.push_back(job);
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Waits for a job; none if there can be no more.
    fn next(&self) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                self.places.add_permits(1);
                return Some(job);
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self
                .arrived
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the last thread is gone and its connection closed. For a thread.
    pub(super) fn wait_deserted(&self) {
        let mut waiting = self.lock();
        while waiting.readers > 0 {
            waiting = self
                .deserted
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reads {
    /// Returns `true` if all readers have ended, for example because of panics.
    pub(super) fn is_closed(&self) -> bool {
        self.0.places.is_closed()
    }

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
        let place = self.0.places.acquire().await.map_err(|_| ended())?;
        place.forget();
        self.0.push(Box::new(job));
        answer.await.map_err(|_| ended())?
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.arrived.notify_all();
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
        // If this fails too the next snapshot cannot begin, and says so.
        drop(end("ROLLBACK"));
        return Err(error.into());
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_for_threads_that_are_gone_is_told_so() {
        let (reads, queue) = queue(1);
        let last = Reader::new(Connection::open_in_memory().unwrap(), &queue);
        let last = std::thread::spawn(|| last.run());

        let unanswered = reads.read(|_, _| -> Result<(), Fault> { panic!("as a test") });
        assert!(unanswered.await.is_err());
        assert!(last.join().is_err());

        assert!(reads.read(|_, _| Ok(())).await.is_err());
    }
}

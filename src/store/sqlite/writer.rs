//! Writer thread of a SQLite database. One transaction commits all waiting jobs (store operations), because a commit costs more than the
//! writes. Each job has its own savepoint, so a failed job does not roll back the others. The writer sends the results after the commit.

use super::acknowledged;
use super::error::SqliteError;
use super::guard::{FileGuard, TransactionFailure};
use super::job::Job;
use super::progress::Progress;
use super::schema;
use super::wake_ups::WakeUps;
use super::writer_queue::{QueueLock, WriterQueue};
use crate::error::Chain;
use crate::error::Retry;
use crate::store::durable::cursor::AcknowledgedPositions;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Maximum number of jobs (store operations) that the SQLite writer receives at once.
const MOST: usize = 128;
/// Duration after which a transaction of the SQLite writer accepts no more jobs (store operations).
const LONG: Duration = Duration::from_millis(50);

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) progress: Arc<Progress>,
    pub(super) acknowledged: Arc<AcknowledgedPositions>,
    pub(super) guard: Arc<FileGuard>,
    pub(super) wake_ups: WakeUps,
    pub(super) queue: WriterQueue,
    pub(super) busy_timeout: Duration,
}

impl Writer {
    /// Runs jobs (store operations) until the last sender is dropped, waits until the other connections are closed, and closes the SQLite
    /// file. SQLite deletes the WAL file when the last connection closes. If two connections close at the same time, neither of them
    /// deletes it.
    pub(super) fn run(
        mut self,
        mut jobs: mpsc::Receiver<Box<dyn Job>>,
        others_closed: impl FnOnce(),
    ) {
        let mut waiting = Vec::with_capacity(MOST);
        while jobs.blocking_recv_many(&mut waiting, MOST) > 0 {
            let mut waiting: VecDeque<_> = waiting.drain(..).collect();
            while !waiting.is_empty() {
                self.transaction(&mut waiting);
            }
        }
        // Stores acknowledgements that no job has stored, and removes the registration of this process.
        let mut last: VecDeque<_> = self.wake_ups.unregister_job().into_iter().collect();
        if !self.acknowledged.is_empty() || !last.is_empty() {
            self.transaction(&mut last);
        }
        others_closed();
    }

    /// Runs one SQLite transaction with the waiting jobs (store operations), until [`LONG`] has passed, and sends their results.
    fn transaction(&mut self, waiting: &mut VecDeque<Box<dyn Job>>) {
        self.progress.begin();
        let positions = self.acknowledged.take();
        let mut started = Vec::new();
        let committed = self.commit(waiting, &mut started, |connection| {
            acknowledged::store(connection, &positions)
        });
        let failure = committed.and_then(|()| self.guard.check_files()).err();
        if let Some(TransactionFailure::Driver(error)) = &failure {
            self.guard.record_driver_error(error);
        }
        if let Some(error) = &failure {
            tracing::warn!(path = &*self.guard.path(), error = %Chain(&error.error()), jobs = started.len(), "a SQLite transaction failed or was rolled back; its callers receive the error");
            self.acknowledged.put_back(positions);
        }
        let has_events = failure.is_none() && started.iter().any(|job| job.has_events());
        for job in started {
            job.finish(failure.as_ref());
        }
        self.progress.end();
        if has_events {
            self.progress.announce();
        }
        if failure.is_none() {
            self.wake_ups.committed();
        }
    }

    /// Begins a SQLite transaction, runs the waiting jobs (store operations) in it, and commits it. `started` receives every job
    /// that was started, even if the transaction is rolled back.
    fn commit(
        &mut self,
        waiting: &mut VecDeque<Box<dyn Job>>,
        started: &mut Vec<Box<dyn Job>>,
        last: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<(), TransactionFailure> {
        let turn = match self.begin() {
            Ok(turn) => turn,
            Err(failure) => {
                // No job can write now. All waiting callers receive the error at once, instead of one timeout after the other.
                started.extend(waiting.drain(..).filter(|job| job.start()));
                return Err(failure);
            }
        };
        let connection = &self.connection;
        let work = self.work(waiting, started).and_then(|()| last(connection));
        let work = work.and_then(|()| {
            let has_events = started.iter().any(|job| job.has_events());
            self.wake_ups.prepare(connection, has_events)
        });
        let committed = work.and_then(|()| connection.execute_batch("COMMIT"));
        if committed.is_err() && !connection.is_autocommit() {
            // If the rollback fails, the next transaction cannot begin and reports the cause.
            drop(connection.execute_batch("ROLLBACK"));
        }
        drop(turn);
        committed.map_err(TransactionFailure::from)
    }

    /// Begins a transaction of the SQLite writer. Fails if the store accepts no writes, or if a newer version of this crate migrated the
    /// file. Returns the turn of the writer, if it has one.
    fn begin(&mut self) -> Result<Option<QueueLock>, TransactionFailure> {
        self.guard.accepts_writes()?;
        let wait_started = Instant::now();
        let turn = self.queue.wait_for_turn();
        let connection = &self.connection;
        // The wait for the turn is part of the busy timeout.
        connection.busy_timeout(self.busy_timeout.saturating_sub(wait_started.elapsed()))?;
        let begin = connection.execute_batch("BEGIN IMMEDIATE");
        connection.busy_timeout(self.busy_timeout)?;
        begin?;
        let Err(error) = schema::check(connection).map_err(SqliteError::from) else {
            return Ok(turn);
        };
        let error = error.at(connection.path().unwrap_or_default().as_ref());
        // If the rollback fails, the next transaction cannot begin and reports the cause.
        drop(connection.execute_batch("ROLLBACK"));
        Err(match error.retry() {
            Retry::Never => self.guard.refuse_writes(error),
            Retry::After(_) => TransactionFailure::WritesRefused(Arc::new(error)),
        })
    }

    fn work(
        &self,
        waiting: &mut VecDeque<Box<dyn Job>>,
        started: &mut Vec<Box<dyn Job>>,
    ) -> rusqlite::Result<()> {
        let start = Instant::now();
        while let Some(mut job) = waiting.pop_front() {
            if !job.start() {
                continue;
            }
            let result = job.run(&self.connection);
            started.push(job);
            result?;
            if start.elapsed() > LONG {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Task;
    use super::super::progress::{CallerGuard, JobState};
    use super::*;
    use crate::store::StoreError;
    use tokio::sync::oneshot;

    type Reply = oneshot::Receiver<Result<usize, StoreError>>;

    /// Creates a writer for a database that can grow by `pages` pages.
    fn writer(pages: i64) -> Writer {
        let mut connection = Connection::open_in_memory().unwrap();
        crate::store::sqlite::schema::migrate(&mut connection).unwrap();
        connection
            .execute_batch("CREATE TABLE kept (bytes BLOB)")
            .unwrap();
        let count = connection.query_row("PRAGMA page_count", (), |row| row.get::<_, i64>(0));
        connection
            .pragma_update(None, "max_page_count", count.unwrap() + pages)
            .unwrap();
        Writer {
            connection,
            progress: Arc::default(),
            acknowledged: Arc::default(),
            guard: Arc::default(),
            wake_ups: WakeUps::new(None),
            queue: WriterQueue::none(),
            busy_timeout: Duration::ZERO,
        }
    }

    /// Creates a job that writes `size` bytes.
    fn job(size: usize) -> (Box<dyn Job>, Reply, JobState) {
        let work = move |connection: &Connection| {
            connection.execute("INSERT INTO kept VALUES (zeroblob(?1))", [size as i64])?;
            Ok((size, false))
        };
        let (task, reply, state) = Task::new(work, |_: &usize| ());
        (Box::new(task), reply, state)
    }

    fn stored_sizes(writer: &Writer) -> Vec<usize> {
        let mut rows = writer
            .connection
            .prepare("SELECT length(bytes) FROM kept ORDER BY rowid")
            .unwrap();
        let sizes = rows.query_map((), |row| row.get::<_, i64>(0)).unwrap();
        sizes.map(|size| size.unwrap() as usize).collect()
    }

    #[test]
    fn a_job_that_fills_the_disk_fails_and_other_jobs_are_stored() {
        let mut writer = writer(20);
        let (jobs, mut replies): (VecDeque<_>, Vec<_>) = [10, 1_000_000, 20]
            .map(job)
            .into_iter()
            .map(|(job, reply, _)| (job, reply))
            .unzip();

        let mut waiting = jobs;
        while !waiting.is_empty() {
            writer.transaction(&mut waiting);
        }

        let answers: Vec<_> = replies
            .iter_mut()
            .map(|reply| reply.try_recv().unwrap())
            .collect();
        let reported: Vec<usize> = answers.iter().flatten().copied().collect();
        assert_eq!(
            reported,
            stored_sizes(&writer),
            "the results match the stored rows"
        );
        let full = answers.into_iter().nth(1).unwrap().unwrap_err();
        assert!(matches!(full, StoreError::Unavailable { .. }), "{full:?}");
        assert!(matches!(full.retry(), crate::error::Retry::After(_)));
        let (job, mut reply, _) = job(30);
        writer.transaction(&mut VecDeque::from([job]));
        assert_eq!(
            reply.try_recv().unwrap().unwrap(),
            30,
            "the writer continues"
        );
    }

    #[test]
    fn a_job_whose_caller_went_before_it_began_is_not_done() {
        let mut writer = writer(20);
        let (awaited, abandoned) = (job(1), job(2));

        drop(CallerGuard::new(abandoned.2, &writer.progress));
        writer.transaction(&mut VecDeque::from([abandoned.0, awaited.0]));

        assert_eq!(stored_sizes(&writer), [1]);
    }
}

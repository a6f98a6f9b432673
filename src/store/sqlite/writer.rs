//! Writer thread of a SQLite database. One transaction commits all waiting jobs, because a commit costs more than the writes. Each job has
//! its own savepoint, so a failed job does not roll back the others. The writer sends the results after the commit.

use super::acknowledged;
use super::error::SqliteError;
use super::guard::{Guard, Undone};
use super::job::Job;
use super::progress::Progress;
use super::schema;
use super::turns::{Turn, Turns};
use super::wake_ups::WakeUps;
use crate::error::Chain;
use crate::error::Retry;
use crate::store::durable::cursor::Acknowledged;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Maximum number of jobs (store operations) that the SQLite writer receives at once.
const MOST: usize = 128;
/// Duration after which a transaction of the SQLite writer accepts no more jobs.
const LONG: Duration = Duration::from_millis(50);

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) progress: Arc<Progress>,
    pub(super) acknowledged: Arc<Acknowledged>,
    pub(super) guard: Arc<Guard>,
    pub(super) wake_ups: WakeUps,
    pub(super) turns: Turns,
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
        let mut last: VecDeque<_> = self.wake_ups.leave().into_iter().collect();
        if !self.acknowledged.is_empty() || !last.is_empty() {
            self.transaction(&mut last);
        }
        others_closed();
    }

    /// Runs one SQLite transaction with the waiting jobs (store operations), until [`LONG`] has passed, and sends their results.
    fn transaction(&mut self, waiting: &mut VecDeque<Box<dyn Job>>) {
        self.progress.begin();
        let positions = self.acknowledged.take();
        let mut done = Vec::new();
        let committed = self.commit(waiting, &mut done, |connection| {
            acknowledged::store(connection, &positions)
        });
        let undone = committed.and_then(|()| self.guard.check_files()).err();
        if let Some(Undone::Driver(error)) = &undone {
            self.guard.note_driver(error);
        }
        if let Some(error) = &undone {
            tracing::warn!(path = &*self.guard.path(), error = %Chain(&error.error()), jobs = done.len(), "a SQLite transaction failed or was rolled back; its callers receive the error");
            self.acknowledged.put_back(positions);
        }
        let has_events = undone.is_none() && done.iter().any(|job| job.has_events());
        for job in done {
            job.finish(undone.as_ref());
        }
        self.progress.end();
        if has_events {
            self.progress.announce();
        }
        if undone.is_none() {
            self.wake_ups.committed();
        }
    }

    /// Commits one SQLite transaction with the waiting jobs (store operations). `done` receives every job that was started, even if the
    /// transaction is rolled back.
    fn commit(
        &mut self,
        waiting: &mut VecDeque<Box<dyn Job>>,
        done: &mut Vec<Box<dyn Job>>,
        last: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<(), Undone> {
        let turn = match self.begin() {
            Ok(turn) => turn,
            Err(undone) => {
                // No job can write now. All waiting callers receive the error at once, instead of one timeout after the other.
                done.extend(waiting.drain(..).filter(|job| job.begin()));
                return Err(undone);
            }
        };
        let connection = &self.connection;
        let worked = self.work(waiting, done).and_then(|()| last(connection));
        let worked = worked.and_then(|()| {
            let has_events = done.iter().any(|job| job.has_events());
            self.wake_ups.prepare(connection, has_events)
        });
        let committed = worked.and_then(|()| connection.execute_batch("COMMIT"));
        if committed.is_err() && !connection.is_autocommit() {
            // If the rollback fails, the next transaction cannot begin and reports the cause.
            drop(connection.execute_batch("ROLLBACK"));
        }
        drop(turn);
        committed.map_err(Undone::from)
    }

    /// Begins a transaction of the SQLite writer. Fails if the store accepts no writes, or if a newer version of this crate migrated the
    /// file. Returns the turn of the writer, if it has one.
    fn begin(&mut self) -> Result<Option<Turn>, Undone> {
        self.guard.accepts_writes()?;
        let waiting = Instant::now();
        let turn = self.turns.take();
        let connection = &self.connection;
        // The wait for the turn is part of the busy timeout.
        connection.busy_timeout(self.busy_timeout.saturating_sub(waiting.elapsed()))?;
        let begun = connection.execute_batch("BEGIN IMMEDIATE");
        connection.busy_timeout(self.busy_timeout)?;
        begun?;
        let Err(error) = schema::check(connection).map_err(SqliteError::from) else {
            return Ok(turn);
        };
        let error = error.at(connection.path().unwrap_or_default().as_ref());
        // If the rollback fails, the next transaction cannot begin and reports the cause.
        drop(connection.execute_batch("ROLLBACK"));
        Err(match error.retry() {
            Retry::Never => self.guard.refuse_writes(error),
            Retry::After(_) => Undone::Broken(Arc::new(error)),
        })
    }

    fn work(
        &self,
        waiting: &mut VecDeque<Box<dyn Job>>,
        done: &mut Vec<Box<dyn Job>>,
    ) -> rusqlite::Result<()> {
        let begun = Instant::now();
        while let Some(mut job) = waiting.pop_front() {
            if !job.begin() {
                continue;
            }
            let worked = job.run(&self.connection);
            done.push(job);
            worked?;
            if begun.elapsed() > LONG {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Task;
    use super::super::progress::{Fate, Watcher};
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
            turns: Turns::none(),
            busy_timeout: Duration::ZERO,
        }
    }

    /// Creates a job that writes `size` bytes.
    fn job(size: usize) -> (Box<dyn Job>, Reply, Fate) {
        let work = move |connection: &Connection| {
            connection.execute("INSERT INTO kept VALUES (zeroblob(?1))", [size as i64])?;
            Ok((size, false))
        };
        let (task, reply, fate) = Task::new(work, |_: &usize| ());
        (Box::new(task), reply, fate)
    }

    fn kept(writer: &Writer) -> Vec<usize> {
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
        let told: Vec<usize> = answers.iter().flatten().copied().collect();
        assert_eq!(told, kept(&writer), "the results match the stored rows");
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
        let (wanted, given_up) = (job(1), job(2));

        drop(Watcher::begin(given_up.2, &writer.progress));
        writer.transaction(&mut VecDeque::from([given_up.0, wanted.0]));

        assert_eq!(kept(&writer), [1]);
    }
}

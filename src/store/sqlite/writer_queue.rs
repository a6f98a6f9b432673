//! Queue in which the SQLite writers of several processes wait for their turn to write to one file. The queue limits the wait of
//! a writer while another writer commits repeatedly.
//!
//! A writer takes the lock *turn*, then the lock *write*, and releases *turn*. While it writes, only one other writer has the lock *turn*,
//! so the next transaction belongs to that writer. The locks only decide the order. SQLite's own lock protects the file, also from
//! programs that do not queue.

use crate::error::Chain;
use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between a writer's attempts to lock a lock file. It is the same for all writers, so a writer that joins the queue late has no
/// advantage.
const PAUSE: Duration = Duration::from_micros(300);

/// Duration for which a SQLite writer does not wait for its turn again after a wait in the queue has timed out.
const NO_WAIT: Duration = Duration::from_secs(1);

/// Access of one SQLite writer to the queue of the writers of all processes.
#[derive(Debug)]
pub(super) struct WriterQueue {
    /// Lock files of the queue of writers, or `None` if they cannot be created or locked.
    files: Option<LockFiles>,
    /// Maximum time for which the SQLite writer waits in the queue for its turn to write.
    wait_timeout: Duration,
    /// Time until which the SQLite writer writes without a wait in the queue, because an earlier wait timed out. The process that
    /// holds the lock may be stopped.
    no_wait_until: Option<Instant>,
}

#[derive(Debug)]
struct LockFiles {
    turn: Arc<File>,
    write: Arc<File>,
}

/// A lock that a SQLite writer holds on a lock file of the writers' queue. While the writer waits for its transaction, it holds a lock
/// on the file *turn*. During the transaction, it holds a lock on the file *write*. Dropping this value releases the lock.
#[derive(Debug)]
pub(super) struct QueueLock(Arc<File>);

impl WriterQueue {
    /// Opens the lock files of the writers' queue next to the SQLite file at `path`, and creates them if they are missing.
    pub(super) fn of(path: &Path, wait_timeout: Duration) -> Self {
        let files = match (open(path, "-turn"), open(path, "-write")) {
            (Ok(turn), Ok(write)) => Some(LockFiles { turn, write }),
            (Err(error), _) | (_, Err(error)) => {
                tracing::debug!(
                    path = &*path.to_string_lossy(),
                    error = %Chain(&error),
                    "cannot open the lock files; SQLite writers of several processes compete without a queue"
                );
                None
            }
        };
        Self {
            files,
            wait_timeout,
            no_wait_until: None,
        }
    }

    /// Returns a queue without lock files, for a SQLite writer that does not wait for other writers.
    pub(super) fn none() -> Self {
        Self {
            files: None,
            wait_timeout: Duration::ZERO,
            no_wait_until: None,
        }
    }

    /// Waits for the turn of this SQLite writer among the writers of all processes. Returns `None` after a timeout, or if there is no
    /// queue. Then only SQLite's lock decides. Blocks.
    pub(super) fn wait_for_turn(&mut self) -> Option<QueueLock> {
        let files = self.files.as_ref()?;
        let now = Instant::now();
        let skips_wait = self.no_wait_until.is_some_and(|end| now < end);
        let until = match skips_wait {
            true => now,
            false => now + self.wait_timeout,
        };
        let locked = lock(&files.turn, until).and_then(|turn| {
            let write = lock(&files.write, until)?;
            drop(turn);
            Ok(write)
        });
        match locked {
            Ok(turn) => {
                self.no_wait_until = None;
                Some(turn)
            }
            Err(TryLockError::WouldBlock) => {
                if !skips_wait {
                    self.no_wait_until = Some(Instant::now() + NO_WAIT);
                }
                None
            }
            Err(TryLockError::Error(error)) => {
                tracing::debug!(error = %Chain(&error), "cannot lock the lock files; SQLite writers of several processes compete without \
                    a queue");
                self.files = None;
                None
            }
        }
    }
}

impl Drop for QueueLock {
    fn drop(&mut self) {
        // A lock that cannot be released ends with the file, and other writers wait for it only for a limited time.
        drop(self.0.unlock());
    }
}

/// Waits until a lock file of the SQLite writers' queue is locked. Fails with [`TryLockError::WouldBlock`] at the time `until`.
///
/// [`File::lock`] has no timeout, so this function polls. At most one writer waits for *write*, and gets it within one pause.
fn lock(file: &Arc<File>, until: Instant) -> Result<QueueLock, TryLockError> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(QueueLock(Arc::clone(file))),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

fn open(path: &Path, suffix: &str) -> std::io::Result<Arc<File>> {
    let mut name = OsString::from(path);
    name.push(suffix);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(name).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(3_600);

    /// A folder for lock files, which is removed at the end of the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let name = format!("universal-executor-turns-{}", uuid::Uuid::new_v4());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn queue(&self, wait_timeout: Duration) -> WriterQueue {
            WriterQueue::of(&self.0.join("store.db"), wait_timeout)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn a_writer_that_waits_gets_its_turn_before_the_current_one_gets_another() {
        let folder = Folder::new();
        let (mut one, mut other) = (folder.queue(LONG), folder.queue(LONG));
        let observer = open(&folder.0.join("store.db"), "-turn").unwrap();
        let (order_sender, order) = mpsc::channel();
        for _ in 0..50 {
            let current = one.wait_for_turn().unwrap();
            let other_sender = order_sender.clone();
            let waiting = std::thread::spawn(move || {
                let turn = other.wait_for_turn().unwrap();
                other_sender.send("other").unwrap();
                drop(turn);
                other
            });
            while observer.try_lock().is_ok() {
                observer.unlock().unwrap();
                std::thread::yield_now();
            }

            drop(current);
            let again = one.wait_for_turn().unwrap();
            order_sender.send("one").unwrap();

            drop(again);
            other = waiting.join().unwrap();
            assert_eq!([order.recv(), order.recv()], [Ok("other"), Ok("one")]);
        }
    }

    #[test]
    fn a_writer_that_never_ends_is_waited_for_once_in_a_while() {
        let folder = Folder::new();
        let (mut stopped, mut other) = (folder.queue(LONG), folder.queue(Duration::ZERO));
        let turn = stopped.wait_for_turn().unwrap();
        assert!(other.wait_for_turn().is_none());
        let observer = open(&folder.0.join("store.db"), "-turn").unwrap();

        other.wait_timeout = LONG;
        other.no_wait_until = other.no_wait_until.map(|end| end + LONG);
        assert!(
            other.wait_for_turn().is_none(),
            "the writer does not wait again too early"
        );

        other.no_wait_until = Some(Instant::now());
        let waiting = std::thread::spawn(move || other.wait_for_turn().is_some());
        while !waiting.is_finished() && observer.try_lock().is_ok() {
            observer.unlock().unwrap();
            std::thread::yield_now();
        }
        drop(turn);
        assert!(waiting.join().unwrap(), "the writer waits again later");
    }

    #[test]
    fn without_lock_files_no_writer_waits() {
        let folder = Folder::new();
        let missing = folder.0.join("missing/store.db");

        assert!(WriterQueue::of(&missing, LONG).wait_for_turn().is_none());
        assert!(WriterQueue::none().wait_for_turn().is_none());
    }
}

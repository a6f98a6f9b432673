//! One open SQLite database: the thread that writes, the threads that read, and the state that all handles share.

use super::acknowledged::StoreAcknowledged;
use super::builder::DatabaseSettings;
use super::cache::VectorCache;
use super::connection;
use super::error::{Fault, SqliteError, thread_ended};
use super::guard::FileGuard;
use super::job::{Job, Task};
use super::listen::Listener;
use super::progress::{CallerGuard, Progress};
use super::readers::{self, ReadQueue, ReadSender, Reader};
use super::sockets::Sockets;
use super::wake_ups::WakeUps;
use super::writer::Writer;
use super::writer_queue::WriterQueue;
use crate::store::durable::cursor::AcknowledgedPositions;
use crate::store::{StoreError, StoreId};
use rusqlite::Connection;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, watch};

/// Maximum number of jobs (store operations) in the queue of the SQLite writer thread, and in the queue of the reader threads.
/// Further callers wait before they can add a job.
const WAITING: usize = 1_024;

/// One open SQLite database of the process. Its threads end and its connections close when the last reference is dropped.
pub(super) struct Database {
    pub(super) path: PathBuf,
    /// Name that identifies the SQLite file. Handles that opened the same file in this process have the same name.
    pub(super) name: Arc<str>,
    pub(super) acknowledged: Arc<AcknowledgedPositions>,
    pub(super) cache: Arc<VectorCache>,
    /// If `true`, a background sweep of expired breadcrumbs is running.
    pub(super) is_sweeping: Arc<AtomicBool>,
    pub(super) is_read_only: bool,
    guard: Arc<FileGuard>,
    progress: Arc<Progress>,
    writes: mpsc::Sender<Box<dyn Job>>,
    reads: ReadSender,
    /// Sender that notifies the listener thread of new event subscriptions. This thread detects commits of other processes. It
    /// ends when the sender is dropped.
    subscribed: watch::Sender<()>,
    /// Receiver that closes when the last thread of the database ends.
    open: watch::Receiver<()>,
}

impl Database {
    /// Opens the SQLite connections, and starts the reader threads and the listener thread. The caller runs the writer.
    pub(super) fn start(
        path: &Path,
        settings: &DatabaseSettings,
    ) -> Result<(Arc<Self>, WriterThread), SqliteError> {
        let (jobs, writes) = mpsc::channel(WAITING);
        let (reads, read_queue) = readers::queue(WAITING);
        let (alive, open) = watch::channel(());
        let (subscribed, subscriptions) = watch::channel(());
        let (progress, acknowledged) = (Arc::<Progress>::default(), Arc::default());
        let (connection, guard) = connect(path, settings, &read_queue, &alive)?;
        let name = guard.name();
        let name = name.unwrap_or_else(|| StoreId::unique("").database().to_owned());
        let sockets = settings.uses_datagrams && !settings.is_read_only;
        let sockets = sockets.then(|| Arc::new(Sockets::of(path)));
        let listener = listen(Listener {
            connection: connection::reader(path, settings)?,
            progress: Arc::clone(&progress),
            poll: settings.poll,
            sockets: sockets.clone(),
            jobs: jobs.downgrade(),
            subscribed: subscriptions,
            data_version: None,
            unchanged_checks: 0,
        })?;
        let queue = match settings.is_read_only {
            true => WriterQueue::none(),
            false => WriterQueue::of(path, settings.busy_timeout / 4),
        };
        let writer = Writer {
            connection,
            wake_ups: WakeUps::new(sockets),
            queue,
            busy_timeout: settings.busy_timeout,
            progress: Arc::clone(&progress),
            acknowledged: Arc::clone(&acknowledged),
            guard: Arc::clone(&guard),
        };
        let writer_thread = WriterThread {
            writer,
            writes,
            read_queue,
            listener,
            _alive: alive,
        };
        let database = Self {
            path: path.to_owned(),
            name: name.into(),
            acknowledged,
            cache: Arc::new(VectorCache::new(settings.vector_cache)),
            is_sweeping: Arc::default(),
            is_read_only: settings.is_read_only,
            guard,
            progress,
            writes: jobs,
            reads,
            subscribed,
            open,
        };
        Ok((Arc::new(database), writer_thread))
    }

    /// Returns `true` if a new store handle can share this database: its threads run, and it accepts writes or is read-only.
    pub(super) fn is_usable(&self) -> bool {
        // A panic in a job ends its thread.
        let is_running = !self.writes.is_closed() && !self.reads.is_closed();
        is_running && (self.is_read_only || self.guard.check_files().is_ok())
    }

    /// Runs a job (store operation) in the next transaction of the writer thread, and returns its result after the commit. The second part
    /// of the job's result is `true` if it wrote events.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<(T, bool), Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (task, answer, state) = Task::new(work, |_: &T| ());
        let permit = self.writes.reserve().await.map_err(|_| thread_ended())?;
        let mut caller_guard = CallerGuard::new(state, &self.progress);
        permit.send(Box::new(task));
        let answer = answer.await;
        caller_guard.received();
        answer.map_err(|_| thread_ended())?
    }

    /// Returns a handle on the writer's job queue that does not keep the writer thread running.
    pub(super) fn jobs(&self) -> mpsc::WeakSender<Box<dyn Job>> {
        self.writes.downgrade()
    }

    /// Waits until the writer thread has ended all jobs (store operations) whose callers no longer wait for the result.
    pub(super) async fn wait_for_abandoned_jobs(&self) {
        self.progress.wait_for_abandoned_jobs().await;
    }

    /// Runs a read of a store operation on a snapshot of the SQLite file that contains every confirmed commit.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &dyn Fn() -> bool) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.wait_for_abandoned_jobs().await;
        let guard = Arc::clone(&self.guard);
        let work = move |connection: &Connection, has_caller: &dyn Fn() -> bool| {
            work(connection, has_caller).inspect_err(|fault| guard.record_error(fault))
        };
        self.reads.read(work).await
    }

    /// Returns a future that ends when the threads of the database have ended and the SQLite file is closed.
    pub(super) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let mut open = self.open.clone();
        // No value is ever sent. The receiver fails when the last thread ends.
        async move { while open.changed().await.is_ok() {} }
    }

    /// Returns a receiver of a value that changes when there may be new events, including events of other processes.
    pub(super) fn announced(&self) -> watch::Receiver<u64> {
        let announced = self.progress.announced.subscribe();
        self.subscribed.send_replace(());
        announced
    }

    /// Returns a future that ends when the current acknowledgements of event consumers are stored or cannot be stored. The future does not
    /// keep the database open.
    pub(super) fn acknowledgements_stored(&self) -> impl Future<Output = ()> + use<> {
        let (jobs, progress) = (self.jobs(), Arc::clone(&self.progress));
        let acknowledged = Arc::clone(&self.acknowledged);
        async move {
            // A transaction takes the acknowledgements after it begins, so this order of the checks misses none.
            if acknowledged.is_empty() && progress.is_idle() {
                return;
            }
            let (task, answer, _) = Task::new(|_: &Connection| Ok(((), false)), |(): &()| ());
            let Some(jobs) = jobs.upgrade() else { return };
            if jobs.send(Box::new(task)).await.is_ok() {
                drop(jobs);
                // The writer logs the error.
                drop(answer.await);
            }
        }
    }

    /// Starts a transaction that stores the positions up to which event consumers have acknowledged events. If the queue is full,
    /// the next transaction stores them.
    pub(super) fn store_acknowledged(&self) {
        drop(self.writes.try_send(Box::new(StoreAcknowledged)));
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// State that the writer thread of a new SQLite database takes over when the thread starts. Contains the receiving end of the queue of
/// writes, and the queue of the reader threads.
pub(super) struct WriterThread {
    writer: Writer,
    writes: mpsc::Receiver<Box<dyn Job>>,
    read_queue: Arc<ReadQueue>,
    listener: JoinHandle<()>,
    _alive: watch::Sender<()>,
}

impl WriterThread {
    /// Runs the waiting writes of a SQLite database until the last handle is dropped, then closes the file.
    pub(super) fn run(self) {
        let (read_queue, listener) = (self.read_queue, self.listener);
        self.writer.run(self.writes, || {
            read_queue.wait_for_readers();
            // A listener that panicked has closed its connection too.
            drop(listener.join());
        });
    }
}

/// Opens the SQLite connection of the writer thread, and starts the reader threads.
fn connect(
    path: &Path,
    settings: &DatabaseSettings,
    jobs: &Arc<ReadQueue>,
    alive: &watch::Sender<()>,
) -> Result<(Connection, Arc<FileGuard>), SqliteError> {
    let writer = connection::writer(path, settings)?;
    let guard = Arc::new(match settings.is_read_only {
        true => FileGuard::read_only(path),
        false => FileGuard::of(path)?,
    });
    for _ in 0..settings.readers.max(1) {
        let reader = Reader::new(connection::reader(path, settings)?, jobs);
        let alive = alive.clone();
        drop(spawn("sqlite-reader", move || {
            reader.run();
            drop(alive);
        })?);
    }
    Ok((writer, guard))
}

/// Starts the thread that detects commits of other processes, with a separate event loop, because the caller's runtime may not support
/// sockets.
fn listen(listener: Listener) -> Result<JoinHandle<()>, SqliteError> {
    let event_loop = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(no_resources)?;
    spawn("sqlite-listener", move || {
        event_loop.block_on(listener.run())
    })
}

/// Starts a named background thread of a SQLite database.
pub(super) fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, SqliteError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(run).map_err(no_resources)
}

/// Returns the error of a system without free threads or file descriptors for a SQLite database.
fn no_resources(error: std::io::Error) -> SqliteError {
    SqliteError::Unavailable {
        retry_after: std::time::Duration::from_secs(1),
        source: error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::builder::Durability;
    use super::*;
    use std::time::Duration;

    fn settings() -> DatabaseSettings {
        DatabaseSettings {
            file_bytes: None,
            durability: Durability::Normal,
            busy_timeout: Duration::from_secs(5),
            poll: Duration::from_secs(1),
            readers: 1,
            vector_cache: 0,
            is_read_only: false,
            uses_datagrams: false,
            is_shared: true,
        }
    }

    #[tokio::test]
    async fn a_database_with_a_panicked_thread_is_opened_again_for_a_new_handle() {
        let folder =
            std::env::temp_dir().join(format!("universal-executor-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("store.db");
        let no_writer = Database::open(&file, settings()).await.unwrap();
        let same = Database::open(&file, settings()).await.unwrap();
        assert!(Arc::ptr_eq(&no_writer, &same));
        let write = |_: &Connection| -> Result<((), bool), Fault> { panic!("planned by the test") };
        assert!(no_writer.write(write).await.is_err());
        no_writer.writes.closed().await;

        let no_reader = Database::open(&file, settings()).await.unwrap();
        assert!(no_reader.write(|_| Ok(((), false))).await.is_ok());
        let read = |_: &Connection, _: &dyn Fn() -> bool| -> Result<(), Fault> {
            panic!("planned by the test")
        };
        assert!(no_reader.read(read).await.is_err());
        assert!(no_reader.read(|_, _| Ok(())).await.is_err());

        let new = Database::open(&file, settings()).await.unwrap();
        assert!(new.read(|_, _| Ok(())).await.is_ok());

        std::fs::remove_dir_all(&folder).unwrap();
    }
}

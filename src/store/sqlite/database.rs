//! One open file: the thread that writes, those that read, and what its handles share.

use super::builder::Settings;
use super::cache::Cache;
use super::connection;
use super::error::{Fault, SqliteError, ended};
use super::guard::Guard;
use super::progress::{Progress, Watcher};
use super::readers::{self, Queue, Reader, Reads};
use super::sweep::Sweep;
use super::tenant::Writing;
use super::writer::{Job, StoreAcknowledged, Task, Writer};
use crate::store::durable::cursor::Acknowledged;
use crate::store::durable::tenant::Time;
use crate::store::meaning::Keepers;
use crate::store::{StoreError, StoreId};
use rusqlite::Connection;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{mpsc, oneshot, watch};

/// How many jobs may wait for the writer, and how many for the readers; who has more waits to hand it over.
const WAITING: usize = 1_024;

/// One open file. When the last pointer to it goes the threads end.
pub(super) struct Database {
    pub(super) path: PathBuf,
    /// Name of the database. Handles that opened the same file in this process have the same name.
    pub(super) name: Arc<str>,
    pub(super) settings: Arc<Settings>,
    pub(super) time: Arc<Time>,
    pub(super) acknowledged: Arc<Acknowledged>,
    /// None: nothing has a vector.
    pub(super) keepers: Option<Keepers>,
    pub(super) cache: Arc<Cache>,
    guard: Arc<Guard>,
    progress: Arc<Progress>,
    writes: mpsc::Sender<Box<dyn Job>>,
    /// Whether a sweep is going on.
    sweeping: Arc<AtomicBool>,
    reads: Reads,
    /// Its other side goes with the last thread.
    open: watch::Receiver<()>,
}

impl Database {
    /// Opens the file on the thread that will write to it.
    pub(super) async fn open(path: PathBuf, settings: Settings) -> Result<Self, SqliteError> {
        let absolute = connection::absolute(&path)?;
        let keepers = settings.meaning.clone().map(Keepers::new);
        let cache = Arc::new(Cache::new(settings.vector_cache));
        let settings = Arc::new(settings);
        let (jobs, writes) = mpsc::channel(WAITING);
        let (reads, reading) = readers::queue(WAITING);
        let progress = Arc::new(Progress::default());
        let acknowledged = Arc::new(Acknowledged::default());
        let (opened, is_open) = oneshot::channel();
        let (alive, open) = watch::channel(());
        let start = {
            let (path, settings) = (absolute.clone(), Arc::clone(&settings));
            let (progress, acknowledged) = (Arc::clone(&progress), Arc::clone(&acknowledged));
            move || match start(&path, &settings, &reading, &alive) {
                Ok((connection, guard)) => {
                    // Who opens may have gone: then nobody has a handle, and the loop ends at once.
                    drop(opened.send(Ok(Arc::clone(&guard))));
                    let writer = Writer {
                        connection,
                        progress,
                        acknowledged,
                        guard,
                    };
                    writer.run(writes, || reading.wait_deserted());
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        };
        spawn("sqlite-writer", start)?;
        let guard = is_open.await.map_err(|error| SqliteError::Unavailable {
            retry_after: std::time::Duration::from_secs(1),
            source: error.into(),
        })??;
        let name = guard.name();
        let name = name.unwrap_or_else(|| StoreId::unique("").database().to_owned());
        Ok(Self {
            name: name.into(),
            path: absolute,
            settings,
            time: Arc::default(),
            acknowledged,
            keepers,
            cache,
            guard,
            progress,
            writes: jobs,
            sweeping: Arc::default(),
            reads,
            open,
        })
    }

    /// Does something with a tenant in the next transaction, and answers when that is committed.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        tenant: &Arc<str>,
        work: impl FnOnce(&mut Writing<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (settings, time) = (Arc::clone(&self.settings), Arc::clone(&self.time));
        let tenant = Arc::clone(tenant);
        let work = move |connection: &Connection| {
            Writing::with(connection, &settings.limits, &tenant, &time, |writing| {
                let before = writing.tenant.position;
                let done = work(writing)?;
                Ok((done, writing.tenant.position != before))
            })
        };
        let (task, answer, fate) = Task::new(work, |_: &T| ());
        let place = self.writes.reserve().await.map_err(|_| ended())?;
        let mut waiting = Watcher::begin(fate, &self.progress);
        place.send(Box::new(task));
        let answer = answer.await;
        waiting.end();
        answer.map_err(|_| ended())?
    }

    /// Waits until what was done for callers that are gone is there to be read.
    pub(super) async fn settled(&self) {
        self.progress.settled().await;
    }

    /// Does something with a snapshot of the file in which every commit is that was answered before.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &dyn Fn() -> bool) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.settled().await;
        let guard = Arc::clone(&self.guard);
        let work = move |connection: &Connection, is_wanted: &dyn Fn() -> bool| {
            work(connection, is_wanted).inspect_err(|fault| guard.note(fault))
        };
        self.reads.read(work).await
    }

    /// Has all breadcrumbs of a tenant removed whose time is over, bit by bit between what others do, unless that is going
    /// on.
    pub(super) fn sweep(&self, tenant: &Arc<str>) {
        if !self.sweeping.swap(true, Ordering::SeqCst) {
            let sweep = Sweep {
                settings: Arc::clone(&self.settings),
                time: Arc::clone(&self.time),
                tenant: Arc::clone(tenant),
                writes: self.writes.downgrade(),
                going_on: Arc::clone(&self.sweeping),
            };
            sweep.go_on();
        }
    }

    /// Ends when the threads have, and the file is closed.
    pub(super) fn closed(&self) -> impl Future<Output = ()> + use<> {
        let mut open = self.open.clone();
        // Nothing is ever sent.
        async move { while open.changed().await.is_ok() {} }
    }

    /// Changes when this process commits events.
    pub(super) fn announced(&self) -> watch::Receiver<u64> {
        self.progress.announced.subscribe()
    }

    /// Has what was acknowledged stored soon. If the writer is busy it does that by itself.
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

/// Opens the connections, and begins to read.
fn start(
    path: &Path,
    settings: &Settings,
    jobs: &Arc<Queue>,
    alive: &watch::Sender<()>,
) -> Result<(Connection, Arc<Guard>), SqliteError> {
    let writer = connection::writer(path, settings)?;
    let guard = Arc::new(match settings.is_read_only {
        true => Guard::read_only(path),
        false => Guard::of(path)?,
    });
    for _ in 0..settings.readers.max(1) {
        let reader = Reader::new(connection::reader(path, settings)?, jobs);
        let alive = alive.clone();
        spawn("sqlite-reader", move || {
            reader.run();
            drop(alive);
        })?;
    }
    Ok((writer, guard))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), SqliteError> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread
        .spawn(run)
        .map(drop)
        .map_err(|error| SqliteError::Unavailable {
            retry_after: std::time::Duration::from_secs(1),
            source: error.into(),
        })
}

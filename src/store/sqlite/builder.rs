//! Builder and limits of [`SqliteStore`].

use super::SqliteStore;
use super::error::SqliteError;
use crate::store::embedding::EmbeddingConfig;
use std::path::PathBuf;
use std::time::Duration;

/// Durability level that a commit to the SQLite file has reached when its future completes.
///
/// Pass it to [`SqliteBuilder::durability`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// The commit survives a crash of the process and a power loss, because it is on disk. The default.
    ///
    /// Each transaction waits for the disk. Operations that wait at the same time share a
    /// transaction.
    #[default]
    Full,
    /// The commit survives a crash of the process, but a power loss can undo the last commits. Each commit is undone as a whole:
    /// a response and the end of its run are lost together, so the run is executed again.
    ///
    /// Commits are faster, because they do not wait for the disk.
    Normal,
}

/// Limits of a [`SqliteStore`] for each tenant: numbers of breadcrumbs, runs, events and tombstones, and breadcrumb size.
///
/// Writes beyond the limits of breadcrumbs and open runs fail. Beyond the other limits, the store deletes the oldest rows in
/// batches, so a few more rows than a limit can remain. The number of [request](crate::RunLedger::request) keys is limited to the
/// sum of [`open_runs`](Self::open_runs) and [`finished_runs`](Self::finished_runs).
///
/// Each opened handle applies its own limits to the shared file.
///
/// Start with the defaults and change fields:
///
/// ```
/// use universal_executor::SqliteStore;
/// use universal_executor::store::SqliteLimits;
///
/// let mut limits = SqliteLimits::default();
/// assert_eq!((limits.breadcrumbs, limits.finished_runs), (10_000_000, 1_000_000));
/// limits.finished_runs = 100_000;
/// limits.events = 100_000;
/// let builder = SqliteStore::builder("agents.db").limits(limits); // opens no file yet
/// # drop(builder);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SqliteLimits {
    /// Maximum number of one tenant's breadcrumbs in the SQLite store. Defaults to 10,000,000. A write beyond it fails with
    /// [`StoreError::Full`](crate::store::StoreError::Full).
    pub breadcrumbs: usize,
    /// Maximum size of one breadcrumb in bytes, see [`Breadcrumb::size`](crate::Breadcrumb::size). Defaults to 1 MiB. A larger
    /// breadcrumb fails with [`StoreError::Rejected`](crate::store::StoreError::Rejected).
    pub breadcrumb_bytes: usize,
    /// Maximum number of one tenant's runs that have not ended. Defaults to 1,000,000. A further run fails with
    /// [`StoreError::Full`](crate::store::StoreError::Full).
    pub open_runs: usize,
    /// Maximum number of one tenant's ended runs that the store retains. Defaults to 1,000,000. The store deletes the oldest beyond it. A
    /// deleted run is executed again if its event is delivered again.
    pub finished_runs: usize,
    /// Maximum number of one tenant's events that the store retains for subscribers. Defaults to 1,000,000. The store deletes the oldest
    /// beyond it, even if a subscriber has not read them. That subscriber receives
    /// [`SourceError::Lagged`](crate::source::SourceError::Lagged) with the number of missed events.
    pub events: usize,
    /// Maximum number of tombstones of one tenant's deleted breadcrumbs that the store retains. Defaults to 100,000. The store deletes the
    /// oldest beyond it.
    ///
    /// With 0, the store has no tombstones, and a deletion cannot trigger executors.
    pub tombstones: usize,
}

impl Default for SqliteLimits {
    fn default() -> Self {
        Self {
            breadcrumbs: 10_000_000,
            breadcrumb_bytes: 1 << 20,
            open_runs: 1_000_000,
            finished_runs: 1_000_000,
            events: 1_000_000,
            tombstones: 100_000,
        }
    }
}

/// Builder for a [`SqliteStore`], created by [`SqliteStore::builder`].
///
/// | method | default |
/// |---|---|
/// | [`durability`](Self::durability) | [`Durability::Full`] |
/// | [`busy_timeout`](Self::busy_timeout) | 5 s |
/// | [`poll_every`](Self::poll_every) | 20 ms |
/// | [`readers`](Self::readers) | 4 threads |
/// | [`vector_cache`](Self::vector_cache) | 256 MiB |
/// | [`max_file_bytes`](Self::max_file_bytes) | no limit |
/// | [`limits`](Self::limits) | [`SqliteLimits::default`] |
/// | [`embeddings`](Self::embeddings) | no vector search |
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::store::Durability;
/// use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb, SqliteStore};
///
/// # let folder = std::env::temp_dir().join(format!("ux-doc-builder-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("agents.db");
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = SqliteStore::builder(&path)
///     .durability(Durability::Normal)
///     .busy_timeout(Duration::from_secs(10))
///     .readers(2)
///     .max_file_bytes(1 << 30)
///     .open()
///     .await?;
/// store.create(NewBreadcrumb::new("note.v1")).await?;
/// assert!(store.latest("note.v1").await?.is_some());
/// # drop(store);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SqliteBuilder {
    path: PathBuf,
    settings: Settings,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) limits: SqliteLimits,
    pub(super) embeddings: Option<EmbeddingConfig>,
    pub(super) forgets_vectors: bool,
    pub(super) database: DatabaseSettings,
}

/// Settings of the connections and threads of a SQLite database. Handles share a database only if these settings are equal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct DatabaseSettings {
    pub(super) durability: Durability,
    pub(super) busy_timeout: Duration,
    pub(super) poll: Duration,
    pub(super) readers: usize,
    pub(super) vector_cache: usize,
    /// Maximum size of the SQLite file in bytes; `None` without a limit.
    pub(super) file_bytes: Option<u64>,
    pub(super) is_read_only: bool,
    /// If `false`, the store sends and receives no datagrams about commits, so that only checks of the file find commits of other
    /// processes. For tests.
    pub(super) uses_datagrams: bool,
    /// If `false`, the store handle shares no connections and threads with other handles on the file. For tests.
    pub(super) is_shared: bool,
}

impl SqliteBuilder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            settings: Settings {
                limits: SqliteLimits::default(),
                embeddings: None,
                forgets_vectors: false,
                database: DatabaseSettings {
                    durability: Durability::default(),
                    busy_timeout: Duration::from_secs(5),
                    poll: Duration::from_millis(20),
                    readers: 4,
                    vector_cache: 256 << 20,
                    file_bytes: None,
                    is_read_only: false,
                    uses_datagrams: true,
                    is_shared: true,
                },
            },
        }
    }

    /// Sets the durability level that a commit to the file has reached when its future completes. Defaults to [`Durability::Full`].
    ///
    /// Choose [`Durability::Normal`] if a power loss may undo the last commits, to save the waits
    /// for the disk.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.settings.database.durability = durability;
        self
    }

    /// Sets the limits of one tenant: the maximum numbers of breadcrumbs, runs, events and tombstones, and the breadcrumb size. See
    /// [`SqliteLimits`] for the defaults.
    #[must_use]
    pub fn limits(mut self, limits: SqliteLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Sets the maximum time that a store operation waits while another process has locked the SQLite file. Defaults to 5 s. Then the
    /// operation fails with [`StoreError::Unavailable`](crate::store::StoreError::Unavailable).
    ///
    /// The writers of several processes take turns through two lock files next to the file (`agents.db-turn` and
    /// `agents.db-write`). A process waits at most a quarter of this time for its turn, and then only for SQLite's own lock. A
    /// stopped process therefore delays the others, but does not block them.
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.settings.database.busy_timeout = timeout;
        self
    }

    /// Sets the interval at which a store with event subscribers checks the SQLite file for commits that no datagram announced. Defaults to
    /// 20 ms, and a value below 1 ms counts as 1 ms. The interval doubles after 50 checks without a change, so an idle store uses less than
    /// 0.5% of a core.
    ///
    /// Commits of this process wake its subscribers at once. A process that subscribes has a Unix socket in a folder next to the file
    /// (`agents.db-listeners`), and each commit with events sends it a datagram. The interval applies where no datagram arrives:
    /// - for commits of programs without this crate, or of other users of the machine,
    /// - on systems without Unix sockets,
    /// - if the folder cannot be created, or users other than the owner of the file can access it,
    /// - if a datagram is lost.
    #[must_use]
    pub fn poll_every(mut self, interval: Duration) -> Self {
        self.settings.database.poll = interval.max(Duration::from_millis(1));
        self
    }

    /// Sets the number of threads that read the SQLite file, each with its own connection. Defaults to 4, and is limited to 1 to 64.
    ///
    /// More threads help if many searches run at the same time. Writes always use one thread.
    #[must_use]
    pub fn readers(mut self, readers: usize) -> Self {
        self.settings.database.readers = readers.clamp(1, 64);
        self
    }

    /// Enables vector search: the store embeds each breadcrumb after its commit, and existing breadcrumbs in the background.
    ///
    /// The file records the model of the embedder. [`open`](Self::open) fails if the stored vectors come from another model: delete them
    /// with [`forget_vectors`](Self::forget_vectors).
    ///
    /// The [`embedding`](crate::store::embedding) module describes the embedder and the embedded
    /// text.
    #[must_use]
    pub fn embeddings(mut self, config: EmbeddingConfig) -> Self {
        self.settings.embeddings = Some(config);
        self
    }

    /// Sets the maximum memory for cached vectors of breadcrumbs in bytes. Defaults to 256 MiB, which is enough for 170,000 vectors of 384
    /// dimensions.
    ///
    /// A search reads vectors that are not in the cache from the file.
    #[must_use]
    pub fn vector_cache(mut self, bytes: usize) -> Self {
        self.settings.database.vector_cache = bytes;
        self
    }

    /// Sets the maximum size of the SQLite file in bytes, rounded down to whole pages of 4 KiB. There is no limit by default.
    ///
    /// A commit that needs more space fails with [`StoreError::Unavailable`](crate::store::StoreError::Unavailable) and the cause
    /// [`SqliteError::DiskFull`](super::SqliteError::DiskFull). This setting never shrinks the file: a file that is already larger uses
    /// only the space of deleted rows. A deletion needs space too, and its tombstone retains the content for some time, so open a full
    /// file with a larger limit to continue. The write-ahead log (`-wal`) does not count.
    #[must_use]
    pub fn max_file_bytes(mut self, bytes: u64) -> Self {
        self.settings.database.file_bytes = Some(bytes);
        self
    }

    /// Deletes all vectors of breadcrumbs in the file, and the record of their embedding model, when the store opens. A store with an
    /// embedder creates the vectors again.
    ///
    /// Use this once, to change the model, or after the display hints in a schema definition have changed.
    ///
    /// ```no_run
    /// use universal_executor::store::embedding::{Embedder, EmbeddingConfig};
    /// use universal_executor::{BoxError, SqliteStore};
    ///
    /// # async fn example(new_model: impl Embedder) -> Result<(), BoxError> {
    /// let store = SqliteStore::builder("agents.db")
    ///     .embeddings(EmbeddingConfig::new(new_model))
    ///     .forget_vectors() // remove this line after the first start
    ///     .open()
    ///     .await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn forget_vectors(mut self) -> Self {
        self.settings.forgets_vectors = true;
        self
    }

    /// Opens an existing SQLite file only for reading: the file is neither created nor migrated, and each write fails with
    /// [`StoreError::Refused`](crate::store::StoreError::Refused). The store has no vector search.
    ///
    /// SQLite can create the files `-wal` and `-shm` in the folder, which must be writable unless another process has the file open.
    ///
    /// Use it for reports and inspections while a service runs:
    ///
    /// ```
    /// use universal_executor::store::StoreError;
    /// use universal_executor::{BreadcrumbStoreExt, NewBreadcrumb, SqliteStore};
    ///
    /// # let folder = std::env::temp_dir().join(format!("ux-doc-reader-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("agents.db");
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = SqliteStore::open(&path).await?;
    /// store.create(NewBreadcrumb::new("note.v1")).await?;
    ///
    /// let reader = SqliteStore::builder(&path).read_only().open().await?;
    /// assert!(reader.latest("note.v1").await?.is_some());
    /// let refused = reader.create(NewBreadcrumb::new("note.v1")).await;
    /// assert!(matches!(refused, Err(StoreError::Refused { .. })));
    /// # drop((store, reader));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.settings.database.is_read_only = true;
        self
    }

    /// Turns datagrams between processes off, so that only checks of the SQLite file find commits of other processes.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    #[must_use]
    pub fn without_datagrams(mut self) -> Self {
        self.settings.database.uses_datagrams = false;
        self
    }

    /// Gives the store handle separate connections and threads, like a handle of another process.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    #[must_use]
    pub fn unshared(mut self) -> Self {
        self.settings.database.is_shared = false;
        self
    }

    /// Opens the SQLite file of the store, and creates it if it is missing. Migrates a file that an older version of this crate wrote.
    ///
    /// If this process has the file open with the same settings of [`durability`](Self::durability),
    /// [`busy_timeout`](Self::busy_timeout), [`poll_every`](Self::poll_every), [`readers`](Self::readers),
    /// [`vector_cache`](Self::vector_cache), [`max_file_bytes`](Self::max_file_bytes) and [`read_only`](Self::read_only), the new
    /// handle shares its connections, threads and cache. Otherwise the handle gets its own, like a handle of another process.
    /// [`limits`](Self::limits) and [`embeddings`](Self::embeddings) always apply only to this handle and its clones.
    ///
    /// # Errors
    /// - [`SqliteError::NotAFile`], [`SqliteError::CannotOpen`] and [`SqliteError::ReadOnly`] if the path or its permissions do not fit.
    /// - [`SqliteError::NotADatabase`] for a foreign or damaged file.
    /// - [`SqliteError::NewerSchema`] and [`SqliteError::OlderSchema`] for a schema version that does not match this crate.
    /// - [`SqliteError::NoWal`] if the file system does not support WAL mode.
    /// - [`SqliteError::Embedder`] if the stored vectors come from another model.
    /// - [`SqliteError::DiskFull`] and [`SqliteError::Unavailable`] for failures that can pass.
    ///
    /// # Cancel safety
    /// If the future is dropped, a background thread can still create or migrate the file, and then closes it.
    pub async fn open(mut self) -> Result<SqliteStore, SqliteError> {
        if self.settings.database.is_read_only {
            self.settings.embeddings = None;
            self.settings.forgets_vectors = false;
        }
        let path = self.path.clone();
        let opened = SqliteStore::start(self.path, self.settings).await;
        opened.map_err(|error| error.at(&path))
    }
}

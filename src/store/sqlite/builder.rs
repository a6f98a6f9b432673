//! How a store is opened.

use super::SqliteStore;
use super::error::SqliteError;
use crate::store::embedding::EmbeddingConfig;
use std::path::PathBuf;
use std::time::Duration;

/// What a commit has survived when it is answered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// The end of the process and of the machine: every commit waits until the disk has it. The default.
    #[default]
    Full,
    /// The end of the process. After a power loss the last commits may be gone, each of them whole: a response and the
    /// end of its run vanish together, so the run is done again.
    Normal,
}

/// How much a [`SqliteStore`] holds, per tenant. What is over a limit is forgotten oldest first, in batches: a little
/// more than a limit may be there for a while.
///
/// Each opened handle applies its own limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct SqliteLimits {
    /// Breadcrumbs; one more is [`StoreError::Full`](crate::store::StoreError::Full). 10,000,000 by default.
    pub breadcrumbs: usize,
    /// Bytes of one breadcrumb, see [`Breadcrumb::size`](crate::Breadcrumb::size); more is
    /// [`StoreError::Rejected`](crate::store::StoreError::Rejected). 1 MiB by default.
    pub breadcrumb_bytes: usize,
    /// Runs that are not over; one more is [`StoreError::Full`](crate::store::StoreError::Full). 1,000,000 by default.
    pub open_runs: usize,
    /// Runs that are over; the oldest are forgotten, and run again if they are announced again. 1,000,000 by default.
    pub finished_runs: usize,
    /// Events; the oldest are forgotten, whoever has not read them: a subscriber that is further behind is told how
    /// many it missed. 1,000,000 by default.
    pub events: usize,
    /// Tombstones; the oldest are forgotten. 100,000 by default.
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

/// Opens a [`SqliteStore`]; made by [`SqliteStore::builder`].
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

/// Settings of the connections and threads. Handles share a database only if these are equal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct DatabaseSettings {
    pub(super) durability: Durability,
    pub(super) busy_timeout: Duration,
    pub(super) poll: Duration,
    pub(super) readers: usize,
    pub(super) vector_cache: usize,
    /// Maximum size of the file in bytes; `None` without a limit.
    pub(super) file_bytes: Option<u64>,
    pub(super) is_read_only: bool,
    /// If `false`, the database neither sends nor receives datagrams. For tests.
    pub(super) uses_datagrams: bool,
    /// If `false`, the handle shares no database. For tests.
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

    /// Sets what a commit has survived when it is answered; [`Durability::Full`] by default.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.settings.database.durability = durability;
        self
    }

    /// Sets how much the store holds; see [`SqliteLimits`] for the defaults.
    #[must_use]
    pub fn limits(mut self, limits: SqliteLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Sets how long to wait while another process has the file locked, before an operation fails with
    /// [`StoreError::Unavailable`](crate::store::StoreError::Unavailable). Defaults to 5 s.
    ///
    /// The writers of several processes take turns through two lock files next to the file (`agents.db-turn` and
    /// `agents.db-write`). A process waits at most a quarter of this time for its turn, and then only for the lock of SQLite, so a
    /// stopped process delays the others and does not block them.
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.settings.database.busy_timeout = timeout;
        self
    }

    /// Sets the interval at which the store checks the file for commits that no datagram announced, while it has subscribers. Defaults
    /// to 20 ms; shorter ones than 1 ms become 1 ms. The interval doubles after 50 checks without a change, so an idle store uses less than 0.5% of a core.
    ///
    /// Commits of this process wake its subscribers at once. A process that subscribes has a Unix socket in a folder
    /// next to the file (`agents.db-listeners`), and each commit with events sends it a datagram. The interval applies where no
    /// datagram arrives: to commits of programs without this crate, on systems without Unix sockets, for other users
    /// of the machine, if the folder cannot be created or others than the owner of the file can use it, and if a datagram is lost.
    #[must_use]
    pub fn poll_every(mut self, interval: Duration) -> Self {
        self.settings.database.poll = interval.max(Duration::from_millis(1));
        self
    }

    /// Sets how many threads read, each with a connection of its own: 4 by default, at least 1 and at most 64.
    #[must_use]
    pub fn readers(mut self, readers: usize) -> Self {
        self.settings.database.readers = readers.clamp(1, 64);
        self
    }

    /// Has the store keep vectors of what is written, also of what was before, and search by them. The file remembers the
    /// model: with another it does not open, see [`forget_vectors`](Self::forget_vectors).
    #[must_use]
    pub fn embeddings(mut self, config: EmbeddingConfig) -> Self {
        self.settings.embeddings = Some(config);
        self
    }

    /// Sets how many bytes of memory vectors may take that were read for a search, so that the next one need not read them:
    /// 256 MiB by default, which is enough for 170,000 of 384 dimensions.
    #[must_use]
    pub fn vector_cache(mut self, bytes: usize) -> Self {
        self.settings.database.vector_cache = bytes;
        self
    }

    /// Sets the maximum size of the file in bytes, rounded down to whole pages of 4 KiB. Without a limit by default.
    ///
    /// A commit that needs more space fails with [`StoreError::Unavailable`](crate::store::StoreError::Unavailable) and the cause
    /// [`SqliteError::DiskFull`](super::SqliteError::DiskFull). The file never becomes smaller by this setting: a file that is larger
    /// already uses only the space of deleted rows. A deletion needs space too, and its
    /// tombstone keeps the content for some time: open a full file with a larger limit to continue. The write-ahead log (`-wal`) does not count.
    #[must_use]
    pub fn max_file_bytes(mut self, bytes: u64) -> Self {
        self.settings.database.file_bytes = Some(bytes);
        self
    }

    /// Forgets all vectors in the file at opening, and whose they were. They are made anew, if there is an embedder: to be
    /// asked for once, when another model is to be used, or hints have changed.
    #[must_use]
    pub fn forget_vectors(mut self) -> Self {
        self.settings.forgets_vectors = true;
        self
    }

    /// Opens an existing file only for reading: it is neither created nor migrated, and each write fails with
    /// [`StoreError::Refused`](crate::store::StoreError::Refused). The store has no vector search. SQLite can create the files `-wal`
    /// and `-shm` in its folder, which must be writable unless another process has the file open.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.settings.database.is_read_only = true;
        self
    }

    /// Turns datagrams off, so that only checks of the file find commits of other processes.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    #[must_use]
    pub fn without_datagrams(mut self) -> Self {
        self.settings.database.uses_datagrams = false;
        self
    }

    /// Gives the handle separate connections and threads, as a handle of another process has them.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    #[must_use]
    pub fn unshared(mut self) -> Self {
        self.settings.database.is_shared = false;
        self
    }

    /// Opens the file, and creates it if it is missing. Migrates a file that an older version of this crate wrote.
    ///
    /// If this process has the file open with the same settings of [`durability`](Self::durability),
    /// [`busy_timeout`](Self::busy_timeout), [`poll_every`](Self::poll_every), [`readers`](Self::readers),
    /// [`vector_cache`](Self::vector_cache), [`max_file_bytes`](Self::max_file_bytes) and [`read_only`](Self::read_only), the new handle shares its connections, threads
    /// and cache. Otherwise the handle gets its own, like a handle of another process. [`limits`](Self::limits) and
    /// [`embeddings`](Self::embeddings) always apply to this handle and its clones only.
    ///
    /// # Errors
    /// See [`SqliteError`].
    pub async fn open(mut self) -> Result<SqliteStore, SqliteError> {
        if self.settings.database.is_read_only {
            self.settings.embeddings = None;
            self.settings.forgets_vectors = false;
        }
        SqliteStore::start(self.path, self.settings).await
    }
}

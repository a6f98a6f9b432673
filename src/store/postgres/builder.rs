//! How a store is connected.

use super::PostgresStore;
use super::error::PostgresError;
use crate::store::embedding::EmbeddingConfig;
use std::fmt;
use std::time::Duration;

/// How much a [`PostgresStore`] holds, per tenant. What is over a limit is forgotten oldest first, in batches: a little
/// more than a limit may be there for a while.
///
/// Every process applies its own limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PostgresLimits {
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

impl Default for PostgresLimits {
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

/// Connects a [`PostgresStore`]; made by [`PostgresStore::builder`].
#[derive(Clone)]
pub struct PostgresBuilder {
    /// May have a password in it.
    url: String,
    settings: Settings,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) schema: String,
    pub(super) limits: PostgresLimits,
    pub(super) connections: u32,
    pub(super) patience: Duration,
    pub(super) poll: Duration,
    pub(super) vectors: bool,
    pub(super) embeddings: Option<EmbeddingConfig>,
    pub(super) forgets_vectors: bool,
}

impl PostgresBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            settings: Settings {
                schema: "universal_executor".to_owned(),
                limits: PostgresLimits::default(),
                connections: 10,
                patience: Duration::from_secs(10),
                poll: Duration::from_secs(1),
                vectors: true,
                embeddings: None,
                forgets_vectors: false,
            },
        }
    }

    /// Sets the schema of the database that the tables are in, which is made if it is not there; `universal_executor`
    /// by default. Stores in two schemas know nothing of each other, and the name
    /// stands in the `application_name` of the connections.
    #[must_use]
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.settings.schema = name.into();
        self
    }

    /// Sets how much the store holds; see [`PostgresLimits`] for the defaults.
    #[must_use]
    pub fn limits(mut self, limits: PostgresLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Sets how many connections there are at the most, beside the one that hears of events: 10 by default, at least 2.
    /// The sources of a trigger are fetched by as many connections at once.
    #[must_use]
    pub fn connections(mut self, most: u32) -> Self {
        self.settings.connections = most.max(2);
        self
    }

    /// Sets how long to wait for a connection, or for what another transaction has locked, before an operation fails
    /// with [`StoreError::Unavailable`](crate::store::StoreError::Unavailable); 10 s by default. The server ends a
    /// transaction in which this process does nothing for as long, and a connection over which nothing is heard for twice
    /// as long is given up with all others, as nobody need be there any more.
    #[must_use]
    pub fn wait_timeout(mut self, timeout: Duration) -> Self {
        self.settings.patience = timeout;
        self
    }

    /// Sets how often to look for events of other processes; every second by default. Those of this process are
    /// delivered at once, and the server usually tells of the others as soon.
    #[must_use]
    pub fn poll_every(mut self, interval: Duration) -> Self {
        self.settings.poll = interval;
        self
    }

    /// Has the store keep vectors of what is written, also of what was before, and search by them. It takes the extension
    /// `vector` (pgvector), see [`has_vectors`](PostgresStore::has_vectors). The tables remember the model: with another the
    /// store does not connect, see [`forget_vectors`](Self::forget_vectors).
    #[must_use]
    pub fn embeddings(mut self, config: EmbeddingConfig) -> Self {
        self.settings.embeddings = Some(config);
        self
    }

    /// Forgets all vectors when connecting, and whose they were. They are made anew, if there is an embedder: to be asked for
    /// once and by one process, when another model is to be used, or hints have changed.
    #[must_use]
    pub fn forget_vectors(mut self) -> Self {
        self.settings.forgets_vectors = true;
        self
    }

    /// Uses no extension `vector` (pgvector) and creates no tables for vectors, see [`has_vectors`](PostgresStore::has_vectors). By
    /// default, the store creates the extension in the schema `public` if the server has it and the user has the privilege. A missing
    /// extension is an error only with [`embeddings`](Self::embeddings).
    #[must_use]
    pub fn without_vectors(mut self) -> Self {
        self.settings.vectors = false;
        self
    }

    /// Connects, and makes the tables or brings those of an older version of this crate to this one's. Several
    /// processes may do so at once.
    ///
    /// Warns in the log if the server may lose what it has committed.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub async fn connect(self) -> Result<PostgresStore, PostgresError> {
        PostgresStore::start(&self.url, self.settings).await
    }
}

impl fmt::Debug for PostgresBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

//! Builder and limits of [`PostgresStore`].

use super::PostgresStore;
use super::error::PostgresError;
use crate::store::embedding::EmbeddingConfig;
use std::fmt;
use std::time::Duration;

/// Limits of a [`PostgresStore`] for each tenant: numbers of breadcrumbs, runs, events and tombstones, and breadcrumb size.
///
/// Writes beyond the limits of breadcrumbs and open runs fail. Beyond the other limits, the store deletes the oldest rows in
/// batches, so a few more rows than a limit can remain. The number of [request](crate::RunLedger::request) keys is limited to
/// the sum of [`open_runs`](Self::open_runs) and [`finished_runs`](Self::finished_runs).
///
/// Each process applies its own limits to the shared tables.
///
/// Start with the defaults and change fields:
///
/// ```
/// use universal_executor::PostgresStore;
/// use universal_executor::store::PostgresLimits;
///
/// let mut limits = PostgresLimits::default();
/// assert_eq!((limits.breadcrumbs, limits.finished_runs), (10_000_000, 1_000_000));
/// limits.finished_runs = 5_000_000;
/// let builder = PostgresStore::builder("postgres://db.internal/agents").limits(limits);
/// # drop(builder);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PostgresLimits {
    /// Maximum number of one tenant's breadcrumbs in the PostgreSQL store. Defaults to 10,000,000. A write beyond it fails with
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

/// Builder for a [`PostgresStore`], created by [`PostgresStore::builder`].
///
/// | method | default |
/// |---|---|
/// | [`schema`](Self::schema) | `universal_executor` |
/// | [`connections`](Self::connections) | 10, and one more that listens |
/// | [`wait_timeout`](Self::wait_timeout) | 10 s |
/// | [`poll_every`](Self::poll_every) | 1 s |
/// | [`limits`](Self::limits) | [`PostgresLimits::default`] |
/// | [`embeddings`](Self::embeddings) | no vector search |
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
/// use universal_executor::{BoxError, PostgresStore};
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<(), BoxError> {
///     let url = "postgres://agents:secret@db.internal/agents?sslmode=verify-full";
///     let store = PostgresStore::builder(url)
///         .schema("order_desk")
///         .connections(20)
///         .wait_timeout(Duration::from_secs(5))
///         .connect()
///         .await?;
///     println!("vectors: {}", store.has_vectors());
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct PostgresBuilder {
    /// The PostgreSQL connection string of the store, which can contain a password.
    url: String,
    settings: Settings,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) schema: String,
    pub(super) limits: PostgresLimits,
    pub(super) connections: u32,
    pub(super) wait_timeout: Duration,
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
                wait_timeout: Duration::from_secs(10),
                poll: Duration::from_secs(1),
                vectors: true,
                embeddings: None,
                forgets_vectors: false,
            },
        }
    }

    /// Sets the PostgreSQL schema that contains the store's tables. Defaults to `universal_executor`. [`connect`](Self::connect) creates a
    /// missing schema.
    ///
    /// A name has 1 to 40 of the characters `a-z`, `0-9` and `_`, and does not start with a digit. Stores in different schemas are
    /// independent. The name is part of the connections' `application_name`.
    #[must_use]
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.settings.schema = name.into();
        self
    }

    /// Sets the limits of one tenant: the maximum numbers of breadcrumbs, runs, events and tombstones, and the breadcrumb size. See
    /// [`PostgresLimits`] for the defaults.
    #[must_use]
    pub fn limits(mut self, limits: PostgresLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Sets the maximum number of pooled connections to the PostgreSQL server. Defaults to 10; a value below 2 counts as 2. One further
    /// connection listens for notifications of other processes.
    ///
    /// The context sources of one run are fetched concurrently over as many connections.
    ///
    /// The server's `max_connections` must permit the sum over all processes, with one more for
    /// each.
    #[must_use]
    pub fn connections(mut self, most: u32) -> Self {
        self.settings.connections = most.max(2);
        self
    }

    /// Sets the maximum time for which a store operation waits for a PostgreSQL connection, or for a lock that another
    /// transaction holds. Defaults to 10 s. Then the operation fails with
    /// [`StoreError::Unavailable`](crate::store::StoreError::Unavailable).
    ///
    /// The server also ends a session that is idle within a transaction for this time. If the server does not answer a statement
    /// within twice this time, the operation fails, and the store closes its idle connections, because they may be lost too.
    #[must_use]
    pub fn wait_timeout(mut self, timeout: Duration) -> Self {
        self.settings.wait_timeout = timeout;
        self
    }

    /// Sets the interval at which event subscriptions query the PostgreSQL server for other processes' events. Defaults to 1 s.
    ///
    /// Events of this process are delivered at once. Events of other processes usually are as well, because those processes notify
    /// this one. Polling finds the events whose notification was lost.
    #[must_use]
    pub fn poll_every(mut self, interval: Duration) -> Self {
        self.settings.poll = interval;
        self
    }

    /// Enables vector search: the store embeds each breadcrumb after its commit, and existing breadcrumbs in the background.
    ///
    /// Needs the extension `vector` (pgvector), see [`has_vectors`](PostgresStore::has_vectors). The tables record the model of the
    /// embedder. [`connect`](Self::connect) fails if the stored vectors come from another model: delete them with
    /// [`forget_vectors`](Self::forget_vectors).
    ///
    /// The [`embedding`](crate::store::embedding) module describes the embedder and the embedded
    /// text.
    #[must_use]
    pub fn embeddings(mut self, config: EmbeddingConfig) -> Self {
        self.settings.embeddings = Some(config);
        self
    }

    /// Deletes all stored vectors of breadcrumbs, and the record of their embedding model, when the store connects. A store with an
    /// embedder creates the vectors again.
    ///
    /// Use this once, in one process, to change the model, or after the display hints in a schema definition have changed.
    #[must_use]
    pub fn forget_vectors(mut self) -> Self {
        self.settings.forgets_vectors = true;
        self
    }

    /// Disables vector search: the store does not use the PostgreSQL extension `vector` (pgvector), and creates no tables for vectors, see
    /// [`has_vectors`](PostgresStore::has_vectors).
    ///
    /// By default, the store creates the extension in the schema `public` if the server has it and the user has the privilege. A missing
    /// extension is an error only with [`embeddings`](Self::embeddings).
    #[must_use]
    pub fn without_vectors(mut self) -> Self {
        self.settings.vectors = false;
        self
    }

    /// Connects to the PostgreSQL server, and creates the store's tables or migrates tables of an older version of this crate. Several
    /// processes can do this at the same time.
    ///
    /// Logs a warning if the server can lose commits (`fsync` or `synchronous_commit` is off), or if it is read-only.
    ///
    /// # Errors
    /// - [`PostgresError::InvalidUrl`], [`PostgresError::UnsupportedParameter`] and [`PostgresError::InvalidSchema`] for invalid settings.
    /// - [`PostgresError::OldServer`] and [`PostgresError::NewerSchema`] for a version that does not match this crate.
    /// - [`PostgresError::NoVectors`] and [`PostgresError::Embedder`] if vector search is configured and not possible.
    /// - [`PostgresError::Refused`], [`PostgresError::ReadOnly`] and [`PostgresError::Unavailable`] if the server rejects the
    ///   connection or the tables, or cannot be reached.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server may have created or migrated the tables. Connect again.
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

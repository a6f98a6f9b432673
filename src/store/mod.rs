//! Storage of breadcrumbs, and the ledger of runs.
//!
//! Use this module when a program reads or writes breadcrumbs outside of an executor, or inspects
//! the ledger of runs. Use it also to implement a store. A program that only sends requests and
//! manages runs uses [`Client`](crate::Client) instead.
//!
//! Executors read and write breadcrumbs through [`BreadcrumbStore`]. A [`RunLedger`] has one row for each run, with its state,
//! attempts and lease. It prevents duplicate responses when an event is delivered twice, when several workers receive it, or when
//! a worker crashes.
//!
//! | store | feature | breadcrumbs and runs |
//! |---|---|---|
//! | [`MemoryStore`] | | in memory |
//! | `SqliteStore` | `sqlite` | in a file |
//! | `PostgresStore` | `postgres` | in a database |
//! | `RcrtStore` | `rcrt` | breadcrumbs on an RCRT (Right Context Right Time) server, no runs |
//!
//! All but `RcrtStore` support [vector search](embedding) with an embedder. [`WithLedger`] combines the breadcrumbs of one store
//! with the ledger of another. For a store without a ledger, the crate adds one that ends with the process, see
//! [`BreadcrumbStore::ledger`]. [`Instrumented`] measures the duration and the outcome of each call of a store. `Faulty` (feature
//! `conformance` or `testing`) makes calls fail for tests.
//!
//! ```
//! use serde_json::json;
//! use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Patch};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let store = MemoryStore::default();
//! let page = store.create(NewBreadcrumb::new("browser.page.context.v1").context(json!({"url": "a"}))).await?;
//! let page = store.update(page.id, page.version, Patch::new().context(json!({"url": "b"}))).await?;
//!
//! assert_eq!(page.version, 2);
//! assert_eq!(store.latest("browser.page.context.v1").await?.map(|latest| latest.id), Some(page.id));
//! # Ok::<(), universal_executor::store::StoreError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Types to start with
//! | to | use |
//! |---|---|
//! | write or read single breadcrumbs | [`BreadcrumbStoreExt`] |
//! | search by schema name, tags, conditions and time | [`Query`], [`BreadcrumbStore::search`] |
//! | search by meaning | [`VectorQuery`], [`embedding`] |
//! | write several breadcrumbs in one step | [`Commit`], [`Write`], [`BreadcrumbStore::commit`] |
//! | list, cancel and redo runs | [`RunQuery`], [`RunFilter`], [`RunLedger`] |
//! | create a breadcrumb once for each idempotency key | [`NewRequest`], [`RunLedger::request`] |
//! | react to an error | [`StoreError`], [`StoreError::retry`] |
//! | measure calls | [`Instrumented`], [`metrics`] |
//! | implement a store | [`BreadcrumbStore`], [`StoreWithEvents`], the feature `conformance` |

mod canonical;
mod claim;
mod commit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod draft;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod durable;
mod embed_error;
pub mod embedding;
mod error;
mod ext;
#[cfg(any(feature = "conformance", feature = "testing"))]
mod faulty;
mod identity;
mod instrumented;
mod ledger;
mod lineage;
mod memory;
pub mod metrics;
#[cfg(feature = "mock")]
pub mod mock;
mod nacked;
mod operation;
mod pause;
#[cfg(feature = "postgres")]
mod postgres;
mod process_ledger;
mod query;
#[cfg(feature = "rcrt")]
mod rcrt;
mod request;
mod row;
mod rules;
mod run;
mod run_list;
mod run_page;
pub(crate) mod schema_hints;
#[cfg(feature = "sqlite")]
mod sqlite;
mod tagged_response;
mod tenants;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod wake;
mod with_events;
mod with_ledger;
mod worker;
mod wrap;

pub use claim::{Claim, ClaimId, Claimed, Enqueued, ExecutorLimits, Lease, Lost};
pub use commit::{Commit, Committed, DeadLetter, FailureClass, RunEnd, Write};
pub use error::{PartialSearch, SavedResponse, StoreError};
pub use ext::BreadcrumbStoreExt;
#[cfg(any(feature = "conformance", feature = "testing"))]
pub use faulty::{Fault, Faulty, Injected, Moment};
pub use identity::StoreId;
pub use instrumented::Instrumented;
pub use ledger::{KeyPosition, RunLedger, SavedPosition};
pub use lineage::{Lineage, Saved, Wake, WrittenBy};
pub use memory::{MemoryLimits, MemoryStore};
pub use operation::Operation;
pub use pause::PausedExecutor;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresBuilder, PostgresError, PostgresLimits, PostgresStats, PostgresStore};
pub(crate) use process_ledger::{AddedLedger, ProcessRunState, RunStore};
pub use query::{Query, Scored, VectorQuery};
#[cfg(feature = "rcrt")]
pub use rcrt::{RcrtBuilder, RcrtError, RcrtStore, SplitCharacter};
pub use request::{NewRequest, Requested};
pub(crate) use row::MOST_ACCEPTED;
pub use run::{Cancelled, NewRun, RunRef, RunState};
pub use run_list::{Run, RunFilter};
pub use run_page::{RunCursor, RunPage, RunQuery};
#[cfg(feature = "sqlite")]
pub use sqlite::{Durability, SqliteBuilder, SqliteError, SqliteLimits, SqliteStats, SqliteStore};
pub(crate) use tagged_response::{finished_run, run_tag};
pub use with_events::StoreWithEvents;
pub use with_ledger::WithLedger;
pub use worker::{ExecutorVersion, Version, Worker, WorkerRecord};

use crate::model::{Breadcrumb, BreadcrumbId};
use async_trait::async_trait;
use std::fmt::Debug;
use std::sync::Arc;

/// A store of [`Breadcrumb`]s, and the only source that executors read breadcrumbs from.
///
/// A handle is bound to one tenant. Reads, commits and runs of the handle affect only that tenant.
///
/// A program usually has a concrete store, such as [`MemoryStore`], and passes clones of it to
/// [`Runtime::on`](crate::Runtime::on) and [`Client::new`](crate::Client::new). For single writes
/// and common queries, use the shortcuts of [`BreadcrumbStoreExt`]. An `Arc<dyn BreadcrumbStore>`
/// and a `Box<dyn BreadcrumbStore>` are stores too, so code can be independent of the backend:
///
/// ```
/// use std::sync::Arc;
/// use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default().in_tenant("acme"));
/// let note = store.create(NewBreadcrumb::new("note.v1").title("first")).await?;
///
/// assert_eq!(store.tenant(), "acme");
/// assert_eq!(store.get(note.id).await?.title, "first");
/// assert!(store.capabilities().atomic && store.ledger().is_some());
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
///
/// # Contract
/// Every backend keeps these promises. The test suite `store::conformance` (feature `conformance`) checks each one by name.
/// - **Atomic.** A commit (its writes, the end of its run and its events) is visible in full or not at all.
/// - **Optimistic.** An update names the version that the caller read. It fails with [`StoreError::Conflict`] if another version
///   is current. Concurrent updates exclude one another with [`Capabilities::exclusive_updates`].
/// - **Newest first.** [`search`](Self::search) orders by update time, then version, then ID.
/// - **Whole selector.** A query applies its whole selector, so callers never filter the results.
/// - **Identified.** Clones of a handle have the same [`identity`](Self::identity). Handles on other data have another one.
/// - **Isolated tenants.** A handle cannot read, change or claim anything of another tenant.
/// - **Canonical.** Every store rejects JSON that is too deep or too large, more than 256 tags, and a tag of more than 256 bytes.
///   Every store replaces U+0000 by U+FFFD.
/// - **Cancel safe.** Dropping a future leaves the store in its state before or after the operation.
/// - **Shared.** A clone is another handle on the same data, never a copy.
///
/// # Implementing
/// The `Debug` output of a store appears in log lines and in [`Health`](crate::runtime::Health): it must contain no credentials.
///
/// The trait has no default methods. With defaults, a wrapper that does not forward a method would compile and silently lose the
/// inner store's faster version. An operation that the backend lacks returns [`StoreError::Unsupported`] and is `false` in
/// [`capabilities`](Self::capabilities).
///
/// A wrapper forwards each method and changes some of them. Check a store with the suite
/// `store::conformance`. This wrapper limits the size of commits:
///
/// ```
/// use std::sync::Arc;
/// use universal_executor::store::{
///     Capabilities, Commit, Committed, Query, Scored, StoreError, StoreId, VectorQuery,
/// };
/// use universal_executor::{Breadcrumb, BreadcrumbId, BreadcrumbStore, RunLedger, async_trait};
/// # use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
/// # use universal_executor::store::Write;
///
/// #[derive(Clone, Debug)]
/// struct SmallCommits<S>(S);
///
/// #[async_trait]
/// impl<S: BreadcrumbStore> BreadcrumbStore for SmallCommits<S> {
///     fn tenant(&self) -> &str {
///         self.0.tenant()
///     }
///
///     fn identity(&self) -> StoreId {
///         self.0.identity()
///     }
///
///     fn capabilities(&self) -> Capabilities {
///         self.0.capabilities()
///     }
///
///     async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
///         self.0.get(id).await
///     }
///
///     async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
///         self.0.search(query).await
///     }
///
///     async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
///         self.0.vector_search(query).await
///     }
///
///     async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
///         match commit.writes.len() {
///             0..=10 => self.0.commit(commit).await,
///             count => Err(StoreError::TooManyWrites { count, limit: 10 }),
///         }
///     }
///
///     fn ledger(&self) -> Option<&dyn RunLedger> {
///         self.0.ledger()
///     }
/// }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let store = SmallCommits(MemoryStore::default());
/// # store.create(NewBreadcrumb::new("note.v1")).await?;
/// # let many = vec![Write::Create(NewBreadcrumb::new("note.v1")); 11];
/// # let refused = store.commit(Commit::from(many)).await;
/// # assert!(matches!(refused, Err(StoreError::TooManyWrites { count: 11, limit: 10 })));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[async_trait]
pub trait BreadcrumbStore: Debug + Send + Sync + 'static {
    /// Returns the tenant of this handle, by default `"default"`.
    ///
    /// Bind a handle to another tenant with the method `in_tenant` of the store. The owner of an
    /// `RcrtStore` is its tenant.
    fn tenant(&self) -> &str;

    /// Returns the identity of the data behind this handle. Clones of a handle have the same identity, handles of different
    /// tenants have different ones. A store in memory returns clones of one [`StoreId::unique`]: two stores with the same
    /// identity share the runs of a [ledger](Self::ledger) that the crate adds.
    fn identity(&self) -> StoreId;

    /// Returns the optional abilities of this store.
    ///
    /// Check a capability before you call an operation that the store can lack. The crate does the
    /// same: for example, a runtime catches up in another order without
    /// [`Capabilities::oldest_first`].
    fn capabilities(&self) -> Capabilities;

    /// Returns the current version of a breadcrumb.
    ///
    /// An expired breadcrumb counts as missing. The result is shared, so a clone of it copies a
    /// pointer.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the breadcrumb does not exist or was deleted.
    ///
    /// Other errors report a failure of the store, such as [`StoreError::Unavailable`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::StoreError;
    /// use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let note = store.create(NewBreadcrumb::new("note.v1")).await?;
    /// assert_eq!(store.get(note.id).await?, note);
    ///
    /// store.delete(note.id).await?;
    /// match store.get(note.id).await {
    ///     // A store with tombstones returns the last version.
    ///     Err(StoreError::NotFound { tombstone: Some(last), .. }) => assert_eq!(last.version, 2),
    ///     other => return Err(format!("unexpected: {other:?}").into()),
    /// }
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError>;

    /// Returns the breadcrumbs that a query selects, with their whole context and their `llm_hints`. The result is empty if no
    /// breadcrumb matches. A result with fewer breadcrumbs than the limit is complete.
    ///
    /// # Errors
    /// [`StoreError::InvalidQuery`] if the selector cannot be evaluated. [`StoreError::Partial`] if the query is for an interval
    /// of time and the store has read only a part of it. [`StoreError::TooFar`] if the store would have to read too many
    /// breadcrumbs.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::store::Query;
    /// use universal_executor::{
    ///     BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Selector,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// for count in [1, 5, 9] {
    ///     let order = NewBreadcrumb::new("order.v1").tag("customer:7");
    ///     store.create(order.context(json!({"count": count}))).await?;
    /// }
    /// let orders = Selector::schema("order.v1").all_tags(["customer:7"]);
    /// let large = Query::new(orders.matching("$.count", "gt", 3)).limit(100);
    /// let found = store.search(&large).await?;
    ///
    /// let counts: Vec<_> = found.iter().map(|order| order.context["count"].as_u64()).collect();
    /// assert_eq!(counts, [Some(9), Some(5)], "newest first");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError>;

    /// Returns the breadcrumbs whose meaning is most similar to a text, the most similar first. Of equally similar breadcrumbs,
    /// the newest comes first. The result is empty for a blank text.
    ///
    /// The selector, the scope tags and the bounds of the query apply too. The [`embedding`] module
    /// has an example. One call embeds the text of the query, and so costs one call of the
    /// embedder.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] without [`Capabilities::vector_search`], [`StoreError::Embedding`] if the embedder fails for
    /// the text, [`StoreError::InvalidQuery`] if the selector cannot be evaluated.
    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError>;

    /// Writes breadcrumbs, ends a run and publishes the resulting events, all or nothing.
    ///
    /// Use it for several writes that belong together. For a single write, use
    /// [`BreadcrumbStoreExt`]. A runtime calls it for the response of each run, so an executor
    /// normally does not.
    ///
    /// # Errors
    /// With [`Capabilities::atomic`], nothing is written if the commit fails with one of these errors:
    /// - [`StoreError::Conflict`] or [`StoreError::NotFound`] if an update is from an older version, or the breadcrumb was
    ///   deleted
    /// - [`StoreError::LeaseLost`] if another worker has claimed the run, or the run was released or has ended
    /// - [`StoreError::Rejected`], [`StoreError::TooManyWrites`], [`StoreError::TooManyTags`], [`StoreError::TagTooLong`] or
    ///   [`StoreError::SchemaTooLong`] if the content exceeds a limit of all stores
    /// - [`StoreError::Full`] if the store has reached a limit
    /// - [`StoreError::EmptyWake`] or [`StoreError::InvalidQuery`] if the commit would suspend the run for ever
    ///
    /// After [`StoreError::Unavailable`], the commit may have succeeded.
    ///
    /// # Cancel safety
    /// If the future is dropped, a store with [`Capabilities::atomic`] performs the commit as a whole or not at all. To find out,
    /// claim the run again or read the breadcrumbs.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::store::{Commit, StoreError, Write};
    /// use universal_executor::{
    ///     BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Patch,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let stock = NewBreadcrumb::new("stock.v1").context(json!({"items": 5}));
    /// let stock = store.create(stock).await?;
    /// let patch = Patch::new().context(json!({"items": 4}));
    /// let writes = vec![
    ///     Write::Update { id: stock.id, version: stock.version, patch },
    ///     Write::Create(NewBreadcrumb::new("sale.v1")),
    /// ];
    /// let committed = store.commit(Commit::from(writes.clone())).await?;
    /// assert_eq!(committed.written.len(), 2);
    ///
    /// // The update names an old version now, so neither write happens.
    /// let again = store.commit(Commit::from(writes)).await;
    /// assert!(matches!(again, Err(StoreError::Conflict { expected: 1, found: 2, .. })));
    /// assert_eq!(store.recent("sale.v1", 10).await?.len(), 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError>;

    /// Returns the run ledger of this store, or `None` if the store has no ledger.
    ///
    /// For a store without a ledger, the crate adds one in memory for the life of the process. All handles with the same
    /// [`identity`](Self::identity) share it, in every [`Runtime`](crate::Runtime) and in every call of
    /// [`process_event`](crate::UniversalExecutor::process_event). Each trigger is then answered exactly once while the process
    /// lives, and at least once across restarts: a restarted process recognises an earlier response only if the store has
    /// [`Capabilities::run_keys`]. Pass the [idempotency key](crate::ExecutionContext::idempotency_key) on to other services.
    ///
    /// A ledger in memory cannot suspend runs, save their state or run them at most once. It retains the 100,000 runs that ended
    /// last, and up to 1,000,000 runs that have not ended. Without a runtime, process a failed event again until its outcome is
    /// final, because its run also holds back later runs with its ordering key. The process retains the ledgers of the 64 stores
    /// that it used last, and the ledgers that a runtime uses. [`WithLedger`] adds a durable ledger instead.
    ///
    /// A program uses the ledger to list, cancel and redo runs. [`Client`](crate::Client) has the
    /// same operations for services. It needs a store with a ledger, and adds none.
    // The lifetime has a name because mockall cannot elide it.
    #[expect(
        clippy::needless_lifetimes,
        reason = "mockall needs the lifetime by name"
    )]
    fn ledger<'a>(&'a self) -> Option<&'a dyn RunLedger>;
}

/// Optional abilities of a store. Each is `false` unless the store declares it.
///
/// The function `store::conformance::unchecked` (feature `conformance`) lists the abilities that a store does not declare, each
/// with the promises that the suite cannot check without it.
///
/// A program reads the fields. An implementation of a store starts with `Capabilities::default()`
/// and declares its abilities with the methods of the same names:
///
/// ```
/// use universal_executor::store::Capabilities;
/// use universal_executor::{BreadcrumbStore, MemoryStore};
///
/// let declared = Capabilities::default().atomic(true).tombstones(true);
/// assert!(declared.atomic && !declared.vector_search);
///
/// // A memory store without an embedder.
/// let found = MemoryStore::default().capabilities();
/// assert!(found.atomic_ends && found.keyed_requests && !found.vector_search);
/// ```
///
/// The stores of this crate lack these abilities:
/// - [`MemoryStore`], `SqliteStore` and `PostgresStore`: `run_keys`. Without an embedder, also
///   `vector_search`, `scores`, `embeds_updates` and `embeds_hinted`. With a limit of 0 tombstones,
///   also `tombstones`.
/// - `RcrtStore`: all except `reads_own_writes`, `vector_search` and `run_keys`.
/// - [`WithLedger`]: `lineage`, `atomic_ends` and `keyed_requests`, with a ledger also `run_keys`,
///   and each ability that its first store lacks.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent abilities, each asked for by name"
)]
#[non_exhaustive]
pub struct Capabilities {
    /// If `true`, a read returns the result of every earlier commit, so a breadcrumb that is not found does not exist.
    pub reads_own_writes: bool,
    /// If `true`, the last version of a deleted breadcrumb can still be read, so a deletion can trigger executors.
    pub tombstones: bool,
    /// If `true`, [`BreadcrumbStore::vector_search`] is supported.
    pub vector_search: bool,
    /// If `true`, the program that writes a breadcrumb chooses the authors in the fields `created_by` and `updated_by`. If
    /// `false`, the server sets them.
    pub chosen_author: bool,
    /// If `true`, the ledger records which run wrote each breadcrumb version. The hop count and the executor's own breadcrumbs
    /// are then known without reading payloads. If `false`, the ledger also does not record the breadcrumbs of each run:
    /// [`Run::written`] and [`Claim::Done::written`](Claim::Done) do not name the breadcrumbs of this store.
    pub lineage: bool,
    /// If `true`, a commit of several writes is visible in full or not at all.
    pub atomic: bool,
    /// If `true`, a commit that ends a run is one step: its writes and the end of the run are stored together or not at all. If
    /// `false`, a process that dies between the two leaves the writes without the end, and the run is executed again.
    pub atomic_ends: bool,
    /// If `true`, of several concurrent updates from one version of a breadcrumb, one succeeds and the others fail with
    /// [`StoreError::Conflict`]. If `false`, several can succeed, and the last one replaces the others. An update from an older
    /// version than the current one is always a conflict.
    pub exclusive_updates: bool,
    /// If `true`, [`BreadcrumbStore::vector_search`] returns a score for each breadcrumb. If `false`, it returns only their
    /// order.
    pub scores: bool,
    /// If `true`, [`BreadcrumbStore::vector_search`] finds an updated breadcrumb by its current text. If `false`, the search
    /// finds the breadcrumb by the text of its first version.
    pub embeds_updates: bool,
    /// If `true`, [`BreadcrumbStore::vector_search`] compares each breadcrumb's context without the fields that its `llm_hints`
    /// exclude. If `false`, the search compares the whole context.
    pub embeds_hinted: bool,
    /// If `true`, the name of a tenant can be any string. If `false`, the name of a tenant is a UUID.
    pub named_tenants: bool,
    /// If `true`, the store itself recognises the response that an earlier attempt of a run wrote, so that a later attempt does
    /// not write it again. The store needs no ledger for this. A commit for a run then carries its [end](Commit::end), whose
    /// lease the store cannot check and which the store does not record. The breadcrumbs of a response have the tags
    /// `ux:run:<run key>` and `ux:slot:<index>/<number of breadcrumbs>`.
    pub run_keys: bool,
    /// If `true`, [`search`](BreadcrumbStore::search) reads each page of a long query result about as fast as the first page. The
    /// runtime then catches up oldest first, so that runs are enqueued in the order of their triggers. If `false`, the runtime
    /// catches up newest first.
    pub oldest_first: bool,
    /// If `true`, the ledger supports [requests](RunLedger::request), which create a breadcrumb at most once per idempotency
    /// key.
    pub keyed_requests: bool,
}

impl Capabilities {
    /// Sets whether a read returns the result of every earlier commit.
    ///
    /// Defaults to `false`. A store that reads from a replica must not set it.
    #[must_use]
    pub const fn reads_own_writes(mut self, yes: bool) -> Self {
        self.reads_own_writes = yes;
        self
    }

    /// Sets whether the last version of a deleted breadcrumb can be read as a tombstone.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub const fn tombstones(mut self, yes: bool) -> Self {
        self.tombstones = yes;
        self
    }

    /// Sets whether the store supports [`BreadcrumbStore::vector_search`].
    ///
    /// Defaults to `false`. Set also [`scores`](Self::scores()) and
    /// [`embeds_updates`](Self::embeds_updates()) if they apply.
    #[must_use]
    pub const fn vector_search(mut self, yes: bool) -> Self {
        self.vector_search = yes;
        self
    }

    /// Sets whether the writer chooses the author of a breadcrumb version.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub const fn chosen_author(mut self, yes: bool) -> Self {
        self.chosen_author = yes;
        self
    }

    /// Sets whether the ledger records which run wrote each breadcrumb version.
    ///
    /// Defaults to `false`. Needs a ledger in the same backend, which records the run of each
    /// write.
    #[must_use]
    pub const fn lineage(mut self, yes: bool) -> Self {
        self.lineage = yes;
        self
    }

    /// Sets whether a commit of several writes is visible in full or not at all.
    ///
    /// Defaults to `false`. Needs a transaction, or an equivalent, in the backend.
    #[must_use]
    pub const fn atomic(mut self, yes: bool) -> Self {
        self.atomic = yes;
        self
    }

    /// Sets whether a commit stores its writes and the end of a run in one step.
    ///
    /// Defaults to `false`. Needs the breadcrumbs and the ledger in one transaction.
    #[must_use]
    pub const fn atomic_ends(mut self, yes: bool) -> Self {
        self.atomic_ends = yes;
        self
    }

    /// Sets whether only one of several concurrent updates from the same breadcrumb version succeeds, and the others fail as
    /// conflicts.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub const fn exclusive_updates(mut self, yes: bool) -> Self {
        self.exclusive_updates = yes;
        self
    }

    /// Sets whether vector search finds an updated breadcrumb by its current text.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub const fn embeds_updates(mut self, yes: bool) -> Self {
        self.embeds_updates = yes;
        self
    }

    /// Sets whether vector search compares each breadcrumb's context without the fields that its `llm_hints` exclude.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub const fn embeds_hinted(mut self, yes: bool) -> Self {
        self.embeds_hinted = yes;
        self
    }

    /// Sets whether the name of a tenant of the store can be any string, and not only a UUID.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub const fn named_tenants(mut self, yes: bool) -> Self {
        self.named_tenants = yes;
        self
    }

    /// Sets whether vector search returns a score for each breadcrumb.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub const fn scores(mut self, yes: bool) -> Self {
        self.scores = yes;
        self
    }

    /// Sets whether a search reads each page of a long query result about as fast as the first page. If `true`, the runtime
    /// catches up with missed breadcrumbs oldest first.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub const fn oldest_first(mut self, yes: bool) -> Self {
        self.oldest_first = yes;
        self
    }

    /// Sets whether the ledger supports [requests](RunLedger::request), which create a breadcrumb at most once per idempotency
    /// key.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub const fn keyed_requests(mut self, yes: bool) -> Self {
        self.keyed_requests = yes;
        self
    }

    /// Sets whether the store itself recognises the response that an earlier attempt of a run wrote, so that a later attempt does
    /// not write it again.
    ///
    /// Defaults to `false`. It is for stores without a ledger.
    #[must_use]
    pub const fn run_keys(mut self, yes: bool) -> Self {
        self.run_keys = yes;
        self
    }
}

/// Implements [`BreadcrumbStore`] for a smart pointer by forwarding every method, so that an `Arc<dyn BreadcrumbStore>` is a
/// store too.
macro_rules! forward {
    ($pointer:ident) => {
        #[async_trait]
        impl<S: BreadcrumbStore + ?Sized> BreadcrumbStore for $pointer<S> {
            fn tenant(&self) -> &str {
                (**self).tenant()
            }

            fn identity(&self) -> StoreId {
                (**self).identity()
            }

            fn capabilities(&self) -> Capabilities {
                (**self).capabilities()
            }

            async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
                (**self).get(id).await
            }

            async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
                (**self).search(query).await
            }

            async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
                (**self).vector_search(query).await
            }

            async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
                (**self).commit(commit).await
            }

            fn ledger(&self) -> Option<&dyn RunLedger> {
                (**self).ledger()
            }
        }
    };
}

forward!(Arc);
forward!(Box);

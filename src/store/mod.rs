//! Where breadcrumbs live, and the ledger that says which run of which executor has been done.
//!
//! [`BreadcrumbStore`] is the only thing an executor reads from and writes to; [`RunLedger`] is what makes a
//! redelivered event, a second worker or a crash harmless. [`MemoryStore`] has both, as have `SqliteStore` (feature
//! `sqlite`) in a file and `PostgresStore` (feature `postgres`); all have [vector search](embedding) if they are given an embedder. `RcrtStore` (feature `rcrt`) is on a server
//! without a ledger; [`WithLedger`] joins the breadcrumbs of one store to the ledger of another. To a store without a ledger the crate adds one
//! that ends with the process, see [`BreadcrumbStore::ledger`]. [`Instrumented`] tells how
//! long each call of any of them takes and how it ends, and `Faulty` (feature `conformance` or `testing`) lets calls fail on purpose.
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

mod answered;
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
mod tenants;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod wake;
mod with_events;
mod with_ledger;
mod worker;
mod wrap;

pub(crate) use answered::{answered, run_tag};
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
pub(crate) use process_ledger::{AddedLedger, RunStore, Standing};
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
pub use with_events::StoreWithEvents;
pub use with_ledger::WithLedger;
pub use worker::{ExecutorVersion, Version, Worker, WorkerRecord};

use crate::model::{Breadcrumb, BreadcrumbId};
use async_trait::async_trait;
use std::fmt::Debug;
use std::sync::Arc;

/// Durable home of [`Breadcrumb`]s, and the only thing an executor reads from.
///
/// A handle is bound to one tenant; every read, commit and run goes through that.
///
/// # Contract
/// Every backend keeps these promises; `store::conformance` checks each by name.
/// - **Atomic.** A commit (writes, end of run, events) is visible in full or not at all.
/// - **Optimistic.** An update names the version it was made from and fails with
///   [`StoreError::Conflict`] if that is not the current one. Concurrent updates exclude one another with
///   [`Capabilities::exclusive_updates`].
/// - **Newest first.** [`search`](Self::search) orders by update time, then version, then id.
/// - **Whole selector.** What a query asks for is what it returns; nothing is left for the caller to filter.
/// - **Identified.** Clones of a handle have the same [`identity`](Self::identity), and handles on other data another one.
/// - **Tenants apart.** No handle sees, changes or runs anything of another tenant.
/// - **Canonical.** JSON too deep or too large is refused, more than 256 tags or a tag over 256 bytes too, and U+0000
///   becomes U+FFFD, in every store alike.
/// - **Cancel safe.** Dropping a future leaves the store as before or after it.
/// - **Shared.** A clone is another handle on the same data, never a copy.
///
/// # Implementing
/// The `Debug` output of a store appears in log lines and in [`Health`](crate::runtime::Health): it must contain no credentials.
///
/// There are no default methods: a wrapper that forgot to forward one would compile and quietly lose the inner
/// store's better version. An operation the backend lacks returns [`StoreError::Unsupported`] and is `false` in
/// [`capabilities`](Self::capabilities).
#[async_trait]
pub trait BreadcrumbStore: Debug + Send + Sync + 'static {
    /// The tenant this handle is bound to; `"default"` unless bound to another.
    fn tenant(&self) -> &str;

    /// The identity of the data behind this handle. Clones of a handle have the same identity, handles of different tenants
    /// different ones. A store in memory returns clones of one [`StoreId::unique`]: two stores with one identity share the runs of a
    /// [ledger](Self::ledger) that the crate adds.
    fn identity(&self) -> StoreId;

    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// The current version of a breadcrumb.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is none (any more).
    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError>;

    /// The breadcrumbs a query selects, whole, with their `llm_hints`; none is no error. Fewer than its limit means that
    /// there are no more.
    ///
    /// # Errors
    /// [`StoreError::InvalidQuery`] if its selector cannot be evaluated. [`StoreError::Partial`] if the query is for an interval and
    /// the store has read only a part of it.
    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError>;

    /// The breadcrumbs nearest in meaning to a text, nearest first, of those as near the newest. A text that says nothing
    /// is near to none.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] without [`Capabilities::vector_search`], [`StoreError::Embedding`] if the text has no
    /// vector, [`StoreError::InvalidQuery`] if the selector cannot be evaluated.
    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError>;

    /// Writes breadcrumbs, ends a run and announces both, all or nothing.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] or [`StoreError::NotFound`] for a stale update, [`StoreError::LeaseLost`] if the run
    /// is no longer the caller's, [`StoreError::Rejected`], [`StoreError::TooManyTags`], [`StoreError::TagTooLong`] or
    /// [`StoreError::SchemaTooLong`] for what no store keeps, [`StoreError::EmptyWake`] or [`StoreError::InvalidQuery`] for a run that would wait
    /// for ever. Nothing is written then.
    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError>;

    /// The run ledger of this store, if it has one.
    ///
    /// For a store without a ledger, the crate adds one in memory for the life of the process. All handles with the same
    /// [`identity`](Self::identity) share it, in every [`Runtime`](crate::Runtime) and in every call of
    /// [`process_event`](crate::UniversalExecutor::process_event). Each trigger is then answered exactly once while the process
    /// lives, and at least once across restarts: a restarted process recognises an earlier response only if the store has
    /// [`Capabilities::run_keys`]. Pass the [idempotency key](crate::ExecutionContext::idempotency_key) on to other services.
    ///
    /// A ledger in memory cannot suspend runs, save their state or run them at most once. It retains the 100,000 runs that ended
    /// last, and up to 1,000,000 runs that have not ended: without a runtime, process a failed event again until its outcome is
    /// final, because its run also holds back later runs with its ordering key. The process retains the ledgers of the 64 stores that it used last, and those in use by a runtime. [`WithLedger`] adds
    /// a durable ledger instead.
    // The lifetime is spelled out for mockall, which cannot elide it.
    #[expect(
        clippy::needless_lifetimes,
        reason = "mockall needs the lifetime by name"
    )]
    fn ledger<'a>(&'a self) -> Option<&'a dyn RunLedger>;
}

/// Abilities of a store that not every backend has. Each is `false` unless the store declares it.
///
/// The function `store::conformance::unchecked` (feature `conformance`) lists the abilities that a store does not declare, with the
/// promises that the suite does not check for that reason.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent abilities, each asked for by name"
)]
#[non_exhaustive]
pub struct Capabilities {
    /// A read sees every commit before it, so what is not found is gone.
    pub reads_own_writes: bool,
    /// The last version of a deleted breadcrumb can still be read, so deletions can trigger.
    pub tombstones: bool,
    /// [`BreadcrumbStore::vector_search`] works.
    pub vector_search: bool,
    /// `created_by` and `updated_by` are what the caller says.
    pub chosen_author: bool,
    /// The ledger knows which run wrote each breadcrumb version, so hops and own breadcrumbs need not be read from
    /// payloads. If `false`, the ledger also does not record what each run wrote: [`Run::written`] and
    /// [`Claim::Done::written`](Claim::Done) do not name the breadcrumbs of this store.
    pub lineage: bool,
    /// A commit of several writes is visible in full or not at all.
    pub atomic: bool,
    /// A commit that ends a run is one step: its writes and the end of the run are stored together or not at all. If `false`,
    /// a process that dies between the two leaves the writes without the end, and the run is executed again.
    pub atomic_ends: bool,
    /// Of several concurrent updates from one version of a breadcrumb, one succeeds and the others fail with
    /// [`StoreError::Conflict`]. If `false`, several can succeed, and the last one replaces the others. An update from an older
    /// version than the current one is always a conflict.
    pub exclusive_updates: bool,
    /// [`BreadcrumbStore::vector_search`] tells how near each breadcrumb is, and not only their order.
    pub scores: bool,
    /// [`BreadcrumbStore::vector_search`] finds an updated breadcrumb by its current text. If `false`, the search finds the
    /// breadcrumb by the text of its first version.
    pub embeds_updates: bool,
    /// [`BreadcrumbStore::vector_search`] compares the context that the `llm_hints` of a breadcrumb leave, so fields that the hints
    /// exclude have no effect. If `false`, the search compares the whole context.
    pub embeds_hinted: bool,
    /// A tenant can have any name. If `false`, the name of a tenant is a UUID.
    pub named_tenants: bool,
    /// It has no ledger, and knows all the same what a run wrote in an earlier attempt: a commit for a run carries its
    /// [end](Commit::end), whose lease the store cannot check and which it does not record. What a run responds with
    /// has the tags `ux:run:<key of the run>` and `ux:slot:<place>/<how many>`.
    pub run_keys: bool,
    /// [`search`](BreadcrumbStore::search) reads any page of a long list in about the same time. The runtime then catches up
    /// oldest first, so that runs are enqueued in the order of their triggers. Otherwise it catches up newest first.
    pub oldest_first: bool,
    /// The ledger creates one breadcrumb for each key of a [request](RunLedger::request).
    pub keyed_requests: bool,
}

impl Capabilities {
    /// Sets whether a read sees every commit before it.
    #[must_use]
    pub const fn reads_own_writes(mut self, yes: bool) -> Self {
        self.reads_own_writes = yes;
        self
    }

    /// Sets whether deleted breadcrumbs leave a tombstone.
    #[must_use]
    pub const fn tombstones(mut self, yes: bool) -> Self {
        self.tombstones = yes;
        self
    }

    /// Sets whether vector search works.
    #[must_use]
    pub const fn vector_search(mut self, yes: bool) -> Self {
        self.vector_search = yes;
        self
    }

    /// Sets whether the caller chooses the author.
    #[must_use]
    pub const fn chosen_author(mut self, yes: bool) -> Self {
        self.chosen_author = yes;
        self
    }

    /// Sets whether the ledger knows which run wrote what.
    #[must_use]
    pub const fn lineage(mut self, yes: bool) -> Self {
        self.lineage = yes;
        self
    }

    /// Sets whether a commit of several writes is atomic.
    #[must_use]
    pub const fn atomic(mut self, yes: bool) -> Self {
        self.atomic = yes;
        self
    }

    /// Sets whether a commit stores its writes and the end of a run in one step.
    #[must_use]
    pub const fn atomic_ends(mut self, yes: bool) -> Self {
        self.atomic_ends = yes;
        self
    }

    /// Sets whether one of several concurrent updates from one version succeeds and the others are conflicts.
    #[must_use]
    pub const fn exclusive_updates(mut self, yes: bool) -> Self {
        self.exclusive_updates = yes;
        self
    }

    /// Sets whether vector search finds an updated breadcrumb by its current text.
    #[must_use]
    pub const fn embeds_updates(mut self, yes: bool) -> Self {
        self.embeds_updates = yes;
        self
    }

    /// Sets whether vector search compares the context that the hints of a breadcrumb leave.
    #[must_use]
    pub const fn embeds_hinted(mut self, yes: bool) -> Self {
        self.embeds_hinted = yes;
        self
    }

    /// Sets whether a tenant can have any name.
    #[must_use]
    pub const fn named_tenants(mut self, yes: bool) -> Self {
        self.named_tenants = yes;
        self
    }

    /// Sets whether vector search tells scores.
    #[must_use]
    pub const fn scores(mut self, yes: bool) -> Self {
        self.scores = yes;
        self
    }

    /// Sets whether the runtime catches up oldest first.
    #[must_use]
    pub const fn oldest_first(mut self, yes: bool) -> Self {
        self.oldest_first = yes;
        self
    }

    /// Sets whether the ledger creates one breadcrumb for each key of a request.
    #[must_use]
    pub const fn keyed_requests(mut self, yes: bool) -> Self {
        self.keyed_requests = yes;
        self
    }

    /// Sets whether commits of runs carry their ends although there is no ledger.
    #[must_use]
    pub const fn run_keys(mut self, yes: bool) -> Self {
        self.run_keys = yes;
        self
    }
}

/// Every method of the store behind a pointer, so that `Arc<dyn BreadcrumbStore>` is one too.
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

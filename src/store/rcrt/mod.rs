//! Store backend for an RCRT (Right Context Right Time) server.

mod backfill;
mod body;
mod builder;
mod commit;
mod create;
mod creation_key;
mod error;
mod filter;
mod foreign;
mod http;
mod offsets;
mod pages;
mod read;
mod search;
mod seek;
mod token_check;
mod update;
mod wire;

pub use builder::{RcrtBuilder, RcrtError};
pub use error::SplitCharacter;

use super::{
    BreadcrumbStore, Capabilities, Commit, Committed, Query, RunLedger, Scored, StoreError,
    StoreId, VectorQuery,
};
use crate::model::{Breadcrumb, BreadcrumbId};
use crate::source::SseSource;
use async_trait::async_trait;
use error::store_error;
use read::Reader;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A [`BreadcrumbStore`] on an RCRT (Right Context Right Time) server, over HTTP (feature `rcrt`). Use it if your team already
/// runs such a server.
///
/// A store is bound to one owner, which is its tenant. The server's lists have the breadcrumbs of every owner, so the store reads
/// each breadcrumb as a whole and omits the breadcrumbs of other owners.
///
/// ```no_run
/// use universal_executor::{BoxError, BreadcrumbStoreExt, NewBreadcrumb, RcrtStore, SqliteStore, WithLedger};
///
/// # async fn example() -> Result<(), BoxError> {
/// let owner = "00000000-0000-0000-0000-000000000001";
/// let server = RcrtStore::builder("http://localhost:8080", owner)
///     .agent("00000000-0000-0000-0000-0000000000aa")
///     .role("emitter")
///     .build()?;
/// let events = server.events();
/// // With a ledger, each trigger has one run, and its response is written once. Runs of different owners are separate.
/// let runs = SqliteStore::builder("runs.db").open().await?.in_tenant(owner);
/// let store = WithLedger::new(server, runs);
/// let said = store.create(NewBreadcrumb::new("user.message.v1")).await?;
/// # drop((events, said));
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
/// Reads and searches keep the promises of every store: the whole selector, newest first, current versions, only of its tenant.
/// An update from an older version is a conflict. If the outcome of a write is unknown (a lost response, a status 500), the store
/// reads the breadcrumb. It returns [`StoreError::Unavailable`] only if the outcome is still unknown then.
///
/// # Limitations
/// See [`capabilities`](BreadcrumbStore::capabilities), and the guide `docs/cookbook/on-an-rcrt-server.md` for all limits.
/// - **Concurrent updates do not exclude one another.** The server compares the version and writes in two steps, so several updates
///   from one version can succeed, and the last one replaces the others.
/// - **Updates do not change vectors.** Vector search finds a breadcrumb by its first version, with its whole context.
/// - **Some updates make the server panic.** The store rejects an update whose context has a multi-byte character across byte 200
///   of its JSON text, with [`SplitCharacter`] as the cause.
/// - **A commit of several writes is not atomic.** The store validates the whole commit first, then sends the writes one by one.
///   If a write fails or the future is dropped, the earlier writes remain.
/// - **No ledger.** Without a ledger, a trigger is answered at least once, normally once. The breadcrumbs of a response have the
///   tags `ux:run:<run key>` and `ux:slot:<index>/<number of breadcrumbs>`, and are created under the idempotency key
///   `<run key>:<index>:<try>`. So a second attempt finds the breadcrumbs of the first one and creates only the rest. The indexes of a
///   dead letter, and of breadcrumbs that are written with it, start with an `f`. A creation that takes longer than
///   [`lookup_timeout`](RcrtBuilder::lookup_timeout) can lead to several breadcrumbs with one index. Readers then use the oldest.
/// - **Recovery after a crash needs `look_back`.** A runtime finds the triggers that were in progress if it starts at the
///   beginning and [looks back](crate::runtime::RuntimeBuilder::look_back), for example for a day. A trigger whose whole response
///   exists is not executed again. A trigger without a response, or with updates alone, is executed again, and an update is then
///   made from the current version. With [`WithLedger`](super::WithLedger), each trigger has one run instead.
/// - **A field cannot be set to null.** The server retains the old value for null. So setting a context or hints to null is
///   [`StoreError::Unsupported`].
/// - **No tombstones.** A deleted breadcrumb cannot be read, and the store publishes no event of the deletion.
/// - **No scores.** Vector search returns only an order. A query with a minimum score is [`StoreError::Unsupported`].
/// - **The server sets the authors.** The author of a breadcrumb is the agent of the token.
/// - **A creation from outside of runs has an unknown outcome after [`StoreError::Unavailable`].** The breadcrumb may have been
///   created, and the store cannot find it.
///
/// # Limits
/// A search reads at most 10,000 breadcrumbs, then fails with [`StoreError::TooFar`]. The server does not evaluate conditions on
/// the context, so select a schema or a tag as well. A query for an interval of time ([`before`](Query::before()) and
/// [`after`](Query::after())) stops after 1,000 breadcrumbs or 30 seconds, and then returns [`StoreError::Partial`]. A body of
/// more than 2 MiB is [`StoreError::Rejected`]. Error messages of the server are truncated to 300 bytes and never contain the
/// token. The store omits a breadcrumb that has expired by this machine's clock.
///
/// A read can use up a breadcrumb whose time to live is counted in reads.
#[derive(Clone)]
pub struct RcrtStore {
    reader: Reader,
    events: SseSource,
    /// Identity that the store handle shares only with its clones. The API token of a handle decides which breadcrumbs the handle
    /// can read.
    id: StoreId,
}

const NAME: &str = "RcrtStore";

/// Limits and delays of an [`RcrtStore`].
#[derive(Clone, Copy, Debug)]
struct Settings {
    max_scanned: usize,
    max_list_bytes: usize,
    lookup_timeout: Duration,
    pause: (Duration, Duration),
    refuses_split_characters: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_scanned: 10_000,
            max_list_bytes: 16 << 20,
            lookup_timeout: Duration::from_secs(5),
            pause: (Duration::from_millis(50), Duration::from_secs(1)),
            refuses_split_characters: true,
        }
    }
}

impl RcrtStore {
    /// Returns a builder for a store on the server at `base_url`, such as `http://localhost:8080`. `owner` is the UUID in the
    /// `owner_id` of the server's tokens and breadcrumbs.
    ///
    /// [`build`](RcrtBuilder::build) checks both arguments.
    pub fn builder(base_url: impl Into<String>, owner: impl Into<String>) -> RcrtBuilder {
        RcrtBuilder::new(base_url.into(), owner.into())
    }

    /// Returns a source of the events that report all breadcrumbs which any client creates or updates on the RCRT server. All
    /// clones of the store share one connection.
    ///
    /// Pass it to [`Runtime::on_source`](crate::Runtime::on_source). A store of this type has no
    /// source that [`Runtime::on`](crate::Runtime::on) could use.
    ///
    /// # Examples
    /// ```no_run
    /// use universal_executor::{BoxError, MemoryStore, RcrtStore, Runtime, WithLedger};
    ///
    /// # async fn example() -> Result<(), BoxError> {
    /// let owner = "00000000-0000-0000-0000-000000000001";
    /// let server = RcrtStore::builder("http://localhost:8080", owner).build()?;
    /// let events = server.events();
    /// let store = WithLedger::new(server, MemoryStore::default().in_tenant(owner));
    /// let builder = Runtime::on_source(&store, events);
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn events(&self) -> SseSource {
        self.events.clone()
    }
}

#[async_trait]
impl BreadcrumbStore for RcrtStore {
    fn tenant(&self) -> &str {
        &self.reader.owner
    }

    fn identity(&self) -> StoreId {
        self.id.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
            .reads_own_writes(true)
            .vector_search(true)
            .run_keys(true)
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        let found = self.reader.full(id).await.map_err(store_error)?;
        found.map(Arc::new).ok_or(StoreError::NotFound {
            id,
            tombstone: None,
        })
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        search::search(&self.reader, query).await
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        search::nearest(&self.reader, query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        commit::commit(&self.reader, commit).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        None
    }
}

impl fmt::Debug for RcrtStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RcrtStore")
            .field("owner", &self.reader.owner)
            .finish_non_exhaustive()
    }
}

//! The store on an RCRT server.

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

/// Breadcrumbs on an RCRT server, reached over HTTP (feature `rcrt`): for teams that run one already.
///
/// It is bound to one owner, which is its tenant. The server's lists have the breadcrumbs of every owner, so each is read
/// whole before it is returned, and left out unless it is this owner's.
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
/// // With a ledger beside it, each trigger has one run, and what answers it is written once. Runs are apart by owner.
/// let runs = SqliteStore::builder("runs.db").open().await?.in_tenant(owner);
/// let store = WithLedger::new(server, runs);
/// let said = store.create(NewBreadcrumb::new("user.message.v1")).await?;
/// # drop((events, said));
/// # Ok(())
/// # }
/// ```
///
/// # What it promises
/// Reads and searches as every store: the whole selector, newest first, current versions, only of its tenant. An update from an
/// older version is a conflict. If the outcome of a write is unknown (a lost answer, a 500), the store reads the breadcrumb, and
/// returns [`StoreError::Unavailable`] only if that does not answer the question.
///
/// # What it cannot promise
/// See [`capabilities`](BreadcrumbStore::capabilities), and the guide `docs/on-an-rcrt-server.md` for all limits.
/// - **Concurrent updates do not exclude one another.** The server compares the version and writes in two steps, so several updates
///   from one version can succeed, and the last one replaces the others.
/// - **Updates do not change vectors.** Vector search finds a breadcrumb by its first version, with its whole context.
/// - **Some updates make the server panic.** The store refuses an update whose context has a character of several bytes across byte
///   200 of its JSON text, with [`SplitCharacter`] as the cause.
/// - **A commit of several writes is not atomic.** It is checked as a whole before anything is written, and then written
///   one by one; what fails in the middle, or is dropped, leaves what was written before.
/// - **No ledger.** Alone it answers at least once, normally once. What a run responds with carries the tags
///   `ux:run:<key of the run>` and `ux:slot:<place>/<how many>`, and is created under the idempotency key
///   `<key of the run>:<place>:<try>`, so that a second attempt finds what the first one created and creates only the rest.
///   The places of a dead letter and what is written with it begin with an `f`.
///   Of several in one place, which a creation that takes longer than
///   [`lookup_timeout`](RcrtBuilder::lookup_timeout) can leave, readers take the oldest.
/// - **What was in flight when a process died** is found by a runtime that starts at the beginning and
///   [looks back](crate::runtime::RuntimeBuilder::look_back), a day for example; a trigger whose whole response is there is
///   not executed again. What responds with nothing, or with updates alone, is executed again then, and an update is made
///   again from the version that is there. [`WithLedger`](super::WithLedger) keeps one run for each trigger instead.
/// - **Nothing is cleared.** The server takes null for keeping a field, so setting a context or hints to null is
///   [`StoreError::Unsupported`].
/// - **No tombstones.** What was deleted is gone, and nobody is told.
/// - **No scores.** Vector search gives an order; one with a least score is [`StoreError::Unsupported`].
/// - **Authors are the server's.** It says which agent has the token.
/// - **Creating from outside a run** is not known again either: [`StoreError::Unavailable`] may mean that it was done.
///
/// # Bounds
/// A search looks at 10,000 breadcrumbs at the most, then fails with [`StoreError::TooFar`]; conditions on the context are
/// applied here, so name a schema or a tag as well. A query for an interval ([`before`](Query::before()) and
/// [`after`](Query::after())) stops after 1,000 breadcrumbs or 30 seconds, and then answers with [`StoreError::Partial`]. A body
/// of more than 2 MiB is [`StoreError::Rejected`]. Error messages of the server are truncated to 300 bytes and never contain the
/// token. A breadcrumb that has expired by this machine's clock is missing.
///
/// Reading may consume breadcrumbs whose time to live is counted in reads.
#[derive(Clone)]
pub struct RcrtStore {
    reader: Reader,
    events: SseSource,
    /// Shared by clones only: the token of a handle decides which breadcrumbs it can read.
    id: StoreId,
}

const NAME: &str = "RcrtStore";

/// What a store does within.
#[derive(Clone, Copy, Debug)]
struct Settings {
    max_scanned: usize,
    max_list_bytes: usize,
    patience: Duration,
    pause: (Duration, Duration),
    refuses_split_characters: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_scanned: 10_000,
            max_list_bytes: 16 << 20,
            patience: Duration::from_secs(5),
            pause: (Duration::from_millis(50), Duration::from_secs(1)),
            refuses_split_characters: true,
        }
    }
}

impl RcrtStore {
    /// A store at the URL of a server (`http://localhost:8080`), of an owner: the `owner_id` of its tokens and breadcrumbs.
    pub fn builder(base_url: impl Into<String>, owner: impl Into<String>) -> RcrtBuilder {
        RcrtBuilder::new(base_url.into(), owner.into())
    }

    /// What is created and updated on the server, by whomever. All clones of the store share one connection.
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

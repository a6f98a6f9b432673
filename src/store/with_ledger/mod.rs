mod journal;
mod runs;
mod store_pair;

pub(super) use store_pair::StorePair;

use super::{
    BreadcrumbStore, Capabilities, Commit, Committed, Query, RunLedger, Scored, StoreError,
    StoreId, VectorQuery,
};
use crate::model::{Breadcrumb, BreadcrumbId};
use async_trait::async_trait;
use std::sync::Arc;

/// A store that combines the breadcrumbs of one store with the run ledger of a second store. Use it if the first store has no
/// ledger.
///
/// Breadcrumbs are read from and written to the first store. Runs are claimed and ended in the second store. The breadcrumbs of
/// the second store and a ledger of the first store are not used.
///
/// ```
/// use universal_executor::store::{Claim, Claimed, Commit, RunEnd, RunRef, Write};
/// use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, WithLedger};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// // The first store represents a service with breadcrumbs and without a ledger.
/// let (service, runs) = (MemoryStore::default(), MemoryStore::default());
/// let store = WithLedger::new(service.clone(), runs);
/// let question = store.create(NewBreadcrumb::new("question.v1")).await?;
/// let run = RunRef::new("answerer", question.id, question.version);
///
/// let Some(ledger) = store.ledger() else { return Err("there is a ledger".into()) };
/// if let Claim::Granted(Claimed { lease, .. }) = ledger.claim(&run, None).await? {
///     let answer = Write::Create(NewBreadcrumb::new("answer.v1"));
///     store.commit(Commit { writes: vec![answer], end: Some((lease, RunEnd::Done)) }).await?;
/// }
///
/// assert!(matches!(ledger.claim(&run, None).await?, Claim::Done { .. }));
/// assert!(service.latest("answer.v1").await?.is_some());
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
///
/// # Guarantees
/// There is one run for each trigger version, however often it is announced, with leases, attempts, retries, order, suspension
/// and dead letters. Runs are counted, listed, redone and resumed as in any ledger.
///
/// A response that only creates breadcrumbs is executed once. The ledger saves the response, or the failure with its dead letter,
/// before the store writes it. If the commit then fails for a transient reason, it returns [`StoreError::ResponseSaved`] and
/// releases the lease. The run can then neither fail nor be executed again, even in its last attempt.
///
/// A later [`claim`](super::RunLedger::claim) writes the response, after delays of up to five minutes, and returns
/// [`Claim::Done`](super::Claim::Done). If the store rejects the response permanently, or the writes have failed for three days,
/// the run is executed again. It then needs a remaining attempt, and must not be a run that may be executed at most once.
///
/// # Limitations
/// A response and the end of its run are two steps, in this order. The lease is renewed right before the first step.
/// - **At least once.** A store with [`Capabilities::run_keys`] receives the run with each write, and finds the earlier response
///   of the run. In any other store, the response is written again if the process dies between the two steps, the future of the
///   commit is dropped, or the ledger fails. After an error of a commit, the writes may have succeeded.
/// - **Some runs are executed again.** After a crash between the two steps, some responses cannot be recovered: updates,
///   deletions and suspensions, a response that is larger than a saved state may be, and a response that the store rejects. Their
///   runs are executed again, and repeat their intermediate writes.
/// - **A stale worker may write.** A worker whose lease is known to be lost writes nothing. But a worker that is delayed between
///   this check and its write, for longer than its lease, writes although another worker has the run. It receives
///   [`StoreError::LeaseLost`] when it ends the run.
/// - **Lineage is not verified.** The ledger does not have the breadcrumbs, so [`Capabilities::lineage`] is `false`. Hops and own
///   breadcrumbs are read from the `creator` field of each payload, which any writer can forge.
/// - **No keys of requests.** The key of a [request](super::RunLedger::request) and its breadcrumb would be recorded in two
///   steps, so a crash between the two would lose or repeat the breadcrumb. Requests are [`StoreError::Unsupported`], and
///   [`Capabilities::keyed_requests`] is `false`.
/// - **Rows have less information.** They do not name the breadcrumbs of their runs, so the claim of a finished run does not
///   return them. A run that ended because the store did not have the announced version yet is not made ready again when the
///   version exists.
///
/// # Suspended runs
/// The writes precede the suspension, so that no run waits for an answer to a question that was never written. An answer can
/// arrive between the two steps. It wakes the run, because [`Wake::since`](super::Wake::since) becomes the time of the last write
/// by the store's clock.
///
/// [`Run::suspended_at`](super::Run::suspended_at) is by the ledger's clock. A suspension without writes therefore compares the
/// two clocks: if the store's clock is behind, a fast answer can seem to be older than the suspension, and then does not wake the
/// run. Synchronise the two clocks, and set a time limit for such a wait.
///
/// # Dead letters
/// The dead letter of a failed run is written to the store, and counts towards the maximum of [`MAX_WRITES`](Commit::MAX_WRITES)
/// of the commit. The store of the ledger writes another dead letter for itself, which is not used.
///
/// # Saved states
/// A state with the field `ux:response` is rejected. It would count as a saved response, which is written without further checks.
///
/// # Tenants
/// The tenant is that of the first store, and run keys are made of it. The rows are in the tenant of the second handle. Bind both
/// handles to the same tenant. Otherwise the runs of two tenants are in one ledger: a worker of one tenant claims runs of the
/// other, does not find their triggers, and ends them. [`new`](Self::new) logs a warning if the tenants differ.
#[derive(Clone, Debug)]
pub struct WithLedger<S, L> {
    store: S,
    ledger_store: L,
    id: StoreId,
}

const NAME: &str = "WithLedger";

impl<S: BreadcrumbStore, L: BreadcrumbStore> WithLedger<S, L> {
    /// Combines the breadcrumbs of `store` with the ledger of `ledger_store`. The result has no ledger if `ledger_store` has none.
    ///
    /// Bind both handles to the same tenant. The second store can be small, for example a
    /// [`MemoryStore`](super::MemoryStore) for tests or a `SqliteStore` in production. Its ledger
    /// must be shared by all workers of the first store.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{RunRef, RunState};
    /// use universal_executor::{
    ///     BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger, WithLedger,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let (service, runs) = (MemoryStore::default(), MemoryStore::default());
    /// let store = WithLedger::new(service.in_tenant("acme"), runs.in_tenant("acme"));
    /// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let ledger = store.ledger().ok_or("no ledger")?;
    /// ledger.enqueue(vec![RunRef::new("pricing", order.id, order.version).into()]).await?;
    ///
    /// // The breadcrumb is in the first store, and the run in the second one.
    /// let rows = runs.in_tenant("acme").runs(&Default::default()).await?;
    /// assert_eq!((rows.len(), rows[0].state), (1, RunState::Ready));
    /// assert!(!store.capabilities().lineage);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn new(store: S, ledger_store: L) -> Self {
        let (tenant, of_ledger) = (store.tenant(), ledger_store.tenant());
        if tenant != of_ledger && ledger_store.ledger().is_some() {
            tracing::warn!(
                tenant,
                ledger_tenant = of_ledger,
                "the store and the ledger of a WithLedger store are bound to different tenants; bind both to the same tenant"
            );
        }
        let id = store.identity().with_runs_of(&ledger_store.identity());
        Self {
            store,
            ledger_store,
            id,
        }
    }

    /// Returns the wrapped store that contains the breadcrumbs, and not the one with the run ledger.
    pub(in crate::store) fn store(&self) -> &S {
        &self.store
    }

    /// Returns references to the breadcrumb store and to the ledger store with its run ledger, or `None` if the ledger store has
    /// no ledger.
    fn pair(&self) -> Option<StorePair<'_>> {
        let ledger = self.ledger_store.ledger()?;
        Some(StorePair {
            store: &self.store,
            ledger_store: &self.ledger_store,
            ledger,
            deletes_dead_letters: false,
        })
    }
}

#[async_trait]
impl<S: BreadcrumbStore, L: BreadcrumbStore> BreadcrumbStore for WithLedger<S, L> {
    fn tenant(&self) -> &str {
        self.store.tenant()
    }

    fn identity(&self) -> StoreId {
        self.id.clone()
    }

    fn capabilities(&self) -> Capabilities {
        let store = self.store.capabilities();
        let run_keys = store.run_keys && self.ledger().is_none();
        let store = store.lineage(false).keyed_requests(false);
        store.atomic_ends(false).run_keys(run_keys)
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.store.get(id).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        self.store.search(query).await
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.store.vector_search(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        match self.pair() {
            Some(pair) => pair.commit(commit).await,
            None if commit.end.is_none() || self.store.capabilities().run_keys => {
                self.store.commit(commit).await
            }
            None => Err(StoreError::Unsupported {
                store: NAME,
                operation: "runs without a ledger",
            }),
        }
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        self.ledger_store.ledger().map(|_| self as &dyn RunLedger)
    }
}

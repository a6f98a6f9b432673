mod joined;
mod journal;
mod runs;

pub(super) use joined::Joined;

use super::{
    BreadcrumbStore, Capabilities, Commit, Committed, Query, RunLedger, Scored, StoreError,
    StoreId, VectorQuery,
};
use crate::model::{Breadcrumb, BreadcrumbId};
use async_trait::async_trait;
use std::sync::Arc;

/// A store with the run ledger of another: for breadcrumbs that live where no ledger is.
///
/// Breadcrumbs are read from and written to the one, runs are claimed from and ended in the other. What the other
/// store holds beside its ledger is not looked at, and neither is a ledger of the first.
///
/// ```
/// use universal_executor::store::{Claim, Claimed, Commit, RunEnd, RunRef, Write};
/// use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, WithLedger};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// // The first stands for a service that keeps breadcrumbs and knows of no runs.
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
/// # What it promises
/// One run for each version of a trigger, however often that is announced; leases, attempts, retries, order, suspended
/// runs and dead letters. Runs are counted, listed, redone and resumed as in any ledger.
///
/// A response that only creates breadcrumbs is executed once. It is saved in the ledger before it is written, and so is a
/// failure with its dead letter. If the commit then fails for now, it returns [`StoreError::ResponseSaved`] and releases
/// the lease, so the run can neither fail nor be executed again, also in its last attempt. A later
/// [`claim`](super::RunLedger::claim) writes the response, with pauses of up to five minutes, and returns
/// [`Claim::Done`](super::Claim::Done). If the store refuses the response for good, or three days after the run was added,
/// the run is executed again if it has an attempt left and may be executed more than once.
///
/// # What it cannot promise
/// A response and the end of its run are two steps, in this order. The lease is renewed right before the first.
/// - **At least once.** A store with [`Capabilities::run_keys`] is told of the run, and finds again what that responded
///   with before. To any other, if the process dies between the two, the commit is dropped or the ledger fails, the
///   response is written again. An error of a commit does not mean that nothing was written.
/// - **Some are executed again.** After a crash between the two a response that updates or deletes, one whose text is
///   larger than a state may be, one that the store refuses, and a suspension are made anew. What an executor writes on
///   the way is written again as well.
/// - **A stale worker may write.** It writes nothing if its lease is known to be lost. But one that is held up, for
///   longer than its lease, between that check and its write does write, although another has the run by now. It is
///   told [`StoreError::LeaseLost`] when it ends the run.
/// - **Lineage is as claimed.** The ledger does not see the breadcrumbs, so [`Capabilities::lineage`] is false: hops and
///   own breadcrumbs are read from the creator in each payload, which whoever writes there can forge.
/// - **No keys of requests.** The key of a [request](super::RunLedger::request) and its breadcrumb would be recorded in two steps, so a
///   crash between the two would lose or repeat the breadcrumb. Requests are [`StoreError::Unsupported`], and
///   [`Capabilities::keyed_requests`] is false.
/// - **Rows say less.** They do not tell what their runs wrote, so neither does an event that comes again. One that ended
///   because the store did not have the announced version yet is not made ready again when that comes.
///
/// # Suspended runs
/// The writes precede the suspension, so that no run waits for an answer to a question that was never asked. An answer can
/// arrive between the two. It wakes the run, because [`Wake::since`](super::Wake::since) becomes the time of the last write by the store's
/// clock. [`Run::suspended_at`](super::Run::suspended_at) is by the ledger's clock. A suspension without writes compares
/// the two clocks: if the store's clock is behind by more than an answer takes, the answer seems to be older and wakes
/// nothing. Keep the two clocks together, and set a time limit for such a wait.
///
/// # Dead letters
/// The dead letter of a failed run is written to the store and counts among the at most
/// [`MAX_WRITES`](Commit::MAX_WRITES) of the commit. The ledger's own store writes one for itself, which nobody reads.
///
/// # What a run saves
/// A state with the field `ux:response` is refused: it would be taken for a response that was kept, which is not checked
/// again when it is written.
///
/// # Tenants
/// Its tenant is that of the store, from which keys of runs are made; the rows are in the tenant of the handle that has
/// the ledger. Bind both to the same, or the runs of two tenants meet in one ledger: a worker of one then claims those of
/// the other, does not find their triggers, and ends them. A warning tells of two that differ.
#[derive(Clone, Debug)]
pub struct WithLedger<S, L> {
    store: S,
    ledger_store: L,
    id: StoreId,
}

const NAME: &str = "WithLedger";

impl<S: BreadcrumbStore, L: BreadcrumbStore> WithLedger<S, L> {
    /// The breadcrumbs of a store with the ledger of another. Without a ledger there this has none either.
    #[must_use]
    pub fn new(store: S, ledger_store: L) -> Self {
        let (tenant, of_ledger) = (store.tenant(), ledger_store.tenant());
        if tenant != of_ledger && ledger_store.ledger().is_some() {
            tracing::warn!(
                tenant,
                of_ledger,
                "the ledger is bound to another tenant than the store; bind it to the same"
            );
        }
        let id = store.identity().with_runs_of(&ledger_store.identity());
        Self {
            store,
            ledger_store,
            id,
        }
    }

    /// Returns the store with the breadcrumbs.
    pub(in crate::store) fn store(&self) -> &S {
        &self.store
    }

    /// The two stores for one call; `None` if the second has no ledger.
    fn joined(&self) -> Option<Joined<'_>> {
        let ledger = self.ledger_store.ledger()?;
        Some(Joined {
            store: &self.store,
            ledger_store: &self.ledger_store,
            ledger,
            deletes_letters: false,
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
        match self.joined() {
            Some(joined) => joined.commit(commit).await,
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

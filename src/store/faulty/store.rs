use super::{Faulty, NAME, around};
use crate::model::{Breadcrumb, BreadcrumbId, Json, Timestamp};
use crate::store::{
    BreadcrumbStore, Capabilities, Claim, Commit, Committed, ExecutorLimits, Lease, Lost, NewRun,
    Operation, Query, Run, RunFilter, RunLedger, RunRef, Scored, StoreError, VectorQuery,
};
use async_trait::async_trait;
use std::sync::Arc;

impl<S: BreadcrumbStore> Faulty<S> {
    /// A call of the store inside.
    async fn call<'s, T, F: Future<Output = Result<T, StoreError>>>(
        &'s self,
        operation: Operation,
        call: impl FnOnce(&'s S) -> F,
    ) -> Result<T, StoreError> {
        around(&self.plan, operation, || call(&self.inner)).await
    }

    fn runs_inside(&self) -> Result<&dyn RunLedger, StoreError> {
        self.inner.ledger().ok_or(StoreError::Unsupported {
            store: NAME,
            operation: "runs without a ledger",
        })
    }
}

#[async_trait]
impl<S: BreadcrumbStore> BreadcrumbStore for Faulty<S> {
    fn tenant(&self) -> &str {
        self.inner.tenant()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.call(Operation::Get, |store| store.get(id)).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        self.call(Operation::Search, |store| store.search(query))
            .await
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.call(Operation::VectorSearch, |store| store.vector_search(query))
            .await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.call(Operation::Commit, |store| store.commit(commit))
            .await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        self.inner.ledger().map(|_| self as &dyn RunLedger)
    }
}

#[async_trait]
impl<S: BreadcrumbStore> RunLedger for Faulty<S> {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        let ledger = self.runs_inside()?;
        self.call(Operation::Enqueue, |_| ledger.enqueue(runs))
            .await
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        let ledger = self.runs_inside()?;
        self.call(Operation::Claim, |_| ledger.claim(run, instead_of))
            .await
    }

    async fn claim_next(&self, n: usize, of: &[ExecutorLimits]) -> Result<usize, StoreError> {
        let ledger = self.runs_inside()?;
        self.call(Operation::ClaimNext, |_| ledger.claim_next(n, of))
            .await
    }

    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
        let ledger = self.runs_inside()?;
        self.call(Operation::Heartbeat, |_| ledger.heartbeat(leases))
            .await
    }

    async fn retry(&self, lease: Lease, at: Timestamp, counts: bool) -> Result<(), StoreError> {
        let ledger = self.runs_inside()?;
        self.call(Operation::Retry, |_| ledger.retry(lease, at, counts))
            .await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        let ledger = self.runs_inside()?;
        self.call(Operation::Release, |_| ledger.release(lease))
            .await
    }

    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError> {
        let ledger = self.runs_inside()?;
        self.call(Operation::Save, |_| ledger.save(lease, state))
            .await
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        let ledger = self.runs_inside()?;
        self.call(Operation::Resume, |_| ledger.resume(run, with))
            .await
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        let ledger = self.runs_inside()?;
        self.call(Operation::Redo, |_| ledger.redo(run)).await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        let ledger = self.runs_inside()?;
        self.call(Operation::Runs, |_| ledger.runs(filter)).await
    }
}

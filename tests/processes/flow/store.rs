//! A store wrapper that stops its process at a planned call, where the parent process kills it.

use crate::flow::notes::Notes;
use futures::FutureExt as _;
use std::sync::Arc;
use universal_executor::model::{Json, Timestamp};
use universal_executor::store::{
    Cancelled, Capabilities, Claim, ClaimId, Claimed, Commit, Committed, ExecutorLimits,
    KeyPosition, Lease, Lost, NewRequest, NewRun, PausedExecutor, Query, Requested, Run, RunFilter,
    RunPage, RunQuery, RunRef, Scored, StoreError, StoreId, VectorQuery, Worker, WorkerRecord,
    WrittenBy,
};
use universal_executor::{
    Breadcrumb, BreadcrumbId, BreadcrumbStore, RunLedger, SqliteStore, async_trait,
};

#[derive(Debug)]
pub(crate) struct Doomed {
    pub(crate) store: SqliteStore,
    pub(crate) notes: Arc<Notes>,
}

impl Doomed {
    /// Executes a call during which the process may be killed.
    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let mut call = Box::pin(call);
        self.notes.pass();
        // The writer thread receives the work, and may be at any point of it during the kill.
        self.notes.pass_after(|| drop(call.as_mut().now_or_never()));
        let done = call.await;
        self.notes.pass();
        done
    }
}

#[async_trait]
impl BreadcrumbStore for Doomed {
    fn tenant(&self) -> &str {
        self.store.tenant()
    }

    fn identity(&self) -> StoreId {
        self.store.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
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
        self.call(self.store.commit(commit)).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        Some(self)
    }
}

#[async_trait]
impl RunLedger for Doomed {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        self.call(self.store.enqueue(runs)).await
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        self.call(self.store.claim(run, instead_of)).await
    }

    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.call(self.store.claim_next(n, of, id)).await
    }

    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
        self.store.heartbeat(leases).await
    }

    async fn retry(
        &self,
        lease: Lease,
        at: Timestamp,
        counts: bool,
        cause: Option<&str>,
    ) -> Result<(), StoreError> {
        self.call(self.store.retry(lease, at, counts, cause)).await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.call(self.store.release(lease)).await
    }

    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError> {
        self.call(self.store.transfer(lease, version, until, position))
            .await
    }

    async fn accept_transfers(
        &self,
        versions: &[(Arc<str>, Arc<str>)],
    ) -> Result<usize, StoreError> {
        self.store.accept_transfers(versions).await
    }

    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError> {
        self.store.record_worker(worker).await
    }

    async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.store.workers().await
    }

    async fn save_positions(&self, positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError> {
        self.store.save_positions(positions).await
    }

    async fn positions(&self, executors: &[Arc<str>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.store.positions(executors).await
    }

    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError> {
        let ended = self.notes.ended();
        self.call(self.store.save(lease, state)).await?;
        self.notes.keep(ended);
        Ok(())
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        self.call(self.store.resume(run, with)).await
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        self.call(self.store.redo(run)).await
    }

    async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.call(self.store.cancel(run)).await
    }

    async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.call(self.store.enqueue_cancelled(run)).await
    }

    async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
        self.call(self.store.skip(run)).await
    }

    async fn pause_executor(&self, executor: &str) -> Result<bool, StoreError> {
        self.call(self.store.pause_executor(executor)).await
    }

    async fn resume_executor(&self, executor: &str) -> Result<bool, StoreError> {
        self.call(self.store.resume_executor(executor)).await
    }

    async fn paused_executors(&self) -> Result<Vec<PausedExecutor>, StoreError> {
        self.store.paused_executors().await
    }

    async fn request(&self, request: NewRequest) -> Result<Requested, StoreError> {
        self.call(self.store.request(request)).await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        self.store.runs(filter).await
    }

    async fn runs_page(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        self.store.runs_page(query).await
    }

    async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, StoreError> {
        self.store.written_by(versions).await
    }
}

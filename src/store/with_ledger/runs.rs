//! Implementation of [`RunLedger`] for [`WithLedger`]: forwards to the ledger, and writes saved responses before a run starts.

use super::store_pair::StorePair;
use super::{NAME, WithLedger, journal};
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::{
    BreadcrumbStore, Cancelled, Claim, ClaimId, Claimed, Enqueued, ExecutorLimits, KeyPosition,
    Lease, Lost, NewRequest, NewRun, PausedExecutor, Requested, Run, RunFilter, RunLedger, RunPage,
    RunQuery, RunRef, StoreError, Worker, WorkerRecord, WrittenBy,
};
use async_trait::async_trait;
use std::sync::Arc;

impl<S: BreadcrumbStore, L: BreadcrumbStore> WithLedger<S, L> {
    fn pair_or_error(&self) -> Result<StorePair<'_>, StoreError> {
        self.pair().ok_or(StoreError::Unsupported {
            store: NAME,
            operation: "runs without a ledger",
        })
    }

    fn inner_ledger(&self) -> Result<&dyn RunLedger, StoreError> {
        Ok(self.pair_or_error()?.ledger)
    }
}

#[async_trait]
impl<S: BreadcrumbStore, L: BreadcrumbStore> RunLedger for WithLedger<S, L> {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        self.inner_ledger()?.enqueue(runs).await
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        self.pair_or_error()?.claim(run, instead_of).await
    }

    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.inner_ledger()?.claim_next(n, of, id).await
    }

    async fn enqueue_and_claim(
        &self,
        runs: Vec<NewRun>,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Enqueued, StoreError> {
        let ledger = self.inner_ledger()?;
        ledger.enqueue_and_claim(runs, n, of, id).await
    }

    async fn begin(&self, claimed: Claimed) -> Result<Claim, StoreError> {
        self.pair_or_error()?.finish_saved_response(claimed).await
    }

    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
        self.inner_ledger()?.heartbeat(leases).await
    }

    async fn retry(
        &self,
        lease: Lease,
        at: Timestamp,
        counts: bool,
        cause: Option<&str>,
    ) -> Result<(), StoreError> {
        let runs = self.inner_ledger()?;
        runs.retry(lease, at, counts, cause).await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.inner_ledger()?.release(lease).await
    }

    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError> {
        let runs = self.inner_ledger()?;
        runs.transfer(lease, version, until, position).await
    }

    async fn accept_transfers(
        &self,
        versions: &[(Arc<str>, Arc<str>)],
    ) -> Result<usize, StoreError> {
        self.inner_ledger()?.accept_transfers(versions).await
    }

    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError> {
        self.inner_ledger()?.record_worker(worker).await
    }

    async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.inner_ledger()?.workers().await
    }

    async fn save_positions(&self, positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError> {
        self.inner_ledger()?.save_positions(positions).await
    }

    async fn positions(&self, executors: &[Arc<str>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.inner_ledger()?.positions(executors).await
    }

    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError> {
        journal::check(&state)?;
        self.inner_ledger()?.save(lease, state).await
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        self.inner_ledger()?.resume(run, with).await
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        self.inner_ledger()?.redo(run).await
    }

    async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.inner_ledger()?.cancel(run).await
    }

    async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.inner_ledger()?.enqueue_cancelled(run).await
    }

    async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
        self.inner_ledger()?.skip(run).await
    }

    async fn pause_executor(&self, executor: &str) -> Result<bool, StoreError> {
        self.inner_ledger()?.pause_executor(executor).await
    }

    async fn resume_executor(&self, executor: &str) -> Result<bool, StoreError> {
        self.inner_ledger()?.resume_executor(executor).await
    }

    async fn paused_executors(&self) -> Result<Vec<PausedExecutor>, StoreError> {
        self.inner_ledger()?.paused_executors().await
    }

    async fn request(&self, request: NewRequest) -> Result<Requested, StoreError> {
        drop(request);
        Err(StoreError::Unsupported {
            store: NAME,
            operation: "requests with a key, because the breadcrumbs and the ledger are in different stores",
        })
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        self.inner_ledger()?.runs(filter).await
    }

    async fn runs_page(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        self.inner_ledger()?.runs_page(query).await
    }

    /// Returns [`WrittenBy::Unknown`] for each version, because the ledger has no record of the breadcrumbs' writers.
    async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, StoreError> {
        Ok(vec![WrittenBy::Unknown; versions.len()])
    }
}

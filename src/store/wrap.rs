//! Macros for store wrappers that run code around each call.

/// Implements [`BreadcrumbStore`](crate::store::BreadcrumbStore) for a wrapper around `inner`, and
/// [`RunLedger`](crate::store::RunLedger) if `inner` has a ledger.
///
/// The wrapper has `async fn call(&self, operation, call)`, which receives a closure that calls the inner store, and
/// `fn wrapped_identity(&self) -> StoreId`.
macro_rules! wrap_store {
    ($wrapper:ident, $name:expr) => {
        impl<S: $crate::store::BreadcrumbStore> $wrapper<S> {
            fn inner_ledger(
                &self,
            ) -> Result<&dyn $crate::store::RunLedger, $crate::store::StoreError> {
                let unsupported = $crate::store::StoreError::Unsupported {
                    store: $name,
                    operation: "runs without a ledger",
                };
                self.inner.ledger().ok_or(unsupported)
            }
        }

        $crate::store::wrap::wrap_breadcrumbs!($wrapper);
        $crate::store::wrap::wrap_runs!($wrapper);
    };
}

macro_rules! wrap_breadcrumbs {
    ($wrapper:ident) => {
        const _: () = {
            use std::sync::Arc;
            use $crate::model::{Breadcrumb, BreadcrumbId};
            use $crate::store::{
                BreadcrumbStore, Capabilities, Commit, Committed, Operation, Query, RunLedger,
                Scored, StoreError, StoreId, VectorQuery,
            };

            #[async_trait::async_trait]
            impl<S: BreadcrumbStore> BreadcrumbStore for $wrapper<S> {
                fn tenant(&self) -> &str {
                    self.inner.tenant()
                }

                fn identity(&self) -> StoreId {
                    self.wrapped_identity()
                }

                fn capabilities(&self) -> Capabilities {
                    self.inner.capabilities()
                }

                async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
                    self.call(Operation::Get, || self.inner.get(id)).await
                }

                async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
                    let search = || self.inner.search(query);
                    self.call(Operation::Search, search).await
                }

                async fn vector_search(
                    &self,
                    query: &VectorQuery,
                ) -> Result<Vec<Scored>, StoreError> {
                    let search = || self.inner.vector_search(query);
                    self.call(Operation::VectorSearch, search).await
                }

                async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
                    let commit = || self.inner.commit(commit);
                    self.call(Operation::Commit, commit).await
                }

                fn ledger(&self) -> Option<&dyn RunLedger> {
                    self.inner.ledger().map(|_| self as &dyn RunLedger)
                }
            }
        };
    };
}

macro_rules! wrap_runs {
    ($wrapper:ident) => {
        const _: () = {
            use std::sync::Arc;
            use $crate::model::{BreadcrumbId, Json, Timestamp};
            use $crate::store::{
                BreadcrumbStore, Cancelled, Claim, ClaimId, Claimed, ExecutorLimits, KeyPosition,
                Lease, Lost, NewRequest, NewRun, Operation, PausedExecutor, Requested, Run,
                RunFilter, RunLedger, RunPage, RunQuery, RunRef, StoreError, Worker, WorkerRecord,
                WrittenBy,
            };

            #[async_trait::async_trait]
            impl<S: BreadcrumbStore> RunLedger for $wrapper<S> {
                async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
                    let ledger = self.inner_ledger()?;
                    self.call(Operation::Enqueue, || ledger.enqueue(runs)).await
                }

                async fn claim(
                    &self,
                    run: &RunRef,
                    instead_of: Option<Lease>,
                ) -> Result<Claim, StoreError> {
                    let ledger = self.inner_ledger()?;
                    let claim = || ledger.claim(run, instead_of);
                    self.call(Operation::Claim, claim).await
                }

                async fn claim_next(
                    &self,
                    n: usize,
                    of: &[ExecutorLimits],
                    id: ClaimId,
                ) -> Result<Vec<Claimed>, StoreError> {
                    let ledger = self.inner_ledger()?;
                    let claim = || ledger.claim_next(n, of, id);
                    self.call(Operation::ClaimNext, claim).await
                }

                async fn begin(&self, claimed: Claimed) -> Result<Claim, StoreError> {
                    self.inner_ledger()?.begin(claimed).await
                }

                async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
                    let ledger = self.inner_ledger()?;
                    let extend = || ledger.heartbeat(leases);
                    self.call(Operation::Heartbeat, extend).await
                }

                async fn retry(
                    &self,
                    lease: Lease,
                    at: Timestamp,
                    counts: bool,
                    cause: Option<&str>,
                ) -> Result<(), StoreError> {
                    let ledger = self.inner_ledger()?;
                    let retry = || ledger.retry(lease, at, counts, cause);
                    self.call(Operation::Retry, retry).await
                }

                async fn release(&self, lease: Lease) -> Result<(), StoreError> {
                    let ledger = self.inner_ledger()?;
                    self.call(Operation::Release, || ledger.release(lease))
                        .await
                }

                async fn transfer(
                    &self,
                    lease: Lease,
                    version: &str,
                    until: Timestamp,
                    position: KeyPosition,
                ) -> Result<(), StoreError> {
                    let ledger = self.inner_ledger()?;
                    let transfer = || ledger.transfer(lease, version, until, position);
                    self.call(Operation::Transfer, transfer).await
                }

                async fn accept_transfers(
                    &self,
                    versions: &[(Arc<str>, Arc<str>)],
                ) -> Result<usize, StoreError> {
                    let ledger = self.inner_ledger()?;
                    self.call(Operation::AcceptTransfers, || {
                        ledger.accept_transfers(versions)
                    })
                    .await
                }

                async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError> {
                    let ledger = self.inner_ledger()?;
                    let record = || ledger.record_worker(worker);
                    self.call(Operation::RecordWorker, record).await
                }

                async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
                    let ledger = self.inner_ledger()?;
                    self.call(Operation::Workers, || ledger.workers()).await
                }

                async fn save_positions(
                    &self,
                    positions: &[(Arc<str>, Vec<u8>)],
                ) -> Result<(), StoreError> {
                    let ledger = self.inner_ledger()?;
                    let save = || ledger.save_positions(positions);
                    self.call(Operation::SavePositions, save).await
                }

                async fn positions(
                    &self,
                    executors: &[Arc<str>],
                ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
                    let ledger = self.inner_ledger()?;
                    let read = || ledger.positions(executors);
                    self.call(Operation::Positions, read).await
                }

                async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError> {
                    let ledger = self.inner_ledger()?;
                    self.call(Operation::Save, || ledger.save(lease, state))
                        .await
                }

                async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
                    let ledger = self.inner_ledger()?;
                    self.call(Operation::Resume, || ledger.resume(run, with))
                        .await
                }

                async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
                    let ledger = self.inner_ledger()?;
                    self.call(Operation::Redo, || ledger.redo(run)).await
                }

                async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
                    let ledger = self.inner_ledger()?;
                    self.call(Operation::Cancel, || ledger.cancel(run)).await
                }

                async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
                    let ledger = self.inner_ledger()?;
                    let cancel = || ledger.enqueue_cancelled(run);
                    self.call(Operation::Cancel, cancel).await
                }

                async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
                    let ledger = self.inner_ledger()?;
                    self.call(Operation::Skip, || ledger.skip(run)).await
                }

                async fn pause_executor(&self, executor: &str) -> Result<bool, StoreError> {
                    let ledger = self.inner_ledger()?;
                    let pause = || ledger.pause_executor(executor);
                    self.call(Operation::PauseExecutor, pause).await
                }

                async fn resume_executor(&self, executor: &str) -> Result<bool, StoreError> {
                    let ledger = self.inner_ledger()?;
                    let resume = || ledger.resume_executor(executor);
                    self.call(Operation::ResumeExecutor, resume).await
                }

                async fn paused_executors(&self) -> Result<Vec<PausedExecutor>, StoreError> {
                    let ledger = self.inner_ledger()?;
                    let list = || ledger.paused_executors();
                    self.call(Operation::PausedExecutors, list).await
                }

                async fn request(&self, request: NewRequest) -> Result<Requested, StoreError> {
                    let ledger = self.inner_ledger()?;
                    self.call(Operation::Request, || ledger.request(request))
                        .await
                }

                async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
                    let ledger = self.inner_ledger()?;
                    self.call(Operation::Runs, || ledger.runs(filter)).await
                }

                async fn runs_page(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
                    let ledger = self.inner_ledger()?;
                    let page = || ledger.runs_page(query);
                    self.call(Operation::RunsPage, page).await
                }

                async fn written_by(
                    &self,
                    versions: &[(BreadcrumbId, u64)],
                ) -> Result<Vec<WrittenBy>, StoreError> {
                    let ledger = self.inner_ledger()?;
                    let written_by = || ledger.written_by(versions);
                    self.call(Operation::WrittenBy, written_by).await
                }
            }
        };
    };
}

pub(super) use {wrap_breadcrumbs, wrap_runs, wrap_store};

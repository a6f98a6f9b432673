//! A store wrapper that stops its process at a planned call, where the parent process kills it.

use crate::agent::ToolMode;
use crate::agent::points::Points;
use crate::agent::worker::AGENT;
use futures::FutureExt as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use universal_executor::model::{Json, Timestamp};
use universal_executor::store::{
    Cancelled, Capabilities, Claim, ClaimId, Claimed, Commit, Committed, ExecutorLimits,
    KeyPosition, Lease, Lost, NewRequest, NewRun, PausedExecutor, Query, Requested, Run, RunFilter,
    RunPage, RunQuery, RunRef, Scored, StoreError, StoreId, VectorQuery, Worker, WorkerRecord,
    Write, WrittenBy,
};
use universal_executor::{
    Breadcrumb, BreadcrumbId, BreadcrumbStore, RunLedger, SqliteStore, async_trait,
};

#[derive(Debug)]
pub(crate) struct Doomed {
    pub(crate) store: SqliteStore,
    pub(crate) points: Arc<Points>,
    pub(crate) tool_mode: ToolMode,
}

impl Doomed {
    /// Executes a call during which the process may be killed. A successful call saves the results in `keeps`.
    async fn call<T>(
        &self,
        name: &str,
        keeps: BTreeSet<String>,
        call: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let step = self.points.step(name);
        let mut call = Box::pin(call);
        step.reach("before");
        // The writer thread receives the work, and may be at any point of it during the kill.
        step.reach_after("under way", || drop(call.as_mut().now_or_never()));
        let done = call.await;
        if done.is_ok() {
            self.points.keep(keeps);
        }
        step.reach("after");
        done
    }

    /// Returns the results that a call of the agent's run saves: all ended turns, and all tools that do not answer by breadcrumbs.
    fn kept_by_agent(&self) -> BTreeSet<String> {
        let mut ended = self.points.ended();
        if self.tool_mode == ToolMode::Breadcrumbs {
            ended.retain(|what| what.starts_with("turn"));
        }
        ended
    }

    fn kept_by(&self, commit: &Commit) -> BTreeSet<String> {
        match &commit.end {
            Some((lease, _)) if &*lease.run.executor == AGENT => self.kept_by_agent(),
            Some(_) | None => {
                let writes = commit.writes.iter();
                let answers = writes.filter_map(|write| match write {
                    Write::Create(new)
                        if new.schema_name.as_deref() == Some("tool.response.v1") =>
                    {
                        let is_success = new.context.text("status") == Some("success");
                        is_success.then(|| new.context.text("tool").map(str::to_owned))?
                    }
                    Write::Create(_) | Write::Update { .. } | Write::Delete { .. } => None,
                });
                answers.collect()
            }
        }
    }
}

fn nothing() -> BTreeSet<String> {
    BTreeSet::new()
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
        let keeps = self.kept_by(&commit);
        self.call("commit", keeps, self.store.commit(commit)).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        Some(self)
    }
}

#[async_trait]
impl RunLedger for Doomed {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        self.call("enqueue", nothing(), self.store.enqueue(runs))
            .await
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        self.call("claim", nothing(), self.store.claim(run, instead_of))
            .await
    }

    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.call("claim_next", nothing(), self.store.claim_next(n, of, id))
            .await
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
        self.call(
            "retry",
            nothing(),
            self.store.retry(lease, at, counts, cause),
        )
        .await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.call("release", nothing(), self.store.release(lease))
            .await
    }

    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError> {
        self.call(
            "transfer",
            nothing(),
            self.store.transfer(lease, version, until, position),
        )
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
        let keeps = self.kept_by_agent();
        self.call("save", keeps, self.store.save(lease, state))
            .await
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        self.call("resume", nothing(), self.store.resume(run, with))
            .await
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        self.call("redo", nothing(), self.store.redo(run)).await
    }

    async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.call("cancel", nothing(), self.store.cancel(run)).await
    }

    async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.call("cancel", nothing(), self.store.enqueue_cancelled(run))
            .await
    }

    async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
        self.call("skip", nothing(), self.store.skip(run)).await
    }

    async fn pause_executor(&self, executor: &str) -> Result<bool, StoreError> {
        let pause = self.store.pause_executor(executor);
        self.call("pause_executor", nothing(), pause).await
    }

    async fn resume_executor(&self, executor: &str) -> Result<bool, StoreError> {
        let resume = self.store.resume_executor(executor);
        self.call("resume_executor", nothing(), resume).await
    }

    async fn paused_executors(&self) -> Result<Vec<PausedExecutor>, StoreError> {
        self.store.paused_executors().await
    }

    async fn request(&self, request: NewRequest) -> Result<Requested, StoreError> {
        let request = self.store.request(request);
        self.call("request", nothing(), request).await
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

//! [`RunLedger`] implementation of [`PostgresStore`].

use super::PostgresStore;
use super::claim::ClaimNext;
use super::lease::{ClaimRequest, Leased};
use super::list::{OrderingKeyQuery, RunListQuery, RunPageQuery};
use super::paused::{AllPaused, Pause, Resume};
use super::positions::{ReadPositions, SavePositions};
use super::requests::Request;
use super::runs::{
    Cancel, ChangeRow, ClaimOne, Enqueue, EnqueueAndClaim, EnqueueCancelled, Heartbeat,
    RecordOrigins, Redo, Save,
};
use super::sweep;
use super::table::WriterQuery;
use super::workers::{AcceptTransfers, AllWorkers, HasTransfers, RecordWorker};
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::request::ValidRequest;
use crate::store::row::RunRow;
use crate::store::rules::{self, RowChange};
use crate::store::{
    Cancelled, Claim, ClaimId, Claimed, Enqueued, ExecutorLimits, KeyPosition, Lease, Lost,
    NewRequest, NewRun, PausedExecutor, Requested, Run, RunFilter, RunLedger, RunPage, RunQuery,
    RunRef, SavedPosition, StoreError, Worker, WorkerRecord, WrittenBy, canonical,
};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[async_trait]
impl RunLedger for PostgresStore {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        self.write(Enqueue(runs)).await
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        let run = run.clone();
        self.write(ClaimOne { run, instead_of }).await
    }

    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError> {
        let claim = ClaimNext::new(Arc::clone(&self.tenant), ClaimRequest::new(n, of, id));
        let leased = claim.claim(&self.database).await?;
        self.claimed(leased).await
    }

    async fn enqueue_and_claim(
        &self,
        runs: Vec<NewRun>,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Enqueued, StoreError> {
        let enqueue = EnqueueAndClaim {
            runs: Enqueue(runs),
            claim_request: ClaimRequest::new(n, of, id),
        };
        let claimed = match self.write(enqueue).await? {
            Ok(leased) => self.claimed(leased).await,
            Err(error) => Err(error),
        };
        Ok(Enqueued { claimed })
    }

    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
        let heartbeat = Heartbeat {
            tenant: Arc::clone(&self.tenant),
            leases: leases.to_vec(),
        };
        self.database.repeat(heartbeat).await
    }

    async fn retry(
        &self,
        lease: Lease,
        at: Timestamp,
        counts: bool,
        cause: Option<&str>,
    ) -> Result<(), StoreError> {
        let cause = cause.map(str::to_owned);
        self.change(lease.run.clone(), move |row, _, _| {
            rules::retry(row, &lease, at, counts, cause.as_deref())
        })
        .await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.change(lease.run.clone(), move |row, now, _| {
            rules::release(row, &lease, now)
        })
        .await
    }

    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError> {
        let version = version.to_owned();
        let transfer = ChangeRow {
            run: lease.run.clone(),
            decide: move |row, _, _| rules::transfer(row, &lease, &version, until, position),
        };
        self.write(transfer).await
    }

    async fn accept_transfers(
        &self,
        versions: &[(Arc<str>, Arc<str>)],
    ) -> Result<usize, StoreError> {
        // Workers call this every few seconds, mostly without a run to accept. Without one, no lock is taken.
        let tenant = &self.tenant;
        let has_transfers = HasTransfers { tenant, versions };
        match self.database.read(has_transfers).await? {
            true => self.write(AcceptTransfers(versions.to_vec())).await,
            false => Ok(0),
        }
    }

    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError> {
        let record = RecordWorker {
            tenant: Arc::clone(&self.tenant),
            worker: worker.clone(),
        };
        self.database.repeat(record).await
    }

    async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.database.read(AllWorkers(&self.tenant)).await
    }

    async fn save_positions(&self, positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError> {
        SavedPosition::check(positions)?;
        let positions: BTreeMap<_, _> = positions.iter().cloned().collect();
        let save = SavePositions {
            tenant: Arc::clone(&self.tenant),
            positions: positions.into_iter().collect(),
        };
        self.database.repeat(save).await
    }

    async fn positions(&self, executors: &[Arc<str>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let positions = ReadPositions {
            tenant: &self.tenant,
            executors,
        };
        self.database.read(positions).await
    }

    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError> {
        let limit = self.database.settings.limits.breadcrumb_bytes;
        let save = Save {
            tenant: Arc::clone(&self.tenant),
            lease: lease.clone(),
            state: canonical::state(&state, limit)?,
        };
        self.database.repeat(save).await
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        let resumed = run.clone();
        self.change(run.clone(), move |row, now, _| {
            rules::resume(row, &resumed, with, now)
        })
        .await
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        self.write(Redo(run.clone())).await
    }

    async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.write(Cancel(self.with_key(run).await?)).await
    }

    async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.write(EnqueueCancelled(self.with_key(run).await?))
            .await
    }

    async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
        let skipped = run.clone();
        let skip = ChangeRow {
            run: self.with_key(run).await?,
            decide: move |row, _, next| rules::skip_transferred(row, &skipped, next),
        };
        self.write(skip).await
    }

    async fn pause_executor(&self, executor: &str) -> Result<bool, StoreError> {
        self.write(Pause(executor.to_owned())).await
    }

    async fn resume_executor(&self, executor: &str) -> Result<bool, StoreError> {
        self.write(Resume(executor.to_owned())).await
    }

    async fn paused_executors(&self) -> Result<Vec<PausedExecutor>, StoreError> {
        self.database.read(AllPaused(&self.tenant)).await
    }

    async fn request(&self, request: NewRequest) -> Result<Requested, StoreError> {
        let limit = self.database.settings.limits.breadcrumb_bytes;
        let request = ValidRequest::new(request, limit)?;
        let guard = self
            .maintainer
            .as_ref()
            .map(|maintainer| maintainer.begin());
        let (requested, has_expired) = self.write(Request(request)).await?;
        if has_expired {
            sweep::sweep(&self.database, &self.tenant);
        }
        let requested = requested?;
        if let (Some(guard), Requested::Created { breadcrumb }) = (guard, &requested) {
            let created = std::slice::from_ref(breadcrumb);
            guard.committed(self, created, BTreeSet::new()).await;
        }
        Ok(requested)
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        if filter.claim.is_some() {
            // A claim continues after its caller was dropped, so wait for its leases.
            self.database
                .wait_for_abandoned_jobs(&self.tenant.name)
                .await?;
        }
        let list = RunListQuery {
            tenant: &self.tenant,
            filter,
        };
        self.database.read(list).await
    }

    async fn runs_page(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        let page = RunPageQuery {
            tenant: &self.tenant,
            query,
        };
        Ok(RunPage::new(self.database.read(page).await?, query))
    }

    async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, StoreError> {
        let writers = WriterQuery {
            tenant: &self.tenant,
            versions,
        };
        self.database.read(writers).await
    }
}

impl PostgresStore {
    /// Returns a copy of `run` that includes the run's ordering key. If `run` has no key, the key comes from the run's ledger row.
    /// Transactions lock ordering keys before rows, which prevents deadlocks.
    async fn with_key(&self, run: &RunRef) -> Result<RunRef, StoreError> {
        if run.order.is_some() {
            return Ok(run.clone());
        }
        let key = self.database.read(OrderingKeyQuery {
            tenant: &self.tenant,
            run,
        });
        Ok(run.clone().ordered_by(key.await?))
    }

    /// Converts leased runs to claims for the worker, in the same order. Before that, the function stores the missing origins of the runs'
    /// triggers.
    async fn claimed(&self, leased: Vec<Leased>) -> Result<Vec<Claimed>, StoreError> {
        let unknown = leased.iter().filter(|run| run.row.lineage.is_none());
        let unknown: Vec<Lease> = unknown.map(|run| run.row.lease()).collect();
        let mut with_origins = match unknown.is_empty() {
            true => Vec::new(),
            false => self.write(RecordOrigins(unknown)).await?,
        };
        let claimed = leased.iter().filter_map(|run| match run.row.lineage {
            Some(_) => Some(run.claimed()),
            None => {
                let is_it = |with_origins: &Claimed| with_origins.lease.run == run.row.run;
                let index = with_origins.iter().position(is_it)?;
                Some(with_origins.swap_remove(index))
            }
        });
        Ok(claimed.collect())
    }

    /// Applies a state transition to the ledger row of a run in a transaction.
    async fn change(
        &self,
        run: RunRef,
        decide: impl Fn(Option<RunRow>, Timestamp, u64) -> Result<RowChange, StoreError>
        + Send
        + Sync
        + 'static,
    ) -> Result<(), StoreError> {
        self.write(ChangeRow { run, decide }).await
    }
}

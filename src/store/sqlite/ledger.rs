//! [`RunLedger`] implementation of [`SqliteStore`].

use super::SqliteStore;
use super::{canonical, list, paused, positions, requests, runs, table, workers};
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::request::ValidRequest;
use crate::store::row::RunRow;
use crate::store::rules::{self, RowChange};
use crate::store::{
    Cancelled, Claim, ClaimId, Claimed, Enqueued, ExecutorLimits, KeyPosition, Lease, Lost,
    NewRequest, NewRun, PausedExecutor, Requested, Run, RunFilter, RunLedger, RunPage, RunQuery,
    RunRef, SavedPosition, StoreError, Worker, WorkerRecord, WrittenBy,
};
use async_trait::async_trait;
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::sync::Arc;

#[async_trait]
impl RunLedger for SqliteStore {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        self.write(move |transaction| runs::enqueue(transaction, &runs))
            .await
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        let run = run.clone();
        self.write(move |transaction| runs::claim(transaction, &run, instead_of.as_ref()))
            .await
    }

    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError> {
        let of = of.to_vec();
        self.write(move |transaction| runs::claim_next(transaction, n, &of, id))
            .await
    }

    async fn enqueue_and_claim(
        &self,
        runs: Vec<NewRun>,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Enqueued, StoreError> {
        let of = of.to_vec();
        self.write(move |transaction| runs::enqueue_and_claim(transaction, &runs, n, &of, id))
            .await
    }

    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
        let leases = leases.to_vec();
        self.write(move |transaction| runs::heartbeat(transaction, &leases))
            .await
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
        self.change(lease.run.clone(), move |row, _, _| {
            rules::transfer(row, &lease, &version, until, position)
        })
        .await
    }

    async fn accept_transfers(
        &self,
        versions: &[(Arc<str>, Arc<str>)],
    ) -> Result<usize, StoreError> {
        let versions = versions.to_vec();
        self.write(move |transaction| runs::accept_transfers(transaction, &versions))
            .await
    }

    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError> {
        let worker = worker.clone();
        self.write(move |transaction| workers::record(transaction, &worker))
            .await
    }

    async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.read(|connection, tenant, now, _| workers::all(connection, tenant, now))
            .await
    }

    async fn save_positions(&self, positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError> {
        SavedPosition::check(positions)?;
        let positions = positions.to_vec();
        self.write(move |transaction| positions::save(transaction, &positions))
            .await
    }

    async fn positions(&self, executors: &[Arc<str>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let owned_executors = executors.to_vec();
        let read = move |connection: &Connection, tenant, _, _: &dyn Fn() -> bool| {
            positions::of(connection, tenant, &owned_executors)
        };
        let mut saved_positions: Vec<_> = self.read(read).await?;
        // Without a row of the tenant, nothing is read.
        saved_positions.resize(executors.len(), None);
        Ok(saved_positions)
    }

    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError> {
        let limit = self.opened.limits.breadcrumb_bytes;
        let (lease, state) = (lease.clone(), canonical::state(&state, limit)?);
        self.change(lease.run.clone(), move |row, _, _| {
            rules::save(row, &lease, state)
        })
        .await
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        let resumed = run.clone();
        self.change(run.clone(), move |row, now, _| {
            rules::resume(row, &resumed, with, now)
        })
        .await
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        let run = run.clone();
        self.write(move |transaction| runs::redo(transaction, &run))
            .await
    }

    async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        let run = run.clone();
        self.write(move |transaction| runs::cancel(transaction, &run))
            .await
    }

    async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        let run = run.clone();
        self.write(move |transaction| runs::enqueue_cancelled(transaction, &run))
            .await
    }

    async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
        let skipped = run.clone();
        self.change(run.clone(), move |row, _, next| {
            rules::skip_transferred(row, &skipped, next)
        })
        .await
    }

    async fn pause_executor(&self, executor: &str) -> Result<bool, StoreError> {
        let executor = executor.to_owned();
        self.write(move |transaction| paused::pause(transaction, &executor))
            .await
    }

    async fn resume_executor(&self, executor: &str) -> Result<bool, StoreError> {
        let executor = executor.to_owned();
        self.write(move |transaction| paused::resume(transaction, &executor))
            .await
    }

    async fn paused_executors(&self) -> Result<Vec<PausedExecutor>, StoreError> {
        self.read(|connection, tenant, _, _| paused::all(connection, tenant))
            .await
    }

    async fn request(&self, request: NewRequest) -> Result<Requested, StoreError> {
        let request = ValidRequest::new(request, self.opened.limits.breadcrumb_bytes)?;
        let guard = self
            .maintainer
            .as_ref()
            .map(|maintainer| maintainer.begin());
        let (requested, has_expired) = self
            .write(move |transaction| requests::request(transaction, &request))
            .await?;
        if has_expired {
            self.opened.sweep(&self.tenant);
        }
        let requested = requested?;
        if let (Some(guard), Requested::Created { breadcrumb }) = (guard, &requested) {
            let created = std::slice::from_ref(breadcrumb);
            guard.committed(self, created, BTreeSet::new()).await;
        }
        Ok(requested)
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        let owned_filter = filter.clone();
        let read = move |connection: &Connection, tenant, now, _: &dyn Fn() -> bool| {
            list::list(connection, tenant, &owned_filter, now)
        };
        self.read(read).await
    }

    async fn runs_page(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        let owned_query = query.clone();
        let read = move |connection: &Connection, tenant, now, _: &dyn Fn() -> bool| {
            list::page(connection, tenant, &owned_query, now)
        };
        let rows: Vec<_> = self.read(read).await?;
        Ok(RunPage::new(rows, query))
    }

    async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, StoreError> {
        let owned_versions = versions.to_vec();
        let read = move |connection: &Connection, tenant, _, _: &dyn Fn() -> bool| {
            let written_by = |(id, version)| {
                Ok(WrittenBy::of(
                    version,
                    table::writer(connection, tenant, id)?,
                ))
            };
            owned_versions.into_iter().map(written_by).collect()
        };
        let mut writers: Vec<_> = self.read(read).await?;
        // Without a row of the tenant, nothing is read.
        writers.resize(versions.len(), WrittenBy::Unknown);
        Ok(writers)
    }
}

impl SqliteStore {
    /// Applies a state transition to the ledger row of a run in a transaction. `decide` receives the row, the time and the
    /// next sequence number.
    async fn change(
        &self,
        run: RunRef,
        decide: impl FnOnce(Option<RunRow>, Timestamp, u64) -> Result<RowChange, StoreError>
        + Send
        + 'static,
    ) -> Result<(), StoreError> {
        self.write(move |transaction| runs::change(transaction, &run, decide))
            .await
    }
}

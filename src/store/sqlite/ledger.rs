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
        self.write(move |writing| runs::enqueue(writing, &runs))
            .await
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        let run = run.clone();
        self.write(move |writing| runs::claim(writing, &run, instead_of.as_ref()))
            .await
    }

    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError> {
        let of = of.to_vec();
        self.write(move |writing| runs::claim_next(writing, n, &of, id))
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
        self.write(move |writing| runs::enqueue_and_claim(writing, &runs, n, &of, id))
            .await
    }

    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
        let leases = leases.to_vec();
        self.write(move |writing| runs::heartbeat(writing, &leases))
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
        self.write(move |writing| runs::accept_transfers(writing, &versions))
            .await
    }

    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError> {
        let worker = worker.clone();
        self.write(move |writing| workers::record(writing, &worker))
            .await
    }

    async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.read(|connection, tenant, now, _| workers::all(connection, tenant, now))
            .await
    }

    async fn save_positions(&self, positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError> {
        SavedPosition::check(positions)?;
        let positions = positions.to_vec();
        self.write(move |writing| positions::save(writing, &positions))
            .await
    }

    async fn positions(&self, executors: &[Arc<str>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let asked = executors.to_vec();
        let read = move |connection: &Connection, tenant, _, _: &dyn Fn() -> bool| {
            positions::of(connection, tenant, &asked)
        };
        let mut found: Vec<_> = self.read(read).await?;
        // Without a row of the tenant, nothing is read.
        found.resize(executors.len(), None);
        Ok(found)
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
        self.write(move |writing| runs::redo(writing, &run)).await
    }

    async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        let run = run.clone();
        self.write(move |writing| runs::cancel(writing, &run)).await
    }

    async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        let run = run.clone();
        self.write(move |writing| runs::enqueue_cancelled(writing, &run))
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
        self.write(move |writing| paused::pause(writing, &executor))
            .await
    }

    async fn resume_executor(&self, executor: &str) -> Result<bool, StoreError> {
        let executor = executor.to_owned();
        self.write(move |writing| paused::resume(writing, &executor))
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
            .write(move |writing| requests::request(writing, &request))
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
        let asked = filter.clone();
        let read = move |connection: &Connection, tenant, now, _: &dyn Fn() -> bool| {
            list::list(connection, tenant, &asked, now)
        };
        self.read(read).await
    }

    async fn runs_page(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        let asked = query.clone();
        let read = move |connection: &Connection, tenant, now, _: &dyn Fn() -> bool| {
            list::page(connection, tenant, &asked, now)
        };
        let found: Vec<_> = self.read(read).await?;
        Ok(RunPage::new(found, query))
    }

    async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, StoreError> {
        let asked = versions.to_vec();
        let read = move |connection: &Connection, tenant, _, _: &dyn Fn() -> bool| {
            let written_by = |(id, version)| {
                Ok(WrittenBy::of(
                    version,
                    table::writer(connection, tenant, id)?,
                ))
            };
            asked.into_iter().map(written_by).collect()
        };
        let mut found: Vec<_> = self.read(read).await?;
        // Without a row of the tenant, nothing is read.
        found.resize(versions.len(), WrittenBy::Unknown);
        Ok(found)
    }
}

impl SqliteStore {
    /// Changes the ledger row of a run in a transaction. `decide` receives the row, the time and the next sequence number.
    async fn change(
        &self,
        run: RunRef,
        decide: impl FnOnce(Option<RunRow>, Timestamp, u64) -> Result<RowChange, StoreError>
        + Send
        + 'static,
    ) -> Result<(), StoreError> {
        self.write(move |writing| runs::change(writing, &run, decide))
            .await
    }
}

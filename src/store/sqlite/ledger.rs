//! The ledger of one handle. What is parked in it is known to it alone.

use super::SqliteStore;
use super::tenant::Writing;
use super::{canonical, list, parked, positions, queue, row, runs, table, workers};
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::row::{Origin, Row};
use crate::store::{
    Claim, ExecutorLimits, KeyPosition, Lease, LeaseOwner, Lost, NewRun, Run, RunFilter, RunLedger,
    RunRef, RunState, SavedPosition, StoreError, Worker, WorkerRecord, WrittenBy,
};
use async_trait::async_trait;
use rusqlite::Connection;
use std::sync::Arc;
use std::time::Instant;

#[async_trait]
impl RunLedger for SqliteStore {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        self.write(move |writing| runs::enqueue(writing, runs))
            .await
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        if instead_of.is_none()
            && self.parked.contains(run)
            && let Some(claim) = self.take_parked(run).await?
        {
            return Ok(claim);
        }
        if let Some(older) = &instead_of {
            self.touch(older);
        }
        let (run, parked, older) = (run.clone(), self.parked.clone(), instead_of.clone());
        let claim = self
            .write(move |writing| runs::claim(writing, &run, older.as_ref(), &parked))
            .await?;
        if let Some(older) = &instead_of {
            self.forget(older);
        }
        Ok(claim)
    }

    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        owner: LeaseOwner,
    ) -> Result<usize, StoreError> {
        let (of, parked) = (of.to_vec(), self.parked.clone());
        let lease = move |writing: &mut Writing<'_>| runs::claim_next(writing, n, &of);
        let (unclaimed, tenant) = (
            Arc::clone(&self.database.unclaimed),
            Arc::clone(&self.tenant),
        );
        let (time, since) = (Arc::clone(&self.database.time), Instant::now());
        let park = move |leased: &Vec<Row>| {
            unclaimed.add(&tenant, leased, time.now(), since);
            parked.add(leased, owner);
        };
        let leased = self.database.write_then(&self.tenant, lease, park).await?;
        Ok(leased.len())
    }

    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
        leases.iter().for_each(|lease| self.touch(lease));
        let extended = leases.to_vec();
        let lost = self
            .write(move |writing| runs::heartbeat(writing, &extended))
            .await?;
        for lease in leases {
            if lost
                .iter()
                .any(|lost| lost.run == lease.run && lost.token == lease.token)
            {
                self.forget(lease);
            }
        }
        Ok(lost)
    }

    async fn retry(
        &self,
        lease: Lease,
        at: Timestamp,
        counts: bool,
        cause: Option<&str>,
    ) -> Result<(), StoreError> {
        self.touch(&lease);
        let (failed, cause) = (lease.clone(), cause.map(str::to_owned));
        self.write(move |writing| runs::retry(writing, &failed, at, counts, cause.as_deref()))
            .await?;
        self.forget(&lease);
        Ok(())
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.touch(&lease);
        let released = lease.clone();
        self.write(move |writing| runs::release(writing, &released))
            .await?;
        self.forget(&lease);
        Ok(())
    }

    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError> {
        self.touch(&lease);
        let (held, version) = (lease.clone(), version.to_owned());
        self.write(move |writing| runs::transfer(writing, &held, &version, until, position))
            .await?;
        self.forget(&lease);
        Ok(())
    }

    async fn accept_transfers(
        &self,
        versions: &[(Arc<str>, Arc<str>)],
    ) -> Result<usize, StoreError> {
        let versions = versions.to_vec();
        self.write(move |writing| Ok(queue::accept_transfers(writing, &versions)?))
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
        // Nothing is read of a tenant that was never written to.
        found.resize(executors.len(), None);
        Ok(found)
    }

    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError> {
        let limit = self.database.settings.limits.breadcrumb_bytes;
        self.touch(lease);
        let (lease, state) = (lease.clone(), canonical::state(&state, limit)?);
        self.write(move |writing| runs::save(writing, &lease, state))
            .await
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        let run = run.clone();
        self.write(move |writing| runs::resume(writing, &run, with))
            .await
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        let run = run.clone();
        self.write(move |writing| runs::redo(writing, &run)).await
    }

    async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
        let run = run.clone();
        self.write(move |writing| runs::skip_transferred(writing, &run))
            .await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        if filter.parked {
            // A claim whose caller went away may park its leases until then.
            self.database.settled().await;
        }
        let (asked, parked) = (filter.clone(), self.parked.of(filter.owner));
        let before = parked.clone();
        let read = move |connection: &Connection, tenant, now, _: &dyn Fn() -> bool| {
            list::list(connection, tenant, &asked, &parked, now)
        };
        let rows = self.read(read).await?;
        if list::is_of_all_parked(filter) {
            let still = rows.iter().map(|row| parked::name(&row.run)).collect();
            self.parked.keep(&before, &still);
        }
        Ok(rows)
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
        // Of a tenant that was never written to nothing is read.
        found.resize(versions.len(), WrittenBy::Unknown);
        Ok(found)
    }
}

impl SqliteStore {
    /// The claim of a lease that is parked here: its row is leased already, so this at most reads. None if it is not
    /// that simple: a row that was added before its trigger is to learn where that came from.
    async fn take_parked(&self, run: &RunRef) -> Result<Option<Claim>, StoreError> {
        self.database.settled().await;
        let now = self.database.time.now();
        let leased = self.database.unclaimed.take(&self.tenant, run, now);
        if let Some(row) = leased
            && self.parked.take(run, row.token, row.epoch)
        {
            return Ok(Some(row.granted()));
        }
        let name = run.clone();
        let read = move |connection: &Connection, tenant, _, _: &dyn Fn() -> bool| {
            let origin = table::origin(connection, tenant, &name)?;
            let kept = row::find(connection, tenant, &name)?;
            let is_own = matches!(origin, Origin::Own);
            let lineage = origin.lineage();
            let row = kept.map(|kept| kept.row).filter(|row| {
                let knows_all = row.lineage.is_some() || lineage.is_none();
                !is_own && knows_all
            });
            Ok(row)
        };
        let row = self.read(read).await?;
        let running = row.filter(|row| row.state == RunState::Running);
        let taken = running.filter(|row| self.parked.take(run, row.token, row.epoch));
        Ok(taken.map(|row| row.granted()))
    }

    /// A lease is about to be used: what a claim would have found is not so any more.
    pub(super) fn touch(&self, lease: &Lease) {
        self.database.unclaimed.forget(&self.tenant, &lease.run);
    }

    /// The lease of a run has ended, whether it was taken or still parked.
    pub(super) fn forget(&self, lease: &Lease) {
        self.parked.take(&lease.run, lease.token, lease.epoch);
    }
}

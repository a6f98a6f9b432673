//! The ledger of one handle. What is parked in it is known to it alone.

use super::PostgresStore;
use super::claim::ClaimNext;
use super::list::{self, List};
use super::parked;
use super::positions::{Positions, SavePositions};
use super::runs::{
    ClaimOne, Enqueue, FindRunning, Heartbeat, Redo, Release, Resume, Retry, Save, Skip, Transfer,
};
use super::table::Writers;
use super::workers::{AcceptTransfers, All, HasTransfers, Record};
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::row::Row;
use crate::store::{
    Claim, ExecutorLimits, KeyPosition, Lease, LeaseOwner, Lost, NewRun, Run, RunFilter, RunLedger,
    RunRef, SavedPosition, StoreError, Worker, WorkerRecord, WrittenBy, canonical,
};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The clock is the server's, which is not asked for whether a lease holds that was just granted: for that it is enough
/// how much time passed here.
const NOT_ASKED: Timestamp = Timestamp::UNIX_EPOCH;

#[async_trait]
impl RunLedger for PostgresStore {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        self.write(Enqueue(runs)).await
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
        let claim = ClaimOne {
            run: run.clone(),
            instead_of: instead_of.clone(),
            parked: self.parked.clone(),
            taken: OnceLock::new(),
        };
        let claim = self.write(claim).await?;
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
        let (parked, tenant) = (self.parked.clone(), Arc::clone(&self.tenant.name));
        let database = Arc::clone(&self.database);
        let park = move |leased: &[Row], since| {
            database.unclaimed.add(&tenant, leased, NOT_ASKED, since);
            parked.add(leased, owner);
        };
        let claim = ClaimNext::new(Arc::clone(&self.tenant), n, of, park);
        claim.claim(&self.database).await
    }

    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
        leases.iter().for_each(|lease| self.touch(lease));
        let heartbeat = Heartbeat {
            tenant: Arc::clone(&self.tenant),
            leases: leases.to_vec(),
        };
        let lost = self.database.repeat(heartbeat).await?;
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
        let retry = Retry {
            lease: lease.clone(),
            at,
            counts,
            cause: cause.map(str::to_owned),
        };
        self.write(retry).await?;
        self.forget(&lease);
        Ok(())
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.touch(&lease);
        self.write(Release(lease.clone())).await?;
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
        let transfer = Transfer {
            lease: lease.clone(),
            version: version.to_owned(),
            until,
            position,
        };
        self.write(transfer).await?;
        self.forget(&lease);
        Ok(())
    }

    async fn accept_transfers(
        &self,
        versions: &[(Arc<str>, Arc<str>)],
    ) -> Result<usize, StoreError> {
        // Workers call this every few seconds, mostly without a run to accept: then no lock is taken.
        let tenant = &self.tenant;
        let has_transfers = HasTransfers { tenant, versions };
        match self.database.read(has_transfers).await? {
            true => self.write(AcceptTransfers(versions.to_vec())).await,
            false => Ok(0),
        }
    }

    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError> {
        let record = Record {
            tenant: Arc::clone(&self.tenant),
            worker: worker.clone(),
        };
        self.database.repeat(record).await
    }

    async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.database.read(All(&self.tenant)).await
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
        let positions = Positions {
            tenant: &self.tenant,
            executors,
        };
        self.database.read(positions).await
    }

    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError> {
        let limit = self.database.settings.limits.breadcrumb_bytes;
        self.touch(lease);
        let save = Save {
            tenant: Arc::clone(&self.tenant),
            lease: lease.clone(),
            state: canonical::state(&state, limit)?,
        };
        self.database.repeat(save).await
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        let resume = Resume {
            run: run.clone(),
            with,
        };
        self.write(resume).await
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        self.write(Redo(run.clone())).await
    }

    async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
        self.write(Skip(run.clone())).await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        if filter.parked {
            self.database.settled(&self.tenant.name).await?;
        }
        let before = self.parked.of(filter.owner);
        if filter.parked {
            let unclaimed = &self.database.unclaimed;
            if let Some(rows) = unclaimed.all(&self.tenant.name, &before, NOT_ASKED) {
                return Ok(list::of_parked(rows, filter));
            }
        }
        let list = List {
            tenant: &self.tenant,
            filter,
            parked: &before,
        };
        let rows = self.database.read(list).await?;
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
        let writers = Writers {
            tenant: &self.tenant,
            versions,
        };
        self.database.read(writers).await
    }
}

impl PostgresStore {
    /// The claim of a lease that is parked here: its row is leased already, so this at most reads. None if it is not
    /// that simple: a row that was added before its trigger is to learn where that came from.
    async fn take_parked(&self, run: &RunRef) -> Result<Option<Claim>, StoreError> {
        self.database.settled(&self.tenant.name).await?;
        if let Some(row) = self
            .database
            .unclaimed
            .take(&self.tenant.name, run, NOT_ASKED)
            && self.parked.take(run, row.token, row.epoch)
        {
            return Ok(Some(row.granted()));
        }
        let tenant = &self.tenant;
        let row = self.database.read(FindRunning { tenant, run }).await?;
        let taken = row.filter(|row| self.parked.take(run, row.token, row.epoch));
        Ok(taken.map(|row| row.granted()))
    }

    /// A lease is about to be used: what a claim would have found is not so any more.
    pub(super) fn touch(&self, lease: &Lease) {
        self.database
            .unclaimed
            .forget(&self.tenant.name, &lease.run);
    }

    /// The lease of a run has ended, whether it was taken or still parked.
    pub(super) fn forget(&self, lease: &Lease) {
        self.parked.take(&lease.run, lease.token, lease.epoch);
    }
}

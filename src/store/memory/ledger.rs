//! The ledger of one handle.

use super::MemoryStore;
use super::table::Writer;
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::row::{End, Origin};
use crate::store::{
    Claim, ClaimId, Claimed, ExecutorLimits, KeyPosition, Lease, Lost, NewRun, Run, RunFilter,
    RunLedger, RunRef, RunState, SavedPosition, StoreError, Worker, WorkerRecord, WrittenBy,
    canonical,
};
use async_trait::async_trait;
use std::collections::HashSet;
use std::sync::Arc;

#[async_trait]
impl RunLedger for MemoryStore {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        let now = self.now();
        let mut state = self.tenant.write();
        let lineages: Vec<_> = runs
            .iter()
            .map(|new| Self::origin(&state, &new.run).lineage())
            .collect();
        let opened = runs.iter().zip(&lineages);
        let opened = opened.filter(|(new, lineage)| state.runs.opens(&new.run, lineage.as_ref()));
        let opened: HashSet<_> = opened
            .map(|(NewRun { run, .. }, _)| (&*run.executor, run.trigger_id, run.trigger_version))
            .collect();
        if !opened.is_empty() {
            self.check_room(&state.runs, opened.len())?;
        }
        for (new, lineage) in runs.into_iter().zip(lineages) {
            state.runs.add(&new.run, new.at, lineage, now);
        }
        Ok(())
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        let now = self.now();
        let keep = self.shared.limits.finished_runs;
        let mut guard = self.tenant.write();
        let state = &mut *guard;
        if let Some(older) = &instead_of {
            state.runs.check(older)?;
        }
        let (origin, known) = (Self::origin(state, run), state.runs.contains(run));
        let own = matches!(origin, Origin::Own);
        if !own && !known && instead_of.is_none() {
            self.check_room(&state.runs, 1)?;
        }
        if let Some(older) = &instead_of {
            let end = End::Over {
                state: RunState::Superseded,
                reason: None,
                cause: None,
            };
            state.runs.end(older, end, Vec::new())?;
        }
        if own {
            if known {
                state.runs.skip(run, "own", now)?;
            }
            state.runs.forget(keep);
            return Ok(Claim::Own);
        }
        state.runs.add(run, None, origin.lineage(), now);
        let claim = state.runs.claim(run, now)?;
        // Not before: what ended in this step must not cost the run that is asked for its place.
        state.runs.forget(keep);
        Ok(claim)
    }

    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError> {
        let now = self.now();
        let mut guard = self.tenant.write();
        let state = &mut *guard;
        let mut claimed = state.runs.claim_next(n, of, id, now)?;
        for run in &mut claimed {
            if !state.runs.knows_origin(&run.lease.run) {
                match Self::origin(state, &run.lease.run) {
                    Origin::Own => run.is_own = true,
                    Origin::Known(lineage) => {
                        run.lineage = lineage.clone();
                        state.runs.learn(&run.lease.run, Some(lineage));
                    }
                    Origin::Unknown => {}
                }
            }
            run.trigger = state.table.get(run.lease.run.trigger_id, now).cloned();
        }
        Ok(claimed)
    }

    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
        let now = self.now();
        Ok(self.tenant.write().runs.heartbeat(leases, now))
    }

    async fn retry(
        &self,
        lease: Lease,
        at: Timestamp,
        counts: bool,
        cause: Option<&str>,
    ) -> Result<(), StoreError> {
        self.tenant.write().runs.retry(&lease, at, counts, cause)
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        let now = self.now();
        self.tenant.write().runs.release(&lease, now)
    }

    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError> {
        let mut state = self.tenant.write();
        state.runs.transfer(&lease, version, until, position)
    }

    async fn accept_transfers(
        &self,
        versions: &[(Arc<str>, Arc<str>)],
    ) -> Result<usize, StoreError> {
        let now = self.now();
        Ok(self.tenant.write().runs.accept_transfers(versions, now))
    }

    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError> {
        let now = self.now();
        self.tenant.write().workers.record(worker, now);
        Ok(())
    }

    async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        let now = self.now();
        Ok(self.tenant.read().workers.all(now))
    }

    async fn save_positions(&self, positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError> {
        SavedPosition::check(positions)?;
        self.tenant.write().positions.save(positions);
        Ok(())
    }

    async fn positions(&self, executors: &[Arc<str>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        Ok(self.tenant.read().positions.of(executors))
    }

    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError> {
        let state = canonical::state(&state, self.shared.limits.breadcrumb_bytes)?;
        self.tenant.write().runs.save(lease, state)
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        let now = self.now();
        self.tenant.write().runs.resume(run, with, now)
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        let now = self.now();
        let mut state = self.tenant.write();
        self.check_room(&state.runs, 1)?;
        state.runs.redo(run, now)
    }

    async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
        let mut state = self.tenant.write();
        state.runs.skip_transferred(run)?;
        state.runs.forget(self.shared.limits.finished_runs);
        Ok(())
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        let now = self.now();
        Ok(self.tenant.read().runs.list(filter, now))
    }

    async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, StoreError> {
        let state = self.tenant.read();
        let written_by = |(id, version): &(BreadcrumbId, u64)| {
            let writer = state.table.writer(*id, *version);
            let executor = |writer: &Writer| Arc::clone(&writer.executor);
            WrittenBy::of(
                *version,
                writer.map(|writer| (*version, writer.map(executor))),
            )
        };
        Ok(versions.iter().map(written_by).collect())
    }
}

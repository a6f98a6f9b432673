//! Implementation of [`RunLedger`] for [`MemoryStore`].

use super::entry::Writer;
use super::stage::difference;
use super::{MemoryStore, State, requests};
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::request::ValidRequest;
use crate::store::row::{AttemptEnd, Origin, RunRow};
use crate::store::rules::{self, RowChange};
use crate::store::{
    Cancelled, Claim, ClaimId, Claimed, Enqueued, ExecutorLimits, KeyPosition, Lease, Lost,
    NewRequest, NewRun, PausedExecutor, Requested, Run, RunEnd, RunFilter, RunLedger, RunPage,
    RunQuery, RunRef, RunState, SavedPosition, StoreError, Worker, WorkerRecord, WrittenBy,
    canonical,
};
use async_trait::async_trait;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

#[async_trait]
impl RunLedger for MemoryStore {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        if Self::are_added(&self.tenant.read(), &runs) {
            return Ok(());
        }
        self.enqueue_in(&mut self.tenant.write(), &runs, self.now())
    }

    async fn enqueue_and_claim(
        &self,
        runs: Vec<NewRun>,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Enqueued, StoreError> {
        let now = self.now();
        let is_idle = |state: &State| {
            Self::are_added(state, &runs) && (n == 0 || !state.runs.has_due(of, now))
        };
        if is_idle(&self.tenant.read()) {
            let claimed = Ok(Vec::new());
            return Ok(Enqueued { claimed });
        }
        let mut state = self.tenant.write();
        self.enqueue_in(&mut state, &runs, now)?;
        let claimed = Ok(Self::claim_in(&mut state, n, of, id, now));
        Ok(Enqueued { claimed })
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        let now = self.now();
        let mut guard = self.tenant.write();
        let state = &mut *guard;
        let older = instead_of
            .map(|older| state.runs.held(&older))
            .transpose()?;
        let origin = Self::origin(&state.table, run);
        let (is_own, is_new) = (matches!(origin, Origin::Own), state.runs.row(run).is_none());
        if !is_own && is_new && older.is_none() {
            self.check_open_runs(&state.runs, 1)?;
        }
        if let Some(older) = older {
            let end = AttemptEnd::of(RunEnd::Superseded, now);
            let change = rules::end(older, end, &[], state.runs.next());
            state.runs.apply(change);
        }
        let (claim, change) = rules::claim(state.runs.facts(run, origin, now));
        if let Some(change) = change {
            state.runs.apply(change);
        }
        // Rows are removed only after the claim. Otherwise the row that ends in this step could displace the row of the claimed
        // run.
        state
            .runs
            .remove_oldest_ended(self.shared.limits.finished_runs);
        Ok(claim)
    }

    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError> {
        let now = self.now();
        if n == 0 || !self.tenant.read().runs.has_due(of, now) {
            return Ok(Vec::new());
        }
        Ok(Self::claim_in(&mut self.tenant.write(), n, of, id, now))
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
        self.change(&lease.run, |row| {
            rules::retry(row, &lease, at, counts, cause)
        })
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        let now = self.now();
        self.change(&lease.run, |row| rules::release(row, &lease, now))
    }

    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError> {
        self.change(&lease.run, |row| {
            rules::transfer(row, &lease, version, until, position)
        })
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
        let bytes = state.size();
        let mut tenant = self.tenant.write();
        let row = tenant.runs.row(&lease.run);
        let before = row.as_ref().map_or(0, RunRow::state_bytes);
        let change = rules::save(row, lease, state)?;
        tenant.check_bytes(difference(bytes, before), 0, self.shared.limits.bytes)?;
        tenant.runs.apply(change);
        Ok(())
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        let now = self.now();
        self.change(run, |row| rules::resume(row, run, with, now))
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        let now = self.now();
        let mut state = self.tenant.write();
        self.check_open_runs(&state.runs, 1)?;
        let change = rules::redo(state.runs.facts(run, Origin::Unknown, now))?;
        state.runs.apply(change);
        Ok(())
    }

    async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        let mut state = self.tenant.write();
        let (cancelled, change) = rules::cancel(state.runs.row(run), run, state.runs.next())?;
        state.runs.apply(change);
        state
            .runs
            .remove_oldest_ended(self.shared.limits.finished_runs);
        Ok(cancelled)
    }

    async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        let now = self.now();
        let mut state = self.tenant.write();
        let origin = Self::origin(&state.table, run);
        let (cancelled, change) = rules::enqueue_cancelled(state.runs.facts(run, origin, now));
        state.runs.apply(change);
        state
            .runs
            .remove_oldest_ended(self.shared.limits.finished_runs);
        Ok(cancelled)
    }

    async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
        let mut state = self.tenant.write();
        let change = rules::skip_transferred(state.runs.row(run), run, state.runs.next())?;
        state.runs.apply(change);
        state
            .runs
            .remove_oldest_ended(self.shared.limits.finished_runs);
        Ok(())
    }

    async fn pause_executor(&self, executor: &str) -> Result<bool, StoreError> {
        let now = self.now();
        self.tenant.write().runs.paused.pause(executor, now)
    }

    async fn resume_executor(&self, executor: &str) -> Result<bool, StoreError> {
        Ok(self.tenant.write().runs.paused.resume(executor))
    }

    async fn paused_executors(&self) -> Result<Vec<PausedExecutor>, StoreError> {
        Ok(self.tenant.read().runs.paused.all())
    }

    async fn request(&self, request: NewRequest) -> Result<Requested, StoreError> {
        let request = ValidRequest::new(request, self.shared.limits.breadcrumb_bytes)?;
        let Some(maintainer) = &self.maintainer else {
            return self.request_now(&request);
        };
        let guard = maintainer.begin();
        let requested = self.request_now(&request)?;
        if let Requested::Created { breadcrumb } = &requested {
            let created = std::slice::from_ref(breadcrumb);
            Box::pin(guard.committed(self, created, BTreeSet::new())).await;
        }
        Ok(requested)
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        let now = self.now();
        Ok(self.tenant.read().runs.list(filter, now))
    }

    async fn runs_page(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        let now = self.now();
        Ok(self.tenant.read().runs.page(query, now))
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

impl MemoryStore {
    /// Returns a run's state and the duration until the run's due time. The duration is zero if the run is due or has no due
    /// time. Returns `None` for an unknown run.
    pub(in crate::store) fn state_of(&self, run: &RunRef) -> Option<(RunState, Duration)> {
        let now = self.now();
        let row = self.tenant.read().runs.row(run)?;
        let wait = row.due.map_or(Duration::ZERO, |due| due.since(now));
        Some((row.state, wait))
    }

    /// Returns `true` if the ledger already has all runs in `runs`. Adding the runs then changes nothing. Several workers add
    /// each run, so most calls end here and need no write lock.
    fn are_added(state: &State, runs: &[NewRun]) -> bool {
        runs.iter().all(|new| state.runs.is_added(&new.run))
    }

    fn enqueue_in(
        &self,
        state: &mut State,
        runs: &[NewRun],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let origins = runs.iter().map(|new| Self::origin(&state.table, &new.run));
        let origins: Vec<Origin> = origins.collect();
        let opened = runs.iter().zip(&origins);
        let opened = opened.filter(|(new, origin)| state.runs.adds_open_run(&new.run, origin));
        let opened: HashSet<_> = opened
            .map(|(NewRun { run, .. }, _)| (&*run.executor, run.trigger_id, run.trigger_version))
            .collect();
        if !opened.is_empty() {
            self.check_open_runs(&state.runs, opened.len())?;
        }
        for (new, origin) in runs.iter().zip(origins) {
            let facts = state.runs.facts(&new.run, origin, now);
            state.runs.apply(rules::enqueue(facts, new.at));
        }
        Ok(())
    }

    fn request_now(&self, request: &ValidRequest) -> Result<Requested, StoreError> {
        let now = self.now();
        let mut state = self.tenant.write();
        let (limits, tenant) = (&self.shared.limits, &self.tenant.name);
        let (requested, committed) = requests::request(&mut state, request, limits, tenant, now)?;
        let last = state.log.last();
        drop(state);
        if committed.is_some() {
            self.tenant.committed.send_replace(last);
        }
        Ok(requested)
    }

    fn claim_in(
        state: &mut State,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
        now: Timestamp,
    ) -> Vec<Claimed> {
        let State { runs, table, .. } = state;
        let origin = |run: &RunRef| Self::origin(table, run);
        let mut claimed = runs.claim_next(n, of, id, origin, now);
        for run in &mut claimed {
            run.trigger = table.get(run.lease.run.trigger_id, now).cloned();
        }
        claimed
    }

    /// Applies the change that `decide` returns for the ledger row of a run.
    fn change(
        &self,
        run: &RunRef,
        decide: impl FnOnce(Option<RunRow>) -> Result<RowChange, StoreError>,
    ) -> Result<(), StoreError> {
        let mut state = self.tenant.write();
        let change = decide(state.runs.row(run))?;
        state.runs.apply(change);
        Ok(())
    }
}

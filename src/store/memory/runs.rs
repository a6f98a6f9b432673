//! The run ledger of one tenant: every transition, with time as an argument.

use super::queue::Queue;
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::row::{ASIDE, End, MOST_ACCEPTED, Row};
use crate::store::{
    Claim, ClaimId, Claimed, ExecutorLimits, KeyPosition, Lease, Lineage, Lost, Run, RunEnd,
    RunFilter, RunRef, RunState, StoreError,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Runs {
    rows: HashMap<RunRef, Row>,
    queue: Queue,
    /// Rows that are suspended, by trigger.
    asleep: HashMap<BreadcrumbId, HashSet<RunRef>>,
    /// Rows that were transferred, by executor and version.
    transferred: HashMap<(Arc<str>, Arc<str>), BTreeMap<u64, RunRef>>,
    /// Rows that are over, oldest first.
    over: BTreeMap<u64, RunRef>,
    open: usize,
    sequence: u64,
}

impl Runs {
    /// How many rows are not over.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Reports whether no row was ever added.
    pub(super) fn is_unused(&self) -> bool {
        self.sequence == 0
    }

    pub(super) fn contains(&self, run: &RunRef) -> bool {
        self.rows.contains_key(run)
    }

    /// Whether adding a run makes one more that is not over: a new row, or one that ended before its version came.
    pub(super) fn opens(&self, run: &RunRef, lineage: Option<&Lineage>) -> bool {
        let row = self.rows.get(run);
        row.is_none_or(|row| row.would_reopen(lineage.is_some()))
    }

    pub(super) fn add(
        &mut self,
        run: &RunRef,
        at: Option<Timestamp>,
        lineage: Option<Lineage>,
        now: Timestamp,
    ) {
        if let Some(row) = self.rows.get_mut(run) {
            if row.learn(lineage) {
                self.reopen(run, now);
            }
            return;
        }
        self.sequence += 1;
        self.open += 1;
        let row = Row::new(run.clone(), self.sequence, lineage, now);
        self.queue.join(&row);
        self.rows.insert(row.run.clone(), row);
        self.set_due(run, Some(at.unwrap_or(now).max(now)));
    }

    /// What a claim by hand finds; grants the lease where it can. The row exists.
    pub(super) fn claim(&mut self, run: &RunRef, now: Timestamp) -> Result<Claim, StoreError> {
        if self.rows.get(run).is_some_and(Row::is_aside) {
            self.accept(run, now);
        }
        match self.until_ahead(run, now) {
            Some(until) => Ok(Claim::Running { until }),
            None => self.claim_out_of_order(run, now),
        }
    }

    /// What a claim finds, whatever stands before it in its line.
    fn claim_out_of_order(&mut self, run: &RunRef, now: Timestamp) -> Result<Claim, StoreError> {
        let row = self.row(run)?;
        let lease_over = row.due.is_none_or(|due| due <= now);
        match row.state {
            RunState::Running if !lease_over => Ok(Claim::Running {
                until: row.due.unwrap_or(now),
            }),
            RunState::Suspended if !lease_over || row.due.is_none() => {
                Ok(Claim::Suspended { until: row.due })
            }
            RunState::Ready | RunState::Running | RunState::Suspended => {
                Ok(Claim::Granted(self.lease(run, run.lease, None, now)?))
            }
            RunState::Superseded => Ok(Claim::Superseded),
            RunState::Done | RunState::Failed | RunState::Skipped => Ok(Claim::Done {
                state: row.state,
                written: row.written.clone(),
            }),
        }
    }

    /// Leases due runs, one of each executor in turn.
    pub(super) fn claim_next(
        &mut self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
        now: Timestamp,
    ) -> Result<Vec<Claimed>, StoreError> {
        let mut free: Vec<(Arc<str>, usize)> = of
            .iter()
            .map(|limits| (Arc::clone(&limits.executor), limits.free))
            .collect();
        let mut claimed = Vec::new();
        loop {
            let before = claimed.len();
            for (executor, free) in free.iter_mut().filter(|(_, free)| *free > 0) {
                if claimed.len() == n {
                    return Ok(claimed);
                }
                let Some(run) = self.queue.first_due(executor, now) else {
                    *free = 0;
                    continue;
                };
                claimed.push(self.lease(&run, run.lease, Some(id), now)?);
                *free -= 1;
            }
            if claimed.len() == before {
                return Ok(claimed);
            }
        }
    }

    /// Notes where the trigger of a run came from, if that is not known.
    pub(super) fn learn(&mut self, run: &RunRef, lineage: Option<Lineage>) {
        if let Some(row) = self.rows.get_mut(run) {
            row.learn(lineage);
        }
    }

    /// Reports whether the origin of a run's trigger is known.
    pub(super) fn knows_origin(&self, run: &RunRef) -> bool {
        self.rows.get(run).is_some_and(|row| row.lineage.is_some())
    }

    pub(super) fn heartbeat(&mut self, leases: &[Lease], now: Timestamp) -> Vec<Lost> {
        let mut lost = Vec::new();
        for lease in leases {
            match self.held(lease) {
                Ok(_) => self.set_due(&lease.run, Some(now + lease.run.lease)),
                Err(_) => {
                    if let Some(row) = self.rows.get_mut(&lease.run) {
                        row.owner_lives(lease);
                    }
                    lost.push(Lost::new(lease));
                }
            }
        }
        lost
    }

    pub(super) fn retry(
        &mut self,
        lease: &Lease,
        at: Timestamp,
        counts: bool,
        cause: Option<&str>,
    ) -> Result<(), StoreError> {
        self.held(lease)?.retry(counts, cause);
        self.set_due(&lease.run, Some(at));
        Ok(())
    }

    pub(super) fn release(&mut self, lease: &Lease, now: Timestamp) -> Result<(), StoreError> {
        self.held(lease)?.release();
        self.set_due(&lease.run, Some(now));
        Ok(())
    }

    pub(super) fn transfer(
        &mut self,
        lease: &Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError> {
        self.check(lease)?;
        match position {
            KeyPosition::Held => {}
            KeyPosition::Left => self.leave(&lease.run),
        }
        let row = self.held(lease)?;
        row.transfer(version, position);
        let (place, run) = (row.sequence, row.run.clone());
        let version = (Arc::clone(&run.executor), version.into());
        self.transferred
            .entry(version)
            .or_default()
            .insert(place, run);
        self.set_due(&lease.run, Some(until));
        Ok(())
    }

    /// Makes rows due that were transferred to versions of executors, and rows of these executors that left their line and
    /// reached their time; returns their number.
    pub(super) fn accept_transfers(
        &mut self,
        versions: &[(Arc<str>, Arc<str>)],
        now: Timestamp,
    ) -> usize {
        let mut accepted: BTreeMap<u64, RunRef> = BTreeMap::new();
        for version in versions {
            let own = self.transferred.get(version).into_iter().flatten();
            let others = self.transferred.iter();
            let others = others.filter(|(other, _)| other.0 == version.0 && other.1 != version.1);
            let others = others.flat_map(|(_, waiting)| waiting.range(ASIDE..));
            let due = |run: &RunRef| self.rows.get(run).and_then(|row| row.due);
            let passed = others.filter(|(_, run)| due(run).is_some_and(|due| due <= now));
            let first = own.chain(passed).take(MOST_ACCEPTED);
            accepted.extend(first.map(|(place, run)| (*place, run.clone())));
        }
        for run in accepted.values() {
            self.accept(run, now);
        }
        accepted.len()
    }

    /// Makes a transferred row due. A row that left its line joins the line at the end.
    fn accept(&mut self, run: &RunRef, now: Timestamp) {
        self.no_longer_transferred(run);
        if let Some(row) = self.rows.get_mut(run).filter(|row| row.is_aside()) {
            self.sequence += 1;
            row.sequence = self.sequence;
            self.queue.join(row);
        }
        self.set_due(run, Some(now));
    }

    /// Clears the version to which a row was transferred.
    fn no_longer_transferred(&mut self, run: &RunRef) {
        let Some(row) = self.rows.get_mut(run) else {
            return;
        };
        let Some(version) = row.transferred_to().map(Arc::from) else {
            return;
        };
        let (place, version) = (row.sequence, (Arc::clone(&row.run.executor), version));
        row.reason = None;
        if let Some(waiting) = self.transferred.get_mut(&version) {
            waiting.remove(&place);
            if waiting.is_empty() {
                self.transferred.remove(&version);
            }
        }
    }

    pub(super) fn save(&mut self, lease: &Lease, state: Json) -> Result<(), StoreError> {
        self.held(lease)?.save(state);
        Ok(())
    }

    pub(super) fn resume(
        &mut self,
        run: &RunRef,
        with: BreadcrumbId,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.row(run)?.resume(with, now)?;
        self.wakes(run);
        self.set_due(run, Some(now));
        Ok(())
    }

    pub(super) fn redo(&mut self, run: &RunRef, now: Timestamp) -> Result<(), StoreError> {
        let row = self.row(run)?;
        row.check_redo()?;
        self.reopen(run, now);
        Ok(())
    }

    /// Makes a run that is over ready again, behind all others.
    fn reopen(&mut self, run: &RunRef, now: Timestamp) {
        let Some(row) = self.rows.get_mut(run) else {
            return;
        };
        if let Some(over) = row.over {
            self.over.remove(&over);
        }
        self.sequence += 1;
        self.open += 1;
        row.reopen(self.sequence, now);
        self.queue.join(row);
        self.set_due(run, Some(now));
    }

    /// Where the trigger of a run came from.
    pub(super) fn lineage(&self, run: &RunRef) -> Lineage {
        self.rows
            .get(run)
            .map_or_else(|| Lineage::origin(run.trigger_id), Row::lineage)
    }

    /// Whether a lease is still the newest of a running row.
    pub(super) fn check(&mut self, lease: &Lease) -> Result<(), StoreError> {
        self.held(lease).map(drop)
    }

    /// Ends a lease that was checked.
    pub(super) fn end(
        &mut self,
        lease: &Lease,
        end: End,
        written: Vec<BreadcrumbId>,
    ) -> Result<(), StoreError> {
        self.check(lease)?;
        let row = self.held(lease)?;
        row.written.extend(written);
        match end {
            End::Continues => {}
            End::Suspended { wake, state, at } => {
                let until = row.suspend(wake, state, at);
                self.asleep
                    .entry(lease.run.trigger_id)
                    .or_default()
                    .insert(lease.run.clone());
                self.set_due(&lease.run, until);
            }
            End::Over {
                state,
                reason,
                cause,
            } => self.finish(&lease.run, state, (reason, cause))?,
        }
        Ok(())
    }

    /// Ends a row that is not over.
    fn finish(
        &mut self,
        run: &RunRef,
        state: RunState,
        told: (Option<String>, Option<String>),
    ) -> Result<(), StoreError> {
        let sequence = self.sequence + 1;
        self.row(run)?.finish(state, told, sequence);
        self.sequence = sequence;
        self.open = self.open.saturating_sub(1);
        self.leave(run);
        self.over.insert(sequence, run.clone());
        Ok(())
    }

    /// Ends a row that waits for another version of its executor.
    pub(super) fn skip_transferred(&mut self, run: &RunRef) -> Result<(), StoreError> {
        self.row(run)?.check_skip()?;
        self.no_longer_transferred(run);
        let reason = Some(RunEnd::UNMATCHED.to_owned());
        self.finish(run, RunState::Skipped, (reason, None))
    }

    /// Forgets the oldest rows that are over, all but so many.
    pub(super) fn forget(&mut self, keep: usize) {
        while self.over.len() > keep
            && let Some((_, run)) = self.over.pop_first()
        {
            self.rows.remove(&run);
        }
    }

    /// Ends a row that nobody has claimed, such as that of an executor's own breadcrumb.
    pub(super) fn skip(
        &mut self,
        run: &RunRef,
        reason: &'static str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        // It will not run, so it need not wait for those before it.
        let claim = self.claim_out_of_order(run, now)?;
        if let Claim::Granted(Claimed { lease, .. }) = claim {
            let end = End::Over {
                state: RunState::Skipped,
                reason: Some(reason.to_owned()),
                cause: None,
            };
            self.end(&lease, end, Vec::new())?;
        }
        Ok(())
    }

    pub(super) fn list(&self, filter: &RunFilter, now: Timestamp) -> Vec<Run> {
        let rows = |run| self.rows.get(run);
        let candidates: Box<dyn Iterator<Item = &Row>> = match (&*filter.states, filter.trigger_id)
        {
            ([RunState::Suspended], Some(trigger)) => Box::new(
                self.asleep
                    .get(&trigger)
                    .into_iter()
                    .flatten()
                    .filter_map(rows),
            ),
            ([RunState::Suspended], None) => {
                Box::new(self.asleep.values().flatten().filter_map(rows))
            }
            (_, _) => Box::new(self.rows.values()),
        };
        let mut rows: Vec<(&Row, RunState)> = candidates
            .map(|row| (row, row.state_at(now)))
            .filter(|(row, state)| {
                filter
                    .executor
                    .as_ref()
                    .is_none_or(|id| **id == *row.run.executor)
                    && filter.trigger_id.is_none_or(|id| id == row.run.trigger_id)
                    && filter.claim.is_none_or(|id| row.is_of_claim(id))
                    && (filter.states.is_empty() || filter.states.contains(state))
            })
            .collect();
        rows.sort_by_key(|(row, _)| (row.due.is_none(), row.due, row.sequence));
        rows.truncate(filter.limit.unwrap_or(usize::MAX));
        rows.into_iter()
            .map(|(row, _)| row.view(filter, now))
            .collect()
    }

    fn row(&mut self, run: &RunRef) -> Result<&mut Row, StoreError> {
        self.rows
            .get_mut(run)
            .ok_or_else(|| StoreError::UnknownRun { run: run.clone() })
    }

    /// The row of a lease that is still the newest.
    fn held(&mut self, lease: &Lease) -> Result<&mut Row, StoreError> {
        self.rows
            .get_mut(&lease.run)
            .filter(|row| row.is_held(lease))
            .ok_or_else(|| StoreError::LeaseLost {
                run: lease.run.clone(),
            })
    }

    fn lease(
        &mut self,
        run: &RunRef,
        length: std::time::Duration,
        claim: Option<ClaimId>,
        now: Timestamp,
    ) -> Result<Claimed, StoreError> {
        self.no_longer_transferred(run);
        let row = self.row(run)?;
        let was_suspended = row.state == RunState::Suspended;
        row.grant(length, claim, now);
        if was_suspended {
            self.wakes(run);
        }
        self.set_due(run, Some(now + length));
        Ok(self.row(run)?.claimed())
    }

    /// Notes that a row is suspended no more.
    fn wakes(&mut self, run: &RunRef) {
        if let Some(asleep) = self.asleep.get_mut(&run.trigger_id) {
            asleep.remove(run);
            if asleep.is_empty() {
                self.asleep.remove(&run.trigger_id);
            }
        }
    }

    /// When to ask again for a run that is behind another; none if it is not, or is over.
    fn until_ahead(&self, run: &RunRef, now: Timestamp) -> Option<Timestamp> {
        let row = self.rows.get(run).filter(|row| !row.state.is_over())?;
        let ahead = self.rows.get(self.queue.ahead(row)?)?;
        let until = ahead.due.filter(|due| *due > now);
        Some(until.unwrap_or(now + ahead.run.lease))
    }

    fn set_due(&mut self, run: &RunRef, due: Option<Timestamp>) {
        if let Some(row) = self.rows.get_mut(run) {
            self.queue.set(row, due);
        }
    }

    /// Takes a row that is over out of its line, so that the next one there can be claimed when it is due.
    fn leave(&mut self, run: &RunRef) {
        let Some(row) = self.rows.get_mut(run) else {
            return;
        };
        self.queue.set(row, None);
        if let Some(next) = self.queue.leave(row)
            && let Some(next) = self.rows.get_mut(&next)
        {
            let due = next.due;
            self.queue.set(next, due);
        }
    }
}

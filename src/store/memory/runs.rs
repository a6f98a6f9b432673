//! Rows of a tenant's run ledger. The ledger rules in `store/rules` decide how the rows change.

use super::index::Index;
use super::paused::Paused;
use crate::bugs::planted;
use crate::model::{BreadcrumbId, Timestamp};
use crate::store::row::{MOST_ACCEPTED, Origin, RunRow};
use crate::store::rules::{self, Facts, FirstOfKey, RowChange};
use crate::store::{
    ClaimId, Claimed, ExecutorLimits, Lease, Lineage, Lost, Run, RunCursor, RunFilter, RunPage,
    RunQuery, RunRef, RunState, StoreError,
};
use foldhash::fast::RandomState;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::mem;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Runs {
    /// The ledger rows by run.
    rows: HashMap<RunRef, Box<RunRow>, RandomState>,
    index: Index,
    open: usize,
    /// Sum of the sizes of the saved states of runs in bytes.
    bytes: usize,
    sequence: u64,
    pub(super) paused: Paused,
}

/// Returns up to `most` ledger rows with the highest sequence numbers, the highest number first.
fn newest(mut rows: Vec<&RunRow>, most: usize) -> Vec<&RunRow> {
    let newest_first = |row: &&RunRow| Reverse(row.sequence);
    if rows.len() > most {
        rows.select_nth_unstable_by_key(most, newest_first);
        rows.truncate(most);
    }
    rows.sort_unstable_by_key(newest_first);
    rows
}

impl Runs {
    /// Returns the number of runs in the ledger that are not over.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Returns the sum of the sizes of the saved states of runs in bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if no run was ever added to the ledger, and no executor is paused.
    pub(super) fn is_unused(&self) -> bool {
        self.sequence == 0 && self.paused.is_empty()
    }

    pub(super) fn has(&self, run: &RunRef) -> bool {
        self.rows.contains_key(run)
    }

    fn rows(&self) -> impl Iterator<Item = &RunRow> {
        self.rows.values().map(Box::as_ref)
    }

    pub(super) fn row(&self, run: &RunRef) -> Option<RunRow> {
        self.rows.get(run).map(|row| RunRow::clone(row))
    }

    /// Returns the sequence number that the ledger assigns next, for example to a run that is added or ended.
    pub(super) fn next(&self) -> u64 {
        self.sequence + 1
    }

    /// Returns `true` if adding this run to the ledger increases the number of open runs: the run is new, or has ended and
    /// becomes ready again.
    pub(super) fn adds_open_run(&self, run: &RunRef, origin: &Origin) -> bool {
        rules::adds_open_run(self.rows.get(run).map(Box::as_ref), origin)
    }

    /// Returns `true` if [adding](rules::enqueue) a run to the ledger changes nothing. The ledger then has the run's row, with the
    /// origin of the run's trigger.
    pub(super) fn is_added(&self, run: &RunRef) -> bool {
        let row = self.rows.get(run);
        row.is_some_and(|row| row.lineage.is_some()) && !planted("no-key")
    }

    /// Returns `true` if a run of one of these executors can be claimed.
    pub(super) fn has_due(&self, of: &[ExecutorLimits], now: Timestamp) -> bool {
        let mut due = of.iter().filter(|limits| limits.free > 0);
        due.any(|limits| self.first_due(&limits.executor, now).is_some())
    }

    /// Returns an executor's due run with the earliest due time. Returns `None` if no run is due or the executor is paused.
    fn first_due(&self, executor: &str, now: Timestamp) -> Option<&RunRef> {
        match self.paused.since(executor) {
            Some(_) => None,
            None => self.index.first_due(executor, now),
        }
    }

    pub(super) fn facts<'r>(&self, run: &'r RunRef, origin: Origin, now: Timestamp) -> Facts<'r> {
        let row = self.row(run);
        let named = row.as_ref().map_or(run, |row| &row.run);
        let first = self.first(named);
        Facts {
            run,
            row,
            origin,
            first,
            now,
            next: self.next(),
            paused: self.paused.since(&run.executor),
        }
    }

    /// Returns the first ledger row in the order of the ordering key of `run`, not counting the row of `run` itself.
    fn first(&self, run: &RunRef) -> Option<FirstOfKey> {
        let mut rows = self
            .index
            .with_ordering_key(run)
            .filter(|(_, other)| *other != run);
        let (sequence, first) = rows.next()?;
        let row = self.rows.get(first)?;
        Some(FirstOfKey {
            sequence,
            due: row.due,
            lease: row.run.lease,
        })
    }

    pub(super) fn apply(&mut self, change: RowChange) {
        if !change.is_changed {
            return;
        }
        self.sequence += change.sequences;
        self.open = self.open.saturating_add_signed(isize::from(change.opened));
        let is_ordered = change.row.run.order.is_some();
        let leaves = (change.leaves && is_ordered).then(|| change.row.run.clone());
        self.put(change.row);
        if let Some(run) = leaves {
            self.promote(&run);
        }
    }

    fn put(&mut self, row: RunRow) {
        self.bytes += row.state_bytes();
        if let Some(existing) = self.rows.get_mut(&row.run) {
            let before = mem::replace(&mut **existing, row);
            self.bytes -= before.state_bytes();
            self.index.replace(Some(&before), Some(existing));
        } else {
            self.index.replace(None, Some(&row));
            self.rows.insert(row.run.clone(), Box::new(row));
        }
    }

    /// Marks the first ledger row with the ordering key of a run as the head, so that its run can be claimed.
    fn promote(&mut self, run: &RunRef) {
        let first = self
            .index
            .with_ordering_key(run)
            .next()
            .map(|(_, first)| first);
        let row = first.and_then(|first| self.rows.get(first));
        if let Some(row) = row.filter(|row| !row.head) {
            let mut row = RunRow::clone(row);
            row.head = true;
            self.put(row);
        }
    }

    /// Claims due runs, one of each executor in turn. `origin` returns the origin of a trigger.
    pub(super) fn claim_next(
        &mut self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
        origin: impl Fn(&RunRef) -> Origin,
        now: Timestamp,
    ) -> Vec<Claimed> {
        let claimed = rules::round_robin(n, of, |executor| {
            let due = self.first_due(executor, now);
            let claimed = due.and_then(|run| self.row(run)).map(|row| {
                let origin = row.lineage.is_none().then(|| origin(&row.run));
                let (claimed, change) = rules::grant(row, id, origin, now);
                self.apply(change);
                claimed
            });
            Ok::<_, Infallible>(claimed)
        });
        match claimed {
            Ok(claimed) => claimed,
            Err(never) => match never {},
        }
    }

    pub(super) fn heartbeat(&mut self, leases: &[Lease], now: Timestamp) -> Vec<Lost> {
        let mut lost = Vec::new();
        for lease in leases {
            let (is_held, change) = rules::heartbeat(self.row(&lease.run), lease, now);
            if !is_held {
                lost.push(Lost::new(lease));
            }
            if let Some(change) = change {
                self.apply(change);
            }
        }
        lost
    }

    /// Accepts transferred runs for the given executor versions, so that the runs become due. An accepted run was transferred to
    /// one of these versions, or left the order of its ordering key and has reached the time limit of its transfer. Returns the
    /// number of accepted runs.
    pub(super) fn accept_transfers(
        &mut self,
        versions: &[(Arc<str>, Arc<str>)],
        now: Timestamp,
    ) -> usize {
        let mut accepted: BTreeMap<u64, RunRef> = BTreeMap::new();
        for version in versions {
            let (own, others) = self.index.transferred(version);
            let due = |run: &RunRef| self.rows.get(run).and_then(|row| row.due);
            let passed = others.filter(|(_, run)| due(run).is_some_and(|due| due <= now));
            let first = own.chain(passed).take(MOST_ACCEPTED);
            accepted.extend(first.map(|(sequence, run)| (sequence, run.clone())));
        }
        for run in accepted.values() {
            if let Some(row) = self.row(run) {
                let is_alone = self.first(run).is_none();
                self.apply(rules::accept(row, is_alone, self.next(), now));
            }
        }
        accepted.len()
    }

    /// Returns the lineage of a run's trigger from the run's ledger row: the first breadcrumb of the chain of runs, and the
    /// number of runs.
    pub(super) fn lineage(&self, run: &RunRef) -> Lineage {
        self.rows
            .get(run)
            .map_or_else(|| Lineage::origin(run.trigger_id), |row| row.lineage())
    }

    /// Returns the ledger row of the leased run, or an error if the lease is lost.
    pub(super) fn held(&self, lease: &Lease) -> Result<RunRow, StoreError> {
        rules::held(self.row(&lease.run), lease)
    }

    /// Removes the ledger rows of all ended runs, except for the `keep` runs that ended last.
    pub(super) fn remove_oldest_ended(&mut self, keep: usize) {
        while let Some(run) = self.index.oldest_ended(keep).cloned() {
            let before = self.rows.remove(&run);
            self.bytes -= before.as_ref().map_or(0, |row| row.state_bytes());
            self.index.replace(before.as_deref(), None);
        }
    }

    pub(super) fn list(&self, filter: &RunFilter, now: Timestamp) -> Vec<Run> {
        let candidates = self.in_states(&filter.states, filter.trigger_id);
        let mut rows: Vec<&RunRow> = candidates
            .filter(|row| row.matches_filter(filter, now))
            .collect();
        rows.sort_by_key(|row| (row.due.is_none(), row.due, row.sequence));
        rows.truncate(filter.limit.unwrap_or(usize::MAX));
        rows.into_iter()
            .map(|row| row.list_item(filter, now))
            .collect()
    }

    /// Returns one page of the runs that a query selects.
    pub(super) fn page(&self, query: &RunQuery, now: Timestamp) -> RunPage {
        // A row beyond the page shows that another page follows.
        let size = query.page_size() + 1;
        let is_on_page = |row: &&RunRow| row.matches_query(query, now);
        let rows = match &*query.states {
            [RunState::Suspended] => {
                let end = query.after.map(RunCursor::as_u64);
                let suspended = self.index.suspended_before(end);
                let rows = suspended
                    .filter_map(|run| self.rows.get(run))
                    .map(Box::as_ref);
                rows.filter(is_on_page).take(size).collect()
            }
            _ => newest(self.rows().filter(is_on_page).collect(), size),
        };
        RunPage::new(
            rows.into_iter().map(|row| row.page_item(now)).collect(),
            query,
        )
    }

    /// Returns the ledger rows of all runs whose state is in `states`. The result can contain further rows, which the caller must
    /// filter out. `on` limits the rows of suspended runs to one trigger.
    fn in_states(
        &self,
        states: &[RunState],
        on: Option<BreadcrumbId>,
    ) -> Box<dyn Iterator<Item = &RunRow> + '_> {
        match states {
            [RunState::Suspended] => {
                let suspended = self.index.suspended(on);
                Box::new(
                    suspended
                        .filter_map(|run| self.rows.get(run))
                        .map(Box::as_ref),
                )
            }
            _ => Box::new(self.rows()),
        }
    }
}

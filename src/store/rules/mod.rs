//! Rules of the run ledger as pure functions. They take the facts of a run and return the answer and the change of its row.
//!
//! A store reads the row of a run, calls the function of an operation, and applies the [`RowChange`] in the same step. Times,
//! sequence numbers and IDs are arguments. Only this module has rules about leases, attempts, order and origins, with one
//! exception: PostgreSQL grants due runs, extends leases and saves states with one statement each, which repeats [`grant`],
//! [`heartbeat`] and [`save`] in SQL.

mod leases;
mod round_robin;

#[cfg(test)]
mod tests;

#[cfg(feature = "postgres")]
pub(in crate::store) use leases::record_origin;
pub(in crate::store) use leases::{
    accept, end, grant, heartbeat, held, release, retry, save, skip_transferred, transfer,
};
pub(in crate::store) use round_robin::round_robin;

use super::row::{OUT_OF_ORDER, Origin, RunRow};
use super::{Cancelled, Claim, RunEnd, RunRef, RunState, StoreError};
use crate::bugs::planted;
use crate::model::{BreadcrumbId, Timestamp};
use std::time::Duration;

/// Facts that an operation needs about a run, which may have no row yet.
#[derive(Clone, Debug)]
pub(in crate::store) struct Facts<'r> {
    /// The run that the caller of the operation named.
    pub(in crate::store) run: &'r RunRef,
    /// The ledger row of the run; `None` for a run that was not added before.
    pub(in crate::store) row: Option<RunRow>,
    /// The origin of the run's trigger.
    pub(in crate::store) origin: Origin,
    /// The first run in the order of the run's ordering key, not counting the run itself.
    pub(in crate::store) first: Option<FirstOfKey>,
    pub(in crate::store) now: Timestamp,
    /// The ledger's next free sequence number, for a change of the run's row.
    pub(in crate::store) next: u64,
    /// Start of the current pause of the run's executor, or `None` if the executor is not paused. Only [`claim`] reads this time.
    pub(in crate::store) paused: Option<Timestamp>,
}

/// The first ledger row in the order of an ordering key. Ended runs do not count, and neither do transferred runs that left their
/// position.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct FirstOfKey {
    pub(in crate::store) sequence: u64,
    pub(in crate::store) due: Option<Timestamp>,
    /// The lease duration of this first run, after which a worker can claim a later run if this run has no future due
    /// time.
    pub(in crate::store) lease: Duration,
}

/// The change of one ledger row, and of the counters of its tenant.
#[derive(Debug)]
pub(in crate::store) struct RowChange {
    /// The ledger row after the change.
    pub(in crate::store) row: RunRow,
    /// If `false`, the ledger row does not change, and the store has nothing to apply.
    pub(in crate::store) is_changed: bool,
    /// Change of the number of the tenant's runs that have not ended.
    pub(in crate::store) opened: i8,
    /// Change of the number of the tenant's ended runs.
    pub(in crate::store) finished: i8,
    /// Number of the ledger's sequence numbers that the change uses.
    pub(in crate::store) sequences: u64,
    /// If `true`, the row left its position in the order of its ordering key. The next row in this order may then be the first row.
    pub(in crate::store) leaves: bool,
}

impl RowChange {
    /// Returns a change that leaves a ledger row as it is.
    fn none(row: RunRow) -> Self {
        Self {
            row,
            is_changed: false,
            opened: 0,
            finished: 0,
            sequences: 0,
            leaves: false,
        }
    }

    /// Returns a change that leaves a ledger row at its position in the processing order of its ordering key.
    fn of(row: RunRow) -> Self {
        Self {
            is_changed: true,
            ..Self::none(row)
        }
    }

    /// Ends the run whose ledger row this change contains, in the state `state`. The end uses one sequence number of the ledger,
    /// because sequence numbers order the ended runs.
    fn finish(
        &mut self,
        state: RunState,
        (reason, cause): (Option<String>, Option<String>),
        next: u64,
    ) {
        self.row
            .finish(state, (reason, cause), next + self.sequences);
        (self.row.due, self.row.head) = (None, false);
        self.row.sequence &= !OUT_OF_ORDER;
        self.is_changed = true;
        self.opened -= 1;
        self.finished += 1;
        self.sequences += 1;
        self.leaves = true;
    }

    /// Returns `true` if the run is due at `now` after this change of its ledger row. A store must then remember that its clock
    /// has shown this time, so that the row stays due after the clock is set back.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(in crate::store) fn is_due(&self, now: Timestamp) -> bool {
        self.row.due.is_some_and(|due| due <= now)
    }

    /// Moves this change's ledger row to the end of the order of its ordering key, and makes the row due at `now`. The move uses one
    /// sequence number of the ledger.
    fn move_to_end(&mut self, is_alone: bool, now: Timestamp, next: u64) {
        self.row.sequence = next + self.sequences;
        self.row.head = is_alone;
        self.row.due = Some(now);
        self.is_changed = true;
        self.sequences += 1;
    }

    /// Makes an ended run ready again in a new epoch. The epoch counts how often the run was redone. The ledger row moves behind all
    /// other rows of its ordering key.
    fn reopen(&mut self, is_alone: bool, now: Timestamp, next: u64) {
        self.row.reopen(now);
        self.move_to_end(is_alone, now, next);
        self.opened += 1;
        self.finished -= 1;
    }
}

/// Returns an error if `more` additional runs would exceed the maximum number of runs that have not ended.
pub(in crate::store) fn check_open_runs(
    store: &'static str,
    open: usize,
    more: usize,
    limit: usize,
) -> Result<(), StoreError> {
    if open.saturating_add(more) > limit {
        return Err(StoreError::Full {
            store,
            what: "open runs",
            limit,
        });
    }
    Ok(())
}

/// Returns `true` if [`enqueue`] would add a run that has not ended to the ledger: a new run, or an ended run that becomes ready
/// again.
pub(in crate::store) fn adds_open_run(row: Option<&RunRow>, origin: &Origin) -> bool {
    let is_known = matches!(origin, Origin::Known(_));
    row.is_none_or(|row| row.would_reopen(is_known))
}

/// Adds the row of a run to the ledger. An existing row stays as it is, but the function records the origin of its trigger if the
/// row has none.
///
/// If the row ended because the store did not have the trigger version, and the version exists now, the row is made ready again.
/// A row with an origin never changes, so PostgreSQL does not read it.
pub(in crate::store) fn enqueue(facts: Facts<'_>, at: Option<Timestamp>) -> RowChange {
    let Facts { now, next, .. } = facts;
    let is_alone = facts.first.is_none() || planted("no-lines");
    let lineage = facts.origin.lineage();
    let Some(row) = facts.row else {
        let mut change = RowChange::of(RunRow::new(facts.run.clone(), lineage, now));
        change.move_to_end(is_alone, now, next);
        change.row.due = Some(at.unwrap_or(now).max(now));
        change.opened = 1;
        return change;
    };
    let learns = row.lineage.is_none() && lineage.is_some();
    let again = planted("no-key") && row.state == RunState::Done;
    let mut change = RowChange::none(row);
    change.is_changed = learns;
    if change.row.record_origin(lineage) || again {
        change.reopen(is_alone, now, next);
    }
    change
}

/// Claims the run that the caller named; a ready run is claimed even if it is not due yet. Adds the run's ledger row if the row
/// is missing. The change is `None` if there is no row and none is added.
pub(in crate::store) fn claim(facts: Facts<'_>) -> (Claim, Option<RowChange>) {
    let Facts {
        now,
        next,
        first,
        paused,
        ..
    } = facts;
    let length = facts.run.lease;
    if matches!(facts.origin, Origin::Own) {
        let skipped = facts
            .row
            .map(|row| skip_own(RowChange::none(row), now, next));
        return (Claim::Own, skipped);
    }
    let mut change = enqueue(facts, None);
    if change.row.is_out_of_order() {
        change.row.reason = None;
        change.move_to_end(first.is_none(), now, next);
    }
    let ahead = first.filter(|first| first.sequence < change.row.sequence);
    let claim = match ahead.filter(|_| !change.row.head && !change.row.state.is_over()) {
        Some(ahead) => {
            let until = ahead.due.filter(|due| *due > now);
            let until = until.unwrap_or(now + ahead.lease);
            Claim::Running { until }
        }
        None => claim_out_of_order(&mut change, length, now, paused),
    };
    (claim, Some(change))
}

/// Claims a run without a check for earlier runs with its ordering key. If its executor is paused, a row that could start stays
/// as it is.
fn claim_out_of_order(
    change: &mut RowChange,
    length: Duration,
    now: Timestamp,
    paused: Option<Timestamp>,
) -> Claim {
    let row = &mut change.row;
    let is_due = row.due.is_none_or(|due| due <= now);
    match row.state {
        RunState::Running if !is_due => Claim::Running {
            until: row.due.unwrap_or(now),
        },
        RunState::Suspended if !is_due || row.due.is_none() => Claim::Suspended { until: row.due },
        RunState::Ready | RunState::Running | RunState::Suspended => match paused {
            Some(since) => Claim::Paused { since },
            None => {
                row.grant(length, None, now);
                row.due = Some(now + length);
                change.is_changed = true;
                Claim::Granted(row.claimed())
            }
        },
        RunState::Superseded => Claim::Superseded,
        RunState::Done | RunState::Failed | RunState::Skipped => Claim::Done {
            state: row.state,
            written: row.written.clone(),
        },
    }
}

/// Ends an unclaimed run because its executor wrote the trigger. The end waits for no earlier rows and no pause, because nothing
/// is executed.
fn skip_own(mut change: RowChange, now: Timestamp, next: u64) -> RowChange {
    let length = change.row.run.lease;
    if let Claim::Granted(_) = claim_out_of_order(&mut change, length, now, None) {
        change.finish(RunState::Skipped, (Some("own".to_owned()), None), next);
    }
    change
}

/// Wakes a suspended run with the breadcrumb that it waited for.
pub(in crate::store) fn resume(
    row: Option<RunRow>,
    run: &RunRef,
    with: BreadcrumbId,
    now: Timestamp,
) -> Result<RowChange, StoreError> {
    let mut row = existing(row, run)?;
    row.resume(with, now)?;
    row.due = Some(now);
    Ok(RowChange::of(row))
}

/// Repeats a run that failed, or that was skipped because its executor did not match the trigger.
pub(in crate::store) fn redo(facts: Facts<'_>) -> Result<RowChange, StoreError> {
    let is_alone = facts.first.is_none() || planted("no-lines");
    let row = existing(facts.row, facts.run)?;
    row.check_redo()?;
    let mut change = RowChange::none(row);
    change.reopen(is_alone, facts.now, facts.next);
    Ok(change)
}

/// Ends a run that is not over as failed, with the code `cancelled`. Its lease is lost.
pub(in crate::store) fn cancel(
    row: Option<RunRow>,
    run: &RunRef,
    next: u64,
) -> Result<(Cancelled, RowChange), StoreError> {
    let mut change = RowChange::none(existing(row, run)?);
    Ok((cancel_open(&mut change, next), change))
}

/// Adds a run to the ledger like [`enqueue`], then ends it like [`cancel`].
pub(in crate::store) fn enqueue_cancelled(facts: Facts<'_>) -> (Cancelled, RowChange) {
    let next = facts.next;
    let mut change = enqueue(facts, None);
    (cancel_open(&mut change, next), change)
}

fn cancel_open(change: &mut RowChange, next: u64) -> Cancelled {
    let cancelled = match change.row.state {
        RunState::Ready | RunState::Suspended => Cancelled::Waiting,
        RunState::Running => Cancelled::Running,
        RunState::Done | RunState::Failed | RunState::Skipped | RunState::Superseded => {
            return Cancelled::Over(change.row.state);
        }
    };
    let reason = Some(RunEnd::CANCELLED.to_owned());
    change.finish(RunState::Failed, (reason.clone(), None), next);
    change.row.code = reason;
    cancelled
}

/// Returns the ledger row of a run, or [`StoreError::UnknownRun`] without a row.
fn existing(row: Option<RunRow>, run: &RunRef) -> Result<RunRow, StoreError> {
    row.ok_or_else(|| StoreError::UnknownRun { run: run.clone() })
}

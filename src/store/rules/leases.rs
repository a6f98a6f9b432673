//! Rules of the ledger for operations under a lease: heartbeat, retry, release, transfer, save, end.

use super::RowChange;
use crate::bugs::planted;
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::row::{AttemptEnd, Origin, RunRow};
use crate::store::{ClaimId, Claimed, KeyPosition, Lease, RunEnd, RunRef, RunState, StoreError};

/// Returns the ledger row of the lease's run, or [`StoreError::LeaseLost`] if the lease has ended or is not the newest one of the
/// run.
pub(in crate::store) fn held(row: Option<RunRow>, lease: &Lease) -> Result<RunRow, StoreError> {
    let held = row.filter(|row| row.is_held(lease));
    held.ok_or_else(|| StoreError::LeaseLost {
        run: lease.run.clone(),
    })
}

/// Grants the lease of a due run to the claim `id`. `origin` is the origin of the run's trigger. A row without an origin gets this
/// origin.
pub(in crate::store) fn grant(
    mut row: RunRow,
    id: ClaimId,
    origin: Option<Origin>,
    now: Timestamp,
) -> (Claimed, RowChange) {
    let is_own = matches!(origin, Some(Origin::Own));
    if row.lineage.is_none() {
        row.lineage = origin.and_then(Origin::lineage);
    }
    let length = row.run.lease;
    row.grant(length, Some(id), now);
    row.due = Some(now + length);
    let claimed = Claimed {
        is_own,
        ..row.claimed()
    };
    (claimed, RowChange::of(row))
}

/// Records the origin of a claimed run's trigger in the run's ledger row, unless the row already has an origin. Returns the claimed
/// run.
#[cfg(feature = "postgres")]
pub(in crate::store) fn record_origin(mut row: RunRow, origin: Origin) -> (Claimed, RowChange) {
    let is_own = matches!(origin, Origin::Own);
    let lineage = origin.lineage();
    let is_changed = lineage.is_some();
    row.lineage = row.lineage.or(lineage);
    let claimed = Claimed {
        is_own,
        ..row.claimed()
    };
    let change = RowChange {
        is_changed,
        ..RowChange::of(row)
    };
    (claimed, change)
}

/// Extends a lease, so that the lease ends one lease duration after now. Returns `true` if the lease was extended. If the lease is
/// lost, records that its owner is alive and returns `false`.
pub(in crate::store) fn heartbeat(
    row: Option<RunRow>,
    lease: &Lease,
    now: Timestamp,
) -> (bool, Option<RowChange>) {
    let Some(mut row) = row else {
        return (false, None);
    };
    if row.is_held(lease) {
        row.due = Some(now + lease.run.lease);
        return (true, Some(RowChange::of(row)));
    }
    let before = row.abandoned;
    row.record_live_owner(lease);
    let is_changed = row.abandoned != before;
    (false, is_changed.then(|| RowChange::of(row)))
}

/// Releases the lease of a run after a failed attempt.
pub(in crate::store) fn retry(
    row: Option<RunRow>,
    lease: &Lease,
    at: Timestamp,
    counts: bool,
    cause: Option<&str>,
) -> Result<RowChange, StoreError> {
    let mut row = held(row, lease)?;
    row.retry(counts, cause);
    row.due = Some(at);
    Ok(RowChange::of(row))
}

/// Releases the lease of a run as if the run had not been claimed.
pub(in crate::store) fn release(
    row: Option<RunRow>,
    lease: &Lease,
    now: Timestamp,
) -> Result<RowChange, StoreError> {
    let mut row = held(row, lease)?;
    row.release();
    row.due = Some(now);
    Ok(RowChange::of(row))
}

/// Releases the lease of a run, so that a worker with another version of the run's executor can take over the run. At the time `until`
/// or later, a worker of any version can take over.
pub(in crate::store) fn transfer(
    row: Option<RunRow>,
    lease: &Lease,
    version: &str,
    until: Timestamp,
    position: KeyPosition,
) -> Result<RowChange, StoreError> {
    let mut row = held(row, lease)?;
    row.transfer(version, position);
    row.due = Some(until);
    row.head &= !row.is_out_of_order();
    let leaves = row.is_out_of_order();
    Ok(RowChange {
        leaves,
        ..RowChange::of(row)
    })
}

/// Ends the wait of a transferred run for another version of its executor, and makes the run due at once. A row that left the
/// order of its ordering key goes to the end of this order. `is_alone` is `true` if the order has no other rows.
pub(in crate::store) fn accept(
    row: RunRow,
    is_alone: bool,
    next: u64,
    now: Timestamp,
) -> RowChange {
    let mut change = RowChange::of(row);
    (change.row.due, change.row.reason) = (Some(now), None);
    if change.row.is_out_of_order() {
        change.move_to_end(is_alone || planted("no-lines"), now, next);
    }
    change
}

/// Saves the progress of a leased run in the run's ledger row, and replaces the progress saved before.
pub(in crate::store) fn save(
    row: Option<RunRow>,
    lease: &Lease,
    state: Json,
) -> Result<RowChange, StoreError> {
    let mut row = held(row, lease)?;
    row.save(state);
    Ok(RowChange::of(row))
}

/// Applies `end`, the result of a run's attempt, to the run's ledger row. The caller has checked with [`held`] that the attempt's
/// lease is still valid. `written` are the breadcrumbs of the same commit.
pub(in crate::store) fn end(
    mut row: RunRow,
    end: AttemptEnd,
    written: &[BreadcrumbId],
    next: u64,
) -> RowChange {
    row.written.extend(written);
    match end {
        AttemptEnd::Continues => RowChange::of(row),
        AttemptEnd::Suspended { wake, state, at } => {
            row.due = row.suspend(wake, state, at);
            RowChange::of(row)
        }
        AttemptEnd::Over {
            state,
            reason,
            code,
            cause,
        } => {
            let mut change = RowChange::of(row);
            change.finish(state, (reason, cause), next);
            change.row.code = code;
            change
        }
    }
}

/// Ends a transferred run without executing it, and sets the run's state to `Skipped`. A transferred run waits for another
/// version of its executor.
pub(in crate::store) fn skip_transferred(
    row: Option<RunRow>,
    run: &RunRef,
    next: u64,
) -> Result<RowChange, StoreError> {
    let row = super::existing(row, run)?;
    row.check_skip()?;
    let mut change = RowChange::of(row);
    let reason = Some(RunEnd::UNMATCHED.to_owned());
    change.finish(RunState::Skipped, (reason, None), next);
    Ok(change)
}

//! Rules of the ledger for operations under a lease: heartbeat, retry, release, transfer, save, end.

use super::Change;
use crate::bugs::planted;
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::row::{End, Origin, Row};
use crate::store::{ClaimId, Claimed, KeyPosition, Lease, RunEnd, RunRef, RunState, StoreError};

/// Returns the row of the run of a lease, or [`StoreError::LeaseLost`] if the lease is not the newest one of the run.
pub(in crate::store) fn held(row: Option<Row>, lease: &Lease) -> Result<Row, StoreError> {
    let held = row.filter(|row| row.is_held(lease));
    held.ok_or_else(|| StoreError::LeaseLost {
        run: lease.run.clone(),
    })
}

/// Grants the lease of a due run to the claim `id`. `origin` is the origin of the run's trigger. A row without an origin gets this
/// origin.
pub(in crate::store) fn grant(
    mut row: Row,
    id: ClaimId,
    origin: Option<Origin>,
    now: Timestamp,
) -> (Claimed, Change) {
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
    (claimed, Change::of(row))
}

/// Records the origin of a claimed run's trigger in the run's ledger row, unless the row already has an origin. Returns the claimed
/// run.
#[cfg(feature = "postgres")]
pub(in crate::store) fn learn(mut row: Row, origin: Origin) -> (Claimed, Change) {
    let is_own = matches!(origin, Origin::Own);
    let lineage = origin.lineage();
    let is_changed = lineage.is_some();
    row.lineage = row.lineage.or(lineage);
    let claimed = Claimed {
        is_own,
        ..row.claimed()
    };
    let change = Change {
        is_changed,
        ..Change::of(row)
    };
    (claimed, change)
}

/// Extends a lease, so that the lease ends one lease duration after now. Returns `true` if the lease was extended. If the lease is
/// lost, records that its owner is alive and returns `false`.
pub(in crate::store) fn heartbeat(
    row: Option<Row>,
    lease: &Lease,
    now: Timestamp,
) -> (bool, Option<Change>) {
    let Some(mut row) = row else {
        return (false, None);
    };
    if row.is_held(lease) {
        row.due = Some(now + lease.run.lease);
        return (true, Some(Change::of(row)));
    }
    let before = row.abandoned;
    row.owner_lives(lease);
    let is_changed = row.abandoned != before;
    (false, is_changed.then(|| Change::of(row)))
}

/// Releases the lease of a run after a failed attempt.
pub(in crate::store) fn retry(
    row: Option<Row>,
    lease: &Lease,
    at: Timestamp,
    counts: bool,
    cause: Option<&str>,
) -> Result<Change, StoreError> {
    let mut row = held(row, lease)?;
    row.retry(counts, cause);
    row.due = Some(at);
    Ok(Change::of(row))
}

/// Releases the lease of a run as if the run had not been claimed.
pub(in crate::store) fn release(
    row: Option<Row>,
    lease: &Lease,
    now: Timestamp,
) -> Result<Change, StoreError> {
    let mut row = held(row, lease)?;
    row.release();
    row.due = Some(now);
    Ok(Change::of(row))
}

/// Releases the lease of a run, so that a worker with another version of the run's executor can take over the run. At the time `until`
/// or later, a worker of any version can take over.
pub(in crate::store) fn transfer(
    row: Option<Row>,
    lease: &Lease,
    version: &str,
    until: Timestamp,
    position: KeyPosition,
) -> Result<Change, StoreError> {
    let mut row = held(row, lease)?;
    row.transfer(version, position);
    row.due = Some(until);
    row.head &= !row.is_aside();
    let leaves = row.is_aside();
    Ok(Change {
        leaves,
        ..Change::of(row)
    })
}

/// Makes a transferred run due. A row that left its position goes behind all others of its key. `is_alone` is `true` if there are
/// no others.
pub(in crate::store) fn accept(row: Row, is_alone: bool, next: u64, now: Timestamp) -> Change {
    let mut change = Change::of(row);
    (change.row.due, change.row.reason) = (Some(now), None);
    if change.row.is_aside() {
        change.join_last(is_alone || planted("no-lines"), now, next);
    }
    change
}

/// Saves the state of a leased run in the run's ledger row.
pub(in crate::store) fn save(
    row: Option<Row>,
    lease: &Lease,
    state: Json,
) -> Result<Change, StoreError> {
    let mut row = held(row, lease)?;
    row.save(state);
    Ok(Change::of(row))
}

/// Applies `end`, the result of a run's attempt, to the run's ledger row. The caller has checked with [`held`] that the attempt's
/// lease is still valid. `written` are the breadcrumbs of the same commit.
pub(in crate::store) fn end(mut row: Row, end: End, written: &[BreadcrumbId], next: u64) -> Change {
    row.written.extend(written);
    match end {
        End::Continues => Change::of(row),
        End::Suspended { wake, state, at } => {
            row.due = row.suspend(wake, state, at);
            Change::of(row)
        }
        End::Over {
            state,
            reason,
            code,
            cause,
        } => {
            let mut change = Change::of(row);
            change.finish(state, (reason, cause), next);
            change.row.code = code;
            change
        }
    }
}

/// Ends a transferred run, and sets the run's state to `Skipped`. A transferred run waits for another version of its executor.
pub(in crate::store) fn skip_transferred(
    row: Option<Row>,
    run: &RunRef,
    next: u64,
) -> Result<Change, StoreError> {
    let row = super::existing(row, run)?;
    row.check_skip()?;
    let mut change = Change::of(row);
    let reason = Some(RunEnd::UNMATCHED.to_owned());
    change.finish(RunState::Skipped, (reason, None), next);
    Ok(change)
}

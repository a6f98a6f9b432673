//! State transitions of runs in SQLite. The rules decide, and this module reads and writes the rows in the transaction of a job.

use super::error::{Fault, unavailable};
use super::guard::is_corruption;
use super::row::{self, Kept};
use super::tenant::Writing;
use super::{NAME, paused, queue, retention, table};
use crate::model::{BreadcrumbId, Timestamp};
use crate::store::row::{AttemptEnd, Origin, RunRow};
use crate::store::rules::{self, Facts, RowChange};
use crate::store::{
    Cancelled, Claim, ClaimId, Claimed, Enqueued, ExecutorLimits, Lease, Lost, NewRun, RunEnd,
    RunRef, StoreError,
};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Adds runs to the ledger. Runs that are in the ledger already remain unchanged.
pub(super) fn enqueue(writing: &mut Writing<'_>, runs: &[NewRun]) -> Result<(), Fault> {
    let before = writing.tenant.open_runs;
    for new in runs {
        let (serial, facts) = facts(writing, &new.run)?;
        apply(writing, serial, &rules::enqueue(facts, new.at))?;
    }
    match writing.tenant.open_runs > before {
        true => check_room(writing, 0),
        false => Ok(()),
    }
}

/// Adds runs to the ledger, then leases due runs. A failed claim is rolled back alone, and the added runs remain.
pub(super) fn enqueue_and_claim(
    writing: &mut Writing<'_>,
    runs: &[NewRun],
    n: usize,
    of: &[ExecutorLimits],
    id: ClaimId,
) -> Result<Enqueued, Fault> {
    enqueue(writing, runs)?;
    let before = writing.tenant.clone();
    writing.sql("SAVEPOINT claim")?.execute(())?;
    let claimed = match claim_next(writing, n, of, id) {
        Ok(claimed) => Ok(claimed),
        // These errors end the whole transaction.
        Err(Fault::Driver(error))
            if writing.connection.is_autocommit() || is_corruption(&error) =>
        {
            return Err(Fault::Driver(error));
        }
        Err(fault) => {
            writing.sql("ROLLBACK TO claim")?.execute(())?;
            writing.tenant = before;
            Err(match fault {
                Fault::Refused(error) => error,
                Fault::Driver(error) => unavailable(&Arc::new(error)),
            })
        }
    };
    writing.sql("RELEASE claim")?.execute(())?;
    Ok(Enqueued { claimed })
}

/// Claims one run for a worker. If the run replaces another run, the other run is ended first.
pub(super) fn claim(
    writing: &mut Writing<'_>,
    run: &RunRef,
    instead_of: Option<&Lease>,
) -> Result<Claim, Fault> {
    let older = instead_of.map(|older| held(writing, older)).transpose()?;
    if let Some(older) = older {
        end(writing, older, RunEnd::Superseded, &[])?;
    }
    let (serial, mut facts) = facts(writing, run)?;
    facts.paused = paused::since(writing, &run.executor)?;
    let adds = serial.is_none() && !matches!(facts.origin, Origin::Own);
    if adds && instead_of.is_none() {
        check_room(writing, 1)?;
    }
    let (claim, change) = rules::claim(facts);
    if let Some(change) = &change {
        apply(writing, serial, change)?;
    }
    retention::forget(writing)?;
    Ok(claim)
}

/// Leases due runs to a worker, taking turns between the executors.
pub(super) fn claim_next(
    writing: &mut Writing<'_>,
    n: usize,
    of: &[ExecutorLimits],
    id: ClaimId,
) -> Result<Vec<Claimed>, Fault> {
    let mut due: HashMap<&str, VecDeque<i64>> = HashMap::with_capacity(of.len());
    for limits in of {
        if !due.contains_key(&*limits.executor) {
            let named = of.iter().filter(|other| other.executor == limits.executor);
            let free = named.fold(0_usize, |free, limits| free.saturating_add(limits.free));
            let serials = queue::due(writing, &limits.executor, free.min(n))?;
            due.insert(&limits.executor, serials.into());
        }
    }
    rules::round_robin(n, of, |executor| {
        while let Some(serial) = due.get_mut(&**executor).and_then(VecDeque::pop_front) {
            if let Some(kept) = row::at(writing.connection, serial)? {
                return grant(writing, kept, id).map(Some);
            }
        }
        Ok(None)
    })
}

fn grant(writing: &mut Writing<'_>, kept: Kept, id: ClaimId) -> Result<Claimed, Fault> {
    let Kept { serial, row } = kept;
    let origin = match row.lineage {
        Some(_) => None,
        None => Some(table::origin(
            writing.connection,
            writing.tenant.id,
            &row.run,
        )?),
    };
    let (mut claimed, change) = rules::grant(row, id, origin, writing.now);
    apply(writing, Some(serial), &change)?;
    // The run needs its trigger next. Reading the trigger here saves a call of a reader thread.
    let run = &change.row.run;
    let trigger = match table::find(writing.connection, writing.tenant.id, run.trigger_id) {
        // If the trigger is unreadable, the run reads it again and fails with a clear error. The other runs of the claim continue.
        Err(rusqlite::Error::FromSqlConversionFailure(..)) => None,
        trigger => trigger?,
    };
    let trigger = trigger.filter(|found| found.lives(writing.now));
    claimed.trigger = trigger.map(|found| Arc::new(found.breadcrumb));
    Ok(claimed)
}

/// Extends leases of runs, so that each lease ends one lease duration after now. Returns the lost leases.
pub(super) fn heartbeat(writing: &mut Writing<'_>, leases: &[Lease]) -> Result<Vec<Lost>, Fault> {
    let mut lost = Vec::new();
    for lease in leases {
        let (serial, row) = find(writing, &lease.run)?;
        let (is_held, change) = rules::heartbeat(row, lease, writing.now);
        if !is_held {
            lost.push(Lost::new(lease));
        }
        if let Some(change) = &change {
            apply(writing, serial, change)?;
        }
    }
    Ok(lost)
}

/// Changes the ledger row of a run. `decide` receives the row, the current time and the next sequence number, and returns the change.
pub(super) fn change(
    writing: &mut Writing<'_>,
    run: &RunRef,
    decide: impl FnOnce(Option<RunRow>, Timestamp, u64) -> Result<RowChange, StoreError>,
) -> Result<(), Fault> {
    let (serial, row) = find(writing, run)?;
    let change = decide(row, writing.now, next(writing))?;
    apply(writing, serial, &change)?;
    retention::forget(writing)
}

/// Makes a failed or skipped run ready again, at the end of the order of its ordering key.
pub(super) fn redo(writing: &mut Writing<'_>, run: &RunRef) -> Result<(), Fault> {
    check_room(writing, 1)?;
    let (serial, facts) = facts(writing, run)?;
    let change = rules::redo(facts)?;
    apply(writing, serial, &change)
}

/// Ends a run of the ledger as cancelled, unless the run has ended already.
pub(super) fn cancel(writing: &mut Writing<'_>, run: &RunRef) -> Result<Cancelled, Fault> {
    let (serial, row) = find(writing, run)?;
    let (cancelled, change) = rules::cancel(row, run, next(writing))?;
    apply(writing, serial, &change)?;
    retention::forget(writing)?;
    Ok(cancelled)
}

/// Adds a missing run to the ledger, and ends the run as cancelled unless the run has ended already.
pub(super) fn enqueue_cancelled(
    writing: &mut Writing<'_>,
    run: &RunRef,
) -> Result<Cancelled, Fault> {
    let (serial, facts) = facts(writing, run)?;
    let (cancelled, change) = rules::enqueue_cancelled(facts);
    apply(writing, serial, &change)?;
    retention::forget(writing)?;
    Ok(cancelled)
}

/// Returns the ledger row of a leased run. Fails if the lease is no longer the newest of its row.
pub(super) fn held(writing: &Writing<'_>, lease: &Lease) -> Result<Kept, Fault> {
    let kept = row::find(writing.connection, writing.tenant.id, &lease.run)?;
    let (serial, row) = kept.map(|kept| (kept.serial, kept.row)).unzip();
    let row = rules::held(row, lease)?;
    let serial = serial.unwrap_or_default();
    Ok(Kept { serial, row })
}

/// Records the end or the suspension of a leased run in its ledger row.
pub(super) fn end(
    writing: &mut Writing<'_>,
    kept: Kept,
    end: RunEnd,
    written: &[BreadcrumbId],
) -> Result<(), Fault> {
    let end = AttemptEnd::of(end, Timestamp::from_micros(writing.tenant.latest));
    let change = rules::end(kept.row, end, written, next(writing));
    apply(writing, Some(kept.serial), &change)
}

/// Makes runs due that were transferred to one of `versions`, given as pairs of executor ID and version. Also makes transferred runs
/// of these executors due if the runs left their position and reached their time. Returns the number of these runs.
pub(super) fn accept_transfers(
    writing: &mut Writing<'_>,
    versions: &[(Arc<str>, Arc<str>)],
) -> Result<usize, Fault> {
    let mut accepted: BTreeSet<(i64, i64)> = BTreeSet::new();
    for (executor, version) in versions {
        accepted.extend(queue::transferred(writing, executor, version)?);
    }
    for (_, serial) in &accepted {
        if let Some(kept) = row::at(writing.connection, *serial)? {
            accept(writing, kept)?;
        }
    }
    Ok(accepted.len())
}

/// Makes a run due that was transferred to another version of its executor.
fn accept(writing: &mut Writing<'_>, kept: Kept) -> Result<(), Fault> {
    let Kept { serial, row } = kept;
    let is_alone = queue::first(writing, &row.run, Some(serial))?.is_none();
    let change = rules::accept(row, is_alone, next(writing), writing.now);
    apply(writing, Some(serial), &change)
}

fn facts<'r>(writing: &Writing<'_>, run: &'r RunRef) -> Result<(Option<i64>, Facts<'r>), Fault> {
    let (serial, row) = find(writing, run)?;
    let named = row.as_ref().map_or(run, |row| &row.run);
    let first = queue::first(writing, named, serial)?;
    let facts = Facts {
        run,
        row,
        origin: table::origin(writing.connection, writing.tenant.id, run)?,
        first,
        now: writing.now,
        next: next(writing),
        paused: None,
    };
    Ok((serial, facts))
}

fn find(writing: &Writing<'_>, run: &RunRef) -> rusqlite::Result<(Option<i64>, Option<RunRow>)> {
    let kept = row::find(writing.connection, writing.tenant.id, run)?;
    Ok(kept.map(|kept| (kept.serial, kept.row)).unzip())
}

fn apply(writing: &mut Writing<'_>, serial: Option<i64>, change: &RowChange) -> Result<(), Fault> {
    if !change.is_changed {
        return Ok(());
    }
    if change.is_due(writing.now) {
        writing.tenant.latest = writing.tenant.latest.max(writing.now.as_micros() - 1);
    }
    writing.tenant.sequence += change.sequences.cast_signed();
    writing.tenant.open_runs += i64::from(change.opened);
    writing.tenant.finished_runs += i64::from(change.finished);
    match serial {
        Some(serial) => row::update(writing, serial, &change.row)?,
        None => row::insert(writing, &change.row)?,
    }
    if change.leaves {
        queue::promote(writing, &change.row.run)?;
    }
    Ok(())
}

/// Returns the next sequence number for a run that the transaction adds or moves.
fn next(writing: &Writing<'_>) -> u64 {
    writing.tenant.sequence.cast_unsigned() + 1
}

fn check_room(writing: &Writing<'_>, more: usize) -> Result<(), Fault> {
    let open = usize::try_from(writing.tenant.open_runs).unwrap_or_default();
    Ok(rules::check_open_runs(
        NAME,
        open,
        more,
        writing.limits.open_runs,
    )?)
}

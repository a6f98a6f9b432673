//! State transitions of runs in SQLite. The rules decide, and this module reads and writes the rows in the transaction of a job.

use super::error::{Fault, unavailable};
use super::guard::is_corruption;
use super::row::{self, StoredRun};
use super::tenant::TenantTransaction;
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
pub(super) fn enqueue(
    transaction: &mut TenantTransaction<'_>,
    runs: &[NewRun],
) -> Result<(), Fault> {
    let before = transaction.tenant.open_runs;
    for new in runs {
        let (serial, facts) = facts(transaction, &new.run)?;
        apply(transaction, serial, &rules::enqueue(facts, new.at))?;
    }
    match transaction.tenant.open_runs > before {
        true => check_run_limit(transaction, 0),
        false => Ok(()),
    }
}

/// Adds runs to the ledger, then leases due runs. A failed claim is rolled back alone, and the added runs remain.
pub(super) fn enqueue_and_claim(
    transaction: &mut TenantTransaction<'_>,
    runs: &[NewRun],
    n: usize,
    of: &[ExecutorLimits],
    id: ClaimId,
) -> Result<Enqueued, Fault> {
    enqueue(transaction, runs)?;
    let before = transaction.tenant.clone();
    transaction.sql("SAVEPOINT claim")?.execute(())?;
    let claimed = match claim_next(transaction, n, of, id) {
        Ok(claimed) => Ok(claimed),
        // These errors end the whole transaction.
        Err(Fault::Driver(error))
            if transaction.connection.is_autocommit() || is_corruption(&error) =>
        {
            return Err(Fault::Driver(error));
        }
        Err(fault) => {
            transaction.sql("ROLLBACK TO claim")?.execute(())?;
            transaction.tenant = before;
            Err(match fault {
                Fault::Refused(error) => error,
                Fault::Driver(error) => unavailable(&Arc::new(error)),
            })
        }
    };
    transaction.sql("RELEASE claim")?.execute(())?;
    Ok(Enqueued { claimed })
}

/// Claims one run for a worker. If the run replaces another run, the other run is ended first.
pub(super) fn claim(
    transaction: &mut TenantTransaction<'_>,
    run: &RunRef,
    instead_of: Option<&Lease>,
) -> Result<Claim, Fault> {
    let older = instead_of
        .map(|older| find_leased(transaction, older))
        .transpose()?;
    if let Some(older) = older {
        end(transaction, older, RunEnd::Superseded, &[])?;
    }
    let (serial, mut facts) = facts(transaction, run)?;
    facts.paused = paused::paused_since(transaction, &run.executor)?;
    let adds = serial.is_none() && !matches!(facts.origin, Origin::Own);
    if adds && instead_of.is_none() {
        check_run_limit(transaction, 1)?;
    }
    let (claim, change) = rules::claim(facts);
    if let Some(change) = &change {
        apply(transaction, serial, change)?;
    }
    retention::delete_excess(transaction)?;
    Ok(claim)
}

/// Leases due runs to a worker, taking turns between the executors.
pub(super) fn claim_next(
    transaction: &mut TenantTransaction<'_>,
    n: usize,
    of: &[ExecutorLimits],
    id: ClaimId,
) -> Result<Vec<Claimed>, Fault> {
    let mut due: HashMap<&str, VecDeque<i64>> = HashMap::with_capacity(of.len());
    for limits in of {
        if !due.contains_key(&*limits.executor) {
            let same_executor = of.iter().filter(|other| other.executor == limits.executor);
            let free = same_executor.fold(0_usize, |free, limits| free.saturating_add(limits.free));
            let serials = queue::due(transaction, &limits.executor, free.min(n))?;
            due.insert(&limits.executor, serials.into());
        }
    }
    rules::round_robin(n, of, |executor| {
        while let Some(serial) = due.get_mut(&**executor).and_then(VecDeque::pop_front) {
            if let Some(stored) = row::at(transaction.connection, serial)? {
                return grant(transaction, stored, id).map(Some);
            }
        }
        Ok(None)
    })
}

fn grant(
    transaction: &mut TenantTransaction<'_>,
    stored: StoredRun,
    id: ClaimId,
) -> Result<Claimed, Fault> {
    let StoredRun { serial, row } = stored;
    let origin = match row.lineage {
        Some(_) => None,
        None => Some(table::origin(
            transaction.connection,
            transaction.tenant.id,
            &row.run,
        )?),
    };
    let (mut claimed, change) = rules::grant(row, id, origin, transaction.now);
    apply(transaction, Some(serial), &change)?;
    // The run needs its trigger next. Reading the trigger here saves a call of a reader thread.
    let run = &change.row.run;
    let trigger = match table::find(
        transaction.connection,
        transaction.tenant.id,
        run.trigger_id,
    ) {
        // If the trigger is unreadable, the run reads it again and fails with a clear error. The other runs of the claim continue.
        Err(rusqlite::Error::FromSqlConversionFailure(..)) => None,
        trigger => trigger?,
    };
    let trigger = trigger.filter(|stored| stored.is_live(transaction.now));
    claimed.trigger = trigger.map(|stored| Arc::new(stored.breadcrumb));
    Ok(claimed)
}

/// Extends leases of runs, so that each lease ends one lease duration after now. Returns the lost leases.
pub(super) fn heartbeat(
    transaction: &mut TenantTransaction<'_>,
    leases: &[Lease],
) -> Result<Vec<Lost>, Fault> {
    let mut lost = Vec::new();
    for lease in leases {
        let (serial, row) = find(transaction, &lease.run)?;
        let (is_held, change) = rules::heartbeat(row, lease, transaction.now);
        if !is_held {
            lost.push(Lost::new(lease));
        }
        if let Some(change) = &change {
            apply(transaction, serial, change)?;
        }
    }
    Ok(lost)
}

/// Applies a state transition to the ledger row of a run. `decide` receives the row, the current time and the next sequence number,
/// and returns the change.
pub(super) fn change(
    transaction: &mut TenantTransaction<'_>,
    run: &RunRef,
    decide: impl FnOnce(Option<RunRow>, Timestamp, u64) -> Result<RowChange, StoreError>,
) -> Result<(), Fault> {
    let (serial, row) = find(transaction, run)?;
    let change = decide(row, transaction.now, next(transaction))?;
    apply(transaction, serial, &change)?;
    retention::delete_excess(transaction)
}

/// Makes a failed or skipped run ready again, behind all other runs with its ordering key.
pub(super) fn redo(transaction: &mut TenantTransaction<'_>, run: &RunRef) -> Result<(), Fault> {
    check_run_limit(transaction, 1)?;
    let (serial, facts) = facts(transaction, run)?;
    let change = rules::redo(facts)?;
    apply(transaction, serial, &change)
}

/// Cancels a run that is in the ledger, unless the run has ended already.
pub(super) fn cancel(
    transaction: &mut TenantTransaction<'_>,
    run: &RunRef,
) -> Result<Cancelled, Fault> {
    let (serial, row) = find(transaction, run)?;
    let (cancelled, change) = rules::cancel(row, run, next(transaction))?;
    apply(transaction, serial, &change)?;
    retention::delete_excess(transaction)?;
    Ok(cancelled)
}

/// Cancels a run unless it has ended already, and adds the run to the ledger first if it is missing.
pub(super) fn enqueue_cancelled(
    transaction: &mut TenantTransaction<'_>,
    run: &RunRef,
) -> Result<Cancelled, Fault> {
    let (serial, facts) = facts(transaction, run)?;
    let (cancelled, change) = rules::enqueue_cancelled(facts);
    apply(transaction, serial, &change)?;
    retention::delete_excess(transaction)?;
    Ok(cancelled)
}

/// Returns the ledger row of a leased run, or an error if the lease is no longer the newest of the run.
pub(super) fn find_leased(
    transaction: &TenantTransaction<'_>,
    lease: &Lease,
) -> Result<StoredRun, Fault> {
    let stored = row::find(transaction.connection, transaction.tenant.id, &lease.run)?;
    let (serial, row) = stored.map(|stored| (stored.serial, stored.row)).unzip();
    let row = rules::held(row, lease)?;
    let serial = serial.unwrap_or_default();
    Ok(StoredRun { serial, row })
}

/// Records the end or the suspension of a leased run in its ledger row.
pub(super) fn end(
    transaction: &mut TenantTransaction<'_>,
    stored: StoredRun,
    end: RunEnd,
    written: &[BreadcrumbId],
) -> Result<(), Fault> {
    let end = AttemptEnd::of(end, Timestamp::from_micros(transaction.tenant.latest));
    let change = rules::end(stored.row, end, written, next(transaction));
    apply(transaction, Some(stored.serial), &change)
}

/// Makes due the runs that wait for one of a worker's executor versions, which `versions` lists as pairs of executor ID and
/// version. Also makes transferred runs of these executors due if the runs left the order of their ordering key and have waited
/// long enough. Returns the number of these runs.
pub(super) fn accept_transfers(
    transaction: &mut TenantTransaction<'_>,
    versions: &[(Arc<str>, Arc<str>)],
) -> Result<usize, Fault> {
    let mut accepted: BTreeSet<(i64, i64)> = BTreeSet::new();
    for (executor, version) in versions {
        accepted.extend(queue::transferred(transaction, executor, version)?);
    }
    for (_, serial) in &accepted {
        if let Some(stored) = row::at(transaction.connection, *serial)? {
            accept(transaction, stored)?;
        }
    }
    Ok(accepted.len())
}

/// Ends the wait of a transferred run for another version of its executor, and makes the run due in the SQLite ledger.
fn accept(transaction: &mut TenantTransaction<'_>, stored: StoredRun) -> Result<(), Fault> {
    let StoredRun { serial, row } = stored;
    let is_alone = queue::first(transaction, &row.run, Some(serial))?.is_none();
    let change = rules::accept(row, is_alone, next(transaction), transaction.now);
    apply(transaction, Some(serial), &change)
}

fn facts<'r>(
    transaction: &TenantTransaction<'_>,
    run: &'r RunRef,
) -> Result<(Option<i64>, Facts<'r>), Fault> {
    let (serial, row) = find(transaction, run)?;
    let known_run = row.as_ref().map_or(run, |row| &row.run);
    let first = queue::first(transaction, known_run, serial)?;
    let facts = Facts {
        run,
        row,
        origin: table::origin(transaction.connection, transaction.tenant.id, run)?,
        first,
        now: transaction.now,
        next: next(transaction),
        paused: None,
    };
    Ok((serial, facts))
}

fn find(
    transaction: &TenantTransaction<'_>,
    run: &RunRef,
) -> rusqlite::Result<(Option<i64>, Option<RunRow>)> {
    let stored = row::find(transaction.connection, transaction.tenant.id, run)?;
    Ok(stored.map(|stored| (stored.serial, stored.row)).unzip())
}

fn apply(
    transaction: &mut TenantTransaction<'_>,
    serial: Option<i64>,
    change: &RowChange,
) -> Result<(), Fault> {
    if !change.is_changed {
        return Ok(());
    }
    if change.is_due(transaction.now) {
        transaction.tenant.latest = transaction
            .tenant
            .latest
            .max(transaction.now.as_micros() - 1);
    }
    transaction.tenant.sequence += change.sequences.cast_signed();
    transaction.tenant.open_runs += i64::from(change.opened);
    transaction.tenant.finished_runs += i64::from(change.finished);
    match serial {
        Some(serial) => row::update(transaction, serial, &change.row)?,
        None => row::insert(transaction, &change.row)?,
    }
    if change.leaves {
        queue::promote(transaction, &change.row.run)?;
    }
    Ok(())
}

/// Returns the sequence number for the next run that the transaction adds to the ledger or moves behind other runs.
fn next(transaction: &TenantTransaction<'_>) -> u64 {
    transaction.tenant.sequence.cast_unsigned() + 1
}

fn check_run_limit(transaction: &TenantTransaction<'_>, more: usize) -> Result<(), Fault> {
    let open = usize::try_from(transaction.tenant.open_runs).unwrap_or_default();
    Ok(rules::check_open_runs(
        NAME,
        open,
        more,
        transaction.limits.open_runs,
    )?)
}

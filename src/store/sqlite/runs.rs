//! The run ledger of one tenant: every transition, in the transaction of its job.

use super::error::Fault;
use super::row::{self, Kept};
use super::tenant::Writing;
use super::{NAME, column, queue, retention, table};
use crate::bugs::planted;
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::row::{End, Origin, Row};
use crate::store::{
    Claim, ClaimId, Claimed, ExecutorLimits, KeyPosition, Lease, Lineage, Lost, NewRun, RunEnd,
    RunRef, RunState, StoreError,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Adds rows; those that exist stay as they are.
pub(super) fn enqueue(writing: &mut Writing<'_>, runs: Vec<NewRun>) -> Result<(), Fault> {
    let before = writing.tenant.open_runs;
    for new in runs {
        let origin = table::origin(writing.connection, writing.tenant.id, &new.run)?;
        let known = row::find(writing.connection, writing.tenant.id, &new.run)?;
        add(writing, known, &new.run, new.at, origin.lineage())?;
    }
    let after = writing.tenant.open_runs;
    if after > before {
        check_room(writing, 0)
    } else {
        Ok(())
    }
}

/// Claims one run by hand.
pub(super) fn claim(
    writing: &mut Writing<'_>,
    run: &RunRef,
    instead_of: Option<&Lease>,
) -> Result<Claim, Fault> {
    let older = instead_of.map(|older| held(writing, older)).transpose()?;
    let origin = table::origin(writing.connection, writing.tenant.id, run)?;
    let mut known = row::find(writing.connection, writing.tenant.id, run)?;
    let own = matches!(origin, Origin::Own);
    if !own && known.is_none() && older.is_none() {
        check_room(writing, 1)?;
    }
    if let Some(older) = older {
        let end = over(RunState::Superseded, None);
        self::end(writing, older, end, &[])?;
        // It may stand first in its line by now.
        known = row::find(writing.connection, writing.tenant.id, run)?;
    }
    if own {
        if let Some(kept) = known {
            skip(writing, kept, run)?;
        }
        retention::forget(writing)?;
        return Ok(Claim::Own);
    }
    let mut kept = add(writing, known, run, None, origin.lineage())?;
    if kept.row.is_aside() {
        queue::accept(writing, &mut kept)?;
    }
    let claim = match queue::until_ahead(writing, &kept)? {
        Some(until) => Claim::Running { until },
        None => claim_out_of_order(writing, kept, run)?.0,
    };
    retention::forget(writing)?;
    Ok(claim)
}

/// Leases due runs, one of each executor in turn.
pub(super) fn claim_next(
    writing: &mut Writing<'_>,
    n: usize,
    of: &[ExecutorLimits],
    id: ClaimId,
) -> Result<Vec<Claimed>, Fault> {
    // An executor may be named more than once, and then has the places of all its names.
    let mut free: HashMap<&str, usize> = HashMap::with_capacity(of.len());
    for limits in of {
        let free = free.entry(&limits.executor).or_default();
        *free = free.saturating_add(limits.free);
    }
    let mut due = Vec::with_capacity(of.len());
    for limits in of {
        let most = free.get(&*limits.executor).map_or(0, |free| n.min(*free));
        let rows = queue::due(writing, &limits.executor, most)?;
        due.push((limits.free, rows.into_iter()));
    }
    let mut leased = Vec::new();
    let mut seen = HashSet::new();
    loop {
        let before = leased.len();
        for (free, due) in due.iter_mut().filter(|(free, _)| *free > 0) {
            if leased.len() == n {
                return Ok(leased);
            }
            let next = due.find(|serial| seen.insert(*serial));
            let Some(mut kept) = next
                .map(|serial| row::at(writing.connection, serial))
                .transpose()?
                .flatten()
            else {
                continue;
            };
            let length = kept.row.run.lease;
            let mut is_own = false;
            if kept.row.lineage.is_none() {
                match table::origin(writing.connection, writing.tenant.id, &kept.row.run)? {
                    Origin::Own => is_own = true,
                    Origin::Known(lineage) => kept.row.lineage = Some(lineage),
                    Origin::Unknown => {}
                }
            }
            grant(writing, &mut kept, length, Some(id))?;
            *free -= 1;
            leased.push(Claimed {
                is_own,
                ..kept.row.claimed()
            });
        }
        if leased.len() == before {
            return Ok(leased);
        }
    }
}

/// Extends leases by their length from now; returns those that are lost.
pub(super) fn heartbeat(writing: &Writing<'_>, leases: &[Lease]) -> Result<Vec<Lost>, Fault> {
    let mut extend = writing.sql(
        "UPDATE ux_runs SET due = ?5 WHERE tenant = ?1 AND executor = ?2 AND trigger_id = ?3 AND trigger_version = ?4
             AND state = ?6 AND token = ?7 AND epoch = ?8",
    )?;
    let mut lost = Vec::new();
    for lease in leases {
        let extended = extend.execute((
            writing.tenant.id,
            &*lease.run.executor,
            column::blob(lease.run.trigger_id),
            lease.run.trigger_version.cast_signed(),
            (writing.now + lease.run.lease).as_micros(),
            row::number_of(RunState::Running),
            lease.token.cast_signed(),
            lease.epoch,
        ))?;
        if extended == 0 {
            if let Some(mut kept) = row::find(writing.connection, writing.tenant.id, &lease.run)? {
                kept.row.owner_lives(lease);
                row::update(writing, &kept)?;
            }
            lost.push(Lost::new(lease));
        }
    }
    Ok(lost)
}

pub(super) fn retry(
    writing: &Writing<'_>,
    lease: &Lease,
    at: Timestamp,
    counts: bool,
    cause: Option<&str>,
) -> Result<(), Fault> {
    let mut kept = held(writing, lease)?;
    kept.row.retry(counts, cause);
    kept.row.due = Some(at);
    Ok(row::update(writing, &kept)?)
}

pub(super) fn release(writing: &Writing<'_>, lease: &Lease) -> Result<(), Fault> {
    let mut kept = held(writing, lease)?;
    kept.row.release();
    kept.row.due = Some(writing.now);
    Ok(row::update(writing, &kept)?)
}

pub(super) fn transfer(
    writing: &Writing<'_>,
    lease: &Lease,
    version: &str,
    until: Timestamp,
    position: KeyPosition,
) -> Result<(), Fault> {
    let mut kept = held(writing, lease)?;
    kept.row.transfer(version, position);
    kept.row.due = Some(until);
    kept.head &= !kept.row.is_aside();
    row::update(writing, &kept)?;
    if kept.row.is_aside() {
        queue::promote(writing, &kept.row.run)?;
    }
    Ok(())
}

pub(super) fn save(writing: &Writing<'_>, lease: &Lease, state: Json) -> Result<(), Fault> {
    let mut kept = held(writing, lease)?;
    kept.row.save(state);
    Ok(row::update(writing, &kept)?)
}

pub(super) fn resume(writing: &Writing<'_>, run: &RunRef, with: BreadcrumbId) -> Result<(), Fault> {
    let mut kept = known(writing, run)?;
    kept.row.resume(with, writing.now)?;
    kept.row.due = Some(writing.now);
    Ok(row::update(writing, &kept)?)
}

pub(super) fn redo(writing: &mut Writing<'_>, run: &RunRef) -> Result<(), Fault> {
    check_room(writing, 1)?;
    let mut kept = known(writing, run)?;
    kept.row.check_redo()?;
    reopen(writing, &mut kept)
}

/// Ends a row that waits for another version of its executor.
pub(super) fn skip_transferred(writing: &mut Writing<'_>, run: &RunRef) -> Result<(), Fault> {
    let kept = known(writing, run)?;
    kept.row.check_skip()?;
    let end = over(RunState::Skipped, Some(RunEnd::UNMATCHED));
    self::end(writing, kept, end, &[])?;
    retention::forget(writing)
}

/// The row of a lease that is still the newest.
pub(super) fn held(writing: &Writing<'_>, lease: &Lease) -> Result<Kept, Fault> {
    let kept = row::find(writing.connection, writing.tenant.id, &lease.run)?;
    let held = kept.filter(|kept| kept.row.is_held(lease));
    held.ok_or_else(|| {
        StoreError::LeaseLost {
            run: lease.run.clone(),
        }
        .into()
    })
}

/// Ends the lease of a row.
pub(super) fn end(
    writing: &mut Writing<'_>,
    mut kept: Kept,
    end: End,
    written: &[BreadcrumbId],
) -> Result<(), Fault> {
    kept.row.written.extend(written);
    let is_over = matches!(end, End::Over { .. });
    match end {
        End::Continues => {}
        End::Suspended { wake, state, at } => kept.row.due = kept.row.suspend(wake, state, at),
        End::Over {
            state,
            reason,
            cause,
        } => {
            let sequence = writing.next_sequence();
            let told = (reason, cause);
            kept.row.finish(state, told, sequence.cast_unsigned());
            (kept.row.due, kept.head) = (None, false);
            writing.tenant.open_runs -= 1;
            writing.tenant.finished_runs += 1;
        }
    }
    row::update(writing, &kept)?;
    if is_over {
        queue::promote(writing, &kept.row.run)?;
    }
    Ok(())
}

/// The row of a run, which is added if none is known.
fn add(
    writing: &mut Writing<'_>,
    known: Option<Kept>,
    run: &RunRef,
    at: Option<Timestamp>,
    lineage: Option<Lineage>,
) -> Result<Kept, Fault> {
    if let Some(mut kept) = known {
        let learned = kept.row.lineage.is_none() && lineage.is_some();
        let again = planted("no-key") && kept.row.state == RunState::Done;
        if kept.row.learn(lineage) || again {
            reopen(writing, &mut kept)?;
        } else if learned {
            row::update(writing, &kept)?;
        }
        return Ok(kept);
    }
    let sequence = writing.next_sequence();
    writing.tenant.open_runs += 1;
    let mut row = Row::new(run.clone(), sequence.cast_unsigned(), lineage, writing.now);
    row.due = Some(at.unwrap_or(writing.now).max(writing.now));
    let head = queue::is_head(writing, run)?;
    let serial = row::insert(writing, &row, head)?;
    Ok(Kept { serial, head, row })
}

/// What a claim finds, whatever stands before it in its line, and the row as it is then.
fn claim_out_of_order(
    writing: &Writing<'_>,
    mut kept: Kept,
    run: &RunRef,
) -> Result<(Claim, Kept), Fault> {
    let row = &kept.row;
    let lease_over = row.due.is_none_or(|due| due <= writing.now);
    let claim = match row.state {
        RunState::Running if !lease_over => Claim::Running {
            until: row.due.unwrap_or(writing.now),
        },
        RunState::Suspended if !lease_over || row.due.is_none() => {
            Claim::Suspended { until: row.due }
        }
        RunState::Ready | RunState::Running | RunState::Suspended => {
            grant(writing, &mut kept, run.lease, None)?;
            Claim::Granted(kept.row.claimed())
        }
        RunState::Superseded => Claim::Superseded,
        RunState::Done | RunState::Failed | RunState::Skipped => Claim::Done {
            state: row.state,
            written: row.written.clone(),
        },
    };
    Ok((claim, kept))
}

/// Ends a row that nobody has claimed, such as that of an executor's own breadcrumb.
fn skip(writing: &mut Writing<'_>, kept: Kept, run: &RunRef) -> Result<(), Fault> {
    // It will not run, so it need not wait for those before it.
    let (claim, kept) = claim_out_of_order(writing, kept, run)?;
    match claim {
        Claim::Granted(_) => end(writing, kept, over(RunState::Skipped, Some("own")), &[]),
        Claim::Own
        | Claim::Done { .. }
        | Claim::Running { .. }
        | Claim::Suspended { .. }
        | Claim::Superseded => Ok(()),
    }
}

fn over(state: RunState, reason: Option<&str>) -> End {
    End::Over {
        state,
        reason: reason.map(str::to_owned),
        cause: None,
    }
}

/// Makes a run that is over ready again, behind all others.
fn reopen(writing: &mut Writing<'_>, kept: &mut Kept) -> Result<(), Fault> {
    let sequence = writing.next_sequence();
    writing.tenant.open_runs += 1;
    writing.tenant.finished_runs -= 1;
    kept.head = queue::is_head(writing, &kept.row.run)?;
    kept.row.reopen(sequence.cast_unsigned(), writing.now);
    kept.row.due = Some(writing.now);
    Ok(row::update(writing, kept)?)
}

fn grant(
    writing: &Writing<'_>,
    kept: &mut Kept,
    length: Duration,
    claim: Option<ClaimId>,
) -> Result<(), Fault> {
    kept.row.grant(length, claim, writing.now);
    kept.row.due = Some(writing.now + length);
    Ok(row::update(writing, kept)?)
}

fn known(writing: &Writing<'_>, run: &RunRef) -> Result<Kept, Fault> {
    let kept = row::find(writing.connection, writing.tenant.id, run)?;
    kept.ok_or_else(|| StoreError::UnknownRun { run: run.clone() }.into())
}

/// Room for so many more rows.
fn check_room(writing: &Writing<'_>, more: usize) -> Result<(), Fault> {
    let limit = writing.limits.open_runs;
    let open = usize::try_from(writing.tenant.open_runs).unwrap_or_default();
    if open.saturating_add(more) > limit {
        return Err(StoreError::Full {
            store: NAME,
            what: "open runs",
            limit,
        }
        .into());
    }
    Ok(())
}

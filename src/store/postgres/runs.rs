//! The run ledger of one tenant: every transition, each a job.

use super::database::{Job, Read};
use super::error::Fault;
use super::row::{self, Kept};
use super::tenant::Named;
use super::writing::{Known, Wanted, Writing};
use super::{NAME, queue};
use crate::bugs::planted;
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::durable::tenant::Time;
use crate::store::row::{End, Origin, Row};
use crate::store::{
    Claim, Claimed, KeyPosition, Lease, Lost, NewRun, RunEnd, RunRef, RunState, StoreError,
};
use sqlx::PgConnection;
use std::sync::Arc;
use std::time::Duration;

/// Adds rows; those that exist stay as they are.
pub(super) struct Enqueue(pub(super) Vec<NewRun>);

impl Job for Enqueue {
    type Answer = ();
    const LOCKS: bool = true;

    fn wants(&self, wanted: &mut Wanted) {
        wanted.runs.extend(self.0.iter().map(|new| new.run.clone()));
    }

    async fn run(&self, writing: &mut Writing<'_>) -> Result<(), Fault> {
        let before = writing.tenant.open_runs;
        for new in &self.0 {
            let known = writing.known(&new.run).await?;
            add(writing, known, &new.run, new.at);
        }
        if writing.tenant.open_runs > before {
            check_room(writing, 0)?;
        }
        Ok(())
    }
}

/// Claims one run by hand.
pub(super) struct ClaimOne {
    pub(super) run: RunRef,
    pub(super) instead_of: Option<Lease>,
}

impl Job for ClaimOne {
    type Answer = Claim;
    const LOCKS: bool = true;

    fn wants(&self, wanted: &mut Wanted) {
        wanted.runs.push(self.run.clone());
        let older = self.instead_of.as_ref().map(|older| older.run.clone());
        wanted.runs.extend(older);
    }

    async fn run(&self, writing: &mut Writing<'_>) -> Result<Claim, Fault> {
        let run = &self.run;
        let older = match &self.instead_of {
            Some(older) => Some(held(writing, older).await?),
            None => None,
        };
        let mut known = writing.known(run).await?;
        let own = matches!(known.origin, Origin::Own);
        if !own && known.kept.is_none() && older.is_none() {
            check_room(writing, 1)?;
        }
        if let Some(older) = older {
            end(writing, older, over(RunState::Superseded, None), &[]);
            // It may stand first in its line by now.
            known = writing.known(run).await?;
        }
        if own {
            if let Some(kept) = known.kept {
                skip(writing, kept);
            }
            return Ok(Claim::Own);
        }
        let is_alone = known.is_alone;
        let mut kept = add(writing, known, run, None);
        if kept.row.is_aside() {
            kept = accept(writing, kept, is_alone);
        }
        Ok(match queue::until_ahead(writing, &kept).await? {
            Some(until) => Claim::Running { until },
            None => claim_out_of_order(writing, kept, run.lease).0,
        })
    }
}

/// What a claim finds, whatever stands before it in its line, and the row as it is then.
fn claim_out_of_order(
    writing: &mut Writing<'_>,
    mut kept: Kept,
    length: Duration,
) -> (Claim, Kept) {
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
            kept.row.grant(length, None, writing.now);
            kept.row.due = Some(writing.now + length);
            writing.put(kept.clone());
            Claim::Granted(kept.row.claimed())
        }
        RunState::Superseded => Claim::Superseded,
        RunState::Done | RunState::Failed | RunState::Skipped => Claim::Done {
            state: row.state,
            written: row.written.clone(),
        },
    };
    (claim, kept)
}

/// Ends a row that nobody has claimed, such as that of an executor's own breadcrumb.
fn skip(writing: &mut Writing<'_>, kept: Kept) {
    // It will not run, so it need not wait for those before it.
    let length = kept.row.run.lease;
    let (claim, kept) = claim_out_of_order(writing, kept, length);
    match claim {
        Claim::Granted(_) => end(writing, kept, over(RunState::Skipped, Some("own")), &[]),
        Claim::Own
        | Claim::Done { .. }
        | Claim::Running { .. }
        | Claim::Suspended { .. }
        | Claim::Superseded => {}
    }
}

/// Completes the claim of rows that were added before their triggers existed: notes the origins of the triggers.
pub(super) struct LearnOrigins(pub(super) Vec<Lease>);

impl Job for LearnOrigins {
    type Answer = Vec<Claimed>;
    const LOCKS: bool = false;

    fn wants(&self, wanted: &mut Wanted) {
        wanted
            .runs
            .extend(self.0.iter().map(|lease| lease.run.clone()));
    }

    async fn run(&self, writing: &mut Writing<'_>) -> Result<Vec<Claimed>, Fault> {
        let mut claimed = Vec::new();
        for lease in &self.0 {
            let known = writing.known(&lease.run).await?;
            let Some(mut kept) = known.kept.filter(|kept| kept.row.is_held(lease)) else {
                continue;
            };
            let is_own = matches!(known.origin, Origin::Own);
            if let Some(lineage) = known.origin.lineage() {
                kept.row.lineage = Some(lineage);
                writing.put(kept.clone());
            }
            claimed.push(Claimed {
                is_own,
                ..kept.row.claimed()
            });
        }
        Ok(claimed)
    }
}

/// Extends leases by their length from now; returns those that are lost.
pub(super) struct Heartbeat {
    pub(super) tenant: Arc<Named>,
    pub(super) leases: Vec<Lease>,
}

impl Read for Heartbeat {
    type Answer = Vec<Lost>;

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(&self, connection: &mut PgConnection, time: &Time) -> Result<Vec<Lost>, Fault> {
        let Some(tenant) = self.tenant.id(connection).await? else {
            return Ok(self.leases.iter().map(Lost::new).collect());
        };
        let extended = queue::extend(connection, tenant, time, &self.leases).await?;
        let mut lost = self.leases.clone();
        lost.retain(|lease| !extended.contains(&queue::held(lease)));
        queue::owners_live(connection, tenant, &lost).await?;
        Ok(lost.iter().map(Lost::new).collect())
    }
}

/// Gives a run back, to be tried again at a time.
pub(super) struct Retry {
    pub(super) lease: Lease,
    pub(super) at: Timestamp,
    pub(super) counts: bool,
    pub(super) cause: Option<String>,
}

impl Job for Retry {
    type Answer = ();
    const LOCKS: bool = false;

    fn wants(&self, wanted: &mut Wanted) {
        wanted.runs.push(self.lease.run.clone());
    }

    async fn run(&self, writing: &mut Writing<'_>) -> Result<(), Fault> {
        let mut kept = held(writing, &self.lease).await?;
        kept.row.retry(self.counts, self.cause.as_deref());
        kept.row.due = Some(self.at);
        writing.put(kept);
        Ok(())
    }
}

/// Gives a run back as if it had not been claimed.
pub(super) struct Release(pub(super) Lease);

impl Job for Release {
    type Answer = ();
    const LOCKS: bool = false;

    fn wants(&self, wanted: &mut Wanted) {
        wanted.runs.push(self.0.run.clone());
    }

    async fn run(&self, writing: &mut Writing<'_>) -> Result<(), Fault> {
        let mut kept = held(writing, &self.0).await?;
        kept.row.release();
        kept.row.due = Some(writing.now);
        writing.put(kept);
        Ok(())
    }
}

/// Releases a run for another version of its executor.
pub(super) struct Transfer {
    pub(super) lease: Lease,
    pub(super) version: String,
    pub(super) until: Timestamp,
    pub(super) position: KeyPosition,
}

impl Job for Transfer {
    type Answer = ();
    const LOCKS: bool = true;

    fn wants(&self, wanted: &mut Wanted) {
        wanted.runs.push(self.lease.run.clone());
    }

    async fn run(&self, writing: &mut Writing<'_>) -> Result<(), Fault> {
        let mut kept = held(writing, &self.lease).await?;
        kept.row.transfer(&self.version, self.position);
        kept.row.due = Some(self.until);
        kept.head &= !kept.row.is_aside();
        writing.put(kept);
        Ok(())
    }
}

/// Keeps the progress of a run.
pub(super) struct Save {
    pub(super) tenant: Arc<Named>,
    pub(super) lease: Lease,
    pub(super) state: Json,
}

impl Read for Save {
    type Answer = ();

    fn tenant(&self) -> Option<&str> {
        Some(&self.tenant.name)
    }

    async fn run(&self, connection: &mut PgConnection, _: &Time) -> Result<(), Fault> {
        let is_saved = match self.tenant.id(connection).await? {
            Some(tenant) => row::save(connection, tenant, &self.lease, &self.state).await?,
            None => false,
        };
        if is_saved {
            return Ok(());
        }
        let run = self.lease.run.clone();
        Err(StoreError::LeaseLost { run }.into())
    }
}

/// Wakes a suspended run.
pub(super) struct Resume {
    pub(super) run: RunRef,
    pub(super) with: BreadcrumbId,
}

impl Job for Resume {
    type Answer = ();
    const LOCKS: bool = false;

    fn wants(&self, wanted: &mut Wanted) {
        wanted.runs.push(self.run.clone());
    }

    async fn run(&self, writing: &mut Writing<'_>) -> Result<(), Fault> {
        let mut kept = there(writing, &self.run).await?.0;
        kept.row.resume(self.with, writing.now)?;
        kept.row.due = Some(writing.now);
        writing.put(kept);
        Ok(())
    }
}

/// Runs a failed run again, behind all others.
pub(super) struct Redo(pub(super) RunRef);

impl Job for Redo {
    type Answer = ();
    const LOCKS: bool = true;

    fn wants(&self, wanted: &mut Wanted) {
        wanted.runs.push(self.0.clone());
    }

    async fn run(&self, writing: &mut Writing<'_>) -> Result<(), Fault> {
        check_room(writing, 1)?;
        let (mut kept, is_alone) = there(writing, &self.0).await?;
        kept.row.check_redo()?;
        reopen(writing, &mut kept, is_alone);
        Ok(())
    }
}

/// Ends a run that waits for another version of its executor.
pub(super) struct Skip(pub(super) RunRef);

impl Job for Skip {
    type Answer = ();
    const LOCKS: bool = true;

    fn wants(&self, wanted: &mut Wanted) {
        wanted.runs.push(self.0.clone());
    }

    async fn run(&self, writing: &mut Writing<'_>) -> Result<(), Fault> {
        let kept = there(writing, &self.0).await?.0;
        kept.row.check_skip()?;
        let end = over(RunState::Skipped, Some(RunEnd::UNMATCHED));
        self::end(writing, kept, end, &[]);
        Ok(())
    }
}

/// The row of a lease that is still the newest.
pub(super) async fn held(writing: &mut Writing<'_>, lease: &Lease) -> Result<Kept, Fault> {
    let kept = writing.run(&lease.run).await?;
    let held = kept.filter(|kept| kept.row.is_held(lease));
    held.ok_or_else(|| {
        StoreError::LeaseLost {
            run: lease.run.clone(),
        }
        .into()
    })
}

/// Ends the lease of a row, in a job that has the tenant locked.
pub(super) fn end(writing: &mut Writing<'_>, mut kept: Kept, end: End, written: &[BreadcrumbId]) {
    kept.row.written.extend(written);
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
    writing.put(kept);
}

/// The row of a run, which is added if none is known.
fn add(writing: &mut Writing<'_>, known: Known, run: &RunRef, at: Option<Timestamp>) -> Kept {
    let is_alone = known.is_alone || planted("no-lines");
    let lineage = known.origin.lineage();
    if let Some(mut kept) = known.kept {
        let learned = kept.row.lineage.is_none() && lineage.is_some();
        let again = planted("no-key") && kept.row.state == RunState::Done;
        if kept.row.learn(lineage) || again {
            reopen(writing, &mut kept, is_alone);
        } else if learned {
            writing.put(kept.clone());
        }
        return kept;
    }
    let sequence = writing.next_sequence();
    writing.tenant.open_runs += 1;
    let mut row = Row::new(run.clone(), sequence.cast_unsigned(), lineage, writing.now);
    row.due = Some(at.unwrap_or(writing.now).max(writing.now));
    let kept = Kept {
        serial: None,
        head: is_alone,
        row,
    };
    writing.put(kept.clone());
    kept
}

fn over(state: RunState, reason: Option<&str>) -> End {
    End::Over {
        state,
        reason: reason.map(str::to_owned),
        cause: None,
    }
}

/// Makes a run that is over ready again, behind all others.
fn reopen(writing: &mut Writing<'_>, kept: &mut Kept, is_alone: bool) {
    let sequence = writing.next_sequence();
    writing.tenant.open_runs += 1;
    writing.tenant.finished_runs -= 1;
    kept.head = is_alone;
    kept.row.reopen(sequence.cast_unsigned(), writing.now);
    kept.row.due = Some(writing.now);
    writing.put(kept.clone());
}

/// Makes a transferred row due. A row that left its line joins the line at the end.
pub(super) fn accept(writing: &mut Writing<'_>, mut kept: Kept, is_alone: bool) -> Kept {
    (kept.row.due, kept.row.reason) = (Some(writing.now), None);
    if kept.row.is_aside() {
        kept.head = is_alone;
        kept.row.sequence = writing.next_sequence().cast_unsigned();
    }
    writing.put(kept.clone());
    kept
}

/// The row of a run, and whether no other is in its line.
async fn there(writing: &mut Writing<'_>, run: &RunRef) -> Result<(Kept, bool), Fault> {
    let known = writing.known(run).await?;
    let is_alone = known.is_alone;
    let kept = known.kept.map(|kept| (kept, is_alone));
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

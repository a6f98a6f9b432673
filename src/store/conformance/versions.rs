//! Several versions of one executor on one store.

use super::Broken;
use super::Subject;
use super::broken::{expect, granted, lease_lost, same, some, wrong_state};
use super::given::{HOUR, OVER, SHORT, create, end, line, new_run, park, row};
use crate::model::{Subscription, Subscriptions};
use crate::store::{BreadcrumbStore, RunEnd, RunLedger, RunState, Worker, WorkerRecord};
use std::sync::Arc;

/// Accepts the runs that were transferred to one version of an executor.
async fn accept_transfers(
    ledger: &dyn RunLedger,
    executor: &str,
    version: &str,
) -> Result<usize, Broken> {
    Ok(ledger
        .accept_transfers(&[(executor.into(), version.into())])
        .await?)
}

/// A transferred run becomes due when its version is accepted, and not before. It has used no attempt.
pub async fn a_run_that_is_transferred_waits_for_its_version<S: Subject>(
    subject: &S,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let Some(ledger) = store.ledger() else {
        return Ok(());
    };
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;

    let until = lease.granted_at + HOUR;
    ledger.transfer(lease.clone(), "new", until).await?;

    lease_lost(end(&store, &lease, RunEnd::Done, vec![create("a")]).await)?;
    let kept = some(row(ledger, &run).await?, "the row")?;
    same(
        (kept.state, kept.attempts, kept.due, kept.reason),
        (RunState::Ready, 0, Some(until), None),
        "the row",
    )?;
    same(kept.transferred_to.as_deref(), Some("new"), "its version")?;
    same(park(ledger, "agent", 1).await?, 0, "the number of runs due")?;
    same(
        accept_transfers(ledger, "agent", "old").await?,
        0,
        "of another version",
    )?;
    same(
        accept_transfers(ledger, "tool", "new").await?,
        0,
        "of another executor",
    )?;
    same(ledger.accept_transfers(&[]).await?, 0, "of none")?;
    let versions: [(Arc<str>, Arc<str>); 2] = [
        ("tool".into(), "new".into()),
        ("agent".into(), "new".into()),
    ];
    same(
        ledger.accept_transfers(&versions).await?,
        1,
        "of this version",
    )?;
    same(
        accept_transfers(ledger, "agent", "new").await?,
        0,
        "of it again",
    )?;
    same(park(ledger, "agent", 1).await?, 1, "the number of runs due")?;
    let claim = granted(ledger.claim(&run, None).await)?;
    same(claim.attempt, 1, "the attempt")?;
    let kept = some(row(ledger, &run).await?, "the row")?;
    same(
        kept.transferred_to,
        None,
        "the version of a run that was claimed",
    )
}

/// A transferred run that no worker accepts becomes due at the given time.
pub async fn a_run_that_no_worker_accepts_is_due_at_its_time<S: Subject>(
    subject: &S,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let Some(ledger) = store.ledger() else {
        return Ok(());
    };
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    let until = lease.granted_at + SHORT;
    ledger.transfer(lease, "new", until).await?;

    subject.pass(OVER).await;

    same(park(ledger, "agent", 1).await?, 1, "the number of runs due")?;
    granted(ledger.claim(&run, None).await)?;
    same(
        accept_transfers(ledger, "agent", "new").await?,
        0,
        "transferred runs",
    )
}

/// A transferred run retains its place: the runs behind it wait.
pub async fn a_run_that_is_transferred_keeps_its_line_waiting<S: Subject>(
    subject: &S,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let Some(ledger) = store.ledger() else {
        return Ok(());
    };
    let runs = line(&store, ledger, "agent", "a", 2).await?;
    let first = some(runs.first(), "the first run")?;
    let lease = granted(ledger.claim(first, None).await)?.lease;
    let until = lease.granted_at + HOUR;
    ledger.transfer(lease, "new", until).await?;

    same(park(ledger, "agent", 2).await?, 0, "the number of runs due")?;
    same(
        accept_transfers(ledger, "agent", "new").await?,
        1,
        "accepted",
    )?;
    same(park(ledger, "agent", 2).await?, 1, "the number of runs due")?;
    granted(ledger.claim(first, None).await).map(drop)
}

/// A lost lease transfers nothing.
pub async fn a_lost_lease_transfers_nothing<S: Subject>(subject: &S) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let Some(ledger) = store.ledger() else {
        return Ok(());
    };
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    ledger.release(lease.clone()).await?;
    let until = lease.granted_at + HOUR;

    lease_lost(ledger.transfer(lease, "new", until).await)?;

    same(park(ledger, "agent", 1).await?, 1, "the number of runs due")
}

/// A run that was skipped as unmatched can be redone, and no other skipped run can.
pub async fn a_run_that_was_skipped_as_unmatched_can_be_redone<S: Subject>(
    subject: &S,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let Some(ledger) = store.ledger() else {
        return Ok(());
    };
    let (unmatched, gone) = (
        new_run(&store, "agent").await?,
        new_run(&store, "agent").await?,
    );
    for (run, reason) in [(&unmatched, RunEnd::UNMATCHED), (&gone, "gone")] {
        let lease = granted(ledger.claim(run, None).await)?.lease;
        end(&store, &lease, RunEnd::Skipped(reason), Vec::new()).await?;
    }

    wrong_state(ledger.redo(&gone).await)?;
    ledger.redo(&unmatched).await?;

    let claim = granted(ledger.claim(&unmatched, None).await)?;
    same((claim.attempt, claim.lease.epoch), (1, 1), "the new epoch")
}

/// A worker is listed with its last record, and the times of the first and the last one.
pub async fn workers_are_recorded<S: Subject>(subject: &S) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let Some(ledger) = store.ledger() else {
        return Ok(());
    };
    same(ledger.workers().await?.len(), 0, "the number of workers")?;
    let subscriptions = Subscriptions::new(vec![Subscription::trigger("a.v1")]);
    let Ok(subscriptions) = subscriptions else {
        return expect(false, "a trigger is a subscription");
    };
    let mut first = WorkerRecord::new("1", "blue").executor("agent", &subscriptions);
    let second = WorkerRecord::new("2", "green");
    for record in [&first, &second] {
        ledger.record_worker(record).await?;
        subject.pass(OVER).await;
    }
    first.stopped = true;
    ledger.record_worker(&first).await?;

    let [one, two]: [Worker; 2] = match ledger.workers().await?.try_into() {
        Ok(workers) => workers,
        Err(others) => return same(others.len(), 2, "the number of workers"),
    };

    same(
        (&one.record, one.is_live),
        (&first, false),
        "one that stopped",
    )?;
    same((&two.record, two.is_live), (&second, true), "one that runs")?;
    expect(
        one.seen_at.since(one.started_at) >= OVER,
        "it was seen again",
    )?;
    same(two.seen_at, two.started_at, "when the other was seen")?;
    let read = Subscriptions::from_json(&one.record.executors.first().map_or_else(
        || serde_json::Value::Null,
        |executor| executor.subscriptions.clone().into_value(),
    ));
    let read = read.ok().map(|read| read.hash());
    same(
        read,
        Some(subscriptions.hash()),
        "the subscriptions that are read back",
    )
}

/// No tenant sees the workers of another tenant, or accepts its transferred runs.
pub async fn workers_of_tenants_are_apart<S: Subject>(subject: &S) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let Some(other) = subject.in_tenant(&store, "other").await else {
        return Ok(());
    };
    let (Some(ledger), Some(there)) = (store.ledger(), other.ledger()) else {
        return Ok(());
    };
    ledger
        .record_worker(&WorkerRecord::new("1", "blue"))
        .await?;
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    let until = lease.granted_at + HOUR;
    ledger.transfer(lease, "new", until).await?;

    same(
        there.workers().await?.len(),
        0,
        "the number of workers there",
    )?;
    same(
        accept_transfers(there, "agent", "new").await?,
        0,
        "accepted there",
    )?;
    same(
        accept_transfers(ledger, "agent", "new").await?,
        1,
        "accepted here",
    )
}

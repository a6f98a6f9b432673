//! Conformance tests for paused executors, whose runs no worker claims.

use super::expectations::{expect, granted, same, some};
use super::fixtures::{
    AFTER_SHORT, SHORT, claim_count, claim_due, create, end, enqueued, ids_of, ledger_of, new_run,
    next_due, other_tenant, row,
};
use super::{AnyStoreUnderTest, Broken};
use crate::model::{Json, Selector};
use crate::store::{
    Cancelled, Claim, ClaimId, DeadLetter, ExecutorLimits, FailureClass, KeyPosition, NewRun,
    PausedExecutor, RunEnd, RunLedger, RunRef, RunState, Wake,
};
use std::slice;
use std::sync::Arc;

/// No claim starts a run of a paused executor: no claim of due runs, no claim that adds the runs, and no claim of one run. All of
/// these claims add rows. Runs of other executors are claimed. After the pause, the runs of this executor are claimed too.
///
/// [`claim`](crate::store::RunLedger::claim) answers
/// [`Claim::Paused`](crate::store::Claim::Paused), and
/// [`claim_next`](crate::store::RunLedger::claim_next) omits the executor.
///
/// Not checked for a store without a ledger.
pub async fn a_paused_executor_is_not_claimed(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let mut runs = enqueued(&store, ledger, "agent", 1).await?;
    let other = enqueued(&store, ledger, "other", 1).await?;
    expect(ledger.pause_executor("agent").await?, "the executor pauses")?;
    let both = ["agent", "other"].map(|executor| ExecutorLimits::new(executor, 9));

    let claimed = ledger.claim_next(9, &both, ClaimId::unique()).await?;
    let claimed: Vec<RunRef> = claimed.into_iter().map(|run| run.lease.run).collect();
    same(claimed, other, "the claimed runs")?;

    let added = new_run(&store, "agent").await?;
    let new = vec![NewRun::from(added.clone())];
    let enqueued = ledger
        .enqueue_and_claim(new, 9, &both, ClaimId::unique())
        .await?;
    same(enqueued.claimed?.len(), 0, "the number of claimed runs")?;
    let by_hand = new_run(&store, "agent").await?;
    is_paused(ledger, &by_hand).await?;
    is_paused(ledger, &by_hand).await?;
    runs.extend([added, by_hand]);
    for run in &runs {
        let state = some(row(ledger, run).await?, "the row")?.state;
        same(state, RunState::Ready, "the state of the run")?;
    }

    expect(
        ledger.resume_executor("agent").await?,
        "the executor resumes",
    )?;
    let claimed = claim_due(ledger, "agent", 9).await?;
    let attempts: Vec<u32> = claimed.iter().map(|run| run.attempt).collect();
    let claimed: Vec<RunRef> = claimed.into_iter().map(|run| run.lease.run).collect();
    same(claimed, runs, "the claimed runs")?;
    same(attempts, [1, 1, 1], "the attempts")
}

/// A pause of an executor, and the end of the pause, affect every handle on the store.
///
/// Save the pause in the backend. A cache of pauses must not be older than the call.
///
/// Not checked for a store without a ledger.
pub async fn a_pause_affects_every_handle(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let other = store.clone();
    let (here, there) = (ledger_of(&store)?, ledger_of(&other)?);
    let run = some(enqueued(&store, here, "agent", 1).await?.pop(), "a run")?;

    here.pause_executor("agent").await?;
    same(
        claim_count(there, "agent", 9).await?,
        0,
        "the number of due runs",
    )?;
    is_paused(there, &run).await?;
    same(names(there).await?, ["agent"], "the paused executors there")?;

    there.resume_executor("agent").await?;
    same(names(here).await?.len(), 0, "the paused executors here")?;
    next_due(here, &run).await.map(drop)
}

/// The calls that start and end the pause of an executor return `true` if they changed the state, and a second pause retains the
/// time of the first. Paused executors are listed in the order of their IDs.
///
/// The method is [`paused_executors`](crate::store::RunLedger::paused_executors).
///
/// Not checked for a store without a ledger.
pub async fn paused_executors_are_listed(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    same(names(ledger).await?.len(), 0, "the paused executors")?;
    expect(
        !ledger.resume_executor("agent").await?,
        "an executor that is not paused does not resume",
    )?;
    let before = super::fixtures::trigger(&store).await?.updated_at;
    for executor in ["b", "agent", "Z", "é"] {
        expect(
            ledger.pause_executor(executor).await?,
            "the executor pauses",
        )?;
    }
    let first = ledger.paused_executors().await?;
    subject.advance_clock(AFTER_SHORT).await;

    expect(
        !ledger.pause_executor("b").await?,
        "the executor is paused already",
    )?;

    same(
        ledger.paused_executors().await?,
        first.clone(),
        "the pauses",
    )?;
    let listed: Vec<&str> = first.iter().map(|paused| &*paused.executor).collect();
    same(listed, ["Z", "agent", "b", "é"], "the paused executors")?;
    let is_later = |paused: &PausedExecutor| paused.since >= before;
    expect(
        first.iter().all(is_later),
        "a pause has the time of its call",
    )?;
    expect(ledger.resume_executor("b").await?, "the executor resumes")?;
    expect(
        !ledger.resume_executor("b").await?,
        "the executor has resumed already",
    )?;
    same(
        names(ledger).await?,
        ["Z", "agent", "é"],
        "the paused executors",
    )
}

/// A running run of a paused executor continues: its lease can be extended and released, its state can be saved, and it can end.
/// After a failure, a release or the end of its lease, the run waits for the end of the pause.
///
/// [`heartbeat`](crate::store::RunLedger::heartbeat), [`save`](crate::store::RunLedger::save) and
/// the commit do not check pauses.
///
/// Not checked for a store without a ledger.
pub async fn a_running_run_of_a_paused_executor_continues(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let ended = granted(ledger.claim(&new_run(&store, "agent").await?, None).await)?.lease;
    let failed = granted(ledger.claim(&new_run(&store, "agent").await?, None).await)?.lease;
    let released = granted(ledger.claim(&new_run(&store, "agent").await?, None).await)?.lease;
    let short = new_run(&store, "agent").await?.lasting(SHORT);
    let short = granted(ledger.claim(&short, None).await)?.lease;
    ledger.pause_executor("agent").await?;

    let lost = ledger.heartbeat(slice::from_ref(&ended)).await?;
    same(lost.len(), 0, "the number of lost leases")?;
    ledger.save(&ended, Json::default()).await?;
    let before = ids_of(&store, "note.v1").await?.len();
    end(&store, &ended, RunEnd::Done, vec![create("answer")]).await?;
    let written = ids_of(&store, "note.v1").await?.len() - before;
    same(written, 1, "the number of answers")?;
    let (at, failed_run) = (failed.granted_at, failed.run.clone());
    ledger.retry(failed, at, true, None).await?;
    let released_run = released.run.clone();
    ledger.release(released).await?;
    subject.advance_clock(AFTER_SHORT).await;
    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of due runs",
    )?;
    for run in [&failed_run, &released_run, &short.run] {
        is_paused(ledger, run).await?;
    }
    match ledger.claim(&ended.run, None).await? {
        Claim::Done {
            state: RunState::Done,
            ..
        } => {}
        other => return expect(false, &format!("the run is done and not {other:?}")),
    }

    ledger.resume_executor("agent").await?;
    let claimed = claim_due(ledger, "agent", 9).await?;
    let mut attempts: Vec<u32> = claimed.iter().map(|run| run.attempt).collect();
    attempts.sort_unstable();
    same(attempts, [1, 2, 2], "the attempts")
}

/// A suspended run of a paused executor can be resumed, and its wait can reach its time limit, but the run starts only after the
/// pause.
///
/// [`resume`](crate::store::RunLedger::resume) succeeds, and the run is then ready.
///
/// Not checked for a store without a ledger.
pub async fn a_suspended_run_of_a_paused_executor_waits(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let woken = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&woken, None).await)?.lease;
    end(&store, &lease, waits(), Vec::new()).await?;
    ledger.pause_executor("agent").await?;
    match ledger.claim(&woken, None).await? {
        Claim::Suspended { .. } => {}
        other => return expect(false, &format!("the run is suspended and not {other:?}")),
    }

    ledger.resume(&woken, woken.trigger_id).await?;

    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of due runs",
    )?;
    is_paused(ledger, &woken).await?;
    ledger.resume_executor("agent").await?;
    let state = some(next_due(ledger, &woken).await?.state, "the saved state")?;
    same(state.with, Some(woken.trigger_id), "the awaited breadcrumb")
}

/// A later version of a trigger ends the running run of the older version as superseded, even if the executor is paused. The run
/// of the later version does not start before the end of the pause.
///
/// The argument `instead_of` of [`claim`](crate::store::RunLedger::claim) still ends the older run.
///
/// Not checked for a store without a ledger.
pub async fn a_later_version_waits_for_the_end_of_a_pause(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let older = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&older, None).await)?.lease;
    let newer = RunRef::new("agent", older.trigger_id, older.trigger_version + 1);
    ledger.pause_executor("agent").await?;

    let claim = ledger.claim(&newer, Some(lease)).await?;

    let is_paused = matches!(claim, Claim::Paused { .. });
    expect(is_paused, &format!("the claim is paused and not {claim:?}"))?;
    let state = some(row(ledger, &older).await?, "the older row")?.state;
    same(state, RunState::Superseded, "the state of the older run")?;
    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of due runs",
    )?;
    ledger.resume_executor("agent").await?;
    next_due(ledger, &newer).await.map(drop)
}

/// A paused executor's runs can be cancelled, redone, skipped, and transferred to another version of the executor.
///
/// Enqueuing, cancelling, redoing and ending runs do not check pauses.
///
/// Not checked for a store without a ledger.
pub async fn a_pause_affects_only_claims(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let failed = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&failed, None).await)?.lease;
    let letter = DeadLetter::new(FailureClass::Permanent, "error", 1);
    end(&store, &lease, RunEnd::Failed(letter), Vec::new()).await?;
    let moved = granted(ledger.claim(&new_run(&store, "agent").await?, None).await)?.lease;
    let skipped = granted(ledger.claim(&new_run(&store, "agent").await?, None).await)?.lease;
    let waiting = some(enqueued(&store, ledger, "agent", 1).await?.pop(), "a run")?;
    ledger.pause_executor("agent").await?;

    same(
        ledger.cancel(&waiting).await?,
        Cancelled::Waiting,
        "the answer",
    )?;
    ledger.redo(&failed).await?;
    let until = moved.until;
    for lease in [moved, skipped.clone()] {
        ledger
            .transfer(lease, "new", until, KeyPosition::Held)
            .await?;
    }
    ledger.skip(&skipped.run).await?;
    let new = [(Arc::from("agent"), Arc::from("new"))];
    let accepted = ledger.accept_transfers(&new).await?;
    same(accepted, 1, "the number of accepted runs")?;

    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of due runs",
    )?;
    ledger.resume_executor("agent").await?;
    same(
        claim_count(ledger, "agent", 9).await?,
        2,
        "the number of due runs",
    )
}

/// A pause of an executor affects only the tenant of the ledger handle that paused the executor.
///
/// The key of a pause is the tenant and the executor ID.
///
/// Not checked for a store without a ledger or several tenants.
///
/// Checked only in part without
/// [`Capabilities::named_tenants`](crate::store::Capabilities::named_tenants).
pub async fn pauses_of_tenants_are_isolated(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let other = other_tenant(&store).await?;
    let (here, there) = (ledger_of(&store)?, ledger_of(&other)?);
    let run = some(enqueued(&other, there, "agent", 1).await?.pop(), "a run")?;

    here.pause_executor("agent").await?;

    same(names(there).await?.len(), 0, "the paused executors there")?;
    expect(
        !there.resume_executor("agent").await?,
        "nothing is paused there",
    )?;
    next_due(there, &run).await?;
    same(names(here).await?, ["agent"], "the paused executors here")
}

/// Expects that the claim of a run finds its executor paused.
async fn is_paused(ledger: &dyn RunLedger, run: &RunRef) -> Result<(), Broken> {
    let listed = ledger.paused_executors().await?;
    let listed = listed.iter().find(|paused| paused.executor == run.executor);
    let since = some(listed, "the pause")?.since;
    match ledger.claim(run, None).await? {
        Claim::Paused { since: found } => same(found, since, "the time of the pause"),
        other => expect(
            false,
            &format!("the executor is paused, but the claim is {other:?}"),
        ),
    }
}

async fn names(ledger: &dyn RunLedger) -> Result<Vec<String>, Broken> {
    let paused = ledger.paused_executors().await?;
    Ok(paused
        .into_iter()
        .map(|paused| paused.executor.to_string())
        .collect())
}

/// Returns a [`RunEnd`] that suspends a run. A breadcrumb with the schema `answer.v1` wakes the run.
fn waits() -> RunEnd {
    RunEnd::Suspended {
        wake: Wake::on(Selector::schema("answer.v1")),
        state: Json::default(),
    }
}

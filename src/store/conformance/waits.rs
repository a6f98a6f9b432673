use super::AnyStore;
use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, fails, granted, lease_lost, same, some, wrong_state};
use super::fixtures::{
    AFTER_SHORT, HOUR, SHORT, claim_count, create, end, expected_writes, ledger_of, new_run,
    next_due, note, row,
};
use crate::model::{BreadcrumbId, Selector, Timestamp};
use crate::store::{
    BreadcrumbStoreExt, Claim, Lease, RunEnd, RunLedger, RunRef, RunState, Saved, StoreError, Wake,
};
use serde_json::json;

/// A suspended run has no lease and is not due, and its row has the condition for which it waits.
///
/// [`claim`](crate::store::RunLedger::claim) answers
/// [`Claim::Suspended`](crate::store::Claim::Suspended), and [`Run::wake`](crate::store::Run::wake)
/// has the condition.
///
/// Not checked for a store without a ledger.
///
/// Checked only in part without [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn a_suspended_run_waits(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (run, lease) = claimed(&store, ledger).await?;
    let wake = answer()
        .or_on(Selector::schema("other.v1"))
        .until(lease.granted_at + HOUR)
        .since(lease.granted_at);

    let written = end(
        &store,
        &lease,
        suspended(wake.clone()),
        vec![create("question")],
    )
    .await?
    .ids();

    lease_lost(end(&store, &lease, RunEnd::Done, vec![create("a")]).await)?;
    same(
        claim_count(ledger, "agent", 1).await?,
        0,
        "the number of runs due",
    )?;
    match ledger.claim(&run, None).await? {
        Claim::Suspended { until } => same(until, wake.until, "the end of the wait")?,
        other => return expect(false, &format!("the run is suspended and not {other:?}")),
    }
    let stored = some(row(ledger, &run).await?, "the row")?;
    same(
        (stored.state, stored.attempts),
        (RunState::Suspended, 0),
        "the row",
    )?;
    same(
        (stored.wake, stored.written),
        (Some(wake), expected_writes(&store, written)),
        "the wake and the writes of the run",
    )
}

/// A suspended run can be woken only once. It continues with its state and the breadcrumb that woke it, and its row still has its writes.
///
/// A second [`resume`](crate::store::RunLedger::resume) is
/// [`StoreError::WrongState`](crate::store::StoreError::WrongState).
///
/// Not checked for a store without a ledger.
///
/// Checked only in part without [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn a_suspended_run_is_resumed_once(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (run, lease) = claimed(&store, ledger).await?;
    wrong_state(ledger.resume(&run, run.trigger_id).await)?;
    let mut written = end(
        &store,
        &lease,
        suspended(answer()),
        vec![create("question")],
    )
    .await?
    .ids();
    let woken_by = store.create(note("answer")).await?.id;

    ledger.resume(&run, woken_by).await?;

    wrong_state(ledger.resume(&run, run.trigger_id).await)?;
    let again = next_due(ledger, &run).await?;
    same(
        (again.attempt, again.lease.epoch),
        (1, 0),
        "the attempt and the epoch",
    )?;
    same(
        again.state,
        resumed_with(Some(woken_by)),
        "the saved state and the breadcrumb that woke the run",
    )?;
    wrong_state(ledger.resume(&run, woken_by).await)?;
    written.extend(
        end(&store, &again.lease, RunEnd::Done, vec![create("a")])
            .await?
            .ids(),
    );
    same(
        some(row(ledger, &run).await?, "the row")?.written,
        expected_writes(&store, written),
        "the writes of the run",
    )?;
    wrong_state(ledger.resume(&run, woken_by).await)
}

/// Of several concurrent calls that wake a suspended run, one succeeds.
///
/// Each worker that sees the answer calls [`resume`](crate::store::RunLedger::resume), so such
/// races are normal.
///
/// Not checked for a store without a ledger.
pub async fn one_of_concurrent_resumes_succeeds(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (run, lease) = claimed(&store, ledger).await?;
    end(&store, &lease, suspended(answer()), Vec::new()).await?;
    let mut answers: Vec<BreadcrumbId> = Vec::new();
    for _ in 0..10 {
        answers.push(store.create(note("answer")).await?.id);
    }

    let resumed =
        futures::future::join_all(answers.iter().map(|id| ledger.resume(&run, *id))).await;

    same(
        resumed.iter().filter(|resumed| resumed.is_ok()).count(),
        1,
        "the number of successful resumes",
    )?;
    let winner = answers
        .into_iter()
        .zip(&resumed)
        .find(|(_, resumed)| resumed.is_ok())
        .map(|(id, _)| id);
    for refused in resumed.into_iter().filter(Result::is_err) {
        fails(refused, "WrongState", |error| {
            matches!(error, StoreError::WrongState { .. })
        })?;
    }
    same(
        granted(ledger.claim(&run, None).await)?.state,
        resumed_with(winner),
        "the saved state and the breadcrumb that woke the run",
    )
}

/// A retry of a woken run still has the breadcrumb that woke the run, even after the run saved its progress.
///
/// [`save`](crate::store::RunLedger::save) replaces [`Saved::state`](crate::store::Saved::state)
/// and retains [`Saved::with`](crate::store::Saved::with).
///
/// Not checked for a store without a ledger.
pub async fn a_retry_retains_the_breadcrumb_that_woke_the_run(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (run, lease) = claimed(&store, ledger).await?;
    end(&store, &lease, suspended(answer()), Vec::new()).await?;
    ledger.resume(&run, run.trigger_id).await?;

    let lease = granted(ledger.claim(&run, None).await)?.lease;
    ledger.save(&lease, json!({"step": 2}).into()).await?;
    let at = lease.granted_at;
    ledger.retry(lease, at, true, None).await?;

    let expected_result = Some(Saved::new(json!({"step": 2}).into(), Some(run.trigger_id)));
    same(
        granted(ledger.claim(&run, None).await)?.state,
        expected_result,
        "the saved state and the breadcrumb that woke the run",
    )
}

/// A suspended run is due when its time limit is reached, without a breadcrumb that woke it.
///
/// The time is [`Wake::until`](crate::store::Wake::until).
/// [`claim_next`](crate::store::RunLedger::claim_next) then claims the run.
///
/// Not checked for a store without a ledger.
pub async fn a_wait_ends_at_its_time_limit(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (by_hand, lease) = claimed(&store, ledger).await?;
    end(&store, &lease, suspended(soon(&lease)), Vec::new()).await?;
    let (due, lease) = claimed(&store, ledger).await?;
    end(
        &store,
        &lease,
        suspended(answer().until(lease.granted_at + SHORT)),
        Vec::new(),
    )
    .await?;

    subject.advance_clock(AFTER_SHORT).await;

    same(
        some(row(ledger, &due).await?, "the row")?.state,
        RunState::Ready,
        "the state",
    )?;
    let first = granted(ledger.claim(&by_hand, None).await)?;
    same(
        (first.attempt, first.lease.abandoned),
        (1, 0),
        "the attempt, and the number of expired leases",
    )?;
    same(
        first.state,
        resumed_with(None),
        "the saved state and the breadcrumb that woke the run",
    )?;
    let claimed = next_due(ledger, &due).await?;
    wrong_state(ledger.resume(&due, due.trigger_id).await)?;
    same(
        claimed.state,
        resumed_with(None),
        "the saved state and the breadcrumb that woke the run",
    )
}

/// A run that was woken can be suspended again, with another condition.
///
/// An agent that asks several questions is suspended several times.
///
/// Not checked for a store without a ledger.
pub async fn a_woken_run_can_be_suspended_again(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (run, lease) = claimed(&store, ledger).await?;
    end(&store, &lease, suspended(answer()), Vec::new()).await?;
    ledger.resume(&run, run.trigger_id).await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;

    let other = Wake::on(Selector::schema("other.v1"));
    end(&store, &lease, suspended(other.clone()), Vec::new()).await?;

    same(
        some(row(ledger, &run).await?, "the row")?.wake,
        Some(other),
        "the wake",
    )?;
    let later = store.create(note("later")).await?.id;
    ledger.resume(&run, later).await?;
    same(
        granted(ledger.claim(&run, None).await)?.state,
        resumed_with(Some(later)),
        "the saved state and the breadcrumb that woke the run",
    )
}

/// The ledger rejects a suspension whose wake condition is empty or invalid. The run is still running, and the caller still has the
/// run's lease.
///
/// The errors are [`StoreError::EmptyWake`](crate::store::StoreError::EmptyWake) and
/// [`StoreError::InvalidQuery`](crate::store::StoreError::InvalidQuery). Call
/// [`Wake::check`](crate::store::Wake::check) before the commit.
///
/// Not checked for a store without a ledger.
pub async fn an_empty_or_invalid_wait_is_rejected(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (run, lease) = claimed(&store, ledger).await?;
    let broken = Selector::schema("answer.v1").matching("$.x", "equals", 1);
    let one_of_two = answer().or_on(broken).until(lease.granted_at + HOUR);

    let ended = end(
        &store,
        &lease,
        suspended(one_of_two),
        vec![create("question")],
    )
    .await;
    fails(ended, "InvalidQuery", |error| {
        matches!(error, StoreError::InvalidQuery(_))
    })?;
    let ended = end(
        &store,
        &lease,
        suspended(Wake::default()),
        vec![create("question")],
    )
    .await;
    fails(ended, "EmptyWake", |error| {
        matches!(error, StoreError::EmptyWake)
    })?;

    same(
        some(row(ledger, &run).await?, "the row")?.state,
        RunState::Running,
        "the state",
    )?;
    let written = end(&store, &lease, RunEnd::Done, vec![create("a")]).await?;
    same(written.ids().len(), 1, "the number of writes")
}

async fn claimed(store: &AnyStore<'_>, ledger: &dyn RunLedger) -> Result<(RunRef, Lease), Broken> {
    let run = new_run(store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    Ok((run, lease))
}

fn suspended(wake: Wake) -> RunEnd {
    RunEnd::Suspended {
        wake,
        state: json!({"step": 1}).into(),
    }
}

fn answer() -> Wake {
    Wake::on(Selector::schema("answer.v1"))
}

fn soon(lease: &Lease) -> Wake {
    let time: Timestamp = lease.granted_at + SHORT;
    Wake::at(time)
}

fn resumed_with(woken_by: Option<BreadcrumbId>) -> Option<Saved> {
    Some(Saved::new(json!({"step": 1}).into(), woken_by))
}

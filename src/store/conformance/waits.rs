use super::Broken;
use super::StoreUnderTest;
use super::broken::{expect, fails, granted, lease_lost, same, some, wrong_state};
use super::given::{
    HOUR, OVER, SHORT, create, due, end, ledger_of, new_run, next_due, note, recorded, row,
};
use crate::model::{BreadcrumbId, Selector, Timestamp};
use crate::store::{
    BreadcrumbStore, BreadcrumbStoreExt, Claim, Lease, RunEnd, RunLedger, RunRef, RunState, Saved,
    StoreError, Wake,
};
use serde_json::json;

/// A suspended run holds no lease, is not due, and says what it waits for.
pub async fn a_suspended_run_waits<S: StoreUnderTest>(subject: &S) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (run, lease) = claimed(&store, ledger).await?;
    let wake = answer()
        .or_on(Selector::schema("other.v1"))
        .until(lease.granted_at + HOUR)
        .since(lease.granted_at);

    let asked = end(
        &store,
        &lease,
        suspended(wake.clone()),
        vec![create("question")],
    )
    .await?
    .ids();

    lease_lost(end(&store, &lease, RunEnd::Done, vec![create("a")]).await)?;
    same(due(ledger, "agent", 1).await?, 0, "the number of runs due")?;
    match ledger.claim(&run, None).await? {
        Claim::Suspended { until } => same(until, wake.until, "the end of the wait")?,
        other => return expect(false, &format!("the run is suspended and not {other:?}")),
    }
    let kept = some(row(ledger, &run).await?, "the row")?;
    same(
        (kept.state, kept.attempts),
        (RunState::Suspended, 0),
        "the row",
    )?;
    same(
        (kept.wake, kept.written),
        (Some(wake), recorded(&store, asked)),
        "what it waits for and what it wrote",
    )
}

/// A suspended run is woken once; it goes on with its state and what woke it, and remembers what it wrote.
pub async fn a_suspended_run_is_resumed_once<S: StoreUnderTest>(subject: &S) -> Result<(), Broken> {
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
        went_on_with(Some(woken_by)),
        "what it goes on with",
    )?;
    wrong_state(ledger.resume(&run, woken_by).await)?;
    written.extend(
        end(&store, &again.lease, RunEnd::Done, vec![create("a")])
            .await?
            .ids(),
    );
    same(
        some(row(ledger, &run).await?, "the row")?.written,
        recorded(&store, written),
        "what it wrote",
    )?;
    wrong_state(ledger.resume(&run, woken_by).await)
}

/// Of many that wake a run at once, one does.
pub async fn racing_resumes_let_one_through<S: StoreUnderTest>(subject: &S) -> Result<(), Broken> {
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
        "the number of resumes",
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
        went_on_with(winner),
        "what it goes on with",
    )
}

/// What woke a run stays with it when it is tried again, also after it saved its progress.
pub async fn what_woke_a_run_stays_with_it<S: StoreUnderTest>(subject: &S) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (run, lease) = claimed(&store, ledger).await?;
    end(&store, &lease, suspended(answer()), Vec::new()).await?;
    ledger.resume(&run, run.trigger_id).await?;

    let lease = granted(ledger.claim(&run, None).await)?.lease;
    ledger.save(&lease, json!({"step": 2}).into()).await?;
    let at = lease.granted_at;
    ledger.retry(lease, at, true, None).await?;

    let wanted = Some(Saved::new(json!({"step": 2}).into(), Some(run.trigger_id)));
    same(
        granted(ledger.claim(&run, None).await)?.state,
        wanted,
        "what it goes on with",
    )
}

/// A suspended run whose time is up is due, and woken by nothing.
pub async fn a_wait_ends_at_its_time<S: StoreUnderTest>(subject: &S) -> Result<(), Broken> {
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

    subject.advance_clock(OVER).await;

    same(
        some(row(ledger, &due).await?, "the row")?.state,
        RunState::Ready,
        "the state",
    )?;
    let first = granted(ledger.claim(&by_hand, None).await)?;
    same(
        (first.attempt, first.lease.abandoned),
        (1, 0),
        "the attempt, and the number of leases that ran out",
    )?;
    same(first.state, went_on_with(None), "what it goes on with")?;
    let claimed = next_due(ledger, &due).await?;
    wrong_state(ledger.resume(&due, due.trigger_id).await)?;
    same(claimed.state, went_on_with(None), "what it goes on with")
}

/// A suspended run can suspend again, for something else.
pub async fn a_run_can_wait_again<S: StoreUnderTest>(subject: &S) -> Result<(), Broken> {
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
        "what it waits for",
    )?;
    let later = store.create(note("later")).await?.id;
    ledger.resume(&run, later).await?;
    same(
        granted(ledger.claim(&run, None).await)?.state,
        went_on_with(Some(later)),
        "what it goes on with",
    )
}

/// A wait that nothing could end is refused, and the run is still the caller's.
pub async fn a_wait_without_end_is_refused<S: StoreUnderTest>(subject: &S) -> Result<(), Broken> {
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

async fn claimed(
    store: &impl BreadcrumbStore,
    ledger: &dyn RunLedger,
) -> Result<(RunRef, Lease), Broken> {
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

fn went_on_with(woken_by: Option<BreadcrumbId>) -> Option<Saved> {
    Some(Saved::new(json!({"step": 1}).into(), woken_by))
}

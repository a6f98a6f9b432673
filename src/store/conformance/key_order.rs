use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, granted, running, same, some};
use super::fixtures::{
    AFTER_SHORT, claim_count, end, enqueue_ordered, ledger_of, lineage_of, new_run, next_due, row,
    run_of, trigger,
};
use super::ordered::{blocked_until, only, only_next, two};
use crate::model::{Json, Patch, Selector};
use crate::store::{BreadcrumbStoreExt, DeadLetter, FailureClass, RunEnd, RunRef, RunState, Wake};

/// A claim of one run returns `Running` while an earlier run with the same ordering key has not ended. The claim still adds the
/// run's ledger row. After the end of the earlier run, a claim is granted.
///
/// [`claim`](crate::store::RunLedger::claim) respects ordering keys like
/// [`claim_next`](crate::store::RunLedger::claim_next).
///
/// Not checked for a store without a ledger.
pub async fn a_claim_of_one_run_respects_the_order(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let first = new_run(&store, "agent").await?.ordered_by(Some("a"));
    let second = new_run(&store, "agent").await?.ordered_by(Some("a"));
    let lease = granted(ledger.claim(&first, None).await)?.lease;

    let until = blocked_until(ledger, &second).await?;

    same(until, lease.until, "the end of the wait")?;
    let stored = some(row(ledger, &second).await?, "the row")?;
    same(
        (stored.state, stored.attempts),
        (RunState::Ready, 0),
        "the row",
    )?;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    same(
        granted(ledger.claim(&second, None).await)?.attempt,
        1,
        "the attempt",
    )
}

/// A claim of one run returns `Running` with a future time if a ready or suspended run with the same ordering key comes first.
/// The worker can repeat the claim at that time.
///
/// The field is `until` of [`Claim::Running`](crate::store::Claim::Running). A time in the past
/// would cause a busy loop.
///
/// Not checked for a store without a ledger.
pub async fn a_claim_of_a_blocked_run_returns_a_future_time(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let runs = enqueue_ordered(&store, ledger, "agent", "a", 2).await?;
    let (first, second) = two(&runs)?;
    subject.advance_clock(AFTER_SHORT).await;
    let now = trigger(&store).await?.updated_at;

    expect(
        blocked_until(ledger, &second).await? > now,
        "a run behind a ready run waits until a time in the future",
    )?;
    let lease = only_next(ledger, &first).await?;
    let (wake, state) = (Wake::on(Selector::schema("answer.v1")), Json::default());
    end(
        &store,
        &lease,
        RunEnd::Suspended { wake, state },
        Vec::new(),
    )
    .await?;

    expect(
        blocked_until(ledger, &second).await? > now,
        "a run behind a suspended run waits until a time in the future",
    )
}

/// A run that is redone goes to the end of the order of its ordering key.
///
/// [`redo`](crate::store::RunLedger::redo) gives the row a new sequence number.
///
/// Not checked for a store without a ledger.
pub async fn a_redone_run_goes_to_the_end_of_its_order(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let runs = enqueue_ordered(&store, ledger, "agent", "a", 3).await?;
    let (first, second) = two(&runs)?;
    let lease = only_next(ledger, &first).await?;
    let letter = DeadLetter::new(FailureClass::Permanent, "error", 1);
    end(&store, &lease, RunEnd::Failed(letter), Vec::new()).await?;
    let lease = only_next(ledger, &second).await?;

    ledger.redo(&first).await?;

    blocked_until(ledger, &first).await?;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    for run in [some(runs.last(), "a third run")?, &first] {
        let lease = only_next(ledger, run).await?;
        end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    }
    Ok(())
}

/// A run that is made ready again because its trigger version now exists goes to the end of the order of its ordering key.
///
/// [`enqueue`](crate::store::RunLedger::enqueue) gives the row that it makes ready again a new
/// sequence number.
///
/// Not checked for a store without a ledger or
/// [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn a_version_announced_too_early_goes_to_the_end_of_its_order(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = lineage_of(&store)?;
    let first = trigger(&store).await?;
    let early = RunRef::new("agent", first.id, 2).ordered_by(Some("a"));
    let lease = granted(ledger.claim(&early, None).await)?.lease;
    end(&store, &lease, RunEnd::Skipped("gone"), Vec::new()).await?;
    let next = only(&enqueue_ordered(&store, ledger, "agent", "a", 1).await?)?;

    store.update(first.id, 1, Patch::new().title("b")).await?;
    ledger.enqueue(vec![early.clone().into()]).await?;

    blocked_until(ledger, &early).await?;
    for run in [next, early] {
        let lease = only_next(ledger, &run).await?;
        end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    }
    Ok(())
}

/// The run of an older trigger version is superseded and no longer blocks the next run with the same ordering key. The newer run goes to
/// the end of its ordering key's order.
///
/// The argument `instead_of` of [`claim`](crate::store::RunLedger::claim) ends the older run.
///
/// Not checked for a store without a ledger.
pub async fn a_later_version_goes_to_the_end_of_its_order(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let before = trigger(&store).await?;
    let after = store.update(before.id, 1, Patch::new().title("b")).await?;
    let older = run_of("agent", &before).ordered_by(Some("a"));
    let newer = run_of("agent", &after).ordered_by(Some("b"));
    let lease = granted(ledger.claim(&older, None).await)?.lease;
    let next = only(&enqueue_ordered(&store, ledger, "agent", "a", 1).await?)?;
    let other = only(&enqueue_ordered(&store, ledger, "agent", "b", 1).await?)?;

    running(ledger.claim(&newer, Some(lease)).await)?;

    let state = some(row(ledger, &older).await?, "the older row")?.state;
    same(state, RunState::Superseded, "the state of the older run")?;
    let state = some(row(ledger, &newer).await?, "the newer row")?.state;
    same(state, RunState::Ready, "the state of the newer run")?;
    granted(ledger.claim(&next, None).await)?;
    let lease = granted(ledger.claim(&other, None).await)?.lease;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    only_next(ledger, &newer).await.map(drop)
}

/// A run of a later trigger version is granted even if it is behind the run of an older version in the order of their ordering key.
/// The claim supersedes the older run in the same step.
///
/// The argument `instead_of` of [`claim`](crate::store::RunLedger::claim) ends the older run before
/// the order is checked.
///
/// Not checked for a store without a ledger.
pub async fn a_later_version_does_not_wait_for_an_older_one(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let before = trigger(&store).await?;
    let after = store.update(before.id, 1, Patch::new().title("b")).await?;
    let [older, newer] = [&before, &after].map(|of| run_of("agent", of).ordered_by(Some("a")));
    let lease = granted(ledger.claim(&older, None).await)?.lease;
    ledger.enqueue(vec![newer.clone().into()]).await?;
    blocked_until(ledger, &newer).await?;

    granted(ledger.claim(&newer, Some(lease)).await).map(drop)
}

/// The ledger row of a run retains the ordering key with which it was added, and returns it.
///
/// Save [`RunRef::order`](crate::store::RunRef::order) with the row.
///
/// Not checked for a store without a ledger.
pub async fn a_row_retains_its_ordering_key(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let [a, b] = ["a", "b"].map(|key| run.clone().ordered_by(Some(key)));
    ledger.enqueue(vec![a.into()]).await?;

    ledger.enqueue(vec![b.clone().into()]).await?;
    let lease = granted(ledger.claim(&b, None).await)?.lease;

    same(
        lease.run.order.as_deref(),
        Some("a"),
        "the key in the lease",
    )?;
    let stored = some(row(ledger, &run).await?, "the row")?;
    same(stored.run.order.as_deref(), Some("a"), "the key of the row")?;
    let of_b = new_run(&store, "agent").await?.ordered_by(Some("b"));
    granted(ledger.claim(&of_b, None).await).map(drop)
}

/// A run that was added without an ordering key remains without a key when it is redone. A key in the `RunRef` of the redo has no
/// effect, so the run waits for no other run.
///
/// The ordering key belongs to the row, and not to the caller's [`RunRef`](crate::store::RunRef).
///
/// Not checked for a store without a ledger.
pub async fn a_redone_run_gets_no_new_ordering_key(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    let letter = DeadLetter::new(FailureClass::Permanent, "error", 1);
    end(&store, &lease, RunEnd::Failed(letter), Vec::new()).await?;
    let of_a = new_run(&store, "agent").await?.ordered_by(Some("a"));
    granted(ledger.claim(&of_a, None).await)?;

    ledger.redo(&run.clone().ordered_by(Some("a"))).await?;

    next_due(ledger, &run).await.map(drop)
}

/// If one call adds a run twice with different ordering keys, the run has the ordering key of the first addition.
///
/// [`enqueue`](crate::store::RunLedger::enqueue) adds the runs of one call in order.
///
/// Not checked for a store without a ledger.
pub async fn the_first_of_two_ordering_keys_counts(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    enqueue_ordered(&store, ledger, "agent", "a", 1).await?;
    let run = new_run(&store, "agent").await?;
    let again = run.clone().ordered_by(Some("a"));

    ledger.enqueue(vec![run.into(), again.into()]).await?;

    same(
        claim_count(ledger, "agent", 9).await?,
        2,
        "the number of runs due",
    )
}

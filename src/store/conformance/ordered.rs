use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{granted, running, same, some};
use super::fixtures::{
    AFTER_SHORT, HOUR, SHORT, claim_count, end, enqueue_ordered, ledger_of, new_run, next_due, row,
    trigger,
};
use crate::model::{Json, Selector, Timestamp};
use crate::store::{
    ClaimId, DeadLetter, ExecutorLimits, FailureClass, Lease, NewRun, RunEnd, RunLedger, RunRef,
    Wake,
};

/// **Ordered.** Runs of one executor with the same ordering key run one at a time, in the order in which they were added.
///
/// Runs of one executor with the same [`RunRef::order`](crate::store::RunRef::order) execute one at
/// a time, in the order of their rows.
///
/// Not checked for a store without a ledger.
pub async fn ordered(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let runs = enqueue_ordered(&store, ledger, "agent", "a", 4).await?;

    for run in &runs {
        let lease = only_next(ledger, run).await?;
        same(
            claim_count(ledger, "agent", 9).await?,
            0,
            "the number of other due runs",
        )?;
        end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    }

    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of remaining due runs",
    )
}

/// A run that is not due yet blocks the later runs with its ordering key.
///
/// A delayed run blocks the later runs with its ordering key.
///
/// Not checked for a store without a ledger.
pub async fn a_delayed_run_blocks_later_runs_of_its_key(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let now = trigger(&store).await?.updated_at;
    let later = new_run(&store, "agent").await?.ordered_by(Some("a"));
    let mut new = NewRun::from(later.clone());
    new.at = Some(now + HOUR);
    ledger.enqueue(vec![new]).await?;
    let runs = enqueue_ordered(&store, ledger, "agent", "a", 1).await?;

    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of runs due",
    )?;

    // A claim of one run does not wait for its due time, but keeps the order.
    let until = blocked_until(ledger, &only(&runs)?).await?;
    same(
        Some(until),
        some(row(ledger, &later).await?, "the row")?.due,
        "the end of the wait",
    )?;
    let lease = granted(ledger.claim(&later, None).await)?.lease;
    end(&store, &lease, RunEnd::Skipped("gone"), Vec::new()).await?;
    only_next(ledger, &only(&runs)?).await.map(drop)
}

/// A run that waits for a retry blocks the later runs with its ordering key.
///
/// A run that waits for a [`retry`](crate::store::RunLedger::retry) blocks the later runs with its
/// ordering key.
///
/// Not checked for a store without a ledger.
pub async fn a_retry_blocks_later_runs_of_its_key(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let runs = enqueue_ordered(&store, ledger, "agent", "a", 2).await?;
    let (first, second) = two(&runs)?;
    let lease = only_next(ledger, &first).await?;
    let at = lease.granted_at + SHORT;

    ledger.retry(lease, at, true, None).await?;
    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of runs due",
    )?;
    subject.advance_clock(AFTER_SHORT).await;

    let lease = only_next(ledger, &first).await?;
    ledger.release(lease).await?;
    let lease = only_next(ledger, &first).await?;
    let letter = DeadLetter::new(FailureClass::Permanent, "error", 2);
    end(&store, &lease, RunEnd::Failed(letter), Vec::new()).await?;
    only_next(ledger, &second).await.map(drop)
}

/// A suspended run blocks the later runs with its ordering key until it is woken and has ended.
///
/// A suspended run blocks the later runs with its ordering key.
///
/// Not checked for a store without a ledger.
pub async fn a_suspended_run_blocks_later_runs_of_its_key(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let runs = enqueue_ordered(&store, ledger, "agent", "a", 2).await?;
    let (first, second) = two(&runs)?;
    let lease = only_next(ledger, &first).await?;
    let (wake, state) = (Wake::on(Selector::schema("answer.v1")), Json::default());

    end(
        &store,
        &lease,
        RunEnd::Suspended { wake, state },
        Vec::new(),
    )
    .await?;
    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of runs due",
    )?;
    blocked_until(ledger, &second).await?;
    ledger.resume(&first, first.trigger_id).await?;

    let lease = only_next(ledger, &first).await?;
    end(&store, &lease, RunEnd::Continues, Vec::new()).await?;
    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of other due runs",
    )?;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    only_next(ledger, &second).await.map(drop)
}

/// A run with an expired lease is claimed again before the later runs with its ordering key.
///
/// The run of a lost worker is next, before the later runs with its ordering key.
///
/// Not checked for a store without a ledger.
pub async fn an_expired_lease_blocks_later_runs_of_its_key(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let first = new_run(&store, "agent").await?.ordered_by(Some("a"));
    let first = first.lasting(SHORT);
    ledger.enqueue(vec![first.clone().into()]).await?;
    let runs = enqueue_ordered(&store, ledger, "agent", "a", 1).await?;
    let second = only(&runs)?;
    only_next(ledger, &first).await?;

    subject.advance_clock(AFTER_SHORT).await;

    blocked_until(ledger, &second).await?;
    let lease = only_next(ledger, &first).await?;
    same(lease.abandoned, 1, "the number of expired leases")?;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    only_next(ledger, &second).await.map(drop)
}

/// Runs do not wait for runs with another ordering key, for runs without an ordering key, or for another executor's runs with the
/// same key.
///
/// Only runs with the same executor and the same ordering key wait for one another.
///
/// Not checked for a store without a ledger.
pub async fn runs_of_other_keys_do_not_wait(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    enqueue_ordered(&store, ledger, "agent", "a", 3).await?;
    enqueue_ordered(&store, ledger, "agent", "b", 3).await?;
    enqueue_ordered(&store, ledger, "another", "a", 3).await?;
    for _ in 0..2 {
        let run = new_run(&store, "agent").await?;
        ledger.enqueue(vec![run.into()]).await?;
    }

    let all = [
        ExecutorLimits::new("agent", 99),
        ExecutorLimits::new("another", 99),
    ];
    let claimed = ledger.claim_next(99, &all, ClaimId::unique()).await?;

    for (executor, expected_result) in [("agent", 4), ("another", 1)] {
        let of = claimed
            .iter()
            .filter(|run| &*run.lease.run.executor == executor);
        same(of.count(), expected_result, executor)?;
    }
    Ok(())
}

/// Claims all due runs of the run's executor, and expects only the given run. Returns the run's lease.
pub(super) async fn only_next(ledger: &dyn RunLedger, run: &RunRef) -> Result<Lease, Broken> {
    Ok(next_due(ledger, run).await?.lease)
}

/// Expects that the claim of a run finds the run behind another run of its ordering key. Returns the time until which it waits.
pub(super) async fn blocked_until(
    ledger: &dyn RunLedger,
    run: &RunRef,
) -> Result<Timestamp, Broken> {
    running(ledger.claim(run, None).await)
}

pub(super) fn only(runs: &[RunRef]) -> Result<RunRef, Broken> {
    some(runs.first().cloned(), "a run")
}

pub(super) fn two(runs: &[RunRef]) -> Result<(RunRef, RunRef), Broken> {
    let mut runs = runs.iter().cloned();
    some(runs.next().zip(runs.next()), "two runs")
}

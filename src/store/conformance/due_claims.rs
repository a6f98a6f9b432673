use super::AnyStore;
use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, granted, running, same, some};
use super::fixtures::{
    AFTER_SHORT, HOUR, SHORT, claim_count, claim_due, end, enqueued, ledger_of, lineage_of,
    new_run, next_due, row, run_of, trigger,
};
use crate::model::{BreadcrumbId, Json, Patch};
use crate::store::{
    ClaimId, ExecutorLimits, Lineage, NewRun, RunEnd, RunFilter, RunLedger, RunRef, RunState,
    StoreError, Wake, Write,
};
use futures::future::try_join_all;
use serde_json::json;
use std::collections::HashSet;

/// After a claim of due runs, every handle on the store sees the claimed run as running. This includes the handle that claimed
/// the run.
///
/// A cache of claims must not hide the state from [`runs`](crate::store::RunLedger::runs) of
/// another handle.
///
/// Not checked for a store without a ledger.
pub async fn a_claimed_run_is_running_for_every_handle(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let other = store.clone();
    let (ledger, other_ledger) = (ledger_of(&store)?, ledger_of(&other)?);
    let run = new_run(&store, "agent").await?;
    ledger.enqueue(vec![run.clone().into()]).await?;

    let claimed = next_due(ledger, &run).await?;

    same(claimed.attempt, 1, "the attempt")?;
    for ledger in [ledger, other_ledger] {
        same(
            claim_count(ledger, "agent", 5).await?,
            0,
            "the number of remaining due runs",
        )?;
        let until = running(ledger.claim(&run, None).await)?;
        same(until, claimed.lease.until, "the end of the lease")?;
    }
    end(&store, &claimed.lease, RunEnd::Done, Vec::new()).await?;
    let stored = some(row(other_ledger, &run).await?, "the row")?;
    same(stored.state, RunState::Done, "the state")
}

/// A claim of due runs returns each run's attempt, epoch and saved state, as a claim of one run does. It also returns the run's
/// trigger, or `None` if the worker must read the trigger from the store.
///
/// [`claim_next`](crate::store::RunLedger::claim_next) fills each field of
/// [`Claimed`](crate::store::Claimed) like [`claim`](crate::store::RunLedger::claim).
///
/// Not checked for a store without a ledger.
pub async fn a_claim_returns_the_history_of_a_due_run(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let cause = trigger(&store).await?;
    let run = run_of("agent", &cause);
    let first = granted(ledger.claim(&run, None).await)?;
    let state = Json::from(json!({"step": 2}));
    ledger.save(&first.lease, state.clone()).await?;
    let now = first.lease.granted_at;
    ledger.retry(first.lease.clone(), now, true, None).await?;

    let second = next_due(ledger, &run).await?;

    same(
        (second.attempt, second.lease.epoch),
        (2, 0),
        "attempt and epoch",
    )?;
    expect(second.lease.token > first.lease.token, "the token grows")?;
    let saved = second.state.map(|saved| (saved.state, saved.with));
    same(
        saved,
        Some((state, None)),
        "the state that the first attempt saved",
    )?;
    same(second.lineage, first.lineage, "the lineage")?;
    if let Some(trigger) = second.trigger {
        same(trigger, cause, "the trigger")?;
    }
    Ok(())
}

/// Runs can be added to the ledger and claimed in one step. If the claim has no capacity, they are only added.
///
/// The method is [`enqueue_and_claim`](crate::store::RunLedger::enqueue_and_claim). Its default
/// implementation keeps this promise.
///
/// Not checked for a store without a ledger.
pub async fn new_runs_are_claimed_in_the_same_step(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let mut new: Vec<NewRun> = Vec::new();
    for _ in 0..3 {
        new.push(new_run(&store, "agent").await?.into());
    }
    let runs: Vec<RunRef> = new.iter().map(|new| new.run.clone()).collect();
    let limits = [ExecutorLimits::new("agent", 9)];
    let step = async |new: Vec<NewRun>, n: usize| {
        let id = ClaimId::unique();
        let enqueued = ledger.enqueue_and_claim(new, n, &limits, id).await?;
        let claimed = enqueued.claimed?;
        let runs = claimed.into_iter().map(|run| run.lease.run);
        Ok::<_, Broken>(runs.collect::<Vec<_>>())
    };

    same(
        step(new.clone(), 0).await?,
        Vec::new(),
        "the runs claimed with a limit of 0",
    )?;
    let rows = ledger.runs(&RunFilter::all()).await?;
    same(rows.len(), 3, "the number of rows")?;
    let first: Vec<RunRef> = runs.iter().take(2).cloned().collect();
    same(
        step(new.clone(), 2).await?,
        first,
        "the runs claimed with a limit of 2",
    )?;
    let rest: Vec<RunRef> = runs.iter().skip(2).cloned().collect();
    same(step(new, 9).await?, rest, "the remaining runs")
}

/// The leases of a claim are listed by the ID of the claim, so that a caller that received no answer finds them.
///
/// Save the [`ClaimId`](crate::store::ClaimId) with each row that
/// [`claim_next`](crate::store::RunLedger::claim_next) grants.
///
/// Not checked for a store without a ledger.
pub async fn leases_are_listed_by_their_claim(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let by_hand = new_run(&store, "agent").await?;
    granted(ledger.claim(&by_hand, None).await)?;
    let runs = enqueued(&store, ledger, "agent", 3).await?;
    let (one, other) = (ClaimId::unique(), ClaimId::unique());
    let limits = [ExecutorLimits::new("agent", 9)];

    let claimed = ledger.claim_next(1, &limits, one).await?;
    same(claimed.len(), 1, "the number of runs of one claim")?;
    let claimed = ledger.claim_next(2, &limits, other).await?;
    same(claimed.len(), 2, "the number of runs of the other claim")?;

    let mut listed = of_claim(ledger, one).await?;
    listed.extend(of_claim(ledger, other).await?);
    let expected_result: Vec<_> = runs.into_iter().map(|run| (run, 1)).collect();
    same(listed, expected_result, "the leases of both claims")?;
    let none = of_claim(ledger, ClaimId::unique()).await?;
    same(none.len(), 0, "the leases of a claim that was never made")
}

/// An expired lease is listed for the claim that granted it, until another claim has the run.
///
/// A caller that lost the answer may list the leases late. It can still release them.
///
/// Not checked for a store without a ledger.
pub async fn an_expired_lease_is_listed_until_the_next_claim(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?.lasting(SHORT);
    ledger.enqueue(vec![run.clone().into()]).await?;
    let (one, other) = (ClaimId::unique(), ClaimId::unique());
    let limits = [ExecutorLimits::new("agent", 9)];
    ledger.claim_next(1, &limits, one).await?;

    subject.advance_clock(AFTER_SHORT).await;
    let expected_result = vec![(run.clone(), 1)];
    same(
        of_claim(ledger, one).await?,
        expected_result,
        "the expired lease",
    )?;
    ledger.claim_next(1, &limits, other).await?;

    let first = of_claim(ledger, one).await?;
    same(first.len(), 0, "the leases of the first claim")?;
    same(
        of_claim(ledger, other).await?,
        vec![(run, 2)],
        "the lease of the second claim",
    )
}

/// Returns the runs that are listed for a claim, with the tokens of their leases.
async fn of_claim(ledger: &dyn RunLedger, id: ClaimId) -> Result<Vec<(RunRef, u64)>, StoreError> {
    let rows = ledger.runs(&RunFilter::of_claim(id)).await?;
    let leases = rows.into_iter().filter_map(|row| row.lease);
    Ok(leases.map(|lease| (lease.run, lease.token)).collect())
}

/// A lease that ended is not listed for the claim that granted it.
///
/// Exclude ended, released and retried runs from
/// [`RunFilter::of_claim`](crate::store::RunFilter::of_claim).
///
/// Not checked for a store without a ledger.
pub async fn an_ended_run_is_not_listed_for_its_claim(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    enqueued(&store, ledger, "agent", 4).await?;
    let id = ClaimId::unique();
    let limits = [ExecutorLimits::new("agent", 9)];
    let claimed = ledger.claim_next(9, &limits, id).await?;
    same(claimed.len(), 4, "the number of runs due")?;

    for (at, run) in claimed.into_iter().enumerate() {
        let lease = run.lease;
        let later = lease.granted_at + HOUR;
        let (wake, state) = (Wake::at(later), Json::default());
        match at {
            0 => ledger.release(lease).await?,
            1 => ledger.retry(lease, later, true, None).await?,
            2 => drop(end(&store, &lease, RunEnd::Skipped("gone"), Vec::new()).await?),
            _ => drop(
                end(
                    &store,
                    &lease,
                    RunEnd::Suspended { wake, state },
                    Vec::new(),
                )
                .await?,
            ),
        }
    }

    let listed = ledger.runs(&RunFilter::of_claim(id)).await?;
    same(listed.len(), 0, "the number of remaining leases")
}

/// The lease of a claimed run is extended by heartbeats, from any handle on the store.
///
/// The lease is identified by its run and token, not by the handle that claimed it.
///
/// Not checked for a store without a ledger.
pub async fn heartbeats_extend_claimed_leases(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let other = store.clone();
    let (ledger, other_ledger) = (ledger_of(&store)?, ledger_of(&other)?);
    let run = new_run(&store, "agent").await?.lasting(HOUR);
    ledger.enqueue(vec![run.clone().into()]).await?;
    let lease = next_due(ledger, &run).await?.lease;

    let before = some(row(ledger, &run).await?, "the row")?.due;
    subject.advance_clock(AFTER_SHORT).await;
    let lost = other_ledger.heartbeat(std::slice::from_ref(&lease)).await?;

    same(lost.len(), 0, "the number of leases lost")?;
    let after = some(row(ledger, &run).await?, "the row")?.due;
    expect(after > before, "the lease lasts longer")?;
    end(&store, &lease, RunEnd::Done, Vec::new())
        .await
        .map(drop)?;
    Ok(())
}

/// A claimed run whose lease expired can be claimed by another worker.
///
/// [`claim`](crate::store::RunLedger::claim) takes the run over, with a higher token.
///
/// Not checked for a store without a ledger.
pub async fn a_claimed_lease_expires(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let other = store.clone();
    let (ledger, other_ledger) = (ledger_of(&store)?, ledger_of(&other)?);
    let run = new_run(&store, "agent").await?.lasting(SHORT);
    ledger.enqueue(vec![run.clone().into()]).await?;
    next_due(ledger, &run).await?;

    subject.advance_clock(AFTER_SHORT).await;
    let claimed = next_due(other_ledger, &run).await?;

    same(
        (claimed.attempt, claimed.lease.abandoned),
        (2, 1),
        "the attempt, and the number of expired leases",
    )
}

/// A claim returns the lineage of the run's trigger, even if the run was added before the trigger was written. If the run's own
/// executor wrote the trigger, the claim's `is_own` is `true`.
///
/// The event can arrive before the store has the version, so determine the lineage at the claim
/// too.
///
/// Not checked for a store without a ledger or
/// [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn a_claim_returns_the_lineage_of_the_trigger(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = lineage_of(&store)?;
    let (first, cause) = (trigger(&store).await?, trigger(&store).await?);
    let early = |executor: &str| RunRef::new(executor, first.id, 2);
    for executor in ["agent", "another"] {
        ledger.enqueue(vec![early(executor).into()]).await?;
    }
    let lease = granted(ledger.claim(&run_of("agent", &cause), None).await)?.lease;
    let update = Write::Update {
        id: first.id,
        version: 1,
        patch: Patch::new().title("b"),
    };
    end(&store, &lease, RunEnd::Done, vec![update]).await?;

    let own = next_due(ledger, &early("agent")).await?;
    let claimed = next_due(ledger, &early("another")).await?;

    let lineage = Lineage::new(cause.id.to_string(), 1);
    same(claimed.lineage, lineage, "the lineage")?;
    same((own.is_own, claimed.is_own), (true, false), "own triggers")
}

/// A run with an expired lease is due again.
///
/// [`claim_next`](crate::store::RunLedger::claim_next) takes over the runs of lost workers, so no
/// other process must free them.
///
/// Not checked for a store without a ledger.
pub async fn a_run_with_an_expired_lease_is_due(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    granted(ledger.claim(&run.clone().lasting(SHORT), None).await)?;

    subject.advance_clock(AFTER_SHORT).await;

    same(next_due(ledger, &run).await?.attempt, 2, "the attempt")
}

/// A claim of due runs returns at most the requested number of runs, in total and for each executor, and only of the named
/// executors.
///
/// A worker with few free places for an executor must not receive more of its runs.
///
/// Not checked for a store without a ledger.
pub async fn a_claim_respects_the_limit_of_each_executor(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    for executor in ["a", "b", "c"] {
        enqueued(&store, ledger, executor, 5).await?;
    }
    let limits = [
        ExecutorLimits::new("a", 1),
        ExecutorLimits::new("b", 9),
        ExecutorLimits::new("nobody", 9),
    ];
    let next = |n: usize, limits: Vec<ExecutorLimits>| async move {
        let claimed = ledger.claim_next(n, &limits, ClaimId::unique()).await?;
        let executors = claimed.into_iter().map(|run| run.lease.run.executor);
        Ok::<_, Broken>(executors.map(|id| id.to_string()).collect::<Vec<_>>())
    };

    same(
        next(0, limits.to_vec()).await?.len(),
        0,
        "the number of runs claimed with a limit of 0",
    )?;
    let mut four = next(4, limits.to_vec()).await?;
    four.sort();
    same(
        four,
        ["a", "b", "b", "b"],
        "the executors of four claimed runs",
    )?;
    let rest = next(9, vec![ExecutorLimits::new("b", 9)]).await?;
    same(rest, ["b", "b"], "the executors of the remaining runs")?;
    let none = next(9, vec![ExecutorLimits::new("c", 0)]).await?;
    same(none.len(), 0, "the number of runs claimed without capacity")
}

/// An executor with many due runs does not delay the runs of another executor.
///
/// Do not sort the due runs of all executors by time alone.
///
/// Not checked for a store without a ledger.
pub async fn executors_take_turns(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    enqueued(&store, ledger, "busy", 10).await?;
    enqueued(&store, ledger, "calm", 2).await?;

    let limits = [
        ExecutorLimits::new("busy", 9),
        ExecutorLimits::new("calm", 9),
    ];
    let claimed = ledger.claim_next(4, &limits, ClaimId::unique()).await?;

    for executor in ["busy", "calm"] {
        let of = claimed
            .iter()
            .filter(|run| &*run.lease.run.executor == executor);
        same(of.count(), 2, executor)?;
    }
    Ok(())
}

/// A claim of due runs returns the runs of an executor in the order in which they became due.
///
/// Otherwise a run could wait for ever under constant load.
///
/// Not checked for a store without a ledger.
pub async fn the_oldest_run_is_claimed_first(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(NewRun::from(new_run(&store, "agent").await?));
    }
    let oldest: Vec<BreadcrumbId> = runs.iter().map(|new| new.run.trigger_id).collect();
    ledger.enqueue(runs).await?;

    for id in oldest {
        let claimed = claim_due(ledger, "agent", 1).await?;
        let triggers: Vec<BreadcrumbId> =
            claimed.iter().map(|run| run.lease.run.trigger_id).collect();
        same(triggers, [id], "the oldest run")?;
    }
    Ok(())
}

/// Concurrent claims of several handles share the runs, and no run is claimed twice.
///
/// Lock or update the rows in the step that selects them.
///
/// Not checked for a store without a ledger.
pub async fn no_run_is_claimed_twice(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    enqueued(&store, ledger, "agent", 20).await?;
    let handles: Vec<AnyStore<'_>> = (0..10).map(|_| store.clone()).collect();
    let ledgers = || handles.iter().filter_map(|handle| handle.ledger());

    let claimed = try_join_all(ledgers().map(|ledger| claim_due(ledger, "agent", 3))).await?;

    let claimed: Vec<_> = claimed.into_iter().flatten().collect();
    same(claimed.len(), 20, "the number of runs claimed")?;
    let triggers: HashSet<_> = claimed.iter().map(|run| run.lease.run.trigger_id).collect();
    same(triggers.len(), 20, "the number of different runs")
}

use super::Broken;
use super::Subject;
use super::broken::{expect, granted, running, same, some};
use super::given::{HOUR, OVER, SHORT, end, enqueued, ledger_of, new_run, park, row};
use crate::model::{BreadcrumbId, Json};
use crate::store::{
    BreadcrumbStore, ExecutorLimits, Lease, LeaseOwner, NewRun, Run, RunEnd, RunFilter, RunState,
    Wake,
};
use std::collections::HashSet;

/// What is due is leased and parked in the handle that asked: its first claim takes it, all others see it running.
pub async fn a_parked_lease_is_taken_by_its_handle<S: Subject>(subject: &S) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let other = store.clone();
    let (ledger, other_ledger) = (ledger_of(&store)?, ledger_of(&other)?);
    let runs = enqueued(&store, ledger, "agent", 1).await?;
    let Some(run) = runs.first() else {
        return expect(false, "a run is enqueued");
    };

    same(
        park(ledger, "agent", 5).await?,
        1,
        "the number of runs claimed",
    )?;

    same(
        ledger.runs(&RunFilter::parked()).await?.len(),
        1,
        "the number of runs parked here",
    )?;
    same(
        other_ledger.runs(&RunFilter::parked()).await?.len(),
        0,
        "the number of runs parked there",
    )?;
    same(
        park(other_ledger, "agent", 5).await?,
        0,
        "the number of runs left",
    )?;
    running(other_ledger.claim(run, None).await)?;
    same(
        granted(ledger.claim(run, None).await)?.attempt,
        1,
        "the attempt",
    )?;
    running(ledger.claim(run, None).await)?;
    same(
        ledger.runs(&RunFilter::parked()).await?.len(),
        0,
        "the number of runs still parked",
    )
}

/// A parked lease belongs to the owner that claimed it, also in a handle that several owners share.
pub async fn a_parked_lease_belongs_to_its_owner<S: Subject>(subject: &S) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let first = new_run(&store, "agent").await?.lasting(SHORT);
    let second = new_run(&store, "agent").await?.lasting(HOUR);
    let third = new_run(&store, "agent").await?.lasting(HOUR);
    for run in [&first, &second, &third] {
        ledger.enqueue(vec![run.clone().into()]).await?;
    }
    let (one, other) = (LeaseOwner::unique(), LeaseOwner::unique());
    let limits = [ExecutorLimits::new("agent", 9)];
    let of = |owner| async move {
        let rows = ledger.runs(&RunFilter::parked_by(owner)).await?;
        Ok::<_, Broken>(rows.into_iter().map(|row| row.run).collect::<Vec<_>>())
    };

    same(ledger.claim_next(1, &limits, one).await?, 1, "the claims")?;
    same(ledger.claim_next(2, &limits, other).await?, 2, "the claims")?;

    same(of(one).await?, vec![first.clone()], "the runs of one owner")?;
    let rest = vec![second.clone(), third.clone()];
    same(of(other).await?, rest, "the runs of the other owner")?;
    same(
        of(LeaseOwner::unique()).await?,
        Vec::new(),
        "the runs of an owner that claimed nothing",
    )?;
    same(
        ledger.runs(&RunFilter::parked()).await?.len(),
        3,
        "the number of runs parked for both owners",
    )?;

    granted(ledger.claim(&second, None).await)?;
    subject.pass(OVER).await;
    same(ledger.claim_next(1, &limits, other).await?, 1, "the claims")?;

    same(of(one).await?, Vec::new(), "the runs of an expired owner")?;
    let all = vec![first, third];
    same(of(other).await?, all, "the runs of the last owner")
}

/// A run that ends under a lease that is still parked is not parked any more.
pub async fn a_run_that_ended_is_not_parked<S: Subject>(subject: &S) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    enqueued(&store, ledger, "agent", 2).await?;
    same(park(ledger, "agent", 2).await?, 2, "the number of runs due")?;
    let parked = ledger.runs(&RunFilter::parked()).await?;

    for (at, run) in parked.into_iter().enumerate() {
        let lease = some(run.lease, "the lease that is parked")?;
        let (wake, state) = (Wake::at(lease.granted_at + HOUR), Json::default());
        let how = match at {
            0 => RunEnd::Skipped("unmatched"),
            _ => RunEnd::Suspended { wake, state },
        };
        end(&store, &lease, how, Vec::new()).await?;
    }

    same(
        ledger.runs(&RunFilter::parked()).await?.len(),
        0,
        "the number of runs still parked",
    )
}

/// Who parked leases can keep them alive; a row tells the lease that is parked in this handle.
pub async fn parked_leases_are_kept_alive_by_heartbeats<S: Subject>(
    subject: &S,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let other = store.clone();
    let (ledger, other_ledger) = (ledger_of(&store)?, ledger_of(&other)?);
    let run = new_run(&store, "agent").await?.lasting(super::given::HOUR);
    ledger.enqueue(vec![run.clone().into()]).await?;
    park(ledger, "agent", 1).await?;

    let leases = parked(ledger.runs(&RunFilter::parked()).await?);
    let before = some(row(ledger, &run).await?, "the row")?.due;
    subject.pass(OVER).await;
    let lost = ledger.heartbeat(&leases).await?;

    same(
        (leases.len(), lost.len()),
        (1, 0),
        "the number of leases parked and lost",
    )?;
    let after = some(row(ledger, &run).await?, "the row")?;
    expect(after.due > before, "the lease lasts longer")?;
    expect(after.lease.is_some(), "the lease is still parked")?;
    let there = some(row(other_ledger, &run).await?, "the row")?;
    expect(
        there.lease.is_none(),
        "the lease is told to its handle only",
    )?;
    let taken = granted(ledger.claim(&run, None).await)?.lease;
    same(
        leases.first().map(|lease| lease.token),
        Some(taken.token),
        "the token",
    )
}

/// A parked lease that runs out is another worker's to claim.
pub async fn a_parked_lease_runs_out_too<S: Subject>(subject: &S) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let other = store.clone();
    let (ledger, other_ledger) = (ledger_of(&store)?, ledger_of(&other)?);
    let run = new_run(&store, "agent").await?;
    ledger
        .enqueue(vec![run.clone().lasting(SHORT).into()])
        .await?;
    park(ledger, "agent", 1).await?;

    subject.pass(OVER).await;
    let claim = granted(other_ledger.claim(&run, None).await)?;

    same(
        (claim.attempt, claim.lease.abandoned),
        (2, 1),
        "the attempt, and the number of leases that ran out",
    )?;
    running(ledger.claim(&run, None).await)?;
    same(
        ledger.runs(&RunFilter::parked()).await?.len(),
        0,
        "the number of runs parked here",
    )
}

/// A parked lease that ran out is not told by its handle once the run is parked in another.
pub async fn a_parked_lease_that_ran_out_is_told_by_its_next_handle<S: Subject>(
    subject: &S,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let other = store.clone();
    let (ledger, other_ledger) = (ledger_of(&store)?, ledger_of(&other)?);
    let run = new_run(&store, "agent").await?;
    ledger
        .enqueue(vec![run.clone().lasting(SHORT).into()])
        .await?;
    park(ledger, "agent", 1).await?;

    subject.pass(OVER).await;
    same(
        park(other_ledger, "agent", 1).await?,
        1,
        "the number of runs due",
    )?;

    same(
        ledger.runs(&RunFilter::parked()).await?.len(),
        0,
        "the number of runs parked here",
    )?;
    let there = parked(other_ledger.runs(&RunFilter::parked()).await?);
    expect(
        there.iter().all(|lease| lease.token == 2),
        "what is parked there has the next token",
    )
}

/// A run whose lease ran out is due again.
pub async fn a_lease_that_ran_out_is_due<S: Subject>(subject: &S) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    granted(ledger.claim(&run.clone().lasting(SHORT), None).await)?;

    subject.pass(OVER).await;

    same(
        park(ledger, "agent", 5).await?,
        1,
        "the number of runs claimed",
    )?;
    same(
        granted(ledger.claim(&run, None).await)?.attempt,
        2,
        "the attempt",
    )
}

/// No more is claimed than asked for, in all and of each executor, and of no other executor.
pub async fn limits_hold_for_each_executor<S: Subject>(subject: &S) -> Result<(), Broken> {
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
    let parked = |executor: &str| RunFilter::parked().executor(executor);

    same(
        ledger.claim_next(0, &limits, LeaseOwner::SOLE).await?,
        0,
        "the number claimed of none",
    )?;
    same(
        ledger.claim_next(4, &limits, LeaseOwner::SOLE).await?,
        4,
        "the number claimed of four",
    )?;

    for (executor, wanted) in [("a", 1), ("b", 3), ("c", 0)] {
        same(
            ledger.runs(&parked(executor)).await?.len(),
            wanted,
            executor,
        )?;
    }
    same(
        ledger
            .claim_next(9, &[ExecutorLimits::new("b", 9)], LeaseOwner::SOLE)
            .await?,
        2,
        "the number that is left",
    )?;
    same(
        ledger
            .claim_next(9, &[ExecutorLimits::new("c", 0)], LeaseOwner::SOLE)
            .await?,
        0,
        "the number claimed where none is free",
    )
}

/// An executor with much to do does not keep another waiting.
pub async fn executors_take_turns<S: Subject>(subject: &S) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    enqueued(&store, ledger, "busy", 10).await?;
    enqueued(&store, ledger, "calm", 2).await?;

    ledger
        .claim_next(
            4,
            &[
                ExecutorLimits::new("busy", 9),
                ExecutorLimits::new("calm", 9),
            ],
            LeaseOwner::SOLE,
        )
        .await?;

    for executor in ["busy", "calm"] {
        let parked = ledger.runs(&RunFilter::parked().executor(executor)).await?;
        same(parked.len(), 2, executor)?;
    }
    Ok(())
}

/// The oldest run of an executor comes first.
pub async fn the_oldest_run_is_claimed_first<S: Subject>(subject: &S) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(NewRun::from(new_run(&store, "agent").await?));
    }
    let oldest: Vec<BreadcrumbId> = runs.iter().map(|new| new.run.trigger_id).collect();
    ledger.enqueue(runs).await?;

    for id in oldest {
        park(ledger, "agent", 1).await?;
        let parked = ledger.runs(&RunFilter::parked().trigger(id)).await?;
        let states: Vec<RunState> = parked.iter().map(|row| row.state).collect();
        same(states, [RunState::Running], "the state of the oldest run")?;
    }
    Ok(())
}

/// Handles that claim at once share the runs, and get none twice.
pub async fn no_run_is_claimed_twice<S: Subject>(subject: &S) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    enqueued(&store, ledger, "agent", 20).await?;
    let handles: Vec<S::Store> = (0..10).map(|_| store.clone()).collect();
    let ledgers = || handles.iter().filter_map(|handle| handle.ledger());

    let claimed =
        futures::future::try_join_all(ledgers().map(|ledger| park(ledger, "agent", 3))).await?;

    same(
        claimed.iter().sum::<usize>(),
        20,
        "the number of runs claimed",
    )?;
    let mut seen = HashSet::new();
    for ledger in ledgers() {
        for row in ledger.runs(&RunFilter::parked()).await? {
            expect(
                seen.insert(row.run.trigger_id),
                "a run is parked in one handle",
            )?;
        }
    }
    same(seen.len(), 20, "the number of runs parked")
}

fn parked(rows: Vec<Run>) -> Vec<Lease> {
    rows.into_iter().filter_map(|row| row.lease).collect()
}

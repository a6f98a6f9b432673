use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, granted, lease_lost, running, same, some};
use super::fixtures::{
    AFTER_SHORT, HOUR, SHORT, claim_count, create, end, ledger_of, new_run, next_due, row,
};
use crate::model::Json;
use crate::store::{RunEnd, RunState, Saved, Wake};
use serde_json::json;

/// A heartbeat extends a lease from the current time. Even an expired lease is extended, unless another worker has claimed the run.
///
/// The new end is now plus [`RunRef::lease`](crate::store::RunRef::lease).
///
/// Not checked for a store without a ledger.
pub async fn a_heartbeat_extends_the_lease(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let mut lease = granted(ledger.claim(&run.clone().lasting(SHORT), None).await)?.lease;
    subject.advance_clock(AFTER_SHORT).await;

    lease.run.lease = HOUR;
    let lost = ledger.heartbeat(&[lease.clone()]).await?;

    expect(lost.is_empty(), "the lease is not lost")?;
    running(ledger.claim(&run, None).await)?;
    let until = some(
        some(row(ledger, &run).await?, "the row")?.due,
        "the end of the lease",
    )?;
    expect(
        until.since(lease.granted_at) >= HOUR + AFTER_SHORT,
        "the lease lasts for its length from the heartbeat",
    )
}

/// A heartbeat returns the leases that are lost: another worker has claimed the run, or the run was released or has ended.
///
/// A worker stops the execution of these runs. Leases that are still valid are not in the result of
/// [`heartbeat`](crate::store::RunLedger::heartbeat).
///
/// Not checked for a store without a ledger.
pub async fn a_heartbeat_returns_lost_leases(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (ended, held) = (
        new_run(&store, "agent").await?,
        new_run(&store, "agent").await?,
    );
    let given_back = new_run(&store, "agent").await?;
    let ended = granted(ledger.claim(&ended, None).await)?.lease;
    let held = granted(ledger.claim(&held, None).await)?.lease;
    let given_back = granted(ledger.claim(&given_back, None).await)?.lease;
    end(&store, &ended, RunEnd::Done, Vec::new()).await?;
    ledger.release(given_back.clone()).await?;

    let lost = ledger
        .heartbeat(&[ended.clone(), held, given_back.clone()])
        .await?;

    let lost: Vec<_> = lost.into_iter().map(|lost| lost.run).collect();
    same(
        lost,
        [ended.run, given_back.run],
        "the runs with a lost lease",
    )?;
    same(
        ledger.heartbeat(&[]).await?.len(),
        0,
        "the number of lost leases for an empty list",
    )
}

/// A run that is released for a retry is due at the given time and not before. Its attempt counts.
///
/// The time of [`retry`](crate::store::RunLedger::retry) is by the store's clock.
///
/// Not checked for a store without a ledger.
pub async fn a_retry_waits_for_its_time(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (soon, late) = (
        new_run(&store, "soon").await?,
        new_run(&store, "late").await?,
    );
    for (run, delay) in [(&soon, SHORT), (&late, HOUR)] {
        let lease = granted(ledger.claim(run, None).await)?.lease;
        let at = lease.granted_at + delay;
        ledger.retry(lease.clone(), at, true, None).await?;
        lease_lost(end(&store, &lease, RunEnd::Done, vec![create("a")]).await)?;
        let stored = some(row(ledger, run).await?, "the row")?;
        same(
            (stored.state, stored.attempts, stored.due),
            (RunState::Ready, 1, Some(at)),
            "the row",
        )?;
    }
    same(
        claim_count(ledger, "late", 1).await?,
        0,
        "the number of runs due at once",
    )?;

    subject.advance_clock(AFTER_SHORT).await;

    same(
        claim_count(ledger, "late", 1).await?,
        0,
        "the number of runs due in an hour",
    )?;
    same(next_due(ledger, &soon).await?.attempt, 2, "the attempt")
}

/// A retry of a run need not count as an attempt, for example after a rate limit.
///
/// The argument is `counts` of [`retry`](crate::store::RunLedger::retry).
///
/// Not checked for a store without a ledger.
pub async fn a_retry_can_leave_the_attempts_unchanged(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;

    for (counts, attempt) in [(true, 1), (false, 2), (false, 2), (true, 2), (true, 3)] {
        let claim = granted(ledger.claim(&run, None).await)?;
        same(claim.attempt, attempt, "the attempt")?;
        let at = claim.lease.granted_at;
        ledger.retry(claim.lease, at, counts, None).await?;
    }
    Ok(())
}

/// The start time of a run's attempt is the time of the attempt's first claim, even if a later claim continues the attempt. A
/// retry that does not count continues the same attempt.
///
/// The field is [`Lease::attempt_since`](crate::store::Lease::attempt_since). Time limits of
/// attempts use it.
///
/// Not checked for a store without a ledger.
pub async fn an_attempt_begins_with_its_first_claim(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    ledger.enqueue(vec![run.clone().into()]).await?;
    let next = |by_hand: bool| {
        let run = &run;
        async move {
            subject.advance_clock(AFTER_SHORT).await;
            let claimed = match by_hand {
                true => granted(ledger.claim(run, None).await)?,
                false => next_due(ledger, run).await?,
            };
            Ok::<_, Broken>(claimed.lease)
        }
    };

    for by_hand in [false, true] {
        let first = next(by_hand).await?;
        let begins = "the attempt begins with its first claim";
        same(first.attempt_since, first.granted_at, begins)?;
        ledger
            .retry(first.clone(), first.granted_at, false, None)
            .await?;
        let second = next(by_hand).await?;
        let continues = "a retry that does not count continues the attempt";
        same(second.attempt_since, first.granted_at, continues)?;
        ledger
            .retry(second.clone(), second.granted_at, true, None)
            .await?;
        let third = next(by_hand).await?;
        let begins = "a retry that counts begins an attempt";
        same(third.attempt_since, third.granted_at, begins)?;
        ledger.release(third).await?;
        let fourth = next(by_hand).await?;
        let begins = "the first claim after a release begins an attempt";
        same(fourth.attempt_since, fourth.granted_at, begins)?;
        let (wake, state) = (Wake::at(fourth.granted_at + SHORT), Json::default());
        let end_of_wait = RunEnd::Suspended { wake, state };
        end(&store, &fourth, end_of_wait, Vec::new()).await?;
        let woken = next(by_hand).await?;
        let begins = "the first claim after a suspension begins an attempt";
        same(woken.attempt_since, woken.granted_at, begins)?;
        ledger.release(woken).await?;
    }
    Ok(())
}

/// A run whose lease is released without a retry is due at once, as if the run had not been claimed.
///
/// A rolling deploy releases many runs with [`release`](crate::store::RunLedger::release). None of
/// them may lose an attempt.
///
/// Not checked for a store without a ledger.
pub async fn a_release_does_not_count_as_an_attempt(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let first = granted(ledger.claim(&run, None).await)?.lease;

    ledger.release(first.clone()).await?;

    lease_lost(end(&store, &first, RunEnd::Done, vec![create("a")]).await)?;
    let stored = some(row(ledger, &run).await?, "the row")?;
    same(
        (stored.state, stored.attempts),
        (RunState::Ready, 0),
        "the row",
    )?;
    let again = next_due(ledger, &run).await?;
    same(
        (again.attempt, again.lease.abandoned),
        (1, 0),
        "the attempt, and the number of expired leases",
    )?;
    expect(
        again.lease.token > first.token,
        "the token grows after a release",
    )
}

/// The next attempt of a run receives the last saved state of the run after an expired lease, a retry or a release.
///
/// [`save`](crate::store::RunLedger::save) must survive a crash of the worker, because a lost state
/// repeats model and tool calls.
///
/// Not checked for a store without a ledger.
pub async fn the_next_attempt_continues_from_the_saved_state(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?.lasting(SHORT);
    let saved = |n: u32| Some(Saved::new(json!({"step": n}).into(), None));

    let first = granted(ledger.claim(&run, None).await)?;
    ledger.save(&first.lease, json!({"step": 1}).into()).await?;
    ledger.save(&first.lease, json!({"step": 2}).into()).await?;
    subject.advance_clock(AFTER_SHORT).await;
    let after_a_crash = granted(ledger.claim(&run, None).await)?;
    ledger
        .save(&after_a_crash.lease, json!({"step": 3}).into())
        .await?;
    let at = after_a_crash.lease.granted_at;
    ledger
        .retry(after_a_crash.lease.clone(), at, true, None)
        .await?;
    let after_a_retry = granted(ledger.claim(&run, None).await)?;
    ledger.release(after_a_retry.lease.clone()).await?;
    let after_a_release = granted(ledger.claim(&run, None).await)?;

    same(first.state, None, "the state of the first attempt")?;
    same(
        after_a_crash.state,
        saved(2),
        "the state after an expired lease",
    )?;
    same(after_a_retry.state, saved(3), "the state after a retry")?;
    same(after_a_release.state, saved(3), "the state after a release")
}

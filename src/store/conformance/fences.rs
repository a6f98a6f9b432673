use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, granted, lease_lost, running, same, some};
use super::fixtures::{
    AFTER_SHORT, HOUR, SHORT, create, end, expected_writes, ids_of, ledger_of, new_run, next_due,
    note, row, run_of, trigger,
};
use crate::model::{Json, Selector};
use crate::store::{
    BreadcrumbStoreExt, Claim, DeadLetter, FailureClass, RunEnd, RunRef, RunState, Wake,
};

/// **Counted at claim.** An attempt of a run counts when it starts, so an attempt whose worker dies counts too.
///
/// Otherwise a trigger that kills its worker would be executed for ever.
///
/// Not checked for a store without a ledger.
pub async fn an_attempt_counts_when_it_is_claimed(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?.lasting(SHORT);

    for attempt in 1..=4 {
        let claim = granted(ledger.claim(&run, None).await)?;
        same(claim.attempt, attempt, "the attempt")?;
        same(
            claim.lease.abandoned,
            attempt - 1,
            "the number of expired leases",
        )?;
        same(
            some(row(ledger, &run).await?, "the row")?.attempts,
            attempt,
            "the attempts of the row",
        )?;
        subject.advance_clock(AFTER_SHORT).await;
    }
    Ok(())
}

/// A retry after a failed attempt of a run resets the number of consecutive expired leases.
///
/// The field is [`Lease::abandoned`](crate::store::Lease::abandoned). Only consecutive crashes
/// count as a crash loop.
///
/// Not checked for a store without a ledger.
pub async fn a_retry_resets_the_count_of_abandoned_leases(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?.lasting(SHORT);
    ledger.claim(&run, None).await?;
    subject.advance_clock(AFTER_SHORT).await;

    let second = granted(ledger.claim(&run, None).await)?.lease;
    let at = second.granted_at;
    same(second.abandoned, 1, "the number of expired leases")?;
    ledger.retry(second, at, true, None).await?;
    let third = granted(ledger.claim(&run, None).await)?;

    same(
        (third.attempt, third.lease.abandoned),
        (3, 0),
        "the attempt, and the number of expired leases",
    )
}

/// An expired lease does not count as abandoned once its owner sends a heartbeat for the lease. A second heartbeat changes
/// nothing, and later expired leases still count.
///
/// A slow worker is alive, so [`heartbeat`](crate::store::RunLedger::heartbeat) with a lost lease
/// lowers [`Lease::abandoned`](crate::store::Lease::abandoned).
///
/// Not checked for a store without a ledger.
pub async fn an_owner_that_reports_a_lost_lease_has_not_abandoned_it(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?.lasting(SHORT);
    let mut leases = Vec::new();
    for abandoned in 0..3 {
        let lease = granted(ledger.claim(&run, None).await)?.lease;
        same(
            lease.abandoned,
            abandoned,
            "the number of expired leases before a report",
        )?;
        leases.push(lease);
        subject.advance_clock(AFTER_SHORT).await;
    }
    let second = leases.swap_remove(1);

    // The third lease, which follows the reported one, can have been abandoned.
    for (reports, abandoned) in [(1, 1), (2, 2)] {
        for _ in 0..reports {
            same(
                ledger.heartbeat(std::slice::from_ref(&second)).await?.len(),
                1,
                "the number of lost leases",
            )?;
        }
        let lease = granted(ledger.claim(&run, None).await)?.lease;
        same(
            lease.abandoned,
            abandoned,
            "the number of expired leases after a report",
        )?;
        subject.advance_clock(AFTER_SHORT).await;
    }

    let last = granted(ledger.claim(&run, None).await)?.lease;
    same(
        last.abandoned,
        3,
        "the number of expired leases before a redo",
    )?;
    let failed = RunEnd::Failed(DeadLetter::new(FailureClass::CrashLoop, "", 1));
    end(&store, &last, failed, Vec::new()).await?;
    ledger.redo(&run).await?;
    granted(ledger.claim(&run, None).await)?;
    subject.advance_clock(AFTER_SHORT).await;
    ledger.heartbeat(&[last]).await?;
    let redone = granted(ledger.claim(&run, None).await)?.lease;
    same(
        redone.abandoned,
        1,
        "the number of expired leases after a report of another epoch",
    )
}

/// A claim reports that the owner of an earlier, expired lease may have executed the run. Later claims report this, even after the
/// owner reported the lost lease and another owner released the run. A redo of the run resets it.
///
/// The field is [`Lease::may_have_executed`](crate::store::Lease::may_have_executed). Runs that may
/// execute at most once need it.
///
/// Not checked for a store without a ledger.
pub async fn a_claim_reports_an_expired_lease(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?.lasting(SHORT);
    let first = granted(ledger.claim(&run, None).await)?.lease;
    same(
        first.may_have_executed,
        false,
        "`may_have_executed` before a lease expired",
    )?;
    subject.advance_clock(AFTER_SHORT).await;

    let second = next_due(ledger, &run).await?.lease;
    same(
        second.may_have_executed,
        true,
        "`may_have_executed` after a lease expired",
    )?;
    ledger.heartbeat(&[first]).await?;
    ledger.release(second).await?;
    let third = granted(ledger.claim(&run, None).await)?.lease;

    same(
        third.abandoned,
        0,
        "the number of expired leases after a report",
    )?;
    same(
        third.may_have_executed,
        true,
        "`may_have_executed` after a report and a release",
    )?;
    let failed = RunEnd::Failed(DeadLetter::new(FailureClass::OutcomeUnknown, "", 1));
    end(&store, &third, failed, Vec::new()).await?;
    ledger.redo(&run).await?;
    let redone = granted(ledger.claim(&run, None).await)?.lease;
    same(
        redone.may_have_executed,
        false,
        "`may_have_executed` after a redo",
    )
}

/// **Fenced.** After another worker has claimed a run, the old lease of the run permits no operation.
///
/// The error is [`StoreError::LeaseLost`](crate::store::StoreError::LeaseLost). Compare the token
/// of the lease in the same step as the write.
///
/// Not checked for a store without a ledger.
pub async fn fenced(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let stale = granted(ledger.claim(&run.clone().lasting(SHORT), None).await)?.lease;
    subject.advance_clock(AFTER_SHORT).await;
    let current = granted(ledger.claim(&run, None).await)?.lease;

    expect(
        current.token > stale.token,
        "the token grows with every claim",
    )?;
    for outcome in [
        RunEnd::Done,
        RunEnd::Skipped("gone"),
        RunEnd::Superseded,
        RunEnd::Continues,
    ] {
        lease_lost(end(&store, &stale, outcome, vec![create("stale")]).await)?;
    }
    lease_lost(
        ledger
            .retry(stale.clone(), stale.granted_at, true, None)
            .await,
    )?;
    lease_lost(ledger.release(stale.clone()).await)?;
    lease_lost(ledger.save(&stale, serde_json::json!({}).into()).await)?;
    let later = RunRef::new("agent", run.trigger_id, run.trigger_version + 1);
    lease_lost(ledger.claim(&later, Some(stale.clone())).await)?;
    let lost = ledger.heartbeat(&[stale.clone(), current.clone()]).await?;

    let lost: Vec<_> = lost.iter().map(|lost| (&lost.run, lost.token)).collect();
    same(lost, [(&run, stale.token)], "the lost leases")?;
    same(
        ids_of(&store, "note.v1").await?,
        [run.trigger_id],
        "the written breadcrumbs",
    )?;
    running(ledger.claim(&run, None).await)?;
    end(&store, &current, RunEnd::Done, vec![create("a")]).await?;
    same(
        ids_of(&store, "note.v1").await?.len(),
        2,
        "the number of breadcrumbs",
    )?;
    lease_lost(end(&store, &current, RunEnd::Done, vec![create("a")]).await)
}

/// **Fenced.** The token of a lease decides, not the clock: an expired lease permits a commit until the run is claimed again.
///
/// Otherwise a short delay of a worker would repeat finished work.
///
/// Not checked for a store without a ledger.
///
/// Checked only in part without [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn an_expired_lease_may_still_commit(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run.clone().lasting(SHORT), None).await)?.lease;
    subject.advance_clock(AFTER_SHORT).await;

    same(
        some(row(ledger, &run).await?, "the row")?.state,
        RunState::Ready,
        "the state",
    )?;
    let written = end(&store, &lease, RunEnd::Done, vec![create("a")]).await?;
    let written = expected_writes(&store, written.ids());

    match ledger.claim(&run, None).await? {
        Claim::Done {
            state: RunState::Done,
            written: returned,
        } => same(returned, written, "the writes of the run"),
        other => expect(false, &format!("the run is done and not {other:?}")),
    }
}

/// **The store's clock.** Leases and times of breadcrumbs use the store's clock, and the clock advances.
///
/// Workers with wrong clocks then do no harm. The suite moves the clock with
/// [`StoreUnderTest::advance_clock`](crate::store::conformance::StoreUnderTest::advance_clock).
///
/// Not checked for a store without a ledger.
pub async fn leases_use_the_clock_of_the_store(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let cause = trigger(&store).await?;
    let run = run_of("agent", &cause).lasting(HOUR);

    let first = granted(ledger.claim(&run, None).await)?.lease;
    subject.advance_clock(AFTER_SHORT).await;
    ledger.release(first.clone()).await?;
    let second = granted(ledger.claim(&run, None).await)?.lease;
    let answer = store.create(note("later")).await?;

    same(first.until, first.granted_at + HOUR, "the end of the lease")?;
    same(
        second.attempt_since,
        second.granted_at,
        "the start of the attempt after a release",
    )?;
    expect(
        second.granted_at.since(first.granted_at) >= AFTER_SHORT,
        "time passes between two leases",
    )?;
    expect(
        answer.updated_at.since(cause.updated_at) >= AFTER_SHORT,
        "time passes between two breadcrumbs",
    )?;
    let apart = second
        .granted_at
        .since(answer.updated_at)
        .max(answer.updated_at.since(second.granted_at));
    expect(apart < HOUR / 60, "leases and breadcrumbs have one clock")
}

/// **Before and after a suspension.** Breadcrumbs that are committed after the suspension of a run have a later time than the
/// suspension, and other breadcrumbs do not. A breadcrumb in the same commit as the suspension counts as earlier.
///
/// A runtime compares the times to find the answers that a suspended run waits for.
///
/// Not checked for a store without a ledger.
pub async fn commits_after_a_suspension_have_a_later_time(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    for with_a_write in [true, false] {
        let mut before = store.create(note("before")).await?;
        subject.advance_clock(AFTER_SHORT).await;
        let run = RunRef::new("agent", before.id, before.version);
        let lease = granted(ledger.claim(&run, None).await)?.lease;
        let none = some(row(ledger, &run).await?, "the row")?.suspended_at;
        same(none, None, "the time of the suspension of a running run")?;

        let writes = with_a_write.then(|| create("with"));
        let (wake, state) = (Wake::on(Selector::schema("answer.v1")), Json::default());
        let suspended = RunEnd::Suspended { wake, state };
        let committed = end(&store, &lease, suspended, writes.into_iter().collect()).await?;
        before = committed.written.last().cloned().unwrap_or(before);
        let after = store.create(note("after")).await?;

        let at = some(row(ledger, &run).await?, "the row")?.suspended_at;
        let at = some(at, "the time of the suspension")?;
        expect(
            at >= lease.granted_at,
            "the time of the suspension is not before the lease",
        )?;
        expect(
            before.updated_at <= at,
            "earlier breadcrumbs have no later time than the suspension",
        )?;
        expect(
            after.updated_at > at,
            "later breadcrumbs have a later time than the suspension",
        )?;
        ledger.resume(&run, after.id).await?;
        let none = some(row(ledger, &run).await?, "the row")?.suspended_at;
        same(none, None, "the time of the suspension of a woken run")?;
    }
    Ok(())
}

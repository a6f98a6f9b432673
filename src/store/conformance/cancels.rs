use super::AnyStore;
use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, fails, granted, lease_lost, same, some, wrong_state};
use super::fixtures::{
    AFTER_SHORT, HOUR, SHORT, claim_count, create, end, enqueue_ordered, enqueued, ids_of,
    ledger_of, new_run, next_due, row,
};
use crate::model::{Json, Patch, Selector};
use crate::store::{
    BreadcrumbStoreExt, Cancelled, Claim, DeadLetter, FailureClass, Lease, NewRun, RunEnd,
    RunFilter, RunLedger, RunRef, RunState, StoreError, Wake,
};

/// A cancelled run that is ready, delayed or suspended ends at once as failed, with the code `cancelled` and without a dead
/// letter.
///
/// The answer of [`cancel`](crate::store::RunLedger::cancel) is
/// [`Cancelled::Waiting`](crate::store::Cancelled::Waiting).
///
/// Not checked for a store without a ledger.
pub async fn a_waiting_run_is_cancelled_at_once(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let suspended = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&suspended, None).await)?.lease;
    let later = lease.granted_at + HOUR;
    end(&store, &lease, waits(), Vec::new()).await?;
    let delayed = new_run(&store, "agent").await?;
    let mut new = NewRun::from(delayed.clone());
    new.at = Some(later);
    ledger.enqueue(vec![new]).await?;
    let retried = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&retried, None).await)?.lease;
    ledger.retry(lease, later, true, Some("it failed")).await?;
    let ready = some(enqueued(&store, ledger, "agent", 1).await?.pop(), "a run")?;

    for run in [&suspended, &delayed, &retried, &ready] {
        same(ledger.cancel(run).await?, Cancelled::Waiting, "the answer")?;
        is_cancelled(ledger, run).await?;
    }

    wrong_state(ledger.resume(&suspended, suspended.trigger_id).await)?;
    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of due runs",
    )?;
    let letters = ids_of(&store, DeadLetter::SCHEMA).await?;
    same(letters.len(), 0, "the number of dead letters")
}

/// A running run that is cancelled loses its lease: its worker learns this from a heartbeat, and later operations of the worker
/// have no effect. The same holds for a run whose lease expired.
///
/// The answer of [`cancel`](crate::store::RunLedger::cancel) is
/// [`Cancelled::Running`](crate::store::Cancelled::Running), and later commits are
/// [`StoreError::LeaseLost`](crate::store::StoreError::LeaseLost).
///
/// Not checked for a store without a ledger.
pub async fn a_cancelled_run_loses_its_lease(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    same(ledger.cancel(&run).await?, Cancelled::Running, "the answer")?;
    has_no_effect(&store, ledger, &lease).await?;

    let run = new_run(&store, "agent").await?.lasting(SHORT);
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    subject.advance_clock(AFTER_SHORT).await;
    same(ledger.cancel(&run).await?, Cancelled::Running, "the answer")?;
    has_no_effect(&store, ledger, &lease).await
}

async fn has_no_effect(
    store: &AnyStore<'_>,
    ledger: &dyn RunLedger,
    lease: &Lease,
) -> Result<(), Broken> {
    let lost = ledger.heartbeat(std::slice::from_ref(lease)).await?;
    let lost: Vec<(&RunRef, u64)> = lost.iter().map(|lost| (&lost.run, lost.token)).collect();
    same(lost, [(&lease.run, lease.token)], "the lost leases")?;
    let letter = DeadLetter::new(FailureClass::Permanent, "error", 1);
    for run_end in [
        RunEnd::Done,
        RunEnd::Continues,
        RunEnd::Failed(letter),
        waits(),
    ] {
        lease_lost(end(store, lease, run_end, vec![create("stale")]).await)?;
    }
    lease_lost(ledger.save(lease, Json::default()).await)?;
    lease_lost(ledger.retry(lease.clone(), lease.until, true, None).await)?;
    lease_lost(ledger.release(lease.clone()).await)?;
    is_cancelled(ledger, &lease.run).await?;
    let written = ids_of(store, "note.v1").await?.len();
    let letters = ids_of(store, DeadLetter::SCHEMA).await?.len();
    let triggers = ledger.runs(&RunFilter::all()).await?.len();
    same((written, letters), (triggers, 0), "the breadcrumbs")
}

/// Cancelling a run that is over changes nothing, and cancelling an unknown run is an error.
///
/// The answer of [`cancel`](crate::store::RunLedger::cancel) is
/// [`Cancelled::Over`](crate::store::Cancelled::Over), and the error is
/// [`StoreError::UnknownRun`](crate::store::StoreError::UnknownRun).
///
/// Not checked for a store without a ledger.
pub async fn a_run_that_is_over_is_not_cancelled(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let letter = DeadLetter::new(FailureClass::Timeout, "slow", 1);
    for (run_end, state, reason, code) in [
        (RunEnd::Done, RunState::Done, None, None),
        (RunEnd::Superseded, RunState::Superseded, None, None),
        (
            RunEnd::Skipped("gone"),
            RunState::Skipped,
            Some("gone"),
            None,
        ),
        (
            RunEnd::Failed(letter),
            RunState::Failed,
            Some("timeout"),
            Some("slow"),
        ),
    ] {
        let run = new_run(&store, "agent").await?;
        let lease = granted(ledger.claim(&run, None).await)?.lease;
        end(&store, &lease, run_end, Vec::new()).await?;

        same(
            ledger.cancel(&run).await?,
            Cancelled::Over(state),
            "the answer",
        )?;

        let stored = some(row(ledger, &run).await?, "the row")?;
        same(
            (
                stored.state,
                stored.reason.as_deref(),
                stored.code.as_deref(),
            ),
            (state, reason, code),
            "the row",
        )?;
    }
    let unknown = new_run(&store, "agent").await?;
    fails(ledger.cancel(&unknown).await, "UnknownRun", |error| {
        matches!(error, StoreError::UnknownRun { .. })
    })
}

/// A cancelled run stays cancelled when it is enqueued again for its trigger version. This also applies if the run was cancelled
/// before the trigger version existed.
///
/// The cancelled row must remain, so that [`enqueue`](crate::store::RunLedger::enqueue) finds it.
///
/// Not checked for a store without a ledger.
pub async fn a_cancelled_run_stays_cancelled(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let trigger = super::fixtures::trigger(&store).await?;
    let run = RunRef::new("agent", trigger.id, 2);
    ledger.enqueue(vec![run.clone().into()]).await?;
    same(ledger.cancel(&run).await?, Cancelled::Waiting, "the answer")?;
    store
        .update(trigger.id, 1, Patch::new().title("announced"))
        .await?;

    ledger.enqueue(vec![run.clone().into()]).await?;

    is_cancelled(ledger, &run).await?;
    let again = Cancelled::Over(RunState::Failed);
    same(ledger.cancel(&run).await?, again, "the answer")?;
    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of due runs",
    )
}

/// A run that is cancelled before it is enqueued is not executed when it is enqueued later, and blocks no other run of its
/// ordering key. It can be redone. An existing run is cancelled as usual.
///
/// The method is [`enqueue_cancelled`](crate::store::RunLedger::enqueue_cancelled).
///
/// Not checked for a store without a ledger.
pub async fn a_run_that_is_not_enqueued_is_cancelled(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let runs = enqueue_ordered(&store, ledger, "agent", "key", 1).await?;
    let [first] = &*runs else {
        return expect(false, "there is one run");
    };
    let unknown = new_run(&store, "agent").await?.ordered_by(Some("key"));
    for cancelled in [Cancelled::Waiting, Cancelled::Over(RunState::Failed)] {
        let answer = ledger.enqueue_cancelled(&unknown).await?;
        same(answer, cancelled, "the answer")?;
        is_cancelled(ledger, &unknown).await?;
    }

    ledger.enqueue(vec![unknown.clone().into()]).await?;

    is_cancelled(ledger, &unknown).await?;
    let lease = next_due(ledger, first).await?.lease;
    let last = new_run(&store, "agent").await?.ordered_by(Some("key"));
    ledger.enqueue(vec![last.clone().into()]).await?;
    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of due runs",
    )?;
    let answer = ledger.enqueue_cancelled(first).await?;
    same(answer, Cancelled::Running, "the answer")?;
    lease_lost(end(&store, &lease, RunEnd::Done, Vec::new()).await)?;
    ledger.redo(&unknown).await?;
    for run in [&last, &unknown] {
        let lease = next_due(ledger, run).await?.lease;
        end(&store, &lease, RunEnd::Done, Vec::new()).await?;
        let answer = ledger.enqueue_cancelled(run).await?;
        same(answer, Cancelled::Over(RunState::Done), "the answer")?;
    }
    Ok(())
}

/// A cancelled run can be redone. The redo starts a new epoch, in which the lease from before the cancellation is invalid.
///
/// [`redo`](crate::store::RunLedger::redo) treats the run like any failed run.
///
/// Not checked for a store without a ledger.
pub async fn a_cancelled_run_can_be_redone(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let old = granted(ledger.claim(&run, None).await)?.lease;
    ledger.cancel(&run).await?;

    ledger.redo(&run).await?;

    let stored = some(row(ledger, &run).await?, "the row")?;
    same(
        (stored.state, stored.reason, stored.code),
        (RunState::Ready, None, None),
        "the row",
    )?;
    let new = next_due(ledger, &run).await?;
    same(
        (new.attempt, new.lease.epoch),
        (1, 1),
        "the attempt and the epoch",
    )?;
    lease_lost(end(&store, &old, RunEnd::Done, vec![create("stale")]).await)?;
    end(&store, &new.lease, RunEnd::Done, vec![create("answer")]).await?;
    same(
        ids_of(&store, "note.v1").await?.len(),
        2,
        "the number of breadcrumbs",
    )
}

/// After a cancellation, the next run with the same ordering key can be claimed at once, whether the cancelled run was running or
/// waiting. If a waiting run is cancelled, later runs still wait for the runs before it.
///
/// [`cancel`](crate::store::RunLedger::cancel) must update the order of the ordering key.
///
/// Not checked for a store without a ledger.
pub async fn the_next_run_follows_a_cancelled_one(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let runs = enqueue_ordered(&store, ledger, "agent", "key", 5).await?;
    let [first, second, third, fourth, fifth] = &*runs else {
        return expect(false, "there are five runs");
    };
    let lease = next_due(ledger, first).await?.lease;
    same(
        ledger.cancel(third).await?,
        Cancelled::Waiting,
        "the answer",
    )?;
    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of due runs",
    )?;

    same(
        ledger.cancel(first).await?,
        Cancelled::Running,
        "the answer",
    )?;
    let next = next_due(ledger, second).await?.lease;
    lease_lost(end(&store, &lease, RunEnd::Done, Vec::new()).await)?;

    end(&store, &next, waits(), Vec::new()).await?;
    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of due runs",
    )?;
    same(
        ledger.cancel(second).await?,
        Cancelled::Waiting,
        "the answer",
    )?;
    let next = next_due(ledger, fourth).await?.lease;
    end(&store, &next, RunEnd::Done, Vec::new()).await?;
    next_due(ledger, fifth).await.map(drop)
}

/// If a run is committed and cancelled concurrently, either the commit or the cancellation takes effect. The answers of the two
/// calls agree.
///
/// [`cancel`](crate::store::RunLedger::cancel) and the commit must see the same row, for example
/// under one lock.
///
/// Not checked for a store without a ledger.
pub async fn either_a_commit_or_a_cancellation_succeeds(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    for turn in 0..8 {
        let run = new_run(&store, "agent").await?;
        let lease = granted(ledger.claim(&run, None).await)?.lease;
        let before = ids_of(&store, "note.v1").await?.len();

        let commit = end(&store, &lease, RunEnd::Done, vec![create("answer")]);
        let cancel = ledger.cancel(&run);
        let (committed, cancelled) = match turn % 2 {
            0 => futures::join!(commit, cancel),
            _ => {
                let (cancelled, committed) = futures::join!(cancel, commit);
                (committed, cancelled)
            }
        };

        let written = ids_of(&store, "note.v1").await?.len() - before;
        match cancelled? {
            Cancelled::Running => {
                lease_lost(committed)?;
                // A store whose ledger is in another store writes before it ends the run.
                let most = usize::from(!store.capabilities().atomic_ends);
                expect(written <= most, "a cancelled run has no visible writes")?;
                is_cancelled(ledger, &run).await?;
            }
            Cancelled::Over(RunState::Done) => {
                committed?;
                same(written, 1, "the number of answers")?;
            }
            other @ (Cancelled::Waiting | Cancelled::Over(_)) => {
                return expect(false, &format!("the answer is not {other:?}"));
            }
        }
    }
    Ok(())
}

/// Returns a [`RunEnd`] that suspends a run. A breadcrumb with the schema `answer.v1` wakes the run.
fn waits() -> RunEnd {
    RunEnd::Suspended {
        wake: Wake::on(Selector::schema("answer.v1")),
        state: Json::default(),
    }
}

/// Expects that a run has ended as cancelled.
async fn is_cancelled(ledger: &dyn RunLedger, run: &RunRef) -> Result<(), Broken> {
    let stored = some(row(ledger, run).await?, "the row")?;
    let cancelled = Some(RunEnd::CANCELLED);
    same(
        (
            stored.state,
            stored.reason.as_deref(),
            stored.code.as_deref(),
        ),
        (RunState::Failed, cancelled, cancelled),
        "the row",
    )?;
    same(
        (stored.due, stored.wake),
        (None, None),
        "the due time and the wake of a cancelled run",
    )?;
    match ledger.claim(run, None).await? {
        Claim::Done {
            state: RunState::Failed,
            ..
        } => Ok(()),
        other => expect(
            false,
            &format!("the claim of a cancelled run is Done with Failed and not {other:?}"),
        ),
    }
}

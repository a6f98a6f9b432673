use super::AnyStore;
use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, granted, same, some};
use super::fixtures::{
    AFTER_SHORT, HOUR, SHORT, claim_count, end, ledger_of, lineage_of, new_run, row, run_of,
    trigger,
};
use crate::model::{Event, Patch};
use crate::store::{
    BreadcrumbStoreExt, Claim, DeadLetter, FailureClass, NewRun, RunEnd, RunFilter, RunRef,
    RunState, StoreError,
};
use futures::future::join_all;

/// **One run.** A run has one row in the ledger, however often the run is enqueued. Another enqueue does not change the existing
/// row.
///
/// It makes a repeated event harmless: [`enqueue`](crate::store::RunLedger::enqueue) finds the row
/// and adds nothing.
///
/// Not checked for a store without a ledger.
pub async fn a_run_has_one_row(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;

    ledger
        .enqueue(vec![run.clone().into(), run.clone().into()])
        .await?;
    ledger.enqueue(vec![run.clone().into()]).await?;
    same(
        ledger.runs(&RunFilter::all()).await?.len(),
        1,
        "the number of rows",
    )?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    ledger.enqueue(vec![run.clone().into()]).await?;
    same(
        some(row(ledger, &run).await?, "the row")?.state,
        RunState::Running,
        "the state",
    )?;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    ledger.enqueue(vec![run.clone().into()]).await?;

    same(
        some(row(ledger, &run).await?, "the row")?.state,
        RunState::Done,
        "the state",
    )?;
    same(
        claim_count(ledger, "agent", 5).await?,
        0,
        "the number of runs to claim",
    )
}

/// **One run.** Runs with another executor, another trigger or another trigger version are different runs.
///
/// The key of a row is the executor ID, the trigger ID and the trigger version.
///
/// Not checked for a store without a ledger.
pub async fn runs_with_different_names_are_different_runs(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (first, second) = (trigger(&store).await?, trigger(&store).await?);
    let later = store.update(first.id, 1, Patch::new().title("b")).await?;
    let runs = [
        run_of("a", &first),
        run_of("a|", &first),
        run_of("a", &second),
        run_of("a", &later),
    ];

    for run in &runs {
        granted(ledger.claim(run, None).await)?;
    }

    same(
        ledger.runs(&RunFilter::all()).await?.len(),
        4,
        "the number of rows",
    )
}

/// A run that failed while its trigger version was missing from the store is ready again when it is enqueued after the store has
/// the version.
///
/// Events can overtake a replica, so [`enqueue`](crate::store::RunLedger::enqueue) makes such a row
/// ready again.
///
/// Not checked for a store without a ledger or
/// [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn a_version_announced_too_early_is_executed_later(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = lineage_of(&store)?;
    let first = trigger(&store).await?;
    let early = RunRef::new("agent", first.id, 2).lasting(HOUR);
    let lease = granted(ledger.claim(&early, None).await)?.lease;
    let letter = DeadLetter::new(FailureClass::AttemptsUsedUp, "stale_read", 5);
    end(&store, &lease, RunEnd::Failed(letter), Vec::new()).await?;
    ledger.enqueue(vec![early.clone().into()]).await?;
    same(
        some(row(ledger, &early).await?, "the row")?.state,
        RunState::Failed,
        "the state before the version came",
    )?;

    store.update(first.id, 1, Patch::new().title("b")).await?;
    ledger.enqueue(vec![early.clone().into()]).await?;

    let again = granted(ledger.claim(&early, None).await)?;
    same(
        (again.attempt, again.lease.epoch),
        (1, 1),
        "attempt and epoch",
    )
}

/// A claim of one run adds the run's row to the ledger, with the event that led to the run.
///
/// A caller of [`claim`](crate::store::RunLedger::claim) need not call
/// [`enqueue`](crate::store::RunLedger::enqueue) before.
///
/// Not checked for a store without a ledger.
pub async fn a_claim_of_one_run_adds_its_row(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let event = Event::created(&*trigger(&store).await?);
    let run = RunRef::of("agent", &event);

    let claim = granted(ledger.claim(&run, None).await)?;

    same(claim.attempt, 1, "the attempt")?;
    same(claim.lease.run, run.clone(), "the run of the lease")?;
    expect(claim.state.is_none(), "the run has no saved state")?;
    let stored = some(row(ledger, &run).await?, "the row")?;
    same(
        (stored.state, stored.attempts),
        (RunState::Running, 1),
        "the row",
    )?;
    same(
        stored.run.event.as_deref(),
        Some(&event.envelope()),
        "the event of the row",
    )
}

/// A claim of one run is granted even before the run is due. A claim of due runs does not return such a run.
///
/// So an operator can start a delayed run at once with [`claim`](crate::store::RunLedger::claim).
///
/// Not checked for a store without a ledger.
pub async fn a_claim_of_one_run_does_not_wait_for_its_time(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let cause = trigger(&store).await?;
    let run = run_of("agent", &cause);
    let mut later = NewRun::from(run.clone());
    later.at = Some(cause.updated_at + HOUR);

    ledger.enqueue(vec![later]).await?;

    same(
        claim_count(ledger, "agent", 5).await?,
        0,
        "the number of due runs",
    )?;
    granted(ledger.claim(&run, None).await).map(drop)
}

/// A run that is enqueued for a time is due at that time.
///
/// The time is [`NewRun::at`](crate::store::NewRun::at), by the store's clock.
///
/// Not checked for a store without a ledger.
pub async fn a_run_is_due_at_its_time(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let cause = trigger(&store).await?;
    let mut later = NewRun::from(run_of("agent", &cause));
    later.at = Some(cause.updated_at + SHORT);
    ledger.enqueue(vec![later]).await?;

    subject.advance_clock(AFTER_SHORT).await;

    same(
        claim_count(ledger, "agent", 5).await?,
        1,
        "the number of due runs",
    )
}

/// Of a hundred concurrent claims of a run, through one handle on the store or many, one is granted.
///
/// Two granted claims would execute one run twice at the same time.
///
/// Not checked for a store without a ledger.
pub async fn one_of_concurrent_claims_is_granted(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    ledger_of(&store)?;
    let handles: Vec<AnyStore<'_>> = (0..100).map(|_| store.clone()).collect();
    let same_handle: Vec<&AnyStore<'_>> = vec![&store; 100];

    for handles in [same_handle, handles.iter().collect()] {
        let run = new_run(&store, "agent").await?;
        let claims = join_all(
            handles
                .iter()
                .filter_map(|store| store.ledger())
                .map(|ledger| ledger.claim(&run, None)),
        );
        let mut leases = 0;
        for claim in claims.await {
            match claim? {
                Claim::Granted(_) => leases += 1,
                Claim::Running { .. } => {}
                other => return expect(false, &format!("others are Running and not {other:?}")),
            }
        }
        same(leases, 1, "the number of leases")?;
    }
    Ok(())
}

/// A run that is not in the ledger cannot be resumed or redone.
///
/// The error is [`StoreError::UnknownRun`](crate::store::StoreError::UnknownRun).
///
/// Not checked for a store without a ledger.
pub async fn an_unknown_run_is_an_error(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let unknown = |error: &StoreError| matches!(error, StoreError::UnknownRun { .. });

    super::expectations::fails(
        ledger.resume(&run, run.trigger_id).await,
        "UnknownRun",
        unknown,
    )?;
    super::expectations::fails(ledger.redo(&run).await, "UnknownRun", unknown)
}

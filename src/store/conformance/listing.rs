use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{granted, same};
use super::fixtures::{HOUR, end, enqueued, ledger_of, new_run};
use crate::store::{
    ClaimId, ExecutorLimits, NewRun, RunEnd, RunFilter, RunLedger, RunRef, RunState, StoreError,
};

/// A filter selects the listed runs by executor, trigger, state and claim. The filter's limit bounds the number of listed runs.
///
/// Each condition of [`RunFilter`](crate::store::RunFilter) that is set must hold.
///
/// Not checked for a store without a ledger.
pub async fn runs_are_listed_by_filter(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let waiting = enqueued(&store, ledger, "a", 2).await?;
    let (claimed, done) = (new_run(&store, "a").await?, new_run(&store, "b").await?);
    granted(ledger.claim(&claimed, None).await)?;
    let lease = granted(ledger.claim(&done, None).await)?.lease;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    let id = ClaimId::unique();
    ledger
        .claim_next(1, &[ExecutorLimits::new("a", 1)], id)
        .await?;

    let count = async |filter: RunFilter| listed(ledger, &filter).await.map(|runs| runs.len());
    same(count(RunFilter::all()).await?, 4, "the number of all rows")?;
    same(
        count(RunFilter::all().executor("a")).await?,
        3,
        "the number of rows of an executor",
    )?;
    same(
        count(RunFilter::all().executor("c")).await?,
        0,
        "the number of rows of an unknown executor",
    )?;
    same(
        count(RunFilter::all().state(RunState::Running)).await?,
        2,
        "the number of running rows",
    )?;
    same(
        count(
            RunFilter::all()
                .state(RunState::Done)
                .state(RunState::Ready),
        )
        .await?,
        2,
        "the number of rows in two states",
    )?;
    same(
        count(RunFilter::all().executor("a").state(RunState::Done)).await?,
        0,
        "the number of done rows of an executor",
    )?;
    same(count(RunFilter::of_claim(id)).await?, 1, "the claim's rows")?;
    same(count(RunFilter::all().limit(3)).await?, 3, "the limit of 3")?;
    same(count(RunFilter::all().limit(0)).await?, 0, "the limit of 0")?;
    for run in waiting.iter().chain([&claimed, &done]) {
        let found = listed(ledger, &RunFilter::all().trigger(run.trigger_id)).await?;
        same(found, [run.clone()], "the run of a trigger")?;
    }
    Ok(())
}

/// Runs are listed in the order in which they are due, then in which they were added. Rows that are over come last.
///
/// The method is [`runs`](crate::store::RunLedger::runs). Rows that are due at the same time are in
/// the order of their addition.
///
/// Not checked for a store without a ledger.
pub async fn runs_are_listed_in_due_order(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let ended = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&ended, None).await)?.lease;
    let now = lease.granted_at;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    let mut runs: Vec<NewRun> = Vec::new();
    for hours in [3, 1, 1, 2] {
        let mut new = NewRun::from(new_run(&store, "agent").await?);
        new.at = Some(now + HOUR * hours);
        runs.push(new);
    }
    let at = |index: usize| runs.get(index).map(|new| new.run.clone());
    let expected_result: Vec<RunRef> = [at(1), at(2), at(3), at(0), Some(ended)]
        .into_iter()
        .flatten()
        .collect();

    ledger.enqueue(runs.clone()).await?;

    same(
        listed(ledger, &RunFilter::all()).await?,
        &*expected_result,
        "the rows",
    )?;
    same(
        Some(listed(ledger, &RunFilter::all().limit(2)).await?.as_slice()),
        expected_result.get(..2),
        "the first two",
    )
}

async fn listed(ledger: &dyn RunLedger, filter: &RunFilter) -> Result<Vec<RunRef>, StoreError> {
    Ok(ledger
        .runs(filter)
        .await?
        .into_iter()
        .map(|row| row.run)
        .collect())
}

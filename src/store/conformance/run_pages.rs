use super::AnyStore;
use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, granted, same, some};
use super::fixtures::{AFTER_SHORT, SHORT, end, enqueue_ordered, enqueued, ledger_of, new_run};
use crate::model::Timestamp;
use crate::store::{
    DeadLetter, FailureClass, KeyPosition, NewRun, Run, RunEnd, RunPage, RunQuery, RunRef,
    RunState, StoreError,
};

/// A page of runs contains only runs that the query selects by executor, state, failure code and enqueue time. The most recently
/// enqueued run comes first.
///
/// The method is [`runs_page`](crate::store::RunLedger::runs_page).
/// [`RunPage::new`](crate::store::RunPage::new) creates the page from the rows.
///
/// Not checked for a store without a ledger.
pub async fn a_page_has_the_runs_that_the_query_selects(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let [first, expired, failed, done, cancelled, running] =
        &in_each_state(subject, &store).await?;
    let all = ledger.runs_page(&RunQuery::all()).await?;
    expect(all.next.is_none(), "there is one page")?;
    let added_at = |run: &RunRef| added_at(&all.runs, run);
    let (since, until) = (added_at(failed)?, added_at(cancelled)?);

    let query = RunQuery::all;
    for (query, expected_result) in [
        (
            query(),
            vec![running, cancelled, done, failed, expired, first],
        ),
        (
            query().executor("a"),
            vec![running, cancelled, expired, first],
        ),
        (query().executor("c"), vec![]),
        (query().state(RunState::Ready), vec![expired, first]),
        (query().state(RunState::Running), vec![running]),
        (RunQuery::failed(), vec![cancelled, failed]),
        (RunQuery::failed().executor("a"), vec![cancelled]),
        (query().code("cancelled"), vec![cancelled]),
        (RunQuery::failed().code("too_large"), vec![failed]),
        (query().state(RunState::Done).code("too_large"), vec![]),
        (
            query().state(RunState::Done).state(RunState::Running),
            vec![running, done],
        ),
        (
            query().added_from(since).added_before(until),
            vec![done, failed],
        ),
        (query().added_before(since), vec![expired, first]),
        (
            query().added_from(until).state(RunState::Running),
            vec![running],
        ),
    ] {
        let page = ledger.runs_page(&query).await?;
        same(
            names(&page),
            expected_result,
            &format!("the runs of {query:?}"),
        )?;
    }
    let before = added_at(failed)?;
    ledger.redo(failed).await?;
    let page = ledger.runs_page(&query()).await?;
    same(names(&page).first(), Some(&failed), "the run enqueued last")?;
    same(
        self::added_at(&page.runs, failed)?,
        before,
        "the time of a run that is redone",
    )
}

/// The page queries from the first to the last page return each unchanged run exactly once. Other runs can be added, claimed and
/// redone between the pages.
///
/// An offset is not enough, because runs are added between the pages. Use a sequence number of the
/// rows as [`RunCursor`](crate::store::RunCursor).
///
/// Not checked for a store without a ledger.
pub async fn pages_return_each_run_once(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let runs = enqueued(&store, ledger, "agent", 9).await?;
    let [oldest, unread, .., newest] = &*runs else {
        return expect(false, "there are nine runs");
    };
    ledger.cancel(newest).await?;
    let mut query = RunQuery::all().limit(2);
    let mut returned = Vec::new();
    for page in 0..6 {
        let found = ledger.runs_page(&query).await?;
        let expected_result = [2, 2, 2, 2, 1].get(page);
        same(
            Some(&found.runs.len()),
            expected_result,
            "the number of runs of a page",
        )?;
        returned.extend(found.runs.into_iter().map(|run| run.run));
        let Some(next) = found.next else {
            break;
        };
        query = query.after(next);
        match page {
            0 => {
                enqueued(&store, ledger, "agent", 1).await?;
                ledger.redo(newest).await?;
            }
            1 => {
                granted(ledger.claim(unread, None).await)?;
            }
            2 => {
                ledger.cancel(oldest).await?;
            }
            _ => {}
        }
    }

    let expected_result: Vec<RunRef> = runs.iter().rev().cloned().collect();
    same(returned, expected_result, "the runs of all pages")
}

/// The limit of a page of runs is clamped to 1 to 1,000, and defaults to 100.
///
/// [`RunQuery::page_size`](crate::store::RunQuery::page_size) returns the clamped limit.
///
/// Not checked for a store without a ledger.
pub async fn a_page_of_runs_is_bounded(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let count = RunQuery::MAX_LIMIT as u64 + 1;
    let run = |version| NewRun::from(RunRef::new("agent", run.trigger_id, version));
    ledger.enqueue((1..=count).map(run).collect()).await?;

    let page = async |query: RunQuery| -> Result<(usize, bool), StoreError> {
        let page = ledger.runs_page(&query).await?;
        Ok((page.runs.len(), page.next.is_some()))
    };
    for (limit, expected_result) in [(0, 1), (1, 1), (1_000, 1_000), (usize::MAX, 1_000)] {
        let found = page(RunQuery::all().limit(limit)).await?;
        same(
            found,
            (expected_result, true),
            "the number of runs, and the existence of a next page",
        )?;
    }
    same(
        page(RunQuery::all()).await?,
        (100, true),
        "the number of runs without a limit",
    )?;
    let first = ledger.runs_page(&RunQuery::all().limit(1_000)).await?;
    let rest = RunQuery::all().after(some(first.next, "a next page")?);
    same(page(rest).await?, (1, false), "the rest")
}

/// A list of runs starts with the runs that wait for another executor version and for which later runs with the same ordering
/// key do not wait. Such a run loses this place when a worker accepts it or the run ends.
///
/// In the stores of this crate, its row has a sequence number above all others until then.
///
/// Not checked for a store without a ledger.
pub async fn a_run_that_left_its_position_is_on_the_first_page(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let runs = enqueue_ordered(&store, ledger, "agent", "key", 3).await?;
    let [first, second, third] = &*runs else {
        return expect(false, "there are three runs");
    };
    let lease = granted(ledger.claim(first, None).await)?.lease;
    let until = lease.until;
    ledger
        .transfer(lease, "new", until, KeyPosition::Left)
        .await?;
    let page = ledger.runs_page(&RunQuery::all().limit(1)).await?;
    same(names(&page), [first], "the first page")?;
    let query = RunQuery::all().after(some(page.next, "a next page")?);
    let page = ledger.runs_page(&query).await?;
    same(names(&page), [third, second], "the second page")?;

    ledger.cancel(first).await?;

    let page = ledger.runs_page(&RunQuery::all()).await?;
    same(names(&page), [third, second, first], "the runs")
}

/// Adds runs of executors `a` and `b`: one that is ready, one with an expired lease, and one each that failed, is done, is
/// cancelled and is running.
async fn in_each_state(
    subject: &dyn AnyStoreUnderTest,
    store: &AnyStore<'_>,
) -> Result<[RunRef; 6], Broken> {
    let ledger = ledger_of(store)?;
    let first = some(enqueued(store, ledger, "a", 1).await?.pop(), "a run")?;
    let expired = new_run(store, "a").await?.lasting(SHORT);
    granted(ledger.claim(&expired, None).await)?;
    subject.advance_clock(AFTER_SHORT).await;
    let failed = new_run(store, "b").await?;
    let lease = granted(ledger.claim(&failed, None).await)?.lease;
    let letter = DeadLetter::new(FailureClass::Permanent, "too_large", 1);
    end(store, &lease, RunEnd::Failed(letter), Vec::new()).await?;
    let done = new_run(store, "b").await?;
    let lease = granted(ledger.claim(&done, None).await)?.lease;
    end(store, &lease, RunEnd::Done, Vec::new()).await?;
    // The clock of a store under test can stand still between two runs.
    subject.advance_clock(AFTER_SHORT).await;
    let cancelled = some(enqueued(store, ledger, "a", 1).await?.pop(), "a run")?;
    ledger.cancel(&cancelled).await?;
    let running = new_run(store, "a").await?;
    granted(ledger.claim(&running, None).await)?;
    Ok([first, expired, failed, done, cancelled, running])
}

fn names(page: &RunPage) -> Vec<&RunRef> {
    page.runs.iter().map(|run| &run.run).collect()
}

fn added_at(runs: &[Run], run: &RunRef) -> Result<Timestamp, Broken> {
    let found = runs.iter().find(|found| found.run == *run);
    Ok(some(found, "the run")?.added_at)
}

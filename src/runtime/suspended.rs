//! Suspended runs on one store. They are listed by the ledger, and woken by the breadcrumbs that they wait for.

use super::shared::Shared;
use super::store_context::StoreContext;
use super::timeouts::{with_search_timeout, with_timeout};
use super::wakes::{Inserted, SuspendedRun, WakeCandidate};
use crate::error::Chain;
use crate::model::Breadcrumb;
use crate::store::{Query, Run, RunFilter, RunLedger, RunQuery, RunRef, RunState, StoreError};
use std::sync::Arc;

/// Maximum number of searches for the breadcrumbs that wake single suspended runs, in one check of all suspended runs. The limit applies
/// separately to newly indexed runs and to unindexed runs. For further indexed runs, one common search reads the store from the oldest
/// suspension.
const MAX_SEARCHES: usize = 256;

/// Lists the suspended runs of one executor that versions of one breadcrumb triggered, from the ledger.
async fn list_suspended(ledger: &dyn RunLedger, run: &RunRef) -> Result<Vec<Run>, StoreError> {
    let filter = RunFilter::all()
        .executor(&*run.executor)
        .trigger(run.trigger_id)
        .state(RunState::Suspended);
    with_timeout(ledger.runs(&filter)).await
}

/// Returns the suspension of a run in the ledger, or `None` if the run has left this suspension.
async fn read_suspension(
    ledger: &dyn RunLedger,
    candidate: &WakeCandidate,
) -> Result<Option<SuspendedRun>, StoreError> {
    let suspended = list_suspended(ledger, &candidate.run).await?;
    let mut suspended_runs = suspended.into_iter().filter_map(SuspendedRun::of);
    Ok(suspended_runs.find(|suspended_run| {
        suspended_run.run == candidate.run && suspended_run.since == candidate.since
    }))
}

/// Registers a run that was just suspended, and wakes it if a breadcrumb that it waits for is already in the store.
pub(super) async fn register_suspended(store_context: &StoreContext, run: &RunRef) {
    let ledger = store_context.ledger();
    match list_suspended(ledger, run).await {
        Ok(suspended) => {
            for suspended_run in suspended.into_iter().filter_map(SuspendedRun::of) {
                let suspended_run = Arc::new(suspended_run);
                match store_context.wakes.insert(&suspended_run) {
                    Inserted::Added | Inserted::Full => search(store_context, &suspended_run).await,
                    Inserted::Known => {}
                }
            }
        }
        Err(error) => {
            tracing::warn!(%run, code = error.code(), error = %Chain(&error), "cannot read a run that was just suspended, will retry; its answer may be noticed late");
        }
    }
}

/// Checks all suspended runs of this runtime's executors for stored answers whose events did not arrive. Returns `false` if the ledger did
/// not list the runs. Afterwards, [`search_from_oldest`](super::answers::search_from_oldest) searches the answers of the runs that the
/// check has not searched.
pub(super) async fn reconcile(shared: &Shared, store_context: &StoreContext) -> bool {
    let (ledger, wakes) = (store_context.ledger(), &store_context.wakes);
    let executors = shared.registry.of_store(store_context);
    let most = match store_context.store().capabilities().oldest_first {
        true => MAX_SEARCHES,
        // Without this capability, a store answers a query for one run quickly, but reads everything slowly.
        false => usize::MAX,
    };
    // Runs that are suspended during the check are missing in the pages, so `end_check` must not remove them.
    wakes.begin_check();
    let search_offset = wakes.search_offset();
    let (mut searches, mut unindexed) = (0, 0);
    let mut query = RunQuery::all()
        .state(RunState::Suspended)
        .limit(RunQuery::MAX_LIMIT);
    loop {
        let page = match with_timeout(ledger.runs_page(&query)).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(code = error.code(), error = %Chain(&error), "cannot list the suspended runs of the store, will retry");
                return false;
            }
        };
        let here = page
            .runs
            .into_iter()
            .filter(|run| executors.binary_search(&run.run.executor).is_ok());
        for suspended_run in here.filter_map(SuspendedRun::of).map(Arc::new) {
            match wakes.insert(&suspended_run) {
                Inserted::Known => {}
                Inserted::Added if searches < most => {
                    searches += 1;
                    search(store_context, &suspended_run).await;
                }
                Inserted::Added => wakes.note_unsearched(suspended_run.after),
                Inserted::Full => {
                    if (search_offset..search_offset.saturating_add(MAX_SEARCHES))
                        .contains(&unindexed)
                    {
                        search(store_context, &suspended_run).await;
                    }
                    unindexed += 1;
                }
            }
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    wakes.end_check();
    let searched = search_offset.saturating_add(MAX_SEARCHES);
    wakes.set_search_offset(if unindexed > searched { searched } else { 0 });
    if unindexed > 0 {
        tracing::warn!(
            runs = unindexed,
            searches = MAX_SEARCHES,
            "too many suspended runs to watch all; each check searches for the answers of only some unwatched runs, so unwatched runs wake late"
        );
    }
    true
}

/// Searches the store once for a breadcrumb that wakes a suspended run and was committed before the run was registered. If the search
/// fails, the run is unregistered, so that the next check of all suspended runs repeats both.
async fn search(store_context: &StoreContext, suspended_run: &SuspendedRun) {
    /// Maximum number of matching breadcrumbs that are read for a suspended run. With more matches, the oldest of these wakes the run.
    const NEWEST: usize = 32;
    for selector in &suspended_run.selectors {
        let query = Query::new(selector.clone())
            .after(suspended_run.after)
            .limit(NEWEST);
        match with_search_timeout(store_context.store().search(&query)).await {
            Ok(found) => {
                let mut oldest_first = found.iter().rev();
                if let Some(first) = oldest_first.find(|found| suspended_run.wakes_on(found)) {
                    let candidate = WakeCandidate {
                        run: suspended_run.run.clone(),
                        since: suspended_run.since,
                    };
                    wake(store_context, &candidate, first).await;
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(run = %suspended_run.run, code = error.code(), error = %Chain(&error), "cannot search the store for the answer that a suspended run waits for, will retry");
                store_context
                    .wakes
                    .forget(&suspended_run.run, suspended_run.since);
            }
        }
    }
}

/// Wakes a suspended run with a breadcrumb that it waits for, unless another worker has done so. The stored suspension decides, because a
/// run that was suspended again can wait for other breadcrumbs.
pub(super) async fn wake(
    store_context: &StoreContext,
    candidate: &WakeCandidate,
    found: &Breadcrumb,
) {
    let (ledger, wakes) = (store_context.ledger(), &store_context.wakes);
    let WakeCandidate { run, since } = candidate;
    let resumed = match read_suspension(ledger, candidate).await {
        Ok(Some(suspended_run)) if suspended_run.wakes_on(found) => {
            with_timeout(ledger.resume(run, found.id)).await
        }
        Ok(Some(_)) => return,
        Ok(None) => {
            wakes.forget(run, *since);
            store_context.note_suspended(run.clone());
            return;
        }
        Err(error) => Err(error),
    };
    match resumed {
        Ok(()) => {
            wakes.forget(run, *since);
            store_context.notify_due([Arc::clone(&run.executor)]);
        }
        Err(StoreError::WrongState { .. } | StoreError::UnknownRun { .. }) => {
            wakes.forget(run, *since);
        }
        Err(error) => {
            tracing::warn!(%run, code = error.code(), error = %Chain(&error), "cannot wake a suspended run whose answer was found, will retry");
            wakes.forget(run, *since);
        }
    }
}

//! Suspended runs on one store: found in the ledger, and woken by the breadcrumbs that they wait for.

use super::shared::{Shared, in_time, in_time_of_pages};
use super::store_context::StoreContext;
use super::wakes::{Sleeper, Wakes};
use crate::error::Chain;
use crate::model::BreadcrumbId;
use crate::store::{Query, Run, RunFilter, RunLedger, RunRef, RunState, StoreError};
use std::collections::HashSet;
use std::sync::Arc;

/// The suspended runs of the same executor on the same trigger.
async fn suspended(ledger: &dyn RunLedger, run: &RunRef) -> Result<Vec<Run>, StoreError> {
    let filter = RunFilter::all()
        .executor(&*run.executor)
        .trigger(run.trigger_id)
        .state(RunState::Suspended);
    in_time(ledger.runs(&filter)).await
}

/// Returns `true` if a run is still in the suspension that the sleeper describes, and not in a later one.
async fn still_sleeps(ledger: &dyn RunLedger, sleeper: &Sleeper) -> Result<bool, StoreError> {
    let suspended = suspended(ledger, &sleeper.run).await?;
    let still = |row: &Run| row.run == sleeper.run && row.suspended_at == Some(sleeper.since);
    Ok(suspended.iter().any(still))
}

/// Registers a run that was just suspended, and wakes it if its answer is already in the store.
pub(super) async fn look_after(store_context: &StoreContext, run: &RunRef) {
    let ledger = store_context.ledger();
    match suspended(ledger, run).await {
        Ok(suspended) => {
            for sleeper in suspended.into_iter().filter_map(Sleeper::of) {
                keep(store_context, Arc::new(sleeper)).await;
            }
        }
        Err(error) => {
            tracing::warn!(%run, code = error.code(), error = %Chain(&error), "cannot list a suspended run, will retry");
        }
    }
}

/// Checks all suspended runs of the executors that live here for breadcrumbs that woke them without an event. Returns `false` if
/// the ledger did not list them.
pub(super) async fn reconcile(shared: &Shared, store_context: &StoreContext) -> bool {
    let ledger = store_context.ledger();
    let filter = RunFilter::all()
        .state(RunState::Suspended)
        .limit(Wakes::MOST);
    // The answer of the ledger lacks runs that are suspended in the meantime.
    let kept = store_context.wakes.all();
    let suspended = match in_time(ledger.runs(&filter)).await {
        Ok(suspended) => suspended,
        Err(error) => {
            tracing::warn!(code = error.code(), error = %Chain(&error), "cannot list suspended runs, will retry");
            return false;
        }
    };
    let living = shared.registry.of_store(store_context);
    let here = suspended
        .into_iter()
        .filter(|run| living.binary_search(&run.run.executor).is_ok());
    let sleepers: Vec<Arc<Sleeper>> = here.filter_map(Sleeper::of).map(Arc::new).collect();
    #[expect(
        clippy::mutable_key_type,
        reason = "the hash of a run is that of its name"
    )]
    let runs: HashSet<RunRef> = sleepers.iter().map(|sleeper| sleeper.run.clone()).collect();
    for gone in kept.iter().filter(|kept| !runs.contains(&kept.run)) {
        store_context.wakes.forget(gone);
    }
    for sleeper in sleepers {
        keep(store_context, sleeper).await;
    }
    true
}

/// Registers a suspended run for later breadcrumbs, then searches the store once for earlier ones. If the search fails, the run is
/// unregistered, so that the next check of all suspended runs repeats both.
async fn keep(store_context: &StoreContext, sleeper: Arc<Sleeper>) {
    /// An answer that so many newer ones hide is found when one of them comes.
    const NEWEST: usize = 32;
    if !store_context.wakes.insert(&sleeper) {
        return;
    }
    for selector in &sleeper.selectors {
        let query = Query::new(selector.clone()).limit(NEWEST);
        match in_time_of_pages(store_context.store().search(&query)).await {
            Ok(found) => {
                // The first that came.
                let mut found = found.iter().rev();
                if let Some(first) = found.find(|found| sleeper.wakes_on(found)) {
                    wake(store_context, &sleeper, first.id).await;
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(run = %sleeper.run, code = error.code(), error = %Chain(&error), "cannot search for the answer that a suspended run waits for, will retry");
                store_context.wakes.forget(&sleeper);
            }
        }
    }
}

/// Wakes a run, unless another worker has done so. A run that was suspended again in the meantime can wait for something else.
pub(super) async fn wake(store_context: &StoreContext, sleeper: &Sleeper, with: BreadcrumbId) {
    let ledger = store_context.ledger();
    let resumed = match still_sleeps(ledger, sleeper).await {
        Ok(true) => in_time(ledger.resume(&sleeper.run, with)).await,
        Ok(false) => {
            store_context.wakes.forget(sleeper);
            store_context.suspended(sleeper.run.clone());
            return;
        }
        Err(error) => Err(error),
    };
    match resumed {
        Ok(()) => {
            store_context.wakes.forget(sleeper);
            store_context.nudge([Arc::clone(&sleeper.run.executor)]);
        }
        Err(StoreError::WrongState { .. } | StoreError::UnknownRun { .. }) => {
            store_context.wakes.forget(sleeper);
        }
        Err(error) => {
            tracing::warn!(run = %sleeper.run, code = error.code(), error = %Chain(&error), "cannot wake a suspended run, will retry");
            store_context.wakes.forget(sleeper);
        }
    }
}

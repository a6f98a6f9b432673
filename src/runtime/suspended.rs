//! Suspended runs on one store: found in the ledger, and woken by the breadcrumbs that they wait for.

use super::home::Home;
use super::shared::{Shared, in_time, in_time_of_pages};
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
pub(super) async fn look_after(home: &Home, run: &RunRef) {
    let ledger = home.ledger();
    match suspended(ledger, run).await {
        Ok(suspended) => {
            for sleeper in suspended.into_iter().filter_map(Sleeper::of) {
                keep(home, Arc::new(sleeper)).await;
            }
        }
        Err(error) => {
            tracing::warn!(%run, code = error.code(), error = %Chain(&error), "cannot list a suspended run, will retry");
        }
    }
}

/// Checks all suspended runs of the executors that live here for breadcrumbs that woke them without an event. Returns `false` if
/// the ledger did not list them.
pub(super) async fn reconcile(shared: &Shared, home: &Home) -> bool {
    let ledger = home.ledger();
    let filter = RunFilter::all()
        .state(RunState::Suspended)
        .limit(Wakes::MOST);
    // The answer of the ledger lacks runs that are suspended in the meantime.
    let kept = home.wakes.all();
    let suspended = match in_time(ledger.runs(&filter)).await {
        Ok(suspended) => suspended,
        Err(error) => {
            tracing::warn!(code = error.code(), error = %Chain(&error), "cannot list suspended runs, will retry");
            return false;
        }
    };
    let living = shared.roster.at_home(home);
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
        home.wakes.forget(gone);
    }
    for sleeper in sleepers {
        keep(home, sleeper).await;
    }
    true
}

/// Registers a suspended run for later breadcrumbs, then searches the store once for earlier ones. If the search fails, the run is
/// unregistered, so that the next check of all suspended runs repeats both.
async fn keep(home: &Home, sleeper: Arc<Sleeper>) {
    /// An answer that so many newer ones hide is found when one of them comes.
    const NEWEST: usize = 32;
    if !home.wakes.insert(&sleeper) {
        return;
    }
    for selector in &sleeper.selectors {
        let query = Query::new(selector.clone()).limit(NEWEST);
        match in_time_of_pages(home.store().search(&query)).await {
            Ok(found) => {
                // The first that came.
                let mut found = found.iter().rev();
                if let Some(first) = found.find(|found| sleeper.wakes_on(found)) {
                    wake(home, &sleeper, first.id).await;
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(run = %sleeper.run, code = error.code(), error = %Chain(&error), "cannot search for the answer that a suspended run waits for, will retry");
                home.wakes.forget(&sleeper);
            }
        }
    }
}

/// Wakes a run, unless another worker has done so. A run that was suspended again in the meantime can wait for something else.
pub(super) async fn wake(home: &Home, sleeper: &Sleeper, with: BreadcrumbId) {
    let ledger = home.ledger();
    let resumed = match still_sleeps(ledger, sleeper).await {
        Ok(true) => in_time(ledger.resume(&sleeper.run, with)).await,
        Ok(false) => {
            home.wakes.forget(sleeper);
            home.suspended(sleeper.run.clone());
            return;
        }
        Err(error) => Err(error),
    };
    match resumed {
        Ok(()) => {
            home.wakes.forget(sleeper);
            home.nudge([Arc::clone(&sleeper.run.executor)]);
        }
        Err(StoreError::WrongState { .. } | StoreError::UnknownRun { .. }) => {
            home.wakes.forget(sleeper);
        }
        Err(error) => {
            tracing::warn!(run = %sleeper.run, code = error.code(), error = %Chain(&error), "cannot wake a suspended run, will retry");
            home.wakes.forget(sleeper);
        }
    }
}

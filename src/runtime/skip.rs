//! The end of a run that waits for another version of its executor, on request of an operator.

use crate::store::{
    BreadcrumbStore, Claim, Commit, Lease, RunEnd, RunFilter, RunLedger, RunRef, RunState,
    StoreError,
};

/// Ends a transferred run as skipped, with the reason of a run that no version matches.
pub(super) async fn skip(
    store: &dyn BreadcrumbStore,
    ledger: &dyn RunLedger,
    run: &RunRef,
) -> Result<(), StoreError> {
    let filter = RunFilter::all()
        .executor(&*run.executor)
        .trigger(run.trigger_id);
    let found = ledger.runs(&filter).await?;
    let Some(row) = found.into_iter().find(|found| found.run == *run) else {
        return Err(StoreError::UnknownRun { run: run.clone() });
    };
    if row.transferred_to.is_none() {
        return Err(wrong_state(run, row.state));
    }
    let lease = granted(run, ledger.claim(&row.run, None).await?)?;
    let commit = Commit {
        writes: Vec::new(),
        end: Some((lease, RunEnd::Skipped(RunEnd::UNMATCHED))),
    };
    store.commit(commit).await.map(drop)
}

/// Returns the lease of a claim. Another worker can have accepted and claimed the run since it was listed.
fn granted(run: &RunRef, claim: Claim) -> Result<Lease, StoreError> {
    match claim {
        Claim::Granted { lease, .. } => Ok(lease),
        Claim::Own => Err(wrong_state(run, RunState::Skipped)),
        Claim::Done { state, .. } => Err(wrong_state(run, state)),
        Claim::Running { .. } => Err(wrong_state(run, RunState::Running)),
        Claim::Suspended { .. } => Err(wrong_state(run, RunState::Suspended)),
        Claim::Superseded => Err(wrong_state(run, RunState::Superseded)),
    }
}

fn wrong_state(run: &RunRef, state: RunState) -> StoreError {
    StoreError::WrongState {
        operation: "skip",
        run: run.clone(),
        state,
    }
}

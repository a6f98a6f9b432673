//! Responses of earlier processes, on a store whose ledger ends with the process: the store is the only evidence.

use super::error::ExecutorError;
use super::run::{in_time, store_error};
use crate::clock::wall_micros;
use crate::model::{Event, Selector, Timestamp};
use crate::store::{
    BreadcrumbStore, Claim, Claimed, Commit, Query, RunEnd, RunRef, RunStore, answered, run_tag,
};

/// Ends a claimed run whose response is in the store already, and returns [`Claim::Done`] with that response. Returns any
/// other claim unchanged.
///
/// Only a store with [`run_keys`](crate::store::Capabilities::run_keys) recognises the response of a run. The search is a request,
/// so it is omitted if an earlier response is impossible.
pub(super) async fn unless_answered(
    (store, runs): (&dyn BreadcrumbStore, RunStore<'_>),
    event: &Event,
    run: &RunRef,
    claim: Claim,
) -> Result<Claim, ExecutorError> {
    let is_wanted = match &claim {
        Claim::Granted(claimed) => may_be_answered(runs, event, claimed),
        // The ledger does not record the breadcrumbs that the run wrote.
        Claim::Done { written, .. } => written.is_empty(),
        Claim::Own | Claim::Running { .. } | Claim::Suspended { .. } | Claim::Superseded => false,
    };
    if !is_wanted || !store.capabilities().run_keys {
        return Ok(claim);
    }
    /// Maximum number of breadcrumbs of a response that are read.
    const MOST: usize = 100;
    let tag = run_tag(&run.key(store.tenant(), 0));
    let query = Query::new(Selector::any().all_tags([tag])).limit(MOST);
    let found = in_time(run.lease, store.search(&query)).await;
    let found = found.map_err(store_error("search for an earlier response"))?;
    let Some(answered) = answered(&found) else {
        return Ok(claim);
    };
    if let Claim::Granted(Claimed { lease, .. }) = claim {
        let commit = Commit {
            writes: Vec::new(),
            end: Some((lease, RunEnd::Done)),
        };
        let ended = in_time(run.lease, runs.commit(commit)).await;
        ended.map_err(store_error("end the run"))?;
    }
    Ok(answered)
}

/// Returns `true` if an earlier attempt, another worker or an earlier process may have responded to an event.
fn may_be_answered(runs: RunStore<'_>, event: &Event, claimed: &Claimed) -> bool {
    let age = Timestamp::from_micros(wall_micros()).since(event.updated_at);
    claimed.attempt > 1
        || age > claimed.lease.run.lease
        || runs.may_predate_ledger(event.updated_at)
}

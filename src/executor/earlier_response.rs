//! Search of a store for the earlier response of a run, for stores whose run ledger exists only in the memory of this process.

use super::UniversalExecutor;
use super::claimed_run::{ClaimedRun, store_error};
use super::error::ExecutorError;
use super::outcome::Outcome;
use super::store_timeout::in_time;
use crate::clock::wall_micros;
use crate::model::{Event, Selector, Timestamp};
use crate::store::{BreadcrumbStore, Claim, Commit, Query, RunEnd, RunRef, finished_run, run_tag};
use std::time::Duration;

/// Adds the IDs of the response breadcrumbs to the result of a claim that found the run already ended. The breadcrumbs are read
/// from the store, because the in-memory ledger does not record them.
///
/// Returns any other claim unchanged, and also a claim whose breadcrumbs cannot be read now.
pub(super) async fn with_written(store: &dyn BreadcrumbStore, run: &RunRef, claim: Claim) -> Claim {
    match &claim {
        Claim::Done { written, .. } if written.is_empty() => {
            let found = search(store, run, run.lease).await;
            found.ok().flatten().unwrap_or(claim)
        }
        Claim::Done { .. }
        | Claim::Granted(_)
        | Claim::Own
        | Claim::Running { .. }
        | Claim::Suspended { .. }
        | Claim::Superseded
        | Claim::Paused { .. } => claim,
    }
}

/// Searches the store for the response of a run, for at most `limit`. Returns [`Claim::Done`] if the store has the whole response.
///
/// Only a store with [`run_keys`](crate::store::Capabilities::run_keys) recognises the response of a run.
async fn search(
    store: &dyn BreadcrumbStore,
    run: &RunRef,
    limit: Duration,
) -> Result<Option<Claim>, ExecutorError> {
    /// Maximum number of breadcrumbs that the search for the response of a run reads.
    const MAX_READ: usize = 100;
    if !store.capabilities().run_keys {
        return Ok(None);
    }
    let tag = run_tag(&run.key(store.tenant(), 0));
    let query = Query::new(Selector::any().all_tags([tag])).limit(MAX_READ);
    let found = in_time(limit, store.search(&query)).await;
    let found = found.map_err(store_error("search for an earlier response"))?;
    Ok(finished_run(&found))
}

impl<E: UniversalExecutor + ?Sized> ClaimedRun<'_, E> {
    /// Ends a run without executing it if the store already contains the run's response. Returns `None` if the run has to be
    /// executed.
    ///
    /// The search costs a request, so it is omitted if an earlier response is impossible.
    pub(super) async fn answered_before(
        &self,
        event: &Event,
    ) -> Result<Option<Outcome>, ExecutorError> {
        if !self.may_be_answered(event) {
            return Ok(None);
        }
        // The second half of the lease is reserved for the commit.
        let run = &self.lease.run;
        let found = search(self.executor.store(), run, run.lease / 2).await?;
        let Some(Claim::Done { state, written }) = found else {
            return Ok(None);
        };
        let commit = Commit {
            writes: Vec::new(),
            end: Some((self.lease.clone(), RunEnd::Done)),
        };
        let ended = self.in_time(self.store.commit(commit)).await;
        ended.map_err(store_error("end the run"))?;
        Ok(Some(Outcome::AlreadyDone { state, written }))
    }

    /// Returns `true` if an earlier attempt, another worker or an earlier process may have responded to an event already.
    fn may_be_answered(&self, event: &Event) -> bool {
        let age = Timestamp::from_micros(wall_micros()).since(event.updated_at);
        !self.store.is_durable()
            && (self.attempt > 1
                || age > self.lease.run.lease
                || self.store.may_predate_ledger(event.updated_at))
    }
}

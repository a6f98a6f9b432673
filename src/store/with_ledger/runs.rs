//! The ledger beside the store: as it is, but for responses that it keeps until they are written.

use super::{NAME, WithLedger, journal};
use crate::error::Chain;
use crate::error::Retry;
use crate::model::{BreadcrumbId, Json, Timestamp};
use crate::store::{
    BreadcrumbStore, Claim, ClaimId, Claimed, Enqueued, ExecutorLimits, KeyPosition, Lease, Lost,
    NewRun, Run, RunEnd, RunFilter, RunLedger, RunRef, RunState, Saved, SavedResponse, StoreError,
    Worker, WorkerRecord, WrittenBy,
};
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;

/// The maximum time that an attempt waits for an unavailable store, from its first claim.
const MAX_AGE: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// The longest pause of such a run, whatever the store asks for.
const MAX_PAUSE: Duration = Duration::from_secs(5 * 60);

impl<S: BreadcrumbStore, L: BreadcrumbStore> WithLedger<S, L> {
    fn ledger_inside(&self) -> Result<&dyn RunLedger, StoreError> {
        self.ledger_store.ledger().ok_or(StoreError::Unsupported {
            store: NAME,
            operation: "runs without a ledger",
        })
    }

    /// Writes the response that an earlier attempt saved, and ends its run. Returns `None` if the run has to be executed
    /// again: the store refuses the response for good, or the run is too old to wait for the store.
    async fn finish(
        &self,
        runs: &dyn RunLedger,
        lease: &Lease,
        response: journal::Response,
    ) -> Result<Option<Claim>, StoreError> {
        let end = response.end();
        let state = match &end {
            RunEnd::Failed(_) => RunState::Failed,
            RunEnd::Done
            | RunEnd::Suspended { .. }
            | RunEnd::Skipped(_)
            | RunEnd::Superseded
            | RunEnd::Continues => RunState::Done,
        };
        let written = self.write_and_end(runs, lease, response.writes, end).await;
        let error = match written {
            Ok(committed) => {
                return Ok(Some(Claim::Done {
                    state,
                    written: committed.ids(),
                }));
            }
            Err(error @ StoreError::LeaseLost { .. }) => return Err(error),
            Err(error) => error,
        };
        let age = lease.granted_at.since(lease.attempt_since);
        match error.retry() {
            Retry::After(_) if age < MAX_AGE => Err(self.defer(runs, lease, error, false).await),
            Retry::After(_) | Retry::Never => {
                tracing::warn!(run = %lease.run, code = error.code(), error = %Chain(&error), "a response that was kept is not written");
                Ok(None)
            }
        }
    }

    /// Finishes a claimed run if an earlier attempt saved its response.
    async fn finish_earlier(
        &self,
        runs: &dyn RunLedger,
        mut claimed: Claimed,
    ) -> Result<Claim, StoreError> {
        // The breadcrumbs are not in the ledger.
        claimed.trigger = None;
        let Some(saved) = claimed.state.take_if(|saved| journal::is_one(&saved.state)) else {
            return Ok(Claim::Granted(claimed));
        };
        if let Some(response) = journal::response(&claimed.lease, &saved.state)
            && let Some(done) = self.finish(runs, &claimed.lease, response).await?
        {
            return Ok(done);
        }
        // The run was executed, so a run that may be executed at most once must not start again.
        claimed.lease.abandoned = claimed.lease.abandoned.max(1);
        let with = saved.with;
        claimed.state = with.map(|with| Saved::new(Json::default(), Some(with)));
        Ok(Claim::Granted(claimed))
    }

    /// Releases the lease of a run whose response is saved, so that no holder of this lease can write anything else.
    /// `counts` is true after the attempt that executed the run. An error that a retry cannot fix is returned as it is,
    /// and the lease stays.
    pub(super) async fn defer(
        &self,
        runs: &dyn RunLedger,
        lease: &Lease,
        error: StoreError,
        counts: bool,
    ) -> StoreError {
        let Retry::After(pause) = error.retry() else {
            return error;
        };
        let age = lease.granted_at.since(lease.attempt_since);
        let delay = pause.max(age / 16).min(MAX_PAUSE);
        let (run, at) = (lease.run.clone(), lease.granted_at + delay);
        let cause = Chain(&error).to_string();
        match runs.retry(lease.clone(), at, counts, Some(&cause)).await {
            Ok(()) => {}
            Err(lost @ StoreError::LeaseLost { .. }) => return lost,
            Err(failed) => {
                tracing::warn!(%run, code = failed.code(), error = %Chain(&failed), "cannot release the lease of a run with a saved response, will retry when the lease expires");
            }
        }
        tracing::warn!(%run, ?delay, code = error.code(), error = %Chain(&error), "the response is saved but not written, will retry");
        StoreError::ResponseSaved(Box::new(SavedResponse {
            run,
            at,
            delay,
            source: error,
        }))
    }
}

#[async_trait]
impl<S: BreadcrumbStore, L: BreadcrumbStore> RunLedger for WithLedger<S, L> {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        self.ledger_inside()?.enqueue(runs).await
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        let runs = self.ledger_inside()?;
        match runs.claim(run, instead_of).await? {
            Claim::Granted(claimed) => self.finish_earlier(runs, claimed).await,
            other @ (Claim::Own
            | Claim::Done { .. }
            | Claim::Running { .. }
            | Claim::Suspended { .. }
            | Claim::Superseded) => Ok(other),
        }
    }

    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.ledger_inside()?.claim_next(n, of, id).await
    }

    async fn enqueue_and_claim(
        &self,
        runs: Vec<NewRun>,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Enqueued, StoreError> {
        let ledger = self.ledger_inside()?;
        ledger.enqueue_and_claim(runs, n, of, id).await
    }

    async fn begin(&self, claimed: Claimed) -> Result<Claim, StoreError> {
        self.finish_earlier(self.ledger_inside()?, claimed).await
    }

    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
        self.ledger_inside()?.heartbeat(leases).await
    }

    async fn retry(
        &self,
        lease: Lease,
        at: Timestamp,
        counts: bool,
        cause: Option<&str>,
    ) -> Result<(), StoreError> {
        let runs = self.ledger_inside()?;
        runs.retry(lease, at, counts, cause).await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.ledger_inside()?.release(lease).await
    }

    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError> {
        let runs = self.ledger_inside()?;
        runs.transfer(lease, version, until, position).await
    }

    async fn accept_transfers(
        &self,
        versions: &[(Arc<str>, Arc<str>)],
    ) -> Result<usize, StoreError> {
        self.ledger_inside()?.accept_transfers(versions).await
    }

    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError> {
        self.ledger_inside()?.record_worker(worker).await
    }

    async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.ledger_inside()?.workers().await
    }

    async fn save_positions(&self, positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError> {
        self.ledger_inside()?.save_positions(positions).await
    }

    async fn positions(&self, executors: &[Arc<str>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.ledger_inside()?.positions(executors).await
    }

    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError> {
        check(&state)?;
        self.ledger_inside()?.save(lease, state).await
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        self.ledger_inside()?.resume(run, with).await
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        self.ledger_inside()?.redo(run).await
    }

    async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
        self.ledger_inside()?.skip(run).await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        self.ledger_inside()?.runs(filter).await
    }

    /// The ledger does not see the breadcrumbs, so it has no record of their writers.
    async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, StoreError> {
        Ok(vec![WrittenBy::Unknown; versions.len()])
    }
}

/// Refuses a state that would be taken for a response: what is written from there is not checked again.
pub(super) fn check(state: &Json) -> Result<(), StoreError> {
    match journal::is_one(state) {
        true => Err(StoreError::Forbidden {
            reason: format!(
                "a run may not save a state with the field {:?}; put the state into another field",
                journal::FIELD
            ),
        }),
        false => Ok(()),
    }
}

//! Write path of [`WithLedger`](super::WithLedger): saves a run's response in the ledger, writes it to the breadcrumb store, then
//! ends the run.

use super::journal;
use crate::error::{Chain, Retry};
use crate::model::{Json, Timestamp};
use crate::store::{
    BreadcrumbStore, Claim, Claimed, Commit, Committed, Lease, Query, RunEnd, RunLedger, RunRef,
    RunState, Saved, SavedResponse, StoreError, Wake, Write,
};
use std::time::Duration;

/// Maximum time for retries of the write of a saved response, measured from the first claim of the run's attempt. After this time, the
/// run is executed again.
const MAX_AGE: Duration = Duration::from_secs(3 * 24 * 60 * 60);

/// Maximum delay between two attempts to write a saved response, even if the store requests a longer delay.
const MAX_PAUSE: Duration = Duration::from_secs(5 * 60);

/// The store with the breadcrumbs and the store with the ledger, for one call of [`WithLedger`](super::WithLedger).
#[derive(Clone, Copy)]
pub(in crate::store) struct StorePair<'s> {
    pub(in crate::store) store: &'s dyn BreadcrumbStore,
    /// The store that contains the run ledger `ledger`. A commit to this store ends the run.
    pub(in crate::store) ledger_store: &'s dyn BreadcrumbStore,
    pub(in crate::store) ledger: &'s dyn RunLedger,
    /// If `true`, the dead letters that a commit wrote to `ledger_store` are deleted there, because the breadcrumb store `store`
    /// already has them.
    pub(in crate::store) deletes_dead_letters: bool,
}

impl StorePair<'_> {
    /// Writes the breadcrumbs of a commit to the breadcrumb store, and the end of the run to the ledger.
    ///
    /// # Errors
    /// The errors of both stores. [`StoreError::ResponseSaved`] if the ledger has saved the response and the store has not
    /// written it.
    pub(in crate::store) async fn commit(self, commit: Commit) -> Result<Committed, StoreError> {
        let Commit { mut writes, end } = commit;
        let Some((lease, end)) = end else {
            return self.store.commit(writes.into()).await;
        };
        if let RunEnd::Suspended { wake, state } = &end {
            wake.check()?;
            journal::check(state)?;
        }
        if let RunEnd::Continues = end {
            return self.write(&lease, writes, &end).await;
        }
        if let RunEnd::Failed(letter) = &end
            && !self.store.capabilities().run_keys
        {
            let letter = letter.breadcrumb(&lease, self.store.tenant());
            writes.push(Write::Create(letter));
        }
        let is_saved = self.save_response(&lease, &writes, &end).await?;
        match self.write_and_end(&lease, writes, end).await {
            // The attempt that executed the run counts. Later attempts only write the response.
            Err(error) if is_saved => Err(Box::pin(self.defer(&lease, error, true)).await),
            committed => committed,
        }
    }

    /// Claims a run in the ledger, and finishes the run if an earlier attempt saved its response.
    ///
    /// # Errors
    /// The errors of [`RunLedger::claim`] and of a commit.
    pub(in crate::store) async fn claim(
        self,
        run: &RunRef,
        instead_of: Option<Lease>,
    ) -> Result<Claim, StoreError> {
        match self.ledger.claim(run, instead_of).await? {
            Claim::Granted(claimed) => self.finish_saved_response(claimed).await,
            other @ (Claim::Own
            | Claim::Done { .. }
            | Claim::Running { .. }
            | Claim::Suspended { .. }
            | Claim::Superseded
            | Claim::Paused { .. }) => Ok(other),
        }
    }

    /// Saves the response or the failure of a run in the ledger until the store has written it. Returns `false` if it cannot be
    /// saved, for example because it is too large. The response is then written without being saved.
    async fn save_response(
        self,
        lease: &Lease,
        writes: &[Write],
        end: &RunEnd,
    ) -> Result<bool, StoreError> {
        let Some(response) = journal::encode(lease, writes, end) else {
            return Ok(false);
        };
        match self.ledger.save(lease, response).await {
            Ok(()) => Ok(true),
            Err(StoreError::Rejected { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes the breadcrumbs of a run to the breadcrumb store, or fails if this worker no longer holds the run's lease. A
    /// store with [`Capabilities::run_keys`](crate::store::Capabilities::run_keys) receives the run and its end.
    async fn write(
        self,
        lease: &Lease,
        writes: Vec<Write>,
        end: &RunEnd,
    ) -> Result<Committed, StoreError> {
        let run_keys = self.store.capabilities().run_keys;
        let end = run_keys.then(|| (lease.clone(), end_for_store(end)));
        match self
            .ledger
            .heartbeat(std::slice::from_ref(lease))
            .await?
            .pop()
        {
            Some(lost) => Err(StoreError::LeaseLost { run: lost.run }),
            None => self.store.commit(Commit { writes, end }).await,
        }
    }

    /// Writes the response of a run to the breadcrumb store, then ends the run in the ledger.
    async fn write_and_end(
        self,
        lease: &Lease,
        writes: Vec<Write>,
        mut end: RunEnd,
    ) -> Result<Committed, StoreError> {
        // A store that receives the failure writes the dead letter itself.
        let has_letter = matches!(end, RunEnd::Failed(_)) && self.store.capabilities().run_keys;
        let committed = if writes.is_empty() && !has_letter {
            // The end is the only step, and the ledger checks the lease itself.
            Committed::default()
        } else {
            self.write(lease, writes, &end).await?
        };
        let mut pending_wait = None;
        if let RunEnd::Suspended { wake, .. } = &mut end
            && let Some(at) = committed.written.iter().map(|one| one.updated_at).max()
        {
            // An answer may be older than the suspension. The row has the time of the writes, because the search below may fail.
            wake.since = Some(wake.since.map_or(at, |since| since.min(at)));
            pending_wait = Some((wake.clone(), at));
        }
        self.end(lease.clone(), end).await?;
        if let Some((wake, at)) = pending_wait
            && let Err(error) = self.catch_up(&lease.run, &wake, at).await
        {
            tracing::warn!(run = %lease.run, code = error.code(), error = %Chain(&error), "cannot check whether the store already has \
                the answer to a run that was just suspended; the runtime will retry");
        }
        Ok(committed)
    }

    async fn end(self, lease: Lease, end: RunEnd) -> Result<(), StoreError> {
        let commit = Commit {
            writes: Vec::new(),
            end: Some((lease, end)),
        };
        let letters = self.ledger_store.commit(commit).await?.ids();
        if self.deletes_dead_letters && !letters.is_empty() {
            let delete = |id| Write::Delete { id, by: None };
            let writes: Vec<Write> = letters.into_iter().map(delete).collect();
            self.ledger_store.commit(writes.into()).await?;
        }
        Ok(())
    }

    /// Wakes a run that was just suspended, if the breadcrumb that it waits for was committed after the run's own writes. The
    /// breadcrumb can precede the suspension, because the writes and the suspension are two steps.
    async fn catch_up(
        self,
        run: &RunRef,
        wake: &Wake,
        written_at: Timestamp,
    ) -> Result<(), StoreError> {
        for selector in &wake.selectors {
            let newest = Query::new(selector.clone()).limit(1);
            let found = self.store.search(&newest).await?.pop();
            if let Some(answer) = found.filter(|found| found.updated_at > written_at) {
                return match self.ledger.resume(run, answer.id).await {
                    // Another worker woke the run first.
                    Ok(()) | Err(StoreError::WrongState { .. }) => Ok(()),
                    Err(error) => Err(error),
                };
            }
        }
        Ok(())
    }

    /// Writes the saved response of an earlier attempt to the breadcrumb store, and ends its run. Returns `None` if the run
    /// must be executed again: the store rejects the response permanently, or the run has waited for the store for too long.
    async fn finish(
        self,
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
        let written = self.write_and_end(lease, response.writes, end).await;
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
            Retry::After(_) if age < MAX_AGE => Err(self.defer(lease, error, false).await),
            Retry::After(_) | Retry::Never => {
                tracing::warn!(run = %lease.run, code = error.code(), error = %Chain(&error), "the store rejected the saved response of a run; the run will be executed again");
                Ok(None)
            }
        }
    }

    /// Finishes a claimed run if an earlier attempt saved its response.
    ///
    /// # Errors
    /// The errors of a commit.
    pub(in crate::store) async fn finish_saved_response(
        self,
        mut claimed: Claimed,
    ) -> Result<Claim, StoreError> {
        // The breadcrumbs are not in the ledger.
        claimed.trigger = None;
        let Some(saved) = claimed
            .state
            .take_if(|saved| journal::is_response(&saved.state))
        else {
            return Ok(Claim::Granted(claimed));
        };
        if let Some(response) = journal::decode(&claimed.lease, &saved.state)
            && let Some(done) = self.finish(&claimed.lease, response).await?
        {
            return Ok(done);
        }
        // The run was executed, so a run that may be executed at most once must not start again.
        claimed.lease.may_have_executed = true;
        let with = saved.with;
        claimed.state = with.map(|with| Saved::new(Json::default(), Some(with)));
        Ok(Claim::Granted(claimed))
    }

    /// Releases the lease of a run whose saved response could not be written to the store, so that a later attempt writes the
    /// response. No worker can then write anything else under this lease. `counts` is `true` after the attempt that executed the
    /// run. An error that a retry cannot fix is returned unchanged, and the lease stays.
    async fn defer(self, lease: &Lease, error: StoreError, counts: bool) -> StoreError {
        let Retry::After(pause) = error.retry() else {
            return error;
        };
        let age = lease.granted_at.since(lease.attempt_since);
        let delay = pause.max(age / 16).min(MAX_PAUSE);
        let (run, at) = (lease.run.clone(), lease.granted_at + delay);
        let cause = Chain(&error).to_string();
        let deferred = self.ledger.retry(lease.clone(), at, counts, Some(&cause));
        match deferred.await {
            Ok(()) => {}
            Err(lost @ StoreError::LeaseLost { .. }) => return lost,
            Err(failed) => {
                tracing::warn!(%run, code = failed.code(), error = %Chain(&failed), "cannot release the lease of a run with a saved response; the run will be retried when its lease expires");
            }
        }
        tracing::warn!(%run, ?delay, code = error.code(), error = %Chain(&error), "cannot write the response of a run to the store; it is saved in the ledger, and a later attempt will write it");
        StoreError::ResponseSaved(Box::new(SavedResponse {
            run,
            at,
            delay,
            source: error,
        }))
    }
}

/// Returns the end of a run for the commit to the breadcrumb store, from the end of the run in the ledger. A suspended run has
/// not ended for the breadcrumb store, because the run may repeat its writes.
fn end_for_store(end: &RunEnd) -> RunEnd {
    match end {
        RunEnd::Continues | RunEnd::Suspended { .. } => RunEnd::Continues,
        RunEnd::Failed(letter) => RunEnd::Failed(letter.clone()),
        RunEnd::Done | RunEnd::Skipped(_) | RunEnd::Superseded => RunEnd::Done,
    }
}

//! Early end of an attempt at a flow run, before the flow ends: after a store error, or to yield to the next attempt.

use super::Driven;
use super::attempt::Drive;
use super::outcome::code_of;
use super::yielding::{EndReason, GRACE_PERIOD};
use crate::classes::verdict;
use crate::error::{BoxError, Verdict};
use crate::model::Timestamp;
use crate::store::Wake;
use tokio::time::Instant;

impl Drive<'_> {
    /// Returns `true` if this attempt at the flow run is about to end, so that no further step starts. The check can decide that
    /// the attempt yields to the next one.
    pub(super) fn is_ending(&mut self, now: Timestamp) -> bool {
        if self.early_end.reason.is_none() {
            let has_running_steps = !self.running.is_empty();
            self.early_end.reason = self.early_end.reason_to_yield(now, has_running_steps);
            if self.early_end.reason.is_some() {
                tracing::debug!(
                    "an attempt at a flow run ends early, so that the next attempt has its full time; no further step starts"
                );
            }
        }
        self.early_end.reason.is_some()
    }

    /// Handles an error of the store or of the flow run that occurs while a step runs. After a transient error, the attempt ends
    /// once the other running steps have ended, so that their outcomes are saved. The other steps have at most [`GRACE_PERIOD`]
    /// to end.
    ///
    /// # Errors
    /// The error itself if it is permanent.
    pub(super) fn handle_step_error(&mut self, error: BoxError) -> Result<(), BoxError> {
        match (verdict(error.as_ref()), &self.early_end.reason) {
            (Verdict::Permanent, _) => Err(error),
            (Verdict::Transient(_) | Verdict::RateLimited(_), Some(EndReason::Fails { .. })) => {
                Ok(())
            }
            (
                Verdict::Transient(_) | Verdict::RateLimited(_),
                Some(EndReason::Yields { .. }) | None,
            ) => {
                tracing::debug!(
                    code = code_of(&error),
                    "a step of a flow run failed with a transient error; the run will be retried"
                );
                let until = Instant::now() + GRACE_PERIOD;
                self.early_end.reason = Some(EndReason::Fails { error, until });
                Ok(())
            }
        }
    }

    /// Returns `true` if the attempt failed and the grace period of its running steps is over. The driver then stops these steps.
    pub(super) fn is_grace_period_over(&self) -> bool {
        match &self.early_end.reason {
            Some(EndReason::Fails { until, .. }) => Instant::now() >= *until,
            Some(EndReason::Yields { .. }) | None => false,
        }
    }

    /// Saves the state of the flow run, and ends the attempt if the store fails. The steps that were about to start then go back
    /// to the queue.
    pub(super) async fn save_or_end(&mut self) -> Result<(), BoxError> {
        let Err(error) = self.save().await else {
            return Ok(());
        };
        for (path, before) in std::mem::take(&mut self.unsaved) {
            if !self.ready.contains_key(&path) {
                continue;
            }
            if let Some(abort) = self.aborts.remove(&path) {
                abort.abort();
            }
            self.checkpoints.insert(path.clone(), before);
            self.queue.push_back(path);
        }
        self.handle_step_error(error)
    }

    /// Ends the attempt at the flow run early, before the flow ends, for `reason`. Returns `None` if the state was too large or
    /// too deep to save, so that a step failed and the run continues.
    pub(super) async fn end(&mut self, reason: EndReason) -> Result<Option<Driven>, BoxError> {
        match reason {
            EndReason::Yields { .. } => {
                // A step that failed because the state is too large can end the run.
                let (state, false) = self.state().await? else {
                    return Ok(None);
                };
                self.store_events().await?;
                let wake = Wake::at(self.context.now());
                Ok(Some(Driven::Suspended { wake, state }))
            }
            EndReason::Fails { error, .. } => Err(error),
        }
    }
}

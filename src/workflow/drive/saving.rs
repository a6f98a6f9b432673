//! Saves the state of a flow run, and stores its events.

use super::attempt::Drive;
use super::yielding::GRACE_PERIOD;
use super::{Driven, PROGRESS};
use crate::classes::verdict;
use crate::error::{BoxError, Chain, Verdict, permanent};
use crate::executor::ContextError;
use crate::model::{Json, NewBreadcrumb};
use crate::store::BreadcrumbStoreExt as _;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Maximum number of events of a flow run in one progress breadcrumb.
const EVENTS_PER_BREADCRUMB: usize = 100;

/// Delay before the first retry of a failed save of a flow run at the end of an attempt. Each further delay is twice as long.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(250);

impl Drive<'_> {
    /// Saves the state of the flow run, and notifies all running steps that wait for this save.
    pub(super) async fn save_for(&mut self, first: oneshot::Sender<()>) -> Result<(), BoxError> {
        self.save_waiters.push(first);
        while let Ok(more) = self.saves.try_recv() {
            self.save_waiters.push(more);
        }
        self.is_saved = false;
        self.save_or_end().await
    }

    /// Saves the state of the flow run, unless the current state is saved.
    pub(super) async fn save(&mut self) -> Result<(), BoxError> {
        if self.is_saved {
            return Ok(());
        }
        let (state, _) = self.state().await?;
        self.store_events().await?;
        match self.context.save(state).await {
            Ok(()) => {
                self.early_end.is_durable = true;
                self.assembly.save_definition().await;
            }
            // On a store without a ledger nothing is saved, and a retry starts from the beginning.
            Err(ContextError::Unsupported { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.is_saved = true;
        self.has_unsaved_outcome = false;
        self.unsaved.clear();
        for waiter in self.save_waiters.drain(..) {
            let still_waits = waiter.send(()).is_ok();
            tracing::trace!(still_waits, "saved a run at the request of a step");
        }
        Ok(())
    }

    /// Saves the outcomes of the steps in an attempt at a flow run that has failed. Retries with exponential backoff for at most
    /// [`GRACE_PERIOD`], within the time of the attempt.
    pub(super) async fn save_after_failure(&mut self) {
        let (started, mut delay) = (Instant::now(), FIRST_RETRY_DELAY);
        while let Err(error) = self.save().await {
            let requested = match verdict(error.as_ref()) {
                Verdict::Transient(after) | Verdict::RateLimited(after) => Some(after),
                Verdict::Permanent => None,
            };
            let next = requested.map(|after| delay.max(after));
            let has_time = |next: &Duration| {
                let now = self.context.now();
                let ends = self.context.deadline();
                started.elapsed() + *next < GRACE_PERIOD
                    && ends.is_none_or(|ends| *next < ends.since(now))
            };
            let Some(next) = next.filter(has_time) else {
                tracing::warn!(error = %Chain(&*error), "cannot save the progress of a failed attempt at a flow run; the retry of the run repeats its last steps");
                return;
            };
            tokio::time::sleep(next).await;
            delay = delay.saturating_mul(2);
        }
    }

    /// Writes the flow run's events that are not stored yet as progress breadcrumbs. Without `store_progress`, no event waits to
    /// be stored.
    pub(super) async fn store_events(&mut self) -> Result<(), BoxError> {
        while let Some(events) = self.unstored_events.chunks(EVENTS_PER_BREADCRUMB).next() {
            let stored = events.len();
            let run = self.context.trigger().id;
            let progress = NewBreadcrumb::new(PROGRESS)
                .title("Workflow Progress")
                .tag(format!("run:{run}"))
                .context(json!({"run": run, "events": events}));
            let store = Arc::clone(&self.assembly.store);
            self.context.bound_store(store).create(progress).await?;
            self.unstored_events.drain(..stored);
        }
        Ok(())
    }

    /// Returns the outcome of an attempt that suspends the flow run: the saved state, and the condition that wakes the run.
    pub(super) fn suspend(&self, state: Json) -> Result<Driven, BoxError> {
        let wake = self.wake();
        // A paused run waits for a control order without a time limit.
        if wake.selectors.len() == 1 && wake.until.is_none() && !self.run.progress().is_paused() {
            return Err(permanent(
                "the flow has not ended, but has no step to run and nothing to wait for",
            ));
        }
        Ok(Driven::Suspended { wake, state })
    }
}

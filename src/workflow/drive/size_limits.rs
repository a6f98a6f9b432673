//! Size limit of the saved state of a flow run. If the state is too large or nests too deep, a step fails, and not the run.

use super::attempt::Drive;
use super::checkpoint::{FlowStateError, RunCheckpoint, StepCheckpoint};
use crate::error::{BoxError, permanent};
use crate::model::{Json, JsonError};
use crate::workflow::{StepOutcome, StepPath};

/// Result of the check of a flow run's state against the limits of a saved state.
enum SizeCheck {
    Fits(Json),
    /// The state of the run is too large: it has at least this number of bytes.
    TooLarge(usize),
    /// This step's part of the flow run's state has more levels of nested lists and objects than a saved state may have.
    TooDeep(StepPath),
}

impl Drive<'_> {
    /// Returns the flow run's state in the form to save. If the state is too large, fails steps on purpose, and also returns
    /// `true`.
    ///
    /// If the state is too large, the steps in flight with the largest parts fail. If the part of a step nests too deep, this step fails.
    /// The flow handles these failures, and a paused run continues until its state fits.
    ///
    /// # Errors
    /// Returns [`FlowStateError::TooLarge`] if the state is too large although no step is in flight.
    pub(super) async fn state(&mut self) -> Result<(Json, bool), BoxError> {
        let (mut has_failed, mut was_paused) = (false, false);
        loop {
            match self.check_size()? {
                SizeCheck::Fits(state) if !was_paused || self.finished.is_some() => {
                    return Ok((state, has_failed));
                }
                SizeCheck::Fits(_) => {
                    was_paused = false;
                    let next = self.run.pause();
                    self.apply(next);
                    continue;
                }
                SizeCheck::TooDeep(path) => {
                    self.give_up(&path, StepOutcome::failure("too_large", TOO_DEEP));
                }
                SizeCheck::TooLarge(size) => was_paused |= self.reduce_state(size)?,
            }
            has_failed = true;
            // Many steps may have to fail before the rest fits.
            tokio::task::yield_now().await;
        }
    }

    /// Checks the size and the nesting of the run's state, and returns the state as JSON if it can be saved. The state is
    /// serialised only if the sizes of its values allow it.
    fn check_size(&self) -> Result<SizeCheck, BoxError> {
        let size = self.min_size();
        if size > Json::MAX_BYTES {
            return Ok(SizeCheck::TooLarge(size));
        }
        let text = self.state_text()?;
        let size = text.len();
        if size > Json::MAX_BYTES {
            return Ok(SizeCheck::TooLarge(size));
        }
        Ok(match Json::from_text(text) {
            Ok(state) => SizeCheck::Fits(state),
            Err(error) => SizeCheck::TooDeep(self.too_deep().ok_or(error)?),
        })
    }

    /// Fails the steps in flight with the largest parts of the run's state, so that the state becomes small enough to save. If no step is
    /// in flight, lets other steps begin. Returns `true` if the run was paused and continues for that.
    ///
    /// # Errors
    /// Returns [`FlowStateError::TooLarge`] if no step is left that can fail or begin.
    fn reduce_state(&mut self, size: usize) -> Result<bool, BoxError> {
        let limit = Json::MAX_BYTES;
        let largest = self.largest(size.saturating_sub(limit));
        if !largest.is_empty() {
            for (part, path) in largest {
                tracing::debug!(
                    path = path.as_str(),
                    size,
                    part,
                    "a step of a flow run failed because the run's state is too large to be saved and the step has the largest part"
                );
                self.give_up(&path, too_large(size, limit, part));
            }
            return Ok(false);
        }
        if self.run.has_more_steps() {
            let next = self.run.start_more_steps();
            self.apply(next);
            return Ok(false);
        }
        // A run that has ended does not continue, paused or not.
        if self.is_paused() {
            tracing::warn!(
                "a paused flow run continues because its state is too large to be saved; store less in its variables"
            );
            let next = self.run.unpause();
            self.apply(next);
            return Ok(true);
        }
        Err(permanent(FlowStateError::TooLarge { size, limit }))
    }

    fn is_paused(&self) -> bool {
        let progress = self.run.progress();
        progress.is_paused() && progress.finished().is_none()
    }

    fn state_text(&self) -> serde_json::Result<String> {
        serde_json::to_string(&RunCheckpoint {
            progress: self.run.progress(),
            steps: &self.checkpoints,
            looked: &self.poll_progress,
            lines: &self.ended_breadcrumbs,
        })
    }

    /// Fails a step whose part of the run's state is too large or too deeply nested to be saved.
    fn give_up(&mut self, path: &StepPath, outcome: StepOutcome) {
        if let Some(abort) = self.aborts.remove(path) {
            abort.abort();
        }
        self.queue.retain(|queued| queued != path);
        self.report_outcome(path, outcome);
    }

    /// Returns a step in flight whose part of the run's state is nested too deeply to be saved. This part is two levels below the top of
    /// the state.
    fn too_deep(&self) -> Option<StepPath> {
        let is_too_deep = |path: &&StepPath| {
            let checkpoint = self.checkpoints.get(*path).map(serde_json::to_string);
            let Some(Ok(checkpoint)) = checkpoint else {
                return false;
            };
            matches!(
                Json::from_text(format!("[[{checkpoint}]]")),
                Err(JsonError::TooDeep)
            )
        };
        self.ready.keys().find(is_too_deep).cloned()
    }

    /// Returns a lower bound of the size of the run's state in bytes, from the sizes of its values.
    fn min_size(&self) -> usize {
        let steps = self.checkpoints.iter();
        let sizes = steps
            .map(|(path, checkpoint)| path.as_str().len().saturating_add(checkpoint.min_size()));
        sizes.fold(self.run.progress().min_size(), usize::saturating_add)
    }

    /// Returns the steps in flight with the largest parts of the run's state, and the sizes of these parts. Together, the parts have at
    /// least half of the `excess` bytes above the size limit. A failed step can free less than its part or let others begin, so the caller
    /// measures the state again.
    fn largest(&self, excess: usize) -> Vec<(usize, StepPath)> {
        let parts = self.ready.keys().map(|path| {
            let size = self
                .checkpoints
                .get(path)
                .map_or(0, StepCheckpoint::min_size);
            (size + self.run.progress().part_of(path), path)
        });
        let mut parts: Vec<_> = parts.collect();
        parts.sort_unstable_by(|one, other| other.cmp(one));
        let mut taken = 0;
        let largest = parts.into_iter().take_while(|(part, _)| {
            let is_needed = taken == 0 || taken < excess / 2;
            taken = taken.saturating_add((*part).max(1));
            is_needed
        });
        largest.map(|(part, path)| (part, path.clone())).collect()
    }
}

const TOO_DEEP: &str = "the saved data of the step nests too deep; return values with fewer levels from its agents and tools";

fn too_large(size: usize, limit: usize, part: usize) -> StepOutcome {
    let message = format!(
        "the saved state of the run has at least {size} bytes where at most {limit} are allowed, and this step has the largest part \
         with {part} bytes; store less in variables, run fewer agents at a time, or shorten their conversations with \
         policies.compaction"
    );
    StepOutcome::failure("too_large", message)
}

//! What is kept of a run has a size that no store goes over. A step that leaves no room for it fails, and not the run.

use super::attempt::Drive;
use super::kept::{FlowStateError, Kept, Saving};
use crate::error::{BoxError, permanent};
use crate::model::{Json, JsonError};
use crate::workflow::{Outcome, StepPath};

impl Drive<'_> {
    /// What is kept of the run, and whether a step has failed for it: if it is too large, that under way whose part of it is
    /// the largest does, if it nests too deep, one whose part does, and what the flow makes of that is kept. For that a run that
    /// is paused goes on until there is room.
    ///
    /// # Errors
    /// [`FlowStateError::TooLarge`] if it is although no step is under way.
    pub(super) fn state(&mut self) -> Result<(Json, bool), BoxError> {
        let (mut has_failed, mut was_paused) = (false, false);
        loop {
            let text = self.state_text()?;
            let (size, limit) = (text.len(), Json::MAX_BYTES);
            if size <= limit {
                let state = match Json::from_text(text) {
                    Ok(state) => state,
                    Err(error) => {
                        let path = self.too_deep().ok_or(error)?;
                        self.give_up(&path, Outcome::failure("too_large", TOO_DEEP));
                        has_failed = true;
                        continue;
                    }
                };
                if !was_paused || self.finished.is_some() {
                    return Ok((state, has_failed));
                }
                was_paused = false;
                let next = self.run.pause();
                self.apply(next);
                continue;
            }
            match self.largest() {
                Some((part, path)) => {
                    tracing::debug!(
                        path = path.as_str(),
                        size,
                        part,
                        "a step leaves no room for what is kept of its run"
                    );
                    self.give_up(&path, too_large(size, limit, part));
                }
                None if self.run.goes_on() => {
                    let next = self.run.go_on();
                    self.apply(next);
                }
                // One that has ended goes on no more, paused or not.
                None if self.is_paused() => {
                    tracing::warn!(
                        "a run has no room while it is paused, and goes on until it has"
                    );
                    was_paused = true;
                    let next = self.run.unpause();
                    self.apply(next);
                }
                None => return Err(permanent(FlowStateError::TooLarge { size, limit })),
            }
            has_failed = true;
        }
    }

    fn is_paused(&self) -> bool {
        let progress = self.run.progress();
        progress.is_paused() && progress.finished().is_none()
    }

    fn state_text(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Saving {
            progress: self.run.progress(),
            steps: &self.kept,
            looked: &self.looked,
            lines: &self.lines,
        })
    }

    /// Ends a step for which there is no room.
    fn give_up(&mut self, path: &StepPath, outcome: Outcome) {
        if let Some(abort) = self.aborts.remove(path) {
            abort.abort();
        }
        self.queue.retain(|queued| queued != path);
        self.tell(path, outcome);
    }

    /// A step under way whose part nests too deep where it is kept, two levels below the top.
    fn too_deep(&self) -> Option<StepPath> {
        let is_too_deep = |path: &&StepPath| {
            let kept = self.kept.get(*path).map(serde_json::to_string);
            let Some(Ok(kept)) = kept else { return false };
            matches!(
                Json::from_text(format!("[[{kept}]]")),
                Err(JsonError::TooDeep)
            )
        };
        self.ready.keys().find(is_too_deep).cloned()
    }

    /// The step under way that takes the most, and how much.
    fn largest(&self) -> Option<(usize, StepPath)> {
        let parts = self.ready.keys().map(|path| {
            let kept = self.kept.get(path).map_or(0, size_of);
            (kept + self.run.progress().part_of(path), path)
        });
        let largest = parts.max();
        largest.map(|(part, path)| (part, path.clone()))
    }
}

const TOO_DEEP: &str = "what is kept of the step nests deeper than can be kept; have its agents and tools say things that nest less";

fn size_of(kept: &Kept) -> usize {
    serde_json::to_string(kept).map_or(0, |text| text.len())
}

fn too_large(size: usize, limit: usize, part: usize) -> Outcome {
    let message = format!(
        "the state of the run takes {size} bytes where {limit} can be kept, {part} of them for this step, more than for any \
         other; keep less in variables, have fewer agents at work at a time, or have their conversations made shorter \
         with policies.compaction"
    );
    Outcome::failure("too_large", message)
}

//! What is kept of a run has a size that no store goes over. A step that leaves no room for it fails, and not the run.

use super::attempt::Drive;
use super::kept::{FlowStateError, Kept, Saving};
use crate::error::{BoxError, permanent};
use crate::model::{Json, JsonError};
use crate::workflow::{StepOutcome, StepPath};

/// The size of the state of a run, compared with the size that a store accepts.
enum Room {
    Fits(Json),
    /// The state has at least so many bytes.
    TooLarge(usize),
    /// The part of this step nests too deep.
    TooDeep(StepPath),
}

impl Drive<'_> {
    /// What is kept of the run, and whether a step has failed for it: if it is too large, that under way whose part of it is
    /// the largest does, if it nests too deep, one whose part does, and what the flow makes of that is kept. For that a run that
    /// is paused goes on until there is room.
    ///
    /// # Errors
    /// [`FlowStateError::TooLarge`] if it is although no step is under way.
    pub(super) async fn state(&mut self) -> Result<(Json, bool), BoxError> {
        let (mut has_failed, mut was_paused) = (false, false);
        loop {
            match self.room()? {
                Room::Fits(state) if !was_paused || self.finished.is_some() => {
                    return Ok((state, has_failed));
                }
                Room::Fits(_) => {
                    was_paused = false;
                    let next = self.run.pause();
                    self.apply(next);
                    continue;
                }
                Room::TooDeep(path) => {
                    self.give_up(&path, StepOutcome::failure("too_large", TOO_DEEP));
                }
                Room::TooLarge(size) => was_paused |= self.make_room(size)?,
            }
            has_failed = true;
            // Many steps may have to fail before the rest has room.
            tokio::task::yield_now().await;
        }
    }

    /// Returns the state if it can be stored. The state is written only if its parts could have room.
    fn room(&self) -> Result<Room, BoxError> {
        let size = self.least_size();
        if size > Json::MAX_BYTES {
            return Ok(Room::TooLarge(size));
        }
        let text = self.state_text()?;
        let size = text.len();
        if size > Json::MAX_BYTES {
            return Ok(Room::TooLarge(size));
        }
        Ok(match Json::from_text(text) {
            Ok(state) => Room::Fits(state),
            Err(error) => Room::TooDeep(self.too_deep().ok_or(error)?),
        })
    }

    /// Fails the running steps with the largest parts, or lets others begin if no step runs. Returns `true` if the run
    /// was paused and continues for that.
    ///
    /// # Errors
    /// [`FlowStateError::TooLarge`] if nothing is left that could make room.
    fn make_room(&mut self, size: usize) -> Result<bool, BoxError> {
        let limit = Json::MAX_BYTES;
        let largest = self.largest(size.saturating_sub(limit));
        if !largest.is_empty() {
            for (part, path) in largest {
                tracing::debug!(
                    path = path.as_str(),
                    size,
                    part,
                    "a step failed because it left no room in the state of its run"
                );
                self.give_up(&path, too_large(size, limit, part));
            }
            return Ok(false);
        }
        if self.run.goes_on() {
            let next = self.run.go_on();
            self.apply(next);
            return Ok(false);
        }
        // A run that has ended does not continue, paused or not.
        if self.is_paused() {
            tracing::warn!("a paused run continues, because its state is too large to be stored");
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
        serde_json::to_string(&Saving {
            progress: self.run.progress(),
            steps: &self.kept,
            looked: &self.looked,
            lines: &self.lines,
        })
    }

    /// Ends a step for which there is no room.
    fn give_up(&mut self, path: &StepPath, outcome: StepOutcome) {
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

    /// Returns a size that the state has at least, from the sizes of its values.
    fn least_size(&self) -> usize {
        let kept = self.kept.iter();
        let kept = kept.map(|(path, kept)| path.as_str().len().saturating_add(kept.least_size()));
        kept.fold(self.run.progress().least_size(), usize::saturating_add)
    }

    /// Returns the running steps with the largest parts, each with its part, that together take half of the excess. Failing
    /// a step may free less than its part or let others begin, so the rest is measured again.
    fn largest(&self, excess: usize) -> Vec<(usize, StepPath)> {
        let parts = self.ready.keys().map(|path| {
            let kept = self.kept.get(path).map_or(0, Kept::least_size);
            (kept + self.run.progress().part_of(path), path)
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

const TOO_DEEP: &str = "what is kept of the step nests deeper than can be kept; have its agents and tools say things that nest less";

fn too_large(size: usize, limit: usize, part: usize) -> StepOutcome {
    let message = format!(
        "the state of the run takes at least {size} bytes where {limit} can be kept, {part} of them for this step, more than for any \
         other; keep less in variables, have fewer agents at work at a time, or have their conversations made shorter \
         with policies.compaction"
    );
    StepOutcome::failure("too_large", message)
}

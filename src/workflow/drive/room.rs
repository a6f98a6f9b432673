//! What is kept of a run has a size that no store goes over. A step that leaves no room for it fails, and not the run.

use super::attempt::Drive;
use super::kept::{FlowStateError, Kept, Saving};
use crate::error::{BoxError, permanent};
use crate::model::Json;
use crate::workflow::{Outcome, StepPath};

impl Drive<'_> {
    /// What is kept of the run, and whether a step has failed for it: if it is too large, that under way whose part of it is
    /// the largest does, and what the flow makes of that is kept.
    ///
    /// # Errors
    /// [`FlowStateError::TooLarge`] if it is although no step is under way.
    pub(super) fn state(&mut self) -> Result<(Json, bool), BoxError> {
        let mut has_failed = false;
        loop {
            let saving = Saving {
                progress: self.run.progress(),
                steps: &self.kept,
                looked: &self.looked,
                lines: &self.lines,
            };
            let text = serde_json::to_string(&saving)?;
            let (size, limit) = (text.len(), Json::MAX_BYTES);
            if size <= limit {
                return Ok((Json::from_text(text)?, has_failed));
            }
            let Some((part, path)) = self.largest() else {
                return Err(permanent(FlowStateError::TooLarge { size, limit }));
            };
            tracing::debug!(%path, size, part, "a step leaves no room for what is kept of its run");
            if let Some(abort) = self.aborts.remove(&path) {
                abort.abort();
            }
            self.queue.retain(|queued| *queued != path);
            self.tell(&path, too_large(size, limit, part));
            has_failed = true;
        }
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

//! Observation of a runtime by the testing kit.

use super::Runtime;
use tokio::sync::futures::Notified;

impl Runtime {
    /// Returns `true` if the runtime has handled every event up to a position of its source.
    pub(crate) fn has_handled(&self, position: Option<u64>) -> bool {
        self.progress.has_handled(position)
    }

    /// Waits until an event has been handled after this call.
    pub(crate) fn next_handled(&self) -> Notified<'_> {
        self.progress.next_handled()
    }
}

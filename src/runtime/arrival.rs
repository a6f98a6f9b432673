//! A delivery on its way to the ledger of a store.

use super::ack_tracker::AckTracker;
use std::sync::Arc;

/// A delivery, and the executors of this store that it may trigger.
pub(super) struct Arrival {
    pub(super) tracker: AckTracker,
    pub(super) executors: Vec<Candidate>,
}

/// An executor that a delivery may trigger.
pub(super) struct Candidate {
    pub(super) id: Arc<str>,
    /// If `false`, the match depends on the context, which the event does not contain.
    pub(super) surely: bool,
}

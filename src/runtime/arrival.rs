//! An event delivery whose triggered runs the runtime has not added to the store's ledger yet.

use super::ack_tracker::AckTracker;
use std::sync::Arc;

/// An event delivery, and the executors of one store that the event may trigger.
pub(super) struct Arrival {
    pub(super) tracker: AckTracker,
    pub(super) executors: Vec<ExecutorCandidate>,
}

/// An executor that an event delivery may trigger.
pub(super) struct ExecutorCandidate {
    pub(super) id: Arc<str>,
    /// If `false`, the trigger conditions of the executor are undecided, because the event lacks the breadcrumb's context.
    pub(super) is_certain: bool,
}

use super::Restart;
use crate::workload::scope::PATIENCE;
use std::time::Duration;

/// Settings of a supervisor: its limits, retry policy and timeouts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) at_once: usize,
    pub(super) queue: usize,
    pub(super) queued: usize,
    pub(super) buffer: usize,
    pub(super) subscribers: usize,
    pub(super) restart: Restart,
    pub(super) drain: Duration,
    /// Timeout for closing a workload. Also the timeout for saving a turn that is stopped while it is being saved.
    pub(super) patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            at_once: 64,
            queue: 16,
            queued: 10_000,
            buffer: 1_024,
            subscribers: 10_000,
            restart: Restart::default(),
            drain: Duration::from_secs(30),
            patience: PATIENCE,
        }
    }
}

use super::Restart;
use crate::workload::scope::CLOSE_TIMEOUT;
use std::time::Duration;

/// Settings of a supervisor: its limits, retry policy and timeouts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) concurrency: usize,
    pub(super) max_waiting_per_session: usize,
    pub(super) max_waiting: usize,
    pub(super) buffer: usize,
    pub(super) subscribers: usize,
    pub(super) restart: Restart,
    pub(super) drain_timeout: Duration,
    /// Timeout for closing a workload. Also the timeout for saving a turn that is stopped while it is being saved.
    pub(super) close_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 64,
            max_waiting_per_session: 16,
            max_waiting: 10_000,
            buffer: 1_024,
            subscribers: 10_000,
            restart: Restart::default(),
            drain_timeout: Duration::from_secs(30),
            close_timeout: CLOSE_TIMEOUT,
        }
    }
}

//! Records of paused executors, whose runs no worker claims.

use super::StoreError;
use crate::model::Timestamp;
use std::sync::Arc;

/// An executor whose runs no worker claims, see [`RunLedger::pause_executor`](super::RunLedger::pause_executor).
///
/// [`RunLedger::paused_executors`](super::RunLedger::paused_executors) lists these records.
/// [`pause_executor`](super::RunLedger::pause_executor) has an example.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct PausedExecutor {
    /// The ID of the paused executor.
    pub executor: Arc<str>,
    /// The time when the executor was paused, by the store's clock.
    pub since: Timestamp,
}

impl PausedExecutor {
    /// Maximum number of paused executors of one tenant.
    ///
    /// A further pause is [`StoreError::Full`]. The value is 10,000.
    pub const MOST: usize = 10_000;

    /// Returns the error for pausing an executor of a tenant that already has the maximum number of paused executors.
    pub(in crate::store) fn full(store: &'static str) -> StoreError {
        StoreError::Full {
            store,
            what: "paused executors",
            limit: Self::MOST,
        }
    }

    /// Creates a `PausedExecutor` from the ID of the executor and the time of the pause.
    #[must_use]
    pub fn new(executor: impl Into<Arc<str>>, since: Timestamp) -> Self {
        Self {
            executor: executor.into(),
            since,
        }
    }
}

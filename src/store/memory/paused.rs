//! Paused executors of one tenant. No worker claims the runs of these executors.

use super::NAME;
use crate::model::Timestamp;
use crate::store::{PausedExecutor, StoreError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Start time of the pause of each paused executor, by executor ID.
#[derive(Debug, Default)]
pub(super) struct Paused(BTreeMap<Arc<str>, Timestamp>);

impl Paused {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the start time of the pause of an executor, or `None` if it is not paused.
    pub(super) fn since(&self, executor: &str) -> Option<Timestamp> {
        self.0.get(executor).copied()
    }

    /// Pauses an executor. Returns `false` if the executor was paused already.
    pub(super) fn pause(&mut self, executor: &str, now: Timestamp) -> Result<bool, StoreError> {
        if self.0.contains_key(executor) {
            return Ok(false);
        }
        if self.0.len() >= PausedExecutor::MOST {
            return Err(PausedExecutor::full(NAME));
        }
        self.0.insert(executor.into(), now);
        Ok(true)
    }

    /// Ends the pause of an executor. Returns `false` if the executor is not paused.
    pub(super) fn resume(&mut self, executor: &str) -> bool {
        self.0.remove(executor).is_some()
    }

    pub(super) fn all(&self) -> Vec<PausedExecutor> {
        let paused = self.0.iter();
        let paused =
            paused.map(|(executor, since)| PausedExecutor::new(Arc::clone(executor), *since));
        paused.collect()
    }
}

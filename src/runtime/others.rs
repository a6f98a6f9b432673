//! Other versions of the executors here, on live workers. The runtime enqueues runs for them too: the first worker to receive an
//! event enqueues the runs of all versions, so that the runs of one ordering key are in the order of their events.

use crate::model::{Event, Route, SubscriptionIndex, Subscriptions};
use crate::store::Worker;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// ID of an executor and hash of its subscriptions.
pub(super) type Version = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct Others {
    /// Subscriptions by their hash, since one executor can have several other versions.
    index: SubscriptionIndex,
    /// Executors by the hash of their version.
    executors: HashMap<Arc<str>, Vec<Arc<str>>>,
}

impl Others {
    /// Reads the subscriptions of the running versions. This crate may be too old to read some of them, and then enqueues no runs
    /// for them.
    pub(super) fn of(running: &HashSet<Version>, workers: &[Worker]) -> Self {
        let mut others = Self::default();
        let recorded = workers.iter().flat_map(|worker| &worker.record.executors);
        for of in recorded {
            let version = (Arc::clone(&of.id), Arc::clone(&of.version));
            if !running.contains(&version) {
                continue;
            }
            let executors = others.executors.entry(version.1).or_default();
            if executors.contains(&version.0) {
                continue;
            }
            match Subscriptions::from_json(&of.subscriptions) {
                Ok(subscriptions) => {
                    executors.push(version.0);
                    others.index.insert(&of.version, &subscriptions);
                }
                Err(error) => {
                    tracing::warn!(executor = &*of.id, version = &*of.version, %error, "cannot read the subscriptions of another version of an executor; its own workers enqueue its runs");
                }
            }
        }
        others
            .executors
            .retain(|_, executors| !executors.is_empty());
        others
    }

    /// Reports whether both contain the same versions of the same executors.
    pub(super) fn are_as(&self, others: &Self) -> bool {
        self.executors == others.executors
    }

    /// Returns the hashes of the versions.
    pub(super) fn known(&self) -> BTreeSet<Arc<str>> {
        self.executors.keys().cloned().collect()
    }

    /// Returns the executors with another version that matches an event. `false` marks an uncertain match: the context
    /// decides, and the event does not carry it.
    pub(super) fn triggered(&self, event: &Event) -> Vec<(Arc<str>, bool)> {
        if self.executors.is_empty() {
            return Vec::new();
        }
        let mut triggered = Vec::new();
        for (version, route) in self.index.matching(event) {
            let surely = match route {
                Route::Trigger { .. } => true,
                Route::NeedsContext => false,
                Route::Unmatched | Route::Context => continue,
            };
            let executors = self.executors.get(&version).into_iter().flatten();
            triggered.extend(executors.map(|executor| (Arc::clone(executor), surely)));
        }
        triggered
    }
}

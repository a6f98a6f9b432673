//! Other versions of the executors here, on live workers. The runtime enqueues runs for them too: the first worker to receive an
//! event enqueues the runs of all versions, so that the runs of one ordering key are in the order of their events.

use crate::model::{Event, Route, SubscriptionIndex, Subscriptions};
use crate::store::Worker;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// ID of an executor and hash of its subscriptions.
pub(super) type Version = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct Others {
    /// Subscriptions by their hash, since one executor can have several other versions.
    index: SubscriptionIndex,
    /// Executors by the hash of their version.
    executors: HashMap<Arc<str>, Vec<Arc<str>>>,
    /// Versions that this crate is too old to read. No runs are enqueued for them here.
    unreadable: BTreeMap<Version, String>,
}

impl Others {
    /// Reads the subscriptions of the running versions.
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
                    let version = (version.0, Arc::clone(&of.version));
                    others.unreadable.insert(version, error.to_string());
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
        self.executors == others.executors && self.unreadable == others.unreadable
    }

    /// Logs the versions that this crate is too old to read.
    pub(super) fn log_unreadable(&self) {
        for ((executor, version), error) in &self.unreadable {
            tracing::warn!(
                executor = &**executor,
                version = &**version,
                error,
                "cannot read the subscriptions of another version of an executor; its own workers enqueue its runs"
            );
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Json, Subscription, Timestamp};
    use crate::store::WorkerRecord;
    use serde_json::json;

    #[test]
    fn a_version_that_cannot_be_read_is_noted_and_not_enqueued_for() {
        let subscriptions = Subscriptions::new(vec![Subscription::trigger("note.v1")]).unwrap();
        let mut record = WorkerRecord::new("1", "newer").executor("agent", &subscriptions);
        let version: Version = ("agent".into(), subscriptions.hash());
        let running = HashSet::from([version]);
        let now = Timestamp::UNIX_EPOCH;
        let readable = Others::of(&running, &[Worker::new(record.clone(), now, now, now)]);
        record.executors[0].subscriptions = Json::from(json!([{"role": "seer"}]));
        let workers = [Worker::new(record, now, now, now)];

        let unreadable = Others::of(&running, &workers);

        assert_eq!(readable.known().len(), 1);
        assert!(unreadable.known().is_empty());
        assert!(!unreadable.are_as(&Others::default()), "it is logged once");
        assert!(
            unreadable.are_as(&Others::of(&running, &workers)),
            "and not again"
        );
    }
}

//! Other versions of this runtime's executors, run by other workers. The runtime enqueues runs for them too: the first worker that receives
//! an event enqueues the runs of all versions that were live at its commit. So the runs of one ordering key are in the order of their
//! events.

use crate::model::{Event, Role, Route, Selector, SubscriptionIndex, Subscriptions, Timestamp};
use crate::store::{Version, Worker};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct OtherVersions {
    /// Subscriptions of the other executor versions by version hash, because one executor can have several other versions.
    index: SubscriptionIndex,
    /// Other versions of the executors by their hash, each with the period in which the version was live.
    executors: HashMap<Arc<str>, BTreeMap<Arc<str>, Live>>,
    /// Executor versions that this crate is too old to read, with the error. No runs are enqueued for them here.
    unreadable: BTreeMap<Version, String>,
    /// The selectors of the triggers of all other executor versions.
    triggers: Vec<Selector>,
}

/// Period in which an executor version has a live worker, by the store's clock.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Live {
    /// No worker of the executor version is live. The last one was, at most until this time.
    Until(Timestamp),
    /// A worker of the executor version is live.
    Now,
}

impl Live {
    /// Returns the period in which a worker counts as live. A worker that stopped counts as long as a killed one. The additional time
    /// covers events whose time comes from another clock.
    fn of(worker: &Worker) -> Self {
        match worker.is_live {
            true => Self::Now,
            false => Self::Until(worker.seen_at + Worker::LIVE),
        }
    }

    /// Returns `true` if the executor version was live at a time.
    fn contains(self, time: Timestamp) -> bool {
        match self {
            Self::Now => true,
            Self::Until(end) => time <= end,
        }
    }
}

/// Returns the recorded versions of executors that differ from the given versions of this worker.
pub(super) fn other_versions(workers: &[Worker], own: &[Version]) -> BTreeMap<Version, Live> {
    let own = own.iter().map(|own| (&*own.executor, &own.hash));
    let own: HashMap<&str, &Arc<str>> = own.collect();
    let mut others = BTreeMap::new();
    for worker in workers {
        for entry in &worker.record.executors {
            if own
                .get(&*entry.id)
                .is_some_and(|hash| **hash != entry.version)
            {
                let live = Live::of(worker);
                let known = others.entry(entry.version()).or_insert(live);
                *known = live.max(*known);
            }
        }
    }
    others
}

impl OtherVersions {
    /// Reads the subscriptions of other executor versions from the records of their workers.
    pub(super) fn of(versions: &BTreeMap<Version, Live>, workers: &[Worker]) -> Self {
        let mut others = Self::default();
        let recorded = workers.iter().flat_map(|worker| &worker.record.executors);
        for entry in recorded {
            let version = entry.version();
            let Some(live) = versions.get(&version).copied() else {
                continue;
            };
            let executors = others.executors.entry(version.hash.clone()).or_default();
            if executors.contains_key(&version.executor) {
                continue;
            }
            match Subscriptions::from_json(&entry.subscriptions) {
                Ok(subscriptions) => {
                    let all = subscriptions.as_slice().iter();
                    let triggers = all.filter(|one| one.role == Role::Trigger);
                    others
                        .triggers
                        .extend(triggers.map(|one| one.selector.clone()));
                    executors.insert(version.executor, live);
                    others.index.insert(&entry.version, &subscriptions);
                }
                Err(error) => {
                    others.unreadable.insert(version, error.to_string());
                }
            }
        }
        others
            .executors
            .retain(|_, executors| !executors.is_empty());
        others
    }

    /// Returns `true` if `self` and `others` contain the same executor versions with the same live periods.
    pub(super) fn has_same_versions(&self, others: &Self) -> bool {
        self.executors == others.executors && self.unreadable == others.unreadable
    }

    /// Logs the executor versions that this crate is too old to read.
    pub(super) fn log_unreadable(&self) {
        for (version, error) in &self.unreadable {
            tracing::warn!(
                executor = &*version.executor,
                version = &*version.hash,
                error,
                "cannot read the subscriptions of another version of an executor; only workers with that version enqueue its runs"
            );
        }
    }

    /// Returns the selectors of the triggers of the other executor versions.
    pub(super) fn triggers(&self) -> &[Selector] {
        &self.triggers
    }

    /// Returns the executor versions that only other live workers run, and for whose triggers this worker enqueues runs too. A worker that
    /// starts such a version waits until all live workers list the version as known.
    pub(super) fn live_versions(&self) -> BTreeSet<Version> {
        let by_hash = self.executors.iter();
        let versions = by_hash.flat_map(|(hash, executors)| {
            let live = executors.iter().filter(|(_, live)| **live == Live::Now);
            live.map(move |(executor, _)| Version::new(executor, hash))
        });
        versions.collect()
    }

    /// Returns the executors whose version on another worker matches an event. The version must have been live at the event's time.
    /// `false` marks an uncertain match, which depends on the context that the event does not contain.
    pub(super) fn triggered(&self, event: &Event) -> Vec<(Arc<str>, bool)> {
        if self.executors.is_empty() {
            return Vec::new();
        }
        let mut triggered = Vec::new();
        for (version, route) in self.index.matching(event) {
            let is_certain = match route {
                Route::Trigger { .. } => true,
                Route::NeedsContext => false,
                Route::Unmatched | Route::Context => continue,
            };
            let executors = self.executors.get(&version).into_iter().flatten();
            let live = executors.filter(|(_, live)| live.contains(event.updated_at));
            triggered.extend(live.map(|(executor, _)| (Arc::clone(executor), is_certain)));
        }
        triggered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Json, Subscription};
    use crate::store::WorkerRecord;
    use serde_json::json;
    use std::time::Duration;

    fn record() -> WorkerRecord {
        let subscriptions = Subscriptions::new(vec![Subscription::trigger("note.v1")]).unwrap();
        WorkerRecord::new("1", "newer").executor("agent", &subscriptions)
    }

    #[test]
    fn a_version_that_cannot_be_read_is_noted_and_not_enqueued_for() {
        let mut record = record();
        let versions = BTreeMap::from([(record.executors[0].version(), Live::Now)]);
        let now = Timestamp::UNIX_EPOCH;
        let readable = OtherVersions::of(&versions, &[Worker::new(record.clone(), now, now, now)]);
        record.executors[0].subscriptions = Json::from(json!([{"role": "seer"}]));
        let workers = [Worker::new(record, now, now, now)];

        let unreadable = OtherVersions::of(&versions, &workers);

        assert_eq!(readable.live_versions().len(), 1);
        assert!(unreadable.live_versions().is_empty());
        assert!(
            !unreadable.has_same_versions(&OtherVersions::default()),
            "it is logged once"
        );
        assert!(
            unreadable.has_same_versions(&OtherVersions::of(&versions, &workers)),
            "and not again"
        );
    }

    #[test]
    fn a_version_without_a_live_worker_is_not_known() {
        let (record, now) = (record(), Timestamp::UNIX_EPOCH);
        let version = record.executors[0].version();
        let workers = [Worker::new(record, now, now, now)];
        for (live, known) in [(Live::Now, 1), (Live::Until(now), 0)] {
            let versions = BTreeMap::from([(version.clone(), live)]);

            let others = OtherVersions::of(&versions, &workers);

            assert_eq!(others.live_versions().len(), known, "{live:?}");
        }
    }

    #[test]
    fn a_version_is_live_for_as_long_as_one_of_its_workers() {
        let at = |seconds| Timestamp::UNIX_EPOCH + Duration::from_secs(seconds);
        let own = [Version::new(&"agent".into(), &"own".into())];
        let worker = |seen| Worker::new(record(), at(0), at(seen), at(100));
        let live = |workers: &[Worker]| other_versions(workers, &own).into_values().next();

        assert_eq!(live(&[worker(5), worker(10)]), Some(Live::Until(at(40))));
        assert_eq!(live(&[worker(90), worker(10)]), Some(Live::Now));
        assert!(Live::Until(at(40)).contains(at(40)) && !Live::Until(at(40)).contains(at(41)));
    }
}

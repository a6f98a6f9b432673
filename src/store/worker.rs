//! Records of the workers that share a ledger. A worker reads from them which versions of an executor the other workers run.

use crate::model::{Json, Subscriptions, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Self-description of a worker: a running [`Runtime`](crate::Runtime) and its executors.
///
/// SQLite and PostgreSQL store its serde form.
///
/// A runtime creates and stores it. A program reads it in [`Worker::record`], for example to show
/// the workers of a service.
///
/// ```
/// use universal_executor::store::WorkerRecord;
/// use universal_executor::{Subscription, Subscriptions};
///
/// let subscriptions = Subscriptions::new([Subscription::trigger("order.v1")])?;
/// let record = WorkerRecord::new("worker-1", "order desk").executor("pricing", &subscriptions);
///
/// assert_eq!(record.executors[0].version, subscriptions.hash());
/// assert!(!record.stopped);
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
///
/// [`RunLedger::workers`](super::RunLedger::workers) lists the workers of a tenant:
///
/// ```
/// use universal_executor::store::WorkerRecord;
/// use universal_executor::{MemoryStore, RunLedger};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// store.record_worker(&WorkerRecord::new("worker-1", "order desk")).await?;
///
/// let workers = store.workers().await?;
/// assert_eq!(workers[0].record.name, "order desk");
/// assert!(workers[0].is_live);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WorkerRecord {
    /// The ID of this worker. A new one is chosen at each start.
    pub id: Arc<str>,
    /// The human-readable name of the worker. Several workers may have the same name.
    pub name: String,
    /// The version of this crate in the worker's program.
    pub crate_version: String,
    /// The executors with which the worker processes runs of this store.
    pub executors: Vec<ExecutorVersion>,
    /// Other versions of the worker's executors, for which the worker enqueues runs too. A
    /// worker with a new version waits at its start until the live workers list that version here.
    #[serde(default)]
    pub known_versions: BTreeSet<Version>,
    /// `true` after the worker has stopped and claims no more runs.
    #[serde(default)]
    pub stopped: bool,
}

impl WorkerRecord {
    /// Creates the record of a running worker with this version of the crate.
    ///
    /// The record has no executors yet: add each with [`executor`](Self::executor).
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, name: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            crate_version: env!("CARGO_PKG_VERSION").to_owned(),
            executors: Vec::new(),
            known_versions: BTreeSet::new(),
            stopped: false,
        }
    }

    /// Adds an executor of the worker, with its subscriptions.
    #[must_use]
    pub fn executor(mut self, id: impl Into<Arc<str>>, subscriptions: &Subscriptions) -> Self {
        self.executors.push(ExecutorVersion::new(id, subscriptions));
        self
    }
}

/// A version of an executor: the executor ID, and the subscriptions, whose hash names the version. Versions with equal
/// subscriptions count as the same version, even if their code differs.
///
/// So a deploy that changes only code creates no new version, and no run is transferred for it.
///
/// ```
/// use universal_executor::store::ExecutorVersion;
/// use universal_executor::{Subscription, Subscriptions};
///
/// let old = Subscriptions::new([Subscription::trigger("order.v1")])?;
/// let new = Subscriptions::new([Subscription::trigger("order.v2")])?;
/// let [old, new] = [old, new].map(|of| ExecutorVersion::new("pricing", &of));
/// assert_ne!(old.version(), new.version());
/// assert_eq!(&*old.version().executor, "pricing");
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ExecutorVersion {
    /// The ID of the executor.
    pub id: Arc<str>,
    /// [Hash](Subscriptions::hash) of the executor's subscriptions. The hash is the name of the version.
    pub version: Arc<str>,
    /// The subscriptions of the executor, as JSON that [`Subscriptions::from_json`] reads.
    pub subscriptions: Json,
}

impl ExecutorVersion {
    /// Creates the version of an executor with these subscriptions.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, subscriptions: &Subscriptions) -> Self {
        // Serialization cannot fail, because subscriptions consist of JSON.
        let json = serde_json::to_value(subscriptions).unwrap_or_default();
        Self {
            id: id.into(),
            version: subscriptions.hash(),
            subscriptions: Json::from(json),
        }
    }

    /// Returns the name of this executor version.
    #[must_use]
    pub fn version(&self) -> Version {
        Version::new(&self.id, &self.version)
    }
}

/// Name of an executor version: the executor ID and the hash of its subscriptions. Two executors can have equal subscriptions,
/// so the hash alone does not name a version.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[non_exhaustive]
pub struct Version {
    /// The ID of the executor.
    pub executor: Arc<str>,
    /// [Hash](Subscriptions::hash) of the executor's subscriptions in this version.
    pub hash: Arc<str>,
}

impl Version {
    /// Creates the name of an executor version.
    #[must_use]
    pub fn new(executor: &Arc<str>, hash: &Arc<str>) -> Self {
        Self {
            executor: Arc::clone(executor),
            hash: Arc::clone(hash),
        }
    }
}

/// A worker, with the record that it stored and the times when it first and last stored the record. Both times are from the
/// store's clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Worker {
    /// The data that the worker last stored about itself, such as its name and executors.
    pub record: WorkerRecord,
    /// The time when the worker first stored its record.
    pub started_at: Timestamp,
    /// The time when the worker last stored its record.
    pub seen_at: Timestamp,
    /// `true` if the worker has not stopped and has stored its record in the last [30 s](Self::LIVE).
    pub is_live: bool,
}

impl Worker {
    /// Time for which a worker counts as live after it stored its record: 30 s. A runtime stores its record every 10 s.
    pub const LIVE: Duration = Duration::from_secs(30);

    /// Time for which a store retains a worker's record after the worker last stored it: 24 h.
    pub const KEPT: Duration = Duration::from_hours(24);

    /// Maximum number of worker records in a tenant: 1,000. The store deletes the oldest records beyond this number.
    pub const MOST: usize = 1_000;

    /// Creates a `Worker` from a worker's record and the times when the worker first and last stored the record. `now` is the
    /// current time of the store's clock.
    #[must_use]
    pub fn new(
        record: WorkerRecord,
        started_at: Timestamp,
        seen_at: Timestamp,
        now: Timestamp,
    ) -> Self {
        Self {
            is_live: !record.stopped && now.since(seen_at) <= Self::LIVE,
            record,
            started_at,
            seen_at,
        }
    }

    /// Returns the time at which the store deletes this worker's record if the worker does not store it again.
    #[must_use]
    pub fn kept_until(&self) -> Timestamp {
        self.seen_at + Self::KEPT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_json_of_a_worker_is_stable() {
        let subscriptions = Subscriptions::default();
        let record = WorkerRecord::new("worker-1", "desk").executor("clerk", &subscriptions);
        let (started, seen) = (Timestamp::from_micros(1), Timestamp::from_micros(2));
        let worker = Worker::new(record, started, seen, seen);

        let expected = json!({
            "record": {
                "id": "worker-1", "name": "desk", "crate_version": env!("CARGO_PKG_VERSION"),
                "executors": [{"id": "clerk", "version": &*subscriptions.hash(), "subscriptions": []}],
                "known_versions": [], "stopped": false,
            },
            "started_at": "1970-01-01T00:00:00.000001Z", "seen_at": "1970-01-01T00:00:00.000002Z",
            "is_live": true,
        });
        assert_eq!(serde_json::to_value(&worker).unwrap(), expected);
    }
}

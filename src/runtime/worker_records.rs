//! Records by which other workers know this worker and its executor versions, and acceptance of the runs transferred to these
//! versions.

use super::other_versions::{Live, OtherVersions, other_versions};
use super::shared::Shared;
use super::store_context::StoreContext;
use super::timeouts::with_timeout;
use crate::clock::later;
use crate::error::Chain;
use crate::store::{ExecutorVersion, MOST_ACCEPTED, StoreError, Version, Worker, WorkerRecord};
use futures::future::join_all;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// Interval between two saves of the records by which other workers know that this worker is live and which executors it runs.
/// Two saves can fail before this worker no longer counts as live.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);

/// Interval between two searches for runs transferred to this worker's executor versions, while live workers run other versions.
const TRANSFER_CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct WorkerRecords {
    shared: Arc<Shared>,
    /// UUID of this worker, the first part of the IDs of its records in the run ledgers.
    id: String,
    name: Arc<str>,
    /// Time of the next save of this worker's records in the run ledgers.
    record_at: Instant,
    /// If `true`, live workers have other versions of this worker's executors.
    other_versions_live: bool,
    /// Executor versions without a live worker, each with the number of the store on which the executor runs. This worker
    /// accepted the runs that were transferred to these versions.
    accepted_versions: HashSet<(u64, Version)>,
}

impl WorkerRecords {
    pub(super) fn new(shared: Arc<Shared>, name: Arc<str>) -> Self {
        Self {
            shared,
            id: Uuid::now_v7().to_string(),
            name,
            record_at: Instant::now(),
            other_versions_live: false,
            accepted_versions: HashSet::new(),
        }
    }

    /// Saves this worker's records in the ledgers before the first claim, and waits until the live workers with other versions of
    /// the executors know this worker's versions.
    ///
    /// After that, those workers also enqueue the runs for this worker's versions, in the order of the events. The wait is long
    /// enough for two checks by each worker.
    pub(super) async fn begin(&mut self) {
        const PAUSE: Duration = Duration::from_millis(250);
        // Workers that died a moment ago still count as live, and never answer.
        let timeout = self.check_interval().saturating_mul(2) + Duration::from_secs(1);
        let deadline = later(Instant::now(), timeout);
        self.record(false).await;
        loop {
            // A worker that starts at the same time waits for this one.
            if self.update_other_versions().await {
                self.record(false).await;
            }
            if self.is_known().await || Instant::now() >= deadline {
                return;
            }
            sleep_until(later(Instant::now(), PAUSE)).await;
        }
    }

    /// Returns `true` if all live workers with other versions of the executors know this worker's versions.
    async fn is_known(&self) -> bool {
        for store_context in self.shared.registry.store_contexts() {
            let Ok(workers) = with_timeout(store_context.ledger().workers()).await else {
                return false;
            };
            let own = self.versions(&store_context);
            let mut live = workers.iter().filter(|worker| worker.is_live);
            if !live.all(|worker| knows_all(&worker.record, &own)) {
                return false;
            }
        }
        true
    }

    /// Saves the records of this worker in the ledgers of its stores at intervals, until the runtime stops.
    pub(super) async fn run(mut self) {
        let (stop, mut changes) = (self.shared.stop.clone(), self.shared.registry.changes());
        loop {
            let check_interval = self.check_interval();
            let pause = if self.other_versions_live {
                TRANSFER_CHECK_INTERVAL.min(check_interval)
            } else {
                check_interval
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Ok(()) = changes.changed() => self.record_at = Instant::now(),
                () = sleep_until(later(Instant::now(), pause)) => {}
            }
            self.check_and_save().await;
        }
        self.record(true).await;
    }

    /// Returns the interval between two checks for other executor versions and for transferred runs.
    fn check_interval(&self) -> Duration {
        const MAX_INTERVAL: Duration = Duration::from_secs(5);
        self.shared.settings.sweep.min(MAX_INTERVAL)
    }

    async fn check_and_save(&mut self) {
        let has_changed = self.update_other_versions().await;
        if has_changed || Instant::now() >= self.record_at {
            self.record(false).await;
        }
        let store_contexts = self.shared.registry.store_contexts();
        let versions: Vec<_> = store_contexts
            .iter()
            .map(|store_context| self.versions(store_context))
            .collect();
        let each = store_contexts.iter().zip(&versions);
        join_all(each.map(|(store_context, versions)| accept_transfers(store_context, versions)))
            .await;
    }

    /// Returns the executors on a store as entries of this worker's record.
    fn executors(&self, store_context: &StoreContext) -> Vec<Arc<ExecutorVersion>> {
        let members = self.shared.registry.all().into_iter();
        let here = members.filter(|member| member.store_context.number == store_context.number);
        here.map(|member| member.version).collect()
    }

    fn versions(&self, store_context: &StoreContext) -> Vec<Version> {
        let executors = self.executors(store_context).into_iter();
        executors.map(|of| of.version()).collect()
    }

    /// Saves one record of this worker in the run ledger of each store, with the executors on that store only.
    async fn record(&mut self, stopped: bool) {
        self.record_at = later(Instant::now(), SAVE_INTERVAL);
        let this = &*self;
        let store_contexts = self.shared.registry.store_contexts();
        let record = store_contexts.iter().map(|store_context| async move {
            let id = format!("{}-{}", this.id, store_context.number);
            let mut record = WorkerRecord::new(id, &*this.name);
            let executors = this.executors(store_context).into_iter();
            record.executors = executors.map(Arc::unwrap_or_clone).collect();
            record.known_versions = store_context.other_versions().live_versions();
            record.stopped = stopped;
            if let Err(error) = with_timeout(store_context.ledger().record_worker(&record)).await {
                tracing::warn!(worker = &*this.name, code = error.code(), error = %Chain(&error), "cannot store the record of this worker, will retry");
            }
        });
        join_all(record).await;
    }

    /// Records the executor versions of other workers. Also accepts the runs that were transferred to a version without a live worker,
    /// because an executor of this worker may match their triggers. Returns `true` if the other versions have changed.
    async fn update_other_versions(&mut self) -> bool {
        let (mut other_versions_live, mut changed) = (false, false);
        for store_context in self.shared.registry.store_contexts() {
            let workers = match with_timeout(store_context.ledger().workers()).await {
                Ok(workers) => workers,
                Err(error) => {
                    tracing::warn!(code = error.code(), error = %Chain(&error), "cannot list the workers that share a store, will retry");
                    continue;
                }
            };
            let versions = other_versions(&workers, &self.versions(&store_context));
            other_versions_live |= versions.values().any(|live| *live == Live::Now);
            let others = OtherVersions::of(&versions, &workers);
            if !others.has_same_versions(&store_context.other_versions()) {
                changed = true;
                others.log_unreadable();
                store_context.set_other_versions(others);
            }
            let has_no_live_worker = |version: &Version| {
                let live = versions.get(version);
                live.is_some_and(|live| *live != Live::Now)
            };
            self.accepted_versions.retain(|(number, version)| {
                *number != store_context.number || has_no_live_worker(version)
            });
            let is_new = |version: &&Version| {
                has_no_live_worker(version)
                    && !self
                        .accepted_versions
                        .contains(&(store_context.number, (*version).clone()))
            };
            let new: Vec<Version> = versions.keys().filter(is_new).cloned().collect();
            // A version counts as accepted only when no run remains: the next call accepts the runs that this call omits.
            if accept_transfers(&store_context, &new).await {
                let new = new
                    .into_iter()
                    .map(|version| (store_context.number, version));
                self.accepted_versions.extend(new);
            }
        }
        self.other_versions_live = other_versions_live;
        changed
    }
}

/// Returns `true` if a worker knows these executor versions: it runs them, lists them as known, or does not run their executors.
fn knows_all(record: &WorkerRecord, versions: &[Version]) -> bool {
    let executors = record.executors.iter();
    let hashes: HashMap<&str, &Arc<str>> = executors.map(|of| (&*of.id, &of.version)).collect();
    versions.iter().all(|version| {
        let own = hashes.get(&*version.executor);
        own.is_none_or(|own| **own == version.hash) || record.known_versions.contains(version)
    })
}

/// Makes the runs due that were transferred to one of these executor versions, so that workers can claim the runs. Returns `true`
/// if no such run remains.
async fn accept_transfers(store_context: &StoreContext, versions: &[Version]) -> bool {
    /// The maximum number of ledger calls that accept transferred runs in one check, so that the check does not delay the next
    /// save of the worker's record.
    const MAX_TRANSFER_CALLS: usize = 16;
    if versions.is_empty() {
        return true;
    }
    let names: Vec<(Arc<str>, Arc<str>)> = versions
        .iter()
        .map(|version| (Arc::clone(&version.executor), Arc::clone(&version.hash)))
        .collect();
    for _ in 0..MAX_TRANSFER_CALLS {
        match with_timeout(store_context.ledger().accept_transfers(&names)).await {
            Ok(accepted) => {
                if accepted > 0 {
                    store_context
                        .notify_due(versions.iter().map(|version| Arc::clone(&version.executor)));
                }
                if accepted < MOST_ACCEPTED {
                    return true;
                }
            }
            Err(error) => {
                tracing::warn!(code = error.code(), error = %Chain(&error), "cannot accept the runs that other executor versions transferred to this worker, will retry");
                return false;
            }
        }
        tokio::task::yield_now().await;
    }
    false
}

/// Lists all workers on these stores, the most recently stored record first.
pub(super) async fn all(store_contexts: &[Arc<StoreContext>]) -> Result<Vec<Worker>, StoreError> {
    let mut all: Vec<Worker> = Vec::new();
    for store_context in store_contexts {
        for worker in store_context.ledger().workers().await? {
            // Several handles may belong to the same store.
            if all.iter().all(|known| known.record.id != worker.record.id) {
                all.push(worker);
            }
        }
    }
    all.sort_by_key(|worker| std::cmp::Reverse(worker.seen_at));
    Ok(all)
}

/// Returns the default name of a worker: the name of its program and its process ID, separated by a colon.
pub(super) fn default_name() -> Arc<str> {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(std::path::Path::file_stem);
    let program = program.map_or_else(|| "worker".into(), |stem| stem.to_string_lossy());
    format!("{program}:{}", std::process::id()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Subscription, Subscriptions};
    use crate::store::WorkerRecord;

    #[test]
    fn a_version_is_not_known_because_another_executor_has_equal_subscriptions() {
        let subscriptions =
            |schema: &str| Subscriptions::new(vec![Subscription::trigger(schema)]).unwrap();
        let new = subscriptions("new.v1");
        let version = |id: &str| ExecutorVersion::new(id, &new).version();
        let mut worker = WorkerRecord::new("1", "old")
            .executor("agent", &subscriptions("old.v1"))
            .executor("tool", &subscriptions("old.v1"));
        worker.known_versions.insert(version("tool"));

        assert!(knows_all(&worker, &[version("tool"), version("elsewhere")]));
        assert!(!knows_all(&worker, &[version("agent")]));
    }
}

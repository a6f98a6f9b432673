//! Records of this worker in the ledgers of its stores, and the runs that were transferred to its versions of executors.

use super::home::Home;
use super::others::{Others, Version};
use super::shared::{Shared, in_time};
use crate::clock::later;
use crate::error::Chain;
use crate::executor::UniversalExecutor;
use crate::store::{ExecutorVersion, StoreError, Worker, WorkerRecord};
use futures::future::join_all;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// Interval between two stores of the records: two can fail before this worker no longer counts as live.
const RECORDED_EVERY: Duration = Duration::from_secs(10);

/// Interval between two looks for transferred runs while other versions run.
const SOON: Duration = Duration::from_secs(1);

pub(super) struct Registry {
    shared: Arc<Shared>,
    /// ID of this worker.
    id: String,
    name: Arc<str>,
    /// Time of the next store of the records.
    record_at: Instant,
    /// `true` while live workers have other versions of the executors here.
    others_run: bool,
    /// Versions without a live worker whose transferred runs this worker accepted, by store.
    adopted: HashSet<(u64, Version)>,
}

impl Registry {
    pub(super) fn new(shared: Arc<Shared>, name: Arc<str>) -> Self {
        Self {
            shared,
            id: Uuid::now_v7().to_string(),
            name,
            record_at: Instant::now(),
            others_run: false,
            adopted: HashSet::new(),
        }
    }

    /// Stores the records before the first claim, and waits until the live workers with other versions of the executors know the
    /// versions here.
    ///
    /// From then on those workers enqueue the runs for the versions here too, in the order of the events. The wait is long enough
    /// for two looks of each worker.
    pub(super) async fn begin(&mut self) {
        const PAUSE: Duration = Duration::from_millis(250);
        // Workers that died a moment ago still count as live, and never answer.
        let patience = self.looks_every().saturating_mul(2) + Duration::from_secs(1);
        let give_up = later(Instant::now(), patience);
        self.record(false).await;
        loop {
            // A worker that starts at the same time waits for this one.
            if self.look_at_others().await {
                self.record(false).await;
            }
            if self.is_known().await || Instant::now() >= give_up {
                return;
            }
            sleep_until(later(Instant::now(), PAUSE)).await;
        }
    }

    /// Reports whether all live workers with other versions of the executors know the versions here.
    async fn is_known(&self) -> bool {
        for home in self.shared.roster.homes() {
            let Some(ledger) = home.ledger() else {
                continue;
            };
            let Ok(workers) = in_time(ledger.workers()).await else {
                return false;
            };
            let own = self.versions(&home);
            let is_known = |worker: &Worker| {
                let runs = |id: &Arc<str>| worker.record.executors.iter().find(|of| of.id == *id);
                own.iter().all(|(id, version)| {
                    runs(id).is_none_or(|of| of.version == *version)
                        || worker.record.knows.contains(version)
                })
            };
            if !workers.iter().filter(|worker| worker.is_live).all(is_known) {
                return false;
            }
        }
        true
    }

    /// Stores the records at intervals until the runtime stops.
    pub(super) async fn run(mut self) {
        let (stop, mut changes) = (self.shared.stop.clone(), self.shared.roster.changes());
        loop {
            let looks_every = self.looks_every();
            let pause = if self.others_run {
                SOON.min(looks_every)
            } else {
                looks_every
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Ok(()) = changes.changed() => self.record_at = Instant::now(),
                () = sleep_until(later(Instant::now(), pause)) => {}
            }
            self.turn().await;
        }
        self.record(true).await;
    }

    /// Returns the interval between two looks for other versions and for transferred runs.
    fn looks_every(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(5);
        self.shared.settings.sweep.min(LONGEST)
    }

    async fn turn(&mut self) {
        let knows_more = self.look_at_others().await;
        if knows_more || Instant::now() >= self.record_at {
            self.record(false).await;
        }
        let homes = self.shared.roster.homes();
        let accept_transfers = homes
            .iter()
            .map(|home| accept_transfers(home, self.versions(home)));
        join_all(accept_transfers).await;
    }

    /// Returns the executors on a store, in the form of their records.
    fn executors(&self, home: &Home) -> Vec<ExecutorVersion> {
        let members = self.shared.roster.all().into_iter();
        let here = members.filter(|member| member.home.number == home.number);
        here.map(|member| version_of(&*member.executor)).collect()
    }

    fn versions(&self, home: &Home) -> Vec<Version> {
        let executors = self.executors(home).into_iter();
        executors.map(|of| (of.id, of.version)).collect()
    }

    /// Stores one record in each store, with the executors on that store only.
    async fn record(&mut self, stopped: bool) {
        self.record_at = later(Instant::now(), RECORDED_EVERY);
        let this = &*self;
        let homes = self.shared.roster.homes();
        let record = homes.iter().map(|home| async move {
            let Some(ledger) = home.ledger() else { return };
            let id = format!("{}-{}", this.id, home.number);
            let mut record = WorkerRecord::new(id, &*this.name);
            record.executors = this.executors(home);
            (record.knows, record.stopped) = (home.others().known(), stopped);
            if let Err(error) = in_time(ledger.record_worker(&record)).await {
                tracing::warn!(worker = &*this.name, code = error.code(), error = %Chain(&error), "cannot store the record of this worker, will retry");
            }
        });
        join_all(record).await;
    }

    /// Notes which other versions run, and accepts once the runs of versions without a live worker: an executor here may match
    /// them. Returns `true` if other versions run than before.
    async fn look_at_others(&mut self) -> bool {
        let (mut others_run, mut changed) = (false, false);
        for home in self.shared.roster.homes() {
            let Some(ledger) = home.ledger() else {
                continue;
            };
            let workers = match in_time(ledger.workers()).await {
                Ok(workers) => workers,
                Err(error) => {
                    tracing::warn!(code = error.code(), error = %Chain(&error), "cannot list the workers, will retry");
                    continue;
                }
            };
            let (running, gone) = others(&workers, &self.versions(&home));
            others_run |= !running.is_empty();
            let others = Others::of(&running, &workers);
            if !others.are_as(&home.others()) {
                changed = true;
                others.log_unreadable();
                home.set_others(others);
            }
            self.adopted
                .retain(|(number, version)| *number != home.number || gone.contains(version));
            let new: Vec<Version> = gone
                .into_iter()
                .filter(|version| self.adopted.insert((home.number, version.clone())))
                .collect();
            accept_transfers(&home, new).await;
        }
        self.others_run = others_run;
        changed
    }
}

/// Returns the other versions of these executors: with a live worker, and without one.
fn others(workers: &[Worker], own: &[Version]) -> (HashSet<Version>, HashSet<Version>) {
    let (mut running, mut gone) = (HashSet::new(), HashSet::new());
    for worker in workers {
        for of in &worker.record.executors {
            let version = (Arc::clone(&of.id), Arc::clone(&of.version));
            let is_other = own.iter().any(|(id, _)| *id == of.id) && !own.contains(&version);
            if is_other {
                let versions = if worker.is_live {
                    &mut running
                } else {
                    &mut gone
                };
                versions.insert(version);
            }
        }
    }
    gone.retain(|version| !running.contains(version));
    (running, gone)
}

fn version_of(executor: &dyn UniversalExecutor) -> ExecutorVersion {
    ExecutorVersion::new(executor.id(), executor.subscriptions())
}

/// Accepts the runs that were transferred to versions of executors.
async fn accept_transfers(home: &Home, versions: Vec<Version>) {
    let Some(ledger) = home.ledger().filter(|_| !versions.is_empty()) else {
        return;
    };
    match in_time(ledger.accept_transfers(&versions)).await {
        Ok(0) => {}
        Ok(_) => home.nudge(versions.into_iter().map(|(executor, _)| executor)),
        Err(error) => {
            tracing::warn!(code = error.code(), error = %Chain(&error), "cannot accept transferred runs, will retry");
        }
    }
}

/// Lists all workers on these stores, the most recently stored record first.
pub(super) async fn all(homes: &[Arc<Home>]) -> Result<Vec<Worker>, StoreError> {
    let mut all: Vec<Worker> = Vec::new();
    for home in homes {
        let Some(ledger) = home.ledger() else {
            continue;
        };
        for worker in ledger.workers().await? {
            // Several handles may be of one store.
            if all.iter().all(|known| known.record.id != worker.record.id) {
                all.push(worker);
            }
        }
    }
    all.sort_by_key(|worker| std::cmp::Reverse(worker.seen_at));
    Ok(all)
}

/// Returns the default name of a worker: the program and its process ID.
pub(super) fn default_name() -> Arc<str> {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(std::path::Path::file_stem);
    let program = program.map_or_else(|| "worker".into(), |stem| stem.to_string_lossy());
    format!("{program}:{}", std::process::id()).into()
}

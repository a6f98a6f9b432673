//! Release of all leases of a station when it ends.

use super::Station;
use super::claim::{Claiming, parked};
use super::start::{Started, Work};
use crate::bugs::planted;
use crate::error::Chain;
use crate::runtime::home::Home;
use crate::runtime::process::{self, Because};
use crate::runtime::shared::in_time;
use crate::store::{Lease, LeaseOwner, RunRef};
use futures::stream::{FuturesUnordered, StreamExt as _};
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::task::{self, JoinError, JoinHandle, JoinSet};

/// A lease, by its run and its token. A task and a newer lease of its run can exist at the same time.
pub(super) type LeaseName = (RunRef, u64);

/// The leases that a station leaves behind, and the tasks that may still use them.
struct Left {
    home: Arc<Home>,
    owner: LeaseOwner,
    running: JoinSet<Work>,
    started: HashMap<task::Id, Started>,
    returning: Vec<(Lease, Because)>,
    /// The claim in flight.
    claiming: Option<Claiming>,
    /// If `true`, leases may be parked that no task has.
    parked: bool,
}

impl Station {
    /// Releases all leases of this station in the background. Returns `None` without leases, or outside of a tokio runtime.
    pub(super) fn release_all(&mut self) -> Option<JoinHandle<()>> {
        if mem::replace(&mut self.released, true) || planted("drop-at-drain") {
            return None;
        }
        let silent = mem::take(&mut self.silent).into_iter();
        let mut returning = mem::take(&mut self.returning);
        returning.extend(silent);
        let left = Left {
            home: Arc::clone(&self.home),
            owner: self.owner,
            running: mem::take(&mut self.running),
            started: mem::take(&mut self.started),
            returning,
            claiming: self.claiming.take(),
            parked: self.parked || self.unreleased,
        };
        if left.is_empty() {
            return None;
        }
        Some(Handle::try_current().ok()?.spawn(left.release()))
    }
}

/// Releases the leases in the background when [`run_until`](crate::Runtime::run_until) is dropped. Otherwise each drop
/// would count as a crash of the running work.
impl Drop for Station {
    fn drop(&mut self) {
        self.release_all();
    }
}

impl Left {
    fn is_empty(&self) -> bool {
        !self.parked && self.started.is_empty() && self.returning.is_empty()
    }

    async fn release(self) {
        let (home, owner) = (self.home, self.owner);
        let in_tasks: Vec<_> = self.started.values().map(Started::lease_name).collect();
        let parked = async {
            if self.parked {
                release_parked(Arc::clone(&home), owner, in_tasks.clone()).await;
            }
            // The claim in flight may hang, and its leases may have been parked before or after the list was read.
            if let Some(claiming) = self.claiming {
                drop(claiming.await);
                release_parked(Arc::clone(&home), owner, in_tasks).await;
            }
        };
        let returning = process::give_all_back(&home, &self.returning);
        let tasks = release_of_tasks(&home, self.running, self.started);
        let ((), _, all_taken) = tokio::join!(parked, returning, tasks);
        if !all_taken {
            // A task that ended before it took its lease left the lease parked.
            release_parked(Arc::clone(&home), owner, Vec::new()).await;
        }
    }
}

/// Ends tasks and releases the lease of each when it has ended. Returns `true` if all tasks had taken their leases.
async fn release_of_tasks(
    home: &Home,
    mut running: JoinSet<Work>,
    mut started: HashMap<task::Id, Started>,
) -> bool {
    let mut all_taken = true;
    let mut releasing = FuturesUnordered::new();
    running.abort_all();
    loop {
        tokio::select! {
            Some(finished) = running.join_next_with_id() => {
                let id = finished.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
                if let Some(started) = started.remove(&id) {
                    all_taken &= started.offer.was_taken();
                    started.offer.leave();
                    let leases = started.leases().into_iter();
                    releasing.extend(leases.map(|lease| process::give_back(home, lease, Because::Dropped)));
                }
            }
            Some(_) = releasing.next() => {}
            else => return all_taken,
        }
    }
}

/// Releases the parked leases of an owner, except leases that its tasks may still take. Returns `false` if the leases are unknown.
pub(super) async fn release_parked(
    home: Arc<Home>,
    owner: LeaseOwner,
    in_tasks: Vec<LeaseName>,
) -> bool {
    let Some(ledger) = home.ledger() else {
        return true;
    };
    match in_time(parked(ledger, owner)).await {
        Ok(parked) => {
            let leases = parked.into_iter().map(|(lease, _)| lease);
            let is_in_task = |lease: &Lease| {
                let mut names = in_tasks.iter();
                names.any(|(run, token)| *run == lease.run && *token == lease.token)
            };
            let unused = leases.filter(|lease| !is_in_task(lease));
            let unused = unused.map(|lease| (lease, Because::Dropped));
            let unused: Vec<_> = unused.collect();
            process::give_all_back(&home, &unused).await;
            true
        }
        Err(error) => {
            tracing::warn!(code = error.code(), error = %Chain(&error), "cannot list the leases of a stopping worker; unreleased leases expire");
            false
        }
    }
}

impl Started {
    fn lease_name(&self) -> LeaseName {
        (self.run.clone(), self.token)
    }

    /// Returns the leases to release of a task that ended early: the leases of runs within its run, and its own. An at-most-once
    /// run keeps its lease once `execute` was called, because its outcome is unknown.
    pub(super) fn leases(&self) -> Vec<Lease> {
        let own = self.offer.lease();
        let own = own.filter(|_| !self.at_most_once || self.offer.is_unused());
        self.offer.leases_within().into_iter().chain(own).collect()
    }

    /// Returns the leases to release of a task that ended because the ledger did not answer its heartbeats, and the reason.
    pub(super) fn silent_leases(&self) -> Vec<(Lease, Because)> {
        let leases = self.leases().into_iter();
        let because = |lease: &Lease| {
            let is_own = lease.run == self.run && lease.token == self.token;
            Because::Silence {
                executed: !is_own || !self.offer.is_unused(),
            }
        };
        leases
            .map(|lease| (lease.clone(), because(&lease)))
            .collect()
    }
}

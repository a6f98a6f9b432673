//! The leases that are parked in one handle. To all others their rows are just running.

use crate::model::BreadcrumbId;
use crate::store::row::Row;
use crate::store::{LeaseOwner, RunRef};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Executor, trigger and version of a run.
pub(in crate::store) type Name = (Arc<str>, BreadcrumbId, u64);

/// A parked lease.
#[derive(Debug)]
struct Entry {
    /// Token and epoch.
    lease: (u64, u32),
    owner: LeaseOwner,
}

/// The parked leases by run. Clones share them.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct Parked(Arc<Mutex<HashMap<Name, Entry>>>);

impl Parked {
    pub(in crate::store) fn add(&self, leased: &[Row], owner: LeaseOwner) {
        let entry = |row: &Row| {
            let lease = (row.token, row.epoch);
            (name(&row.run), Entry { lease, owner })
        };
        self.lock().extend(leased.iter().map(entry));
    }

    pub(in crate::store) fn contains(&self, run: &RunRef) -> bool {
        self.lock().contains_key(&name(run))
    }

    /// Takes a lease out; false if it is not the one that is parked.
    pub(in crate::store) fn take(&self, run: &RunRef, token: u64, epoch: u32) -> bool {
        let name = name(run);
        let mut parked = self.lock();
        let entry = parked.get(&name);
        let is_parked = entry.is_some_and(|entry| entry.lease == (token, epoch));
        if is_parked {
            parked.remove(&name);
        }
        is_parked
    }

    /// Returns token and epoch of the parked leases: those of one owner, or all.
    pub(in crate::store) fn of(&self, owner: Option<LeaseOwner>) -> HashMap<Name, (u64, u32)> {
        let parked = self.lock();
        let selected = parked
            .iter()
            .filter(|(_, entry)| owner.is_none_or(|owner| owner == entry.owner));
        selected
            .map(|(name, entry)| (name.clone(), entry.lease))
            .collect()
    }

    /// Removes the leases that were in `before` and are not `still` parked, because another worker has the run or it is
    /// over.
    pub(in crate::store) fn keep(&self, before: &HashMap<Name, (u64, u32)>, still: &HashSet<Name>) {
        self.lock()
            .retain(|name, entry| before.get(name) != Some(&entry.lease) || still.contains(name));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(in crate::store) fn name(run: &RunRef) -> Name {
    (
        Arc::clone(&run.executor),
        run.trigger_id,
        run.trigger_version,
    )
}

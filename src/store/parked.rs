//! The leases that are parked in one handle. To all others their rows are just running.

use crate::model::BreadcrumbId;
use crate::store::RunRef;
use crate::store::row::Row;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Executor, trigger and version of a run.
pub(in crate::store) type Name = (Arc<str>, BreadcrumbId, u64);

/// Token and epoch of each lease that is parked; a clone is the same.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct Parked(Arc<Mutex<HashMap<Name, (u64, u32)>>>);

impl Parked {
    pub(in crate::store) fn add<'r>(&self, leased: impl Iterator<Item = &'r Row>) {
        let leased = leased.map(|row| (name(&row.run), (row.token, row.epoch)));
        self.lock().extend(leased);
    }

    pub(in crate::store) fn contains(&self, run: &RunRef) -> bool {
        self.lock().contains_key(&name(run))
    }

    /// Takes a lease out; false if it is not the one that is parked.
    pub(in crate::store) fn take(&self, run: &RunRef, token: u64, epoch: u32) -> bool {
        let name = name(run);
        let mut parked = self.lock();
        let is_parked = parked.get(&name) == Some(&(token, epoch));
        if is_parked {
            parked.remove(&name);
        }
        is_parked
    }

    /// What is parked now.
    pub(in crate::store) fn all(&self) -> HashMap<Name, (u64, u32)> {
        self.lock().clone()
    }

    /// Takes out what is not parked any more, as others have it or it is over. What was parked meanwhile stays.
    pub(in crate::store) fn keep(&self, before: &HashMap<Name, (u64, u32)>, still: &HashSet<Name>) {
        self.lock()
            .retain(|name, lease| before.get(name) != Some(lease) || still.contains(name));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, (u64, u32)>> {
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

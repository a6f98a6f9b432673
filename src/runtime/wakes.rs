//! What the suspended runs of one store wait for.

use crate::model::{Breadcrumb, Event, Selector, SelectorIndex, Timestamp};
use crate::store::{Run, RunRef};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A suspended run.
#[derive(Debug)]
pub(super) struct Sleeper {
    pub(super) run: RunRef,
    pub(super) selectors: Vec<Selector>,
    /// Since when it is suspended, which tells its suspensions apart.
    pub(super) since: Timestamp,
    /// What was committed after this wakes it.
    pub(super) after: Timestamp,
}

impl Sleeper {
    /// The sleeper that a row of the ledger is, if a breadcrumb can wake it.
    pub(super) fn of(run: Run) -> Option<Self> {
        let (wake, since) = (run.wake?, run.suspended_at?);
        (!wake.selectors.is_empty()).then_some(Self {
            run: run.run,
            after: wake.since.map_or(since, |time| time.min(since)),
            selectors: wake.selectors,
            since,
        })
    }

    /// Whether a breadcrumb, read from the store, is what it waits for.
    pub(super) fn wakes_on(&self, breadcrumb: &Breadcrumb) -> bool {
        breadcrumb.updated_at > self.after
            && self
                .selectors
                .iter()
                .any(|selector| selector.matches(breadcrumb))
    }
}

/// The suspended runs of one store, found by what they wait for.
#[derive(Debug, Default)]
pub(super) struct Wakes(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    index: SelectorIndex<u64>,
    by_number: HashMap<u64, Arc<Sleeper>>,
    by_run: HashMap<RunRef, Vec<u64>>,
    next: u64,
}

impl Wakes {
    /// How many runs are kept here; what is beyond is found by the sweep alone.
    pub(super) const MOST: usize = 100_000;

    /// Keeps a sleeper, if there is room; false if it, or a later suspension of its run, is kept already.
    pub(super) fn insert(&self, sleeper: &Arc<Sleeper>) -> bool {
        let mut open = self.open();
        if open.since(&sleeper.run) >= Some(sleeper.since) {
            return false;
        }
        open.remove(&sleeper.run);
        if open.by_run.len() >= Self::MOST {
            return true;
        }
        let first = open.next;
        let mut numbers = Vec::with_capacity(sleeper.selectors.len());
        for (number, selector) in (first..).zip(&sleeper.selectors) {
            open.index.insert(number, selector);
            open.by_number.insert(number, Arc::clone(sleeper));
            open.next = number + 1;
            numbers.push(number);
        }
        open.by_run.insert(sleeper.run.clone(), numbers);
        true
    }

    pub(super) fn remove(&self, run: &RunRef) {
        self.open().remove(run);
    }

    /// Forgets a sleeper, unless a later suspension of its run is kept by now.
    pub(super) fn forget(&self, sleeper: &Sleeper) {
        let mut open = self.open();
        if open.since(&sleeper.run) == Some(sleeper.since) {
            open.remove(&sleeper.run);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open().by_run.is_empty()
    }

    /// Returns `true` if this is the stored suspension of its run.
    pub(super) fn keeps(&self, sleeper: &Sleeper) -> bool {
        self.open().since(&sleeper.run) == Some(sleeper.since)
    }

    /// All that are kept.
    pub(super) fn all(&self) -> Vec<Arc<Sleeper>> {
        let open = self.open();
        let first = |numbers: &Vec<u64>| open.by_number.get(numbers.first()?).cloned();
        open.by_run.values().filter_map(first).collect()
    }

    /// The sleepers that an event may wake.
    pub(super) fn concerned(&self, event: &Event) -> Vec<Arc<Sleeper>> {
        let open = self.open();
        if open.by_run.is_empty() {
            return Vec::new();
        }
        let mut found: Vec<Arc<Sleeper>> = Vec::new();
        for number in open.index.matching(event) {
            if let Some(sleeper) = open.by_number.get(&number)
                && !found.iter().any(|known| Arc::ptr_eq(known, sleeper))
            {
                found.push(Arc::clone(sleeper));
            }
        }
        found
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// When a run was suspended, if it is kept.
    fn since(&self, run: &RunRef) -> Option<Timestamp> {
        let number = self.by_run.get(run)?.first()?;
        self.by_number.get(number).map(|known| known.since)
    }

    fn remove(&mut self, run: &RunRef) {
        for number in self.by_run.remove(run).unwrap_or_default() {
            let Some(sleeper) = self.by_number.remove(&number) else {
                continue;
            };
            for selector in &sleeper.selectors {
                self.index.remove(number, selector);
            }
        }
    }
}

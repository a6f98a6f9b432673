//! Index of suspended runs that stores the selectors of the runs.

use super::{SuspendedRun, WakeCandidate};
use crate::model::{Event, Selector, SelectorIndex, Timestamp};
use crate::store::RunRef;
use std::collections::HashMap;
use std::sync::Arc;

/// Suspended runs, indexed by the selectors of the breadcrumbs that wake them.
#[derive(Debug, Default)]
pub(super) struct Exact {
    index: SelectorIndex<u64>,
    by_number: HashMap<u64, Arc<SuspendedRun>>,
    by_run: HashMap<RunRef, ExactEntry>,
    next: u64,
}

#[derive(Debug)]
struct ExactEntry {
    /// Identifiers of the run's selectors in the selector index.
    numbers: Vec<u64>,
    since: Timestamp,
    /// Sequence number of the last check that listed the run as suspended.
    check: u32,
}

impl Exact {
    /// Adds a run to this index of suspended runs, which does not contain the run yet.
    pub(super) fn insert(&mut self, suspended_run: &Arc<SuspendedRun>, check: u32) {
        let mut numbers = Vec::with_capacity(suspended_run.selectors.len());
        for (number, selector) in (self.next..).zip(&suspended_run.selectors) {
            self.index.insert(number, selector);
            self.by_number.insert(number, Arc::clone(suspended_run));
            self.next = number + 1;
            numbers.push(number);
        }
        let entry = ExactEntry {
            numbers,
            since: suspended_run.since,
            check,
        };
        self.by_run.insert(suspended_run.run.clone(), entry);
    }

    /// Returns the number of suspended runs in the index.
    pub(super) fn len(&self) -> usize {
        self.by_run.len()
    }

    /// Returns the time at which a run was suspended, or `None` if the run is not in this index of
    /// suspended runs.
    pub(super) fn since(&self, run: &RunRef) -> Option<Timestamp> {
        self.by_run.get(run).map(|entry| entry.since)
    }

    /// Records that a check of all suspended runs listed a run.
    pub(super) fn confirm(&mut self, run: &RunRef, check: u32) {
        if let Some(entry) = self.by_run.get_mut(run) {
            entry.check = check;
        }
    }

    /// Removes a run from this index of suspended runs. Returns `true` if the run was stored.
    pub(super) fn remove(&mut self, run: &RunRef) -> bool {
        let Some(entry) = self.by_run.remove(run) else {
            return false;
        };
        for number in entry.numbers {
            let Some(suspended_run) = self.by_number.remove(&number) else {
                continue;
            };
            for selector in &suspended_run.selectors {
                self.index.remove(number, selector);
            }
        }
        true
    }

    /// Removes the suspended runs that the last check of all suspended runs did not list.
    pub(super) fn retain(&mut self, check: u32) {
        let unlisted = self.by_run.iter().filter(|(_, entry)| entry.check != check);
        let unlisted: Vec<RunRef> = unlisted.map(|(run, _)| run.clone()).collect();
        for run in unlisted {
            self.remove(&run);
        }
    }

    /// Returns the suspended runs that an event may wake.
    pub(super) fn find(&self, event: &Event) -> Vec<WakeCandidate> {
        let mut found: Vec<WakeCandidate> = Vec::new();
        if self.by_run.is_empty() {
            return found;
        }
        let mut last: Option<&Arc<SuspendedRun>> = None;
        for number in self.index.matching(event) {
            let Some(suspended_run) = self.by_number.get(&number) else {
                continue;
            };
            // The selectors of a run have consecutive numbers.
            if last.is_none_or(|last| !Arc::ptr_eq(last, suspended_run)) {
                found.push(WakeCandidate {
                    run: suspended_run.run.clone(),
                    since: suspended_run.since,
                });
            }
            last = Some(suspended_run);
        }
        found
    }

    pub(super) fn selectors(&self) -> Vec<Selector> {
        let suspended_runs = self.by_run.values().filter_map(|entry| {
            let number = entry.numbers.first()?;
            self.by_number.get(number)
        });
        let selectors =
            suspended_runs.flat_map(|suspended_run| suspended_run.selectors.iter().cloned());
        selectors.collect()
    }
}

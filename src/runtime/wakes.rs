//! Suspended runs of one store, indexed by the breadcrumbs that they wait for.

mod compact;
mod exact;
mod interned;

use self::compact::Compact;
use self::exact::Exact;
use crate::model::{Breadcrumb, Event, Selector, Timestamp};
use crate::store::{Run, RunRef};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A suspended run that breadcrumbs can wake.
#[derive(Debug)]
pub(super) struct SuspendedRun {
    pub(super) run: RunRef,
    pub(super) selectors: Vec<Selector>,
    /// Time of the suspension, which distinguishes the suspensions of a run.
    pub(super) since: Timestamp,
    /// Only breadcrumbs that were committed after this time wake the run.
    pub(super) after: Timestamp,
}

impl SuspendedRun {
    /// Returns a run of the ledger as a suspended run with its wake selectors, or `None` if no breadcrumb can wake the run.
    pub(super) fn of(run: Run) -> Option<Self> {
        let (wake, since) = (run.wake?, run.suspended_at?);
        (!wake.selectors.is_empty()).then_some(Self {
            run: run.run,
            after: wake.since.map_or(since, |time| time.min(since)),
            selectors: wake.selectors,
            since,
        })
    }

    /// Returns `true` if a stored breadcrumb wakes the suspended run.
    pub(super) fn wakes_on(&self, breadcrumb: &Breadcrumb) -> bool {
        let is_selected = |selector: &Selector| selector.matches(breadcrumb);
        breadcrumb.updated_at > self.after && self.selectors.iter().any(is_selected)
    }
}

/// A suspended run that an event may wake. The row of the run in the ledger decides.
#[derive(Clone, Debug)]
pub(super) struct WakeCandidate {
    pub(super) run: RunRef,
    /// Time at which the run was suspended.
    pub(super) since: Timestamp,
}

/// Result of adding a suspended run to the index of a store's suspended runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Inserted {
    Added,
    /// The index of suspended runs already contains this suspension of the run, or a later suspension of the same run.
    Known,
    /// The index has the maximum number of suspended runs, so it does not store the selectors of this run.
    Full,
}

/// The suspended runs of one store, indexed by the breadcrumbs that they wait for.
///
/// The first runs are stored with their selectors, and further runs in a compact form. Runs without a compact form are always
/// stored with their selectors.
#[derive(Debug)]
pub(super) struct WakeIndex(Mutex<WakeIndexState>);

#[derive(Debug, Default)]
struct WakeIndexState {
    /// Number of suspended runs whose complete selectors the index stores. The index stores further runs with one hash for each
    /// selector.
    exact_limit: usize,
    exact: Exact,
    compact: Compact,
    /// Sequence number of the last check of all suspended runs.
    check: u32,
    /// Number of suspended runs that did not fit in the index and for whose answers the checks have already searched the store.
    /// The next check continues with the following runs. 0 after a search for the last run.
    search_offset: usize,
    /// Commit time after which one search must read the store for the suspended runs whose answers no check searched for
    /// individually. `None` if there are no such runs.
    unsearched: Option<Timestamp>,
}

impl Default for WakeIndex {
    fn default() -> Self {
        Self::with_exact_limit(1_000)
    }
}

impl WakeIndex {
    /// Maximum number of suspended runs whose complete selectors the index stores.
    const MAX_EXACT: usize = 100_000;

    /// Maximum number of selectors in the compact index of suspended runs.
    const MAX_SELECTORS: usize = 4_000_000;

    /// Creates an index that stores the complete selectors of the first `exact_limit` suspended runs. Further runs are stored
    /// with one hash for each selector.
    fn with_exact_limit(exact_limit: usize) -> Self {
        let state = WakeIndexState {
            exact_limit,
            ..WakeIndexState::default()
        };
        Self(Mutex::new(state))
    }

    /// Adds a suspended run to this index of the store's suspended runs.
    pub(super) fn insert(&self, suspended_run: &Arc<SuspendedRun>) -> Inserted {
        let mut state = self.state();
        let check = state.check;
        if state.since(&suspended_run.run) >= Some(suspended_run.since) {
            state.exact.confirm(&suspended_run.run, check);
            state.compact.confirm(&suspended_run.run, check);
            return Inserted::Known;
        }
        state.remove(&suspended_run.run);
        let selectors = state.compact.len() + suspended_run.selectors.len();
        let is_compact = state.exact.len() >= state.exact_limit
            && selectors <= Self::MAX_SELECTORS
            && state.compact.insert(suspended_run, check);
        if is_compact {
            return Inserted::Added;
        }
        if state.exact.len() >= Self::MAX_EXACT {
            return Inserted::Full;
        }
        state.exact.insert(suspended_run, check);
        Inserted::Added
    }

    pub(super) fn remove(&self, run: &RunRef) {
        self.state().remove(run);
    }

    /// Removes a suspension of a run from this index of suspended runs, unless the index has a later suspension of the run.
    pub(super) fn forget(&self, run: &RunRef, since: Timestamp) {
        let mut state = self.state();
        if state.since(run) == Some(since) {
            state.remove(run);
        }
    }

    /// Removes all runs that an event may wake from this index of suspended runs.
    pub(super) fn forget_concerned(&self, event: &Event) {
        let mut state = self.state();
        for candidate in state.concerned(event) {
            state.remove(&candidate.run);
        }
        if let (None, Some(schema)) = (&event.context, &event.schema_name) {
            state.compact.forget_context_comparisons(schema);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let state = self.state();
        state.exact.len() + state.compact.len() == 0
    }

    /// Returns selectors that match every breadcrumb that may wake a suspended run.
    pub(super) fn selectors(&self) -> Vec<Selector> {
        let state = self.state();
        let mut selectors = state.exact.selectors();
        selectors.extend(state.compact.selectors());
        selectors
    }

    /// Returns `true` if an event may wake a suspended run.
    pub(super) fn concerns(&self, event: &Event) -> bool {
        let state = self.state();
        state.exact.len() + state.compact.len() > 0
            && (!state.concerned(event).is_empty() || !state.compact.find(event, &mut Vec::new()))
    }

    /// Returns the suspended runs that a stored breadcrumb may wake.
    pub(super) fn concerned(&self, found: &Breadcrumb) -> Vec<WakeCandidate> {
        // An event lacks a context above the limit for events.
        let event = Event {
            context: Some(found.context.clone()),
            ..Event::updated(found)
        };
        self.state().concerned(&event)
    }

    /// Prepares the index for a check of all suspended runs, in which the caller [inserts](Self::insert) all runs that the ledger
    /// lists.
    pub(super) fn begin_check(&self) {
        let mut state = self.state();
        state.check = state.check.wrapping_add(1);
    }

    /// Ends a check of all suspended runs: removes the runs that were neither added to the index nor confirmed since the start of
    /// the check.
    pub(super) fn end_check(&self) {
        /// Number of index entries that the cleanup after a check of all suspended runs inspects while it holds the lock.
        const STEP: usize = 16_384;
        let check = {
            let mut state = self.state();
            let check = state.check;
            state.exact.retain(check);
            check
        };
        let mut next = Some(0);
        while let Some(start) = next {
            next = self.state().compact.retain(check, start, STEP);
        }
    }

    /// Returns the number of suspended runs that did not fit in the index and for whose answers the checks have already searched
    /// the store. The next check continues with the following runs.
    pub(super) fn search_offset(&self) -> usize {
        self.state().search_offset
    }

    /// Sets the number of suspended runs that did not fit in the index and for whose answers the checks have already searched the
    /// store.
    pub(super) fn set_search_offset(&self, search_offset: usize) {
        self.state().search_offset = search_offset;
    }

    /// Requests a later search of the store, in the commits after `after`, for breadcrumbs that suspended runs wait for.
    pub(super) fn note_unsearched(&self, after: Timestamp) {
        let mut state = self.state();
        let earlier = state.unsearched.map_or(after, |time| time.min(after));
        state.unsearched = Some(earlier);
    }

    /// Returns the commit time after which a requested search must read the store for breadcrumbs that suspended runs wait for,
    /// and clears the request. `None` if no search is requested.
    pub(super) fn take_unsearched(&self) -> Option<Timestamp> {
        self.state().unsearched.take()
    }

    fn state(&self) -> MutexGuard<'_, WakeIndexState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WakeIndexState {
    fn since(&self, run: &RunRef) -> Option<Timestamp> {
        let exact = self.exact.since(run);
        exact.or_else(|| self.compact.since(run))
    }

    fn remove(&mut self, run: &RunRef) {
        if !self.exact.remove(run) {
            self.compact.remove(run);
        }
    }

    fn concerned(&self, event: &Event) -> Vec<WakeCandidate> {
        let mut found = self.exact.find(event);
        self.compact.find(event, &mut found);
        found
    }
}

#[cfg(test)]
mod tests;

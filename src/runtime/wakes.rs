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
pub(super) struct Sleeper {
    pub(super) run: RunRef,
    pub(super) selectors: Vec<Selector>,
    /// Time of the suspension, which distinguishes the suspensions of a run.
    pub(super) since: Timestamp,
    /// Only breadcrumbs that were committed after this time wake the run.
    pub(super) after: Timestamp,
}

impl Sleeper {
    /// Converts a ledger row into a suspended run. Returns `None` if no breadcrumb can wake the run.
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
pub(super) struct Candidate {
    pub(super) run: RunRef,
    /// Time at which the run was suspended.
    pub(super) since: Timestamp,
}

/// Result of adding a suspended run to the index.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Inserted {
    Added,
    /// The index already contains this suspension of the run, or a later suspension of the same run.
    Known,
    /// The limit on suspended runs in the index is reached.
    Full,
}

/// The suspended runs of one store, indexed by the breadcrumbs that they wait for.
///
/// The first runs are stored with their selectors, and further runs in a compact form. Runs without a compact form are always
/// stored with their selectors.
#[derive(Debug)]
pub(super) struct Wakes(Mutex<Stored>);

#[derive(Debug, Default)]
struct Stored {
    /// Number of suspended runs that are stored with their selectors. The index stores further runs with one hash for each selector.
    few: usize,
    exact: Exact,
    compact: Compact,
    /// Sequence number of the last check of all suspended runs.
    check: u32,
    /// Position in the list of unindexed suspended runs at which the next check starts to search for answers. Earlier checks have searched
    /// for the answers of the runs before this position.
    beyond: usize,
    /// Commit time after which the joint search reads the store. The joint search covers the suspended runs without an individual search.
    /// `None` if there are no such runs.
    unsearched: Option<Timestamp>,
}

impl Default for Wakes {
    fn default() -> Self {
        Self::storing(1_000)
    }
}

impl Wakes {
    /// Maximum number of suspended runs that are stored with their selectors.
    const MOST_EXACT: usize = 100_000;

    /// Maximum number of selectors in the compact index of suspended runs.
    const MOST: usize = 4_000_000;

    /// Creates an index that stores the first `few` suspended runs with their selectors. Further runs are stored with one hash for each
    /// selector.
    fn storing(few: usize) -> Self {
        let stored = Stored {
            few,
            ..Stored::default()
        };
        Self(Mutex::new(stored))
    }

    /// Adds a suspended run to the index.
    pub(super) fn insert(&self, sleeper: &Arc<Sleeper>) -> Inserted {
        let mut stored = self.stored();
        let check = stored.check;
        if stored.since(&sleeper.run) >= Some(sleeper.since) {
            stored.exact.confirm(&sleeper.run, check);
            stored.compact.confirm(&sleeper.run, check);
            return Inserted::Known;
        }
        stored.remove(&sleeper.run);
        let selectors = stored.compact.len() + sleeper.selectors.len();
        let is_compact = stored.exact.len() >= stored.few
            && selectors <= Self::MOST
            && stored.compact.insert(sleeper, check);
        if is_compact {
            return Inserted::Added;
        }
        if stored.exact.len() >= Self::MOST_EXACT {
            return Inserted::Full;
        }
        stored.exact.insert(sleeper, check);
        Inserted::Added
    }

    pub(super) fn remove(&self, run: &RunRef) {
        self.stored().remove(run);
    }

    /// Removes a suspension of a run from the index, unless a later suspension of the run is stored.
    pub(super) fn forget(&self, run: &RunRef, since: Timestamp) {
        let mut stored = self.stored();
        if stored.since(run) == Some(since) {
            stored.remove(run);
        }
    }

    /// Removes from the index all suspended runs that an event may wake.
    pub(super) fn forget_concerned(&self, event: &Event) {
        let mut stored = self.stored();
        for candidate in stored.concerned(event) {
            stored.remove(&candidate.run);
        }
        if let (None, Some(schema)) = (&event.context, &event.schema_name) {
            stored.compact.forget_tests_of_context(schema);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let stored = self.stored();
        stored.exact.len() + stored.compact.len() == 0
    }

    /// Returns selectors that match every breadcrumb that may wake a suspended run.
    pub(super) fn selectors(&self) -> Vec<Selector> {
        let stored = self.stored();
        let mut selectors = stored.exact.selectors();
        selectors.extend(stored.compact.selectors());
        selectors
    }

    /// Returns `true` if an event may wake a suspended run.
    pub(super) fn concerns(&self, event: &Event) -> bool {
        let stored = self.stored();
        stored.exact.len() + stored.compact.len() > 0
            && (!stored.concerned(event).is_empty() || !stored.compact.find(event, &mut Vec::new()))
    }

    /// Returns the suspended runs that a stored breadcrumb may wake.
    pub(super) fn concerned(&self, found: &Breadcrumb) -> Vec<Candidate> {
        // An event lacks a context above the limit for events.
        let event = Event {
            context: Some(found.context.clone()),
            ..Event::updated(found)
        };
        self.stored().concerned(&event)
    }

    /// Starts a check of all suspended runs. The caller [inserts](Self::insert) all runs that the ledger lists.
    pub(super) fn begin_check(&self) {
        let mut stored = self.stored();
        stored.check = stored.check.wrapping_add(1);
    }

    /// Ends a check of all suspended runs. Removes the runs that were not added or confirmed after the start of the check.
    pub(super) fn end_check(&self) {
        /// Number of index entries that are checked under one lock.
        const STEP: usize = 16_384;
        let check = {
            let mut stored = self.stored();
            let check = stored.check;
            stored.exact.retain(check);
            check
        };
        let mut next = Some(0);
        while let Some(start) = next {
            next = self.stored().compact.retain(check, start, STEP);
        }
    }

    /// Returns the position in the list of unindexed suspended runs at which the next check starts to search for answers. Earlier checks
    /// have searched for the answers of the runs before this position.
    pub(super) fn beyond(&self) -> usize {
        self.stored().beyond
    }

    /// Sets the position in the list of unindexed suspended runs at which the next check starts to search for answers.
    pub(super) fn pass_over(&self, beyond: usize) {
        self.stored().beyond = beyond;
    }

    /// Records that the store has to be searched for breadcrumbs that suspended runs wait for. The search covers commits after `after`.
    pub(super) fn note_unsearched(&self, after: Timestamp) {
        let mut stored = self.stored();
        let earlier = stored.unsearched.map_or(after, |time| time.min(after));
        stored.unsearched = Some(earlier);
    }

    /// Removes and returns the commit time that [`note_unsearched`](Self::note_unsearched) recorded. The store has to be searched for later
    /// commits.
    pub(super) fn take_unsearched(&self) -> Option<Timestamp> {
        self.stored().unsearched.take()
    }

    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stored {
    fn since(&self, run: &RunRef) -> Option<Timestamp> {
        let exact = self.exact.since(run);
        exact.or_else(|| self.compact.since(run))
    }

    fn remove(&mut self, run: &RunRef) {
        if !self.exact.remove(run) {
            self.compact.remove(run);
        }
    }

    fn concerned(&self, event: &Event) -> Vec<Candidate> {
        let mut found = self.exact.find(event);
        self.compact.find(event, &mut found);
        found
    }
}

#[cfg(test)]
mod tests;

//! Read position of an executor: the intervals of commit time in which some triggers may have no run in the ledger. Pure.
//!
//! A position states a fact about the ledger: every trigger committed outside of the unread intervals has its runs there. So
//! two positions of one executor from any workers can be [merged](Position::merge): a trigger is unread if both positions
//! count it as unread. Unnecessary unread intervals are harmless, because enqueuing a run twice has no effect.

mod intervals;
#[cfg(test)]
mod tests;

use self::intervals::Intervals;
use crate::model::Timestamp;
use std::time::Duration;

/// Version of the byte format in which an executor's read position is saved.
const FORMAT: u8 = 1;

/// Maximum number of unread intervals of commit time that are saved of an executor's read position. Above it, the intervals with
/// the smallest distance are joined.
const MAX_SAVED: usize = 32;

/// Maximum number of unread intervals of commit time in an executor's read position in memory. A sweep leaves one unread interval
/// for each trigger that cannot be read.
const MAX_IN_MEMORY: usize = 1_000;

/// An interval of time: after the first timestamp, up to and including the second.
pub(super) type Range = (Timestamp, Timestamp);

/// The read position of an executor: the intervals of commit time whose triggers possibly have no runs in the ledger yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Position {
    /// Exclusive lower bound of the commit times of the executor's triggers. Breadcrumbs up to this time start no run.
    since: i64,
    /// The intervals of time with unread triggers. The last one has no end: it contains everything after the newest trigger that was read.
    unread: Intervals,
}

impl Position {
    /// Creates the read position of an executor that starts after `since` and has read nothing after `unread_after`.
    pub(super) fn starting(since: Timestamp, unread_after: Timestamp) -> Self {
        let mut unread = Intervals::default();
        unread.add((unread_after.as_micros().max(since.as_micros()), i64::MAX));
        Self {
            since: since.as_micros(),
            unread,
        }
    }

    /// Returns the exclusive lower bound of the commit times of the executor's triggers.
    pub(super) fn since(&self) -> Timestamp {
        Timestamp::from_micros(self.since)
    }

    /// Returns the start of the first interval of time with unread triggers.
    pub(super) fn unread_after(&self) -> Timestamp {
        let first = self.unread.iter().next();
        Timestamp::from_micros(first.map_or(self.since, |(after, _)| after))
    }

    /// Returns `true` if a trigger with the commit time `time` has its run in the ledger. Also returns `true` for a commit time before the
    /// executor's start.
    pub(super) fn has_read(&self, time: Timestamp) -> bool {
        let time = time.as_micros();
        let mut unread = self.unread.iter();
        time <= self.since || !unread.any(|(after, to)| after < time && time <= to)
    }

    /// Returns the start of the last interval of time with unread triggers. No trigger after this time was read.
    pub(super) fn up_to(&self) -> Timestamp {
        Timestamp::from_micros(self.unread.last().map_or(self.since, |(after, _)| after))
    }

    /// Returns `true` if at most one interval of commit time has unread triggers.
    pub(super) fn is_contiguous(&self) -> bool {
        self.unread.len() <= 1
    }

    /// Returns the intervals of commit time with unread triggers up to a time, oldest first.
    pub(super) fn unread_to(&self, to: Timestamp) -> Vec<Range> {
        self.unread.up_to(to.as_micros()).ranges()
    }

    /// Returns the intervals of commit time that a sweep of the store has to read up to the time `to`, oldest first. These are
    /// the unread intervals, and the interval of length `overlap` before [`up_to`](Self::up_to). The overlap is read again
    /// because a commit can become visible later than newer commits.
    pub(super) fn to_read(&self, to: Timestamp, overlap: Duration) -> Vec<Range> {
        let overlap = i64::try_from(overlap.as_micros()).unwrap_or(i64::MAX);
        let up_to = self.up_to().as_micros().min(to.as_micros());
        let mut ranges = self.unread.up_to(to.as_micros());
        ranges.add((up_to.saturating_sub(overlap).max(self.since), up_to));
        ranges.ranges()
    }

    /// Marks the triggers of an interval of commit time as read, because their runs are in the ledger.
    pub(super) fn mark_read(&mut self, (after, to): Range) {
        // The last interval must remain without an end.
        self.unread
            .remove((after.as_micros(), to.as_micros().min(i64::MAX - 1)));
        self.unread.join_newer_to(MAX_IN_MEMORY);
    }

    /// Counts all triggers after a time as unread again.
    pub(super) fn mark_unread_after(&mut self, after: Timestamp) {
        self.unread
            .add((after.as_micros().max(self.since), i64::MAX));
    }

    /// Counts the triggers of some intervals as unread again.
    pub(super) fn mark_unread(&mut self, ranges: impl IntoIterator<Item = Range>) {
        for (after, to) in ranges {
            self.unread
                .add((after.as_micros().max(self.since), to.as_micros()));
        }
        self.unread.join_to(MAX_SAVED);
    }

    /// Adds unread intervals to the read position of an executor, and returns the changed position.
    pub(super) fn with_unread(mut self, ranges: impl IntoIterator<Item = Range>) -> Self {
        self.mark_unread(ranges);
        self
    }

    /// Merges two read positions of one executor: a trigger is unread if both positions count it as unread. There are two
    /// exceptions:
    ///
    /// - Up to the later of the two starts, the position with the earlier start decides, because the other one has read nothing there.
    /// - After `missed_after`, this position decides, because only this one contains the events that were missed.
    pub(super) fn merge(&self, other: &Self, missed_after: Option<Timestamp>) -> Self {
        let mut unread = self.unread.common(&other.unread);
        let (first, later) = match self.since <= other.since {
            true => (self, other.since),
            false => (other, self.since),
        };
        for range in first.unread.up_to(later).iter() {
            unread.add(range);
        }
        if let Some(after) = missed_after {
            let mut missed = self.unread.clone();
            missed.remove((i64::MIN, after.as_micros()));
            for range in missed.iter() {
                unread.add(range);
            }
        }
        unread.join_to(MAX_SAVED);
        Self {
            since: self.since.min(other.since),
            unread,
        }
    }

    /// Returns the read position that several executors share: a trigger is unread if at least one executor counts it as unread.
    pub(super) fn combine(&self, other: &Self) -> Self {
        let mut unread = self.unread.clone();
        for range in other.unread.iter() {
            unread.add(range);
        }
        unread.join_to(MAX_SAVED);
        Self {
            since: self.since.min(other.since),
            unread,
        }
    }

    /// Returns a copy of the read position for an executor that starts after `since`. The copy contains only the unread intervals
    /// after `since`.
    pub(super) fn with_since(&self, since: Timestamp) -> Self {
        let since = since.as_micros();
        let mut unread = self.unread.clone();
        unread.remove((i64::MIN, since));
        Self { since, unread }
    }

    /// Returns the executor's read position as the bytes that the run ledger saves, at most
    /// [`SavedPosition::MAX_BYTES`](crate::store::SavedPosition::MAX_BYTES).
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut unread = self.unread.clone();
        unread.join_to(MAX_SAVED);
        let mut bytes = vec![FORMAT];
        bytes.extend(self.since.to_be_bytes());
        for (after, to) in unread.iter() {
            bytes.extend(after.to_be_bytes());
            bytes.extend(to.to_be_bytes());
        }
        bytes
    }

    /// Parses an executor's read position from the bytes that the run ledger saves. Returns `None` if the bytes have another
    /// format or are damaged.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&FORMAT, rest) = bytes.split_first()? else {
            return None;
        };
        let (numbers, []) = rest.as_chunks::<8>() else {
            return None;
        };
        let (&since, ends) = numbers.split_first()?;
        let since = i64::from_be_bytes(since);
        let (pairs, []) = ends.as_chunks::<2>() else {
            return None;
        };
        let mut unread = Intervals::default();
        for [after, to] in pairs {
            unread.add((i64::from_be_bytes(*after), i64::from_be_bytes(*to)));
        }
        let has_end = unread.last().is_some_and(|(_, to)| to == i64::MAX);
        let is_short = unread.len() <= MAX_SAVED && unread.len() == pairs.len();
        (has_end && is_short).then_some(Self { since, unread })
    }
}

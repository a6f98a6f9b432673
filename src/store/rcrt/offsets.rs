//! Cache of row offsets in the RCRT server's breadcrumb lists, at which later searches start instead of at the top. A search
//! starts at the offset at which the last search of the list stopped.

use crate::model::Timestamp;
use reqwest::Url;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of breadcrumb lists in the cache of offsets. The cache is cleared when it has this number.
const MOST: usize = 256;

/// Maximum number of cached offsets of one breadcrumb list. Searches in several time intervals of a list can alternate, and each
/// interval needs its own offset.
const MOST_OF_LIST: usize = 8;

/// Cached offsets of each breadcrumb list. Each offset comes with the update time of its row.
#[derive(Debug, Default)]
pub(super) struct Offsets(Mutex<HashMap<Url, Vec<(Timestamp, usize)>>>);

impl Offsets {
    /// Returns the cached row offset at which a search for rows that are not newer than `before` should start, or 0 without a
    /// suitable offset. The row at the offset was newer than `before` when the offset was cached. Rows may have moved since.
    pub(super) fn of(&self, list: &Url, before: Timestamp) -> usize {
        let offsets = self.lock();
        offsets
            .get(list)
            .map_or(0, |offsets| nearest(offsets, before))
    }

    /// Caches an offset in a breadcrumb list, with the update time of the row at this offset.
    pub(super) fn record(&self, list: &Url, time: Timestamp, offset: usize) {
        let mut offsets = self.lock();
        if offsets.len() >= MOST && !offsets.contains_key(list) {
            offsets.clear();
        }
        insert_offset(offsets.entry(list.clone()).or_default(), time, offset);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Url, Vec<(Timestamp, usize)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the cached offset whose row is newer than `before` and closest to that time. Returns 0 if no cached row is newer.
fn nearest(offsets: &[(Timestamp, usize)], before: Timestamp) -> usize {
    let newer = offsets.iter().filter(|(time, _)| *time > before);
    let last = newer.min_by_key(|(time, _)| *time);
    last.map_or(0, |(_, offset)| *offset)
}

/// Adds an offset to the cached offsets of a list. The new offset replaces the cached offset from which the same search started.
fn insert_offset(offsets: &mut Vec<(Timestamp, usize)>, time: Timestamp, offset: usize) {
    let newer = offsets.iter_mut().filter(|(other, _)| *other >= time);
    match newer.min_by_key(|(other, _)| *other) {
        Some(start) => *start = (time, offset),
        None => offsets.push((time, offset)),
    }
    if offsets.len() > MOST_OF_LIST {
        offsets.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: usize) -> Timestamp {
        Timestamp::from_micros(1_000_000 - i64::try_from(n).unwrap())
    }

    #[test]
    fn two_intervals_that_are_read_alternately_keep_an_offset_each() {
        let mut offsets = Vec::new();
        for page in 1..20 {
            for offset in [page * 10, 5_000 + page * 100] {
                insert_offset(&mut offsets, at(offset), offset);
            }
        }

        assert_eq!(nearest(&offsets, at(195)), 190);
        assert_eq!(nearest(&offsets, at(9_000)), 6_900);
        assert_eq!(nearest(&offsets, at(3)), 0);
        assert!(offsets.len() <= MOST_OF_LIST);
    }
}

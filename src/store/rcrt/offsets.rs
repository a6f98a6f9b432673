//! Offsets at which searches of lists stopped, so that the next search of a list need not read it from the top.

use crate::model::Timestamp;
use reqwest::Url;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of lists that are remembered. When it is reached, all are forgotten.
const MOST: usize = 256;

/// The offset of a page of each list, and the time of the first row there.
#[derive(Debug, Default)]
pub(super) struct Offsets(Mutex<HashMap<Url, (Timestamp, usize)>>);

impl Offsets {
    /// An offset from which a list has rows that are not newer than a time. Rows can have moved since.
    pub(super) fn of(&self, list: &Url, before: Timestamp) -> usize {
        let known = self.known().get(list).copied();
        known.map_or(0, |(first, offset)| if first > before { offset } else { 0 })
    }

    /// Notes the time of the first row of a page.
    pub(super) fn note(&self, list: &Url, first: Timestamp, offset: usize) {
        let mut known = self.known();
        if known.len() >= MOST && !known.contains_key(list) {
            known.clear();
        }
        known.insert(list.clone(), (first, offset));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Url, (Timestamp, usize)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

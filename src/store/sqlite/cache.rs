//! Vectors that were read from the file, in memory: a vector never changes, so who finds a breadcrumb as it was need not read
//! its vector again. What is not true any more is not asked for.

use std::collections::HashMap;
use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Up to so many vectors as fit in so many bytes.
pub(super) struct Cache {
    bytes: usize,
    kept: RwLock<Kept>,
}

/// What tells a vector from all others that the file ever had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Key {
    pub(super) tenant: i64,
    pub(super) serial: i64,
    /// When the version was written that it is of.
    pub(super) time: i64,
}

#[derive(Default)]
struct Kept {
    /// Whose they are, and since when.
    since: i64,
    /// Vectors side by side, as they came.
    chunks: Vec<Vec<f32>>,
    /// How many numbers those are.
    numbers: usize,
    /// By the row of the breadcrumb: the chunk, and the first number in it.
    places: HashMap<i64, (Key, usize, usize)>,
}

impl Cache {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            bytes,
            kept: RwLock::default(),
        }
    }

    /// Looks for vectors of one length that are there since a moment, and takes those that it does not have.
    pub(super) fn search(&self, since: i64, dimensions: usize) -> Search<'_> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        Search {
            cache: self,
            is_same: kept.since == since,
            kept,
            since,
            dimensions,
            found: 0,
            missed: Vec::new(),
            numbers: Vec::new(),
        }
    }

    /// How many numbers there may be.
    fn most(&self) -> usize {
        self.bytes / size_of::<f32>()
    }
}

/// A search, which nothing is added during.
pub(super) struct Search<'c> {
    cache: &'c Cache,
    kept: RwLockReadGuard<'c, Kept>,
    /// Whether what is kept are vectors of the same embedder since the same moment.
    is_same: bool,
    since: i64,
    dimensions: usize,
    found: usize,
    missed: Vec<Key>,
    /// Of what was missed.
    numbers: Vec<f32>,
}

impl Search<'_> {
    /// The vector with a key.
    pub(super) fn get(&mut self, key: Key) -> Option<&[f32]> {
        let (found, chunk, first) = self.kept.places.get(&key.serial).filter(|_| self.is_same)?;
        let vector = self.kept.chunks.get(*chunk)?;
        let vector = vector.get(*first..*first + self.dimensions)?;
        (*found == key).then(|| {
            self.found += 1;
            vector
        })
    }

    /// Takes a vector that was read.
    pub(super) fn missed(&mut self, key: Key, vector: &[f32]) {
        if self.numbers.len() + vector.len() <= self.cache.most() {
            self.numbers.extend_from_slice(vector);
            self.missed.push(key);
        }
    }

    /// Keeps what was taken for the searches after this one.
    pub(super) fn end(self) {
        if self.missed.is_empty() {
            return;
        }
        let (cache, mut numbers) = (self.cache, self.numbers);
        drop(self.kept);
        let mut kept = cache.kept.write().unwrap_or_else(PoisonError::into_inner);
        let is_full = kept.numbers + numbers.len() > cache.most();
        // Most of it is of no use to searches such as this one.
        let is_stale = self.found * self.dimensions * 2 < kept.numbers;
        if kept.since != self.since || (is_full && is_stale) {
            *kept = Kept {
                since: self.since,
                ..Kept::default()
            };
        }
        let room = (cache.most() - kept.numbers) / self.dimensions.max(1);
        numbers.truncate(room * self.dimensions);
        numbers.shrink_to_fit();
        let chunk = kept.chunks.len();
        for (place, key) in self.missed.into_iter().take(room).enumerate() {
            let first = place * self.dimensions;
            kept.places.insert(key.serial, (key, chunk, first));
        }
        if !numbers.is_empty() {
            kept.numbers += numbers.len();
            kept.chunks.push(numbers);
        }
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(serial: i64, time: i64) -> Key {
        Key {
            tenant: 1,
            serial,
            time,
        }
    }

    fn vector_of(key: Key) -> [f32; 2] {
        [key.serial as f32, key.time as f32]
    }

    /// Searches for vectors, reads those that are not there, and says how many of them are.
    fn search(cache: &Cache, since: i64, keys: impl IntoIterator<Item = Key>) -> usize {
        let mut search = cache.search(since, 2);
        for key in keys {
            match search.get(key) {
                Some(found) => assert_eq!(found, vector_of(key)),
                None => search.missed(key, &vector_of(key)),
            }
        }
        let found = search.found;
        search.end();
        found
    }

    #[test]
    fn what_was_read_once_is_there() {
        let cache = Cache::new(1 << 10);
        let keys = || (0..10).map(|n| key(n, n));

        let found = [(); 2].map(|()| search(&cache, 7, keys()));

        assert_eq!(found, [0, 10]);
    }

    #[test]
    fn another_version_tenant_or_embedder_is_another_vector() {
        let cache = Cache::new(1 << 10);
        search(&cache, 7, [key(1, 1)]);

        assert_eq!(search(&cache, 7, [key(1, 2)]), 0);
        assert_eq!(search(&cache, 7, [key(1, 2)]), 1);
        let other = Key {
            tenant: 2,
            ..key(1, 2)
        };
        assert_eq!(search(&cache, 7, [other]), 0);
        assert_eq!(search(&cache, 8, [other]), 0);
        assert_eq!(search(&cache, 8, [other]), 1);
    }

    #[test]
    fn there_are_never_more_than_fit() {
        let cache = Cache::new(10 * 2 * size_of::<f32>());
        let keys = |from| (from..from + 15).map(|n| key(n, n));
        search(&cache, 7, keys(0));

        assert_eq!(search(&cache, 7, keys(0)), 10, "those stay that are of use");
        assert_eq!(search(&cache, 7, keys(100)), 0);
        assert_eq!(search(&cache, 7, keys(100)), 10, "those went that were not");
        assert!(cache.kept.read().unwrap().numbers <= 20);
        let none = Cache::new(0);
        search(&none, 7, keys(0));
        assert_eq!(search(&none, 7, keys(0)), 0);
    }
}

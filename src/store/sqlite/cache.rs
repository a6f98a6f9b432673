//! Cache of breadcrumbs' vectors that were read from the SQLite file. A vector never changes, because each version of a breadcrumb has
//! another key. Outdated vectors are never requested, so they need no removal.

use std::collections::HashMap;
use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Cached vectors of breadcrumbs in memory, up to a total size.
pub(super) struct Cache {
    bytes: usize,
    kept: RwLock<Kept>,
}

/// Key that identifies a breadcrumb's vector among all vectors that the SQLite file ever had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Key {
    pub(super) tenant: i64,
    pub(super) serial: i64,
    /// Time at which the breadcrumb version was written, in microseconds.
    pub(super) time: i64,
}

#[derive(Default)]
struct Kept {
    /// Identifier of the file's set of vectors, which changes when the vectors are deleted.
    since: i64,
    /// Concatenated cached vectors, in the order in which searches added them.
    chunks: Vec<Vec<f32>>,
    /// Total number of elements of all cached vectors.
    numbers: usize,
    /// Key, chunk index and offset of each cached vector, by the row ID of the vector's breadcrumb.
    places: HashMap<i64, (Key, usize, usize)>,
}

impl Cache {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            bytes,
            kept: RwLock::default(),
        }
    }

    /// Starts a vector search in the cache for vectors of one length. `since` identifies the set of vectors.
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

    /// Returns the maximum number of vector elements in the cache.
    fn most(&self) -> usize {
        self.bytes / size_of::<f32>()
    }
}

/// A vector search that uses the cache. Nothing is added to the cache before the search ends.
pub(super) struct Search<'c> {
    cache: &'c Cache,
    kept: RwLockReadGuard<'c, Kept>,
    /// If `true`, the cached vectors belong to the same set as the vectors in the file.
    is_same: bool,
    since: i64,
    dimensions: usize,
    found: usize,
    missed: Vec<Key>,
    /// Concatenated vectors that the search read from the file because the cache lacks them.
    numbers: Vec<f32>,
}

impl Search<'_> {
    /// Returns the cached vector with a key, or `None` if the cache lacks it.
    pub(super) fn get(&mut self, key: Key) -> Option<&[f32]> {
        let (found, chunk, first) = self.kept.places.get(&key.serial).filter(|_| self.is_same)?;
        let vector = self.kept.chunks.get(*chunk)?;
        let vector = vector.get(*first..*first + self.dimensions)?;
        (*found == key).then(|| {
            self.found += 1;
            vector
        })
    }

    /// Records a vector that the search read from the file, to add it to the cache later.
    pub(super) fn missed(&mut self, key: Key, vector: &[f32]) {
        if self.numbers.len() + vector.len() <= self.cache.most() {
            self.numbers.extend_from_slice(vector);
            self.missed.push(key);
        }
    }

    /// Ends the vector search, and adds the recorded vectors to the cache.
    pub(super) fn end(self) {
        if self.missed.is_empty() {
            return;
        }
        let (cache, mut numbers) = (self.cache, self.numbers);
        drop(self.kept);
        let mut kept = cache.kept.write().unwrap_or_else(PoisonError::into_inner);
        let is_full = kept.numbers + numbers.len() > cache.most();
        // Most cached vectors are useless to searches like this one.
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

    /// Searches for vectors, records the missing ones, and returns the number of cached ones.
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
    fn an_entry_is_cached_after_its_first_read() {
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

        assert_eq!(search(&cache, 7, keys(0)), 10, "useful vectors stay");
        assert_eq!(search(&cache, 7, keys(100)), 0);
        assert_eq!(
            search(&cache, 7, keys(100)),
            10,
            "useless vectors are replaced"
        );
        assert!(cache.kept.read().unwrap().numbers <= 20);
        let none = Cache::new(0);
        search(&none, 7, keys(0));
        assert_eq!(search(&none, 7, keys(0)), 0);
    }
}

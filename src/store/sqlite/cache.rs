//! Cache of breadcrumbs' vectors that were read from the SQLite file. A vector never changes, because each version of a breadcrumb has
//! another key. Outdated vectors are never requested, so they need no removal.

use std::collections::HashMap;
use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Cached vectors of breadcrumbs in memory, up to a total size.
pub(super) struct VectorCache {
    bytes: usize,
    vectors: RwLock<CachedVectors>,
}

/// Key that identifies the vector of one breadcrumb version among all vectors that the SQLite file ever had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct VectorKey {
    pub(super) tenant: i64,
    pub(super) serial: i64,
    /// Time at which the breadcrumb version was written, in microseconds.
    pub(super) time: i64,
}

#[derive(Default)]
struct CachedVectors {
    /// Identifier of the file's set of vectors, which changes when the vectors are deleted.
    generation: i64,
    /// Concatenated cached vectors, in the order in which searches added them.
    chunks: Vec<Vec<f32>>,
    /// Total number of elements of all cached vectors.
    elements: usize,
    /// Key and location of each cached vector, by the row ID of its breadcrumb. A location is the index of a chunk and an offset
    /// in it.
    locations: HashMap<i64, (VectorKey, usize, usize)>,
}

impl VectorCache {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            bytes,
            vectors: RwLock::default(),
        }
    }

    /// Returns the state of a new vector search that takes vectors with `dimensions` elements from the cache instead of the
    /// SQLite file. `generation` identifies the set of vectors.
    pub(super) fn search(&self, generation: i64, dimensions: usize) -> CacheSearch<'_> {
        let vectors = self.vectors.read().unwrap_or_else(PoisonError::into_inner);
        CacheSearch {
            cache: self,
            is_current: vectors.generation == generation,
            vectors,
            generation,
            dimensions,
            hits: 0,
            missing: Vec::new(),
            elements: Vec::new(),
        }
    }

    /// Returns the maximum number of vector elements that fit into this in-memory cache.
    fn max_elements(&self) -> usize {
        self.bytes / size_of::<f32>()
    }
}

/// State of a vector search that reads only those breadcrumbs' vectors from the SQLite file that the in-memory cache lacks.
/// Nothing is added to the cache before the search ends.
pub(super) struct CacheSearch<'c> {
    cache: &'c VectorCache,
    vectors: RwLockReadGuard<'c, CachedVectors>,
    /// If `true`, the file's vectors have not been deleted since the cached vectors were read, so the search can use the cache.
    is_current: bool,
    generation: i64,
    dimensions: usize,
    hits: usize,
    missing: Vec<VectorKey>,
    /// Concatenated vectors that the search read from the SQLite file because the in-memory cache lacks them.
    elements: Vec<f32>,
}

impl CacheSearch<'_> {
    /// Returns the vector with a key from the in-memory cache, or `None` if the cache lacks it.
    pub(super) fn get(&mut self, key: VectorKey) -> Option<&[f32]> {
        let (known, chunk, first) = self
            .vectors
            .locations
            .get(&key.serial)
            .filter(|_| self.is_current)?;
        let vector = self.vectors.chunks.get(*chunk)?;
        let vector = vector.get(*first..*first + self.dimensions)?;
        (*known == key).then(|| {
            self.hits += 1;
            vector
        })
    }

    /// Records a vector that the search read from the SQLite file, to add it to the in-memory cache when the search ends.
    pub(super) fn add_missing(&mut self, key: VectorKey, vector: &[f32]) {
        if self.elements.len() + vector.len() <= self.cache.max_elements() {
            self.elements.extend_from_slice(vector);
            self.missing.push(key);
        }
    }

    /// Ends the vector search, and adds the recorded vectors to the in-memory cache.
    pub(super) fn end(self) {
        if self.missing.is_empty() {
            return;
        }
        let (cache, mut elements) = (self.cache, self.elements);
        drop(self.vectors);
        let mut vectors = cache
            .vectors
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let is_full = vectors.elements + elements.len() > cache.max_elements();
        // Most cached vectors are useless to searches like this one.
        let is_stale = self.hits * self.dimensions * 2 < vectors.elements;
        if vectors.generation != self.generation || (is_full && is_stale) {
            *vectors = CachedVectors {
                generation: self.generation,
                ..CachedVectors::default()
            };
        }
        let free_vectors = (cache.max_elements() - vectors.elements) / self.dimensions.max(1);
        elements.truncate(free_vectors * self.dimensions);
        elements.shrink_to_fit();
        let chunk = vectors.chunks.len();
        for (index, key) in self.missing.into_iter().take(free_vectors).enumerate() {
            let first = index * self.dimensions;
            vectors.locations.insert(key.serial, (key, chunk, first));
        }
        if !elements.is_empty() {
            vectors.elements += elements.len();
            vectors.chunks.push(elements);
        }
    }
}

impl fmt::Debug for VectorCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VectorCache")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(serial: i64, time: i64) -> VectorKey {
        VectorKey {
            tenant: 1,
            serial,
            time,
        }
    }

    fn vector_of(key: VectorKey) -> [f32; 2] {
        [key.serial as f32, key.time as f32]
    }

    /// Searches for vectors, records the missing ones, and returns the number of cached ones.
    fn search(
        cache: &VectorCache,
        generation: i64,
        keys: impl IntoIterator<Item = VectorKey>,
    ) -> usize {
        let mut search = cache.search(generation, 2);
        for key in keys {
            match search.get(key) {
                Some(vector) => assert_eq!(vector, vector_of(key)),
                None => search.add_missing(key, &vector_of(key)),
            }
        }
        let hits = search.hits;
        search.end();
        hits
    }

    #[test]
    fn an_entry_is_cached_after_its_first_read() {
        let cache = VectorCache::new(1 << 10);
        let keys = || (0..10).map(|n| key(n, n));

        let hits = [(); 2].map(|()| search(&cache, 7, keys()));

        assert_eq!(hits, [0, 10]);
    }

    #[test]
    fn another_version_tenant_or_embedder_is_another_vector() {
        let cache = VectorCache::new(1 << 10);
        search(&cache, 7, [key(1, 1)]);

        assert_eq!(search(&cache, 7, [key(1, 2)]), 0);
        assert_eq!(search(&cache, 7, [key(1, 2)]), 1);
        let other = VectorKey {
            tenant: 2,
            ..key(1, 2)
        };
        assert_eq!(search(&cache, 7, [other]), 0);
        assert_eq!(search(&cache, 8, [other]), 0);
        assert_eq!(search(&cache, 8, [other]), 1);
    }

    #[test]
    fn there_are_never_more_than_fit() {
        let cache = VectorCache::new(10 * 2 * size_of::<f32>());
        let keys = |from| (from..from + 15).map(|n| key(n, n));
        search(&cache, 7, keys(0));

        assert_eq!(search(&cache, 7, keys(0)), 10, "useful vectors stay");
        assert_eq!(search(&cache, 7, keys(100)), 0);
        assert_eq!(
            search(&cache, 7, keys(100)),
            10,
            "useless vectors are replaced"
        );
        assert!(cache.vectors.read().unwrap().elements <= 20);
        let none = VectorCache::new(0);
        search(&none, 7, keys(0));
        assert_eq!(search(&none, 7, keys(0)), 0);
    }
}

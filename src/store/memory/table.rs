//! Breadcrumbs of one tenant, with indexes by update order, schema and tag.

use super::MemoryLimits;
use super::entry::{Entry, OrderKey, Writer, is_alive};
use super::vectors::{Chunk, VectorTable};
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::store::embedding::{BreadcrumbVector, Nearest, UnembeddedPage};
use crate::store::{Query, VectorQuery};
use foldhash::fast::RandomState;
use std::collections::btree_map::Range;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::iter::{Peekable, Rev};
use std::sync::Arc;

/// Breadcrumbs of one tenant, sorted by update time, version and ID.
type Ordered = BTreeMap<OrderKey, Arc<Breadcrumb>>;

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: HashMap<BreadcrumbId, Entry, RandomState>,
    /// Sum of the sizes of the tenant's breadcrumbs in bytes.
    bytes: usize,
    tombstones: HashMap<BreadcrumbId, Entry, RandomState>,
    /// The IDs of the deleted breadcrumbs with a tombstone, in the order of the deletions.
    tombstone_order: VecDeque<BreadcrumbId>,
    /// Sum of the sizes of the tenant's tombstones in bytes.
    tombstone_bytes: usize,
    all: Ordered,
    by_schema: HashMap<String, SchemaIndex>,
    by_tag: HashMap<String, Ordered>,
    /// Breadcrumbs with a time to live, by the time of their expiry.
    expiries: BTreeMap<(Timestamp, BreadcrumbId), ()>,
    /// The vectors of the tenant's breadcrumbs; `None` for a store without an embedder.
    vectors: Option<VectorTable>,
}

#[derive(Debug, Default)]
struct SchemaIndex {
    all: Ordered,
    by_tag: HashMap<String, Ordered>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the sum of the sizes of the tenant's breadcrumbs in bytes, without tombstones.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&self, id: BreadcrumbId, now: Timestamp) -> Option<&Arc<Breadcrumb>> {
        self.entries
            .get(&id)
            .map(|entry| &entry.breadcrumb)
            .filter(|breadcrumb| is_alive(breadcrumb, now))
    }

    pub(super) fn tombstone(&self, id: BreadcrumbId) -> Option<&Arc<Breadcrumb>> {
        self.tombstones.get(&id).map(|entry| &entry.breadcrumb)
    }

    /// Returns the run that wrote a breadcrumb version. Returns `Some(None)` for a write from outside of runs, and `None` if the
    /// version is neither the current one nor the tombstone.
    pub(super) fn writer(&self, id: BreadcrumbId, version: u64) -> Option<Option<&Writer>> {
        let entry = self.entries.get(&id).or_else(|| self.tombstones.get(&id))?;
        (entry.breadcrumb.version == version).then_some(entry.writer.as_ref())
    }

    /// Adds a version of a breadcrumb to the tenant's breadcrumbs, and replaces the previous version.
    pub(super) fn put(&mut self, breadcrumb: Arc<Breadcrumb>, writer: Option<Writer>) {
        self.remove_entry(breadcrumb.id);
        self.bytes += breadcrumb.size();
        let key = breadcrumb.order_key();
        self.all.insert(key, Arc::clone(&breadcrumb));
        for tag in &breadcrumb.tags {
            insert(&mut self.by_tag, tag, key, &breadcrumb);
        }
        if let Some(schema) = &breadcrumb.schema_name {
            let index = match self.by_schema.get_mut(schema) {
                Some(index) => index,
                None => self.by_schema.entry(schema.clone()).or_default(),
            };
            index.all.insert(key, Arc::clone(&breadcrumb));
            for tag in &breadcrumb.tags {
                insert(&mut index.by_tag, tag, key, &breadcrumb);
            }
        }
        if let Some(end) = breadcrumb.ttl {
            self.expiries.insert((end, breadcrumb.id), ());
        }
        if let Some(vectors) = &mut self.vectors {
            vectors.add_missing(key);
        }
        self.entries
            .insert(breadcrumb.id, Entry { breadcrumb, writer });
    }

    /// Replaces a breadcrumb by its tombstone, and removes the oldest tombstones that exceed the limits.
    pub(super) fn put_tombstone(
        &mut self,
        tombstone: Arc<Breadcrumb>,
        writer: Option<Writer>,
        limits: &MemoryLimits,
    ) {
        self.remove_entry(tombstone.id);
        self.tombstone_order.push_back(tombstone.id);
        self.tombstone_bytes += tombstone.size();
        self.tombstones.insert(
            tombstone.id,
            Entry {
                breadcrumb: tombstone,
                writer,
            },
        );
        while self.tombstone_order.len() > limits.tombstones
            || self.tombstone_bytes > limits.tombstone_bytes
        {
            let Some(oldest) = self.tombstone_order.pop_front() else {
                return;
            };
            let removed = self.tombstones.remove(&oldest);
            self.tombstone_bytes -= removed.map_or(0, |entry| entry.breadcrumb.size());
        }
    }

    /// Returns the number of expired breadcrumbs that [`expire`](Self::expire) would remove, and the sum of their sizes in bytes.
    pub(super) fn count_expired(&self, now: Timestamp, most: usize) -> (usize, usize) {
        let ended = self.expiries.keys().take_while(|(end, _)| *end <= now);
        ended.take(most).fold((0, 0), |(count, bytes), (_, id)| {
            let entry = self.entries.get(id);
            let size = entry.map_or(0, |entry| entry.breadcrumb.size());
            (count + 1, bytes + size)
        })
    }

    /// Removes up to `most` of the tenant's expired breadcrumbs from memory.
    pub(super) fn expire(&mut self, now: Timestamp, most: usize) {
        for _ in 0..most {
            match self.expiries.first_key_value() {
                Some((&(end, id), ())) if end <= now => {
                    self.remove_entry(id);
                }
                Some(_) | None => return,
            }
        }
    }

    /// Returns the tenant's breadcrumbs that a query selects, newest first.
    pub(super) fn search<'t>(
        &'t self,
        query: &'t Query,
        now: Timestamp,
    ) -> impl Iterator<Item = &'t Arc<Breadcrumb>> {
        let after = query.after;
        self.candidates(query)
            .take_while(move |breadcrumb| after.is_none_or(|time| breadcrumb.updated_at > time))
            .filter(move |breadcrumb| is_alive(breadcrumb, now) && query.selects(breadcrumb))
            .take(query.limit)
    }

    /// Starts to store vectors of the tenant's breadcrumbs.
    pub(super) fn enable_vectors(&mut self) {
        self.vectors = Some(VectorTable::default());
    }

    /// Returns a page of the breadcrumbs whose current version has no vector. All of them were updated after `after`.
    pub(super) fn without_vector(
        &self,
        after: Timestamp,
        most: usize,
        until: Timestamp,
    ) -> UnembeddedPage {
        let missing = self.vectors.iter().flat_map(|table| table.missing(after));
        let mut found: Vec<_> = missing
            .filter_map(|key| self.all.get(key))
            .take(most + 1)
            .cloned()
            .collect();
        let more = found.len() > most;
        found.truncate(most);
        let last = found.last().filter(|_| more);
        UnembeddedPage {
            until: last.map_or(until, |last| last.updated_at),
            found,
            more,
        }
    }

    /// Stores vectors of breadcrumb versions that are still current.
    pub(super) fn put_vectors(&mut self, new_vectors: Vec<BreadcrumbVector>) {
        let Some(vectors) = &mut self.vectors else {
            return;
        };
        for BreadcrumbVector {
            id,
            version,
            vector,
        } in new_vectors
        {
            if let Some(Entry { breadcrumb, .. }) = self.entries.get(&id)
                && breadcrumb.version == version
            {
                vectors.put(breadcrumb, vector);
            }
        }
    }

    /// Compares the vectors of the breadcrumbs that a query selects with the vector `to`. If there are too many to compare under
    /// the lock, returns the vectors of all breadcrumbs instead, which the caller must then compare.
    pub(super) fn compare_few(
        &self,
        nearest: &mut Nearest<'_>,
        to: &[f32],
        query: &VectorQuery,
        now: Timestamp,
    ) -> Option<Vec<Arc<Chunk>>> {
        /// Maximum number of breadcrumbs whose vectors are compared while the tenant's lock is held.
        const FEW: usize = 1_024;
        let vectors = self.vectors.as_ref()?;
        let query = &query.query;
        let few: Vec<_> = self.candidates(query).take(FEW + 1).collect();
        if few.len() > FEW {
            return Some(vectors.chunks());
        }
        for breadcrumb in few {
            if let Some(score) = vectors.similarity(breadcrumb.id, to)
                && nearest.accepts(score)
                && is_alive(breadcrumb, now)
                && query.selects(breadcrumb)
            {
                nearest.add(score, Arc::clone(breadcrumb));
            }
        }
        None
    }

    fn remove_entry(&mut self, id: BreadcrumbId) -> Option<Arc<Breadcrumb>> {
        let breadcrumb = self.entries.remove(&id)?.breadcrumb;
        self.bytes -= breadcrumb.size();
        let key = breadcrumb.order_key();
        self.all.remove(&key);
        for tag in &breadcrumb.tags {
            remove(&mut self.by_tag, tag, &key);
        }
        if let Some(schema) = &breadcrumb.schema_name
            && let Some(index) = self.by_schema.get_mut(schema)
        {
            index.all.remove(&key);
            for tag in &breadcrumb.tags {
                remove(&mut index.by_tag, tag, &key);
            }
            if index.all.is_empty() {
                self.by_schema.remove(schema);
            }
        }
        if let Some(end) = breadcrumb.ttl {
            self.expiries.remove(&(end, id));
        }
        if let Some(vectors) = &mut self.vectors {
            vectors.remove(&breadcrumb);
        }
        Some(breadcrumb)
    }

    /// Returns the candidate breadcrumbs of a query, newest first. The candidates come from the index with the fewest breadcrumbs
    /// that contains every possible result.
    fn candidates<'t>(&'t self, query: &Query) -> NewestFirst<'t> {
        let selector = &query.selector;
        let (all, by_tag) = match selector.schema_name() {
            Some(schema) => match self.by_schema.get(schema) {
                Some(index) => (&index.all, &index.by_tag),
                None => return NewestFirst::NONE,
            },
            None => (&self.all, &self.by_tag),
        };
        let must = selector.all_of_tags().iter().chain(&query.scope_tags);
        let mut smallest = all;
        for tag in must {
            match by_tag.get(tag) {
                Some(tagged) if tagged.len() < smallest.len() => smallest = tagged,
                Some(_) => {}
                None => return NewestFirst::NONE,
            }
        }
        if let Some(any) = selector.any_of_tags() {
            let tagged: Vec<&Ordered> = any.iter().filter_map(|tag| by_tag.get(tag)).collect();
            if tagged.iter().map(|ordered| ordered.len()).sum::<usize>() < smallest.len() {
                return NewestFirst::merge(&tagged, query.before);
            }
        }
        NewestFirst::One(newest_first_range(smallest, query.before))
    }
}

fn insert(
    by_tag: &mut HashMap<String, Ordered>,
    tag: &str,
    key: OrderKey,
    breadcrumb: &Arc<Breadcrumb>,
) {
    let ordered = match by_tag.get_mut(tag) {
        Some(ordered) => ordered,
        None => by_tag.entry(tag.to_owned()).or_default(),
    };
    ordered.insert(key, Arc::clone(breadcrumb));
}

fn remove(by_tag: &mut HashMap<String, Ordered>, tag: &str, key: &OrderKey) {
    if let Some(ordered) = by_tag.get_mut(tag) {
        ordered.remove(key);
        if ordered.is_empty() {
            by_tag.remove(tag);
        }
    }
}

type NewestFirstRange<'t> = Rev<Range<'t, OrderKey, Arc<Breadcrumb>>>;

/// Iterator over several ordered sets of breadcrumbs, newest first, with each breadcrumb once.
enum NewestFirst<'t> {
    One(NewestFirstRange<'t>),
    Merged(Vec<Peekable<NewestFirstRange<'t>>>),
}

fn newest_first_range(ordered: &Ordered, before: Option<OrderKey>) -> NewestFirstRange<'_> {
    let range = match before {
        Some(key) => ordered.range(..key),
        None => ordered.range::<OrderKey, _>(..),
    };
    range.rev()
}

impl<'t> NewestFirst<'t> {
    const NONE: Self = Self::Merged(Vec::new());

    fn merge(sets: &[&'t Ordered], before: Option<OrderKey>) -> Self {
        let parts = sets
            .iter()
            .map(|set| newest_first_range(set, before).peekable());
        Self::Merged(parts.collect())
    }
}

impl<'t> Iterator for NewestFirst<'t> {
    type Item = &'t Arc<Breadcrumb>;

    fn next(&mut self) -> Option<Self::Item> {
        let parts = match self {
            Self::One(one) => return one.next().map(|(_, breadcrumb)| breadcrumb),
            Self::Merged(parts) => parts,
        };
        let newest = *parts
            .iter_mut()
            .filter_map(|part| part.peek().map(|(key, _)| *key))
            .max()?;
        let mut found = None;
        for part in parts {
            if let Some((_, breadcrumb)) = part.next_if(|(key, _)| **key == newest) {
                found = Some(breadcrumb);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NewBreadcrumb, Selector};

    /// Creates 1,000 breadcrumbs of two schemas. Every hundredth has the tag "rare", the others "common".
    fn table() -> Table {
        let mut table = Table::default();
        for number in 0..1_000_u32 {
            let schema = if number % 2 == 0 { "even.v1" } else { "odd.v1" };
            let tag = if number % 100 == 0 { "rare" } else { "common" };
            let id = BreadcrumbId::from_bytes(u128::from(number).to_be_bytes());
            let at = Timestamp::from_micros(number.into());
            let new = NewBreadcrumb::new(schema).tag(tag).first_version(id, at);
            table.put(Arc::new(new), None);
        }
        table
    }

    #[test]
    fn a_query_scans_only_its_most_selective_index() {
        let table = table();
        for (selector, scanned) in [
            (Selector::any(), 1_000),
            (Selector::schema("even.v1"), 500),
            (Selector::schema("none.v1"), 0),
            (Selector::schema("even.v1").all_tags(["rare"]), 10),
            (Selector::schema("odd.v1").all_tags(["rare"]), 0),
            (Selector::schema("even.v1").any_tags(["rare", "none"]), 10),
            (Selector::any().all_tags(["common", "rare"]), 10),
        ] {
            let query = Query::new(selector.clone());
            assert_eq!(table.candidates(&query).count(), scanned, "{selector}");
        }
    }

    #[test]
    fn an_update_leaves_nothing_behind_in_any_index() {
        let mut table = table();
        let before = Arc::clone(table.all.values().next_back().unwrap());
        let mut after = Breadcrumb::clone(&before);
        after.version += 1;
        after.tags = vec!["new".to_owned()];
        after.schema_name = Some("new.v1".to_owned());

        table.put(Arc::new(after), None);

        assert_eq!((table.len(), table.all.len()), (1_000, 1_000));
        assert_eq!(table.by_schema["odd.v1"].all.len(), 499);
        assert_eq!(table.by_schema["odd.v1"].by_tag["common"].len(), 499);
        assert_eq!(
            (table.by_tag["common"].len(), table.by_tag["new"].len()),
            (989, 1)
        );
    }
}

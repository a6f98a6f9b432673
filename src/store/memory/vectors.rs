//! Vectors of one tenant's breadcrumbs, in chunks of contiguous memory.
//!
//! A search shares the chunks. A change of a chunk that a search shares copies the chunk.

use super::entry::{OrderKey, is_alive};
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::store::Query;
use crate::store::embedding::{Nearest, similarity};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Number of breadcrumb vectors in a full chunk.
const CHUNK: usize = 256;
/// Number of chunks that a vector search compares before its task yields.
pub(super) const AT_ONCE: usize = 16;

#[derive(Debug, Default)]
pub(super) struct VectorTable {
    /// The chunks of vectors. All but the last are full.
    chunks: Vec<Arc<Chunk>>,
    /// Location of each breadcrumb's vector: the index of its chunk in `chunks`, and its index in the chunk.
    positions: HashMap<BreadcrumbId, (usize, usize)>,
    /// The breadcrumbs without a vector of their current version.
    missing: BTreeSet<OrderKey>,
}

/// Vectors of equal length in one buffer, with their breadcrumbs.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    components: Vec<f32>,
    breadcrumbs: Vec<Arc<Breadcrumb>>,
}

impl VectorTable {
    /// Records a breadcrumb whose vector is missing.
    pub(super) fn add_missing(&mut self, key: OrderKey) {
        self.missing.insert(key);
    }

    /// Returns the breadcrumbs without a vector that were updated after a time.
    pub(super) fn missing(&self, after: Timestamp) -> impl Iterator<Item = &OrderKey> {
        let from = Timestamp::from_micros(after.as_micros().saturating_add(1));
        self.missing.range((from, 0, BreadcrumbId::NIL)..)
    }

    /// Stores the vector of a breadcrumb that had none. `None` marks a breadcrumb that cannot have a vector.
    pub(super) fn put(&mut self, breadcrumb: &Arc<Breadcrumb>, vector: Option<Vec<f32>>) {
        if !self.missing.remove(&breadcrumb.order_key()) {
            return;
        }
        let Some(vector) = vector else {
            return;
        };
        if self
            .chunks
            .last()
            .is_none_or(|chunk| chunk.breadcrumbs.len() == CHUNK)
        {
            self.chunks.push(Arc::default());
        }
        let at = self.chunks.len() - 1;
        if let Some(chunk) = self.chunks.last_mut().map(Arc::make_mut) {
            self.positions
                .insert(breadcrumb.id, (at, chunk.breadcrumbs.len()));
            chunk.components.extend(vector);
            chunk.breadcrumbs.push(Arc::clone(breadcrumb));
        }
    }

    /// Removes a breadcrumb and its vector from the search, but not the stored breadcrumb. The last vector moves to the free
    /// position.
    pub(super) fn remove(&mut self, breadcrumb: &Breadcrumb) {
        self.missing.remove(&breadcrumb.order_key());
        let Some((at, index)) = self.positions.remove(&breadcrumb.id) else {
            return;
        };
        let last = self
            .chunks
            .last_mut()
            .and_then(|chunk| Arc::make_mut(chunk).pop());
        self.chunks.pop_if(|chunk| chunk.breadcrumbs.is_empty());
        if let Some((moved, vector)) = last
            && moved.id != breadcrumb.id
            && let Some(chunk) = self.chunks.get_mut(at).map(Arc::make_mut)
        {
            self.positions.insert(moved.id, (at, index));
            chunk.set(index, moved, &vector);
        }
    }

    /// Returns the similarity of a breadcrumb's vector to another vector, or `None` without a vector.
    pub(super) fn similarity(&self, of: BreadcrumbId, to: &[f32]) -> Option<f64> {
        let (at, index) = self.positions.get(&of)?;
        let vector = self.chunks.get(*at)?.vector(*index)?;
        Some(similarity(vector, to))
    }

    pub(super) fn chunks(&self) -> Vec<Arc<Chunk>> {
        self.chunks.clone()
    }
}

impl Chunk {
    /// Adds each breadcrumb of this chunk to `nearest` if the query selects the breadcrumb and its vector is among the most
    /// similar to `to` so far.
    pub(super) fn add_nearest(
        &self,
        nearest: &mut Nearest<'_>,
        to: &[f32],
        query: &Query,
        now: Timestamp,
    ) {
        for (vector, breadcrumb) in self
            .components
            .chunks_exact(to.len().max(1))
            .zip(&self.breadcrumbs)
        {
            let score = similarity(vector, to);
            if nearest.accepts(score) && is_alive(breadcrumb, now) && query.selects(breadcrumb) {
                nearest.add(score, Arc::clone(breadcrumb));
            }
        }
    }

    fn dimensions(&self) -> usize {
        self.components
            .len()
            .checked_div(self.breadcrumbs.len())
            .unwrap_or(0)
    }

    fn vector(&self, index: usize) -> Option<&[f32]> {
        let n = self.dimensions();
        self.components.get(index * n..(index + 1) * n)
    }

    fn set(&mut self, index: usize, of: Arc<Breadcrumb>, vector: &[f32]) {
        let n = self.dimensions();
        if let Some(old) = self.components.get_mut(index * n..(index + 1) * n)
            && let Some(breadcrumb) = self.breadcrumbs.get_mut(index)
        {
            old.copy_from_slice(vector);
            *breadcrumb = of;
        }
    }

    fn pop(&mut self) -> Option<(Arc<Breadcrumb>, Vec<f32>)> {
        let rest = self.components.len() - self.dimensions();
        let of = self.breadcrumbs.pop()?;
        Some((of, self.components.split_off(rest)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NewBreadcrumb;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn breadcrumb(n: u16) -> Arc<Breadcrumb> {
        let id = BreadcrumbId::from_bytes(u128::from(n).to_be_bytes());
        let at = Timestamp::from_micros(n.into());
        Arc::new(NewBreadcrumb::new("note.v1").first_version(id, at))
    }

    proptest! {
        #[test]
        fn each_breadcrumb_has_its_own_vector_after_any_additions_and_removals(
            steps in prop::collection::vec((any::<bool>(), 0..600_u16), 0..1_500),
        ) {
            let (mut table, mut expected) = (VectorTable::default(), BTreeMap::new());

            for (comes, n) in steps {
                let one = breadcrumb(n);
                table.remove(&one);
                expected.remove(&n);
                if comes {
                    table.add_missing(one.order_key());
                    table.put(&one, Some(vec![f32::from(n), 1.0]));
                    expected.insert(n, ());
                }
            }

            let mut stored = BTreeMap::new();
            for chunk in table.chunks() {
                prop_assert_eq!(chunk.components.len(), chunk.breadcrumbs.len() * 2);
                for (index, one) in chunk.breadcrumbs.iter().enumerate() {
                    let n = one.updated_at.as_micros() as u16;
                    prop_assert_eq!(chunk.vector(index), Some(&[f32::from(n), 1.0][..]));
                    prop_assert!(table.similarity(one.id, &[0.0, 1.0]).is_some());
                    stored.insert(n, ());
                }
            }
            prop_assert_eq!(table.positions.len(), stored.len());
            prop_assert_eq!(stored, expected);
            prop_assert!(table.chunks.iter().rev().skip(1).all(|chunk| chunk.breadcrumbs.len() == CHUNK));
        }
    }

    #[test]
    fn a_comparison_reads_a_snapshot_despite_concurrent_changes() {
        let mut table = VectorTable::default();
        for n in 0..3 {
            table.add_missing(breadcrumb(n).order_key());
            table.put(&breadcrumb(n), Some(vec![f32::from(n)]));
        }

        let snapshot = table.chunks();
        table.remove(&breadcrumb(0));

        assert_eq!(snapshot[0].components, [0.0, 1.0, 2.0]);
        assert_eq!(table.chunks[0].components, [2.0, 1.0]);
    }
}

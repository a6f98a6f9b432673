use super::event_values::EventValues;
use super::path_value::PathValue;
use crate::model::selector::Selector;
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::hash::{BuildHasherDefault, Hasher};

/// Tree of selectors, in which each edge is a required or alternative tag or value. The tests of all selectors have the same order, so
/// selectors share the edges of common tests.
///
/// The depth is at most [`Plan::MAX_REQUIRED`] + 1 edges, which limits the recursion.
#[derive(Clone, Debug)]
pub(super) struct Tree<K> {
    /// The first selector that is stored at this tree node. Most nodes have one, so it needs no allocation.
    first: Option<Entry<K>>,
    /// Further selectors that are stored at this tree node.
    others: Vec<Entry<K>>,
    /// The child nodes of this tree node. `None` for leaves, which most nodes are.
    branches: Option<Box<Branches<K>>>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry<K> {
    pub(super) key: K,
    pub(super) selector: Selector,
}

#[derive(Clone, Debug)]
struct Branches<K> {
    all_tags: Edges<K>,
    any_tags: Edges<K>,
    values: Edges<K>,
    /// Map from a JSONPath's identifying number to the number of edges from this tree node that test a value at this path.
    paths: HashMap<usize, usize, BuildHasherDefault<PassThrough>>,
}

/// Child nodes of a tree node, by the keyed hash of the tag or value that the edge tests. Two tests with the same hash share an
/// edge, which causes a false candidate.
type Edges<K> = ByHash<Tree<K>>;

/// Map whose keys are already hashes.
pub(super) type ByHash<V> = HashMap<u64, V, BuildHasherDefault<PassThrough>>;

/// Edge of the selector tree: a tag or value that a selector requires, or accepts as an alternative.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Edge {
    /// A tag that the selector requires, by its hash.
    AllTags(u64),
    /// A value that the selector requires, or accepts as an alternative, at a path of the context.
    Value {
        /// The identifying number of the JSONPath whose value in the breadcrumb's context the selector tests.
        path: usize,
        /// The hash of the JSONPath and of the value that the selector expects there.
        hash: u64,
    },
    /// One of the alternative tags of the selector, by its hash.
    AnyTags(u64),
}

/// The required and the alternative tags and values under which the selector tree stores a selector. The tree stores the selector
/// after the required tests and each alternative test.
#[derive(Debug, Default)]
pub(super) struct Plan {
    required: Vec<Edge>,
    alternatives: Vec<Edge>,
}

/// An event whose matching selectors are searched in the tree: its sorted tag hashes and its context, both computed on demand.
pub(super) struct Search<'s> {
    pub(super) tags: &'s dyn Fn() -> &'s [u64],
    pub(super) values: &'s EventValues<'s>,
}

impl Plan {
    /// Maximum number of required tags and values of a selector that the selector index stores. The test of the candidates covers
    /// further ones.
    pub(super) const MAX_REQUIRED: usize = 16;

    /// Creates the sorted lists of a selector's required tests (`all`) and alternative tests (`any`), without duplicates.
    pub(super) fn new(mut all: Vec<Edge>, mut any: Vec<Edge>) -> Self {
        all.sort_unstable();
        all.dedup();
        all.truncate(Self::MAX_REQUIRED);
        any.sort_unstable();
        any.dedup();
        Self {
            required: all,
            alternatives: any,
        }
    }

    fn branches(&self) -> impl Iterator<Item = Vec<Edge>> {
        let without_alternatives = self.alternatives.is_empty().then(|| self.required.clone());
        let alternatives = self.alternatives.iter().map(|alternative| {
            let mut edges = self.required.clone();
            edges.push(*alternative);
            edges
        });
        without_alternatives.into_iter().chain(alternatives)
    }
}

impl<K: Copy + PartialEq> Tree<K> {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none() && self.branches.is_none()
    }

    pub(super) fn insert(&mut self, plan: &Plan, key: K, selector: &Selector) {
        for edges in plan.branches() {
            let leaf = edges.iter().fold(&mut *self, |tree, edge| {
                tree.branches.get_or_insert_default().child_or_insert(*edge)
            });
            let selector = selector.clone();
            let entry = Entry { key, selector };
            match leaf.first {
                None => leaf.first = Some(entry),
                Some(_) => leaf.others.push(entry),
            }
        }
    }

    /// Removes a selector from the tree. `plan` and `key` must equal the arguments of the insertion. Returns `false` if the tree has no
    /// such selector.
    pub(super) fn remove(&mut self, plan: &Plan, key: K, selector: &Selector) -> bool {
        let removed = plan
            .branches()
            .filter(|edges| self.remove_at(edges, key, selector))
            .count();
        removed > 0
    }

    /// Calls `visitor` for each selector in this tree whose indexed tests all pass. A selector with several alternatives can be
    /// visited several times.
    pub(super) fn visit<'t>(&'t self, search: &Search<'_>, visitor: &mut impl FnMut(&'t Entry<K>)) {
        for entry in self.first.iter().chain(&self.others) {
            visitor(entry);
        }
        if let Some(branches) = &self.branches {
            branches.visit(search, visitor);
        }
    }

    fn remove_at(&mut self, edges: &[Edge], key: K, selector: &Selector) -> bool {
        let Some((first, rest)) = edges.split_first() else {
            let is_match = |entry: &Entry<K>| entry.key == key && entry.selector == *selector;
            if self.first.as_ref().is_some_and(is_match) {
                self.first = self.others.pop();
                return true;
            }
            let entry = self.others.iter().position(is_match);
            return entry.map(|at| self.others.swap_remove(at)).is_some();
        };
        let Some(branches) = &mut self.branches else {
            return false;
        };
        let removed = branches
            .edges(*first)
            .get_mut(&first.hash())
            .is_some_and(|child| child.remove_at(rest, key, selector));
        if removed {
            branches.prune(*first);
            if branches.is_empty() {
                self.branches = None;
            }
        }
        removed
    }
}

impl<K: Copy + PartialEq> Branches<K> {
    fn edges(&mut self, edge: Edge) -> &mut Edges<K> {
        match edge {
            Edge::AllTags(_) => &mut self.all_tags,
            Edge::AnyTags(_) => &mut self.any_tags,
            Edge::Value { .. } => &mut self.values,
        }
    }

    fn is_empty(&self) -> bool {
        self.all_tags.is_empty() && self.any_tags.is_empty() && self.values.is_empty()
    }

    fn child_or_insert(&mut self, edge: Edge) -> &mut Tree<K> {
        let edges = match edge {
            Edge::AllTags(_) => &mut self.all_tags,
            Edge::AnyTags(_) => &mut self.any_tags,
            Edge::Value { .. } => &mut self.values,
        };
        match edges.entry(edge.hash()) {
            MapEntry::Occupied(entry) => entry.into_mut(),
            MapEntry::Vacant(entry) => {
                if let Edge::Value { path, .. } = edge {
                    *self.paths.entry(path).or_default() += 1;
                }
                entry.insert(Tree::default())
            }
        }
    }

    /// Removes the child node at an edge if no selectors are stored at or below this child.
    fn prune(&mut self, edge: Edge) {
        let edges = self.edges(edge);
        if !edges.get(&edge.hash()).is_some_and(Tree::is_empty) {
            return;
        }
        edges.remove(&edge.hash());
        if let Edge::Value { path, .. } = edge
            && let Some(count) = self.paths.get_mut(&path)
        {
            *count -= 1;
            if *count == 0 {
                self.paths.remove(&path);
            }
        }
    }

    fn visit<'t>(&'t self, search: &Search<'_>, visitor: &mut impl FnMut(&'t Entry<K>)) {
        for tagged in [&self.all_tags, &self.any_tags] {
            if tagged.is_empty() {
                continue;
            }
            let tags = (search.tags)();
            // Iterates over the smaller of the two sets.
            if tagged.len() < tags.len() {
                let edges = tagged.iter();
                edges
                    .filter(|(hash, _)| tags.binary_search(hash).is_ok())
                    .for_each(|(_, child)| child.visit(search, visitor));
            } else {
                let children = tags.iter().filter_map(|hash| tagged.get(hash));
                children.for_each(|child| child.visit(search, visitor));
            }
        }
        if self.values.is_empty() {
            return;
        }
        let Some(values) = search.values.values() else {
            // Without a context, no value test can exclude a selector.
            let children = self.values.values();
            return children.for_each(|child| child.visit(search, visitor));
        };
        let mut visit_child = |value: &PathValue<'_>| {
            if let Some(child) = self.values.get(&search.values.hash(value)) {
                child.visit(search, visitor);
            }
        };
        if self.paths.len() < values.len() {
            let needed = self.paths.keys();
            needed
                .filter_map(|path| search.values.value(*path))
                .for_each(visit_child);
        } else {
            values.iter().for_each(&mut visit_child);
        }
    }
}

impl Edge {
    fn hash(self) -> u64 {
        match self {
            Self::AllTags(hash) | Self::AnyTags(hash) | Self::Value { hash, .. } => hash,
        }
    }
}

impl<K> Default for Tree<K> {
    fn default() -> Self {
        Self {
            first: None,
            others: Vec::new(),
            branches: None,
        }
    }
}

impl<K> Default for Branches<K> {
    fn default() -> Self {
        Self {
            all_tags: Edges::default(),
            any_tags: Edges::default(),
            values: Edges::default(),
            paths: HashMap::default(),
        }
    }
}

/// Hasher for keys that need no further hashing: hashes of tags and values, which it returns unchanged, and numbers of JSONPaths.
#[derive(Clone, Debug, Default)]
pub(super) struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write_usize(&mut self, number: usize) {
        // The hash map also uses the high bits, so the multiplication spreads small numbers.
        self.0 = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

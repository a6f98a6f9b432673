use super::event_values::EventValues;
use super::path_value::hash_value;
use super::paths::Paths;
use super::tree::{ByHash, Edge, Plan, Search, Tree};
use crate::model::condition::Condition;
use crate::model::event::{Event, EventKind};
use crate::model::op::Op;
use crate::model::path::Step;
use crate::model::selector::{MatchCertainty, Selector, SelectorInput};
use serde_json::Value;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

/// Index of many selectors, which finds the selectors that match an event by schema name, tags and equality on plain paths.
///
/// [`Selector::evaluate`] tests each candidate. The cost of a search depends on the event and on the number of matching selectors, and
/// hardly on the number of all selectors.
#[derive(Clone, Debug)]
pub(crate) struct SelectorIndex<K> {
    /// The groups of selectors by the hash of the schema name. Schema names with the same hash share a group.
    by_schema: ByHash<Group<K>>,
    any_schema: Group<K>,
    /// Random keys of the hash function, so that the authors of selectors and events cannot cause hash collisions.
    state: RandomState,
    len: usize,
}

/// Group of selectors: all selectors with the same schema name, or all selectors without a schema name.
#[derive(Clone, Debug)]
struct Group<K> {
    tree: Tree<K>,
    paths: Paths,
}

/// Maximum number of alternative tags or values up to which the selector index stores a selector's alternatives. The test of the
/// candidates covers longer lists.
const MAX_ALTERNATIVES: usize = 32;

impl<K: Copy + Ord> SelectorIndex<K> {
    /// Creates a selector index without selectors.
    pub(crate) fn new() -> Self {
        Self {
            by_schema: ByHash::default(),
            any_schema: Group::default(),
            state: RandomState::new(),
            len: 0,
        }
    }

    /// Returns the number of selectors in this selector index.
    #[cfg_attr(not(test), expect(dead_code, reason = "used in tests only"))]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a selector to this selector index, under the key that later searches return for the selector. A key can have several
    /// selectors.
    pub(crate) fn insert(&mut self, key: K, selector: &Selector) {
        let group = match selector.schema_name() {
            None => &mut self.any_schema,
            Some(schema) => {
                let hash = self.state.hash_one(schema);
                self.by_schema.entry(hash).or_default()
            }
        };
        for steps in plain_steps(selector) {
            group.paths.acquire(steps);
        }
        let plan = group.plan(selector, &self.state);
        group.tree.insert(&plan, key, selector);
        self.len += 1;
    }

    /// Removes a selector from this selector index, given the selector and the key under which it was added. Returns `false` if
    /// the index has no such selector under the key.
    pub(crate) fn remove(&mut self, key: K, selector: &Selector) -> bool {
        let group = match selector.schema_name() {
            None => &mut self.any_schema,
            Some(schema) => match self.by_schema.get_mut(&self.state.hash_one(schema)) {
                Some(group) => group,
                None => return false,
            },
        };
        let plan = group.plan(selector, &self.state);
        if !group.tree.remove(&plan, key, selector) {
            return false;
        }
        for steps in plain_steps(selector) {
            group.paths.release(steps);
        }
        if let Some(schema) = selector.schema_name()
            && group.tree.is_empty()
        {
            self.by_schema.remove(&self.state.hash_one(schema));
        }
        self.len -= 1;
        true
    }

    /// Returns the keys, given at insertion, of the selectors that match an event or may match once its context is known. The
    /// keys are in ascending order without duplicates.
    pub(crate) fn matching(&self, event: &Event) -> Vec<K> {
        let mut keys = Vec::new();
        self.search(event, |key, _| keys.push(key));
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Calls `on_match` for each selector that matches or may match an event, with the key that identifies the selector in this
    /// index. A selector with alternative tags or values can be found several times.
    pub(in crate::model) fn search(
        &self,
        event: &Event,
        mut on_match: impl FnMut(K, MatchCertainty),
    ) {
        if event.kind == EventKind::Ping {
            return;
        }
        let schema = event.schema_name.as_deref();
        let of_schema = schema.and_then(|schema| self.by_schema.get(&self.state.hash_one(schema)));
        let tags = OnceCell::new();
        // A selector is in the tree once for each alternative. Its conditions search the context only once.
        let mut searched = BTreeSet::new();
        for group in of_schema.into_iter().chain([&self.any_schema]) {
            let values = EventValues::new(event.context.as_ref(), &group.paths, &self.state);
            let search = Search {
                tags: &|| tags.get_or_init(|| tag_hashes(&event.tags, &self.state)),
                values: &values,
            };
            let input = SelectorInput {
                schema_name: schema,
                tags: &event.tags,
                context: Some(&values),
            };
            group.tree.visit(&search, &mut |entry| {
                let conditions = entry.selector.conditions().as_ptr();
                if entry.selector.search_count() > 0 && !searched.insert((entry.key, conditions)) {
                    return;
                }
                if let Some(certainty) = entry.selector.evaluate(&input).certainty() {
                    on_match(entry.key, certainty);
                }
            });
        }
    }
}

impl<K> Group<K> {
    /// Returns the tags and values under which a selector is stored in the tree of its selector group. The group must contain the
    /// paths of the selector.
    fn plan(&self, selector: &Selector, state: &RandomState) -> Plan {
        let tag = |tag: &String| state.hash_one(tag);
        let mut all: Vec<Edge> = selector
            .all_of_tags()
            .iter()
            .map(|text| Edge::AllTags(tag(text)))
            .collect();
        let mut any: Vec<Edge> = Vec::new();
        let is_indexed = |count: usize| (1..=MAX_ALTERNATIVES).contains(&count);
        if let Some(tags) = selector.any_of_tags().filter(|tags| is_indexed(tags.len())) {
            any = tags.iter().map(|text| Edge::AnyTags(tag(text))).collect();
        }
        for (steps, op, value) in selector.conditions().iter().filter_map(plain_condition) {
            let Some(path) = self.paths.find(steps) else {
                continue;
            };
            let edge = |value: &Value| Edge::Value {
                path,
                hash: hash_value(state, path, value),
            };
            match (op, value) {
                (Op::Eq, value) => all.push(edge(value)),
                (Op::In, Value::Array(values)) if any.is_empty() && is_indexed(values.len()) => {
                    any = values.iter().map(edge).collect();
                }
                _ => {}
            }
        }
        Plan::new(all, any)
    }
}

/// Returns the hashes of an event's tags, in ascending order without duplicates.
fn tag_hashes(tags: &[String], state: &RandomState) -> Vec<u64> {
    let mut hashes: Vec<u64> = tags.iter().map(|tag| state.hash_one(tag)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

fn plain_condition(condition: &Condition) -> Option<(&[Step], Op, &Value)> {
    let (path, op, value) = condition.compiled()?;
    Some((path.steps()?, op, value))
}

fn plain_steps(selector: &Selector) -> impl Iterator<Item = &[Step]> {
    let conditions = selector.conditions().iter();
    conditions
        .filter_map(plain_condition)
        .map(|(steps, _, _)| steps)
}

impl<K> Default for Group<K> {
    fn default() -> Self {
        Self {
            tree: Tree::default(),
            paths: Paths::default(),
        }
    }
}

impl<K: Copy + Ord> Default for SelectorIndex<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
impl<K: Copy + Ord> SelectorIndex<K> {
    /// Returns `true` if the selector index is empty: it has no selectors, groups of selectors or JSONPaths.
    pub(super) fn is_completely_empty(&self) -> bool {
        let Group { tree, paths } = &self.any_schema;
        self.len == 0 && self.by_schema.is_empty() && tree.is_empty() && paths.is_empty()
    }
}

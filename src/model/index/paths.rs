use crate::model::path::{Step, item};
use serde_json::Value;
use std::collections::BTreeMap;

/// The plain JSONPaths (only names and indexes) in the conditions of a group of selectors, as a tree.
///
/// Each path has a number, which does not change while the path is in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    nodes: Vec<Node>,
    free: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    names: BTreeMap<Box<str>, usize>,
    indexes: BTreeMap<i64, usize>,
    /// Number of conditions of the selector group whose JSONPath ends at this tree node.
    uses: usize,
}

impl Paths {
    /// Identifying number of the root path `$` in the tree of JSONPaths.
    pub(super) const ROOT: usize = 0;

    /// Increments the use count of a JSONPath in the tree of JSONPaths, and returns the number that identifies the JSONPath.
    pub(super) fn acquire(&mut self, steps: &[Step]) -> usize {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        let mut at = Self::ROOT;
        for step in steps {
            at = match self.child(at, step) {
                Some(child) => child,
                None => self.grow(at, step),
            };
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.uses += 1;
        }
        at
    }

    /// Decrements the use count of a JSONPath, and removes unused nodes from the tree.
    pub(super) fn release(&mut self, steps: &[Step]) {
        let Some(at) = self.find(steps) else { return };
        if let Some(node) = self.nodes.get_mut(at) {
            node.uses = node.uses.saturating_sub(1);
        }
        let mut rest = steps;
        while let Some((step, parents)) = rest.split_last() {
            let (Some(parent), Some(at)) = (self.find(parents), self.find(rest)) else {
                return;
            };
            if self.nodes.get(at).is_some_and(Node::is_needed) {
                return;
            }
            if let Some(node) = self.nodes.get_mut(parent) {
                match step {
                    Step::Name(name) => node.names.remove(name.as_str()),
                    Step::Index(index) => node.indexes.remove(index),
                };
            }
            self.free.push(at);
            rest = parents;
        }
    }

    /// Returns the identifying number of a JSONPath, or `None` if the tree of JSONPaths does not contain it. Prefixes of paths in
    /// conditions have numbers too.
    pub(super) fn find(&self, steps: &[Step]) -> Option<usize> {
        let from = (!self.nodes.is_empty()).then_some(Self::ROOT)?;
        steps.iter().try_fold(from, |at, step| self.child(at, step))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.first().is_none_or(|root| !root.is_needed())
    }

    pub(super) fn is_used(&self, at: usize) -> bool {
        self.nodes.get(at).is_some_and(|node| node.uses > 0)
    }

    pub(super) fn has_names(&self, at: usize) -> bool {
        self.nodes
            .get(at)
            .is_some_and(|node| !node.names.is_empty())
    }

    pub(super) fn has_indexes(&self, at: usize) -> bool {
        self.nodes
            .get(at)
            .is_some_and(|node| !node.indexes.is_empty())
    }

    /// Returns the number of the JSONPath that extends the JSONPath with the number `at` by a field name, or `None` if the tree
    /// of JSONPaths does not contain it.
    pub(super) fn name(&self, at: usize, name: &str) -> Option<usize> {
        self.nodes.get(at)?.names.get(name).copied()
    }

    /// Calls `found` for each condition's JSONPath that starts with `at`, with the JSONPath's number and the value there in the
    /// event's context. `value` is the value at the path `at`. The longest path limits the recursion.
    pub(super) fn walk<'v>(
        &self,
        at: usize,
        value: &'v Value,
        found: &mut impl FnMut(usize, &'v Value),
    ) {
        let Some(node) = self.nodes.get(at) else {
            return;
        };
        if node.uses > 0 {
            found(at, value);
        }
        match value {
            Value::Object(fields) if fields.len() < node.names.len() => {
                for (name, field) in fields {
                    if let Some(child) = node.names.get(name.as_str()) {
                        self.walk(*child, field, found);
                    }
                }
            }
            Value::Object(fields) => {
                for (name, child) in &node.names {
                    if let Some(field) = fields.get(&**name) {
                        self.walk(*child, field, found);
                    }
                }
            }
            Value::Array(_) => self.walk_items(at, value, found),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Calls `found` like [`walk`](Self::walk), but only for each JSONPath that starts with `at` and continues with an array
    /// index.
    pub(super) fn walk_items<'v>(
        &self,
        at: usize,
        value: &'v Value,
        found: &mut impl FnMut(usize, &'v Value),
    ) {
        let indexes = self.nodes.get(at).map(|node| &node.indexes);
        for (index, child) in indexes.into_iter().flatten() {
            if let Some(item) = item(value, *index) {
                self.walk(*child, item, found);
            }
        }
    }

    fn child(&self, at: usize, step: &Step) -> Option<usize> {
        match step {
            Step::Name(name) => self.name(at, name),
            Step::Index(index) => self.nodes.get(at)?.indexes.get(index).copied(),
        }
    }

    fn grow(&mut self, at: usize, step: &Step) -> usize {
        let child = match self.free.pop() {
            Some(free) => free,
            None => {
                self.nodes.push(Node::default());
                self.nodes.len() - 1
            }
        };
        if let Some(node) = self.nodes.get_mut(at) {
            match step {
                Step::Name(name) => node.names.insert(name.as_str().into(), child),
                Step::Index(index) => node.indexes.insert(*index, child),
            };
        }
        child
    }
}

impl Node {
    fn is_needed(&self) -> bool {
        self.uses > 0 || !self.names.is_empty() || !self.indexes.is_empty()
    }
}

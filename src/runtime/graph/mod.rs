//! Who writes what, and whom that triggers: drawn, and searched for cycles.
//!
//! ```
//! use std::sync::Arc;
//! use universal_executor::runtime::graph::Graph;
//! use universal_executor::tool::{ToolExecutor, json_tool};
//! use universal_executor::{MemoryStore, UniversalExecutor};
//!
//! let echo = json_tool("echo", "Says it again.", serde_json::json!({}), |input, _| async move { Ok(input) });
//! let echo = ToolExecutor::new(echo, Arc::new(MemoryStore::default()))?;
//!
//! let graph = Graph::of([&echo as &dyn UniversalExecutor]);
//!
//! assert!(graph.to_mermaid().contains("echo"));
//! assert!(graph.cycles().is_empty());
//! # Ok::<(), universal_executor::tool::ToolError>(())
//! ```

mod cycles;
mod mermaid;
mod tarjan;

use crate::executor::UniversalExecutor;
use crate::model::{Role, Subscriptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Executors, the schemas they write, and the executors those trigger.
///
/// It is made of what executors say about themselves: the schemas of their triggers, and
/// [`responds_with`](crate::Profile::responds_with) of their profiles. Tags, conditions and kinds of events are not
/// looked at, so an arrow says what may happen, not what will. Dead letters, which any executor may leave, are not in
/// it.
#[derive(Clone, Debug)]
pub struct Graph {
    /// By id.
    nodes: Vec<Node>,
    /// Every schema that is written or a trigger, in order; nodes name them by their place.
    schemas: Vec<String>,
    cycles: Vec<Cycle>,
}

/// One executor.
#[derive(Clone, Debug)]
struct Node {
    id: String,
    kind: String,
    /// Places of schemas.
    triggers: BTreeSet<usize>,
    /// Whether some trigger names no schema.
    any_trigger: bool,
    /// Places of schemas; none if it may write any.
    writes: Option<BTreeSet<usize>>,
}

/// Executors that trigger one another in a circle; prints as
/// `a writes x.v1, which triggers b, which writes y.v1, which triggers a`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cycle {
    steps: Vec<Step>,
}

/// An executor of a cycle, and the schema by which it triggers the next one.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// The executor.
    pub executor: String,
    /// What it writes.
    pub schema: String,
}

impl Graph {
    /// The graph of some executors, in whatever order they come.
    pub fn of<'e>(executors: impl IntoIterator<Item = &'e dyn UniversalExecutor>) -> Self {
        Self::of_declared(executors.into_iter().map(Declared::of))
    }

    /// Builds the graph of executors that need not exist, from their definitions.
    pub(crate) fn of_declared<'e>(executors: impl IntoIterator<Item = Declared<'e>>) -> Self {
        let mut facts: Vec<Facts<'_>> = executors.into_iter().map(Facts::of).collect();
        facts.sort_by_key(|facts| facts.id);
        let mut places: BTreeMap<&str, usize> = facts
            .iter()
            .flat_map(|facts| facts.triggers.iter().chain(facts.writes.iter().flatten()))
            .map(|schema| (*schema, 0))
            .collect();
        for (place, at) in places.values_mut().enumerate() {
            *at = place;
        }
        let schemas = places.keys().map(|schema| (*schema).to_owned()).collect();
        let nodes: Vec<Node> = facts.iter().map(|facts| facts.node(&places)).collect();
        let mut graph = Self {
            nodes,
            schemas,
            cycles: Vec::new(),
        };
        graph.cycles = cycles::of(&graph);
        graph
    }

    /// The circles in which executors may trigger one another: of every group of executors that can all reach each
    /// other one, a shortest. (In a group of more than a few dozen, a short one.)
    ///
    /// An executor that writes its own trigger is none, since no executor reacts to its own breadcrumbs. An executor
    /// that does not say what it writes takes part in none: what it closes is not known. A cycle is no error, the hop
    /// limit ends it, but is rarely meant.
    #[must_use]
    pub fn cycles(&self) -> &[Cycle] {
        &self.cycles
    }

    /// A [Mermaid](https://mermaid.js.org/syntax/flowchart.html) flowchart: executors with their kinds, the schemas
    /// between them, and "any schema" for triggers that name none and executors that may write whatever they like.
    ///
    /// The same executors give the same text. Whatever an id or a schema holds is shown as text.
    #[must_use]
    pub fn to_mermaid(&self) -> String {
        mermaid::flowchart(self)
    }
}

impl Cycle {
    /// Its steps; the last one triggers the first.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Step { executor, schema }) in self.steps.iter().enumerate() {
            let which = if at == 0 { "" } else { ", which triggers " };
            let then = if at == 0 {
                " writes "
            } else {
                ", which writes "
            };
            write!(f, "{which}{executor}{then}{schema}")?;
        }
        match self.steps.first() {
            Some(first) => write!(f, ", which triggers {}", first.executor),
            None => Ok(()),
        }
    }
}

/// What an executor says about itself.
struct Facts<'e> {
    id: &'e str,
    kind: &'e str,
    triggers: BTreeSet<&'e str>,
    any_trigger: bool,
    writes: Option<BTreeSet<&'e str>>,
}

/// The declared properties of an executor that the graph needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared<'e> {
    pub(crate) id: &'e str,
    pub(crate) kind: &'e str,
    pub(crate) subscriptions: &'e Subscriptions,
    /// The schemas that the executor writes, or `None` if it does not declare them.
    pub(crate) writes: Option<&'e [String]>,
}

impl<'e> Declared<'e> {
    fn of(executor: &'e dyn UniversalExecutor) -> Self {
        let profile = executor.profile();
        Self {
            id: executor.id(),
            kind: &profile.kind,
            subscriptions: executor.subscriptions(),
            writes: profile.responds_with.as_deref(),
        }
    }
}

impl<'e> Facts<'e> {
    fn of(executor: Declared<'e>) -> Self {
        let all = executor.subscriptions.as_slice().iter();
        let triggers = all.filter(|subscription| subscription.role == Role::Trigger);
        let schemas: Vec<Option<&str>> = triggers
            .map(|subscription| subscription.selector.schema_name())
            .collect();
        Self {
            id: executor.id,
            kind: executor.kind,
            any_trigger: schemas.contains(&None),
            triggers: schemas.into_iter().flatten().collect(),
            writes: executor
                .writes
                .map(|schemas| schemas.iter().map(String::as_str).collect()),
        }
    }

    fn node(&self, places: &BTreeMap<&str, usize>) -> Node {
        let places = |schemas: &BTreeSet<&str>| {
            let places = schemas.iter().filter_map(|schema| places.get(schema));
            places.copied().collect()
        };
        Node {
            id: self.id.to_owned(),
            kind: self.kind.to_owned(),
            triggers: places(&self.triggers),
            any_trigger: self.any_trigger,
            writes: self.writes.as_ref().map(places),
        }
    }
}

#[cfg(test)]
mod tests;

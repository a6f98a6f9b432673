//! Trigger graph of executors, with the trigger cycles in the graph and a Mermaid flowchart of the graph.
//!
//! Use this to draw the executors of a service, or to find executors that trigger each other endlessly.
//!
//! Start with [`Runtime::graph`](super::Runtime::graph), or with [`Graph::of`] for executors
//! without a runtime.
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

/// Trigger graph of executors and schemas. An executor has an edge to each schema of the breadcrumbs that it writes. A schema has an edge
/// to each executor that breadcrumbs of the schema trigger.
///
/// The graph is built from the declarations of the executors: the schemas of their triggers, and
/// [`responds_with`](crate::Profile::responds_with) of their profiles. Tags, conditions and event kinds are ignored, so an
/// edge shows a possible trigger, not a certain one. Dead letters are omitted, because any executor can write one.
///
/// # Examples
/// ```
/// use universal_executor::{MemoryStore, NewBreadcrumb, Response, Runtime, Subscription, executor};
///
/// let step = |id: &str, reads: &str, writes: &'static str| {
///     executor(id)
///         .on(Subscription::trigger(reads))
///         .responds_with([writes])
///         .execute(move |_| async move { Ok(Response::create(NewBreadcrumb::new(writes))) })
/// };
/// let store = MemoryStore::default();
/// let runtime = Runtime::on(&store)
///     .executor(step("a", "y.v1", "x.v1"))
///     .executor(step("b", "x.v1", "y.v1"))
///     .build()?;
///
/// let graph = runtime.graph();
/// let cycle = &graph.cycles()[0];
/// assert_eq!(cycle.steps().len(), 2);
/// println!("{cycle}");
/// # Ok::<(), universal_executor::runtime::RuntimeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Graph {
    /// The executors of the trigger graph, sorted by ID.
    nodes: Vec<Node>,
    /// All schemas of breadcrumbs that the executors write or that trigger executors, sorted. Nodes refer to schemas by index.
    schemas: Vec<String>,
    cycles: Vec<Cycle>,
}

/// One executor of the trigger graph.
#[derive(Clone, Debug)]
struct Node {
    id: String,
    kind: String,
    /// Indexes of the schemas whose breadcrumbs trigger the executor.
    triggers: BTreeSet<usize>,
    /// If `true`, breadcrumbs of any schema can trigger the executor, because one of its trigger subscriptions names no schema.
    any_trigger: bool,
    /// Indexes of the schemas of the breadcrumbs that the executor writes, or `None` if the executor may write any schema.
    writes: Option<BTreeSet<usize>>,
}

/// A cycle of executors that trigger each other. Displayed as
/// `a writes x.v1, which triggers b, which writes y.v1, which triggers a`.
///
/// Returned by [`Graph::cycles`]. [`Profile::hop_limit`](crate::Profile::hop_limit) ends such a
/// chain of runs, after 16 hops by default.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cycle {
    steps: Vec<Step>,
}

/// An executor of a trigger cycle, and the schema by which it triggers the next executor.
///
/// Returned by [`Cycle::steps`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// ID of the executor of this step of a trigger cycle.
    pub executor: String,
    /// The schema of the breadcrumbs that the executor writes and that trigger the next executor.
    pub schema: String,
}

impl Graph {
    /// Builds the trigger graph of executors. Their order does not matter.
    ///
    /// Use this in a test that checks the executors of a service for cycles. The executors are not
    /// run, and the store is not read.
    pub fn of<'e>(executors: impl IntoIterator<Item = &'e dyn UniversalExecutor>) -> Self {
        Self::of_declared(executors.into_iter().map(Declared::of))
    }

    /// Builds the trigger graph from the subscriptions and written schemas that executors declare. The executors themselves need
    /// not be created.
    pub(crate) fn of_declared<'e>(executors: impl IntoIterator<Item = Declared<'e>>) -> Self {
        let mut named: Vec<NamedNode<'_>> = executors.into_iter().map(NamedNode::of).collect();
        named.sort_by_key(|named| named.id);
        let mut indexes: BTreeMap<&str, usize> = named
            .iter()
            .flat_map(|named| named.triggers.iter().chain(named.writes.iter().flatten()))
            .map(|schema| (*schema, 0))
            .collect();
        for (index, at) in indexes.values_mut().enumerate() {
            *at = index;
        }
        let schemas = indexes.keys().map(|schema| (*schema).to_owned()).collect();
        let nodes: Vec<Node> = named.iter().map(|named| named.node(&indexes)).collect();
        let mut graph = Self {
            nodes,
            schemas,
            cycles: Vec::new(),
        };
        graph.cycles = cycles::of(&graph);
        graph
    }

    /// Returns the cycles in which executors may trigger each other: for every group of executors that can all reach each
    /// other, a shortest cycle. In a group of more than 64 executors, the cycle may not be the shortest.
    ///
    /// An executor that writes its own trigger is not a cycle, because no executor reacts to its own breadcrumbs. An executor
    /// that does not declare its written schemas is part of no cycle. A cycle is not an error, because the hop limit ends it,
    /// but it is rarely intended.
    #[must_use]
    pub fn cycles(&self) -> &[Cycle] {
        &self.cycles
    }

    /// Returns the trigger graph as a [Mermaid](https://mermaid.js.org/syntax/flowchart.html) flowchart. It shows the executors with their
    /// kinds, the schemas between them, and "any schema" for triggers without a schema and for executors that may write any schema.
    ///
    /// The same executors always lead to the same chart. IDs and schemas are escaped, so that they cannot add elements.
    ///
    /// Paste the string into a Markdown file on GitHub, or into the live editor of Mermaid.
    #[must_use]
    pub fn to_mermaid(&self) -> String {
        mermaid::flowchart(self)
    }
}

impl Cycle {
    /// Returns the steps of the trigger cycle. The last executor triggers the first one.
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

/// An executor of the trigger graph, with its schemas by name instead of by index in the graph's list of schemas.
struct NamedNode<'e> {
    id: &'e str,
    kind: &'e str,
    triggers: BTreeSet<&'e str>,
    any_trigger: bool,
    writes: Option<BTreeSet<&'e str>>,
}

/// The declared properties of an executor that the trigger graph needs.
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

impl<'e> NamedNode<'e> {
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

    fn node(&self, indexes: &BTreeMap<&str, usize>) -> Node {
        let indexes = |schemas: &BTreeSet<&str>| {
            let indexes = schemas.iter().filter_map(|schema| indexes.get(schema));
            indexes.copied().collect()
        };
        Node {
            id: self.id.to_owned(),
            kind: self.kind.to_owned(),
            triggers: indexes(&self.triggers),
            any_trigger: self.any_trigger,
            writes: self.writes.as_ref().map(indexes),
        }
    }
}

#[cfg(test)]
mod tests;

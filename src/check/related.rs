//! Checks of the relations between the definitions of several executors, and between the subscriptions of one executor.

use crate::agent::is_open;
use crate::model::{
    DefinitionPath, Finding, Findings, Role, Selector, Subscription, Subscriptions,
};
use crate::runtime::graph::{Declared, Graph};
use std::collections::BTreeSet;

/// The ID and the subscriptions of an executor, and the schemas of the breadcrumbs that it writes, as its definition declares them.
#[derive(Debug)]
pub(super) struct Declaration {
    pub(super) id: String,
    pub(super) kind: &'static str,
    pub(super) subscriptions: Subscriptions,
    /// The schemas of the breadcrumbs that the executor writes. `None` if the executor may create every schema, except protected schemas
    /// such as definitions, and schemas that start with `tool.`, `user.` or `system.`.
    pub(super) writes: Option<Vec<String>>,
}

/// Returns findings for cycles of executors that trigger one another, and for subscribed schemas that no executor writes.
pub(super) fn check(declared: &[Declaration]) -> Findings {
    let mut findings = Findings::default();
    let graph = Graph::of_declared(declared.iter().map(|one| Declared {
        id: &one.id,
        kind: one.kind,
        subscriptions: &one.subscriptions,
        writes: one.writes.as_deref(),
    }));
    let warning = |message: String| Finding::warning(DefinitionPath::default(), message);
    let cycles = graph.cycles().iter();
    findings.extend(cycles.map(|cycle| warning(format!("executors form a cycle: {cycle}"))));
    let written: BTreeSet<&str> = declared
        .iter()
        .filter_map(|one| one.writes.as_ref())
        .flat_map(|writes| writes.iter().map(String::as_str))
        .collect();
    let creates_any = declared.iter().any(|one| one.writes.is_none());
    let is_written = |schema: &str| creates_any && is_open(schema);
    let subscriptions = declared.iter().flat_map(|one| one.subscriptions.as_slice());
    let read: BTreeSet<&str> = subscriptions
        .filter_map(|one| one.selector.schema_name())
        .collect();
    let unlisted = read.difference(&written);
    let missing = unlisted.filter(|schema| **schema != "*" && !is_written(schema));
    findings.extend(missing.map(|schema| {
        warning(format!(
            "no definition writes {schema}; a person or a service must write it"
        ))
    }));
    findings
}

/// Finds each subscription in `all` that selects the same breadcrumbs as an earlier subscription, or has no effect because of
/// one. Returns the index of each such subscription in `all`, and the problem.
pub(super) fn shadowed_subscriptions(all: &[Subscription]) -> Vec<(usize, String)> {
    let mut shadowed = Vec::new();
    for (at, one) in all.iter().enumerate() {
        for (before, other) in all.iter().enumerate().take(at) {
            let is_same = one.selector == other.selector && one.on == other.on;
            let problem = match (one.role, other.role) {
                _ if is_same && one.role != other.role => {
                    "selects the same breadcrumbs in another role as"
                }
                (Role::Trigger, Role::Trigger) if is_same => "selects the same breadcrumbs as",
                (Role::Context, Role::Context)
                    if is_same && one.fetch == other.fetch && one.scope == other.scope =>
                {
                    "fetches the same breadcrumbs under another key as"
                }
                (Role::Trigger, Role::Trigger)
                    if other.priority >= one.priority && covers(&other.selector, &one.selector) =>
                {
                    "has no effect, because all breadcrumbs that it selects are selected by"
                }
                (Role::Trigger | Role::Context, _) => continue,
            };
            shadowed.push((at, format!("{problem} subscription {before}")));
        }
    }
    shadowed
}

/// Returns `true` if the selector `wide` is sure to select every breadcrumb that the selector `narrow` selects.
fn covers(wide: &Selector, narrow: &Selector) -> bool {
    let any_schema = wide.schema_name().is_none_or(|schema| schema == "*");
    (any_schema || wide.schema_name() == narrow.schema_name())
        && wide
            .all_of_tags()
            .iter()
            .all(|tag| narrow.all_of_tags().contains(tag))
        && (wide.any_of_tags().is_none() || wide.any_of_tags() == narrow.any_of_tags())
        && wide
            .conditions()
            .iter()
            .all(|one| narrow.conditions().contains(one))
}

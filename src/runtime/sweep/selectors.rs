//! Selectors of all breadcrumbs that executors, open `wait_for` calls and suspended runs need, so that a sweep reads no other
//! breadcrumbs.

use crate::executor::SchemaHints;
use crate::model::{Role, Selector};
use crate::runtime::shared::Shared;
use crate::runtime::store_context::StoreContext;

/// Maximum number of queries of a sweep for triggers. With more, the queries select by schema alone, and then everything.
const MAX_TRIGGERS: usize = 64;

/// Maximum number of queries of a sweep for open `wait_for` calls and suspended runs. With more, the queries select by schema
/// alone, and then everything.
const MAX_WAITS: usize = 16;

/// Returns the selectors of the triggers, open `wait_for` calls and suspended runs on a store, and of schema definitions.
pub(super) fn needed_selectors(shared: &Shared, store_context: &StoreContext) -> Vec<Selector> {
    let mut triggers = vec![SchemaHints::definitions()];
    for member in shared.registry.all() {
        if member.store_context.number == store_context.number {
            let subscriptions = member.executor.subscriptions().as_slice().iter();
            let of_member = subscriptions.filter(|one| one.role == Role::Trigger);
            triggers.extend(of_member.map(|one| one.selector.clone()));
        }
    }
    triggers.extend(store_context.other_versions().triggers().iter().cloned());
    let mut waits = store_context.waits.selectors();
    waits.extend(store_context.wakes.selectors());
    limit_selectors(&triggers, &waits)
}

/// Returns the selectors of triggers, followed by the selectors that only open `wait_for` calls and suspended runs need. The
/// number of selectors of each kind is limited.
fn limit_selectors(triggers: &[Selector], waits: &[Selector]) -> Vec<Selector> {
    let mut all = fold_to_limit(MAX_TRIGGERS, triggers);
    let others = waits.iter().filter(|wait| !all.contains(wait)).cloned();
    let others = fold_to_limit(MAX_WAITS, &others.collect::<Vec<_>>());
    for other in others {
        if !all.contains(&other) {
            all.push(other);
        }
    }
    all
}

/// Returns at most `limit` selectors that together match every breadcrumb that a selector in `all` matches.
fn fold_to_limit(limit: usize, all: &[Selector]) -> Vec<Selector> {
    let folds: [fn(&Selector) -> Selector; 2] = [Selector::clone, by_schema];
    let mut limited: Vec<Selector> = Vec::new();
    for fold in folds {
        limited.clear();
        for selector in all.iter().map(fold) {
            if limited.len() <= limit && !limited.contains(&selector) {
                limited.push(selector);
            }
        }
        if limited.len() <= limit {
            return limited;
        }
    }
    vec![Selector::any()]
}

/// Widens a selector to all breadcrumbs with its schema. Returns a selector without a schema unchanged.
fn by_schema(selector: &Selector) -> Selector {
    let schema = selector.schema_name().filter(|schema| *schema != "*");
    schema.map_or_else(|| selector.clone(), Selector::schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(schema: usize, tag: usize) -> Selector {
        Selector::schema(format!("s{schema}.v1")).all_tags([tag.to_string()])
    }

    #[test]
    fn few_selectors_are_used_as_they_are_and_each_once() {
        let triggers = [tagged(1, 1), tagged(2, 1), tagged(1, 1)];
        let waits = [tagged(2, 1), tagged(3, 1)];

        let limited = limit_selectors(&triggers, &waits);

        assert_eq!(limited, [tagged(1, 1), tagged(2, 1), tagged(3, 1)]);
    }

    #[test]
    fn many_waits_are_folded_by_schema_and_leave_the_triggers_as_they_are() {
        let triggers: Vec<Selector> = (0..20).map(|n| tagged(n, n)).collect();
        let no_schema = Selector::any().all_tags(["session:1"]);
        let mut waits: Vec<Selector> = (0..40).map(|n| tagged(n % 3, 100 + n)).collect();
        waits.push(no_schema.clone());

        let limited = limit_selectors(&triggers, &waits);

        let folded = ["s0.v1", "s1.v1", "s2.v1"].map(Selector::schema);
        let wanted = triggers.iter().cloned().chain(folded).chain([no_schema]);
        assert_eq!(limited, wanted.collect::<Vec<_>>());
    }

    #[test]
    fn waits_of_too_many_schemas_become_one_selector_of_everything_beside_the_triggers() {
        let waits: Vec<Selector> = (0..40).map(|n| tagged(n, n)).collect();

        assert_eq!(
            limit_selectors(&[tagged(1, 7)], &waits),
            [tagged(1, 7), Selector::any()]
        );
    }

    #[test]
    fn very_many_triggers_are_folded_by_schema() {
        let triggers: Vec<Selector> = (0..100).map(|n| tagged(n % 2, n)).collect();

        assert_eq!(
            limit_selectors(&triggers, &[]),
            ["s0.v1", "s1.v1"].map(Selector::schema)
        );
    }
}

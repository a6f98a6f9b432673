//! The selectors of everything that a store is watched for, so that a sweep reads nothing else.

use crate::executor::SchemaHints;
use crate::model::{Role, Selector};
use crate::runtime::home::Home;
use crate::runtime::shared::Shared;

/// Maximum number of queries of one sweep. Above it, the queries select by schema alone, and then everything.
const MOST: usize = 16;

/// The selectors of the triggers here, of waits and suspended runs, and of schema definitions.
pub(super) fn watched(shared: &Shared, home: &Home) -> Vec<Selector> {
    let mut all = vec![SchemaHints::definitions()];
    for member in shared.roster.all() {
        if member.home.number == home.number {
            let subscriptions = member.executor.subscriptions().as_slice().iter();
            let triggers = subscriptions.filter(|one| one.role == Role::Trigger);
            all.extend(triggers.map(|one| one.selector.clone()));
        }
    }
    all.extend(home.others().triggers().iter().cloned());
    all.extend(home.waits.selectors());
    for sleeper in home.wakes.all() {
        all.extend(sleeper.selectors.iter().cloned());
    }
    few(&all)
}

/// At most so many selectors that together select everything that these select.
fn few(all: &[Selector]) -> Vec<Selector> {
    let mut distinct: Vec<Selector> = Vec::new();
    for selector in all {
        if distinct.len() <= MOST && !distinct.contains(selector) {
            distinct.push(selector.clone());
        }
    }
    if distinct.len() <= MOST {
        return distinct;
    }
    let mut schemas: Vec<&str> = Vec::new();
    for selector in all {
        match selector.schema_name().filter(|schema| *schema != "*") {
            Some(schema) if schemas.contains(&schema) => {}
            Some(schema) if schemas.len() < MOST => schemas.push(schema),
            Some(_) | None => return vec![Selector::any()],
        }
    }
    schemas.into_iter().map(Selector::schema).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_selectors_are_used_as_they_are_and_each_once() {
        let tagged = Selector::schema("a.v1").all_tags(["x"]);
        let all = vec![tagged.clone(), Selector::schema("b.v1"), tagged.clone()];

        assert_eq!(few(&all), [tagged, Selector::schema("b.v1")]);
    }

    #[test]
    fn many_selectors_become_one_for_each_schema_or_one_for_everything() {
        let tagged =
            |n: usize| Selector::schema(format!("s{}.v1", n % 3)).all_tags([n.to_string()]);
        let mut all: Vec<Selector> = (0..40).map(tagged).collect();

        assert_eq!(few(&all), ["s0.v1", "s1.v1", "s2.v1"].map(Selector::schema));

        all.push(Selector::any().all_tags(["x"]));
        assert_eq!(few(&all), [Selector::any()]);
        let schemas = (0..40).map(|n| Selector::schema(format!("s{n}.v1")));
        assert_eq!(few(&schemas.collect::<Vec<_>>()), [Selector::any()]);
    }
}

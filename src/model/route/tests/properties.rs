//! Property tests that compare routes with a naive evaluation of the definition's JSON.

use super::*;
use crate::model::Explanation;
use crate::model::strategies::{PATHS, definition, event};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;

/// Returns the route by a naive evaluation of the JSON of a list of subscriptions.
fn naive_route(definition: &[Value], event: &Event) -> Route {
    let outcomes: Vec<Option<bool>> = definition
        .iter()
        .map(|one| naive_match(one, event))
        .collect();
    let in_role = |role: &'static str| {
        (0..definition.len()).filter(move |at| definition[*at]["role"] == role)
    };
    let mut best_trigger: Option<usize> = None;
    for at in in_role("trigger").filter(|at| outcomes[*at] == Some(true)) {
        let priority = |at: usize| definition[at]["priority"].as_i64().unwrap_or(0);
        if best_trigger.is_none_or(|best| priority(at) > priority(best)) {
            best_trigger = Some(at);
        }
    }
    match best_trigger {
        Some(subscription) => Route::Trigger { subscription },
        None if in_role("trigger").any(|at| outcomes[at].is_none()) => Route::NeedsContext,
        None if in_role("context").any(|at| outcomes[at] != Some(false)) => Route::Context,
        None => Route::Unmatched,
    }
}

/// Returns `true` if a subscription matches, or `None` if the match depends on a missing context.
fn naive_match(subscription: &Value, event: &Event) -> Option<bool> {
    let kind = match event.kind {
        EventKind::Ping => return Some(false),
        EventKind::Deleted => "deleted",
        EventKind::Created | EventKind::Updated if event.version <= 1 => "created",
        EventKind::Created | EventKind::Updated => "updated",
    };
    let texts = |field: &str| -> Option<Vec<String>> {
        serde_json::from_value(subscription[field].clone()).unwrap()
    };
    let kinds = texts("on").unwrap_or(vec!["created".to_owned(), "updated".to_owned()]);
    let schema_holds = match subscription["schema_name"].as_str() {
        None | Some("*") => true,
        Some(schema) => event.schema_name.as_deref() == Some(schema),
    };
    let any_holds =
        texts("any_tags").is_none_or(|tags| tags.iter().any(|tag| event.tags.contains(tag)));
    let all_holds =
        texts("all_tags").is_none_or(|tags| tags.iter().all(|tag| event.tags.contains(tag)));
    if !(kinds.iter().any(|one| one == kind) && schema_holds && any_holds && all_holds) {
        return Some(false);
    }
    let conditions = subscription["context_match"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    if conditions.is_empty() {
        return Some(true);
    }
    let context: &Value = event.context.as_ref()?;
    Some(
        conditions
            .iter()
            .all(|condition| naive_condition(condition, context)),
    )
}

fn naive_condition(condition: &Value, context: &Value) -> bool {
    let nodes = naive_nodes(condition["path"].as_str().unwrap(), context);
    let value = &condition["value"];
    match condition["op"].as_str().unwrap() {
        "exists" => nodes.is_empty() == (value == &json!(false)),
        "ne" => nodes.iter().all(|node| !same(node, value)),
        op => nodes.iter().any(|node| naive_op(op, node, value)),
    }
}

fn naive_nodes<'v>(path: &str, context: &'v Value) -> Vec<&'v Value> {
    let items = || context["z"].as_array();
    match path {
        "x" | "$.x" => context.get("x").into_iter().collect(),
        "$['y']" => context.get("y").into_iter().collect(),
        "$.x.y" => context["x"].get("y").into_iter().collect(),
        "$.z[0]" => items()
            .and_then(|items| items.first())
            .into_iter()
            .collect(),
        "$.z[-1]" => items().and_then(|items| items.last()).into_iter().collect(),
        "$.z[*]" => match &context["z"] {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        },
        "$.*" => context.as_object().unwrap().values().collect(),
        other => panic!("{other} is not one of {PATHS:?}"),
    }
}

fn naive_op(op: &str, node: &Value, value: &Value) -> bool {
    let has = |list: &Value, expected: &Value| {
        list.as_array()
            .is_some_and(|list| list.iter().any(|item| same(item, expected)))
    };
    let texts = node.as_str().zip(value.as_str());
    let order = match (node.as_f64(), value.as_f64()) {
        (Some(node), Some(value)) => node.partial_cmp(&value),
        _ => texts.map(|(node, value)| node.chars().cmp(value.chars())),
    };
    match op {
        "eq" => same(node, value),
        "gt" => order.is_some_and(|order| order.is_gt()),
        "gte" => order.is_some_and(|order| order.is_ge()),
        "lt" => order.is_some_and(|order| order.is_lt()),
        "lte" => order.is_some_and(|order| order.is_le()),
        "in" => has(value, node),
        "contains" => {
            let is_key =
                || node.is_object() && value.as_str().is_some_and(|key| node.get(key).is_some());
            has(node, value) || texts.is_some_and(|(text, part)| text.contains(part)) || is_key()
        }
        "contains_any" => value
            .as_array()
            .is_some_and(|list| list.iter().any(|expected| has(node, expected))),
        "contains_all" => {
            node.is_array()
                && value
                    .as_array()
                    .is_some_and(|list| list.iter().all(|expected| has(node, expected)))
        }
        "starts_with" => texts.is_some_and(|(text, part)| text.starts_with(part)),
        "ends_with" => texts.is_some_and(|(text, part)| text.ends_with(part)),
        "matches" => texts.is_some_and(|(text, regex)| {
            match (regex.strip_prefix('^'), regex.strip_suffix('$')) {
                (Some(start), _) => text.starts_with(start),
                (_, Some(end)) => text.ends_with(end),
                _ => text.contains(regex),
            }
        }),
        other => panic!("{other} is not an operator"),
    }
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, one)| other.get(name).is_some_and(|other| same(one, other)))
        }
        _ => one == other,
    }
}

fn kind_of_route(route: Route) -> std::mem::Discriminant<Route> {
    std::mem::discriminant(&route)
}

/// Returns `true` if an explanation is consistent with its route and with the subscriptions.
fn is_consistent(explained: &Explanation, subscriptions: &Subscriptions) -> bool {
    let role_of = |role| {
        explained
            .subscriptions
            .iter()
            .filter(move |one| one.role == role)
    };
    let agrees = match explained.route {
        Route::Trigger { subscription } => {
            let one = &explained.subscriptions[subscription];
            one.matched && one.role == Role::Trigger
        }
        Route::NeedsContext => !role_of(Role::Trigger).any(|one| one.matched),
        Route::Context => !role_of(Role::Trigger).any(|one| one.matched),
        Route::Unmatched => !explained.subscriptions.iter().any(|one| one.matched),
    };
    let described = explained
        .subscriptions
        .iter()
        .zip(subscriptions.as_slice())
        .all(|(one, subscription)| {
            one.matched == one.reason.is_none()
                && one.role == subscription.role
                && one.name.as_deref() == subscription.name()
        });
    agrees && described && explained.subscriptions.len() == subscriptions.as_slice().len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_route_equals_the_result_of_a_naive_implementation(definition in definition(), event in event()) {
        let subscriptions = load(&json!(definition));

        prop_assert_eq!(subscriptions.route(&event), naive_route(&definition, &event), "{}", subscriptions.explain(&event));
    }

    #[test]
    fn each_match_flag_of_an_explanation_equals_the_naive_result(definition in definition(), event in event()) {
        let explained = load(&json!(definition)).explain(&event);

        for (one, subscription) in explained.subscriptions.iter().zip(&definition) {
            prop_assert_eq!(one.matched, naive_match(subscription, &event) == Some(true), "{}", subscription);
        }
    }

    #[test]
    fn the_kind_of_route_does_not_depend_on_the_order_of_the_list(
        (one, other) in definition().prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle())),
        event in event(),
    ) {
        let (one, other) = (load(&json!(one)), load(&json!(other)));
        let priority = |of: &Subscriptions, route| match route {
            Route::Trigger { subscription } => Some(of.as_slice()[subscription].priority),
            Route::Unmatched | Route::Context | Route::NeedsContext => None,
        };

        let routes = (one.route(&event), other.route(&event));

        prop_assert_eq!(kind_of_route(routes.0), kind_of_route(routes.1));
        prop_assert_eq!(priority(&one, routes.0), priority(&other, routes.1));
    }

    #[test]
    fn an_explanation_agrees_with_the_route(definition in definition(), event in event()) {
        let subscriptions = load(&json!(definition));

        let explained = subscriptions.explain(&event);

        prop_assert_eq!(explained.route, subscriptions.route(&event));
        prop_assert!(is_consistent(&explained, &subscriptions), "{}", explained);
        prop_assert_eq!(explained.to_string().contains(" and triggers"), matches!(explained.route, Route::Trigger { .. }));
    }

    #[test]
    fn a_breadcrumb_has_the_route_of_an_event_that_carries_its_context(definition in definition(), event in event()) {
        let subscriptions = load(&json!(definition));
        let mut breadcrumb = NewBreadcrumb::new("").first_version(event.breadcrumb_id, event.updated_at);
        breadcrumb.schema_name.clone_from(&event.schema_name);
        breadcrumb.tags.clone_from(&event.tags);
        breadcrumb.version = event.version;
        breadcrumb.context = event.context.clone().unwrap_or_default();

        let route = subscriptions.route_breadcrumb(event.effective_kind(), &breadcrumb);

        let with_context = Event { context: Some(breadcrumb.context.clone()), ..event };
        prop_assert_eq!(route, subscriptions.route(&with_context));
        prop_assert!(route != Route::NeedsContext);
    }

    #[test]
    fn an_event_read_from_text_has_the_route_of_one_made_in_memory(definition in definition(), event in event()) {
        let subscriptions = load(&json!(definition));

        let read: Event = serde_json::from_str(&serde_json::to_string(&event).unwrap()).unwrap();

        prop_assert_eq!(subscriptions.route(&read), subscriptions.route(&event));
    }
}

#[test]
fn the_random_cases_take_every_route_often_enough_to_mean_something() {
    const CASES: u32 = 2_000;
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();

    for _ in 0..CASES {
        let (definition, event) = (definition(), event())
            .new_tree(&mut runner)
            .unwrap()
            .current();
        let route = format!("{:?}", load(&json!(definition)).route(&event));
        let kind = route.split(' ').next().unwrap_or_default().to_owned();
        *seen.entry(kind).or_default() += 1;
    }

    for (kind, least) in [
        ("Trigger", CASES / 5),
        ("Context", CASES / 20),
        ("NeedsContext", CASES / 80),
        ("Unmatched", CASES / 5),
    ] {
        let count = seen.get(kind).copied().unwrap_or_default();
        assert!(count >= least, "{kind}: {count} of {CASES}, {seen:?}");
    }
}

//! Tests of the step limit for searches of a context by conditions.

use super::*;
use crate::model::{Condition, NewBreadcrumb};

/// Returns an event whose context has `items` items. Each item has two nodes, which take 8 steps of a search.
fn event_with(items: usize) -> (crate::model::Breadcrumb, Event) {
    let items: Vec<_> = (0..items).map(|item| json!([item])).collect();
    let breadcrumb = NewBreadcrumb::new("user.message.v1")
        .context(json!({"kind": "list", "items": items}))
        .first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    let mut event = Event::created(&breadcrumb);
    // Events omit large contexts, but an event from outside can have one.
    event.context = Some(breadcrumb.context.clone());
    (breadcrumb, event)
}

/// Returns subscriptions that each search the context for the first item.
fn searching(count: usize) -> Vec<Subscription> {
    let one =
        Subscription::trigger("user.message.v1").matching("$.items[?@[0] == 0]", "exists", true);
    vec![one; count]
}

/// Returns the route of the event, of the breadcrumb, and of the event in an index.
fn routes(subscriptions: &Subscriptions, items: usize) -> [Route; 3] {
    let (breadcrumb, event) = event_with(items);
    let mut index = SubscriptionIndex::new();
    index.insert("one", subscriptions);
    index.insert(
        "other",
        &new([Subscription::context("other.v1").key("other")]),
    );
    let indexed = index.matching(&event).first().map(|(_, route)| *route);
    [
        subscriptions.route(&event),
        subscriptions.route_breadcrumb(EventKind::Created, &breadcrumb),
        indexed.unwrap_or(Route::Unmatched),
    ]
}

#[test]
fn conditions_that_search_share_the_steps_of_a_context() {
    for (count, items, expected) in [
        (1, 40_000, TRIGGER_0),
        (20, 20_000, TRIGGER_0),
        (20, 40_000, Route::Unmatched),
        (200, 2_000, TRIGGER_0),
        (200, 4_000, Route::Unmatched),
    ] {
        let subscriptions = Subscriptions::new(searching(count)).unwrap();

        assert_eq!(
            routes(&subscriptions, items),
            [expected; 3],
            "{count} {items}"
        );
    }
}

#[test]
fn the_order_of_conditions_does_not_decide_which_of_them_may_search() {
    let plain = Subscription::trigger("user.message.v1").matching("kind", "eq", "list");
    let mut subscriptions = searching(40);
    subscriptions.push(plain);
    let first = Subscriptions::new(subscriptions.clone()).unwrap();
    subscriptions.reverse();
    let last = Subscriptions::new(subscriptions).unwrap();

    let plain_at = |subscription| [Route::Trigger { subscription }; 3];
    assert_eq!(routes(&first, 40_000), plain_at(40));
    assert_eq!(routes(&last, 40_000), plain_at(0));
}

#[test]
fn a_condition_over_the_search_limit_does_not_match_for_any_operator() {
    for (op, value) in [
        ("ne", json!("x")),
        ("exists", json!(false)),
        ("exists", json!(true)),
    ] {
        let mut subscriptions = searching(40);
        for one in &mut subscriptions {
            *one =
                Subscription::trigger("user.message.v1").matching("$..nothing", op, value.clone());
        }
        let subscriptions = Subscriptions::new(subscriptions).unwrap();

        assert_eq!(
            routes(&subscriptions, 40_000),
            [Route::Unmatched; 3],
            "{op}"
        );
    }
}

#[test]
fn the_explanation_names_the_limit_of_a_search() {
    let subscriptions = Subscriptions::new(searching(40)).unwrap();

    let explanation = subscriptions.explain(&event_with(40_000).1).to_string();

    assert!(
        explanation.contains("takes more than 104857 steps"),
        "{explanation}"
    );
}

#[test]
fn conditions_of_one_selector_share_the_steps_of_a_context_too() {
    let (breadcrumb, _) = event_with(40_000);
    let selector = |conditions: usize| {
        let selector = Selector::schema("user.message.v1");
        let conditions = std::iter::repeat_n(("$.items[?@[0] == 0]", "exists"), conditions);
        conditions.fold(selector, |selector, (path, op)| {
            selector.condition(Condition::new(path, op, None))
        })
    };

    assert!(selector(1).matches(&breadcrumb));
    assert!(selector(12).matches(&breadcrumb));
    assert!(!selector(20).matches(&breadcrumb));
}

#[test]
fn a_definition_is_equal_to_its_subscriptions_before_they_were_validated() {
    let subscriptions = searching(3);

    let validated = Subscriptions::new(subscriptions.clone()).unwrap();

    assert_eq!(validated.as_slice(), subscriptions);
}

use super::*;
use crate::model::{BreadcrumbId, Json, NewBreadcrumb, Selector, SubscriptionIndex, Timestamp};
use serde_json::json;

mod explain;
mod kinds;
mod properties;
mod searches;

const TRIGGER_0: Route = Route::Trigger { subscription: 0 };
const TRIGGER_1: Route = Route::Trigger { subscription: 1 };

fn load(definition: &Value) -> Subscriptions {
    Subscriptions::from_json(definition).unwrap()
}

fn new<const N: usize>(subscriptions: [Subscription; N]) -> Subscriptions {
    Subscriptions::new(subscriptions).unwrap()
}

/// Returns the event of a request to the tool `adder` in session 1.
fn request() -> Event {
    let breadcrumb = NewBreadcrumb::new("tool.request.v1")
        .tag("tool:request")
        .tag("session:1")
        .context(json!({"tool": "adder", "input": {"a": 1}, "names": ["x", "y"]}))
        .first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    Event::created(&breadcrumb)
}

fn without_context() -> Event {
    request().envelope()
}

/// Returns the route of an event for a trigger on requests with one condition.
fn with_condition(path: &str, op: &str, value: impl Into<Value>, event: &Event) -> Route {
    new([Subscription::trigger("tool.request.v1").matching(path, op, value)]).route(event)
}

#[test]
fn all_parts_of_a_selector_must_hold() {
    let selector = json!({
        "schema_name": "tool.request.v1",
        "any_tags": ["session:1", "session:2"],
        "all_tags": ["tool:request", "session:1"],
        "context_match": [{"path": "tool", "op": "eq", "value": "adder"}, {"path": "input.a", "op": "gt", "value": 0}],
        "role": "trigger",
    });
    assert_eq!(load(&json!([selector])).route(&request()), TRIGGER_0);

    for (field, other) in [
        ("schema_name", json!("tool.request.v2")),
        ("any_tags", json!(["session:2", "session:3"])),
        ("all_tags", json!(["tool:request", "session:2"])),
        (
            "context_match",
            json!([{"path": "tool", "op": "eq", "value": "adder"}, {"path": "input.a", "op": "gt", "value": 1}]),
        ),
        (
            "context_match",
            json!([{"path": "tool", "op": "eq", "value": "web"}, {"path": "input.a", "op": "gt", "value": 0}]),
        ),
    ] {
        let mut missing = selector.clone();
        missing[field] = other;

        assert_eq!(
            load(&json!([missing])).route(&request()),
            Route::Unmatched,
            "{missing}"
        );
    }
}

#[test]
fn a_selector_without_a_schema_or_with_a_star_takes_any_schema() {
    let no_schema = Event {
        schema_name: None,
        ..request()
    };
    let by_tag = load(&json!([{"all_tags": ["session:1"], "role": "trigger"}]));
    let star = new([Subscription::trigger("*")]);
    let named = new([Subscription::trigger("tool.request.v1")]);

    for event in [&request(), &no_schema] {
        assert_eq!(by_tag.route(event), TRIGGER_0);
        assert_eq!(star.route(event), TRIGGER_0);
    }
    assert_eq!(named.route(&no_schema), Route::Unmatched);
}

#[test]
fn an_empty_list_of_any_tags_never_matches_and_one_of_all_tags_always() {
    let any = load(&json!([{"schema_name": "tool.request.v1", "any_tags": [], "role": "trigger"}]));
    let all = load(&json!([{"schema_name": "tool.request.v1", "all_tags": [], "role": "trigger"}]));

    assert_eq!(any.route(&request()), Route::Unmatched);
    assert_eq!(all.route(&request()), TRIGGER_0);
}

#[test]
fn tags_are_compared_whole_and_with_case() {
    for (tag, expected) in [
        ("session:1", TRIGGER_0),
        ("session:", Route::Unmatched),
        ("Session:1", Route::Unmatched),
    ] {
        let subscriptions = new([Subscription::trigger("*").all_tags([tag])]);

        assert_eq!(subscriptions.route(&request()), expected, "{tag}");
    }
}

#[test]
fn the_trigger_is_found_at_any_position_among_the_subscriptions() {
    let trigger = Subscription::trigger("tool.request.v1");
    let source = Subscription::context("tool.request.v1").key("earlier");
    let other = Subscription::trigger("user.message.v1");
    let undecided = Subscription::trigger("user.message.v1").matching("x", "eq", 1);

    for order in [
        [&trigger, &source, &other, &undecided],
        [&source, &trigger, &undecided, &other],
        [&source, &other, &undecided, &trigger],
        [&undecided, &other, &source, &trigger],
    ] {
        let subscriptions = new(order.map(Clone::clone));
        let at = order.iter().position(|one| *one == &trigger).unwrap();

        assert_eq!(
            subscriptions.route(&request()),
            Route::Trigger { subscription: at }
        );
    }
}

#[test]
fn one_selector_in_both_roles_fires_even_with_the_context_first() {
    let subscriptions = load(&json!([
        {"schema_name": "tool.request.v1", "any_tags": ["session:1"], "role": "context", "key": "history", "fetch": "recent"},
        {"schema_name": "tool.request.v1", "any_tags": ["session:1"], "role": "trigger"},
    ]));

    assert_eq!(subscriptions.route(&request()), TRIGGER_1);
}

#[test]
fn the_trigger_of_highest_priority_wins_and_then_the_first() {
    for (priorities, best_trigger) in [
        ([0, 0, 0], 0),
        ([0, 1, 1], 1),
        ([-2, -1, -3], 1),
        ([1, 0, 2], 2),
        ([i64::MIN, i64::MAX, 0], 1),
    ] {
        let subscriptions =
            new(priorities
                .map(|priority| Subscription::trigger("tool.request.v1").priority(priority)));

        assert_eq!(
            subscriptions.route(&request()),
            Route::Trigger {
                subscription: best_trigger
            },
            "{priorities:?}"
        );
    }
}

#[test]
fn a_trigger_that_does_not_match_loses_at_any_priority() {
    let subscriptions = new([
        Subscription::trigger("user.message.v1").priority(9),
        Subscription::trigger("tool.request.v1").priority(-9),
    ]);

    assert_eq!(subscriptions.route(&request()), TRIGGER_1);
}

#[test]
fn the_priority_of_a_context_does_not_outrank_a_trigger() {
    let subscriptions = new([
        Subscription::context("tool.request.v1").priority(9),
        Subscription::trigger("tool.request.v1"),
    ]);

    assert_eq!(subscriptions.route(&request()), TRIGGER_1);
}

#[test]
fn a_source_alone_is_a_notification_and_nothing_at_all_is_unmatched() {
    let source = new([Subscription::context("tool.request.v1")]);
    let none = Subscriptions::default();

    assert_eq!(source.route(&request()), Route::Context);
    assert_eq!(none.route(&request()), Route::Unmatched);
}

#[test]
fn a_bare_path_is_read_from_the_root() {
    for path in ["tool", "$.tool", ".tool", "['tool']", "$['tool']"] {
        assert_eq!(
            with_condition(path, "eq", "adder", &request()),
            TRIGGER_0,
            "{path}"
        );
    }
}

#[test]
fn a_condition_on_several_nodes_needs_one_match_and_ne_needs_no_equal_node() {
    for (op, value, expected) in [
        ("eq", "y", TRIGGER_0),
        ("eq", "z", Route::Unmatched),
        ("ne", "y", Route::Unmatched),
        ("ne", "z", TRIGGER_0),
        ("starts_with", "y", TRIGGER_0),
    ] {
        assert_eq!(
            with_condition("$.names[*]", op, value, &request()),
            expected,
            "{op} {value}"
        );
    }
}

#[test]
fn a_missing_path_fails_every_operator_but_ne_and_exists_false() {
    for op in [
        "eq",
        "gt",
        "gte",
        "lt",
        "lte",
        "in",
        "contains",
        "contains_any",
        "contains_all",
        "starts_with",
        "ends_with",
        "matches",
    ] {
        for value in [
            json!("adder"),
            json!(["adder"]),
            json!([]),
            json!(0),
            json!(""),
        ] {
            assert_eq!(
                with_condition("gone", op, value, &request()),
                Route::Unmatched,
                "{op}"
            );
        }
    }
    assert_eq!(
        with_condition("gone", "eq", Value::Null, &request()),
        Route::Unmatched
    );
    assert_eq!(
        with_condition("gone", "exists", true, &request()),
        Route::Unmatched
    );
    assert_eq!(with_condition("gone", "ne", "adder", &request()), TRIGGER_0);
    assert_eq!(
        with_condition("gone", "exists", false, &request()),
        TRIGGER_0
    );
}

#[test]
fn an_undecided_trigger_needs_the_context() {
    let subscriptions =
        new([Subscription::trigger("tool.request.v1").matching("tool", "eq", "adder")]);

    assert_eq!(subscriptions.route(&request()), TRIGGER_0);
    assert_eq!(subscriptions.route(&without_context()), Route::NeedsContext);
}

#[test]
fn a_trigger_that_fails_without_its_conditions_needs_no_context() {
    let conditional = |selector: Selector| {
        Subscription::new(selector.matching("tool", "eq", "adder"), Role::Trigger)
    };
    let subscriptions = new([
        conditional(Selector::schema("user.message.v1")),
        conditional(Selector::any().any_tags(["session:2"])),
        conditional(Selector::any().all_tags(["session:1", "session:2"])),
        conditional(Selector::any()).on([EventKind::Deleted]),
    ]);

    assert_eq!(subscriptions.route(&without_context()), Route::Unmatched);
}

#[test]
fn a_matching_trigger_takes_precedence_over_an_undecided_trigger() {
    let undecided = Subscription::trigger("tool.request.v1").matching("tool", "eq", "adder");
    let certain = Subscription::trigger("tool.request.v1");

    for (ours, theirs) in [(0, 0), (9, 0), (0, 9)] {
        let first = new([
            undecided.clone().priority(ours),
            certain.clone().priority(theirs),
        ]);
        let last = new([
            certain.clone().priority(theirs),
            undecided.clone().priority(ours),
        ]);

        assert_eq!(first.route(&without_context()), TRIGGER_1);
        assert_eq!(last.route(&without_context()), TRIGGER_0);
    }
}

#[test]
fn an_undecided_trigger_outranks_a_source_that_matches() {
    let subscriptions = new([
        Subscription::context("tool.request.v1"),
        Subscription::trigger("tool.request.v1").matching("tool", "eq", "adder"),
    ]);

    assert_eq!(subscriptions.route(&without_context()), Route::NeedsContext);
}

#[test]
fn an_undecided_source_alone_is_a_notification() {
    let subscriptions = new([
        Subscription::context("tool.request.v1").matching("tool", "eq", "web-analyzer"),
        Subscription::trigger("user.message.v1").matching("tool", "eq", "adder"),
    ]);

    assert_eq!(subscriptions.route(&without_context()), Route::Context);
    assert_eq!(subscriptions.route(&request()), Route::Unmatched);
}

#[test]
fn a_context_of_null_is_a_context() {
    let event = Event {
        context: Some(Json::from(Value::Null)),
        ..request()
    };

    assert_eq!(
        with_condition("tool", "eq", "adder", &event),
        Route::Unmatched
    );
    assert_eq!(with_condition("$", "eq", Value::Null, &event), TRIGGER_0);
}

#[test]
fn a_path_that_cannot_be_evaluated_fails_every_operator() {
    let mut deep = json!("adder");
    for _ in 0..200 {
        deep = json!([deep]);
    }
    let event = Event {
        context: Some(Json::from(json!({"deep": deep}))),
        ..request()
    };

    for (op, value) in [
        ("ne", json!("x")),
        ("exists", json!(false)),
        ("exists", json!(true)),
        ("eq", json!("adder")),
    ] {
        assert_eq!(
            with_condition("$..gone", op, value, &event),
            Route::Unmatched,
            "{op}"
        );
    }
    let explained =
        new([Subscription::trigger("*").matching("$..gone", "ne", "x")]).explain(&event);
    assert!(
        explained
            .to_string()
            .contains("more than 128 nested levels"),
        "{explained}"
    );
}

#[test]
fn a_condition_that_does_not_compile_is_refused_before_it_could_match() {
    for (path, op) in [("$[", "ne"), ("$.a", "unlike"), ("$..a..b", "exists")] {
        let selector = Selector::any().matching(path, op, false);
        assert!(
            Subscriptions::new([Subscription::new(selector.clone(), Role::Trigger)]).is_err(),
            "{path} {op}"
        );

        let breadcrumb =
            NewBreadcrumb::new("x.v1").first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
        assert!(!selector.matches(&breadcrumb), "{path} {op}");
    }
}

#[test]
fn an_index_returns_only_the_matching_executors_ordered_by_id() {
    let mut index = SubscriptionIndex::new();
    index.insert("watcher", &new([Subscription::context("*").key("all")]));
    index.insert(
        "adder",
        &new([Subscription::trigger("tool.request.v1").matching("tool", "eq", "adder")]),
    );
    index.insert("greeter", &new([Subscription::trigger("user.message.v1")]));
    index.insert(
        "web",
        &new([Subscription::trigger("tool.request.v1").matching("tool", "eq", "web")]),
    );

    assert_eq!(
        index.matching(&request()),
        [
            ("adder".into(), TRIGGER_0),
            ("watcher".into(), Route::Context)
        ]
    );

    assert!(index.remove("adder"));
    assert!(!index.remove("adder"));
    index.insert("watcher", &new([Subscription::trigger("user.message.v1")]));
    assert!(index.matching(&request()).is_empty());
}

#[test]
fn a_breadcrumb_whose_context_cannot_be_read_passes_no_condition() {
    let frame = r#"{"type":"breadcrumb.updated","breadcrumb_id":"01890a5d-ac96-774b-bcce-b302099a8057","version":1,
        "updated_at":"2026-11-21T20:33:40Z","schema_name":"x.v1","context":{"tool":"adder","size":1e400}}"#;
    let event: Event = serde_json::from_str(frame).unwrap();
    let mut breadcrumb =
        NewBreadcrumb::new("x.v1").first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
    breadcrumb.context = event.context.clone().unwrap();

    for (op, value) in [
        ("eq", json!("adder")),
        ("ne", json!("x")),
        ("exists", json!(false)),
    ] {
        let trigger = new([Subscription::trigger("x.v1").matching("tool", op, value)]);

        assert_eq!(trigger.route(&event), Route::NeedsContext);
        assert_eq!(
            trigger.route_breadcrumb(EventKind::Created, &breadcrumb),
            Route::Unmatched
        );
        let explained = trigger.explain(&event).to_string();
        assert!(explained.contains("cannot be read"), "{explained}");
    }
}

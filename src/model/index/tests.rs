use super::*;
use crate::model::selector::{SelectorInput, SelectorMatch};
use crate::model::strategies::{PATHS, definition, event};
use crate::model::{BreadcrumbId, Json, Selector, Subscription, Timestamp};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};
use std::collections::BTreeMap;

mod scanning;

const FRAME: &str = r#"{"type":"breadcrumb.updated","breadcrumb_id":"01890a5d-ac96-774b-bcce-b302099a8057","version":2,"updated_at":"2026-11-21T20:33:40Z""#;

/// Returns an event that is read from a frame whose context has the given text.
fn read(schema: &str, tags: &[&str], context: &str) -> Event {
    let tags = json!(tags);
    let frame = format!(r#"{FRAME},"schema_name":"{schema}","tags":{tags},"context":{context}}}"#);
    serde_json::from_str(&frame).unwrap()
}

/// Returns the same event with a parsed context, or without a context if no value can hold it.
fn parsed(event: &Event) -> Event {
    let context = event.context.as_ref().map(Json::to_string);
    let context = context.and_then(|text| Json::from_text(text).ok());
    Event {
        context: context.map(|context| Json::from(context.into_value())),
        ..event.clone()
    }
}

fn triggers(selectors: impl IntoIterator<Item = Selector>) -> Subscriptions {
    let subscriptions = selectors
        .into_iter()
        .map(|selector| Subscription::new(selector, crate::model::Role::Trigger));
    Subscriptions::new(subscriptions).unwrap()
}

fn indexed(selectors: impl IntoIterator<Item = Selector>) -> SelectorIndex<usize> {
    let mut index = SelectorIndex::new();
    for (key, selector) in selectors.into_iter().enumerate() {
        index.insert(key, &selector);
    }
    index
}

/// Generates JSON text of objects with duplicate fields, escaped names, and contents that no value can hold.
fn context_text() -> impl Strategy<Value = String> {
    let name = select(
        &[
            r#""x""#,
            r#""y""#,
            r#""z""#,
            r#""\u0078""#,
            r#""w""#,
            r#""a\"b""#,
            r#""""#,
        ][..],
    );
    let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let leaf = prop_oneof![
        16 => select(&[
            "1", "1.0", "10e-1", "0", "-0.0", "2", "0.5", "null", "true", "false", r#""a""#, r#""\u0061""#,
            r#""""#, r#""ab""#, r#""\ud83d\ude00""#, r#""b\\""#, r#""}""#, r#"{"y":"a"}"#, r#"{"y":1,"y":2}"#,
            r#"["a",1]"#, "[]", " [ 1 , 2 ] ", r#"{"y" : {"x" : 1}}"#, "123456789012345678901234567890",
        ][..]).prop_map(str::to_owned),
        1 => select(&["1e400", "-1e999", r#""\ud800""#, r#""\udc00\ud800""#]).prop_map(str::to_owned),
        1 => select(&[62_usize, 63, 64, 65, 129, 2_000]).prop_map(deep),
    ];
    let blank = || select(&["", "", " ", "\n\t"][..]);
    let field = (name, blank(), leaf, blank())
        .prop_map(|(name, before, value, after)| format!("{name}{after}:{before}{value}{after}"));
    let object = (vec(field, 0..5), blank())
        .prop_map(|(fields, blank)| format!("{{{}{blank}}}", fields.join(",")));
    prop_oneof![
        8 => object,
        1 => select(&["null", "1", r#""a""#, "[1]", "1e400"]).prop_map(str::to_owned)
    ]
}

/// Generates events that are built in memory, read from regular text, or read from unusual text.
fn any_event() -> impl Strategy<Value = Event> {
    let odd = (event(), context_text()).prop_map(|(event, context)| {
        let tags: Vec<&str> = event.tags.iter().map(String::as_str).collect();
        let read = read(
            event.schema_name.as_deref().unwrap_or("a.v1"),
            &tags,
            &context,
        );
        Event {
            schema_name: event.schema_name,
            ..read
        }
    });
    prop_oneof![
        1 => event(),
        1 => event().prop_map(|event| serde_json::from_value(json!(event)).unwrap()),
        2 => odd,
    ]
}

/// Generates selectors, mostly with indexed tests, and some with tests that the index does not cover.
fn selector() -> impl Strategy<Value = Selector> {
    let tags = || subsequence(vec!["session:1", "session:2", "tool:adder"], 0..=3);
    let value = || {
        select(vec![
            json!(1),
            json!(1.0),
            json!(0),
            json!("a"),
            json!(""),
            json!(null),
            json!(true),
            json!([]),
            json!(["a", 1]),
            json!({"y": "a"}),
        ])
    };
    let equal = (select(&PATHS[..]), Just("eq"), value());
    let any = (select(&PATHS[..]), Just("in"), vec(value(), 0..4))
        .prop_map(|(path, op, list)| (path, op, json!(list)));
    let other = (
        select(&PATHS[..]),
        select(&["ne", "gt", "contains", "nonsense"]),
        value(),
    );
    let condition = prop_oneof![5 => equal, 2 => any, 2 => other];
    let schema = weighted(0.7, select(&["a.v1", "b.v1", "*"]));
    (schema, tags(), weighted(0.3, tags()), vec(condition, 0..4)).prop_map(
        |(schema, all, any, conditions)| {
            let mut selector = Selector::schema(schema.unwrap_or("*")).all_tags(all);
            if let Some(any) = any {
                selector = selector.any_tags(any);
            }
            conditions
                .into_iter()
                .fold(selector, |selector, (path, op, value)| {
                    selector.matching(path, op, value)
                })
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Insert(&'static str, Vec<Value>),
    Remove(&'static str),
    Ask(Event),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = || select(&["adder", "greeter", "watcher"][..]);
    let step = prop_oneof![
        3 => (id(), definition()).prop_map(|(id, definition)| Step::Insert(id, definition)),
        1 => id().prop_map(Step::Remove),
        4 => any_event().prop_map(Step::Ask),
    ];
    vec(step, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn an_index_returns_the_routes_of_the_individual_executors(steps in steps()) {
        let mut index = SubscriptionIndex::new();
        let mut executors: BTreeMap<&str, Subscriptions> = BTreeMap::new();

        for step in steps {
            match step {
                Step::Insert(id, definition) => {
                    let subscriptions = Subscriptions::from_json(&json!(definition)).unwrap();
                    index.insert(id, &subscriptions);
                    executors.insert(id, subscriptions);
                }
                Step::Remove(id) => prop_assert_eq!(index.remove(id), executors.remove(id).is_some()),
                Step::Ask(event) => {
                    let oracle = parsed(&event);
                    let found = index.matching(&event);
                    let found: Vec<(&str, Route)> = found.iter().map(|(id, route)| (&**id, *route)).collect();
                    for event in [oracle, event] {
                        let routes = executors.iter().map(|(id, subscriptions)| (*id, subscriptions.route(&event)));
                        let matching: Vec<(&str, Route)> = routes.filter(|(_, route)| *route != Route::Unmatched).collect();

                        prop_assert_eq!(&found, &matching);
                    }
                }
            }
        }
        for id in executors.keys() {
            prop_assert!(index.remove(id));
        }
        prop_assert!(is_completely_empty(&index), "{:?}", index);
    }
}

fn is_completely_empty(index: &SubscriptionIndex) -> bool {
    let no_executors = index.executors.iter().all(Option::is_none);
    no_executors && index.by_id.is_empty() && index.selectors.is_completely_empty()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn an_index_returns_the_same_selectors_as_a_scan(
        selectors in vec((selector(), any::<bool>()), 0..12),
        events in vec(any_event(), 1..6),
    ) {
        let mut index = SelectorIndex::new();
        for (key, (selector, _)) in selectors.iter().enumerate() {
            index.insert(key, selector);
        }
        for removed in [false, true] {
            for event in &events {
                let oracle = parsed(event);
                let scan = selectors.iter().enumerate().filter(|(_, (selector, goes))| {
                    let passes = !matches!(selector.evaluate(&SelectorInput::of_event(&oracle)), SelectorMatch::Fails(_));
                    passes && event.kind != EventKind::Ping && !(removed && *goes)
                });
                let scan: Vec<usize> = scan.map(|(key, _)| key).collect();

                prop_assert_eq!(index.matching(event), scan, "{:?}", event);
            }
            for (key, (selector, goes)) in selectors.iter().enumerate() {
                if *goes {
                    prop_assert_eq!(index.remove(key, selector), !removed);
                }
            }
        }
        let left = selectors.iter().enumerate().filter(|(_, (_, goes))| !goes);
        prop_assert_eq!(index.len(), left.clone().count());
        for (key, (selector, _)) in left {
            prop_assert!(index.remove(key, selector));
        }
        prop_assert!(index.is_completely_empty(), "{:?}", index);
    }
}

#[test]
fn a_selector_that_matches_by_several_tags_is_returned_once() {
    let index = indexed([Selector::schema("a.v1").any_tags(["one", "two", "three"])]);

    assert_eq!(
        index.matching(&read("a.v1", &["three", "one", "one"], "{}")),
        [0]
    );
}

#[test]
fn numbers_match_in_every_json_notation() {
    let large = 9_007_199_254_740_993_i64;
    let index = indexed(
        [json!(1), json!(1.0), json!(0), json!(large), json!(1e30)]
            .map(|value| Selector::schema("a.v1").matching("n", "eq", value)),
    );

    for (spelled, expected) in [
        ("1", &[0, 1][..]),
        ("1.0", &[0, 1]),
        ("10e-1", &[0, 1]),
        ("-0.0", &[2]),
        ("9007199254740993", &[3]),
        // The number rounds to the same float and is not equal.
        ("9007199254740992", &[]),
        ("1000000000000000000000000000000", &[4]),
        ("\"1\"", &[]),
    ] {
        let event = read("a.v1", &[], &format!(r#"{{"n":{spelled}}}"#));
        assert_eq!(index.matching(&event), expected, "{spelled}");
        assert_eq!(index.matching(&parsed(&event)), expected, "{spelled}");
    }
}

#[test]
fn of_two_equal_keys_the_last_counts() {
    let index = indexed([
        Selector::schema("a.v1").matching("a.b", "eq", 1),
        Selector::schema("a.v1").matching("a.b", "eq", 2),
        Selector::schema("a.v1").matching("a.b", "exists", false),
    ]);

    for (context, expected) in [
        (r#"{"a":{"b":1},"a":{"b":2}}"#, 1),
        (r#"{"a":{"b":1},"\u0061":{"b":2}}"#, 1),
        (r#"{"a":{"b":2,"b":1}}"#, 0),
        (r#"{"a":{"b":1},"a":7}"#, 2),
        (r#"{"x":1,"x":2,"a":{"b":1}}"#, 0),
    ] {
        assert_eq!(
            index.matching(&read("a.v1", &[], context)),
            [expected],
            "{context}"
        );
    }
}

#[test]
fn a_context_no_value_can_hold_leaves_it_to_the_breadcrumb() {
    let mut index = SubscriptionIndex::new();
    let subscriptions = |selector| triggers([selector]);
    index.insert(
        "equal",
        &subscriptions(Selector::schema("a.v1").matching("tool", "eq", "adder")),
    );
    index.insert(
        "unequal",
        &subscriptions(Selector::schema("a.v1").matching("tool", "ne", "adder")),
    );
    index.insert("schema", &subscriptions(Selector::schema("a.v1")));
    index.insert(
        "tagged",
        &subscriptions(Selector::any().all_tags(["t"]).matching("$.*", "eq", 1)),
    );
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);

    for poison in [
        "1e400".to_owned(),
        r#""\ud800""#.to_owned(),
        nested(64),
        nested(100_000),
    ] {
        let event = read(
            "a.v1",
            &[],
            &format!(r#"{{"tool":"adder","more":{poison}}}"#),
        );

        assert_eq!(
            index.matching(&event),
            [
                ("equal".into(), Route::NeedsContext),
                ("schema".into(), Route::Trigger { subscription: 0 }),
                ("unequal".into(), Route::NeedsContext),
            ]
        );
    }
}

#[test]
fn only_a_path_that_is_not_plain_makes_the_whole_context_parse() {
    let context = r#"{"tool":"adder","items":[1,{"a":"b"}]}"#;
    let plain = indexed([
        Selector::schema("a.v1").matching("tool", "eq", "adder"),
        Selector::any().matching("items[-1].a", "in", json!(["a", "b"])),
        Selector::schema("a.v1").matching("tool", "starts_with", "add"),
    ]);
    let query = indexed([Selector::schema("a.v1").matching("$.items[*]", "eq", 1)]);
    let event = read("a.v1", &[], context);

    assert_eq!(plain.matching(&event), [0, 1, 2]);
    assert!(event.context.as_ref().unwrap().unparsed_text().is_some());

    assert_eq!(query.matching(&event), [0]);
    assert!(event.context.as_ref().unwrap().unparsed_text().is_none());
}

#[test]
fn more_tests_than_are_indexed_all_count() {
    let tags: Vec<String> = (0..40).map(|n| format!("tag:{n}")).collect();
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    let index = indexed([
        Selector::schema("a.v1").all_tags(tags.clone()),
        Selector::schema("a.v1").any_tags(tags.clone()),
        Selector::schema("a.v1").matching("n", "in", Vec::from_iter(0..40)),
        (0..40).fold(Selector::schema("a.v1"), |selector, n| {
            selector.matching(format!("f{n}"), "eq", n)
        }),
    ]);
    let fields: Vec<String> = (0..40).map(|n| format!(r#""f{n}":{n}"#)).collect();
    let all = format!(r#"{{"n":39,{}}}"#, fields.join(","));

    assert_eq!(index.matching(&read("a.v1", &tags, &all)), [0, 1, 2, 3]);
    assert_eq!(
        index.matching(&read("a.v1", &tags[1..], &all.replace(":7", ":8"))),
        [1, 2]
    );
    assert_eq!(index.matching(&read("a.v1", &[], "{}")), [0; 0]);
}

#[test]
fn a_ping_matches_no_selector_and_removing_an_unknown_one_has_no_effect() {
    let mut index = indexed([Selector::any()]);
    let ping = Event {
        kind: EventKind::Ping,
        ..read("a.v1", &[], "{}")
    };

    assert_eq!(index.matching(&ping), [0; 0]);
    assert!(!index.remove(0, &Selector::schema("a.v1").matching("x", "eq", 1)));
    assert!(!index.remove(1, &Selector::any()));
    assert_eq!(index.len(), 1);
    assert_eq!(
        index.matching(&Event {
            breadcrumb_id: BreadcrumbId::NIL,
            updated_at: Timestamp::UNIX_EPOCH,
            ..read("b.v1", &[], "[]")
        }),
        [0]
    );
}

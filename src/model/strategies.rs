//! `proptest` strategies that generate random JSON, definitions and events. The definitions and events have few different values, so events
//! often match definitions.

use super::{BreadcrumbId, Event, EventKind, Json, Timestamp};
use proptest::collection::{hash_map, vec};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

const SCHEMAS: [&str; 2] = ["a.v1", "b.v1"];
const TAGS: [&str; 3] = ["session:1", "session:2", "tool:adder"];
const MEMBERS: [&str; 3] = ["x", "y", "z"];
/// JSONPaths of generated conditions, with and without `$`: paths of only names and indexes, and paths with wildcards.
pub(super) const PATHS: [&str; 8] = [
    "x", "$.x", "$['y']", "$.x.y", "$.z[0]", "$.z[-1]", "$.z[*]", "$.*",
];
/// Strings in the breadcrumb contexts and conditions that property tests generate. All of them are valid regular expressions.
const TEXTS: [&str; 6] = ["", "a", "ab", "b", "^a", "b$"];
const OPS: [&str; 13] = [
    "eq",
    "ne",
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
];

/// Returns a strategy that generates any JSON. Objects often have the fields of a definition.
pub(super) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i16>().prop_map(|eighths| json!(f64::from(eighths) / 8.0)),
        select(
            &[
                "trigger", "context", "latest", "recent", "vector", "*", "eq", "$.a", "..",
                "created"
            ][..]
        )
        .prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        let name = prop_oneof![
            4 => select(&FIELDS[..]).prop_map(str::to_owned),
            1 => ".{0,4}",
        ];
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            hash_map(name, inner, 0..6)
                .prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

const FIELDS: [&str; 27] = [
    "selectors",
    "subscriptions",
    "context",
    "selector",
    "schema_name",
    "any_tags",
    "all_tags",
    "tag",
    "context_match",
    "path",
    "op",
    "value",
    "role",
    "key",
    "fetch",
    "method",
    "limit",
    "nn",
    "order",
    "min_score",
    "required",
    "scope",
    "priority",
    "comment",
    "on",
    "extra",
    "tags",
];

/// Returns a strategy that generates a list of valid subscriptions as JSON.
pub(super) fn definition() -> impl Strategy<Value = Vec<Value>> {
    vec((subscription(), decoration()), 0..6).prop_map(|subscriptions| {
        let named = subscriptions.into_iter().enumerate();
        named
            .map(|(index, (subscription, decoration))| finished(index, subscription, decoration))
            .collect()
    })
}

/// Returns a strategy that generates the fields of a subscription that decide its match.
fn subscription() -> impl Strategy<Value = Map<String, Value>> {
    let fields = (
        weighted(0.6, select(&SCHEMAS[..])),
        weighted(0.3, tags(0)),
        weighted(0.3, tags(0)),
        weighted(0.5, vec(condition(), 0..3)),
        prop_oneof![3 => Just("trigger"), 2 => Just("context")],
        weighted(0.4, -1..3_i64),
        weighted(
            0.3,
            subsequence(vec!["created", "updated", "deleted"], 0..=3),
        ),
    );
    fields.prop_map(|(schema, any, all, conditions, role, priority, on)| {
        let empty = any.is_none()
            && all.as_ref().is_none_or(Vec::is_empty)
            && conditions.iter().all(Vec::is_empty);
        let any_schema = (empty && role == "trigger").then_some("*");
        object([
            ("schema_name", json!(schema.or(any_schema))),
            ("any_tags", json!(any)),
            ("all_tags", json!(all)),
            ("context_match", json!(conditions)),
            ("role", json!(role)),
            ("priority", json!(priority)),
            ("on", json!(on)),
        ])
    })
}

/// Returns a strategy that generates the fields of a subscription that do not affect its match.
fn decoration() -> impl Strategy<Value = Map<String, Value>> {
    let limit = 1..=1_000_usize;
    let order = select(&["newest_first", "oldest_first"][..]);
    let fetch = prop_oneof![
        Just(json!("latest")),
        Just(json!("recent")),
        Just(json!({"method": "vector", "min_score": 0.5})),
        (limit.clone(), order.clone())
            .prop_map(|(n, order)| json!({"method": "recent", "limit": n, "order": order})),
        (limit, order).prop_map(|(n, order)| json!({"method": "vector", "nn": n, "order": order})),
    ];
    let fields = (
        weighted(0.6, fetch),
        any::<bool>(),
        weighted(0.2, 1..=1_000_usize),
        weighted(0.2, subsequence(vec!["session:", "workspace:"], 0..=2)),
        weighted(0.2, any_json()),
    );
    fields.prop_map(|(fetch, required, limit, scope, extra)| {
        object([
            ("fetch", json!(fetch)),
            ("required", json!(required)),
            ("limit", json!(limit)),
            ("scope", json!(scope)),
            (
                "comment",
                json!(limit.map(|limit| format!("limited to {limit}"))),
            ),
            ("colour", json!(extra)),
        ])
    })
}

/// Returns a generated subscription as JSON, with the fields that decide its match and the fields that do not. Context
/// subscriptions, and all subscriptions at even indexes, get a unique key.
fn finished(
    index: usize,
    mut subscription: Map<String, Value>,
    decoration: Map<String, Value>,
) -> Value {
    subscription.extend(decoration);
    if subscription.get("role") == Some(&json!("context")) || index.is_multiple_of(2) {
        subscription.insert("key".to_owned(), json!(format!("key {index}")));
    }
    subscription.into()
}

fn condition() -> impl Strategy<Value = Value> {
    let compared = (select(&PATHS[..]), select(&OPS[..]), value())
        .prop_map(|(path, op, value)| json!({"path": path, "op": op, "value": value}));
    let exists = (select(&PATHS[..]), weighted(0.7, any::<bool>())).prop_map(|(path, expected)| {
        match expected {
            Some(expected) => json!({"path": path, "op": "exists", "value": expected}),
            None => json!({"path": path, "op": "exists"}),
        }
    });
    prop_oneof![6 => compared, 1 => exists]
}

fn value() -> impl Strategy<Value = Value> {
    let plain = prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        2 => (0..3_i64).prop_map(Value::from),
        2 => (0..5_i8).prop_map(|halves| json!(f64::from(halves) / 2.0)),
        3 => select(&TEXTS[..]).prop_map(Value::from),
    ];
    prop_oneof![
        3 => plain.clone(),
        1 => vec(plain.clone(), 0..3).prop_map(Value::from),
        1 => hash_map(select(&["a", "ab", "y"][..]), plain, 0..3)
            .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into()),
    ]
}

/// Returns a strategy that generates random events. One in four has no context.
pub(super) fn event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![
        3 => Just(EventKind::Created),
        6 => Just(EventKind::Updated),
        2 => Just(EventKind::Deleted),
        1 => Just(EventKind::Ping),
    ];
    let context = weighted(0.75, hash_map(select(&MEMBERS[..]), value(), 0..4));
    (
        kind,
        0..4_u64,
        weighted(0.9, select(&SCHEMAS[..])),
        tags(1),
        context,
    )
        .prop_map(|(kind, version, schema, tags, context)| Event {
            kind,
            breadcrumb_id: BreadcrumbId::NIL,
            version,
            schema_name: schema.map(str::to_owned),
            tags,
            context: context.map(|fields| Json::from(json!(fields))),
            updated_at: Timestamp::UNIX_EPOCH,
        })
}

fn tags(least: usize) -> impl Strategy<Value = Vec<String>> {
    let tags = TAGS.map(str::to_owned).to_vec();
    subsequence(tags, least..=TAGS.len())
}

/// Returns an object of all given fields except fields with the value `null`.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    let fields_with_values = fields.into_iter().filter(|(_, value)| !value.is_null());
    fields_with_values
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

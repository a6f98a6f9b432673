//! Random queries.

use super::step::Which;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use universal_executor::model::{Op, Order, Timestamp};
use universal_executor::store::Query;
use universal_executor::{BreadcrumbId, Selector};

/// The tags of the random steps. Two of these tags have the same stored form.
pub(super) const TAGS: [&str; 6] = ["x", "y", "z", "", "n\0l", "n\u{FFFD}l"];

#[derive(Clone, Debug)]
pub(super) struct RandomQuery {
    schema: Option<&'static str>,
    any: Option<Vec<&'static str>>,
    all: Vec<&'static str>,
    scope: Vec<&'static str>,
    conditions: Vec<(&'static str, &'static str, Value)>,
    before: Option<(i64, u64, Which)>,
    exclude: Option<Which>,
    limit: usize,
    oldest_first: bool,
}

/// Generates a value for contexts and conditions.
pub(super) fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-1..4_i64).prop_map(Value::from),
        select(vec![
            json!(1.0),
            json!(1.5),
            json!(-0.0),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(1e300)
        ]),
        select(vec![
            "", "a", "ab", "b", "A", "\u{FFFD}", "\u{FFFF}", "(", "^a"
        ])
        .prop_map(Value::from),
        select(vec![
            json!(null),
            json!(true),
            json!([]),
            json!([1, "a"]),
            json!({"k": 1}),
            json!({})
        ]),
    ]
}

pub(super) fn random_query() -> impl Strategy<Value = RandomQuery> {
    let tags = |most| vec(select(TAGS.to_vec()), 0..most);
    let what = (
        option::of(select(vec![
            "a.v1",
            "b.v1",
            "*",
            "",
            "c\0.v1",
            "c\u{FFFD}.v1",
            "nowhere",
        ])),
        option::weighted(0.3, tags(4)),
        tags(2),
        prop_oneof![3 => Just(Vec::new()), 1 => tags(3)],
        vec(condition(), 0..2),
    );
    let which =
        || prop_oneof![9 => any::<Index>().prop_map(Which::Created), 1 => Just(Which::Never)];
    let before = (0..60_000_000_i64, 0..3_u64, which());
    let limit = prop_oneof![8 => 0..10_usize, 1 => Just(usize::MAX)];
    let place = (
        option::weighted(0.3, before),
        option::weighted(0.3, which()),
        limit,
        any::<bool>(),
    );
    (what, place).prop_map(
        |((schema, any, all, scope, conditions), (before, exclude, limit, oldest_first))| {
            RandomQuery {
                schema,
                any,
                all,
                scope,
                conditions,
                before,
                exclude,
                limit,
                oldest_first,
            }
        },
    )
}

fn condition() -> impl Strategy<Value = (&'static str, &'static str, Value)> {
    let path = prop_oneof![
        19 => select(vec!["n", "$.s", "$.list", "$.list[*]", "$.list[0]", "$.in", "$.in.k", "$..k", "$.gone", "$"]),
        1 => select(vec!["[", "$.list[?", ""]),
    ];
    let op = prop_oneof![
        29 => select(Op::ALL.to_vec()).prop_map(Op::as_str),
        1 => Just("like"),
    ];
    let value = prop_oneof![
        3 => value(),
        1 => vec(value(), 0..3).prop_map(Value::from),
    ];
    (path, op, value).prop_map(|(path, op, value)| (path, op, value))
}

impl RandomQuery {
    pub(super) fn selector(&self) -> Selector {
        let mut selector = self.schema.map_or_else(Selector::default, Selector::schema);
        if let Some(any) = &self.any {
            selector = selector.any_tags(any.iter().copied());
        }
        selector = selector.all_tags(self.all.iter().copied());
        for (path, op, value) in &self.conditions {
            selector = selector.matching(*path, op, value.clone());
        }
        selector
    }

    /// Returns the query for one store. `origin` is the start time of the steps in this store, and `id` returns its IDs.
    pub(super) fn query(&self, origin: Timestamp, id: impl Fn(Which) -> BreadcrumbId) -> Query {
        let mut query = Query::new(self.selector()).limit(self.limit);
        query.scope_tags = self.scope.iter().map(|tag| (*tag).to_owned()).collect();
        query.before = self.before.map(|(after, version, which)| {
            let time = Timestamp::from_micros(origin.as_micros() + after);
            (time, version, id(which))
        });
        query.exclude = self.exclude.map(&id);
        if self.oldest_first {
            query.order = Order::OldestFirst;
        }
        query
    }
}

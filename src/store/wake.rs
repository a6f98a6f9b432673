//! JSON form of a [`Wake`] (the condition that resumes a suspended run) in the database of a store. Selectors have the same form
//! as in executor definitions. An unset [`Wake::since`] is omitted.

use crate::model::{Condition, Selector, Timestamp, parse_as};
use crate::store::Wake;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Selectors(Vec<StoredSelector>),
    Since {
        selectors: Vec<StoredSelector>,
        since: i64,
    },
}

#[derive(Deserialize)]
struct StoredSelector {
    schema_name: Option<String>,
    any_tags: Option<Vec<String>>,
    #[serde(default)]
    all_tags: Vec<String>,
    #[serde(default)]
    context_match: Vec<StoredCondition>,
}

#[derive(Deserialize)]
struct StoredCondition {
    path: String,
    op: String,
    /// Comparison value in a stored condition of a selector, which can be any JSON value, also `null`. `None` if the stored
    /// condition has no `value` field.
    #[serde(default, deserialize_with = "some_value")]
    value: Option<Value>,
}

fn some_value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

pub(in crate::store) fn to_text(wake: &Wake) -> String {
    match wake.since {
        None => json!(wake.selectors).to_string(),
        Some(since) => json!({"selectors": wake.selectors, "since": since.as_micros()}).to_string(),
    }
}

/// Reads the [`Wake`] of a suspended run from its JSON form in a database. `until` is stored separately.
pub(in crate::store) fn from_text(
    text: &str,
    until: Option<Timestamp>,
) -> serde_json::Result<Wake> {
    let (selectors, since) = match parse_as(text.as_bytes())? {
        Form::Selectors(selectors) => (selectors, None),
        Form::Since { selectors, since } => (selectors, Some(Timestamp::from_micros(since))),
    };
    Ok(Wake {
        selectors: selectors.into_iter().map(selector).collect(),
        until,
        since,
    })
}

fn selector(stored: StoredSelector) -> Selector {
    let mut selector = stored
        .schema_name
        .map_or_else(Selector::default, Selector::schema);
    if let Some(any) = stored.any_tags {
        selector = selector.any_tags(any);
    }
    let conditions = stored.context_match.into_iter();
    conditions
        .map(|one| Condition::new(one.path, one.op, one.value))
        .fold(selector.all_tags(stored.all_tags), Selector::condition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_survives_a_round_trip_through_text() {
        let selectors = [
            Selector::default(),
            Selector::any(),
            Selector::schema("a\0.v1").any_tags(Vec::<String>::new()),
            Selector::schema("a.v1")
                .any_tags(["x"])
                .all_tags(["y", "y"]),
            Selector::any()
                .matching("$.n", "eq", 1.5e300)
                .matching("n", "eq", Value::Null)
                .condition(Condition::new("$['a b']", "exists", None)),
        ];
        let times = [None, Some(Timestamp::from_micros(7))];
        for (until, since) in times.into_iter().zip(times).chain([(None, times[1])]) {
            let wake = Wake {
                selectors: selectors.to_vec(),
                until,
                since,
            };

            let read = from_text(&to_text(&wake), until).unwrap();

            assert_eq!(read, wake);
            assert!(
                read.selectors
                    .iter()
                    .all(|selector| selector.check().is_ok())
            );
        }
    }
}

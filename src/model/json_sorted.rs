//! Conversion of JSON values to text with sorted object keys, so that equal values have equal texts.
//!
//! The maps of `serde_json` are sorted by key, unless a crate of the program enables its feature `preserve_order`. Code that hashes or
//! compares JSON as text therefore uses [`sorted_text`].

use serde_json::Value;

/// A part of the sorted JSON text that is not written yet.
enum Token<'v> {
    Value(&'v Value),
    Key(&'v str),
    Punctuation(char),
}

/// Returns the compact JSON text of a value, with the fields of each object sorted by key. Equal values have equal texts.
///
/// The value can have any depth, because the function does not recurse.
pub(crate) fn sorted_text(value: &Value) -> String {
    let mut text = String::new();
    let mut open = vec![Token::Value(value)];
    while let Some(token) = open.pop() {
        match token {
            Token::Punctuation(character) => text.push(character),
            Token::Key(key) => text.push_str(&Value::from(key).to_string()),
            Token::Value(Value::Array(items)) => {
                text.push('[');
                open.push(Token::Punctuation(']'));
                for (index, item) in items.iter().enumerate().rev() {
                    open.push(Token::Value(item));
                    open.extend((index > 0).then_some(Token::Punctuation(',')));
                }
            }
            Token::Value(Value::Object(fields)) => {
                text.push('{');
                open.push(Token::Punctuation('}'));
                let mut fields: Vec<_> = fields.iter().collect();
                fields.sort_unstable_by_key(|(key, _)| *key);
                for (index, (key, field)) in fields.into_iter().enumerate().rev() {
                    open.extend([
                        Token::Value(field),
                        Token::Punctuation(':'),
                        Token::Key(key),
                    ]);
                    open.extend((index > 0).then_some(Token::Punctuation(',')));
                }
            }
            Token::Value(
                plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)),
            ) => text.push_str(&plain.to_string()),
        }
    }
    text
}

/// Returns a JSON value as text for people and models: a string as it is, and any other value as [`sorted_text`].
pub(crate) fn display_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Array(_)
        | Value::Object(_)) => sorted_text(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::dismantle;
    use proptest::prelude::*;
    use serde_json::{Map, json};

    /// Returns the same value with the keys of each object in reverse order, if maps preserve an order.
    fn reversed(value: &Value) -> Value {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
            Value::Array(items) => items.iter().map(reversed).collect(),
            Value::Object(fields) => fields
                .iter()
                .rev()
                .map(|(key, field)| (key.clone(), reversed(field)))
                .collect::<Map<_, _>>()
                .into(),
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((".{0,3}", inner), 0..6)
                    .prop_map(|fields| fields.into_iter().collect::<Map<_, _>>().into()),
            ]
        })
    }

    #[test]
    fn fields_are_written_in_the_order_of_their_keys_at_every_level() {
        let value = json!({"b": [{"z": 1, "a": "\"\n"}, []], "a": {}, "é": null, "Z": 1.5});

        assert_eq!(
            sorted_text(&value),
            r#"{"Z":1.5,"a":{},"b":[{"a":"\"\n","z":1},[]],"é":null}"#
        );
    }

    #[test]
    fn a_string_is_displayed_without_quotes_and_other_values_as_json() {
        assert_eq!(display_text(&json!("a \"b\"\n")), "a \"b\"\n");
        assert_eq!(
            display_text(&json!({"b": ["c"], "a": null})),
            r#"{"a":null,"b":["c"]}"#
        );
    }

    #[test]
    fn a_value_of_any_depth_is_written() {
        let deep = (0..100_000).fold(Value::Null, |inner, _| Value::Array(vec![inner]));

        let text = sorted_text(&deep);

        assert_eq!(text.len(), 2 * 100_000 + 4);
        dismantle(deep);
    }

    proptest! {
        #![proptest_config(crate::fuzz::config())]

        #[test]
        fn equal_values_have_one_text_which_reads_as_the_value(value in any_json()) {
            let other = reversed(&value);

            let text = sorted_text(&value);

            prop_assert_eq!(&other, &value);
            prop_assert_eq!(&sorted_text(&other), &text);
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
    }
}

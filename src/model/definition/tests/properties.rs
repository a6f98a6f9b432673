//! Property tests: any JSON loads as a definition or is rejected, and a loaded definition survives printing and loading.

use super::*;
use crate::model::strategies::{any_json, definition};
use proptest::prelude::*;
use proptest::sample::Index;

/// Asserts that a loaded definition is unchanged after printing and loading, as a value and as text.
fn assert_stable(loaded: &Subscriptions) {
    let printed = serde_json::to_value(loaded).unwrap();
    let again = Subscriptions::from_json(&printed).unwrap();
    let from_text = Subscriptions::parse(&printed.to_string()).unwrap();

    assert_eq!(again.as_slice(), loaded.as_slice());
    assert_eq!(from_text.as_slice(), loaded.as_slice());
    assert_eq!(serde_json::to_value(&again).unwrap(), printed);
}

/// Returns the number of values in a JSON value, including the value itself.
fn positions(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(positions).sum(),
        Value::Object(fields) => fields.values().map(positions).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0_usize,
    }
}

/// Replaces the value with the number `position`, in depth-first order, with `new`.
fn replace(value: &mut Value, position: usize, new: &Value) {
    let inner: Vec<&mut Value> = match value {
        _ if position == 0 => {
            value.clone_from(new);
            return;
        }
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
    };
    let mut left = position - 1;
    for value in inner {
        let held = positions(value);
        if left < held {
            return replace(value, left, new);
        }
        left -= held;
    }
}

/// Loads a definition as a value and as text. Asserts that the results are equal, and that a loaded definition is stable.
fn try_load(definition: &Value) {
    let loaded = Subscriptions::from_json(definition);
    let from_text = Subscriptions::parse(&definition.to_string());

    assert_eq!(loaded.as_ref().err(), from_text.as_ref().err());
    match loaded {
        Ok(loaded) => assert_stable(&loaded),
        Err(error) => assert!(error.to_string().len() < 1_000, "{error}"),
    }
}

proptest! {
    #![proptest_config(crate::fuzz::config())]

    #[test]
    fn any_valid_definition_loads_and_is_the_same_when_printed_and_loaded_again(definition in definition()) {
        let loaded = load(&json!(definition));

        assert_stable(&loaded);
        prop_assert_eq!(loaded.as_slice().len(), definition.len());
        let again = load(&serde_json::to_value(&loaded).unwrap());
        prop_assert_eq!(again.warnings(), loaded.warnings());
    }

    #[test]
    fn a_definition_with_any_values_replaced_loads_or_is_refused(
        list in definition(),
        changes in prop::collection::vec((any::<Index>(), any_json()), 1..4),
    ) {
        let mut definition = json!({"title": "x", "context": {"subscriptions": {"selectors": list}}});
        for (position, new) in changes {
            let position = position.index(positions(&definition));
            replace(&mut definition, position, &new);
        }

        try_load(&definition);
    }

    #[test]
    fn a_subscription_with_any_field_set_loads_or_is_refused(
        field in prop::sample::select(&["any_tags", "context_match", "fetch", "limit", "on", "role", "selector", "tag"][..]),
        value in any_json(),
    ) {
        try_load(&json!([request(&json!({field: value})), page(&json!({field: value}))]));
    }

    #[test]
    fn any_json_loads_or_is_refused(definition in any_json()) {
        try_load(&definition);
        try_load(&json!([definition]));
        try_load(&json!([request(&json!({"context_match": [definition]}))]));
    }

    #[test]
    fn any_text_loads_or_is_refused(text in ".{0,64}") {
        if let Ok(loaded) = Subscriptions::parse(&text) {
            assert_stable(&loaded);
        }
    }

    #[test]
    fn a_definition_text_with_a_piece_cut_out_or_put_in_loads_or_is_refused(
        from in any::<Index>(),
        cut in 0..40_usize,
        put in r#"[\[\]{}",:0-9a-z\\$.*?@]{0,6}"#,
    ) {
        for text in [AGENT, TOOL] {
            let from = from.index(text.len());
            let (before, rest) = text.split_at(from);
            let changed = format!("{before}{put}{}", rest.get(cut..).unwrap_or_default());

            if let Ok(loaded) = Subscriptions::parse(&changed) {
                assert_stable(&loaded);
            }
        }
    }

    #[test]
    fn any_path_and_operator_and_value_is_taken_or_refused(path in ".{0,40}", op in "[a-z_]{0,12}", value in any_json()) {
        try_load(&json!([request(&json!({"context_match": [{"path": path, "op": op, "value": value}]}))]));
        try_load(&json!([request(&json!({"context_match": [{"path": "a", "op": "matches", "value": path}]}))]));
    }
}

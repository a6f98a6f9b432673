use super::{apply, try_apply};
use crate::hints::HintsReason;
use serde_json::{Value, json};

fn rule(rule: Value, context: &Value) -> Value {
    apply(&json!({"transform": {"r": rule}}), context)["r"].clone()
}

fn format(text: &str, context: &Value) -> Value {
    rule(json!({"type": "format", "format": text}), context)
}

#[test]
fn a_plain_path_gives_the_node_or_null() {
    let extract = |path: &str| {
        rule(
            json!({"type": "extract", "value": path}),
            &json!({"a": {"b": [1, 2]}}),
        )
    };

    assert_eq!(extract("$.a.b[-1]"), json!(2));
    assert_eq!(extract("a"), json!({"b": [1, 2]}));
    assert_eq!(extract("$"), json!({"a": {"b": [1, 2]}}));
    assert_eq!(extract("$.a.x"), Value::Null);
    assert_eq!(extract("$.a['b'][0,1]"), json!([1, 2]));
    assert_eq!(extract("$.a.b[?@ > 1]"), json!([2]));
}

#[test]
fn a_format_puts_values_into_a_text() {
    let context = json!({"content": "hi \"you\"", "n": 1.5, "none": null, "list": [1, {"a": "b"}], "yes": true,
        "odd}": "odd"});

    assert_eq!(
        format("User ({n}): {content}", &context),
        "User (1.5): hi \"you\""
    );
    assert_eq!(format("{list}{yes}", &context), "[1,{\"a\":\"b\"}]true");
    assert_eq!(format("<{none}{absent}{$.list[9]}>", &context), "<>");
    assert_eq!(format("{$.list[*].a}", &context), "[\"b\"]");
    assert_eq!(format("{$['odd}']}", &context), "odd");
    assert_eq!(
        format("{{\"a\": {n}}} {{{n}}}", &context),
        "{\"a\": 1.5} {1.5}"
    );
    assert_eq!(format("", &context), "");
}

#[test]
fn a_literal_is_given_as_it_is() {
    for literal in [json!(null), json!({"any": ["json", 1]}), json!("{n}{{n}}")] {
        assert_eq!(
            rule(
                json!({"type": "literal", "literal": literal}),
                &json!({"n": 1})
            ),
            literal
        );
    }
}

#[test]
fn replace_mode_returns_only_the_rule_results() {
    let hints = json!({"mode": "replace", "transform": {"x": {"type": "literal", "literal": 1}}});

    assert_eq!(apply(&hints, &json!({"a": 1})), json!({"x": 1}));
}

#[test]
fn merge_mode_overlays_the_rule_results_on_the_filtered_context() {
    let hints = json!({"exclude": ["b"], "mode": "merge", "transform": {
        "a": {"type": "literal", "literal": {"new": 1}},
        "b": {"type": "extract", "value": "b"},
    }});

    let shaped = apply(&hints, &json!({"a": {"old": 1}, "b": 2, "c": 3}));

    assert_eq!(shaped, json!({"a": {"new": 1}, "b": null, "c": 3}));
}

#[test]
fn rules_do_not_see_the_results_of_other_rules() {
    let hints = json!({"mode": "merge", "transform": {
        "a": {"type": "literal", "literal": 1}, "b": {"type": "extract", "value": "a"},
    }});

    assert_eq!(apply(&hints, &json!({})), json!({"a": 1, "b": null}));
}

#[test]
fn a_context_that_no_value_can_hold_is_withheld() {
    let mut deep = json!("hunter2");
    for _ in 0..65 {
        deep = json!([deep]);
    }

    let failure = try_apply(&json!({"exclude": ["a"]}), &deep).unwrap_err();

    assert_eq!(failure.reason, HintsReason::Unreadable);
    assert_eq!(failure.rule, "exclude");
}

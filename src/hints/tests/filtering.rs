use super::apply;
use crate::hints::Hints;
use crate::model::Json;
use serde_json::{Value, json};

#[track_caller]
fn leaves(hints: Value, context: &Value, expected: Value) {
    assert_eq!(apply(&hints, context), expected, "{hints}");
}

#[test]
fn a_name_applies_to_each_item_of_a_list_and_its_nested_lists() {
    let context = json!({"items": [{"s": 1, "a": 2}, [{"s": 3, "a": 4}], 5]});

    leaves(
        json!({"exclude": ["items.s"]}),
        &context,
        json!({"items": [{"a": 2}, [{"a": 4}], 5]}),
    );
    leaves(
        json!({"include": ["items.s"]}),
        &context,
        json!({"items": [{"s": 1}, [{"s": 3}]]}),
    );
}

#[test]
fn an_index_refers_to_the_original_list() {
    let context = json!({"items": ["a", "b", "c", "d"]});

    leaves(
        json!({"exclude": ["items[0]", "items[1]"]}),
        &context,
        json!({"items": ["c", "d"]}),
    );
    leaves(
        json!({"include": ["items[1]", "items[-1]"]}),
        &context,
        json!({"items": ["b", "d"]}),
    );
    leaves(
        json!({"include": ["items[1]", "items[2]"], "exclude": ["items[1]"]}),
        &context,
        json!({"items": ["c"]}),
    );
    leaves(
        json!({"exclude": ["items[-9]", "items[9]"]}),
        &context,
        context.clone(),
    );
}

#[test]
fn a_star_is_every_member() {
    let context = json!({"a": {"x": 1, "y": 2}, "b": [{"x": 3}, 4]});

    leaves(json!({"exclude": ["*"]}), &context, json!({}));
    leaves(
        json!({"exclude": ["$.*.x"]}),
        &context,
        json!({"a": {"y": 2}, "b": [{}, 4]}),
    );
    leaves(
        json!({"include": ["b[*].x"]}),
        &context,
        json!({"b": [{"x": 3}]}),
    );
    leaves(
        json!({"include": ["b.*"]}),
        &context,
        json!({"b": [{"x": 3}, 4]}),
    );
}

#[test]
fn two_dots_find_a_name_at_any_depth() {
    let context = json!({"s": 1, "a": {"s": {"s": 2}, "b": [{"s": 3, "t": {"u": 4}}]}});

    leaves(
        json!({"exclude": ["..s"]}),
        &context,
        json!({"a": {"b": [{"t": {"u": 4}}]}}),
    );
    leaves(
        json!({"exclude": ["$..['t'].u"]}),
        &context,
        json!({"s": 1, "a": {"s": {"s": 2}, "b": [{"s": 3, "t": {}}]}}),
    );
    leaves(
        json!({"include": ["a..t"]}),
        &context,
        json!({"a": {"b": [{"t": {"u": 4}}]}}),
    );
}

#[test]
fn odd_names_are_quoted() {
    let context = json!({"a.b": 1, "it's": 2, "a": {"b": 3}, "é": 4, "x-y": 5});

    leaves(
        json!({"exclude": ["['a.b']", "$[\"it's\"]", "é", "x-y"]}),
        &context,
        json!({"a": {"b": 3}}),
    );
}

#[test]
fn exclude_wins_over_include() {
    let context = json!({"a": {"b": 1, "c": 2}, "d": 3});

    leaves(
        json!({"include": ["a", "d"], "exclude": ["a.b"]}),
        &context,
        json!({"a": {"c": 2}, "d": 3}),
    );
    leaves(
        json!({"include": ["a.b"], "exclude": ["a"]}),
        &context,
        json!({}),
    );
}

#[test]
fn an_included_empty_value_remains_and_a_parent_without_matches_is_removed() {
    let context = json!({"a": {}, "b": {"c": {}}, "d": []});

    leaves(
        json!({"include": ["a", "b.x", "d"]}),
        &context,
        json!({"a": {}, "d": []}),
    );
    leaves(
        json!({"include": ["a", "b.c"], "exclude": ["a.y"]}),
        &context,
        json!({"a": {}, "b": {"c": {}}}),
    );
}

#[test]
fn nothing_left_is_empty_and_never_the_context() {
    leaves(json!({"include": ["x"]}), &json!({"a": 1}), json!({}));
    leaves(json!({"include": ["x"]}), &json!([{"a": 1}]), json!([]));
    leaves(json!({"include": ["x"]}), &json!("a"), Value::Null);
    leaves(json!({"exclude": ["x"]}), &json!("a"), json!("a"));
}

#[test]
fn hints_without_an_effect_return_the_same_pointer() {
    let context = Json::from(json!({"a": [1, {"b": 2}], "c": "d"}));
    let same = |hints: Value| {
        let shaped = Hints::from_json(&hints).unwrap().apply(&context).unwrap();
        std::ptr::eq(&raw const *shaped, &raw const *context)
    };

    assert!(same(json!({})));
    assert!(same(Value::Null));
    assert!(same(
        json!({"include": null, "exclude": [], "mode": "merge", "transform": {}})
    ));
    assert!(same(json!({"exclude": ["x.y", "a.z", "..q", "a[7]"]})));
    assert!(same(json!({"include": ["a", "c"]})));
    assert!(!same(json!({"exclude": ["a[1].b"]})));
}

#[test]
fn rules_see_only_the_filtered_context() {
    let hints = json!({
        "include": ["a", "b"], "exclude": ["a.secret", "items[0]"], "mode": "merge",
        "transform": {
            "all": {"type": "extract", "value": "$"},
            "deep": {"type": "extract", "value": "$..secret"},
            "line": {"type": "format", "format": "{a.secret}{$..*}{c}"},
        },
    });

    let shaped = apply(
        &hints,
        &json!({"a": {"secret": "hunter2", "x": 1}, "b": 2, "c": "hunter3"}),
    );

    assert_eq!(shaped["all"], json!({"a": {"x": 1}, "b": 2}));
    assert_eq!(shaped["deep"], json!([]));
    assert!(!shaped.to_string().contains("hunter"));
}

#[test]
fn the_hidden_value_of_a_duplicate_key_is_removed() {
    let text = r#"{"meta": {"secret": "hunter2"}, "a": 1, "meta": {"open": 2}}"#;
    let context = Json::from_text(text).unwrap();

    for hints in [
        json!({"exclude": ["meta.secret"]}),
        json!({"include": ["meta.open", "a"]}),
    ] {
        let shaped = Hints::from_json(&hints).unwrap().apply(&context).unwrap();

        assert_eq!(shaped, json!({"a": 1, "meta": {"open": 2}}));
        assert!(!shaped.to_string().contains("hunter2"), "{shaped}");
    }
}

use super::*;
use serde_json::json;

fn holds(path: &str, op: &str, value: Value, context: &Value) -> bool {
    Condition::new(path, op, Some(value)).holds(context)
}

#[test]
fn each_operator_matches_its_table_of_results() {
    let context = json!({
        "n": 5, "f": 5.0, "s": "web-analyzer", "list": ["a", 1, [2]], "object": {"key": null}, "t": true, "null": null
    });
    for (path, op, value, expected) in [
        ("n", "eq", json!(5.0), true),
        ("n", "eq", json!("5"), false),
        ("object", "eq", json!({"key": null}), true),
        ("null", "eq", json!(null), true),
        ("n", "ne", json!(5.0), false),
        ("n", "ne", json!(6), true),
        ("n", "gt", json!(4.5), true),
        ("n", "gt", json!(5), false),
        ("n", "gte", json!(5), true),
        ("s", "lt", json!("x"), true),
        ("s", "lte", json!("web"), false),
        ("t", "gt", json!(false), false),
        ("n", "lt", json!("9"), false),
        ("n", "in", json!([1, 5.0]), true),
        ("n", "in", json!([]), false),
        ("s", "contains", json!("-ana"), true),
        ("list", "contains", json!([2.0]), true),
        ("list", "contains", json!("b"), false),
        ("object", "contains", json!("key"), true),
        ("n", "contains", json!(5), false),
        ("list", "contains_any", json!(["z", 1.0]), true),
        ("list", "contains_any", json!([]), false),
        ("s", "contains_any", json!(["web-analyzer"]), false),
        ("list", "contains_all", json!(["a", 1]), true),
        ("list", "contains_all", json!(["a", "b"]), false),
        ("list", "contains_all", json!([]), true),
        ("s", "starts_with", json!("web"), true),
        ("n", "starts_with", json!("5"), false),
        ("s", "ends_with", json!("lyzer"), true),
        ("s", "matches", json!("^web-[a-z]+$"), true),
        ("s", "matches", json!("^analyzer"), false),
        ("n", "matches", json!("5"), false),
        ("n", "exists", json!(true), true),
        ("null", "exists", json!(true), true),
        ("n", "exists", json!(false), false),
    ] {
        assert_eq!(
            holds(path, op, value.clone(), &context),
            expected,
            "{path} {op} {value}"
        );
    }
}

#[test]
fn a_missing_path_fails_every_operator_but_ne_and_exists_false() {
    let context = json!({});
    for op in Op::ALL {
        let value = if op == Op::Exists {
            json!(true)
        } else {
            json!(["a"])
        };
        assert_eq!(
            holds("$.gone", op.as_str(), value, &context),
            op == Op::Ne,
            "{op:?}"
        );
    }
    assert!(holds("$.gone", "exists", json!(false), &context));
}

#[test]
fn a_condition_on_several_nodes_needs_one_match_and_ne_needs_no_equal_node() {
    let context = json!({"tags": ["a", "b"]});

    assert!(holds("$.tags[*]", "eq", json!("b"), &context));
    assert!(!holds("$.tags[*]", "ne", json!("b"), &context));
    assert!(holds("$.tags[*]", "ne", json!("c"), &context));
}

#[test]
fn a_condition_that_cannot_be_evaluated_never_holds() {
    for (path, op, value) in [
        ("$[", "ne", Some(json!(1))),
        ("$[", "exists", Some(json!(false))),
        ("$.a", "sounds_like", Some(json!(1))),
        ("$.a", "eq", None),
    ] {
        let condition = Condition::new(path, op, value);
        assert!(
            condition.error().is_some() && !condition.holds(&json!({})),
            "{path} {op}"
        );
    }
}

#[test]
fn a_regex_beyond_the_limits_is_an_error_and_a_long_string_does_not_match() {
    for pattern in ["(", r"\w{2000}", &"a".repeat(5_000)] {
        let condition = Condition::new("a", "matches", Some(json!(pattern)));
        assert!(
            matches!(condition.error(), Some(ConditionError::Regex { .. })),
            "{}",
            excerpt(pattern, 20)
        );
    }
    assert!(!holds(
        "a",
        "matches",
        json!("x"),
        &json!({"a": "x".repeat(REGEX_HAYSTACK + 1)})
    ));
}

#[test]
fn an_explanation_names_path_node_operator_and_value() {
    let context = json!({"tool": "adder", "many": [1, 2, 3, 4, 5]});
    for (path, op, value, expected) in [
        (
            "tool",
            "eq",
            json!("web-analyzer"),
            r#"$.tool: "adder" is not eq "web-analyzer""#,
        ),
        ("gone", "eq", json!(1), "$.gone: missing, so it is not eq 1"),
        ("gone", "exists", json!(true), "$.gone: missing"),
        ("tool", "exists", json!(false), "$.tool: exists"),
        (
            "tool",
            "ne",
            json!("adder"),
            r#"$.tool: "adder" is not ne "adder""#,
        ),
        (
            "$.many[*]",
            "gt",
            json!(9),
            "$.many[*]: 1, 2, 3 and 2 more is not gt 9",
        ),
    ] {
        assert_eq!(
            Condition::new(path, op, Some(value)).explain(&context, usize::MAX),
            expected
        );
    }
}

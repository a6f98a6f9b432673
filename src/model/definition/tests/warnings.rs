use super::*;

#[test]
fn an_unknown_field_is_retained_with_one_warning() {
    let definition = json!([
        request(&json!({})),
        page(&json!({"x-team": {"a": [1]}, "any_tag": ["a"], "page_comment": "!", "metadata": {}})),
        {"selector": {"schema_name": "other.v1", "all_tag": "a"}, "role": "context", "key": "other"},
    ]);

    let mut warnings = warnings(&definition);
    // The fields of one subscription have no order.
    warnings.sort_unstable();
    assert_eq!(
        warnings,
        [
            r#"subscription 1 ("page"): unknown field "any_tag" has no effect; did you mean "any_tags"?"#,
            r#"subscription 2 ("other"): unknown field "all_tag" has no effect; did you mean "all_tags"?"#,
        ]
    );
    let printed = serde_json::to_value(load(&definition)).unwrap();
    assert_eq!(printed[1]["x-team"], json!({"a": [1]}));
    assert_eq!(printed[2]["all_tag"], json!("a"));
}

#[test]
fn tags_without_a_quantifier_are_answered_with_both_fields_for_tags() {
    let definition = json!([{"schema_name": "a.v1", "role": "trigger", "tags": ["b"]}]);

    assert_eq!(
        warnings(&definition),
        [
            r#"subscription 0: unknown field "tags" has no effect; did you mean "any_tags" or "all_tags"?"#
        ]
    );
}

#[test]
fn an_unknown_field_is_an_error_in_strict_mode_and_a_comment_is_not() {
    let strict = DefinitionOptions::default().strict();
    let commented = json!([request(
        &json!({"comment": "a", "x-b": 1, "role_comment": "c"})
    )]);
    let read = |definition: &Value| Subscriptions::from_json_with(definition, &strict);

    assert!(read(&commented).is_ok());
    for (more, expected) in [
        (
            json!({"tags": ["a"]}),
            r#"tags: unknown field; did you mean "any_tags" or "all_tags"?"#,
        ),
        (
            json!({"fetch": {"method": "recent", "limits": 5}}),
            r#"fetch.limits: unknown field; did you mean "limit"?"#,
        ),
        (
            json!({"context_match": [{"path": "$.a", "op": "exists", "banana": 1}]}),
            "context_match[0].banana: unknown field",
        ),
    ] {
        let error = read(&json!({"selectors": [page(&more)]})).unwrap_err();

        assert_eq!(
            error.to_string(),
            format!("subscription 0 (\"page\"): {expected}")
        );
        let path = error.path(&json!({"selectors": []})).to_string();
        assert!(path.starts_with("selectors[0]."), "{path}");
    }
}

#[test]
fn a_problem_has_the_path_from_the_top_of_the_definition() {
    let definition =
        json!({"context": {"subscriptions": {"selectors": [page(&json!({"limits": 1}))]}}});
    let none = json!({"context": {"name": "a"}});
    let subscriptions = load(&definition);

    let warning = &subscriptions.warnings()[0];

    assert!(warning.is_unknown_field());
    assert_eq!(
        warning.path(&definition).to_string(),
        "context.subscriptions.selectors[0].limits"
    );
    let error = Subscriptions::from_json(&none).unwrap_err();
    assert_eq!(error.path(&none).to_string(), "context.subscriptions");
}

#[test]
fn the_number_of_warnings_is_bounded_and_the_omitted_ones_are_counted() {
    let fields = (0..5_000).map(|n| (format!("f{n}"), json!(1)));
    let more: Value = Value::Object(fields.collect());
    let definition = json!([page(&more)]);

    let found = warnings(&definition);

    assert_eq!(found.len(), 101);
    assert!(
        found[100].ends_with("4900 more problems are omitted"),
        "{}",
        found[100]
    );
}

#[test]
fn an_unknown_field_of_a_fetch_or_a_condition_is_a_warning() {
    let definition = json!([page(&json!({
        "fetch": {"method": "recent", "limits": 5},
        "context_match": [{"path": "a", "op": "exists", "values": 1}],
    }))]);

    assert_eq!(
        warnings(&definition),
        [
            r#"subscription 0 ("page"): unknown field "context_match[0].values" has no effect; did you mean "value"?"#,
            r#"subscription 0 ("page"): unknown field "fetch.limits" has no effect; did you mean "limit"?"#,
        ]
    );
}

#[test]
fn a_setting_without_an_effect_loads_with_a_warning() {
    for (subscription, expected) in [
        (
            request(&json!({"key": "asked", "fetch": "latest"})),
            r#"subscription 0 ("asked"): fetch method "latest" has no effect on a trigger, which is always the breadcrumb of the event; remove "fetch""#,
        ),
        (
            request(&json!({"fetch": {"method": "vector", "nn": 3}})),
            r#"subscription 0: fetch method "vector" has no effect on a trigger, which is always the breadcrumb of the event; remove "fetch""#,
        ),
        (
            page(&json!({"fetch": {"method": "latest", "limit": 5}})),
            r#"subscription 0 ("page"): the limit 5 has no effect, because "latest" fetches one item; use "recent" for a list"#,
        ),
        (
            request(&json!({"any_tags": []})),
            "subscription 0: any_tags is empty, so the subscription never matches",
        ),
        (
            request(&json!({"on": []})),
            "subscription 0: on is empty, so the subscription never matches",
        ),
        (
            page(&json!({"on": []})),
            r#"subscription 0 ("page"): on is empty, so the subscription never matches"#,
        ),
    ] {
        assert_eq!(
            warnings(&json!([subscription])),
            [expected],
            "{subscription}"
        );
    }
}

#[test]
fn a_condition_that_can_never_hold_loads_with_a_warning() {
    for (op, value) in [
        ("gt", json!(true)),
        ("gte", json!(null)),
        ("lt", json!([1])),
        ("lte", json!({"a": 1})),
        ("in", json!("a")),
        ("in", json!([])),
        ("contains_any", json!([])),
        ("contains_any", json!("a")),
        ("contains_all", json!("a")),
        ("starts_with", json!(1)),
        ("ends_with", json!(["a"])),
        ("matches", json!(1)),
    ] {
        let subscription =
            request(&json!({"context_match": [{"path": "a", "op": op, "value": value}]}));

        let [warning] = &warnings(&json!([subscription]))[..] else {
            panic!("{subscription}")
        };

        assert!(
            warning.starts_with(&format!(
                "subscription 0: context_match[0]: op {op:?} never holds with the value "
            )),
            "{warning}"
        );
        for context in [
            json!({}),
            json!({"a": value}),
            json!({"a": true}),
            json!({"a": [true, "a"]}),
            json!({"a": "a"}),
        ] {
            assert!(
                !load_one(&subscription).selector.conditions()[0].holds(&context),
                "{op} {value} {context}"
            );
        }
    }
}

#[test]
fn a_condition_that_may_hold_has_no_warning() {
    for (op, value) in [
        ("eq", json!(null)),
        ("ne", json!(true)),
        ("gt", json!(1)),
        ("lte", json!("a")),
        ("in", json!([1])),
        ("contains", json!({"a": 1})),
        ("contains_any", json!([1])),
        ("contains_all", json!([])),
        ("starts_with", json!("")),
        ("matches", json!("^a")),
        ("exists", json!(false)),
    ] {
        let subscription =
            request(&json!({"context_match": [{"path": "a", "op": op, "value": value}]}));

        assert!(warnings(&json!([subscription])).is_empty(), "{op} {value}");
    }
}

#[test]
fn warnings_stand_in_the_order_of_the_subscriptions() {
    let loaded = load(&json!([
        page(&json!({"fetch": {"method": "latest", "limit": 2}})),
        request(&json!({"colour": "red"})),
        request(&json!({"fetch": "recent", "size": 1})),
    ]));

    let places: Vec<usize> = loaded
        .warnings()
        .iter()
        .map(SubscriptionWarning::subscription)
        .collect();

    assert_eq!(places, [0, 1, 2, 2]);
    assert!(
        loaded.warnings()[1]
            .message()
            .starts_with(r#"unknown field "colour""#)
    );
}

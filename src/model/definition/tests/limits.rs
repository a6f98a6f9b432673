use super::*;

#[test]
fn the_cap_of_limits_is_configurable() {
    let of = |limit: usize| json!([page(&json!({"fetch": "recent", "limit": limit}))]);
    let options = DefinitionOptions::default().max_limit(5_000);

    assert!(Subscriptions::from_json_with(&of(5_000), &options).is_ok());
    let error = Subscriptions::from_json_with(&of(5_001), &options).unwrap_err();
    assert!(
        error.to_string().ends_with(
            "fetch.limit: the fetch limit 5001 is out of range; set a limit from 1 to 5000"
        ),
        "{error}"
    );
    let lower = DefinitionOptions::default().max_limit(20);
    assert_eq!(
        *Subscriptions::from_json_with(&of(21), &lower)
            .unwrap_err()
            .problem(),
        DefinitionProblem::Limit {
            value: 21,
            most: 20
        }
    );
}

#[test]
fn an_executor_has_at_most_256_subscriptions_unless_configured_otherwise() {
    let list = |count: usize| json!({"subscriptions": vec![request(&json!({})); count]});
    let more = DefinitionOptions::default().max_subscriptions(257);

    let error = refusal(&list(257));
    let built = Subscriptions::new(vec![crate::model::Subscription::trigger("a.v1"); 257]);

    let too_many = DefinitionProblem::TooMany {
        what: "subscriptions",
        count: 257,
        most: 256,
    };
    assert_eq!(*error.problem(), too_many);
    assert_eq!(error.field(), "subscriptions");
    assert_eq!(*built.unwrap_err().problem(), too_many);
    assert!(Subscriptions::from_json(&list(256)).is_ok());
    assert!(Subscriptions::from_json_with(&list(257), &more).is_ok());
}

#[test]
fn a_path_beyond_the_limits_is_refused_with_the_limit() {
    let too_long = format!("$.{}", "a".repeat(511));
    let too_many = format!("${}", ".a".repeat(33));
    for (path, variant, words) in [
        (
            too_long.as_str(),
            "OverLimit",
            "has 513 bytes where at most 512",
        ),
        (&too_many, "OverLimit", "has 33 segments where at most 32"),
        (
            "$..a..b",
            "OverLimit",
            "has 2 descents `..` where at most 1",
        ),
        (
            "$.*[*].a[*]",
            "OverLimit",
            "slices and filters where at most 2",
        ),
        (
            "$.*[0:2].a['x','y']",
            "OverLimit",
            "has 3 wildcards, unions, slices and filters where at most 2",
        ),
        ("$[?@.a[?@.b]]", "NestedFilter", "a filter inside a filter"),
        ("$[?@.a == $.b]", "RootInFilter", "`$` inside a filter"),
        ("$[?@..a]", "DescentInFilter", "`..` inside a filter"),
        ("$[?match(@.a, 'x')]", "Function", "function `match`"),
        ("$[?search(@.a, 'x')]", "Function", "function `search`"),
        ("$.a[", "Syntax", "path `$.a[` is not a valid JSONPath"),
        ("", "Syntax", "the path is empty"),
    ] {
        let condition = json!({"path": path, "op": "exists"});
        let error = refusal(&json!([request(&json!({"context_match": [condition]}))]));

        let DefinitionProblem::Condition(ConditionError::Path(problem)) = error.problem() else {
            panic!("{error}")
        };
        assert!(format!("{problem:?}").starts_with(variant), "{problem:?}");
        assert_eq!(error.field(), "context_match[0].path");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_path_at_the_limits_is_taken() {
    let longest = format!("$.{}", "a".repeat(510));
    let most = format!("${}", ".a".repeat(32));
    for path in [&longest, &most, "$..a", "$.*[*].a", "$.a[?@.b == 1].c[0:2]"] {
        load_one(&request(
            &json!({"context_match": [{"path": path, "op": "exists"}]}),
        ));
    }
}

#[test]
fn a_regex_beyond_the_limits_is_refused() {
    for (pattern, words) in [
        ("(".to_owned(), r#"invalid regex "(": unclosed group"#),
        (format!("{}(", "a".repeat(4_000)), "unclosed group"),
        (
            r"\w{2000}".to_owned(),
            r#"regex "\\w{2000}" needs more than 262144 bytes"#,
        ),
        (
            "a".repeat(5_000),
            "has 5000 bytes where at most 4096 are allowed",
        ),
    ] {
        let error = refusal(&json!([request(
            &json!({"context_match": [{"path": "a", "op": "matches", "value": pattern}]})
        )]));

        assert!(
            matches!(
                error.problem(),
                DefinitionProblem::Condition(ConditionError::Regex { .. })
            ),
            "{error}"
        );
        assert_eq!(error.field(), "context_match[0].value");
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.to_string().len() < 300, "{error}");
    }
}

#[test]
fn a_definition_nested_too_deep_is_a_typed_error() {
    let nested = |levels: usize| (0..levels).fold(json!(0), |inner, _| json!([inner]));
    let with = |levels: usize| {
        json!([request(
            &json!({"context_match": [{"path": "a", "op": "eq", "value": nested(levels)}]})
        )])
    };

    // The list, the subscription, the list of conditions and the condition take four levels.
    assert!(Subscriptions::from_json(&with(MAX_DEPTH - 4)).is_ok());
    for deep in [with(MAX_DEPTH - 3), with(500)] {
        assert_eq!(*refusal(&deep).problem(), DefinitionProblem::TooDeep);
        assert_eq!(
            *Subscriptions::parse(&deep.to_string())
                .unwrap_err()
                .problem(),
            DefinitionProblem::TooDeep
        );
    }
    let wrapped = (0..500).fold(json!([]), |inner, _| json!({"context": inner}));
    assert_eq!(*refusal(&wrapped).problem(), DefinitionProblem::TooDeep);
    let selectors = (0..50).fold(
        json!({"schema_name": "a.v1"}),
        |inner, _| json!({"selector": inner}),
    );
    assert_eq!(
        load_one(&merged(selectors, &json!({"role": "trigger"}))),
        Subscription::trigger("a.v1")
    );
}

#[test]
fn a_text_that_is_too_large_is_a_typed_error() {
    let large = format!("[{}]", " ".repeat(MAX_TEXT));

    let error = Subscriptions::parse(&large).unwrap_err();

    assert_eq!(
        *error.problem(),
        DefinitionProblem::TooLarge {
            size: MAX_TEXT + 2,
            limit: MAX_TEXT
        }
    );
    assert_eq!(
        error.to_string(),
        "the JSON of the subscriptions has 1048578 bytes where at most 1048576 are allowed; split it"
    );
}

#[test]
fn an_error_message_truncates_long_names() {
    let long = "x".repeat(100_000);
    for subscription in [
        page(&json!({"key": long, "role": "nothing"})),
        page(&json!({"role": long})),
        page(&json!({"fetch": long})),
        page(&json!({"required": long})),
        page(&json!({"required": vec![1; 1_000]})),
        page(&json!({"context_match": [{"path": long, "op": "eq", "value": 1}]})),
        page(&json!({"context_match": [{"path": "a", "op": long, "value": 1}]})),
    ] {
        let text = refusal(&json!([subscription])).to_string();

        assert!(text.len() < 400, "{} bytes", text.len());
    }
    let twice = refusal(&json!([
        page(&json!({"key": long})),
        page(&json!({"key": long}))
    ]))
    .to_string();
    assert!(twice.len() < 400, "{} bytes", twice.len());
}

/// Returns a definition whose triggers have at most 60 conditions each.
fn with_conditions(count: usize, condition: &Value) -> Value {
    let conditions = vec![condition.clone(); count];
    let triggers = conditions
        .chunks(60)
        .map(|some| request(&json!({"context_match": some})));
    triggers.collect()
}

#[test]
fn a_definition_has_at_most_1000_conditions_unless_configured_otherwise() {
    let condition = json!({"path": "a", "op": "exists"});
    let more = DefinitionOptions::default().max_conditions(1_001);

    let error = refusal(&with_conditions(1_001, &condition));

    let too_many = DefinitionProblem::TooMany {
        what: "conditions",
        count: 1_001,
        most: 1_000,
    };
    assert_eq!(*error.problem(), too_many);
    assert_eq!(error.field(), "context_match");
    assert!(
        error
            .to_string()
            .contains("1001 conditions in one definition where at most 1000 are allowed"),
        "{error}"
    );
    assert!(Subscriptions::from_json(&with_conditions(1_000, &condition)).is_ok());
    assert!(Subscriptions::from_json_with(&with_conditions(1_001, &condition), &more).is_ok());
}

#[test]
fn a_definition_has_at_most_100_regexes_which_are_counted_before_they_are_compiled() {
    let sound = json!({"path": "a", "op": "matches", "value": "x"});
    let broken = json!({"path": "a", "op": "matches", "value": "("});
    let conditions = |count: usize| {
        (0..count).map(|_| crate::model::Condition::new("a", "matches", Some(json!("x"))))
    };
    let built = |count: usize| {
        let trigger = Subscription::trigger("a.v1");
        Subscriptions::new([conditions(count).fold(trigger, Subscription::condition)])
    };
    let too_many = DefinitionProblem::TooMany {
        what: "regular expressions",
        count: 101,
        most: 100,
    };

    assert!(Subscriptions::from_json(&with_conditions(100, &sound)).is_ok());
    assert_eq!(*refusal(&with_conditions(101, &sound)).problem(), too_many);
    let one = json!([request(&json!({"context_match": vec![broken; 101]}))]);
    assert_eq!(*refusal(&one).problem(), too_many);
    assert_eq!(*built(101).unwrap_err().problem(), too_many);
    assert!(built(100).is_ok());
}

#[test]
fn no_condition_after_the_first_refused_one_is_read() {
    let conditions = json!([
        {"path": "a", "op": "matches", "value": "("},
        {"op": "matches", "value": "x"},
    ]);

    let error = refusal(&json!([request(&json!({"context_match": conditions}))]));

    assert_eq!(error.field(), "context_match[0].value");
}

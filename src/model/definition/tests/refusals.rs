use super::*;

/// Asserts that each subscription, after a valid one, is rejected with the error message.
fn assert_refused(cases: &[(Value, &str)]) {
    for (subscription, expected) in cases {
        let error = refusal(&json!([request(&json!({})), subscription]));

        assert_eq!(error.to_string(), *expected, "{subscription}");
        assert_eq!(error.subscription(), Some(1));
        assert_eq!(error.retry(), Retry::Never);
    }
}

#[test]
fn a_field_both_in_a_nested_selector_and_beside_it_is_refused() {
    assert_refused(&[
        (
            page(&json!({"selector": {"schema_name": "page.v2"}})),
            r#"subscription 1 ("page"): schema_name: the field is both inside and outside of "selector"; remove one of the two"#,
        ),
        (
            page(&json!({"selector": "page.v2"})),
            r#"subscription 1 ("page"): selector: the value must be an object, not "page.v2""#,
        ),
    ]);
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest_one() {
    assert_refused(&[
        (
            page(&json!({"role": "contxt"})),
            r#"subscription 1 ("page"): role: unknown value "contxt"; did you mean "context"?"#,
        ),
        (
            page(&json!({"role": "Trigger"})),
            r#"subscription 1 ("page"): role: unknown value "Trigger"; did you mean "trigger"?"#,
        ),
        (
            page(&json!({"role": "banana"})),
            r#"subscription 1 ("page"): role: unknown value "banana"; expected one of trigger, context"#,
        ),
        (
            page(&json!({"fetch": "lastest"})),
            r#"subscription 1 ("page"): fetch.method: unknown value "lastest"; did you mean "latest"?"#,
        ),
        (
            page(&json!({"fetch": {"method": "vectors"}})),
            r#"subscription 1 ("page"): fetch.method: unknown value "vectors"; did you mean "vector"?"#,
        ),
        (
            page(&json!({"fetch": {"method": "recent", "order": "oldest-first"}})),
            r#"subscription 1 ("page"): fetch.order: unknown value "oldest-first"; did you mean "oldest_first"?"#,
        ),
        (
            request(&json!({"on": ["created", "update"]})),
            r#"subscription 1: on: unknown value "update"; did you mean "updated"?"#,
        ),
        (
            request(&json!({"on": ["ping"]})),
            r#"subscription 1: on: unknown value "ping"; expected one of created, updated, deleted"#,
        ),
        (
            page(&json!({"context_match": [{"path": "a", "op": "contain_any", "value": []}]})),
            r#"subscription 1 ("page"): context_match[0].op: unknown op "contain_any"; did you mean "contains_any"?"#,
        ),
        (
            request(
                &json!({"context_match": [{"path": "a", "op": "exists"}, {"path": "a", "op": "=", "value": 1}]}),
            ),
            r#"subscription 1: context_match[1].op: unknown op "="; expected one of eq, ne, gt, gte, lt, lte, in, contains, contains_any, contains_all, starts_with, ends_with, matches, exists"#,
        ),
    ]);
}

#[test]
fn a_missing_role_is_refused() {
    let error = refusal(&json!([{"schema_name": "user.message.v1", "key": "message"}]));

    assert_eq!(
        error.to_string(),
        r#"subscription 0 ("message"): role: missing value; write "trigger" or "context""#
    );
    assert_eq!(
        (error.subscription(), error.key(), error.field()),
        (Some(0), Some("message"), "role")
    );
    let null = refusal(&json!([{"schema_name": "user.message.v1", "role": null}]));
    assert!(
        matches!(null.problem(), DefinitionProblem::Missing { .. }),
        "{null}"
    );
}

#[test]
fn a_field_of_the_wrong_type_is_refused_with_the_expected_type() {
    assert_refused(&[
        (
            json!("page.v1"),
            r#"subscription 1: the value must be an object, not "page.v1""#,
        ),
        (
            request(&json!({"schema_name": 5})),
            "subscription 1: schema_name: the value must be a string, not 5",
        ),
        (
            request(&json!({"any_tags": "a"})),
            r#"subscription 1: any_tags: the value must be a list of strings, not "a""#,
        ),
        (
            request(&json!({"all_tags": ["a", 1]})),
            r#"subscription 1: all_tags: the value must be a list of strings, not ["a",1]"#,
        ),
        (
            request(&json!({"tag": ["a"]})),
            r#"subscription 1: tag: the value must be a string, not ["a"]"#,
        ),
        (
            request(&json!({"role": ["trigger"]})),
            r#"subscription 1: role: the value must be a string, not ["trigger"]"#,
        ),
        (
            request(&json!({"key": 1})),
            "subscription 1: key: the value must be a string, not 1",
        ),
    ]);
}

#[test]
fn a_fetch_option_of_the_wrong_type_is_refused_with_the_expected_type() {
    assert_refused(&[
        (
            page(&json!({"fetch": 5})),
            r#"subscription 1 ("page"): fetch: the value must be a method name or an object, not 5"#,
        ),
        (
            page(&json!({"fetch": {"method": 5}})),
            r#"subscription 1 ("page"): fetch.method: the value must be a string, not 5"#,
        ),
        (
            page(&json!({"fetch": {"order": 5}})),
            r#"subscription 1 ("page"): fetch.order: the value must be a string, not 5"#,
        ),
        (
            page(&json!({"fetch": {"min_score": "high"}})),
            r#"subscription 1 ("page"): fetch.min_score: the value must be a number, not "high""#,
        ),
        (
            page(&json!({"fetch": {"limit": -1}})),
            r#"subscription 1 ("page"): fetch.limit: the value must be a positive integer, not -1"#,
        ),
        (
            page(&json!({"fetch": {"nn": 1.5}})),
            r#"subscription 1 ("page"): fetch.nn: the value must be a positive integer, not 1.5"#,
        ),
        (
            page(&json!({"limit": "3"})),
            r#"subscription 1 ("page"): limit: the value must be a positive integer, not "3""#,
        ),
        (
            page(&json!({"required": "yes"})),
            r#"subscription 1 ("page"): required: the value must be true or false, not "yes""#,
        ),
        (
            page(&json!({"scope": "session:"})),
            r#"subscription 1 ("page"): scope: the value must be a list of strings, not "session:""#,
        ),
        (
            request(&json!({"priority": 1.5})),
            "subscription 1: priority: the value must be an integer, not 1.5",
        ),
        (
            request(&json!({"comment": 1})),
            "subscription 1: comment: the value must be a string, not 1",
        ),
        (
            request(&json!({"on": "created"})),
            r#"subscription 1: on: the value must be a list of strings, not "created""#,
        ),
    ]);
}

#[test]
fn a_condition_of_the_wrong_type_is_refused_with_the_expected_type() {
    assert_refused(&[
        (
            request(&json!({"context_match": {"path": "a"}})),
            "subscription 1: context_match: the value must be a list of conditions, not an object of 1 fields",
        ),
        (
            request(&json!({"context_match": ["a"]})),
            r#"subscription 1: context_match[0]: the value must be an object with path, op and value, not "a""#,
        ),
        (
            request(&json!({"context_match": [{"path": 1, "op": "eq", "value": 1}]})),
            "subscription 1: context_match[0].path: the value must be a string, not 1",
        ),
        (
            request(&json!({"context_match": [{"path": "a", "op": null, "value": 1}]})),
            "subscription 1: context_match[0].op: the value must be a string, not null",
        ),
    ]);
}

#[test]
fn a_condition_that_lacks_a_part_is_refused() {
    assert_refused(&[
        (
            request(&json!({"context_match": [{"op": "eq", "value": 1}]})),
            r#"subscription 1: context_match[0].path: missing value; write a JSONPath such as "$.tool""#,
        ),
        (
            request(&json!({"context_match": [{"path": "a", "value": 1}]})),
            r#"subscription 1: context_match[0].op: missing value; write an operator such as "eq""#,
        ),
        (
            request(&json!({"context_match": [{"path": "a", "op": "eq"}]})),
            r#"subscription 1: context_match[0].value: op "eq" needs a value; add "value""#,
        ),
        (
            request(&json!({"context_match": [{"path": "a", "op": "exists", "value": "yes"}]})),
            r#"subscription 1: context_match[0].value: op "exists" takes true or false, not "yes""#,
        ),
    ]);
}

#[test]
fn two_sources_cannot_have_one_name() {
    let key_taken = |name: &str, location: &str| {
        format!(
            "{location}: key: {name:?} is already the name of subscription 0; choose another key"
        )
    };
    for (first, second, expected) in [
        (
            page(&json!({})),
            page(&json!({"schema_name": "other.v1"})),
            key_taken("page", "subscription 1 (\"page\")"),
        ),
        (
            page(&json!({})),
            request(&json!({"key": "page"})),
            key_taken("page", "subscription 1 (\"page\")"),
        ),
        (
            request(&json!({"key": "page"})),
            page(&json!({})),
            key_taken("page", "subscription 1 (\"page\")"),
        ),
        (
            page(&json!({"key": null})),
            page(&json!({"key": null})),
            key_taken("page.v1", "subscription 1"),
        ),
        (
            page(&json!({"key": "other.v1"})),
            page(&json!({"key": null, "schema_name": "other.v1"})),
            key_taken("other.v1", "subscription 1"),
        ),
    ] {
        let error = refusal(&json!([first, second]));

        assert_eq!(error.to_string(), expected);
        assert!(matches!(
            error.problem(),
            DefinitionProblem::KeyTaken { other: 0, .. }
        ));
    }
}

#[test]
fn two_triggers_may_share_an_alias() {
    let one = request(&json!({"key": "asked"}));

    assert_eq!(load(&json!([one, one])).as_slice().len(), 2);
    let error = refusal(&json!([one, one, page(&json!({"key": "asked"}))]));
    assert!(
        error
            .to_string()
            .contains(r#""asked" is already the name of subscription 0"#),
        "{error}"
    );
}

#[test]
fn a_source_with_neither_key_nor_schema_is_refused() {
    let words = r#"a context subscription needs a name; add "key" or "schema_name""#;
    for fields in [json!({"schema_name": null}), json!({"schema_name": "*"})] {
        let nameless = page(&merged(json!({"key": null, "any_tags": ["a"]}), &fields));
        let error = refusal(&json!([nameless]));

        assert_eq!(error.to_string(), format!("subscription 0: key: {words}"));
    }
    assert_eq!(
        load_one(&json!({"any_tags": ["a"], "role": "context", "key": "a"})).name(),
        Some("a")
    );
}

#[test]
fn the_key_trigger_is_reserved() {
    let words = r#""trigger" is reserved for the trigger breadcrumb; choose another key"#;
    let location = "subscription 1 (\"trigger\"): key";
    assert_refused(&[
        (
            page(&json!({"key": "trigger"})),
            &format!("{location}: {words}"),
        ),
        (
            request(&json!({"key": "trigger"})),
            &format!("{location}: {words}"),
        ),
        (
            page(&json!({"key": null, "schema_name": "trigger"})),
            &format!("subscription 1: key: {words}"),
        ),
    ]);
}

#[test]
fn a_limit_of_0_or_over_the_cap_is_refused() {
    assert_refused(&[
        (
            page(&json!({"fetch": {"method": "recent", "limit": 0}})),
            r#"subscription 1 ("page"): fetch.limit: the fetch limit 0 is out of range; set a limit from 1 to 1000"#,
        ),
        (
            page(&json!({"fetch": "recent", "limit": 1_001})),
            r#"subscription 1 ("page"): fetch.limit: the fetch limit 1001 is out of range; set a limit from 1 to 1000"#,
        ),
        (
            page(&json!({"fetch": {"method": "vector", "nn": 0}})),
            r#"subscription 1 ("page"): fetch.nn: the fetch limit 0 is out of range; set a limit from 1 to 1000"#,
        ),
        (
            page(&json!({"fetch": {"method": "latest", "limit": 0}})),
            r#"subscription 1 ("page"): fetch.limit: the fetch limit 0 is out of range; set a limit from 1 to 1000"#,
        ),
        (
            page(&json!({"fetch": {"method": "recent", "limit": u64::MAX}})),
            r#"subscription 1 ("page"): fetch.limit: the fetch limit 18446744073709551615 is out of range; set a limit from 1 to 1000"#,
        ),
        (
            request(&json!({"limit": 0})),
            "subscription 1: fetch.limit: the fetch limit 0 is out of range; set a limit from 1 to 1000",
        ),
    ]);
    assert_eq!(
        load_one(&page(&json!({"fetch": "recent", "limit": 1_000})))
            .fetch
            .limit,
        1_000
    );
}

#[test]
fn event_data_is_refused_on_a_source_and_taken_on_a_trigger() {
    let words =
        r#"fetch method "event_data" is only for triggers; use "latest", "recent" or "vector""#;
    assert_refused(&[
        (
            page(&json!({"fetch": "event_data"})),
            &format!(r#"subscription 1 ("page"): fetch.method: {words}"#),
        ),
        (
            page(&json!({"fetch": {"method": "event_data"}})),
            &format!(r#"subscription 1 ("page"): fetch.method: {words}"#),
        ),
    ]);
    assert!(warnings(&json!([request(&json!({"fetch": "event_data"}))])).is_empty());
}

#[test]
fn an_empty_trigger_is_refused_and_a_star_matches_every_schema() {
    let words = r#"a trigger without a selector would match every breadcrumb; to match every breadcrumb, write "schema_name": "*""#;
    let expected = format!("subscription 1: schema_name: {words}");
    assert_refused(&[
        (json!({"role": "trigger"}), &expected),
        (
            json!({"role": "trigger", "all_tags": [], "context_match": []}),
            &expected,
        ),
        (json!({"role": "trigger", "selector": {}}), &expected),
    ]);
    for selector in [
        json!({"schema_name": "*"}),
        json!({"any_tags": ["a"]}),
        json!({"all_tags": ["a"]}),
    ] {
        load_one(&merged(json!({"role": "trigger"}), &selector));
    }
}

#[test]
fn subscriptions_built_in_code_are_checked_like_a_definition() {
    let refused =
        |subscription: Subscription| Subscriptions::new([subscription]).unwrap_err().to_string();

    for (subscription, expected) in [
        (
            Subscription::context("a.v1").key("trigger"),
            "subscription 0 (\"trigger\"): key: \"trigger\" is reserved",
        ),
        (
            Subscription::context("a.v1").recent(0),
            "subscription 0: fetch.limit: the fetch limit 0 is out of range",
        ),
        (
            Subscription::context("a.v1").vector(1_001),
            "subscription 0: fetch.nn: the fetch limit 1001 is out of range",
        ),
        (
            Subscription::context("*"),
            "subscription 0: key: a context subscription needs",
        ),
        (
            Subscription::new(Selector::default(), Role::Trigger),
            "subscription 0: schema_name: a trigger without a selector",
        ),
        (
            Subscription::trigger("a.v1").matching("a", "equal", 1),
            "subscription 0: context_match[0].op: unknown op \"equal\"",
        ),
        (
            Subscription::trigger("a.v1").matching("$[", "eq", 1),
            "subscription 0: context_match[0].path: path `$[`",
        ),
    ] {
        let error = refused(subscription);
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(
        Subscriptions::new([Subscription::trigger("a.v1").recent(2)])
            .unwrap()
            .warnings()
            .len(),
        1
    );
}

#[test]
fn a_duplicate_key_in_the_text_is_refused_at_any_depth() {
    for (text, key) in [
        (
            r#"[{"schema_name": "a.v1", "role": "trigger", "role": "context"}]"#,
            "role",
        ),
        (
            r#"[{"schema_name": "a.v1", "role": "trigger", "\u0072ole": "trigger"}]"#,
            "role",
        ),
        (
            r#"{"selectors": [], "title": "x", "selectors": []}"#,
            "selectors",
        ),
        (
            r#"[{"schema_name": "a.v1", "role": "context", "fetch": {"limit": 1, "limit": 2}}]"#,
            "limit",
        ),
        (
            r#"[{"schema_name": "a.v1", "role": "trigger", "context_match": [{"path": "a", "op": "eq", "value": {"b": 1, "b": 1}}]}]"#,
            "b",
        ),
        (
            r#"{"other": {"deep": [{"k": 1, "k": 2}]}, "context": {"subscriptions": []}}"#,
            "k",
        ),
    ] {
        let error = Subscriptions::parse(text).unwrap_err();

        assert!(
            error.to_string().starts_with(&format!(
                "the JSON of the subscriptions is not valid: duplicate key {key:?} at line 1 column "
            )),
            "{text}: {error}"
        );
    }
    let nothing_twice = r#"[{"schema_name": "a.v1", "role": "context", "key": "x"}, {"schema_name": "a.v1", "role": "trigger"}]"#;
    assert_eq!(
        Subscriptions::parse(nothing_twice)
            .unwrap()
            .as_slice()
            .len(),
        2
    );
}

#[test]
fn a_text_that_is_not_json_is_refused_with_the_place() {
    for (text, words) in [
        ("", "line 1 column 0"),
        ("[\n{]", "line 2 column 2"),
        ("[] x", "trailing characters"),
        ("[1e400]", "out of range"),
    ] {
        let error = Subscriptions::parse(text).unwrap_err();

        assert!(
            matches!(error.problem(), DefinitionProblem::NotJson { .. }),
            "{text}: {error}"
        );
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
}

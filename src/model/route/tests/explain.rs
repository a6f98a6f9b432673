use super::*;

/// Returns the reason for which a trigger on requests with an additional field does not match the request.
fn reason(field: &str, value: &Value) -> String {
    let mut subscription = json!({"schema_name": "tool.request.v1", "role": "trigger"});
    subscription[field] = value.clone();

    let explained = load(&json!([subscription])).explain(&request());

    assert_eq!(explained.route, Route::Unmatched);
    assert!(!explained.subscriptions[0].matched);
    explained.subscriptions[0].reason.clone().unwrap()
}

#[test]
fn an_explanation_names_the_failed_selector_field_and_the_value() {
    for (field, value, expected) in [
        (
            "schema_name",
            json!("user.message.v1"),
            r#"schema_name: "tool.request.v1" is not "user.message.v1""#,
        ),
        (
            "any_tags",
            json!([]),
            "any_tags: the list is empty and matches no breadcrumb",
        ),
        (
            "any_tags",
            json!(["a", "b"]),
            r#"any_tags: all of ["a", "b"] are missing"#,
        ),
        (
            "all_tags",
            json!(["tool:request", "session:2"]),
            r#"all_tags: "session:2" is missing"#,
        ),
        (
            "on",
            json!(["updated", "deleted"]),
            "on: created is not one of [updated, deleted]",
        ),
    ] {
        assert_eq!(reason(field, &value), expected);
    }
}

#[test]
fn an_explanation_names_the_failed_condition_and_the_value() {
    for (conditions, expected) in [
        (
            json!([{"path": "$.tool", "op": "eq", "value": "web-analyzer"}]),
            r#"context_match[0] $.tool: "adder" is not eq "web-analyzer""#,
        ),
        (
            json!([{"path": "tool", "op": "exists"}, {"path": "names[*]", "op": "in", "value": ["z"]}]),
            r#"context_match[1] $.names[*]: "x", "y" is not in ["z"]"#,
        ),
        (
            json!([{"path": "gone", "op": "gt", "value": 1}]),
            "context_match[0] $.gone: missing, so it is not gt 1",
        ),
        (
            json!([{"path": "gone", "op": "exists"}]),
            "context_match[0] $.gone: missing",
        ),
        (
            json!([{"path": "tool", "op": "exists", "value": false}]),
            "context_match[0] $.tool: exists",
        ),
        (
            json!([{"path": "tool", "op": "ne", "value": "adder"}]),
            r#"context_match[0] $.tool: "adder" is not ne "adder""#,
        ),
    ] {
        assert_eq!(reason("context_match", &conditions), expected);
    }
}

#[test]
fn an_explanation_names_the_tag_that_is_missing() {
    let event = Event {
        tags: vec!["tool:request".to_owned()],
        ..request()
    };
    let subscriptions = new([Subscription::trigger("*").all_tags(["tool:request", "session:1"])]);

    let explained = subscriptions.explain(&event);

    assert_eq!(
        explained.to_string(),
        r#"subscription 0, trigger: all_tags: "session:1" is missing"#
    );
}

#[test]
fn an_explanation_reports_a_missing_schema_and_a_missing_context() {
    let subscriptions = new([
        Subscription::trigger("tool.request.v1"),
        Subscription::trigger("*").matching("tool", "eq", "adder"),
    ]);
    let event = Event {
        schema_name: None,
        ..without_context()
    };

    let explained = subscriptions.explain(&event);

    let expected = "subscription 0, trigger: schema_name: missing, so it is not \"tool.request.v1\"\n\
        subscription 1, trigger: context_match: the event has no context, so the breadcrumb decides";
    assert_eq!(
        (explained.route, explained.to_string().as_str()),
        (Route::NeedsContext, expected)
    );
}

#[test]
fn an_explanation_lists_each_subscription_and_marks_the_trigger() {
    let subscriptions = new([
        Subscription::context("user.message.v1")
            .key("history")
            .recent(5),
        Subscription::trigger("tool.request.v1").key("request"),
        Subscription::context("tool.request.v1"),
        Subscription::trigger("*").priority(1),
    ]);

    let explained = subscriptions.explain(&request());

    let expected = "subscription 0, context \"history\": schema_name: \"tool.request.v1\" is not \"user.message.v1\"\n\
        subscription 1, trigger \"request\": matches schema_name \"tool.request.v1\"\n\
        subscription 2, context \"tool.request.v1\": matches schema_name \"tool.request.v1\"\n\
        subscription 3, trigger: matches anything and triggers";
    assert_eq!(explained.to_string(), expected);
}

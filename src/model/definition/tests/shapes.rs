use super::*;

#[test]
fn a_definition_comes_in_any_of_its_shapes() {
    let list = json!([request(&json!({"key": "asked"})), page(&json!({}))]);
    let expected = load(&list);

    for shape in [
        json!({"selectors": list}),
        json!({"subscriptions": list}),
        json!({"subscriptions": {"selectors": list}}),
        json!({"context": {"subscriptions": list}}),
        json!({"context": {"subscriptions": {"selectors": list}}}),
        json!({"schema_name": "agent.def.v1", "title": "x", "tags": [], "context": {"agent_id": "x", "subscriptions": list}}),
    ] {
        assert_eq!(load(&shape).as_slice(), expected.as_slice(), "{shape}");
        assert_eq!(
            Subscriptions::parse(&shape.to_string()).unwrap().as_slice(),
            expected.as_slice(),
            "{shape}"
        );
        assert_eq!(
            serde_json::from_value::<Subscriptions>(shape)
                .unwrap()
                .as_slice(),
            expected.as_slice()
        );
    }
}

#[test]
fn an_empty_list_is_a_definition() {
    for shape in [
        json!([]),
        json!({"selectors": []}),
        json!({"context": {"subscriptions": {"selectors": []}}}),
    ] {
        assert!(load(&shape).as_slice().is_empty());
    }
}

#[test]
fn a_definition_without_a_list_is_refused_with_the_expected_form() {
    for (definition, field, expected) in [
        (json!({}), "subscriptions", "write a list"),
        (
            json!({"context": {"agent_id": "x"}}),
            "context.subscriptions",
            "write a list",
        ),
        (
            json!({"subscriptions": {}}),
            "subscriptions.subscriptions",
            "write a list",
        ),
        (
            json!({"subscriptions": null}),
            "subscriptions",
            "write a list",
        ),
        (json!("selectors"), "", r#"not "selectors""#),
        (json!(null), "", "not null"),
        (json!({"selectors": 5}), "selectors", "not 5"),
        (
            json!({"context": {"subscriptions": true}}),
            "context.subscriptions",
            "not true",
        ),
    ] {
        let error = refusal(&definition);

        assert!(
            error.to_string().contains(expected),
            "{definition}: {error}"
        );
        assert_eq!(
            (error.field(), error.subscription()),
            (field, None),
            "{definition}"
        );
    }
}

#[test]
fn all_fields_of_a_subscription_are_read() {
    let read = load_one(&json!({
        "schema_name": "note.v1",
        "any_tags": ["a", "b"],
        "all_tags": ["c"],
        "context_match": [{"path": "$.n", "op": "gt", "value": 1}, {"path": "m", "op": "exists"}],
        "role": "context",
        "key": "notes",
        "fetch": {"method": "vector", "nn": 7, "order": "oldest_first", "min_score": 0.25},
        "required": true,
        "scope": ["session:"],
        "priority": -3,
        "comment": "for people",
        "on": ["updated", "deleted"],
    }));

    let selector = Selector::schema("note.v1")
        .any_tags(["a", "b"])
        .all_tags(["c"])
        .matching("$.n", "gt", 1);
    let exists = crate::model::Condition::new("m", "exists", None);
    let expected = Subscription::new(selector.condition(exists), Role::Context)
        .key("notes")
        .vector(7)
        .oldest_first()
        .min_score(0.25)
        .required()
        .scope(["session:"])
        .priority(-3)
        .on([EventKind::Updated, EventKind::Deleted]);
    assert_eq!(
        read,
        Subscription {
            comment: Some("for people".to_owned()),
            ..expected
        }
    );
}

#[test]
fn omitted_fields_have_their_defaults() {
    let read = load_one(&json!({"schema_name": "a.v1", "role": "context"}));

    assert_eq!(read, Subscription::context("a.v1"));
    assert_eq!(
        (read.required, read.priority, read.name()),
        (false, 0, Some("a.v1"))
    );
    assert_eq!(read.on, [EventKind::Created, EventKind::Updated]);
    assert_eq!(read.fetch.order, Order::NewestFirst);
}

#[test]
fn the_default_fetch_is_event_data_for_a_trigger_and_latest_for_a_context() {
    assert_eq!(
        load_one(&request(&json!({}))).fetch,
        Fetch::new(Method::EventData)
    );
    assert_eq!(
        load_one(&page(&json!({}))).fetch,
        Fetch::new(Method::Latest)
    );
    assert_eq!(
        load_one(&page(&json!({"fetch": {}}))).fetch,
        Fetch::new(Method::Latest)
    );
}

#[test]
fn each_method_has_its_default_limit() {
    for (method, limit) in [("latest", 1), ("recent", 10), ("vector", 5)] {
        for fetch in [
            json!(method),
            json!({"method": method}),
            json!({"method": method, "limit": null, "nn": null}),
        ] {
            let read = load_one(&page(&json!({"fetch": fetch})));

            assert_eq!(
                (read.fetch.method.as_str(), read.fetch.limit),
                (method, limit),
                "{fetch}"
            );
        }
    }
}

#[test]
fn a_fetch_is_an_object_or_a_bare_name_and_a_limit_beside_it_counts() {
    for (fields, method, limit) in [
        (
            json!({"fetch": {"method": "recent", "limit": 3}}),
            Method::Recent,
            3,
        ),
        (json!({"fetch": "recent", "limit": 3}), Method::Recent, 3),
        (
            json!({"fetch": {"method": "recent"}, "limit": 3}),
            Method::Recent,
            3,
        ),
        (
            json!({"fetch": {"method": "recent", "limit": 4}, "limit": 3}),
            Method::Recent,
            4,
        ),
        (
            json!({"fetch": {"method": "vector", "nn": 3}}),
            Method::Vector,
            3,
        ),
        (
            json!({"fetch": {"method": "vector", "limit": 3}}),
            Method::Vector,
            3,
        ),
        (json!({"fetch": "vector", "limit": 3}), Method::Vector, 3),
        (json!({"fetch": "vector", "nn": 3}), Method::Vector, 3),
        (
            json!({"fetch": {"method": "vector", "nn": 3, "limit": 9}}),
            Method::Vector,
            3,
        ),
        (json!({"fetch": {"limit": 1}}), Method::Latest, 1),
    ] {
        let read = load_one(&page(&fields));

        assert_eq!(
            (read.fetch.method, read.fetch.limit),
            (method, limit),
            "{fields}"
        );
        assert!(warnings(&json!([page(&fields)])).is_empty(), "{fields}");
    }
}

#[test]
fn a_nested_selector_is_unwrapped() {
    let flat = json!({
        "schema_name": "page.v1", "any_tags": ["a"], "all_tags": ["b"],
        "context_match": [{"path": "x", "op": "eq", "value": 1}], "role": "context", "key": "page",
    });
    let nested = json!({
        "selector": {
            "schema_name": "page.v1", "any_tags": ["a"], "all_tags": ["b"],
            "context_match": [{"path": "x", "op": "eq", "value": 1}],
        },
        "role": "context", "key": "page",
    });

    assert_eq!(load_one(&nested), load_one(&flat));
    assert!(warnings(&json!([nested])).is_empty());
}

#[test]
fn fields_of_a_nested_selector_are_merged_into_the_subscription() {
    let within = json!({"selector": {"selector": {"schema_name": "page.v1", "role": "context", "key": "page"}}});
    let beside = json!({"selector": {"schema_name": "page.v1", "tag": null}, "tag": "a", "role": "context", "key": "page"});

    assert_eq!(load_one(&within), load_one(&page(&json!({}))));
    assert_eq!(load_one(&beside), load_one(&page(&json!({"tag": "a"}))));
    assert!(warnings(&json!([within])).is_empty());
}

#[test]
fn a_single_tag_is_one_of_any_tags() {
    for (fields, tags) in [
        (json!({"tag": "a"}), vec!["a"]),
        (json!({"tag": "a", "any_tags": ["b"]}), vec!["b", "a"]),
        (json!({"selector": {"tag": "a"}}), vec!["a"]),
    ] {
        assert_eq!(
            load_one(&page(&fields)).selector.any_of_tags().unwrap(),
            tags,
            "{fields}"
        );
    }
}

#[test]
fn a_field_that_is_null_counts_as_absent() {
    let nulls = json!({
        "any_tags": null, "all_tags": null, "tag": null, "context_match": null, "fetch": null, "limit": null, "nn": null,
        "required": null, "scope": null, "priority": null, "comment": null, "on": null, "selector": null, "colour": null,
    });

    assert_eq!(load_one(&page(&nulls)), load_one(&page(&json!({}))));
    assert_eq!(
        load(&json!({"selectors": null, "context": null, "subscriptions": [page(&nulls)]}))
            .as_slice()
            .len(),
        1
    );
    let null_key = json!({"schema_name": "a.v1", "role": "context", "key": null});
    assert_eq!(load_one(&null_key).name(), Some("a.v1"));
    let null_parts =
        json!({"fetch": {"method": null, "limit": null, "order": null, "min_score": null}});
    assert_eq!(load_one(&page(&null_parts)), load_one(&page(&json!({}))));
}

#[test]
fn a_null_in_a_condition_is_a_value_to_compare_with() {
    let read = load_one(&request(
        &json!({"context_match": [{"path": "error", "op": "eq", "value": null}]}),
    ));

    assert!(read.selector.conditions()[0].holds(&json!({"error": null})));
    assert!(!read.selector.conditions()[0].holds(&json!({"error": 1})));
}

#[test]
fn a_whole_agent_definition_loads() {
    let agent = Subscriptions::parse(AGENT).unwrap();

    let expected = [
        Subscription::trigger("agent.context.v1")
            .all_tags(["consumer:greeter"])
            .key("assembled"),
        Subscription::context("browser.page.context.v1").key("browser"),
    ];
    assert_eq!(agent.as_slice(), expected);
    assert!(agent.warnings().is_empty(), "{:?}", agent.warnings());
}

#[test]
fn a_whole_tool_definition_loads_and_latest_on_a_trigger_is_a_warning() {
    let tool = Subscriptions::parse(TOOL).unwrap();

    let names: Vec<Option<&str>> = tool.as_slice().iter().map(Subscription::name).collect();
    assert_eq!(
        names,
        [Some("request"), Some("request"), Some("current_page")]
    );
    let [warning] = tool.warnings() else {
        panic!("{:?}", tool.warnings())
    };
    assert!(
        warning
            .to_string()
            .starts_with(r#"subscription 1 ("request"): fetch method "latest" has no effect"#),
        "{warning}"
    );
}

#[test]
fn a_loaded_tool_definition_routes_an_event_of_the_wire() {
    let tool = Subscriptions::parse(TOOL).unwrap();
    let frame = r#"{"type": "breadcrumb.updated", "breadcrumb_id": "01890a5d-ac96-774b-bcce-b302099a8057", "version": 1,
        "schema_name": "tool.request.v1", "tags": ["tool:request"], "updated_at": "2026-11-21T20:33:40Z",
        "context": {"tool": "web-analyzer", "input": {}}}"#;

    let event: Event = serde_json::from_str(frame).unwrap();
    let other: Event = serde_json::from_str(&frame.replace("web-analyzer", "adder")).unwrap();

    assert_eq!(tool.route(&event), Route::Trigger { subscription: 0 });
    assert_eq!(tool.route(&other), Route::Unmatched);
}

#[test]
fn the_same_selector_may_stand_twice_with_different_roles() {
    let definition = json!([
        {"schema_name": "user.message.v1", "any_tags": ["user:message"], "role": "context", "key": "history", "fetch": "recent", "limit": 20},
        {"schema_name": "user.message.v1", "any_tags": ["user:message"], "role": "trigger"},
    ]);

    let loaded = load(&definition);

    assert_eq!(loaded.as_slice()[0].selector, loaded.as_slice()[1].selector);
    assert!(loaded.warnings().is_empty());
}

#[test]
fn serialisation_omits_default_values() {
    let loaded = load(&json!([
        {"selector": {"schema_name": "a.v1", "tag": "x"}, "role": "context", "key": "a", "fetch": "recent", "limit": 3,
         "required": false, "scope": [], "priority": 0, "on": ["created", "updated"]},
        {"schema_name": "*", "role": "trigger", "fetch": "event_data"},
    ]));

    assert_eq!(
        serde_json::to_value(loaded).unwrap(),
        json!([
            {"schema_name": "a.v1", "any_tags": ["x"], "role": "context", "key": "a", "fetch": {"method": "recent", "limit": 3}},
            {"schema_name": "*", "role": "trigger"},
        ])
    );
}

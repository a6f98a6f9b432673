mod properties;

use super::*;
use serde_json::json;

/// Returns the error of a schema, or an empty string if the schema is valid.
fn refused(schema: impl Into<Value>) -> String {
    Checker::compile(&schema.into())
        .map(drop)
        .err()
        .unwrap_or_default()
}

#[test]
fn a_schema_that_leads_out_of_itself_is_refused() {
    for reference in [
        "https://example.com/schema.json",
        "http://127.0.0.1:1/x",
        "file:///etc/passwd",
        "other.json#/a",
        "urn:a:b",
        "",
    ] {
        for schema in [
            json!({"$ref": reference}),
            json!({"properties": {"a": {"items": [{"$ref": reference}]}}}),
            json!({"if": {}, "then": {"not": {"$ref": reference}}}),
            json!({"$ref": "#/x/y", "x": {"y": {"$ref": reference}}}),
        ] {
            let message = refused(schema);
            assert!(
                message.contains("points outside of the schema"),
                "{message}"
            );
        }
    }
    assert!(refused(json!({"$ref": "#/nowhere"})).contains("points to a missing part"));
    assert!(refused(json!({"$ref": 7})).contains("must be a string"));
}

#[test]
fn a_property_may_have_the_name_of_a_keyword() {
    let schema = json!({"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}});

    let checker = Checker::compile(&schema).unwrap();

    assert!(
        checker
            .check(&json!({"$ref": "https://example.com", "$id": "x"}))
            .is_ok()
    );
    assert!(checker.check(&json!({"$ref": 1})).is_err());
}

#[test]
fn a_schema_beyond_the_bounds_is_refused() {
    let deep = (0..40).fold(json!({}), |inner, _| json!({"not": inner}));
    assert!(refused(deep).contains("nests deeper"));
    assert!(refused(json!({"description": "x".repeat(70_000)})).contains("bytes"));
    let patterns: Vec<Value> = (0..40).map(|_| json!({"pattern": "a"})).collect();
    assert!(refused(json!({"allOf": patterns})).contains("patterns"));
    assert!(!refused(json!({"pattern": "(((a{1000}){1000}){1000})"})).is_empty());
    for word in ["$dynamicRef", "$recursiveRef", "unevaluatedProperties"] {
        let schema = json!({"properties": {"a": {word: false}}});
        assert!(refused(schema).contains("not supported"), "{word}");
    }
    assert!(refused(json!({"items": {"$id": "http://a/b"}})).contains("at the top"));
    assert!(refused(json!([])).contains("object"));
}

#[test]
fn a_reference_that_two_would_read_in_two_ways_is_refused() {
    let schema =
        json!({"$ref": "#/$defs/a%25b", "$defs": {"a%25b": {}, "a%b": {"type": "string"}}});

    assert!(refused(schema).contains("contains a %"));
}

#[test]
fn checking_property_names_counts_against_the_work_limit() {
    let of_its_own = json!({"propertyNames": {"allOf": [{"pattern": "a"}]}});
    let names = json!({"propertyNames": {"pattern": "^a"}});
    let many = vec![json!({"$ref": "#/$defs/names"}); 500];
    let checker = Checker::compile(&json!({"$defs": {"names": names}, "allOf": many})).unwrap();

    let small = checker.check(&json!({"a": 1}));
    let large = checker.check(&json!({"a".repeat(100_000): 1}));

    assert!(refused(of_its_own).contains("propertyNames"));
    assert_eq!(small, Ok(()));
    assert!(large.unwrap_err().contains("too large"));
}

#[test]
fn a_pattern_that_takes_for_ever_elsewhere_takes_no_time() {
    let checker = Checker::compile(&json!({"pattern": "^(a+)+$"})).unwrap();
    let text = format!("{}!", "a".repeat(50_000));

    assert!(checker.check(&json!(text)).is_err());
}

#[test]
fn a_schema_that_only_refers_to_itself_checks_nothing_and_ends() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}),
        json!({"not": {"$ref": "#"}}),
    ] {
        // Either the schema is refused when it is compiled, or each check of a value is refused.
        if let Ok(checker) = Checker::compile(&schema) {
            assert!(checker.check(&json!(1)).is_err(), "{schema}");
        }
    }
}

#[test]
fn a_schema_whose_work_doubles_with_each_level_is_given_up() {
    let doubling: serde_json::Map<String, Value> = (0..60)
        .map(|level| {
            let next = format!("#/$defs/d{}", level + 1);
            let part = json!({"allOf": [{"$ref": next}, {"$ref": next}]});
            (format!("d{level}"), part)
        })
        .chain([("d60".to_owned(), json!({"type": "integer"}))])
        .collect();
    let wide = json!({"$defs": doubling, "$ref": "#/$defs/d0"});
    let deep = json!({"anyOf": [
        {"properties": {"a": {"$ref": "#"}}, "required": ["b"]},
        {"properties": {"a": {"$ref": "#"}}, "required": ["c"]},
    ]});
    let value = (0..60).fold(json!({}), |inner, _| json!({"a": inner}));

    for schema in [wide, deep] {
        let Ok(checker) = Checker::compile(&schema) else {
            continue;
        };
        let message = checker.check(&value).unwrap_err();
        assert!(message.contains("too large"), "{message}");
    }
}

#[test]
fn a_type_that_contains_itself_is_checked_through_and_through() {
    let tree = json!({
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "left": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
            "right": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        },
        "required": ["value"],
    });
    let checker = Checker::compile(&tree).unwrap();
    let grown = |leaf: Value| {
        (0..30).fold(
            leaf,
            |left, value| json!({"value": value, "left": left, "right": null}),
        )
    };

    assert_eq!(checker.check(&grown(json!({"value": 1}))), Ok(()));
    assert!(checker.check(&grown(json!({"value": "x"}))).is_err());
}

#[test]
fn a_large_value_is_checked_in_measured_time() {
    let points =
        json!({"items": {"properties": {"x": {"type": "number"}, "y": {"type": "number"}}}});
    let checker = Checker::compile(&points).unwrap();
    let many: Vec<Value> = (0..10_000).map(|at| json!({"x": at, "y": at})).collect();
    let too_many: Vec<Value> = (0..100_000).map(|at| json!({"x": at})).collect();

    assert_eq!(checker.check(&many.into()), Ok(()));
    assert!(
        checker
            .check(&too_many.into())
            .unwrap_err()
            .contains("too large")
    );
}

#[test]
fn every_draft_that_tools_are_described_in_is_known() {
    for draft in [
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        let schema = json!({"$schema": draft, "type": "object", "required": ["a"]});
        let checker = Checker::compile(&schema).unwrap();
        assert_eq!(
            checker.check(&json!({})).unwrap_err(),
            "\"a\" is a required property"
        );
    }
}

/// Returns the measured limit and the message of a value that does not match, or `None` if it matches or cannot be checked.
fn refusal_of(schema: &Value, value: &Value) -> Option<(work::Reportable, String)> {
    let message = Checker::compile(schema).ok()?.check(value).err()?;
    Some((work::measure(schema, value).ok()?, message))
}

#[test]
fn a_value_with_few_violations_has_its_first_five_violations_named() {
    let schema = json!({"items": {"required": ["a", "b", "c"]}});

    let (reportable, message) = refusal_of(&schema, &json!([{}, {}, {}])).unwrap();

    assert_eq!(reportable, work::Reportable::All);
    assert!(
        message.contains("at /0: \"a\" is a required property"),
        "{message}"
    );
    assert!(message.ends_with("; and 4 more"), "{message}");
}

#[test]
fn a_value_with_too_many_violations_has_only_its_first_violation_computed() {
    let names: Vec<String> = (0..12).map(|at| format!("field{at}")).collect();
    let many_fields = json!({"items": {"required": names}});
    let long_name = json!({"items": {"required": ["x".repeat(2_000)]}});
    let long_enum = json!({"items": {"enum": ["x".repeat(2_000)]}});
    let long_path = json!({"additionalProperties": {"items": {"type": "string"}}});
    let unwanted = json!({"items": {"additionalProperties": false}});
    let long_not = json!({"items": {"not": {"description": "x".repeat(2_000)}}});
    let long_pattern = json!({"propertyNames": {"pattern": format!("^[{}]$", "z".repeat(2_000))}});
    let no_name = json!({"propertyNames": false});
    let many_names: serde_json::Map<String, Value> =
        (0..20_000).map(|at| (at.to_string(), json!(1))).collect();

    for (schema, value) in [
        (&many_fields, json!(vec![json!({}); 20_000])),
        (&long_name, json!(vec![json!({}); 20_000])),
        (&long_enum, json!(vec![1; 20_000])),
        (&long_path, json!({"y".repeat(50_000): vec![1; 10_000]})),
        (
            &unwanted,
            json!(vec![json!({"z".repeat(1_000): 1}); 20_000]),
        ),
        (&long_not, json!(vec![0; 20_000])),
        (&long_pattern, json!(many_names)),
        (&no_name, json!(many_names)),
    ] {
        let (reportable, message) = refusal_of(schema, &value).unwrap();

        assert_eq!(reportable, work::Reportable::First, "{schema}");
        assert!(
            message.contains("further violations are not listed"),
            "{message}"
        );
        assert!(!message.contains("more"), "{message}");
    }
}

#[test]
fn a_value_whose_alternatives_copy_it_too_often_has_no_violation_computed() {
    let choice = json!({"anyOf": [
        {"items": {"type": "string"}},
        {"items": {"required": ["a", "b", "c", "d"]}},
    ]});

    let (reportable, message) = refusal_of(&choice, &json!(vec![json!({}); 15_000])).unwrap();

    assert_eq!(reportable, work::Reportable::Nothing);
    assert!(
        message.contains("too large to name the violations"),
        "{message}"
    );
}

#[test]
fn names_values_and_unique_items_count_as_work() {
    let names: Vec<String> = (0..2_000).map(|at| format!("f{at}")).collect();
    let object: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!(1))).collect();
    let properties: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| (name.clone(), json!(true)))
        .collect();
    let items = json!((0..2_000).collect::<Vec<_>>());

    for (part, value) in [
        (json!({"required": names}), json!(object)),
        (json!({"dependentRequired": {"f0": names}}), json!(object)),
        (json!({"properties": properties}), json!(object)),
        (json!({"enum": names}), json!("f1999")),
        (json!({"propertyNames": {"enum": names}}), json!(object)),
        (json!({"uniqueItems": true}), items),
    ] {
        let schema =
            json!({"$defs": {"part": part}, "allOf": vec![json!({"$ref": "#/$defs/part"}); 500]});

        let error = work::measure(&schema, &value).unwrap_err();

        assert!(error.contains("too large"), "{error}");
    }
}

#[test]
fn a_schema_that_is_false_counts_as_work() {
    let schema = json!({"allOf": vec![json!({"items": false}); 100]});

    let error = work::measure(&schema, &json!(vec![1; 1_000])).unwrap_err();

    assert!(error.contains("too large"), "{error}");
}

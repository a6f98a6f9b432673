use super::refusal;
use crate::hints::{Hints, HintsProblem};
use serde_json::{Value, json};

#[track_caller]
fn says(hints: Value, expected: &str) {
    assert_eq!(
        refusal(&hints),
        format!("cannot read llm_hints: {expected}")
    );
}

#[test]
fn a_misspelt_field_is_refused_and_does_not_leak() {
    says(
        json!({"exlude": ["secret"]}),
        "exlude: unknown field; did you mean \"exclude\"?",
    );
    says(
        json!({"blah": 1}),
        "blah: unknown field; expected one of include, exclude, mode, transform",
    );
    says(
        json!({"transform": {"x": {"type": "format", "format": "", "template": "x"}}}),
        "transform.x.template: unknown field; expected one of type, format",
    );
}

#[test]
fn an_unknown_mode_or_type_is_refused_with_the_nearest() {
    says(
        json!({"mode": "merg"}),
        "mode: unknown value \"merg\"; did you mean \"merge\"?",
    );
    says(
        json!({"transform": {"x": {"type": "exract"}}}),
        "transform.x.type: unknown value \"exract\"; did you mean \"extract\"?",
    );
    says(
        json!({"transform": {"x": {"type": "sql"}}}),
        "transform.x.type: unknown value \"sql\"; expected one of template, extract, format, literal",
    );
}

#[test]
fn anything_but_an_object_is_refused() {
    says(
        json!([]),
        "llm_hints: the value must be an object, not a list",
    );
    says(
        json!("x"),
        "llm_hints: the value must be an object, not a string",
    );
    says(
        json!({"include": "a"}),
        "include: the value must be a list of paths, not a string",
    );
    says(
        json!({"exclude": [1]}),
        "exclude[0]: the value must be a path, not a number",
    );
    says(
        json!({"mode": 1}),
        "mode: the value must be \"replace\" or \"merge\", not a number",
    );
    says(
        json!({"transform": []}),
        "transform: the value must be an object of rules, not a list",
    );
    says(
        json!({"transform": {"x": 1}}),
        "transform.x: the value must be a rule with a type, not a number",
    );
}

#[test]
fn a_rule_without_its_field_is_refused() {
    says(
        json!({"transform": {"x": {"type": "literal"}}}),
        "transform.x.literal: missing value; write any JSON, including null",
    );
    says(
        json!({"transform": {"x": {"type": "extract", "value": null}}}),
        "transform.x.value: missing value; write a JSONPath such as \"$.items[*].name\"",
    );
    says(
        json!({"transform": {"x": {}}}),
        "transform.x.type: missing value; write \"template\", \"extract\", \"format\" or \"literal\"",
    );
}

#[test]
fn an_empty_include_is_refused_since_it_would_leave_nothing() {
    says(
        json!({"include": []}),
        "include: an empty list would remove the whole context; add paths, or remove the field",
    );
}

#[test]
fn paths_that_are_more_than_steps_are_refused_in_filters() {
    for path in [
        "a[?@.b]",
        "a[0:1]",
        "a[0,1]",
        "['a','b']",
        "a..*",
        "a..[0]",
        "$.a()",
        "a b c",
        "a[",
        "a.",
    ] {
        let text = refusal(&json!({"exclude": [path]}));
        assert!(
            text.starts_with(&format!(
                "cannot read llm_hints: exclude[0]: invalid path {path:?}: "
            )),
            "{text}"
        );
    }
    says(
        json!({"exclude": ["$"]}),
        "exclude[0]: invalid path \"$\": the path selects the whole context; name a member",
    );
    says(
        json!({"include": [" "]}),
        "include[0]: invalid path \" \": the path is empty",
    );
}

#[test]
fn a_jsonpath_or_format_that_does_not_compile_is_refused() {
    let extract = |path: &str| json!({"transform": {"x": {"type": "extract", "value": path}}});
    let format = |text: &str| json!({"transform": {"x": {"type": "format", "format": text}}});

    assert!(
        refusal(&extract("$.a["))
            .starts_with("cannot read llm_hints: transform.x.value: path `$.a[`")
    );
    assert!(
        refusal(&format("{a[}"))
            .starts_with("cannot read llm_hints: transform.x.format: path `$.a[`")
    );
    says(
        format("{a"),
        "transform.x.format: invalid format: a \"{\" is not closed; write {path} for a value, and {{ or }} for a brace",
    );
    says(
        format("a}"),
        "transform.x.format: invalid format: a \"}\" has no matching \"{\"; write {path} for a value, and {{ or }} for a brace",
    );
    says(
        format("{}"),
        "transform.x.format: invalid format: a \"{}\" has no path; write {path} for a value, and {{ or }} for a brace",
    );
}

#[cfg(not(feature = "templates"))]
#[test]
fn a_template_without_its_feature_is_refused_by_the_name_of_the_feature() {
    says(
        json!({"transform": {"x": {"type": "template", "template": "x"}}}),
        "transform.x.template: templates need the feature \"templates\" of universal-executor; build with it, or use \"format\"",
    );
}

#[test]
fn a_refusal_has_a_bounded_length() {
    let long = "x".repeat(10_000);
    for hints in [
        json!({long.clone(): 1}),
        json!({"mode": long}),
        json!({"exclude": [format!("{long}[")]}),
        json!({"transform": {long.clone(): {"type": long}}}),
        json!({"transform": {"x": {"type": "template", "template": format!("{{{{#{long}}}}}{{{{/{long}}}}}")}}}),
    ] {
        let text = refusal(&hints);
        assert!(text.len() < 600, "{} bytes: {text}", text.len());
    }
}

#[test]
fn an_error_has_a_field_and_a_typed_problem() {
    let error = Hints::from_json(&json!({"include": []})).unwrap_err();

    assert_eq!(
        (error.field.as_str(), error.problem),
        ("include", HintsProblem::EmptyInclude)
    );
}

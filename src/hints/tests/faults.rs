//! Regression tests for faults of another engine for the same hints.

use super::{apply, refusal, try_apply};
use crate::hints::HintsReason;
use serde_json::json;

#[test]
fn a_rule_that_fails_never_gives_the_unfiltered_context() {
    let hints = json!({"exclude": ["secret"], "mode": "merge",
        "transform": {"note": {"type": "literal", "literal": 1}}});

    let failure = try_apply(&hints, &json!(["hunter2"])).unwrap_err();

    assert_eq!(failure.rule, "mode");
    assert_eq!(failure.reason, HintsReason::NotAnObject);
    assert!(!format!("{failure} {failure:?}").contains("hunter2"));
}

#[cfg(feature = "templates")]
#[test]
fn the_length_of_a_list_can_be_shown() {
    let hints =
        json!({"transform": {"n": {"type": "template", "template": "{{context.items.length}}"}}});

    let shaped = apply(&hints, &json!({"items": [1, 2, 3]}));

    assert_eq!(shaped, json!({"n": "3"}));
}

#[cfg(feature = "templates")]
#[test]
fn a_template_escapes_nothing() {
    let hints = json!({"transform": {"t": {"type": "template", "template": "{{context.a}}{{{context.a}}}{{&context.a}}"}}});

    let shaped = apply(&hints, &json!({"a": "<b> & \"c\""}));

    assert_eq!(shaped["t"], "<b> & \"c\"<b> & \"c\"<b> & \"c\"");
}

#[test]
fn a_path_with_several_possible_matches_always_yields_a_list() {
    let hints = json!({"transform": {"names": {"type": "extract", "value": "$.items[*].name"}}});
    let names = |context| apply(&hints, &context)["names"].clone();

    assert_eq!(
        names(json!({"items": [{"name": "a"}, {"name": "b"}]})),
        json!(["a", "b"])
    );
    assert_eq!(names(json!({"items": [{"name": "a"}]})), json!(["a"]));
    assert_eq!(names(json!({})), json!([]));
}

#[test]
fn excluding_a_member_leaves_the_others() {
    let context = json!({"meta": {"secret": 1, "open": 2}, "a": 3});

    let shaped = apply(&json!({"exclude": ["meta.secret"]}), &context);

    assert_eq!(shaped, json!({"meta": {"open": 2}, "a": 3}));
}

#[test]
fn including_a_member_retains_only_that_member_and_its_parents() {
    let context = json!({"meta": {"secret": 1, "open": 2}, "a": 3});

    let shaped = apply(&json!({"include": ["meta.secret"]}), &context);

    assert_eq!(shaped, json!({"meta": {"secret": 1}}));
}

#[test]
fn a_jq_rule_is_refused_with_the_supported_alternatives() {
    let hints = json!({"transform": {"x": {"type": "jq", "query": ".a"}}});

    assert_eq!(
        refusal(&hints),
        "cannot read llm_hints: transform.x.type: jq is not supported; use \"extract\" with a JSONPath, or \"template\""
    );
}

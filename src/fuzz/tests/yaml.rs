//! Workflow definitions in YAML.

use super::flows::refused;
use crate::fuzz::workflows::WORKFLOW;
use crate::fuzz::{Tape, structured};
use crate::workflow::Workflow;
use serde_json::Value;

fn yaml(tape: &mut Tape) -> String {
    let json = WORKFLOW.text(tape);
    match tape.below(3) {
        0 => json,
        _ => with_yaml_syntax(tape, &json),
    }
}

/// Rewrites JSON, which is also valid YAML, with syntax that only YAML has.
fn with_yaml_syntax(tape: &mut Tape, json: &str) -> String {
    const PIECES: [&str; 22] = [
        "&a ",
        "*a",
        "!!str ",
        "!!binary ",
        "!!int ",
        "<<: *a\n",
        "# comment\n",
        "\n---\n",
        "\n...\n",
        "\t",
        "\n  - ",
        "? ",
        "|\n  ",
        ">-\n  ",
        "%YAML 1.2\n",
        "yes",
        "0x1F",
        ".inf",
        "&a [*a, *a]",
        "0o17",
        "1_000",
        "2026-11-21",
    ];
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if tape.once_in(40) {
            text.push_str(tape.word(&PIECES));
        }
        text.push(c);
        if matches!(c, ',' | ':') {
            text.push(' ');
        }
    }
    text
}

fn load_yaml(text: &str) -> bool {
    let read = Workflow::from_yaml(text);
    if let Err(error) = &read {
        refused(error);
    }
    // Valid JSON must have the same meaning in both formats.
    if let (Ok(yaml), Ok(json)) = (&read, Workflow::parse(text))
        && !serde_json::from_str(text).is_ok_and(|value| has_negative_zero(&value))
    {
        assert_eq!(yaml.hash(), json.hash());
    }
    read.is_ok()
}

/// Returns `true` if a value contains the number `-0`, which is a float in JSON and the integer 0 in YAML.
fn has_negative_zero(value: &Value) -> bool {
    match value {
        Value::Number(number) => number
            .as_f64()
            .is_some_and(|number| number == 0.0 && number.is_sign_negative()),
        Value::Array(items) => items.iter().any(has_negative_zero),
        Value::Object(fields) => fields.values().any(has_negative_zero),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

#[test]
fn only_the_number_minus_zero_differs_between_json_and_yaml() {
    let differs = |text: &str| has_negative_zero(&serde_json::from_str(text).unwrap());

    assert!(differs(r#"{"a": [{"b": -0}]}"#) && differs("-0.0"));
    assert!(!differs(r#"{"a": [0, -0.5, "-0", {"-0": 1e-0}]}"#));
}

#[test]
fn any_workflow_in_yaml_loads_or_is_refused_and_means_the_same_as_in_json() {
    structured(yaml, |text| load_yaml(text));
}

#[cfg(all(feature = "schema", feature = "yaml"))]
mod examples;
#[cfg(all(feature = "schema", any(feature = "validate", feature = "yaml")))]
mod language;
mod limits;
mod properties;
mod refusals;
#[cfg(all(feature = "schema", feature = "validate"))]
mod schema;
mod steps;
mod unknown;
mod warnings;

use super::*;
use crate::workflow::Oddity;
use serde_json::{Map, json};

/// Returns a definition with every section, without warnings.
fn sound() -> Value {
    json!({
        "name": "desk",
        "models": {"small": {"provider": "local", "model": "tiny", "temperature": 0.2, "max_tokens": 500}},
        "prompts": {"critic": "Find what is wrong."},
        "schemas": {"review": {"type": "object"}},
        "tools": {"search": {}, "publish": {"tool": "web.publish", "approval": true}},
        "agents": {
            "writer": {"instruction": "Write.", "model": "small", "tools": ["search"], "use": ["critic"]},
            "critic": {"instruction": {"prompt": "critic"}, "output": "review", "history": 3},
        },
        "flows": {
            "main": {"input": "review", "steps": [
                {"id": "draft", "agent": "writer", "input": "${input.topic}"},
                {"flow": "review", "input": {"text": "${draft}"}},
                {"tool": "publish", "input": {"text": "${last}"}},
            ]},
            "review": {"steps": [{"agent": "critic"}]},
        },
        "policies": {
            "retry": {"attempts": 3, "base_seconds": 0.5},
            "timeout_seconds": 60,
            "compaction": {"method": "summarise", "at_tokens": 8000, "model": "small"},
            "guardrails": {"input": ["no-secrets"]},
            "limits": {"steps": 500},
        },
    })
}

/// Returns the sound definition with another value at a path such as `flows/main/steps/0`. Null represents an absent field.
fn with(pointer: &str, value: Value) -> Value {
    let mut definition = sound();
    let (parent, name) = pointer.rsplit_once('/').unwrap_or(("", pointer));
    let parent = format!("/{parent}");
    let parent = definition
        .pointer_mut(parent.trim_end_matches('/'))
        .unwrap();
    match parent {
        Value::Object(fields) => drop(fields.insert(name.to_owned(), value)),
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
        other => panic!("{other} has no {name}"),
    }
    definition
}

/// Returns a definition with these steps in its only flow.
fn with_steps(steps: &Value) -> Value {
    let mut definition = sound();
    definition["flows"] = json!({"main": {"steps": steps}});
    definition
}

fn refusal(definition: &Value) -> String {
    Workflow::from_json(definition).unwrap_err().to_string()
}

#[test]
fn a_definition_is_read_with_all_its_fields() {
    let workflow = Workflow::from_json(&sound()).unwrap();

    assert_eq!(workflow.warnings(), []);
    assert_eq!(workflow.agents["critic"].history, History::Last(3));
    assert_eq!(workflow.agents["writer"].uses, ["critic"]);
    assert_eq!(
        workflow.tools["publish"].tool.as_deref(),
        Some("web.publish")
    );
    assert_eq!(workflow.policies.retry.attempts, 3);
    assert_eq!(workflow.policies.limits.steps, 500);
    let flows: Vec<_> = workflow
        .flows()
        .map(|flow| (flow.name, flow.input))
        .collect();
    assert_eq!(flows, [("main", Some("review")), ("review", None)]);
}

#[test]
fn the_same_definition_has_the_same_hash_however_it_is_written() {
    let one = Workflow::parse(r#"{"name": "a", "prompts": {}}"#).unwrap();
    let other = Workflow::parse(r#"{ "prompts": {}, "name": "a" }"#).unwrap();
    let changed = Workflow::parse(r#"{"name": "b", "prompts": {}}"#).unwrap();

    assert_eq!(one.hash(), other.hash());
    assert_ne!(one.hash(), changed.hash());
}

#[test]
fn a_loader_can_add_file_line_and_column() {
    let error = Workflow::from_json(&with("agents/writer/model", json!("smal"))).unwrap_err();
    let position = crate::workflow::Position {
        file: Some("desk.yaml".to_owned()),
        line: 12,
        column: 5,
    };

    let error = error.at(position);

    assert_eq!(
        error.to_string(),
        "desk.yaml:12:5: agents.writer.model: unknown model \"smal\"; did you mean \"small\"?"
    );
}

#[test]
fn invalid_json_is_an_error_with_line_and_column_and_a_duplicate_key_is_refused() {
    let broken = Workflow::parse("{\n\"name\": }").unwrap_err().to_string();
    let twice = Workflow::parse(r#"{"name": "a", "name": "b"}"#)
        .unwrap_err()
        .to_string();

    assert!(
        broken.starts_with("line 2 column 9: the definition: expected value"),
        "{broken}"
    );
    assert!(!broken.contains("at line"), "{broken}");
    assert!(twice.contains("name"), "{twice}");
}

#[test]
fn an_error_in_a_text_states_the_line_and_column() {
    let text = "{\n  \"agents\": {\n    \"writer\": {\"instruction\": 7}\n  }\n}";

    let error = Workflow::parse(text).unwrap_err().to_string();

    assert_eq!(
        error,
        "line 3 column 31: agents.writer.instruction: the value must be a string, or {\"prompt\": name}, not 7"
    );
}

#[test]
fn a_warning_about_a_text_states_the_line_and_column() {
    let workflow = Workflow::parse("{\"models\":\n  {\"small\": {}}}").unwrap();

    assert_eq!(
        workflow.warnings()[0].to_string(),
        "line 2 column 13: models.small: the model \"small\" is not used"
    );
}

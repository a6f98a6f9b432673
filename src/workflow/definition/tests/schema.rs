//! Checks that the JSON Schema and the loader agree on the form of definitions.

use super::language::{Object, ObjectForm, SCHEMA, objects};
use super::properties::{any_json, pointers};
use super::*;
use crate::guide::tests::fields;
use proptest::prelude::*;
use serde_json::Map;
use std::collections::BTreeSet;
use std::sync::LazyLock;

static VALIDATOR: LazyLock<jsonschema::Validator> =
    LazyLock::new(|| jsonschema::validator_for(&SCHEMA).unwrap());

/// Returns `true` if an error is about the form of an object, which the JSON Schema describes, and not about its content.
fn is_of_form(error: &WorkflowLoadError) -> bool {
    match error.problem() {
        LoadProblem::Shape { .. }
        | LoadProblem::Missing { .. }
        | LoadProblem::UnknownField { .. } => true,
        LoadProblem::Fields { reason } => !reason.starts_with("cannot compile the JSON Schema"),
        LoadProblem::Name { reason, .. } => !reason.starts_with("another step"),
        LoadProblem::TooMany { what, .. } => ["names", "items"].contains(what),
        LoadProblem::Syntax { .. }
        | LoadProblem::TooDeep
        | LoadProblem::UnknownName { .. }
        | LoadProblem::Expression { .. }
        | LoadProblem::Condition(_)
        | LoadProblem::Cycle { .. } => false,
    }
}

/// Returns a description of the results if the loader and the schema disagree about a definition, otherwise `None`.
fn disagreement(definition: &Value) -> Option<String> {
    let is_valid = VALIDATOR.is_valid(definition);
    let said = match Workflow::from_json(definition) {
        Ok(_) if is_valid => return None,
        Ok(_) => "it loads".to_owned(),
        Err(error) if is_valid && is_of_form(&error) => error.to_string(),
        Err(_) => return None,
    };
    let problems: Vec<String> = VALIDATOR
        .iter_errors(definition)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    Some(format!(
        "{definition}\nloader: {said}\nschema: {problems:?}"
    ))
}

/// Returns a definition that contains a value as the given kind of object.
fn host(object: &Object, value: Value) -> Value {
    let step = |step: Value| with_steps(&json!([step]));
    match object.name {
        "Workflow" => value,
        "ModelSpec" => with("models/small", value),
        "WorkflowToolSpec" => with("tools/search", value),
        "AgentSpec" => with("agents/critic", value),
        "AgentPermissions" => with("agents/writer/permissions", value),
        "Policies" => with("policies", value),
        "Retry" => with("policies/retry", value),
        "Compaction" => with("policies/compaction", value),
        "GuardrailNames" => with("policies/guardrails", value),
        "LimitFields" => with("policies/limits", value),
        "Sequence" | "Graph" => with("flows/review", value),
        "Branch" => step(json!({"parallel": [value]})),
        "Case" => step(json!({"match": 1, "cases": [value]})),
        "Condition" => step(json!({"if": value, "then": [{"return": 1}]})),
        "Escalation" => step(json!({"tool": "search", "escalate": [value]})),
        "Event" => step(json!({"wait_for": value})),
        "EventCondition" => {
            step(json!({"wait_for": {"schema_name": "a.v1", "context_match": [value]}}))
        }
        "Emit" => step(json!({"emit": value})),
        "GraphStep" => with("flows/main", json!({"dag": true, "steps": [value]})),
        name if name.ends_with("Step") => with("flows/main/steps/0", value),
        other => panic!("add a definition with the object {other:?} to `host`"),
    }
}

/// Returns a valid value of a required field.
fn sample(object: &Object, field: &str) -> Value {
    match (object.name, field) {
        ("EventCondition", "path") => json!("$.a"),
        ("Graph", "steps") => json!([{"id": "a", "tool": "search", "depends_on": []}]),
        (_, "agent" | "prompt") => json!("critic"),
        (_, "tool") => json!("search"),
        (_, "model") => json!("small"),
        (_, "flow") => json!("review"),
        (_, "cases") => json!([{"is": 1, "then": [{"return": 1}]}]),
        (_, "loop" | "on_failure" | "parallel" | "steps" | "then" | "try") => {
            json!([{"return": 1}])
        }
        (_, "wait_for" | "emit") => json!({"schema_name": "a.v1"}),
        (_, "schema_name") => json!("a.v1"),
        (_, "op") => json!("eq"),
        (_, "id") => json!("one"),
        (_, "if" | "not" | "when") => json!({"path": "input", "op": "exists"}),
        (_, "all" | "any") => json!([]),
        (_, "set") => json!({"a": 1}),
        (_, "at_tokens" | "attempts" | "max") => json!(1),
        (_, "method") => json!("truncate"),
        (_, "continue" | "for_each" | "is" | "match" | "return") => json!([1]),
        (_, "abort" | "ask" | "fail" | "instruction" | "path") => json!("input"),
        (name, field) => panic!("add a value of {name}.{field} to `sample`"),
    }
}

/// Returns an object with only the required fields.
fn least(object: &Object, object_form: &ObjectForm) -> Value {
    let fields = object_form.required.iter();
    let fields = fields.map(|field| ((*field).to_owned(), sample(object, field)));
    Value::Object(fields.collect())
}

/// Values of every type, and the limits of ranges.
const VALUES: &str = r#"[
    0, 1, 2, 100, 101, 256, 257, 1023, 1024, 10000, 10001, 1000000, 1000001, 1048576, 1048577, 31622400, 31622401,
    18446744073709551615, -1, 0.5, 1e300, null, true, false, "", "9", "a b", "input", "item", "all", "first", "none",
    "truncate", "summarise", "eq", "${input}", [], ["a"], ["critic"], [1], [3, 2, 30], [[]], [{}], {}, {"a": 1}, {"a": "x"}, {"a b": "x"},
    {"item": 1}, {"a": true}, {"prompt": "critic"}, {"attempts": 2}, {"writes": ["a.v1"]}, {"any": null},
    {"path": "input", "op": "exists"}, {"not": {"all": []}}, {"method": "truncate", "at_tokens": 1},
    [{"tool": "search"}], [{"tool": "search", "agent": "critic"}], [{"is": 1, "then": []}],
    [{"id": "a", "tool": "search"}], [{"id": "a", "tool": "search", "depends_on": []}], [{"steps": [{"return": 1}]}]
]"#;

fn values() -> Vec<Value> {
    let mut values: Vec<Value> = serde_json::from_str(VALUES).unwrap();
    values.extend([64, 65].map(|length| json!("a".repeat(length))));
    values
}

#[test]
fn the_schema_file_matches_the_schema_in_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/workflow.schema.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();

    let how =
        "cargo run --features workflows --example workflow_schema > docs/workflow.schema.json";
    assert!(
        file == *SCHEMA,
        "docs/workflow.schema.json is outdated; write it again: {how}"
    );
}

#[test]
fn the_schema_knows_each_field_of_each_object_that_the_loader_knows() {
    let objects = objects();
    assert!(objects.len() > 30, "{} objects", objects.len());
    for object in &objects {
        for object_form in &object.forms {
            let loads = host(object, least(object, object_form));
            let refused = Workflow::from_json(&loads).err();
            assert!(refused.is_none_or(|error| !is_of_form(&error)), "{loads}");
            assert_eq!(disagreement(&loads), None);
            for field in object_form.fields.keys() {
                let mut without = least(object, object_form);
                without.as_object_mut().unwrap().remove(field);
                assert_eq!(disagreement(&host(object, without)), None);
                for value in values() {
                    let mut changed = least(object, object_form);
                    changed[field] = value;
                    assert_eq!(disagreement(&host(object, changed)), None);
                }
            }
        }
    }
}

#[test]
fn neither_takes_a_field_that_an_object_does_not_have() {
    let objects = objects();
    let forms = objects.iter().flat_map(|object| &object.forms);
    let names: BTreeSet<&str> = forms
        .flat_map(|object_form| object_form.fields.keys().map(String::as_str))
        .collect();
    for object in &objects {
        for object_form in &object.forms {
            for name in names.iter().copied().chain(["stpes"]) {
                let mut more = least(object, object_form);
                let is_new = more
                    .as_object_mut()
                    .unwrap()
                    .insert(name.to_owned(), json!(1));
                let definition = host(object, more);
                assert_eq!(disagreement(&definition), None);
                if is_new.is_none() && name == "stpes" {
                    let error = Workflow::from_json(&definition).unwrap_err();
                    assert!(
                        matches!(error.problem(), LoadProblem::UnknownField { .. }),
                        "{error}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_definition_of_a_wrong_form_violates_the_schema() {
    for definition in [
        with("agents/writer/tols", json!([])),
        with("agents/writer/tools", json!("search")),
        with(
            "flows/main/steps/0",
            json!({"agent": "writer", "tool": "search"}),
        ),
        with("flows/main/steps", json!([])),
        with("policies/retry/attempts", json!(0)),
        with("policies/compaction/method", json!("truncate")),
    ] {
        assert!(!VALIDATOR.is_valid(&definition), "{definition}");
    }
    assert!(VALIDATOR.is_valid(&sound()));
}

proptest! {
    #[test]
    fn loader_and_schema_agree_on_the_form_of_any_steps(steps in proptest::collection::vec(any_json(), 1..4)) {
        prop_assert_eq!(disagreement(&with_steps(&Value::Array(steps))), None);
    }

    #[test]
    fn loader_and_schema_agree_on_the_form_of_a_definition_that_was_changed(
        at in any::<prop::sample::Index>(), value in any_json(),
    ) {
        let mut definition = sound();
        let pointers = pointers(&definition);
        *definition.pointer_mut(&pointers[at.index(pointers.len())]).unwrap() = value;

        prop_assert_eq!(disagreement(&definition), None);
    }
}

/// Adds the names of the fields of an object in the schema, also of its alternatives.
fn add_fields(schema: &Value, fields: &mut BTreeSet<String>) {
    let properties = schema["properties"].as_object();
    fields.extend(properties.into_iter().flat_map(Map::keys).cloned());
    for alternative in schema["anyOf"].as_array().into_iter().flatten() {
        add_fields(alternative, fields);
    }
}

#[test]
fn the_reference_lists_every_field_of_a_workflow() {
    const PAGE: &str = include_str!("../../../../docs/reference/workflows.md");
    // References to the other definitions, and strings.
    const NO_OBJECTS: [&str; 4] = ["CompactionMethod", "Flow", "Join", "Step"];
    let schema: &Value = &SCHEMA;
    let root = [("Workflow", schema)];
    let definitions = schema["$defs"].as_object().unwrap().iter();
    let definitions = definitions.map(|(name, definition)| (&**name, definition));
    let mut tables = 0;

    for (name, definition) in root.into_iter().chain(definitions) {
        let mut expected = BTreeSet::new();
        add_fields(definition, &mut expected);
        if NO_OBJECTS.contains(&name) {
            assert!(expected.is_empty(), "{name} has the fields {expected:?}");
            continue;
        }
        let is_of = |line: &&str| line.starts_with('#') && line.ends_with(&format!("`{name}`"));
        let heading = PAGE
            .lines()
            .find(is_of)
            .unwrap_or_else(|| panic!("no table of {name}"));
        let listed = fields(PAGE, heading.trim_start_matches('#').trim());
        assert_eq!(
            listed,
            expected.iter().map(|field| &**field).collect(),
            "{name}"
        );
        tables += 1;
    }
    assert!(tables > 30, "{tables}");
}

//! The JSON Schema says what the loader says, as far as it is about the form of a definition.

use super::properties::{any_json, pointers};
use super::*;
use crate::workflow::shape::{Field, Form, Need, Object, WORKFLOW, Way};
use proptest::prelude::*;
use std::sync::LazyLock;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| Workflow::json_schema().to_value());
static VALIDATOR: LazyLock<jsonschema::Validator> =
    LazyLock::new(|| jsonschema::validator_for(&SCHEMA).unwrap());

/// Whether an error is about what an object looks like, and not about what it says.
fn is_of_form(error: &WorkflowLoadError) -> bool {
    match error.problem() {
        LoadProblem::Shape { .. }
        | LoadProblem::Missing { .. }
        | LoadProblem::UnknownField { .. } => true,
        LoadProblem::Fields { reason } => !reason.starts_with("it is no JSON Schema"),
        LoadProblem::Name { reason, .. } => !reason.starts_with("another step"),
        LoadProblem::TooMany { what, .. } => ["names", "items"].contains(what),
        LoadProblem::Syntax { .. }
        | LoadProblem::TooDeep
        | LoadProblem::UnknownName { .. }
        | LoadProblem::NoChoice { .. }
        | LoadProblem::Expression { .. }
        | LoadProblem::Condition(_)
        | LoadProblem::Cycle { .. } => false,
    }
}

/// What is odd about what the loader and the schema say of a definition.
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

/// All objects that a definition can have in it.
fn objects() -> Vec<&'static Object> {
    let mut found: Vec<&Object> = vec![&WORKFLOW];
    let mut at = 0;
    while let Some(object) = found.get(at).copied() {
        let fields = object.ways.iter().flat_map(Way::all);
        let mut forms: Vec<&Form> = fields.map(|field| field.form).collect();
        while let Some(form) = forms.pop() {
            match form {
                Form::Object(object) if found.iter().all(|known| known.name != object.name) => {
                    found.push(object);
                }
                Form::List(of, ..) | Form::Dependent(of) | Form::Named(of) => forms.push(of),
                Form::Either(either) => forms.extend(*either),
                _ => {}
            }
        }
        at += 1;
    }
    found
}

/// A definition in which an object stands where it can.
fn host(object: &Object, value: Value) -> Value {
    let step = |step: Value| with_steps(&json!([step]));
    match object.name {
        "workflow" => value,
        "model" => with("models/small", value),
        "tool" => with("tools/search", value),
        "agent" => with("agents/critic", value),
        "prompt" => with("agents/critic/instruction", value),
        "permissions" => with("agents/writer/permissions", value),
        "policies" => with("policies", value),
        "retry" => with("policies/retry", value),
        "compaction" => with("policies/compaction", value),
        "guardrails" => with("policies/guardrails", value),
        "limits" => with("policies/limits", value),
        "flow" => with("flows/review", value),
        "step" => with("flows/main/steps/0", value),
        "node" => with("flows/main", json!({"dag": true, "steps": [value]})),
        "branch" => step(json!({"parallel": [value]})),
        "case" => step(json!({"match": 1, "cases": [value]})),
        "condition" => step(json!({"if": value, "then": [{"return": 1}]})),
        "escalation" => step(json!({"tool": "search", "escalate": [value]})),
        "wait_for" => step(json!({"wait_for": value})),
        "context_match" => {
            step(json!({"wait_for": {"schema_name": "a.v1", "context_match": [value]}}))
        }
        "emit" => step(json!({"emit": value})),
        other => panic!("no definition with the object {other:?} is known here"),
    }
}

/// A value that a field can have.
fn sample(object: &Object, field: &Field) -> Value {
    match (object.name, field.name) {
        ("context_match", "path") => return json!("$.a"),
        ("step" | "node", "agent") => return json!("critic"),
        ("step" | "node", "tool") => return json!("search"),
        ("step" | "node", "model") => return json!("small"),
        ("step" | "node", "flow") => return json!("review"),
        (_, "prompt") => return json!("critic"),
        (_, "cases") => return json!([{"is": 1, "then": [{"return": 1}]}]),
        (_, "parallel") => return json!([{"return": 1}]),
        (_, "wait_for" | "emit") => return json!({"schema_name": "a.v1"}),
        (_, "op") => return json!("eq"),
        (_, "id") => return json!("one"),
        _ => {}
    }
    match field.form {
        Form::Text => json!("input"),
        Form::Any => json!([1]),
        Form::Only(flag) => json!(flag),
        Form::Whole(least, _) => json!(least),
        Form::Word(words) => json!(words[0]),
        Form::SchemaName => json!("a.v1"),
        Form::List(Form::Object(of), ..) if of.name == "step" => json!([{"return": 1}]),
        Form::List(Form::Object(of), ..) if of.name == "node" => {
            json!([{"id": "a", "tool": "search"}])
        }
        Form::List(..) => json!([]),
        Form::Dependent(_) => json!([{"id": "a", "tool": "search", "depends_on": []}]),
        Form::Variables => json!({"a": 1}),
        Form::Either(_) => json!("Write."),
        Form::Object(_) => json!({"path": "input", "op": "exists"}),
        other => panic!(
            "no value is known of what {:?} is: {}",
            field.name,
            form_name(other)
        ),
    }
}

fn form_name(form: &Form) -> String {
    format!("{:?}", std::mem::discriminant(form))
}

/// An object with all that it needs and nothing else.
fn least(object: &Object, way: &Way) -> Value {
    let needed = way.all().filter(|field| field.need == Need::Required);
    let fields = needed.map(|field| (field.name.to_owned(), sample(object, field)));
    Value::Object(fields.collect())
}

/// Values of every type, and those at which ranges begin and end.
const VALUES: &str = r#"[
    0, 1, 2, 100, 101, 256, 257, 1023, 1024, 10000, 10001, 1000000, 1000001, 1048576, 1048577, 31622400, 31622401,
    18446744073709551615, -1, 0.5, 1e300, null, true, false, "", "9", "a b", "input", "item", "all", "first", "none",
    "truncate", "summarise", "eq", "${input}", [], ["a"], [1], [[]], [{}], {}, {"a": 1}, {"a": "x"}, {"a b": "x"},
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
fn the_file_is_what_the_code_publishes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/workflow.schema.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();

    let how =
        "cargo run --features workflows --example workflow_schema > docs/workflow.schema.json";
    assert!(file == *SCHEMA, "write it again: {how}");
}

#[test]
fn the_schema_knows_each_field_of_each_object_that_the_loader_knows() {
    for object in objects() {
        for way in object.ways {
            let loads = host(object, least(object, way));
            let refused = Workflow::from_json(&loads).err();
            assert!(refused.is_none_or(|error| !is_of_form(&error)), "{loads}");
            assert_eq!(disagreement(&loads), None);
            for field in way.all() {
                let mut without = least(object, way);
                without.as_object_mut().unwrap().remove(field.name);
                assert_eq!(disagreement(&host(object, without)), None);
                for value in values() {
                    let mut changed = least(object, way);
                    changed[field.name] = value;
                    assert_eq!(disagreement(&host(object, changed)), None);
                }
            }
        }
    }
}

#[test]
fn neither_takes_a_field_that_an_object_does_not_have() {
    let names: Vec<&str> = objects().iter().flat_map(|object| object.names()).collect();
    for object in objects() {
        for way in object.ways {
            for name in names.iter().copied().chain(["stpes"]) {
                let mut more = least(object, way);
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
fn what_is_refused_for_its_form_is_invalid() {
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

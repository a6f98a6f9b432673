//! Checks that the files of `examples/workloads/` together use the whole language.

use super::super::yaml;
use super::language::{SCHEMA, alternatives, definitions, object_form, objects};
use super::*;
use crate::model::is_comment;

/// The constructs that a definition uses: `Object.field`, and `name: word` for the words of a choice.
type Shown = BTreeSet<String>;

fn examples() -> Vec<(String, Value)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/workloads");
    let files = std::fs::read_dir(folder).unwrap();
    let read = files.map(|file| {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        (name, yaml::read(&text).unwrap().value())
    });
    read.collect()
}

/// Returns the name under which an object is listed. All kinds of flows have one name, and so have all kinds of steps.
fn group(name: &str) -> &str {
    match name {
        "Sequence" | "Graph" => "Flow",
        name if name.ends_with("Step") && name != "GraphStep" => "Step",
        name => name,
    }
}

/// Returns the strings that a choice allows.
fn words(schema: &'static Value) -> Vec<&'static str> {
    let constant = schema.get("type").and(schema.get("const"));
    let listed = schema.get("enum").and_then(Value::as_array);
    let words = constant.into_iter().chain(listed.into_iter().flatten());
    words.filter_map(Value::as_str).collect()
}

fn is_number(schema: &Value) -> bool {
    let kind = schema.get("type").cloned().unwrap_or_default();
    kind == "integer" || kind == json!(["integer", "null"])
}

fn show(name: &str, schema: &'static Value, value: &Value, shown: &mut Shown) {
    for schema in alternatives(schema) {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let name = reference.trim_start_matches("#/$defs/");
            let (_, schema) = definitions().find(|(known, _)| *known == name).unwrap();
            show(group(name), schema, value, shown);
        }
        for word in words(schema).into_iter().filter(|word| value == word) {
            shown.insert(format!("{name}: {word}"));
        }
        if is_number(schema) && value.is_number() {
            shown.insert(format!("{name}: a number"));
        }
        match value {
            Value::Array(items) => {
                let of = schema.get("items").into_iter();
                of.for_each(|of| items.iter().for_each(|item| show(name, of, item, shown)));
            }
            Value::Object(fields) => show_object(name, schema, fields, shown),
            _ => {}
        }
    }
}

fn show_object(name: &str, schema: &'static Value, fields: &Map<String, Value>, shown: &mut Shown) {
    let Some(object_form) = object_form(schema) else {
        if let Some(of @ Value::Object(_)) = schema.get("additionalProperties") {
            fields
                .values()
                .for_each(|value| show(name, of, value, shown));
        }
        return;
    };
    let is_known = |field: &String| object_form.fields.contains_key(field) || is_comment(field);
    if !fields.keys().all(is_known) {
        return;
    }
    for (field, value) in fields {
        if let Some(schema) = object_form.fields.get(field) {
            let name = format!("{name}.{field}");
            show(&name, schema, value, shown);
            shown.insert(name);
        }
    }
}

/// Returns all constructs of the language.
fn language() -> Shown {
    let mut all = Shown::new();
    for (name, schema) in definitions() {
        all.extend(choices(name, schema));
    }
    for object in objects() {
        for (field, schema) in object
            .forms
            .iter()
            .flat_map(|object_form| object_form.fields)
        {
            let name = format!("{}.{field}", group(object.name));
            let inner = alternatives(schema).into_iter().filter_map(object_form);
            for inner in inner.flat_map(|object_form| object_form.fields.keys()) {
                all.insert(format!("{name}.{inner}"));
            }
            // The operators are the same as in subscriptions.
            if field != "op" {
                all.extend(choices(&name, schema));
            }
            all.insert(name);
        }
    }
    all
}

/// Returns the strings and the number that a value can be, as constructs.
fn choices(name: &str, schema: &'static Value) -> Vec<String> {
    let all = alternatives(schema).into_iter();
    let words = all.clone().flat_map(words);
    let words = words.map(|word| format!("{name}: {word}"));
    let number = all.filter(|schema| is_number(schema));
    let number = number.map(|_| format!("{name}: a number"));
    words.chain(number).collect()
}

/// The constructs that each example file must use, named as in [`language`].
const CONSTRUCTS: [(&str, &[&str]); 28] = [
    ("agent", &["Workflow.agents", "AgentSpec.instruction"]),
    ("ask", &["Step.ask", "Step.of"]),
    (
        "compaction",
        &["Policies.compaction", "CompactionMethod: summarise"],
    ),
    ("delegate", &["AgentSpec.delegate", "AgentSpec.use"]),
    ("emit", &["Step.emit"]),
    (
        "escalate",
        &[
            "Step.escalate",
            "Escalation.return",
            "Escalation.continue",
            "Escalation.abort",
            "Escalation.steps",
        ],
    ),
    ("fail", &["Step.fail", "Step.code"]),
    ("first", &["Join: first"]),
    ("for_each", &["Step.for_each", "Join: fail_fast"]),
    ("graph", &["Flow.dag", "GraphStep.depends_on"]),
    ("guardrails", &["Policies.guardrails"]),
    ("history", &["AgentSpec.history"]),
    ("if", &["Step.if", "Step.else"]),
    ("loop", &["Step.loop", "Step.max", "Step.until"]),
    ("match", &["Step.match", "Case.is", "Case.op"]),
    (
        "model",
        &["Step.model", "Workflow.models", "Workflow.prompts"],
    ),
    ("parallel", &["Step.parallel", "Join: all", "Branch.input"]),
    ("permissions", &["AgentSpec.permissions"]),
    (
        "policies",
        &[
            "Policies.retry",
            "Policies.timeout_seconds",
            "Policies.limits",
        ],
    ),
    ("return", &["Step.return"]),
    ("retry", &["Step.retry", "Step.timeout_seconds"]),
    (
        "schema",
        &["Workflow.schemas", "AgentSpec.output", "Flow.input"],
    ),
    ("set", &["Step.set"]),
    ("subflow", &["Step.flow"]),
    ("tool", &["Step.tool", "WorkflowToolSpec.tool"]),
    ("truncate", &["CompactionMethod: truncate"]),
    ("try", &["Step.try", "Step.on_failure"]),
    ("wait_for", &["Step.wait_for", "Event.context_match"]),
];

#[test]
fn each_construct_has_a_file_that_shows_it() {
    let examples = examples();
    for (file, constructs) in CONSTRUCTS {
        let found = examples.iter().find(|(name, _)| name == file);
        let (_, definition) = found.unwrap_or_else(|| panic!("missing file {file}.yaml"));
        let mut shown = Shown::new();
        show("Workflow", &SCHEMA, definition, &mut shown);
        for construct in constructs {
            assert!(
                shown.contains(*construct),
                "{file}.yaml does not show {construct}"
            );
        }
    }
    assert_eq!(
        examples.len(),
        CONSTRUCTS.len(),
        "a file in examples/workloads is not in CONSTRUCTS"
    );
}

#[test]
fn each_field_and_each_choice_of_the_language_is_in_some_file() {
    let mut shown = Shown::new();
    for (_, definition) in examples() {
        show("Workflow", &SCHEMA, &definition, &mut shown);
    }

    let missing: Vec<_> = language().difference(&shown).cloned().collect();

    assert_eq!(missing, [""; 0]);
}

#[cfg(feature = "validate")]
#[test]
fn each_file_is_valid_and_loads() {
    let validator = jsonschema::validator_for(&SCHEMA).unwrap();
    for (name, definition) in examples() {
        let problems: Vec<_> = validator
            .iter_errors(&definition)
            .map(|error| error.to_string())
            .collect();
        assert_eq!(problems, [""; 0], "{name}");
        assert_eq!(Workflow::from_json(&definition).map(drop), Ok(()), "{name}");
    }
}

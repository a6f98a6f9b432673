//! The files of `examples/workloads/` show the whole language.

use super::super::yaml;
use super::*;
use crate::workflow::shape::{Form, Object, WORKFLOW, Way};
use std::collections::BTreeSet;

/// What a definition shows of the language: `object.field`, and `object.field: word` where there are words to choose from.
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

/// The ways in which an object could be written so.
fn ways(object: &Object, fields: &Map<String, Value>) -> impl Iterator<Item = &'static Way> {
    let names: Vec<String> = fields.keys().cloned().collect();
    let fits = move |way: &&Way| {
        let known = |name: &String| way.all().any(|field| field.name == name);
        names.iter().all(known)
    };
    object.ways.iter().filter(fits)
}

fn show(object: &Object, value: &Value, shown: &mut Shown) {
    let Value::Object(fields) = value else { return };
    for field in ways(object, fields).flat_map(Way::all) {
        if let Some(value) = fields.get(field.name) {
            let name = format!("{}.{}", object.name, field.name);
            show_form(&name, field.form, value, shown);
            shown.insert(name);
        }
    }
}

fn show_form(name: &str, form: &Form, value: &Value, shown: &mut Shown) {
    match (form, value) {
        (Form::Object(object), value) => show(object, value, shown),
        (Form::List(of, ..) | Form::Dependent(of), Value::Array(items)) => {
            items
                .iter()
                .for_each(|item| show_form(name, of, item, shown));
        }
        (Form::Named(of), Value::Object(named)) => {
            named
                .values()
                .for_each(|one| show_form(name, of, one, shown));
        }
        (Form::Either(forms), value) => {
            forms
                .iter()
                .for_each(|form| show_form(name, form, value, shown));
        }
        (Form::Word(words), Value::String(word)) if words.contains(&&**word) => {
            shown.insert(format!("{name}: {word}"));
        }
        (Form::Whole(..), Value::Number(_)) => {
            shown.insert(format!("{name}: a number"));
        }
        _ => {}
    }
}

/// All that there is to show.
fn language() -> Shown {
    let (mut all, mut seen) = (Shown::new(), BTreeSet::new());
    let mut open: Vec<&Object> = vec![&WORKFLOW];
    while let Some(object) = open.pop() {
        if !seen.insert(object.name) {
            continue;
        }
        for field in object.ways.iter().flat_map(Way::all) {
            let name = format!("{}.{}", object.name, field.name);
            let mut forms: Vec<&Form> = vec![field.form];
            while let Some(form) = forms.pop() {
                match form {
                    Form::Object(object) => open.push(object),
                    Form::List(of, ..) | Form::Dependent(of) | Form::Named(of) => forms.push(of),
                    Form::Either(either) => forms.extend(*either),
                    Form::Word(words) => {
                        all.extend(words.iter().map(|word| format!("{name}: {word}")));
                    }
                    Form::Whole(..) => {
                        all.insert(format!("{name}: a number"));
                    }
                    _ => {}
                }
            }
            all.insert(name);
        }
    }
    all
}

/// What an example is for, by its file, in the words of [`language`].
const CONSTRUCTS: [(&str, &[&str]); 28] = [
    ("agent", &["workflow.agents", "agent.instruction"]),
    ("ask", &["step.ask", "step.of"]),
    (
        "compaction",
        &["policies.compaction", "compaction.method: summarise"],
    ),
    ("delegate", &["agent.delegate", "agent.use"]),
    ("emit", &["step.emit"]),
    (
        "escalate",
        &[
            "step.escalate",
            "escalation.return",
            "escalation.continue",
            "escalation.abort",
            "escalation.steps",
        ],
    ),
    ("fail", &["step.fail", "step.code"]),
    ("first", &["step.join: first"]),
    ("for_each", &["step.for_each", "step.join: fail_fast"]),
    ("graph", &["flow.dag", "node.depends_on"]),
    ("guardrails", &["policies.guardrails"]),
    ("history", &["agent.history"]),
    ("if", &["step.if", "step.else"]),
    ("loop", &["step.loop", "step.max", "step.until"]),
    ("match", &["step.match", "case.is", "case.op"]),
    (
        "model",
        &["step.model", "workflow.models", "workflow.prompts"],
    ),
    (
        "parallel",
        &["step.parallel", "step.join: all", "branch.input"],
    ),
    ("permissions", &["agent.permissions"]),
    (
        "policies",
        &[
            "policies.retry",
            "policies.timeout_seconds",
            "policies.limits",
        ],
    ),
    ("return", &["step.return"]),
    ("retry", &["step.retry", "step.timeout_seconds"]),
    (
        "schema",
        &["workflow.schemas", "agent.output", "flow.input"],
    ),
    ("set", &["step.set"]),
    ("subflow", &["step.flow"]),
    ("tool", &["step.tool", "tool.tool"]),
    ("truncate", &["compaction.method: truncate"]),
    ("try", &["step.try", "step.on_failure"]),
    ("wait_for", &["step.wait_for", "wait_for.context_match"]),
];

#[test]
fn each_construct_has_a_file_that_shows_it() {
    let examples = examples();
    for (file, constructs) in CONSTRUCTS {
        let found = examples.iter().find(|(name, _)| name == file);
        let (_, definition) = found.unwrap_or_else(|| panic!("there is no {file}.yaml"));
        let mut shown = Shown::new();
        show(&WORKFLOW, definition, &mut shown);
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
        "a file is for no construct"
    );
}

#[test]
fn each_field_and_each_choice_of_the_language_is_in_some_file() {
    let mut shown = Shown::new();
    for (_, definition) in examples() {
        show(&WORKFLOW, &definition, &mut shown);
    }

    let missing: Vec<_> = language().difference(&shown).cloned().collect();

    assert_eq!(missing, [""; 0]);
}

#[cfg(all(feature = "schema", feature = "validate"))]
#[test]
fn each_file_is_valid_and_loads() {
    let schema = Workflow::json_schema().to_value();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for (name, definition) in examples() {
        let problems: Vec<_> = validator
            .iter_errors(&definition)
            .map(|error| error.to_string())
            .collect();
        assert_eq!(problems, [""; 0], "{name}");
        assert_eq!(Workflow::from_json(&definition).map(drop), Ok(()), "{name}");
    }
}

//! Unknown fields of workflows: an error in strict mode, a warning otherwise, and never a problem if they are comments.

use super::*;
use crate::model::DefinitionOptions;

fn lenient(definition: &Value) -> Result<Workflow, WorkflowLoadError> {
    Workflow::from_json_with(definition, &DefinitionOptions::default())
}

fn definition() -> Value {
    json!({
        "name": "desk",
        "agents": {"critic": {"instruction": "Judge."}},
        "flows": {"main": {"steps": [{"agent": "critic", "input": {"any": {"thing": 1}}}]}},
    })
}

fn with(pointer: &str, field: &str) -> Value {
    let mut definition = definition();
    let object = definition.pointer_mut(pointer).unwrap();
    object[field] = json!({"a": 1});
    definition
}

const OBJECTS: [&str; 4] = ["", "/agents/critic", "/flows/main", "/flows/main/steps/0"];

#[test]
fn every_object_of_a_workflow_can_have_comments() {
    for pointer in OBJECTS {
        for field in ["comment", "retry_comment", "metadata", "$schema", "x-team"] {
            let commented = with(pointer, field);

            assert!(Workflow::from_json(&commented).is_ok(), "{commented}");
            assert_eq!(lenient(&commented).unwrap().warnings(), [], "{commented}");
        }
    }
}

#[test]
fn a_comment_can_have_nearly_the_name_of_a_field() {
    let commented = with("/flows/main/steps/0", "x-depends_on");

    assert!(Workflow::from_json(&commented).is_ok());
}

#[test]
fn unknown_fields_after_the_maximum_number_are_counted_and_get_no_suggestion() {
    let mut definition = definition();
    for at in 0..100 {
        definition[format!("a{at}")] = json!(1);
    }
    definition["nam"] = json!("desk");

    let error = lenient(&definition).unwrap_err();

    let expected = LoadProblem::TooMany {
        what: "unknown fields",
        found: 101,
        most: 100,
    };
    assert_eq!(*error.problem(), expected);
}

#[test]
fn an_unknown_field_of_a_workflow_is_a_warning_without_strict_mode() {
    let hash = Workflow::from_json(&definition())
        .unwrap()
        .hash()
        .to_owned();
    for (pointer, place) in OBJECTS.into_iter().zip([
        "banana",
        "agents.critic.banana",
        "flows.main.banana",
        "flows.main.steps[0].banana",
    ]) {
        let odd = with(pointer, "banana");

        let strict = Workflow::from_json(&odd).unwrap_err();
        let workflow = lenient(&odd).unwrap();

        assert_eq!(strict.to_string(), format!("{place}: unknown field"));
        let warnings: Vec<String> = workflow
            .warnings()
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = format!("{place}: unknown field \"banana\" has no effect");
        assert_eq!(warnings, [expected]);
        assert_eq!(workflow.hash(), hash);
    }
}

#[test]
fn an_unknown_field_with_nearly_a_known_name_is_an_error_in_every_mode() {
    for (pointer, field, nearest) in [
        ("/agents/critic", "permisions", "permissions"),
        ("/flows/main", "step", "steps"),
        ("", "policie", "policies"),
    ] {
        let error = lenient(&with(pointer, field)).unwrap_err();

        assert!(error.to_string().contains(nearest), "{error}");
    }
}

#[test]
fn a_field_with_the_words_of_a_known_name_is_named_with_it() {
    let workflow = lenient(&with("/agents/critic", "prompt")).unwrap();

    assert_eq!(
        workflow.warnings()[0].to_string(),
        "agents.critic.prompt: unknown field \"prompt\" has no effect; did you mean \"instruction\"?"
    );
}

#[test]
fn more_unknown_fields_than_the_limit_are_refused() {
    let mut definition = definition();
    for n in 0..101 {
        definition[format!("banana{n}")] = json!(1);
    }

    let error = lenient(&definition).unwrap_err();

    assert!(
        error
            .to_string()
            .contains("101 unknown fields where at most 100"),
        "{error}"
    );
}

#[test]
fn an_unknown_field_in_a_text_has_line_and_column() {
    let text = "{\n  \"flows\": {\"main\": {\"steps\": [{\"return\": 1}]}},\n  \"banana\": 1\n}";
    let document = Document::json(text).unwrap();

    let workflow = Workflow::of_document(&document, &DefinitionOptions::default()).unwrap();

    assert_eq!(
        workflow.warnings()[0].to_string(),
        "line 3 column 13: banana: unknown field \"banana\" has no effect"
    );
}

#[test]
fn a_field_of_another_kind_of_object_is_an_error_in_every_mode() {
    let mut at_once = definition();
    at_once["flows"]["main"]["at_once"] = json!(1);
    let condition = json!({"if": {"all": [], "op": "eq"}, "then": [{"return": 1}]});
    let retried = json!({"loop": [{"return": 1}], "max": 1, "retry": 2});
    let branch = json!({"parallel": [{"steps": [{"return": 1}], "max": 3}]});
    let mut dependent = with_steps(&json!([{"id": "a", "return": 1, "depends_on": []}]));
    dependent["flows"]["main"]["dag"] = json!(false);

    for (definition, path) in [
        (at_once, "flows.main.at_once: "),
        (
            with_steps(&json!([condition])),
            "flows.main.steps[0].if.op: ",
        ),
        (with_steps(&json!([retried])), "flows.main.steps[0].retry: "),
        (
            with_steps(&json!([branch])),
            "flows.main.steps[0].parallel[0].max: ",
        ),
        (dependent, "flows.main.steps[0].depends_on: "),
    ] {
        for error in [Workflow::from_json(&definition), lenient(&definition)] {
            let error = error.unwrap_err().to_string();
            assert!(error.starts_with(path), "{path}: {error}");
        }
    }
}

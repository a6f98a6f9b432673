use super::*;

fn refusal(definition: &Value) -> LoadProblem {
    Workflow::from_json(definition)
        .unwrap_err()
        .problem()
        .clone()
}

/// Returns a definition with `count` waiting steps, each with one condition.
fn waiting(count: usize, condition: &Value) -> Value {
    let event = json!({"schema_name": "a.v1", "context_match": [condition]});
    let blocks: Vec<Value> = vec![json!({"wait_for": event}); count];
    json!({"flows": {"main": {"steps": blocks}}})
}

#[test]
fn a_workflow_has_at_most_1000_conditions() {
    let condition = json!({"path": "a", "op": "exists"});

    let problem = refusal(&waiting(1_001, &condition));

    assert_eq!(
        problem,
        LoadProblem::TooMany {
            what: "conditions",
            found: 1_001,
            most: 1_000
        }
    );
    assert_eq!(
        problem.to_string(),
        "1001 conditions where at most 1000 are allowed"
    );
}

#[test]
fn a_workflow_has_at_most_100_regexes_which_are_counted_before_they_are_compiled() {
    let too_many = LoadProblem::TooMany {
        what: "regular expressions",
        found: 101,
        most: 100,
    };
    let condition = json!({"path": "a", "op": "matches", "value": "("});
    let patterns = vec![json!({"pattern": "("}); 25];
    let names: Map<String, Value> = (0..4)
        .map(|at| (format!("s{at}"), json!({"allOf": patterns})))
        .chain([("s4".to_owned(), json!({"patternProperties": {"(": {}}}))])
        .collect();
    let mut schemas = sound();
    schemas["schemas"] = names.into();

    assert_eq!(refusal(&waiting(101, &condition)), too_many);
    assert_eq!(refusal(&schemas), too_many);
    assert!(matches!(
        refusal(&waiting(100, &condition)),
        LoadProblem::Condition(_)
    ));
}

#[test]
fn unknown_fields_of_a_definition_are_not_counted() {
    let mut definition = sound();
    definition["former_forms"] = vec![json!({"pattern": "a"}); 101].into();
    let options = crate::model::DefinitionOptions::default();

    let workflow = Workflow::from_json_with(&definition, &options).unwrap();

    assert_eq!(workflow.warnings().len(), 1, "{:?}", workflow.warnings());
}

use super::*;

fn warnings(definition: &Value) -> Vec<String> {
    let workflow = Workflow::from_json(definition).unwrap();
    workflow
        .warnings()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn unused_models_tools_and_agents_cause_warnings() {
    let mut definition = sound();
    definition["models"]["large"] = json!({});
    definition["tools"]["shell"] = json!({});
    definition["agents"]["idle"] = json!({"instruction": "Wait."});

    assert_eq!(
        warnings(&definition),
        [
            "models.large: the model \"large\" is not used",
            "tools.shell: the tool \"shell\" is not used",
            "agents.idle: the agent \"idle\" is not used",
        ]
    );
}

#[test]
fn unreachable_steps_cause_a_warning() {
    let steps = json!([
        {"if": {"path": "input", "op": "exists"}, "then": [{"return": 1}], "else": [{"fail": "no"}]},
        {"tool": "search"},
    ]);
    let workflow = Workflow::from_json(&with_steps(&steps)).unwrap();

    let unreachable: Vec<_> = workflow
        .warnings()
        .iter()
        .filter(|warning| warning.oddity == Oddity::Unreachable)
        .map(|warning| warning.path.to_string())
        .collect();

    assert_eq!(unreachable, ["flows.main.steps[1]"]);
}

#[test]
fn a_branch_variable_that_hides_an_outer_variable_causes_a_warning() {
    let steps = json!([
        {"set": {"draft": "a", "page": 1}},
        {"parallel": [{"steps": [{"set": {"draft": "b"}}]}]},
        {"for_each": [1], "item": "page", "steps": [{"tool": "search", "input": "${page}"}]},
    ]);

    let warnings = warnings(&with_steps(&steps));
    let hidden: Vec<_> = warnings
        .iter()
        .filter(|text| text.contains("hides"))
        .collect();

    assert_eq!(
        hidden,
        [
            "flows.main.steps[1]: \"draft\" hides an outer variable of the same name, whose value does not change",
            "flows.main.steps[2]: \"page\" hides an outer variable of the same name, whose value does not change",
        ]
    );
}

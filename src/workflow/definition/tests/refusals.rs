use super::*;

#[test]
fn each_refusal_names_the_place_the_value_and_the_way_out() {
    for (definition, expected) in [
        (
            with("agent", json!({})),
            "agent: unknown field; did you mean \"agents\"?",
        ),
        (
            with("agents/writer/tols", json!([])),
            "agents.writer.tols: unknown field; did you mean \"tools\"?",
        ),
        (
            with("agents/writer/tools", json!(["serch"])),
            "agents.writer.tools[0]: unknown tool \"serch\"; did you mean \"search\"?",
        ),
        (
            with("agents/writer/tools", json!(["weather"])),
            "agents.writer.tools[0]: unknown tool \"weather\"; add it to the section \"tools\" of the definition",
        ),
        (
            with("agents/critic/instruction", json!({"prompt": "critik"})),
            "agents.critic.instruction.prompt: unknown prompt \"critik\"; did you mean \"critic\"?",
        ),
        (
            with("agents/critic/instruction", Value::Null),
            "agents.critic.instruction: missing value; write the instructions to the model",
        ),
        (
            with(
                "agents/writer/permissions",
                json!({"approval": ["publish"]}),
            ),
            "agents.writer.permissions.approval[0]: unknown tool of this agent \"publish\"",
        ),
        (
            with("agents/critic/history", json!("al")),
            "agents.critic.history: the value must be \"all\", \"none\" or a whole number from 1 to 10000, not \"al\"",
        ),
        (
            with("models/small/temperature", json!("hot")),
            "models.small.temperature: the value must be a number, not \"hot\"",
        ),
        (
            with("schemas/review", json!(7)),
            "schemas.review: the value must be a JSON Schema, not 7",
        ),
        (
            with("agents/critic/instruction", json!(["critic"])),
            "agents.critic.instruction: the value must be a string, or {\"prompt\": name}, not a list of 1 items",
        ),
        (
            with("policies/retry", json!([3, 2, 30])),
            "policies.retry: the value must be a number of attempts from 1 to 100, or an object with \"attempts\", not a list of 3 items",
        ),
        (
            with("flows/main/dag", json!("true")),
            "flows.main.dag: the value must be true or false, not \"true\"",
        ),
    ] {
        assert_eq!(refusal(&definition), expected);
    }
}

#[test]
fn each_refusal_of_policies_and_flows_does_so_too() {
    for (definition, expected) in [
        (
            with("policies/retry/attempts", json!(0)),
            "policies.retry.attempts: the value must be a whole number from 1 to 100, not 0",
        ),
        (
            with("policies/compaction/method", json!("truncate")),
            "policies.compaction.model: only the method \"summarise\" uses a model; remove this field",
        ),
        (
            with("flows/main/input", json!("reviw")),
            "flows.main.input: unknown schema \"reviw\"; did you mean \"review\"?",
        ),
        (
            with("flows/main/steps/1", json!({"flow": "reviews"})),
            "flows.main.steps[1].flow: unknown flow \"reviews\"; did you mean \"review\"?",
        ),
        (
            with("flows/a b", json!({})),
            "flows: invalid name \"a b\": only letters, digits, _, - and . are allowed",
        ),
    ] {
        assert_eq!(refusal(&definition), expected);
    }
}

#[test]
fn cycles_are_refused_and_named() {
    let mut handing_over = sound();
    handing_over["agents"]["critic"]["delegate"] = json!(["writer"]);
    let mut calling = sound();
    calling["flows"]["review"]["steps"] = json!([
        {"loop": [{"if": {"path": "last", "op": "exists"}, "then": [{"flow": "main"}]}], "max": 2},
    ]);
    let dag = with_steps(&json!([
        {"id": "a", "tool": "search", "depends_on": ["c"]},
        {"id": "b", "tool": "search", "input": "${a}"},
        {"id": "c", "tool": "search", "depends_on": ["b"]},
    ]));
    let itself = with("flows/review/steps", json!([{"flow": "review"}]));

    for (definition, expected) in [
        (
            handing_over,
            "agents.critic: agents form a cycle: critic -> writer -> critic; remove one of the references",
        ),
        (
            calling,
            "flows.main: flows form a cycle: main -> review -> main; remove one of the references",
        ),
        (
            dag,
            "flows.main.steps[0]: steps form a cycle: a -> c -> b -> a; remove one of the references",
        ),
        (
            itself,
            "flows.review: flows form a cycle: review -> review; remove one of the references",
        ),
    ] {
        assert_eq!(refusal(&definition), expected);
    }
}

#[test]
fn a_chain_of_agents_that_ask_one_another_has_an_end() {
    let chain = |length: usize| {
        let mut definition = sound();
        for at in 1..=length {
            let field = if at % 2 == 0 { "delegate" } else { "use" };
            let next = (at < length).then(|| format!("row{:02}", at + 1));
            let agent = json!({"instruction": "Ask.", field: next.into_iter().collect::<Vec<_>>()});
            definition["agents"][format!("row{at:02}")] = agent;
        }
        definition
    };

    assert!(Workflow::from_json(&chain(16)).is_ok());
    assert_eq!(
        refusal(&chain(17)),
        "agents.row01: 17 agents in a chain of \"use\" and \"delegate\" where at most 16 are allowed"
    );
}

#[test]
fn a_step_that_depends_on_an_unknown_step_is_refused() {
    let dag = with_steps(&json!([
        {"id": "fetch", "tool": "search"},
        {"id": "write", "agent": "writer", "depends_on": ["fecth"]},
    ]));

    assert_eq!(
        refusal(&dag),
        "flows.main.steps[1].depends_on[0]: unknown step \"fecth\"; did you mean \"fetch\"?"
    );
}

#[test]
fn a_graph_step_needs_an_id_and_cannot_use_the_last_result() {
    for (steps, expected) in [
        (
            json!([{"id": "a", "tool": "search", "input": "${last}", "depends_on": []}]),
            "steps[0].input: unknown variable \"last\"",
        ),
        (
            json!([{"tool": "search", "depends_on": []}]),
            "steps[0].id: missing value",
        ),
        (
            json!([{"id": "a", "set": {"x": 1}, "depends_on": []}]),
            "steps[0]: one of these fields is required: agent, tool, model, flow",
        ),
    ] {
        let refusal = refusal(&with_steps(&steps));

        assert!(refusal.contains(expected), "{refusal}");
    }
}

#[test]
fn flows_within_flows_are_bounded_in_depth() {
    let mut flows = Map::new();
    for at in 0..60 {
        let step = match at {
            59 => json!({"tool": "search"}),
            _ => json!({"flow": format!("f{}", at + 1)}),
        };
        flows.insert(format!("f{at}"), json!({"steps": [step]}));
    }

    let refusal = refusal(&with("flows", Value::Object(flows)));

    assert!(
        refusal.contains("levels of nested steps where at most 48 are allowed"),
        "{refusal}"
    );
}

#[test]
fn a_definition_that_nests_too_deep_or_has_too_many_steps_is_refused() {
    let mut deep = json!(1);
    for _ in 0..10_000 {
        deep = Value::Array(vec![deep]);
    }
    let deep_refusal = refusal(&deep);
    // Dropping the value recursively would overflow the stack.
    crate::model::dismantle(deep);
    let many: Vec<Value> = (0..2_001).map(|_| json!({"tool": "search"})).collect();

    assert_eq!(
        deep_refusal,
        "the definition: nesting deeper than 64 levels is not allowed"
    );
    assert!(refusal(&with_steps(&json!(many))).contains("2001 steps where at most 2000"));
}

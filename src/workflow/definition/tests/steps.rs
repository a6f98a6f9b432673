use super::*;

/// Checks that each step is refused with an error that contains the string next to it.
fn refused(rows: &[(Value, &str)]) {
    for (step, expected) in rows {
        let refusal = refusal(&with_steps(&json!([step])));

        assert!(refusal.starts_with("flows.main."), "{step}: {refusal}");
        assert!(refusal.contains(expected), "{step}: {refusal}");
    }
}

#[test]
fn a_step_with_fields_that_do_not_go_together_is_refused() {
    refused(&[
        (
            json!({"agnet": "writer"}),
            "steps[0].agnet: unknown field; did you mean \"agent\"?",
        ),
        (
            json!({"id": "a"}),
            "steps[0]: one of these fields is required: agent, tool, model",
        ),
        (
            json!({"agent": "writer", "tool": "search"}),
            "steps[0]: \"agent\" and \"tool\" are mutually exclusive",
        ),
        (
            json!({"agent": "writer", "retry": {"attempts": "x"}}),
            "steps[0].retry.attempts: the value must be a whole number",
        ),
        (
            json!({"agent": "writer", "retry": 101}),
            "steps[0].retry: the value must be a number of attempts from 1 to 100, or an object with \"attempts\", not 101",
        ),
        (
            json!({"agent": "writer", "timeout_seconds": 0}),
            "steps[0].timeout_seconds: the value must be a number of seconds",
        ),
        (
            json!({"set": {"a": 1}, "retry": 2}),
            "steps[0].retry: unknown field next to \"set\"; known fields: set, id, as",
        ),
        (
            json!({"loop": [{"tool": "search"}], "max": 1, "timeout_seconds": 3}),
            "steps[0].timeout_seconds: unknown field next to \"loop\"; known fields: loop, max, until, escalate, id, as",
        ),
        (
            json!({"agent": "writer", "retry": "often"}),
            "steps[0].retry: the value must be a number of attempts from 1 to 100, or an object with \"attempts\", not \"often\"",
        ),
    ]);
}

#[test]
fn a_step_with_names_that_cannot_be_is_refused() {
    refused(&[
        (
            json!({"set": {"last": 1}}),
            "steps[0].set.last: invalid name \"last\": only the interpreter sets this variable",
        ),
        (
            json!({"set": {}}),
            "steps[0].set: missing value; write at least one variable",
        ),
        (
            json!({"tool": "search", "id": "1a"}),
            "steps[0].id: invalid name \"1a\": a name starts with a letter or _",
        ),
        (
            json!({"id": "draft", "tool": "search", "input": "${drfat}"}),
            "steps[0].input: unknown variable \"drfat\"; did you mean \"draft\"?",
        ),
        (
            json!({"tool": "search", "input": "${item}"}),
            "steps[0].input: unknown variable \"item\"",
        ),
        (
            json!({"return": "${error.code}"}),
            "steps[0].return: unknown variable \"error\"",
        ),
    ]);
}

#[test]
fn a_step_with_broken_steps_in_it_is_refused() {
    refused(&[
        (
            json!({"loop": [{"tool": "search"}]}),
            "steps[0].max: missing value; write a maximum number",
        ),
        (
            json!({"loop": [], "max": 1}),
            "steps[0].loop: missing value; write a list of steps",
        ),
        (
            json!({"try": [{"tool": "search"}]}),
            "steps[0].on_failure: missing value",
        ),
        (
            json!({"if": {"path": "last", "op": "is"}, "then": [{"tool": "search"}]}),
            "steps[0].if.op: unknown op \"is\"",
        ),
        (
            json!({"match": 1, "cases": [{"is": 1}]}),
            "steps[0].cases[0].then: missing value",
        ),
        (
            json!({"match": 1, "cases": [{"is": 1, "op": "eq", "then": []}]}),
            "steps[0].cases[0]: \"is\" and \"op\" are mutually exclusive",
        ),
        (
            json!({"parallel": [{"id": "a", "tool": "search"}, {"id": "a", "tool": "search"}]}),
            "steps[0].parallel[1].id: invalid name \"a\": another step",
        ),
        (
            json!({"parallel": []}),
            "steps[0].parallel: missing value; write a list of branches",
        ),
        (
            json!({"parallel": [{"tool": "search"}], "join": "any"}),
            "steps[0].join: the value must be one of \"all\", \"fail_fast\", \"first\", not \"any\"",
        ),
    ]);
}

#[test]
fn a_step_that_others_cannot_answer_is_refused() {
    refused(&[
        (
            json!({"wait_for": {"any_tags": ["a"]}}),
            "steps[0].wait_for.schema_name: missing value",
        ),
        (
            json!({"emit": {"schema_name": "${last}"}}),
            "steps[0].emit.schema_name: a schema name cannot contain variables",
        ),
        (
            json!({"agent": "writer", "escalate": [{"when": {"path": "result", "op": "exists"}}]}),
            "steps[0].escalate[0]: one of these fields is required: return, continue",
        ),
        (
            json!({"for_each": "${input}", "at_once": 0, "steps": []}),
            "steps[0].at_once: the value must be a whole number from 1 to 256",
        ),
        (
            json!({"ask": 1}),
            "steps[0].ask: the value must be a string, not 1",
        ),
        (
            json!("agent"),
            "steps[0]: the value must be an object, not \"agent\"",
        ),
    ]);
}

#[test]
fn null_is_a_value_in_json_fields_and_means_absent_in_other_fields() {
    let nulls = json!([
        {"tool": "search", "input": null, "retry": null, "as": null, "escalate": null},
        {"match": null, "cases": [{"is": null, "then": [{"return": null}]}], "else": null},
    ]);

    assert!(Workflow::from_json(&with_steps(&nulls)).is_ok());
    let mut guarded = sound();
    guarded["policies"]["guardrails"]["input"] = Value::Null;
    assert!(Workflow::from_json(&guarded).is_ok());
    refused(&[
        (json!({"tool": null}), "steps[0].tool: missing value"),
        (
            json!({"agent": "writer", "tool": null}),
            "steps[0]: \"agent\" and \"tool\" are mutually exclusive",
        ),
    ]);
}

#[test]
fn a_list_of_steps_is_a_branch_and_no_step() {
    let steps = json!([{"return": 1}]);

    refused(&[(
        json!({"steps": steps}),
        "steps[0]: a list of steps is allowed only in",
    )]);
    let branches = json!([{"parallel": [{"steps": steps}, {"for_each": [1], "steps": steps}]}]);
    assert!(Workflow::from_json(&with_steps(&branches)).is_ok());
}

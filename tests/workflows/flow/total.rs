//! The total size limit for the values of a run.

use super::*;

/// Returns a flow that sets `a` to a string of 196,608 bytes and then runs the given steps. The total limit is `total` bytes.
fn with_large_value(total: usize, steps: &Value) -> Value {
    let mut all = vec![
        json!({"set": {"a": "xxx"}}),
        json!({"loop": [{"set": {"a": "${a}${a}"}}], "max": 16}),
    ];
    all.extend(steps.as_array().unwrap().iter().cloned());
    let more = json!({
        "tools": {"page": {}, "echo": {}},
        "policies": {"limits": {"total_bytes": total}},
    });
    let mut definition = flow(&more, json!(all));
    definition["flows"]["inner"]["steps"] = json!([{"wait_for": {"schema_name": "never.v1"}}]);
    definition["flows"]["graph"]["dag"] = json!(true);
    definition["flows"]["graph"]["steps"] = (0..4)
        .map(|number| json!({"id": format!("n{number}"), "tool": "page", "input": {}}))
        .collect();
    definition
}

fn world(definition: &Value) -> World {
    let (page, _) = tool("page", |_, _| Ok(json!("y".repeat(120_000))));
    let (echo, _) = tool("echo", |_, _| Ok(json!("done")));
    World::new(definition, registry([page, echo]), no_model())
}

/// Returns the error of a run that exceeds its total limit.
async fn error_of(definition: &Value) -> Value {
    let mut result = world(definition).result_of(json!({})).await;
    result["error"].take()
}

#[tokio::test]
async fn a_small_definition_cannot_make_a_run_take_more_than_its_limit_for_all_values() {
    let sets = (0..64).map(|number| (format!("v{number}"), json!("x${a}")));
    let sets: serde_json::Map<_, _> = sets.collect();
    let items = json!({
        "for_each": (0..200).collect::<Vec<_>>(), "at_once": 200,
        "steps": [{"set": sets}, {"wait_for": {"schema_name": "never.v1"}}],
    });
    let mut definition = with_large_value(0, &json!([{"parallel": [items, items]}]));
    definition["policies"] = json!({});

    let error = error_of(&definition).await;

    assert_eq!(error["code"], "too_large", "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("total_bytes allows 4194304"), "{message}");
}

/// Returns steps that exceed a total of 500,000 bytes with each kind of value.
fn kinds() -> Vec<(&'static str, Value)> {
    let wait = json!({"wait_for": {"schema_name": "never.v1"}});
    let at_once = |step: Value| {
        let items = [1, 2, 3, 4];
        json!([{"for_each": items, "steps": [step]}])
    };
    let branches = |branch: Value| json!([{"parallel": vec![branch; 4], "join": "fail_fast"}]);
    vec![
        (
            "variables",
            at_once(
                json!({"if": {"path": "a", "op": "exists"}, "then": [{"set": {"b": "x${a}"}}, wait]}),
            ),
        ),
        (
            "one set",
            json!([{"set": {"b": "x${a}", "c": "x${a}", "d": "x${a}"}}]),
        ),
        (
            "inputs of flows",
            at_once(json!({"flow": "inner", "input": "x${a}"})),
        ),
        (
            "inputs of branches",
            branches(json!({"input": "x${a}", "steps": [wait]})),
        ),
        (
            "inputs of tools",
            at_once(json!({"tool": "echo", "input": {"page": "${a}"}})),
        ),
        ("questions", at_once(json!({"ask": "Is it right? ${a}"}))),
        (
            "emitted breadcrumbs",
            at_once(json!({"emit": {"schema_name": "note.v1", "context": {"page": "${a}"}}})),
        ),
        (
            "awaited events",
            at_once(json!({"wait_for": {
                "schema_name": "never.v1", "context_match": [{"path": "$.a", "op": "eq", "value": "x${a}"}],
            }})),
        ),
        (
            "results of steps",
            json!([{"id": "p", "tool": "page"}, {"id": "q", "tool": "page"}, {"id": "r", "tool": "page"}]),
        ),
        ("results of branches", branches(json!({"tool": "page"}))),
        ("results of a graph", json!([{"flow": "graph"}])),
        (
            "results that were escalated",
            at_once(json!({"tool": "page", "escalate": [
                {"when": {"path": "result", "op": "exists"}, "steps": [wait]},
            ]})),
        ),
    ]
}

#[tokio::test]
async fn values_of_every_kind_count_towards_the_limit() {
    for (kind, steps) in kinds() {
        let error = error_of(&with_large_value(500_000, &steps)).await;

        assert_eq!(error["code"], "too_large", "{kind}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("total_bytes allows 500000"),
            "{kind}: {message}"
        );
    }
}

#[tokio::test]
async fn a_value_that_steps_under_way_share_is_not_copied_and_does_not_count_for_each() {
    let steps = json!([
        {"for_each": (0..100).collect::<Vec<_>>(), "at_once": 100, "steps": [{"tool": "echo", "input": "${a}"}]},
        {"return": "${last[0]}"},
    ]);

    let result = world(&with_large_value(600_000, &steps))
        .result_of(json!({}))
        .await;

    assert_eq!(result["output"], "done", "{result}");
}

#[tokio::test]
async fn values_that_are_replaced_or_out_of_scope_leave_room_for_others() {
    let steps = json!([
        {"loop": [{"set": {"b": "x${a}"}}], "max": 50},
        {"for_each": (0..50).collect::<Vec<_>>(), "at_once": 1, "steps": [{"set": {"c": "x${a}"}}, {"return": 1}]},
        {"loop": [{"try": [{"set": {"d": "x${a}", "e": "x${a}"}}], "on_failure": [{"set": {"f": "${error.code}"}}]}], "max": 3},
        {"return": "${f}"},
    ]);
    let mut definition = with_large_value(600_000, &steps);
    definition["flows"]["main"]["steps"][3]["steps"][1] = json!({"set": {"c": 1}});

    let result = world(&definition).result_of(json!({})).await;

    assert_eq!(result["output"], "too_large", "{result}");
}

#[tokio::test]
async fn a_run_that_continues_after_a_restart_counts_its_values_as_before() {
    let steps = json!([
        {"set": {"b": "x${a}"}},
        {"ask": "Continue?"},
        {"try": [{"set": {"c": "x${a}"}}], "on_failure": [{"return": "${error.code}"}]},
    ]);
    let world = world(&with_large_value(500_000, &steps));
    world.request(json!({})).await;
    let question = world.works_until("human.request.v1", 1).await;
    let ticket = question.context.text("requestId").unwrap();
    world.answers(ticket, json!("yes"), "ann").await;

    let result = world.works_until(RESULT, 1).await;

    assert_eq!(result.context["output"], "too_large", "{result:?}");
}

#[tokio::test]
async fn as_few_steps_as_possible_fail_if_the_state_of_a_run_is_too_large_to_be_stored() {
    let wait = json!([{"set": {"b": "x${input}"}}, {"wait_for": {"schema_name": "never.v1"}}]);
    let steps = json!([{
        "for_each": (0..40).collect::<Vec<_>>(), "at_once": 40,
        "steps": [{"try": wait, "on_failure": [{"set": {"b": 1}}]}],
    }]);
    let definition = flow(&json!({}), steps);
    let world = world(&definition);

    let request = world.request(json!("y".repeat(60_000))).await;
    let outcome = world
        .executor
        .process_event(&Event::created(&request))
        .await;

    assert!(
        matches!(outcome, Ok(Outcome::Suspended { .. })),
        "{outcome:?}"
    );
    let failed = world.flow_events().into_iter();
    let failed = failed.filter(|(_, kind)| matches!(kind, FlowEventKind::Failed(_)));
    // The input takes 60,000 of 1,048,576 bytes, which leaves room for 16 of the 40 variables.
    assert_eq!(failed.count(), 24);
}

#[tokio::test]
async fn many_large_values_let_others_have_their_turn() {
    let steps = json!([{"loop": [{"set": {"b": "x${a}"}}], "max": 200}]);
    let world = world(&with_large_value(4 << 20, &steps));
    let (_, turns) = with_turns_of_others(&world).await;

    assert!(turns >= 30, "other tasks ran {turns} times");
}

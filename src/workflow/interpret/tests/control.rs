use super::*;

#[test]
fn a_loop_with_a_maximum_of_three_runs_three_times_and_reports_exhaustion() {
    let (mut script, begun) = Script::of(json!([
        {"id": "review", "loop": [{"agent": "writer", "input": "${iteration}"}], "max": 3,
         "until": {"path": "last", "op": "eq", "value": "good"}},
    ]));

    assert_eq!(begun, ["do main/review#1/0"]);
    assert_eq!(
        script.ok("main/review#1/0", json!("bad")),
        ["do main/review#2/0"]
    );
    assert_eq!(script.input("main/review#2/0"), json!(2));
    script.ok("main/review#2/0", json!("bad"));
    assert_eq!(
        script.ok("main/review#3/0", json!("still bad")),
        ["done \"still bad\""]
    );
    assert!(
        script
            .events()
            .contains(&"loop_exhausted main/review 3".to_owned())
    );
}

#[test]
fn a_loop_ends_once_its_condition_holds() {
    let (mut script, _) = Script::of(json!([
        {"loop": [{"agent": "writer"}], "max": 3, "until": {"path": "last.ok", "op": "eq", "value": true}},
    ]));
    script.ok("main/0#1/0", json!({"ok": false}));

    assert_eq!(
        script.ok("main/0#2/0", json!({"ok": true})),
        ["done {\"ok\":true}"]
    );
    assert!(
        !script
            .events()
            .iter()
            .any(|event| event.contains("exhausted"))
    );
}

#[test]
fn variables_set_in_a_loop_stay_after_it_and_its_own_do_not() {
    let (_, begun) = Script::of(json!([
        {"set": {"n": []}},
        {"loop": [
            {"set": {"n": ["${n}", "${iteration}"]}},
            {"loop": [{"set": {"inner": "${iteration}"}}], "max": 2},
            {"set": {"outer": "${iteration}"}},
        ], "max": 2},
        {"return": ["${n}", "${inner}", "${outer}"]},
    ]));

    assert_eq!(begun, ["done [[[[],1],2],2,2]"]);
}

#[test]
fn an_if_step_runs_one_branch_or_none() {
    let choice = |value: u8| {
        json!([
            {"tool": "search"},
            {"if": {"path": "last", "op": "gt", "value": value}, "then": [{"tool": "search"}], "else": [{"tool": "publish"}]},
        ])
    };
    let (mut high, _) = Script::of(choice(1));
    let (mut low, _) = Script::of(choice(9));
    let (mut neither, _) = Script::of(json!([
        {"tool": "search"},
        {"if": {"path": "last", "op": "gt", "value": 9}, "then": [{"tool": "search"}]},
    ]));

    assert_eq!(high.ok("main/0", json!(5)), ["do main/1/then/0"]);
    assert_eq!(low.ok("main/0", json!(5)), ["do main/1/else/0"]);
    assert_eq!(neither.ok("main/0", json!(5)), ["done 5"]);
}

#[test]
fn match_takes_the_first_case_that_fits() {
    let cases = |value: Value| {
        json!([{"match": value, "cases": [
            {"is": "bug", "then": [{"return": "fix"}]},
            {"path": "kind", "op": "matches", "value": "^idea", "then": [{"return": "think"}]},
            {"is": 1.0, "then": [{"return": "count"}]},
        ], "else": [{"return": "ask"}]}])
    };

    for (value, expected) in [
        (json!("bug"), "done \"fix\""),
        (json!({"kind": "idea 7"}), "done \"think\""),
        (json!(1), "done \"count\""),
        (json!("${input.topic}"), "done \"ask\""),
    ] {
        assert_eq!(Script::of(cases(value)).1, [expected]);
    }
}

#[test]
fn a_failure_is_taken_up_at_the_nearest_try_at_any_depth() {
    let (mut script, _) = Script::of(json!([
        {"try": [
            {"try": [{"loop": [{"parallel": [{"id": "x", "tool": "search"}]}], "max": 2}],
             "on_failure": [{"fail": "worse: ${error.code} at ${error.step}", "code": "worse"}]},
            {"tool": "publish"},
        ], "on_failure": [{"return": "${error}"}]},
    ]));

    assert_eq!(
        script.fails("main/0/try/0/try/0#1/0/x/0"),
        [concat!(
            "done {\"code\":\"worse\",\"message\":\"worse: broken at main/0/try/0/try/0#1/0/x/0\",",
            "\"step\":\"main/0/try/0/on_failure/0\"}"
        )]
    );
}

#[test]
fn the_result_of_the_failure_branch_is_the_result_of_the_try_step() {
    let (mut script, _) = Script::of(json!([
        {"as": "found", "try": [{"tool": "search"}], "on_failure": [{"tool": "publish", "input": "${error.message}"}]},
        {"return": "${found}"},
    ]));

    assert_eq!(script.fails("main/0/try/0"), ["do main/0/on_failure/0"]);
    assert_eq!(script.input("main/0/on_failure/0"), json!("it broke"));
    assert_eq!(
        script.ok("main/0/on_failure/0", json!("instead")),
        ["done \"instead\""]
    );
}

#[test]
fn a_drifting_answer_is_escalated_and_its_handler_returns_the_value_before() {
    let drifting = json!({"path": "result", "op": "matches", "value": "(?i)drifting"});
    let (mut script, _) = Script::of(json!([
        {"agent": "writer"},
        {"agent": "writer", "escalate": [{"when": drifting, "return": "${last}"}]},
        {"tool": "publish"},
    ]));
    script.ok("main/0", json!("on topic"));

    assert_eq!(
        script.ok("main/1", json!("**Drifting.**")),
        ["done \"on topic\""]
    );
    assert!(script.events().contains(&"escalated main/1 0".to_owned()));
}

#[test]
fn an_escalation_continues_aborts_or_runs_steps() {
    let step = |handler: Value| {
        let mut escalation = json!({"when": {"path": "result", "op": "lt", "value": 5}});
        escalation
            .as_object_mut()
            .unwrap()
            .extend(handler.as_object().unwrap().clone());
        json!([{"agent": "writer", "escalate": [escalation]}])
    };
    let (mut goes_on, _) = Script::of(step(json!({"continue": ["${result}", "low"]})));
    let (mut aborts, _) = Script::of(step(json!({"abort": "only ${result}"})));
    let (mut runs, _) = Script::of(step(
        json!({"steps": [{"tool": "search", "input": "${result}"}]}),
    ));
    let (mut fits, _) = Script::of(step(json!({"abort": "low"})));

    assert_eq!(goes_on.ok("main/0", json!(1)), ["done [1,\"low\"]"]);
    assert_eq!(
        aborts.ok("main/0", json!(1)),
        ["failed escalated at main/0"]
    );
    assert_eq!(runs.ok("main/0", json!(1)), ["do main/0/escalation0/0"]);
    assert_eq!(runs.input("main/0/escalation0/0"), json!(1));
    assert_eq!(runs.ok("main/0/escalation0/0", json!(8)), ["done 8"]);
    assert_eq!(fits.ok("main/0", json!(5)), ["done 5"]);
}

#[test]
fn a_run_that_begins_too_many_steps_fails_and_no_handler_takes_it_up() {
    let (script, begun) = Script::of(json!([
        {"try": [{"loop": [{"set": {"a": 1}}], "max": 10_000}], "on_failure": [{"return": "saved"}]},
    ]));

    assert_eq!(begun, ["failed too_many_steps at main/0/try/0#199/0"]);
    assert_eq!(script.run.progress().steps(), 201);
}

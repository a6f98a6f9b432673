use super::*;

fn agents(join: &str) -> Value {
    json!([{"join": join, "parallel": [
        {"id": "a", "agent": "writer", "input": 1},
        {"id": "b", "agent": "writer", "input": 2},
        {"id": "c", "input": 3, "steps": [{"agent": "writer"}]},
    ]}])
}

#[test]
fn three_branches_of_the_same_agent_have_their_own_inputs_and_results_in_order() {
    let (mut script, begun) = Script::of(agents("all"));

    assert_eq!(begun, ["do main/0/a/0", "do main/0/b/0", "do main/0/c/0"]);
    let inputs = ["a", "b", "c"].map(|id| script.input(&format!("main/0/{id}/0")));
    assert_eq!(inputs, [json!(1), json!(2), json!(3)]);
    assert_eq!(script.ok("main/0/c/0", json!("C")), [""; 0]);
    assert_eq!(script.ok("main/0/a/0", json!("A")), [""; 0]);
    assert_eq!(
        script.ok("main/0/b/0", json!("B")),
        ["done [\"A\",\"B\",\"C\"]"]
    );
}

#[test]
fn join_all_waits_for_the_rest_before_it_fails() {
    let (mut script, _) = Script::of(agents("all"));

    assert_eq!(script.fails("main/0/b/0"), [""; 0]);
    script.ok("main/0/a/0", json!("A"));
    assert_eq!(
        script.ok("main/0/c/0", json!("C")),
        ["failed broken at main/0/b/0"]
    );
}

#[test]
fn fail_fast_cancels_the_siblings() {
    let (mut script, _) = Script::of(agents("fail_fast"));
    script.ok("main/0/a/0", json!("A"));

    assert_eq!(
        script.fails("main/0/b/0"),
        ["stop main/0/c/0", "failed broken at main/0/b/0"]
    );
    let events = script.events();
    let end: Vec<_> = events.iter().skip(events.len() - 6).collect();
    assert_eq!(
        end,
        [
            "!main/0/b/0 broken",
            "!main/0/b broken",
            "~main/0/c/0",
            "~main/0/c",
            "!main/0 broken",
            "!main broken"
        ]
    );
}

#[test]
fn the_first_to_succeed_cancels_the_rest_and_its_result_is_that_of_all() {
    let (mut script, _) = Script::of(agents("first"));

    assert_eq!(script.fails("main/0/a/0"), [""; 0]);
    assert_eq!(
        script.ok("main/0/c/0", json!("C")),
        ["stop main/0/b/0", "done \"C\""]
    );
}

#[test]
fn a_first_join_without_a_success_fails_with_the_error_of_its_first_branch() {
    let (mut script, _) = Script::of(agents("first"));
    script.fails("main/0/c/0");
    script.fails("main/0/a/0");

    assert_eq!(script.fails("main/0/b/0"), ["failed broken at main/0/a/0"]);
}

#[test]
fn a_task_that_is_started_and_cancelled_at_once_never_reaches_the_driver() {
    let (script, begun) = Script::of(json!([{"join": "fail_fast", "parallel": [
        {"tool": "search"}, {"steps": [{"fail": "no"}]},
    ]}]));

    assert_eq!(begun, ["failed failed at main/0/1/0"]);
    assert!(script.events().contains(&"~main/0/0/0".to_owned()));
}

#[test]
fn a_return_in_a_branch_ends_the_flow() {
    let (mut script, _) = Script::of(json!([
        {"parallel": [{"tool": "search"}, {"steps": [{"tool": "search"}, {"return": "out"}]}]}, {"tool": "publish"},
    ]));

    assert_eq!(
        script.ok("main/0/1/0", json!(1)),
        ["stop main/0/0/0", "done \"out\""]
    );
}

#[test]
fn branches_read_outer_variables_and_set_only_their_own() {
    let (mut script, _) = Script::of(json!([
        {"set": {"a": "outside", "b": "outside"}},
        {"parallel": [
            {"steps": [{"set": {"a": "one"}}, {"tool": "search", "input": ["${a}", "${b}"]}]},
            {"steps": [{"tool": "search", "input": ["${a}", "${b}"]}]},
        ]},
        {"return": ["${a}", "${last[0]}"]},
    ]));

    assert_eq!(script.input("main/1/0/1"), json!(["one", "outside"]));
    assert_eq!(script.input("main/1/1/0"), json!(["outside", "outside"]));
    script.ok("main/1/0/1", json!("first"));
    assert_eq!(
        script.ok("main/1/1/0", json!("second")),
        ["done [\"outside\",\"first\"]"]
    );
}

#[test]
fn for_each_limits_concurrency_and_retains_the_order() {
    let (mut script, begun) = Script::of(json!([
        {"for_each": "${input.list}", "item": "n", "at_once": 2,
         "steps": [{"id": "get", "tool": "search", "input": {"n": "${n}", "at": "${index}"}}]},
    ]));

    assert_eq!(begun, ["do main/0#1/get", "do main/0#2/get"]);
    assert_eq!(script.input("main/0#2/get"), json!({"n": 2, "at": 1}));
    assert_eq!(script.ok("main/0#2/get", json!("b")), ["do main/0#3/get"]);
    script.ok("main/0#3/get", json!("c"));
    assert_eq!(
        script.ok("main/0#1/get", json!("a")),
        ["done [\"a\",\"b\",\"c\"]"]
    );
}

#[test]
fn for_each_takes_nothing_but_a_list_of_bounded_length() {
    let each = |list: Value| json!([{"for_each": list, "steps": [{"set": {"a": "${item}"}}]}]);
    let many: Vec<u8> = (0..21).collect();

    assert_eq!(Script::of(each(json!([]))).1, ["done []"]);
    assert_eq!(
        Script::of(each(json!("${input}"))).1,
        ["failed not_a_list at main/0"]
    );
    assert_eq!(
        Script::of(each(json!(many))).1,
        ["failed too_many_items at main/0"]
    );
}

#[test]
fn a_graph_runs_each_step_after_its_dependencies_and_retains_value_types() {
    let (mut script, begun) = Script::of(json!([
        {"id": "join", "tool": "publish", "input": {"n": "${left.n}", "all": "${right}"}},
        {"id": "left", "tool": "search", "depends_on": ["root"]},
        {"id": "right", "agent": "writer", "depends_on": ["root"]},
        {"id": "root", "tool": "search"},
        {"id": "alone", "tool": "search"},
    ]));

    assert_eq!(begun, ["do main/root", "do main/alone"]);
    assert_eq!(
        script.ok("main/root", json!(0)),
        ["do main/left", "do main/right"]
    );
    assert_eq!(script.ok("main/right", json!([1])), [""; 0]);
    assert_eq!(script.ok("main/left", json!({"n": 7})), ["do main/join"]);
    assert_eq!(script.input("main/join"), json!({"n": 7, "all": [1]}));
    script.ok("main/join", json!("j"));
    assert_eq!(
        script.ok("main/alone", json!("a")),
        ["done {\"alone\":\"a\",\"join\":\"j\"}"]
    );
}

#[test]
fn a_graph_runs_so_many_at_once_and_fails_with_any_of_its_steps() {
    let step = |id: &str| json!({"id": id, "tool": "search"});
    let flow =
        json!({"main": {"dag": true, "at_once": 2, "steps": [step("a"), step("b"), step("c")]}});
    let (mut script, begun) = Script::of_flows(flow);

    assert_eq!(begun, ["do main/a", "do main/b"]);
    assert_eq!(script.ok("main/b", json!(1)), ["do main/c"]);
    assert_eq!(
        script.fails("main/a"),
        ["stop main/c", "failed broken at main/a"]
    );
}

#[test]
fn results_that_together_are_too_large_fail_as_soon_as_they_are() {
    let (mut script, _) = Script::of(json!([
        {"for_each": [1, 2, 3, 4], "at_once": 2, "steps": [{"tool": "search"}]},
    ]));
    script.ok("main/0#1/0", json!("x".repeat(2_500)));

    assert_eq!(
        script.ok("main/0#2/0", json!("x".repeat(2_500))),
        ["stop main/0#3/0", "failed too_large at main/0"]
    );
}

#[test]
fn a_branch_has_its_variables_and_its_input_also_after_it_waited() {
    let (mut script, _) = Script::of(json!([{"parallel": [
        {"id": "a", "input": "own", "steps": [
            {"set": {"kept": 7}},
            {"tool": "search"},
            {"tool": "search", "input": ["${kept}", "${input}", "${last}"]},
        ]},
        {"tool": "search"},
    ]}]));

    assert_eq!(script.ok("main/0/a/1", json!("found")), ["do main/0/a/2"]);
    assert_eq!(script.input("main/0/a/2"), json!([7, "own", "found"]));
}

use super::*;
use crate::model::{NewBreadcrumb, Selector};
use std::time::Duration;

#[test]
fn steps_run_one_after_another_and_the_last_result_is_that_of_the_flow() {
    let (mut script, begun) = Script::of(json!([
        {"id": "draft", "agent": "writer", "input": "about ${input.topic}"},
        {"tool": "publish", "input": {"text": "${draft}", "same": "${last}"}},
    ]));

    assert_eq!(begun, ["do main/draft"]);
    assert_eq!(script.input("main/draft"), json!("about rust"));
    assert_eq!(script.ok("main/draft", json!("words")), ["do main/1"]);
    assert_eq!(
        script.input("main/1"),
        json!({"text": "words", "same": "words"})
    );
    assert_eq!(
        script.ok("main/1", json!({"url": "u"})),
        ["done {\"url\":\"u\"}"]
    );
    assert_eq!(
        script.events(),
        [
            "+main",
            "+main/draft",
            "-main/draft",
            "+main/1",
            "-main/1",
            "-main"
        ]
    );
}

#[test]
fn a_two_agent_flow_without_return_yields_the_last_answer_and_with_return_that_value() {
    let agents = json!([{"agent": "writer"}, {"agent": "writer"}]);
    let (mut without, _) = Script::of(agents);
    without.ok("main/0", json!("one"));

    assert_eq!(without.ok("main/1", json!("two")), ["done \"two\""]);

    let (mut with, _) = Script::of(json!([
        {"id": "a", "agent": "writer"}, {"agent": "writer"}, {"return": {"first": "${a}"}}, {"tool": "search"},
    ]));
    with.ok("main/a", json!("one"));

    assert_eq!(
        with.ok("main/1", json!("two")),
        ["done {\"first\":\"one\"}"]
    );
}

#[test]
fn a_flow_without_results_ends_with_null() {
    let (_, begun) = Script::of(json!([{"set": {"a": 1}}]));

    assert_eq!(begun, ["done null"]);
}

#[test]
fn variables_of_one_set_step_are_computed_from_the_previous_values() {
    let (_, begun) = Script::of(json!([
        {"set": {"a": 1, "b": 2}},
        {"set": {"a": "${b}", "b": "${a}"}},
        {"return": ["${a}", "${b}"]},
    ]));

    assert_eq!(begun, ["done [2,1]"]);
}

#[test]
fn variables_and_return_values_of_a_sub_flow_are_its_own() {
    let (mut script, begun) = Script::of_flows(json!({
        "main": {"steps": [
            {"set": {"a": "outer"}},
            {"as": "r", "flow": "sub", "input": {"x": 1}},
            {"tool": "publish", "input": ["${a}", "${r}"]},
        ]},
        "sub": {"steps": [
            {"set": {"a": "inner"}},
            {"tool": "search", "input": "${input.x}"},
            {"return": "v"},
        ]},
    }));

    assert_eq!(begun, ["do main/1/sub/1"]);
    assert_eq!(script.input("main/1/sub/1"), json!(1));
    assert_eq!(script.ok("main/1/sub/1", json!("found")), ["do main/2"]);
    assert_eq!(script.input("main/2"), json!(["outer", "v"]));
    assert_eq!(script.ok("main/2", json!("out")), ["done \"out\""]);
}

#[test]
fn a_tool_that_fails_twice_works_under_three_attempts_with_growing_delays() {
    let (mut script, _) = Script::of(json!([
        {"tool": "search", "retry": {"attempts": 3, "base_seconds": 2}},
    ]));
    let transient = || StepOutcome::transient("busy", "try later");

    assert_eq!(script.task("main/0").after, Duration::ZERO);
    assert_eq!(script.tell("main/0", transient()), ["do main/0"]);
    assert_eq!(script.task("main/0").after, Duration::from_secs(2));
    assert_eq!(script.tell("main/0", transient()), ["do main/0"]);
    assert_eq!(script.task("main/0").after, Duration::from_secs(4));
    assert_eq!(script.task("main/0").attempt, 3);
    assert_eq!(script.task("main/0").idempotency_key, "run/main/0");
    assert_eq!(script.ok("main/0", json!(1)), ["done 1"]);
    assert_eq!(
        script.events(),
        [
            "+main",
            "+main/0",
            "retry main/0 2 after 2000ms",
            "retry main/0 3 after 4000ms",
            "-main/0",
            "-main"
        ]
    );
}

#[test]
fn a_step_that_exhausts_its_attempts_or_fails_permanently_fails_the_run() {
    let tool = json!([{"tool": "search", "retry": 2}]);
    let (mut used_up, _) = Script::of(tool.clone());
    used_up.tell("main/0", StepOutcome::transient("busy", "try later"));

    assert_eq!(
        used_up.tell("main/0", StepOutcome::TimedOut),
        ["failed timed_out at main/0"]
    );

    let (mut for_good, _) = Script::of(tool);

    assert_eq!(for_good.fails("main/0"), ["failed broken at main/0"]);
}

#[test]
fn a_retry_waits_for_the_delay_of_its_failure() {
    let (mut script, _) = Script::of(json!([{"tool": "search", "retry": 2}]));
    let limited = StepOutcome::Failed {
        failure: StepFailure::new("rate_limited", "slow down"),
        retry: MayRetry::After(Duration::from_secs(90)),
    };

    script.tell("main/0", limited);

    assert_eq!(script.task("main/0").after, Duration::from_secs(90));
}

#[test]
fn policies_apply_to_steps_without_their_own_settings() {
    let mut definition = definition(json!({"main": {"steps": [
        {"tool": "search"}, {"tool": "search", "retry": 1, "timeout_seconds": 1.5}, {"ask": "Go on?"},
    ]}}));
    definition["policies"] = json!({"retry": {"attempts": 2}, "timeout_seconds": 9});
    let workflow = Arc::new(Workflow::from_json(&definition).unwrap());
    let (mut run, first) = FlowRun::begin(workflow, "main", "run", Value::Null).unwrap();

    let again = run.tell(&"main/0".into(), 1, StepOutcome::TimedOut);
    let second = run.tell(&"main/0".into(), 2, StepOutcome::success(json!(1)));
    let asked = run.tell(&"main/1".into(), 1, StepOutcome::success(json!(1)));

    assert_eq!(first.ready[0].timeout, Some(Duration::from_secs(9)));
    assert_eq!(again.ready[0].attempt, 2);
    assert_eq!(second.ready[0].timeout, Some(Duration::from_millis(1500)));
    assert_eq!(asked.ready[0].timeout, None);
}

#[test]
fn a_question_waits_for_its_answer_by_ticket() {
    let (mut script, _) = Script::of(json!([
        {"id": "answer", "ask": "Publish ${input.topic}?", "of": ["ann"]}, {"tool": "publish", "input": "${answer.yes}"},
    ]));
    assert_eq!(
        script.task("main/answer").task,
        StepTask::Ask {
            question: "Publish rust?".to_owned(),
            of: vec!["ann".to_owned()],
            output: None,
        }
    );

    let ticket = "t1".to_owned();
    assert_eq!(
        script.tell("main/answer", StepOutcome::Suspended { ticket }),
        [""; 0]
    );
    script.restart();
    let waiting: Vec<_> = script.run.progress().suspended().collect();
    assert_eq!(waiting, [(&StepPath::from("main/answer"), "t1")]);
    assert_eq!(
        script.step(|run| run.resume("t2", json!(1))),
        ["UnknownTicket { ticket: \"t2\" }"]
    );
    assert_eq!(
        script.step(|run| run.resume("t1", json!({"yes": true}))),
        ["do main/1"]
    );
    assert_eq!(script.input("main/1"), json!(true));
    assert_eq!(
        script.step(|run| run.resume("t1", json!(1))),
        ["UnknownTicket { ticket: \"t1\" }"]
    );
    assert!(
        script
            .events()
            .contains(&"resumed main/answer t1".to_owned())
    );
}

#[test]
fn an_event_that_is_awaited_and_a_breadcrumb_that_is_written_have_their_variables_filled_in() {
    let (mut script, _) = Script::of(json!([
        {"wait_for": {"schema_name": "vote.v1", "all_tags": ["topic:${input.topic}"],
                      "context_match": [{"path": "$.n", "op": "gt", "value": "${input.list[0]}"}]}},
        {"emit": {"schema_name": "note.v1", "title": "On ${input.topic}", "tags": ["n:${last.n}"],
                  "context": {"vote": "${last}"}}},
    ]));
    let event = Selector::schema("vote.v1")
        .all_tags(["topic:rust"])
        .matching("$.n", "gt", 1);
    assert_eq!(script.task("main/0").task, StepTask::WaitFor { event });

    script.ok("main/0", json!({"n": 2}));

    let breadcrumb = NewBreadcrumb::new("note.v1")
        .title("On rust")
        .tag("n:2")
        .context(json!({"vote": {"n": 2}}));
    assert_eq!(script.task("main/1").task, StepTask::Emit { breadcrumb });
    assert_eq!(script.ok("main/1", json!("ignored")), ["done {\"n\":2}"]);
}

#[test]
fn a_value_that_is_missing_or_too_large_fails_the_step() {
    let (_, missing) = Script::of(json!([{"tool": "search", "input": "${input.gone}"}]));
    let (mut large, _) = Script::of(json!([{"tool": "search"}]));

    assert_eq!(missing, ["failed unresolved at main/0"]);
    assert_eq!(
        large.ok("main/0", json!("x".repeat(5_000))),
        ["failed too_large at main/0"]
    );
}

#[test]
fn an_unexpected_outcome_is_reported_and_changes_nothing() {
    let (mut script, _) = Script::of(json!([{"tool": "search", "retry": 2}, {"tool": "search"}]));
    script.tell("main/0", StepOutcome::TimedOut);
    let before = script.run.progress().clone();
    let done = || StepOutcome::success(json!(1));

    assert_eq!(
        script.step(|run| run.tell(&"main/0".into(), 1, done())),
        ["StaleAttempt { path: StepPath(\"main/0\"), attempt: 1 }"]
    );
    assert_eq!(
        script.step(|run| run.tell(&"main/1".into(), 1, done())),
        ["NotUnderWay { path: StepPath(\"main/1\") }"]
    );
    assert_eq!(
        script.step(|run| run.tell(&"main".into(), 1, done())),
        ["NotUnderWay { path: StepPath(\"main\") }"]
    );
    assert_eq!(*script.run.progress(), before);

    script.fails("main/0");

    assert_eq!(
        script.step(|run| run.tell(&"main/0".into(), 2, done())),
        ["AfterEnd"]
    );
    assert_eq!(script.step(FlowRun::cancel), ["AfterEnd"]);
}

#[test]
fn a_run_needs_a_flow_that_exists_and_an_input_within_limits() {
    let workflow = workflow(json!({"main": {"steps": [{"tool": "search"}]}}));

    let unknown = FlowRun::begin(Arc::clone(&workflow), "mains", "run", Value::Null).unwrap_err();
    let large = FlowRun::begin(workflow, "main", "run", json!("x".repeat(5_000))).unwrap_err();

    assert_eq!(
        unknown.to_string(),
        "the workflow has no flow \"mains\"; did you mean \"main\"?"
    );
    assert_eq!(large, RunError::InputTooLarge { most: 4_096 });
}

use super::*;

fn two_at_once() -> Value {
    json!([{"set": {"a": 7}}, {"parallel": [{"tool": "search", "input": "${a}"}, {"tool": "publish"}]}, {"tool": "search"}])
}

fn keys(ready: &[Ready]) -> Vec<(String, u32, bool)> {
    let ready = ready.iter();
    ready
        .map(|ready| (ready.idempotency_key.clone(), ready.attempt, ready.again))
        .collect()
}

#[test]
fn a_restarted_run_repeats_only_running_steps_with_the_same_key() {
    let (mut script, _) = Script::of(two_at_once());
    script.ok("main/1/1/0", json!("done"));
    script.restart();
    let before = script.run.progress().clone();

    let again = script.run.outstanding();

    assert_eq!(keys(&again), [("run/main/1/0/0".to_owned(), 1, true)]);
    assert_eq!(again[0].task, script.task("main/1/0/0").task);
    assert_eq!(*script.run.progress(), before);
    assert_eq!(keys(&script.run.outstanding()), keys(&again));
    assert_eq!(script.ok("main/1/0/0", json!("late")), ["do main/2"]);
}

#[test]
fn after_a_restart_a_retry_is_given_again_with_its_attempt_and_delay() {
    let (mut script, _) = Script::of(json!([{"tool": "search", "retry": 3}]));
    script.tell("main/0", StepOutcome::TimedOut);
    script.restart();

    let again = script.run.outstanding();

    assert_eq!(keys(&again), [("run/main/0".to_owned(), 2, true)]);
    assert_eq!(again[0].after, script.task("main/0").after);
}

#[test]
fn a_suspended_step_is_listed_as_waiting_and_not_as_outstanding() {
    let (mut script, _) = Script::of(json!([{"ask": "Go on?"}]));
    let ticket = "t".to_owned();
    script.tell("main/0", StepOutcome::Suspended { ticket });

    assert_eq!(script.run.outstanding(), []);
    assert_eq!(
        keys(&script.run.waiting()),
        [("run/main/0".to_owned(), 1, true)]
    );
}

#[test]
fn two_steps_cannot_wait_for_one_ticket() {
    let (mut script, _) = Script::of(json!([{"parallel": [{"ask": "One?"}, {"ask": "Two?"}]}]));
    let suspended = || StepOutcome::Suspended {
        ticket: "t".to_owned(),
    };

    assert_eq!(script.tell("main/0/0/0", suspended()), [""; 0]);
    assert_eq!(
        script.tell("main/0/1/0", suspended()),
        ["TicketInUse { ticket: \"t\" }"]
    );
}

#[test]
fn a_run_cannot_be_restored_with_another_definition() {
    let (script, _) = Script::of(two_at_once());
    let other = workflow(json!({"main": {"steps": [{"tool": "search"}]}}));

    let error = FlowRun::restore(other, script.run.progress().clone()).unwrap_err();

    assert!(matches!(error, RunError::OtherDefinition { .. }), "{error}");
}

#[test]
fn a_paused_run_starts_no_step_and_continues_after_unpause() {
    let (mut script, _) = Script::of(two_at_once());

    assert_eq!(script.step(FlowRun::pause), [""; 0]);
    assert_eq!(script.ok("main/1/0/0", json!(1)), [""; 0]);
    assert_eq!(script.ok("main/1/1/0", json!(2)), [""; 0]);
    assert_eq!(script.run.outstanding(), []);
    assert_eq!(script.step(FlowRun::unpause), ["do main/2"]);
    assert_eq!(script.ok("main/2", json!(3)), ["done 3"]);
}

#[test]
fn a_retry_waits_while_the_run_is_paused() {
    let (mut script, _) = Script::of(json!([{"tool": "search", "retry": 2}]));
    script.step(FlowRun::pause);

    assert_eq!(script.tell("main/0", StepOutcome::TimedOut), [""; 0]);
    assert_eq!(script.step(FlowRun::unpause), ["do main/0"]);
    assert_eq!(script.task("main/0").attempt, 2);
}

#[test]
fn a_cancelled_run_stops_all_that_is_under_way_and_closes_it_from_within() {
    let (mut script, _) = Script::of(two_at_once());

    assert_eq!(
        script.step(FlowRun::cancel),
        ["stop main/1/1/0", "stop main/1/0/0", "cancelled"]
    );
    let events = script.events();
    let end: Vec<_> = events.iter().skip(events.len() - 6).collect();
    assert_eq!(
        end,
        [
            "~main/1/1/0",
            "~main/1/1",
            "~main/1/0/0",
            "~main/1/0",
            "~main/1",
            "~main"
        ]
    );
}

#[test]
fn the_saved_progress_of_a_long_loop_stays_small() {
    let (mut script, _) = Script::of(json!([{"loop": [{"tool": "search"}], "max": 90}]));
    let mut sizes = Vec::new();
    for iteration in 1..90 {
        script.ok(&format!("main/0#{iteration}/0"), json!("x".repeat(100)));
        sizes.push(serde_json::to_string(script.run.progress()).unwrap().len());
    }

    assert!(sizes[88] < sizes[1] + 20, "{} then {}", sizes[1], sizes[88]);
}

//! Slots, reminders and exits.

use super::*;
use serde_json::Value;

fn reporting() -> Machine {
    machine(Policy::each().slot(Slot::required(REPORT)))
}

fn report(id: &str) -> Signal {
    asks(id, REPORT, json!({"done": id}))
}

fn outputs(machine: &Machine) -> Vec<(&str, Value)> {
    let outputs = machine.outputs();
    outputs
        .map(|(tool, json)| (tool, Value::clone(json)))
        .collect()
}

#[test]
fn of_two_reports_at_once_the_second_gets_an_error_result() {
    let mut machine = reporting();

    let effects = feed(
        &mut machine,
        [report("a"), report("b"), ok("a"), report("c")],
    );

    assert_eq!(effects[0], ["execute a"]);
    assert_eq!(effects[1], ["deliver b=already_reported"]);
    assert_eq!(effects[3], ["deliver c=already_reported"]);
    assert_eq!(outputs(&machine), [(REPORT, json!({"done": "a"}))]);
}

#[test]
fn a_report_that_is_sent_again_is_answered_as_the_first_one() {
    let mut machine = reporting();

    let effects = feed(&mut machine, [report("a"), ok("a"), report("a")]);

    assert_eq!(effects[2], ["deliver a=ok"]);
}

#[test]
fn a_report_that_fails_leaves_its_slot_to_another_one() {
    let mut machine = reporting();

    let effects = feed(&mut machine, [report("a"), err("a"), report("b"), ok("b")]);

    assert_eq!(effects[2], ["execute b"]);
    assert_eq!(outputs(&machine), [(REPORT, json!({"done": "b"}))]);
}

#[test]
fn a_report_that_is_cancelled_as_a_sibling_leaves_its_slot_to_another_one() {
    let policy = Policy::each().slot(Slot::required(REPORT));
    let mut machine = machine(policy.siblings(Siblings::Cancel));

    let before = [report("a"), received("b"), deferred("b"), resolved("b")];
    feed(&mut machine, before);

    assert_eq!(step(&mut machine, report("c")), ["execute c"]);
}

#[test]
fn a_plan_is_an_output_once_it_is_resolved_and_claims_its_slot_before() {
    let mut machine = machine(Policy::each().slot(Slot::optional("planner-output")));
    let plan = |id: &str| asks(id, "planner-output", json!(["dig", "build"]));
    let deferral = Deferral::PlannerOutput(json!(["dig", "build"]).into());
    feed(&mut machine, [plan("a"), ended("a", deferral)]);

    let second = step(&mut machine, plan("b"));
    let before = outputs(&machine).len();
    step(&mut machine, resolved("a"));

    assert_eq!(second, ["deliver b=already_reported"]);
    assert_eq!(before, 0);
    assert_eq!(outputs(&machine).len(), 1);
}

#[test]
fn a_report_survives_a_handoff_that_fails() {
    let mut machine = reporting();
    let failed = Signal::DeferredResolved {
        call_id: "b".into(),
        result: Answer::error("handoff_failed", "the child broke down"),
    };

    let before = [report("a"), ok("a"), received("b"), deferred("b"), failed];
    feed(&mut machine, before);

    assert_eq!(step(&mut machine, completed()), ["finish with \"bye\""]);
    assert_eq!(outputs(&machine).len(), 1);
}

#[test]
fn a_report_is_there_in_every_state() {
    let handed_in = [report("a"), ok("a")];
    let ways: [Vec<Signal>; 5] = [
        vec![],
        vec![received("b"), deferred("b")],
        vec![completed()],
        vec![broke()],
        vec![Signal::Cancel],
    ];
    for way in ways {
        let mut machine = reporting();
        feed(&mut machine, handed_in.clone());

        feed(&mut machine, way);

        assert_eq!(outputs(&machine).len(), 1, "{:?}", machine.state());
    }
}

#[test]
fn a_run_that_ends_without_a_required_report_is_reminded_once_and_then_ends_without_it() {
    let mut machine = reporting();

    let effects = feed(&mut machine, [completed(), completed()]);

    assert_eq!(effects[0], ["remind completion-report"]);
    assert_eq!(effects[1], ["finish without completion-report"]);
    assert_eq!(show_state(&machine), "complete");
}

#[test]
fn a_run_that_reports_after_its_reminder_ends_with_its_output() {
    let mut machine = reporting();

    let effects = feed(
        &mut machine,
        [completed(), report("a"), ok("a"), completed()],
    );

    assert_eq!(effects[3], ["finish with \"bye\""]);
}

#[test]
fn a_reminder_cancels_pending_calls_and_releases_a_claim() {
    let mut machine = reporting();

    let effects = feed(
        &mut machine,
        [
            received("a"),
            deferred("a"),
            report("b"),
            completed(),
            report("c"),
        ],
    );

    assert_eq!(
        effects[3],
        [
            "cancel a",
            "deliver a=cancelled b=cancelled",
            "remind completion-report"
        ]
    );
    assert_eq!(effects[4], ["execute c"]);
}

#[test]
fn a_policy_limits_the_number_of_reminders() {
    for times in [0, 3] {
        let policy = Policy::each().slot(Slot::required(REPORT));
        let mut machine = machine(policy.reminders(times));

        let reminders = (0..times)
            .map(|_| step(&mut machine, completed()))
            .filter(|effects| effects == &["remind completion-report"])
            .count();

        assert_eq!(reminders, times as usize);
        assert_eq!(
            step(&mut machine, completed()),
            ["finish without completion-report"]
        );
    }
}

#[test]
fn a_run_finishes_without_a_reminder_for_an_optional_output() {
    let mut machine = machine(Policy::each().slot(Slot::optional(REPORT)));

    assert_eq!(step(&mut machine, completed()), ["finish with \"bye\""]);
}

#[test]
fn a_run_that_fails_or_is_cancelled_is_not_reminded() {
    for (signal, exit) in [
        (broke(), "finish failed: died"),
        (Signal::Cancel, "finish cancelled"),
    ] {
        assert_eq!(step(&mut reporting(), signal), [exit]);
    }
}

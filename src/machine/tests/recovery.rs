//! Effects that a restarted worker receives from [`Machine::outstanding`].

use super::*;

/// Saves and loads the machine, as another worker does.
fn read_back(machine: &Machine) -> Machine {
    serde_json::from_str(&serde_json::to_string(machine).unwrap()).unwrap()
}

fn outstanding(policy: Policy, signals: impl IntoIterator<Item = Signal>) -> Vec<String> {
    let mut machine = machine(policy);
    feed(&mut machine, signals);
    show(&read_back(&machine).outstanding())
}

#[test]
fn calls_under_way_are_executed_again_in_the_order_requested_and_others_are_not() {
    let signals = [received("a"), received("b"), received("c"), ok("b")];

    assert_eq!(
        outstanding(Policy::each(), signals),
        ["execute a", "execute c"]
    );
}

#[test]
fn only_the_deferral_that_blocks_the_run_is_requested_again() {
    let signals = [
        received("a"),
        received("b"),
        received("c"),
        deferred("b"),
        deferred("a"),
        received("d"),
    ];

    assert_eq!(
        outstanding(Policy::each(), signals),
        ["execute c", "defer b"]
    );
}

#[test]
fn a_batch_is_redelivered_until_the_next_agent_message() {
    let turn = [and_more(received("a")), received("b"), ok("b"), ok("a")];
    let next = [turn.as_slice(), &[received("c")]].concat();

    assert_eq!(outstanding(Policy::batch(), turn), ["deliver a=ok b=ok"]);
    assert_eq!(outstanding(Policy::batch(), next), ["execute c"]);
}

#[test]
fn a_batch_that_waits_for_a_result_is_not_delivered() {
    let turn = [and_more(received("a")), received("b"), ok("b")];

    assert_eq!(outstanding(Policy::batch(), turn), ["execute a"]);
}

#[test]
fn a_reminder_is_repeated_until_the_next_agent_message() {
    let policy = || Policy::batch().slot(Slot::required(REPORT));
    let reminded = [received("a"), completed()];
    let heard = [reminded.as_slice(), &[received("b")]].concat();

    assert_eq!(
        outstanding(policy(), reminded),
        [
            "cancel a",
            "deliver a=cancelled",
            "remind completion-report"
        ]
    );
    assert_eq!(outstanding(policy(), heard), ["cancel a", "execute b"]);
}

#[test]
fn a_finished_run_repeats_its_finish_and_cancellation_effects() {
    let signals = [
        received("a"),
        received("b"),
        ok("b"),
        deferred("a"),
        received("c"),
        broke(),
    ];

    assert_eq!(
        outstanding(Policy::each(), signals),
        ["cancel a", "finish failed: died"]
    );
}

#[test]
fn nothing_is_outstanding_before_the_first_call_and_after_the_last_answer() {
    assert_eq!(outstanding(Policy::each(), []), [""; 0]);
    assert_eq!(
        outstanding(Policy::each(), [received("a"), ok("a")]),
        [""; 0]
    );
}

#[test]
fn a_driver_that_was_interrupted_in_a_turn_learns_which_of_its_calls_came() {
    let mut machine = machine(Policy::batch());
    let unreadable = asks("b", "adder", ToolArguments::parse("{"));
    let turn = [received("a"), unreadable, received("c")].map(and_more);
    feed(&mut machine, turn);
    step(&mut machine, ok("a"));

    let machine = read_back(&machine);

    let callers: Vec<&str> = machine.callers().map(CallId::as_str).collect();
    assert_eq!(callers, ["a", "b", "c"]);
    let pending: Vec<&str> = machine.pending().map(|call| call.id.as_str()).collect();
    assert_eq!(pending, ["c"]);
    assert_eq!(machine.run(), &run());
    assert_eq!(machine.policy(), &Policy::batch());
    assert_eq!(machine.exit(), None);
}

#[test]
fn a_batch_retains_answered_callers_until_the_next_agent_message() {
    for (policy, callers) in [(Policy::batch(), 1), (Policy::each(), 0)] {
        let mut machine = machine(policy);

        feed(&mut machine, [received("a"), ok("a")]);
        assert_eq!(machine.callers().count(), callers);

        feed(&mut machine, [received("b")]);
        assert_eq!(machine.callers().collect::<Vec<_>>(), [&CallId::new("b")]);
    }
}

#[test]
fn a_machine_and_its_effects_can_be_handed_to_another_thread() {
    fn shared<T: Send + Sync + 'static>() {}

    shared::<(Machine, Policy, Input, Effect, State)>();
}

#[test]
fn a_payload_is_equal_after_it_was_stored() {
    let mut machine = machine(Policy::each());
    let call = || {
        asks(
            "a",
            "adder",
            json!({"text": "nul \u{0}, e \u{e9}", "n": 1.5e300}),
        )
    };
    feed(&mut machine, [call(), ok("a")]);
    let saved = Json::from_text(serde_json::to_string(&machine).unwrap()).unwrap();

    let kept = saved.canonical(Json::MAX_BYTES).unwrap();
    let mut machine: Machine = kept.parse().unwrap();

    assert_eq!(step(&mut machine, call()), ["deliver a=ok"]);
}

#[test]
fn keys_in_another_order_are_the_same_payload() {
    let mut machine = machine(Policy::each());
    let text = |text: &str| asks("a", "adder", ToolArguments::parse(text));
    feed(&mut machine, [text(r#"{"a": 1, "b": 2}"#), ok("a")]);

    assert_eq!(
        step(&mut machine, text(r#"{"b":2,"a":1}"#)),
        ["deliver a=ok"]
    );
}

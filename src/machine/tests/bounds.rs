//! Calls and results over a limit, and unreadable arguments.

use super::*;
use serde_json::Value;

fn limited(change: impl FnOnce(&mut MachineLimits)) -> Machine {
    let mut limits = MachineLimits::default();
    change(&mut limits);
    machine(Policy::each().limits(limits))
}

/// Returns nested arrays, `levels` deep.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(0), |inner, _| Value::Array(vec![inner]))
}

fn big(bytes: usize) -> Value {
    json!("x".repeat(bytes))
}

#[test]
fn a_call_id_with_a_control_character_executes_nothing() {
    for id in ["a\0", "\n", "a\u{85}b"] {
        let mut machine = machine(Policy::default());

        let effects = step(&mut machine, received(id));

        assert_eq!(effects, [format!("deliver {id}=invalid_call_id")]);
    }
    assert_eq!(
        step(&mut machine(Policy::default()), received("a b-ä")),
        ["execute a b-ä"]
    );
}

#[test]
fn arguments_that_cannot_be_read_are_an_error_result_and_nothing_is_executed() {
    for policy in [Policy::each(), Policy::batch()] {
        let mut machine = machine(policy);
        let call = asks("a", "adder", ToolArguments::parse("{\"a\": 1"));

        let effects = machine.step(Input::new(&run(), call));

        let [Effect::Deliver(results)] = effects.as_slice() else {
            panic!("{effects:?}");
        };
        let Answer::Error { code, message } = &results[0].answer else {
            panic!("{results:?}");
        };
        assert_eq!(code, "invalid_arguments");
        assert!(message.contains("not valid JSON: EOF"), "{message}");
        assert!(message.ends_with("call again with valid JSON"), "{message}");
    }
}

#[test]
fn a_refused_call_may_use_its_id_again() {
    let mut machine = machine(Policy::each());
    let call = asks("a", "adder", ToolArguments::parse("{"));

    let effects = feed(&mut machine, [call, ok("a"), received("a")]);

    assert_eq!(effects[0], ["deliver a=invalid_arguments"]);
    assert_eq!(effects[1], ["report unknown a"]);
    assert_eq!(effects[2], ["execute a"]);
}

#[test]
fn a_known_call_id_with_unreadable_or_oversized_arguments_is_a_conflict() {
    for arguments in [
        ToolArguments::parse("{"),
        nested(20_000).into(),
        big(200_000).into(),
    ] {
        let mut machine = machine(Policy::each());
        step(&mut machine, received("a"));

        assert_eq!(
            step(&mut machine, asks("a", "adder", arguments)),
            ["report conflict a", "deliver a=conflicting_call"]
        );
    }
}

#[test]
fn a_saved_call_retains_the_raw_text_of_unreadable_arguments() {
    let call = MachineCall::new("a", "adder", ToolArguments::parse("{oops"));

    let back: MachineCall = serde_json::from_str(&serde_json::to_string(&call).unwrap()).unwrap();

    let ToolArguments::Unreadable { text, problem } = &back.arguments else {
        panic!("{back:?}");
    };
    assert_eq!(text, "{oops");
    assert!(
        problem.starts_with("the text is not valid JSON: "),
        "{problem}"
    );
    assert_eq!(back, call);
}

#[test]
fn blank_arguments_are_an_empty_object() {
    for text in ["", " \n"] {
        assert_eq!(ToolArguments::parse(text), json!({}).into());
    }
}

#[test]
fn a_call_that_is_too_large_or_too_deep_is_refused() {
    let depth = MachineLimits::DEPTH;
    for (arguments, effect) in [
        (nested(depth), "execute a"),
        (nested(depth + 1), "deliver a=too_large"),
        (nested(20_000), "deliver a=too_large"),
        (big(127 << 10), "execute a"),
        (big(128 << 10), "deliver a=too_large"),
    ] {
        let mut machine = machine(Policy::each());

        assert_eq!(step(&mut machine, asks("a", "adder", arguments)), [effect]);
    }
}

#[test]
fn ids_and_names_of_tools_count_as_parts_of_a_call() {
    let mut machine = machine(Policy::each());
    let long = "x".repeat(200_000);

    let id = step(&mut machine, received(&long));
    let tool = step(&mut machine, asks("a", &long, json!(1)));

    assert!(id[0].starts_with("deliver") && id[0].ends_with("=too_large"));
    assert_eq!(tool, ["deliver a=too_large"]);
}

#[test]
fn a_result_that_is_too_large_or_too_deep_becomes_an_error_result() {
    let question = Deferral::Other {
        kind: "question".to_owned(),
        payload: nested(20_000).into(),
    };
    let outcomes: [ToolOutcome; 6] = [
        Answer::success(big(128 << 10)).into(),
        Answer::success(nested(MachineLimits::DEPTH + 1)).into(),
        Answer::success(nested(20_000)).into(),
        Answer::error("e", "x".repeat(128 << 10)).into(),
        Deferral::PlannerOutput(big(128 << 10).into()).into(),
        question.into(),
    ];
    for outcome in outcomes {
        let mut machine = machine(Policy::each());
        step(&mut machine, received("a"));

        let effects = step(&mut machine, ended("a", outcome));

        assert_eq!(effects, ["deliver a=result_too_large"]);
    }
}

#[test]
fn the_answer_of_a_deferred_call_is_bounded_too() {
    let mut machine = machine(Policy::each());
    feed(&mut machine, [received("a"), deferred("a")]);
    let result = Answer::success(big(128 << 10));

    let effects = step(
        &mut machine,
        Signal::DeferredResolved {
            call_id: "a".into(),
            result,
        },
    );

    assert_eq!(effects, ["deliver a=result_too_large"]);
    assert_eq!(show_state(&machine), "running");
}

#[test]
fn an_output_of_the_agent_that_is_too_large_fails_the_run() {
    let mut machine = machine(Policy::each());
    let output = big(128 << 10).into();

    let effects = step(&mut machine, Signal::AgentCompleted { output });

    assert!(
        effects[0]
            .starts_with("finish failed: the output of the agent is larger than 131072 bytes"),
        "{effects:?}"
    );
}

#[test]
fn the_error_of_an_agent_is_cut_on_the_border_of_a_character() {
    let mut machine = machine(Policy::each());

    step(
        &mut machine,
        Signal::AgentFailed {
            error: format!("x{}", "\u{e9}".repeat(5_000)),
        },
    );

    let Some(Exit::Error { error }) = machine.exit() else {
        panic!("{:?}", machine.exit());
    };
    assert_eq!(error.len(), 4_095);
}

#[test]
fn a_run_makes_no_more_calls_than_it_may_even_if_they_were_forgotten() {
    let mut machine = limited(|limits| {
        limits.calls = 2;
        limits.answered_bytes = 0;
    });

    let effects = feed(
        &mut machine,
        [
            received("a"),
            ok("a"),
            received("b"),
            ok("b"),
            received("c"),
        ],
    );

    assert_eq!(effects[4], ["deliver c=too_many_calls"]);
}

#[test]
fn no_more_calls_are_pending_than_may_be_and_the_next_is_taken_once_one_is_answered() {
    let mut machine = limited(|limits| limits.pending = 1);

    let effects = feed(
        &mut machine,
        [received("a"), received("b"), ok("a"), received("b")],
    );

    assert_eq!(effects[1], ["deliver b=too_many_calls"]);
    assert_eq!(effects[3], ["execute b"]);
}

#[test]
fn callers_over_their_limit_are_refused_at_once_even_under_batch() {
    let limits = MachineLimits {
        callers: 2,
        ..MachineLimits::default()
    };
    let mut machine = machine(Policy::batch().limits(limits));
    let conflict = asks("a", "adder", json!(2));

    let effects = feed(
        &mut machine,
        [
            received("a"),
            received("a"),
            received("a"),
            received("b"),
            conflict,
            ok("a"),
        ],
    );

    assert_eq!(effects[2], ["deliver a=too_many_calls"]);
    assert_eq!(effects[3], ["deliver b=too_many_calls"]);
    assert_eq!(
        effects[4],
        ["report conflict a", "deliver a=conflicting_call"]
    );
    assert_eq!(effects[5], ["deliver a=ok a=ok"]);
}

#[test]
fn answers_over_their_limit_are_forgotten_oldest_first_and_never_executed_again() {
    let mut machine = limited(|limits| limits.answered_bytes = 1_200);
    let calls = ["a", "b", "c"].map(received);
    feed(&mut machine, calls);
    feed(&mut machine, ["c", "a", "b"].map(ok));

    let again = feed(&mut machine, ["c", "a", "b"].map(received));
    let ended = step(&mut machine, ok("c"));

    assert_eq!(again[0], ["deliver c=forgotten"]);
    assert_eq!(again[1], ["deliver a=ok"]);
    assert_eq!(again[2], ["deliver b=ok"]);
    assert_eq!(ended, ["report duplicate c"]);
}

#[test]
fn the_last_answer_is_retained_at_any_size() {
    let mut machine = limited(|limits| limits.answered_bytes = 0);

    let effects = feed(&mut machine, [received("a"), ok("a"), received("a")]);

    assert_eq!(effects[2], ["deliver a=ok"]);
}

#[test]
fn an_answer_is_not_forgotten_before_its_batch_has_arrived() {
    let limits = MachineLimits {
        answered_bytes: 0,
        ..MachineLimits::default()
    };
    let mut machine = machine(Policy::batch().limits(limits));
    let turn = [
        and_more(received("a")),
        and_more(received("b")),
        received("c"),
    ];
    feed(&mut machine, turn);

    let effects = feed(&mut machine, ["a", "b", "c"].map(ok));

    assert_eq!(effects[2], ["deliver a=ok b=ok c=ok"]);
    assert_eq!(show(&machine.outstanding()), ["deliver a=ok b=ok c=ok"]);
}

#[test]
fn a_call_that_finds_no_room_is_refused_and_an_answer_gives_way_first() {
    let mut machine = limited(|limits| limits.bytes = 200_000);
    let call = |id| asks(id, "adder", big(90_000));

    let effects = feed(
        &mut machine,
        [
            call("a"),
            call("b"),
            call("c"),
            ok("a"),
            call("d"),
            received("e"),
        ],
    );

    assert_eq!(effects[1], ["execute b"]);
    assert_eq!(effects[2], ["deliver c=too_many_calls"]);
    assert_eq!(effects[4], ["execute d"]);
    assert_eq!(step(&mut machine, call("a")), ["deliver a=forgotten"]);
    assert_eq!(effects[5], ["execute e"]);
}

#[test]
fn a_saved_machine_at_all_its_limits_fits_in_a_store() {
    for policy in [Policy::each(), Policy::batch()] {
        let mut machine = machine(policy.slot(Slot::required(REPORT)));
        let mut largest = 0;
        for n in 0..1_100 {
            fill_up(&mut machine, n);
            if n % 50 == 0 || n == 40 {
                let saved = serde_json::to_string(&machine).unwrap();
                largest = largest.max(saved.len());
                assert!(
                    Json::from_text(saved).is_ok(),
                    "{largest} bytes at call {n}"
                );
            }
        }
        let limit = MachineLimits::default().bytes;
        assert!(
            (limit / 2..limit + 1_000).contains(&largest),
            "{largest} bytes"
        );
    }
}

/// Sends signals that use as much memory as possible: in the ID, the arguments, a refused caller, and a result or deferral.
fn fill_up(machine: &mut Machine, n: usize) {
    let text = "\u{1}\"\\".repeat(3_000);
    let id = format!("{n}{}", "\"".repeat(40));
    let tool = if n == 0 { REPORT } else { "t" };
    let outcome: ToolOutcome = match n % 3 {
        0 => Answer::success(nested(MachineLimits::DEPTH)).into(),
        1 => Answer::error(&text, &text).into(),
        _ => Deferral::PlannerOutput(nested(MachineLimits::DEPTH).into()).into(),
    };
    let conflict = asks(&id, tool, ToolArguments::parse("\"\""));
    let call = asks(&id, tool, json!([text]));
    let signals = [and_more(call), and_more(conflict), ended(&id, outcome)];
    feed(machine, signals);
}

#[test]
fn a_deferral_makes_room_for_its_answer() {
    let mut machine = limited(|limits| limits.bytes = 100_000);
    let plan = Deferral::PlannerOutput(big(60_000).into());
    feed(&mut machine, [received("a"), ended("a", plan)]);
    let result = Answer::success(big(60_000));
    let call_id = "a".into();

    let effects = step(&mut machine, Signal::DeferredResolved { call_id, result });

    assert!(
        effects[0].starts_with("deliver a=xxx"),
        "{:.99}",
        effects[0]
    );
}

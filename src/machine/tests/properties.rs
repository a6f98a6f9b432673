//! Property tests: random inputs in random order, checked by comparing inputs and effects.

use super::*;
use crate::machine::calls::Phase;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;

const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];

fn policies() -> impl Strategy<Value = Policy> {
    let limits = select(vec![
        MachineLimits::default(),
        MachineLimits {
            pending: 2,
            answered_bytes: 0,
            ..MachineLimits::default()
        },
        MachineLimits {
            calls: 3,
            answered_bytes: 1_200,
            ..MachineLimits::default()
        },
        MachineLimits {
            callers: 3,
            bytes: 4_000,
            ..MachineLimits::default()
        },
    ]);
    let deliveries = select(vec![ResultDelivery::Batch, ResultDelivery::Each]);
    let siblings = select(vec![Siblings::Finish, Siblings::Cancel]);
    let suspended = select(vec![WhileSuspended::Queue, WhileSuspended::Refuse]);
    (
        deliveries,
        siblings,
        suspended,
        limits,
        any::<bool>(),
        0_u32..3,
    )
        .prop_map(|(delivery, siblings, suspended, limits, slot, reminders)| {
            let mut policy = Policy::each()
                .siblings(siblings)
                .while_suspended(suspended)
                .limits(limits)
                .reminders(reminders);
            policy.delivery = delivery;
            if slot {
                policy.slot(Slot::required(REPORT))
            } else {
                policy
            }
        })
}

fn signals() -> impl Strategy<Value = Signal> {
    let id = || select(IDS.to_vec());
    let payloads = select(vec![
        ToolArguments::from(json!({"n": 1})),
        ToolArguments::from(json!({"n": 2})),
        ToolArguments::parse("{"),
        ToolArguments::from(json!("x".repeat(2_000))),
    ]);
    let payload = prop_oneof![4 => Just(ToolArguments::from(json!({"n": 1}))), 1 => payloads];
    let tool = select(vec!["adder", "adder", REPORT]);
    let call = (id(), tool, payload, any::<bool>());
    let call = call.prop_map(|(id, tool, arguments, more)| match more {
        true => and_more(asks(id, tool, arguments)),
        false => asks(id, tool, arguments),
    });
    prop_oneof![
        40 => call,
        20 => id().prop_map(ok),
        5 => id().prop_map(err),
        10 => id().prop_map(deferred),
        12 => id().prop_map(resolved),
        2 => Just(completed()),
        1 => Just(broke()),
        1 => Just(Signal::Cancel),
    ]
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let run = prop_oneof![15 => Just("run"), 1 => Just("old")];
    let input = (run, signals()).prop_map(|(run, signal)| Input::new(&RunId::new(run), signal));
    proptest::collection::vec(input, 0..60)
}

/// Applies the inputs and a final cancellation. Returns each input with its effects, and `true` if the run had ended before.
fn play(policy: Policy, inputs: Vec<Input>) -> Vec<(Input, Vec<Effect>, bool)> {
    let mut machine = machine(policy);
    let end = Input::new(&run(), Signal::Cancel);
    let all = inputs.into_iter().chain([end]);
    all.map(|input| {
        let over = machine.exit().is_some();
        let effects = machine.step(input.clone());
        (input, effects, over)
    })
    .collect()
}

/// Returns the call ID if the input is a call for this run.
fn caller(input: &Input) -> Option<CallId> {
    match &input.signal {
        Signal::ToolCallReceived { call, .. } if input.run == run() => Some(call.id.clone()),
        _ => None,
    }
}

fn delivered(effects: &[Effect]) -> Vec<ToolResult> {
    let results = effects.iter().filter_map(|effect| match effect {
        Effect::Deliver(results) => Some(results.clone()),
        _ => None,
    });
    results.flatten().collect()
}

fn executed(effects: &[Effect]) -> Vec<CallId> {
    let calls = effects.iter().filter_map(|effect| match effect {
        Effect::Execute(call) => Some(call.id.clone()),
        _ => None,
    });
    calls.collect()
}

fn cancelled(effects: &[Effect]) -> Vec<CallId> {
    let calls = effects.iter().filter_map(|effect| match effect {
        Effect::CancelCall(call_id) => Some(call_id.clone()),
        _ => None,
    });
    calls.collect()
}

fn counted<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(item).or_default() += 1;
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn each_caller_is_answered_exactly_once(policy in policies(), inputs in inputs()) {
        let played = play(policy, inputs);

        let callers = counted(played.iter().filter_map(|(input, _, _)| caller(input)));
        let results = played.iter().flat_map(|(_, effects, _)| delivered(effects));
        let answered = counted(results.map(|result| result.call_id));

        prop_assert_eq!(callers, answered);
    }

    #[test]
    fn no_call_is_answered_before_it_came_and_no_answer_is_late(policy in policies(), inputs in inputs()) {
        let each = policy.delivery == ResultDelivery::Each;
        let mut waiting: Vec<CallId> = Vec::new();
        let mut machine = machine(policy);
        for input in inputs {
            waiting.extend(caller(&input));
            for result in delivered(&machine.step(input)) {
                let at = waiting.iter().position(|id| *id == result.call_id);
                prop_assert!(at.is_some(), "no caller waits for {:?}", result);
                waiting.remove(at.unwrap());
            }
            let pending: Vec<_> = machine.pending().map(|call| call.id.clone()).collect();
            prop_assert!(!each || waiting.iter().all(|id| pending.contains(id)));
        }
    }

    #[test]
    fn no_call_is_executed_twice(
        policy in policies(), inputs in inputs(),
    ) {
        let played = play(policy, inputs);

        let executed = counted(played.iter().flat_map(|(_, effects, _)| executed(effects)));

        prop_assert!(executed.values().all(|times| *times == 1), "{:?}", executed);
    }

    #[test]
    fn every_executed_call_ends_or_is_cancelled(policy in policies(), inputs in inputs()) {
        let mut under_way: Vec<CallId> = Vec::new();
        for (input, effects, over) in play(policy, inputs) {
            let reported = effects.iter().any(|effect| matches!(effect, Effect::Report(_)));
            if !reported && !over {
                match &input.signal {
                    Signal::ToolCallFinished { call_id, outcome: ToolOutcome::Answered(_) }
                    | Signal::DeferredResolved { call_id, .. } => under_way.retain(|id| id != call_id),
                    _ => {}
                }
            }
            for id in cancelled(&effects) {
                prop_assert!(under_way.contains(&id), "call {} was cancelled but is not in progress", id);
                under_way.retain(|one| *one != id);
            }
            under_way.extend(executed(&effects));
        }

        // A deferral over its limit would be answered immediately, but no deferral reaches the limits of these policies.
        prop_assert!(under_way.is_empty(), "{:?}", under_way);
    }

    #[test]
    fn batches_are_in_the_order_requested(policy in policies(), inputs in inputs()) {
        let limits = MachineLimits::default();
        let policy = Policy { delivery: ResultDelivery::Batch, limits, ..policy };
        let played = play(policy, inputs);

        let callers: Vec<_> = played.iter().filter_map(|(input, _, _)| caller(input)).collect();
        let results = played.iter().flat_map(|(_, effects, _)| delivered(effects));
        let answered: Vec<_> = results.map(|result| result.call_id).collect();

        prop_assert_eq!(callers, answered);
    }

    #[test]
    fn after_the_end_there_are_reports_and_cancelled_callers(policy in policies(), inputs in inputs()) {
        for (_, effects, over) in play(policy, inputs) {
            if over {
                prop_assert!(matches!(effects[0], Effect::Report(_)), "{:?}", effects);
                prop_assert!(effects.len() == 1 + delivered(&effects).len(), "{:?}", effects);
            }
            for result in delivered(&effects).iter().filter(|_| over) {
                prop_assert_eq!(show_result(result), format!("{}=cancelled", result.call_id));
            }
        }
    }

    #[test]
    fn a_run_finishes_exactly_once(policy in policies(), inputs in inputs()) {
        let played = play(policy, inputs);

        let effects = played.iter().flat_map(|(_, effects, _)| effects);
        let finished = effects.filter(|effect| matches!(effect, Effect::Finish(_))).count();

        prop_assert_eq!(finished, 1);
    }

    #[test]
    fn saving_and_reading_back_at_every_step_changes_nothing(policy in policies(), inputs in inputs()) {
        let mut kept = machine(policy.clone());
        let mut saved = machine(policy);
        for input in inputs {
            let text = serde_json::to_string(&saved).unwrap();
            saved = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&saved, &kept);

            let effects = kept.step(input.clone());
            prop_assert_eq!(saved.step(input), effects);
            prop_assert_eq!(saved.outstanding(), kept.outstanding());
        }
    }

    #[test]
    fn recorded_inputs_played_again_give_the_same(policy in policies(), inputs in inputs()) {
        let text = serde_json::to_string(&inputs).unwrap();
        let recorded: Vec<Input> = serde_json::from_str(&text).unwrap();
        let (mut first, mut second) = (machine(policy.clone()), machine(policy));

        let effects: Vec<_> = inputs.into_iter().map(|input| first.step(input)).collect();
        let again: Vec<_> = recorded.into_iter().map(|input| second.step(input)).collect();

        prop_assert_eq!(effects, again);
        prop_assert_eq!(first, second);
    }

    #[test]
    fn effects_survive_being_recorded(policy in policies(), inputs in inputs()) {
        for (_, effects, _) in play(policy, inputs) {
            let text = serde_json::to_string(&effects).unwrap();

            prop_assert_eq!(serde_json::from_str::<Vec<Effect>>(&text).unwrap(), effects);
        }
    }

    #[test]
    fn inputs_of_other_runs_change_nothing(policy in policies(), inputs in inputs()) {
        let (mut all, mut own) = (machine(policy.clone()), machine(policy));
        for input in inputs {
            if input.run == run() {
                drop(own.step(input.clone()));
            }
            drop(all.step(input));
            prop_assert_eq!(&all, &own);
        }
    }

    #[test]
    fn a_recovered_machine_executes_running_calls_and_waits_for_deferred_calls(
        policy in policies(), inputs in inputs(),
    ) {
        let mut machine = machine(policy);
        for input in inputs {
            drop(machine.step(input));
            let again = machine.outstanding();
            let executed = executed(&again);
            let mut waiting = Vec::new();
            if let State::Suspended { deferred, behind } = machine.state() {
                let defer = Effect::from(deferred.clone());
                prop_assert!(again.contains(&defer), "{:?}", again);
                waiting.extend([deferred.call_id.clone()]);
                waiting.extend(behind.iter().map(|one| one.call_id.clone()));
            }
            let suspended = matches!(machine.state(), State::Suspended { .. });
            for (call, phase) in machine.calls.pending() {
                let covered = match phase {
                    Phase::Executing => executed.contains(&call.id),
                    Phase::Deferred => waiting.contains(&call.id),
                    Phase::Queued => suspended,
                    Phase::Answered(_) | Phase::Cancelled | Phase::Forgotten => false,
                };
                prop_assert!(covered, "call {} in phase {:?} is lost", call.id, phase);
            }
        }
    }
}

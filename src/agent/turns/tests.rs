use super::calls;
use super::progress::{Next, Progress};
use crate::agent::output::Output;
use crate::agent::{AgentRunError, Arguments, ChatResponse, Message, Speaker, ToolCall};
use crate::machine::Answer;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;

fn definition() -> crate::agent::AgentDefinition {
    let definition = json!({
        "agent_id": "worker", "max_turns": 100,
        "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
    });
    crate::agent::AgentDefinition::from_json(&definition).unwrap()
}

/// The same after a restart.
fn saved(progress: &Progress) -> Progress {
    progress.to_json().unwrap().parse().unwrap()
}

/// A call with one of a few ids, whose arguments may be no JSON.
fn call() -> impl Strategy<Value = ToolCall> {
    let arguments = prop_oneof![Just("{}"), Just(r#"{"a": 1}"#), Just("{")];
    ("[a-d:]{1,2}", arguments)
        .prop_map(|(id, text)| ToolCall::new(id, "tool", Arguments::from_text(text)))
}

proptest! {
    #[test]
    fn each_call_is_told_once_in_its_order_and_made_once_whatever_finishes_first_and_whenever_it_is_saved(
        turns in prop::collection::vec(prop::collection::vec(call(), 1..6), 1..5),
        order in prop::collection::vec(any::<prop::sample::Index>(), 30),
        restarts in prop::collection::vec(any::<bool>(), 60),
    ) {
        let definition = definition();
        let (mut order, mut restarts) = (order.into_iter(), restarts.into_iter());
        let mut progress = Progress::new("run");
        let mut made: HashMap<String, usize> = HashMap::new();

        for asked in &turns {
            prop_assert_eq!(progress.next(), Next::Ask);
            let before = progress.said().len();
            progress.hear(&ChatResponse::calling(asked.clone()), &definition, None).unwrap();
            while let Next::Call(calls) = progress.next() {
                if restarts.next() == Some(true) {
                    progress = saved(&progress);
                }
                let place = order.next().map_or(0, |order| order.index(calls.len()));
                let id = calls[place].id.clone();
                *made.entry(id.to_string()).or_default() += 1;
                progress.finish(id.clone(), Answer::success(json!(id.as_str())));
            }

            let said = &progress.said()[before..];
            prop_assert_eq!(said[0].tool_calls.len(), asked.len());
            let told: Vec<_> = said[1..].iter().map(|told| told.call_id.as_deref().unwrap()).collect();
            let expected: Vec<_> = asked.iter().map(|call| &*call.id).collect();
            prop_assert_eq!(told, expected);
            // What is told of a call is its own result, or an error.
            let turn = progress.spent.turns;
            for (message, call) in said[1..].iter().zip(asked) {
                prop_assert_eq!(message.speaker, Speaker::Tool);
                let own = calls::id(turn, call);
                prop_assert!(message.is_error || message.text == own.as_str());
            }
        }
        progress.hear(&ChatResponse::new("done"), &definition, None).unwrap();

        prop_assert_eq!(saved(&progress).next(), Next::Done);
        prop_assert!(made.values().all(|made| *made == 1), "{:?}", made);
        prop_assert_eq!(&progress.response(None).unwrap()["message"], "done");
    }
}

#[test]
fn a_call_that_finds_no_room_is_told_so_and_the_others_go_on() {
    let mut progress = Progress::new("run");
    let long = "x".repeat(200 << 10);
    let asked = vec![
        ToolCall::new(long, "tool", json!({})),
        ToolCall::new("2", "tool", json!({})),
    ];
    progress
        .hear(&ChatResponse::calling(asked), &definition(), None)
        .unwrap();

    let Next::Call(calls) = progress.next() else {
        panic!("{:?}", progress.next())
    };
    progress.finish(calls[0].id.clone(), Answer::success(json!(2)));

    assert_eq!(calls.len(), 1);
    let [first, second] = &progress.said()[1..] else {
        panic!("{:?}", progress.said().len())
    };
    assert!(first.is_error && first.text.starts_with("too_large: "));
    assert_eq!(*second, Message::tool_result("2", "2"));
}

#[test]
fn an_answer_that_does_not_fit_what_is_asked_for_by_now_is_an_error() {
    let mut progress = Progress::new("run");
    let answer = ChatResponse::new("It rains.");
    progress.hear(&answer, &definition(), None).unwrap();
    let output = Output::new("worker", &json!({"type": "object"}).into()).unwrap();

    let error = progress.response(Some(&output)).unwrap_err();

    assert!(matches!(error, AgentRunError::BadOutput { raw, .. } if raw == "It rains."));
}

#[test]
fn what_a_tool_answers_is_told_as_text_or_as_json() {
    for (output, text) in [
        (json!("It rains."), "It rains."),
        (json!({"rain": true}), r#"{"rain":true}"#),
        (Value::Null, "null"),
    ] {
        assert_eq!(calls::message("1", Answer::success(output)).text, text);
    }
}

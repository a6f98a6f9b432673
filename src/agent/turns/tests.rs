use super::progress::{NextStep, Progress};
use crate::agent::api::Conversation;
use crate::agent::output::Output;
use crate::agent::{
    AgentDefinition, AgentRunError, ChatMessage, ChatResponse, ModelArguments, ProviderEvent,
    Speaker, ToolCall,
};
use crate::machine::{Answer, CallId, Effect, ResultDelivery};
use proptest::prelude::*;
use serde_json::json;
use std::collections::HashMap;

fn definition() -> AgentDefinition {
    let definition = json!({
        "agent_id": "worker", "max_turns": 100,
        "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
    });
    AgentDefinition::from_json(&definition).unwrap()
}

/// A run with a model behind an API: its progress and its conversation.
struct TestRun {
    progress: Progress,
    conversation: Conversation,
    definition: AgentDefinition,
}

impl TestRun {
    fn new() -> Self {
        let definition = definition();
        Self {
            progress: Progress::new("run", ResultDelivery::Batch, &definition),
            conversation: Conversation::default(),
            definition,
        }
    }

    /// Returns the run after a restart.
    fn saved(self) -> Self {
        Self {
            progress: self.progress.to_json().unwrap().parse().unwrap(),
            conversation: self.conversation.save().unwrap().parse().unwrap(),
            definition: self.definition,
        }
    }

    /// Processes an answer of the model, and delivers results that are available immediately.
    fn process_answer(&mut self, answer: &ChatResponse) {
        let event = self.conversation.add_answer(answer);
        let next_step = self
            .progress
            .handle_event(event, &self.definition, None)
            .unwrap();
        let NextStep::Effects(effects) = next_step else {
            panic!("{next_step:?}")
        };
        self.deliver_results(effects);
    }

    fn finish(&mut self, call: CallId, answer: Answer) {
        let effects = self.progress.finish(call, answer.into());
        self.deliver_results(effects);
    }

    fn deliver_results(&mut self, effects: Vec<Effect>) {
        let mut results = Vec::new();
        for effect in effects {
            if let Effect::Deliver(delivered) = effect {
                results.extend(delivered);
            }
        }
        if self.calls().is_empty() && !results.is_empty() {
            self.conversation.deliver(results);
        }
    }

    /// Returns the calls without a result.
    fn calls(&self) -> Vec<CallId> {
        let pending = self.progress.machine.pending();
        pending.map(|call| call.id.clone()).collect()
    }

    fn messages(&self) -> Vec<ChatMessage> {
        self.conversation.said.clone()
    }
}

/// Generates a call with one of a few IDs. The arguments can be invalid JSON.
fn call() -> impl Strategy<Value = ToolCall> {
    let arguments = prop_oneof![Just("{}"), Just(r#"{"a": 1}"#), Just("{")];
    ("[a-d:]{1,2}", arguments)
        .prop_map(|(id, text)| ToolCall::new(id, "tool", ModelArguments::from_text(text)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn each_call_is_made_once_and_reported_in_order_across_restarts(
        turns in prop::collection::vec(prop::collection::vec(call(), 1..6), 1..5),
        order in prop::collection::vec(any::<prop::sample::Index>(), 30),
        restarts in prop::collection::vec(any::<bool>(), 60),
    ) {
        let (mut order, mut restarts) = (order.into_iter(), restarts.into_iter());
        let mut run = TestRun::new();
        let mut made: HashMap<String, usize> = HashMap::new();

        for (turn, calls) in turns.iter().enumerate() {
            prop_assert!(run.progress.may_request_model());
            let before = run.messages().len();
            run.process_answer(&ChatResponse::calling(calls.clone()));
            while !run.progress.may_request_model() {
                if restarts.next() == Some(true) {
                    run = run.saved();
                }
                let calls = run.calls();
                let index = order.next().map_or(0, |order| order.index(calls.len()));
                let id = calls[index].clone();
                *made.entry(id.to_string()).or_default() += 1;
                run.finish(id.clone(), Answer::success(json!(id.as_str())));
            }

            let messages = run.messages().split_off(before);
            prop_assert_eq!(messages[0].tool_calls().len(), calls.len());
            let call_ids: Vec<_> = messages[1..].iter().map(|result| result.call_id().unwrap()).collect();
            let expected: Vec<_> = calls.iter().map(|call| &*call.id).collect();
            prop_assert_eq!(call_ids, expected);
            // The result of each call is its own result or an error.
            for (message, call) in messages[1..].iter().zip(calls) {
                prop_assert_eq!(message.speaker, Speaker::Tool);
                let own = format!("{}:{}", turn + 1, call.id);
                prop_assert!(message.is_error() || message.text() == own);
            }
        }
        run.process_answer(&ChatResponse::new("done"));

        let run = run.saved();
        prop_assert!(made.values().all(|made| *made == 1), "{:?}", made);
        let response = run.progress.response(None).unwrap().unwrap();
        prop_assert_eq!(&response["message"], "done");
    }
}

#[test]
fn a_call_over_the_size_limit_is_an_error_and_other_calls_continue() {
    let mut run = TestRun::new();
    let long = "x".repeat(200 << 10);
    let calls = vec![
        ToolCall::new(long, "tool", json!({})),
        ToolCall::new("2", "tool", json!({})),
    ];

    run.process_answer(&ChatResponse::calling(calls));
    let calls = run.calls();
    run.finish(calls[0].clone(), Answer::success(json!(2)));

    assert_eq!(calls.len(), 1);
    let messages = run.messages();
    let [_, first, second] = &*messages else {
        panic!("{}", messages.len())
    };
    assert!(first.is_error() && first.text().starts_with("too_large: "));
    assert_eq!(*second, ChatMessage::tool_result("2", "2"));
}

#[test]
fn delivered_results_are_not_added_twice() {
    let mut run = TestRun::new();
    run.process_answer(&ChatResponse::calling(vec![ToolCall::new(
        "1",
        "tool",
        json!({}),
    )]));
    let call = run.calls().remove(0);
    run.finish(call, Answer::success(json!(1)));
    let messages = run.messages();

    for effect in run.progress.machine.outstanding() {
        if let Effect::Deliver(results) = effect {
            run.conversation.deliver(results);
        }
    }

    assert_eq!(run.messages(), messages);
}

#[test]
fn an_answer_that_does_not_match_the_current_output_schema_is_an_error() {
    let mut run = TestRun::new();
    run.process_answer(&ChatResponse::new("It rains."));
    let output = Output::new("worker", &json!({"type": "object"}).into()).unwrap();

    let error = run.progress.response(Some(&output)).unwrap().unwrap_err();

    assert!(matches!(error, AgentRunError::BadOutput { raw, .. } if raw == "It rains."));
}

#[test]
fn a_tool_result_is_sent_as_plain_text_or_json() {
    for (output, text) in [
        (json!("It rains."), "It rains."),
        (json!({"rain": true}), r#"{"rain":true}"#),
        (json!(null), "null"),
    ] {
        let mut run = TestRun::new();
        run.process_answer(&ChatResponse::calling(vec![ToolCall::new(
            "1",
            "tool",
            json!({}),
        )]));
        let call = run.calls().remove(0);

        run.finish(call, Answer::success(output));

        assert_eq!(run.messages()[1].text(), text);
    }
}

#[test]
fn of_an_answer_that_was_cut_off_the_last_call_is_not_made() {
    let answer = ChatResponse::calling(vec![
        ToolCall::new("1", "tool", json!({"a": 1})),
        ToolCall::new("2", "tool", json!({})),
    ]);
    let answer = answer.with_stop(crate::agent::StopReason::MaxTokens);

    let ProviderEvent::Calls { calls, .. } = Conversation::default().add_answer(&answer) else {
        panic!("expected tool calls")
    };

    let readable = |call: &crate::machine::MachineCall| {
        matches!(call.arguments, crate::machine::ToolArguments::Json(_))
    };
    assert_eq!(
        calls.iter().map(readable).collect::<Vec<_>>(),
        [true, false]
    );
}

#[test]
fn progress_that_was_saved_without_tool_requests_still_loads() {
    let saved = TestRun::new().progress.to_json().unwrap();
    let mut older = saved.into_value();
    for field in ["requested", "requesting_answers"] {
        assert!(older.as_object_mut().unwrap().remove(field).is_some());
    }
    older["ended"] = json!({
        "text": "Hello.", "cut_off": false, "results": [], "delegated": false, "returned": false,
    });

    let progress: Progress = crate::model::Json::from(older).parse().unwrap();

    assert!(progress.to_json().is_ok());
}

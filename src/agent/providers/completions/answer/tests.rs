use super::*;
use crate::agent::model::Collector;
use crate::agent::{ChatRequest, ChatResponse, ToolSpec};
use proptest::prelude::*;
use serde_json::json;

fn origin() -> PartOrigin {
    PartOrigin::new("openai:example.com", Some("tiny"))
}

fn reader() -> AnswerReader {
    AnswerReader::new(Names::default(), origin(), None)
}

/// Returns the answer of some pieces, read in order.
fn answer(pieces: &[Value]) -> Result<ChatResponse, ModelError> {
    let (mut reader, mut events) = (reader(), Vec::new());
    for piece in pieces {
        reader.read(piece.to_string().as_bytes(), &mut events)?;
    }
    events.extend(reader.finish(false)?);
    let mut collector = Collector::default();
    for event in events {
        collector.push(event)?;
    }
    collector.finish()
}

fn delta(calls: &Value) -> Value {
    json!({"choices": [{"delta": {"tool_calls": calls}}]})
}

fn over() -> Value {
    json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
}

fn names_and_arguments(response: &ChatResponse) -> Vec<(&str, &str)> {
    let calls = response.tool_calls().into_iter();
    calls
        .map(|call| (&*call.name, call.arguments.text()))
        .collect()
}

#[test]
fn pieces_of_calls_are_put_together_by_their_index() {
    let response = answer(&[
        delta(&json!([{"index": 0, "id": "a", "function": {"name": "one", "arguments": ""}}])),
        delta(
            &json!([{"index": 1, "id": "b", "function": {"name": "two", "arguments": "{\"n\""}}]),
        ),
        delta(
            &json!([{"index": 0, "function": {"arguments": "{}"}}, {"index": 1, "function": {"arguments": ":2}"}}]),
        ),
        over(),
    ]);

    let response = response.unwrap();
    assert_eq!(
        names_and_arguments(&response),
        [("one", "{}"), ("two", "{\"n\":2}")]
    );
    assert_eq!(response.tool_calls()[1].id, "b");
}

#[test]
fn calls_with_the_same_index_are_distinguished_by_their_ids() {
    let response = answer(&[
        delta(&json!([{"index": 0, "id": "a", "function": {"name": "one", "arguments": "{}"}}])),
        delta(&json!([{"index": 0, "id": "b", "function": {"name": "two", "arguments": "{}"}}])),
        over(),
    ]);

    assert_eq!(
        names_and_arguments(&response.unwrap()),
        [("one", "{}"), ("two", "{}")]
    );
}

#[test]
fn calls_without_index_and_id_are_as_many_as_there_are_and_get_ids() {
    let response = answer(&[
        json!({"choices": [{"finish_reason": "stop", "message": {"content": null, "tool_calls": [
            {"function": {"name": "one", "arguments": "{}"}}, {"function": {"name": "one", "arguments": {"n": 1}}},
        ]}}]}),
    ]);

    let response = response.unwrap();
    assert_eq!(
        names_and_arguments(&response),
        [("one", "{}"), ("one", "{\"n\":1}")]
    );
    assert_ne!(response.tool_calls()[0].id, response.tool_calls()[1].id);
    assert_eq!(response.stop, StopReason::ToolCalls);
}

#[test]
fn calls_without_index_and_id_are_separated_by_their_names() {
    let response = answer(&[
        delta(&json!([{"function": {"name": "one", "arguments": "{"}}])),
        delta(&json!([{"function": {"name": "", "arguments": "}"}}])),
        delta(&json!([{"function": {"name": "one", "arguments": "{}"}}])),
        over(),
    ]);

    assert_eq!(
        names_and_arguments(&response.unwrap()),
        [("one", "{}"), ("one", "{}")]
    );
}

#[test]
fn whole_calls_with_the_same_id_stay_two_calls() {
    let call = json!({"id": "a", "function": {"name": "one", "arguments": "{}"}});
    let message = json!({"tool_calls": [call, call]});

    let response =
        answer(&[json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]})]);

    assert_eq!(
        names_and_arguments(&response.unwrap()),
        [("one", "{}"), ("one", "{}")]
    );
}

#[test]
fn more_calls_than_the_limit_are_refused() {
    let calls: Vec<_> = (0..=ChatResponse::MAX_TOOL_CALLS)
        .map(|n| json!({"index": n, "id": n.to_string(), "function": {"name": "one"}}))
        .collect();

    let error = answer(&[delta(&json!(calls)), over()]).unwrap_err();

    assert!(matches!(error, ModelError::TooLarge { .. }), "{error:?}");
}

#[test]
fn a_text_in_parts_is_one_text() {
    let parts = json!([{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]);
    let piece = json!({"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]});

    assert_eq!(answer(&[piece]).unwrap().text(), "Hello");
}

#[test]
fn only_the_first_choice_counts() {
    let response = answer(&[json!({"choices": [
        {"index": 0, "message": {"content": "one"}, "finish_reason": "stop"},
        {"index": 1, "message": {"content": "two"}, "finish_reason": "length"},
    ]})]);

    let response = response.unwrap();
    assert_eq!(
        (&*response.text(), response.stop),
        ("one", StopReason::Finished)
    );
}

#[test]
fn an_interrupted_choice_is_an_unavailable_error() {
    let message = json!({"content": "Half of"});
    let with = |field: &str, value: Value| {
        let mut choice = json!({"message": message, "finish_reason": "error"});
        choice[field] = value;
        answer(&[json!({"choices": [choice]})])
    };

    let error_with_details = with("error", json!({"code": 502, "message": "upstream failed"}));
    let error_without_details = with("error", Value::Null);
    let empty = answer(&[json!({"choices": [{"delta": message, "finish_reason": ""}]})]);

    for broken in [error_with_details, error_without_details, empty] {
        assert!(
            matches!(broken, Err(ModelError::Unavailable(_))),
            "{broken:?}"
        );
    }
}

#[test]
fn a_tool_that_goes_by_another_name_on_the_wire_has_its_own_in_the_answer() {
    let request = ChatRequest::default().tool(ToolSpec::new("weather.get", "", json!({})));
    let (mut reader, mut events) = (
        AnswerReader::new(Names::new(&request), origin(), None),
        Vec::new(),
    );
    let piece = delta(&json!([{"index": 0, "id": "a", "function": {"name": "weather_get"}}]));

    reader
        .read(piece.to_string().as_bytes(), &mut events)
        .unwrap();

    let first = ToolCallDelta::first(0, "a", "weather.get");
    assert_eq!(events, [ChatEvent::ToolCall(first)]);
}

#[test]
fn state_of_the_provider_that_could_not_be_saved_is_a_bad_answer() {
    let deep = (0..40).fold(json!(1), |inner, _| json!([inner]));
    let call = json!({"index": 0, "id": "a", "function": {"name": "one"}, "extra_content": deep});

    let error = answer(&[delta(&json!([call])), over()]).unwrap_err();

    assert!(matches!(error, ModelError::BadAnswer { .. }), "{error:?}");
}

#[test]
fn thoughts_count_towards_the_limit_of_an_answer() {
    let thought = "x".repeat(1 << 20);
    let piece = json!({"choices": [{"delta": {"reasoning_content": thought}}]});

    let error = answer(&vec![piece; 5]).unwrap_err();

    assert!(matches!(error, ModelError::TooLarge { .. }), "{error:?}");
}

#[test]
fn an_error_does_not_repeat_the_unreadable_input() {
    for text in [
        "{\"choices\": \"s3cret\"}",
        "s3cret",
        "{\"s3cret\": ",
        "[]",
        "{}",
    ] {
        let error = reader().read(text.as_bytes(), &mut Vec::new()).unwrap_err();

        assert!(matches!(error, ModelError::BadAnswer { .. }), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
}

/// Generates JSON similar to an answer, with arbitrary values in the relevant fields.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let any_json = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        "[a-c\\\\\"{}]{0,4}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
    ];
    let call = (any_json.clone(), any_json.clone(), any_json.clone()).prop_map(
        |(index, id, arguments)| json!({"index": index, "id": id, "function": {"name": "f", "arguments": arguments}}),
    );
    let calls = prop::collection::vec(call, 0..4);
    let near = (calls, any_json.clone(), any_json).prop_map(|(calls, content, reason)| {
        let delta = json!({"content": content, "tool_calls": calls});
        json!({"choices": [{"delta": delta, "finish_reason": reason}]})
            .to_string()
            .into_bytes()
    });
    prop_oneof![4 => near, 1 => prop::collection::vec(any::<u8>(), 0..30)]
}

proptest! {
    #![proptest_config(crate::fuzz::config())]

    #[test]
    fn any_bytes_give_events_that_can_be_collected_or_an_error(pieces in prop::collection::vec(piece(), 0..8)) {
        let (mut reader, mut events) = (reader(), Vec::new());
        let read = pieces.iter().all(|piece| reader.read(piece, &mut events).is_ok());

        let mut collector = Collector::default();
        for event in events {
            prop_assert!(collector.push(event).is_ok());
        }
        if read && let Ok(end) = reader.finish(true) {
            for event in end {
                prop_assert!(collector.push(event).is_ok());
            }
            prop_assert!(collector.finish().is_ok());
        }
    }

    #[test]
    fn a_text_cut_into_any_pieces_is_the_same_text(texts in prop::collection::vec(".{0,6}", 0..8)) {
        let pieces = texts.iter().map(|text| json!({"choices": [{"delta": {"content": text}}]}));
        let pieces: Vec<_> = pieces.chain([over()]).collect();

        let answer = answer(&pieces).unwrap();
        prop_assert_eq!(answer.text(), texts.concat());
    }
}

#[test]
fn a_stream_that_exceeds_the_size_limit_is_an_error() {
    let long = "x".repeat(512 << 10);
    let text = json!({"choices": [{"delta": {"content": long}}]}).to_string();
    let call =
        delta(&json!([{"index": 0, "id": "a", "function": {"arguments": long}}])).to_string();
    for piece in [text, call] {
        let mut reader = reader();
        let read = (0..20).try_for_each(|_| reader.read(piece.as_bytes(), &mut Vec::new()));

        assert!(matches!(read, Err(ModelError::TooLarge { .. })), "{read:?}");
    }
}

/// Returns the pieces of an answer as a provider streams them.
fn chunks(tape: &mut crate::fuzz::Tape) -> Vec<crate::fuzz::Bytes> {
    let chunks = (0..=tape.below(6)).map(|_| {
        let text = crate::fuzz::CHUNK.text(tape);
        crate::fuzz::bytes(tape, &text)
    });
    chunks.collect()
}

fn are_collected_or_refused(chunks: &Vec<crate::fuzz::Bytes>) -> bool {
    let (mut reader, mut events) = (reader(), Vec::new());
    let mut read = Ok(());
    for chunk in chunks {
        read = read.and_then(|()| reader.read(chunk, &mut events));
    }
    let read = read.and_then(|()| reader.finish(true));
    let mut collector = Collector::default();
    let collected = events
        .into_iter()
        .try_for_each(|event| collector.push(event));
    assert!(collected.is_ok(), "{collected:?}");
    match read {
        Ok(end) => {
            for event in end {
                collector.push(event).unwrap();
            }
            let answer = collector.finish().unwrap();
            assert!(answer.tool_calls().len() <= ChatResponse::MAX_TOOL_CALLS);
            assert!(answer.tool_calls().iter().all(|call| !call.id.is_empty()));
            true
        }
        Err(error) => {
            assert!(error.to_string().len() < 4_096, "{error}");
            false
        }
    }
}

#[test]
fn any_stream_of_chunks_is_collected_or_refused() {
    crate::fuzz::structured(chunks, are_collected_or_refused);
}

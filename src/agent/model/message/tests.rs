use super::*;
use crate::agent::model::{ChatResponse, Media};
use crate::model::BreadcrumbId;
use proptest::prelude::*;
use serde_json::{Value, json};

fn read(saved: &Value) -> ChatMessage {
    serde_json::from_value(saved.clone()).unwrap()
}

/// Returns each kind of message in the saved form of earlier versions.
fn earlier() -> Vec<(Value, ChatMessage)> {
    let call = json!({"id": "1", "name": "weather", "arguments": "{\"city\": \"Bergen\"}"});
    let weather = ToolCall::new("1", "weather", "{\"city\": \"Bergen\"}".to_owned());
    vec![
        (
            json!({"speaker": "system", "text": "Help."}),
            ChatMessage::system("Help."),
        ),
        (
            json!({"speaker": "user", "text": "Hi"}),
            ChatMessage::new(Speaker::User, [Part::Text("Hi".to_owned())]),
        ),
        (
            json!({"speaker": "user", "data": {"summary": "They met."}}),
            ChatMessage::new(
                Speaker::User,
                [Part::Data(json!({"summary": "They met."}).into())],
            ),
        ),
        (
            json!({"speaker": "user", "data": null}),
            ChatMessage::data(Value::Null),
        ),
        (
            json!({"speaker": "assistant", "text": ""}),
            ChatMessage::new(Speaker::Assistant, []),
        ),
        (
            json!({"speaker": "assistant", "text": "I look.", "tool_calls": [call]}),
            ChatMessage::new(
                Speaker::Assistant,
                [
                    Part::Text("I look.".to_owned()),
                    Part::ToolCall(weather.clone()),
                ],
            ),
        ),
        (
            json!({"speaker": "assistant", "text": "", "tool_calls": [call]}),
            ChatMessage::new(Speaker::Assistant, [Part::ToolCall(weather)]),
        ),
        (
            json!({"speaker": "tool", "text": "Rain", "call_id": "1"}),
            ChatMessage::tool_result("1", "Rain"),
        ),
        (
            json!({"speaker": "tool", "text": "gone", "call_id": "1", "is_error": true}),
            ChatMessage::tool_error("1", "gone"),
        ),
    ]
}

#[test]
fn each_message_in_the_earlier_format_is_read_and_saved_unchanged() {
    for (saved, message) in earlier() {
        assert_eq!(read(&saved), message, "{saved}");
        assert_eq!(serde_json::to_value(&message).unwrap(), saved);
    }
}

#[test]
fn a_response_in_the_earlier_format_is_read_and_saved_unchanged() {
    let usage = json!({"input_tokens": 1, "output_tokens": 2});
    let call = json!({"id": "1", "name": "a", "arguments": "{}"});
    let saved = [
        json!({"text": "Hi", "usage": usage, "stop": "finished"}),
        json!({"text": "", "tool_calls": [call], "usage": usage, "stop": "tool_calls"}),
    ];
    for saved in saved {
        let response: ChatResponse = serde_json::from_value(saved.clone()).unwrap();

        assert_eq!(response.text(), saved["text"].as_str().unwrap());
        let calls = saved["tool_calls"].as_array().map_or(0, Vec::len);
        assert_eq!(response.tool_calls().len(), calls);
        assert_eq!(serde_json::to_value(&response).unwrap(), saved);
    }
}

fn private() -> [Part; 2] {
    let origin = PartOrigin::new("openai:example.com", Some("tiny"));
    let signature = Opaque::new("extra_content", json!({"a": [1]}), origin.clone());
    [
        Part::Reasoning(Reasoning::new("Hm.", "reasoning_content", origin)),
        Part::Opaque(signature.of_call("1")),
    ]
}

#[test]
fn reasoning_and_provider_state_are_saved_in_order_and_excluded_from_the_text() {
    let call = ToolCall::new("1", "weather", json!({}));
    let message = ChatMessage::calls("I look.", vec![call])
        .with(private()[0].clone())
        .with(private()[1].clone());

    let saved = serde_json::to_value(&message).unwrap();

    assert_eq!(read(&saved), message);
    assert_eq!(message.text(), "I look.");
    let names: Vec<_> = saved["parts"].as_array().unwrap().iter().collect();
    assert_eq!(names[2]["reasoning"]["text"], "Hm.");
    assert_eq!(names[3]["opaque"]["value"], json!({"a": [1]}));
}

#[test]
fn an_image_is_saved_as_a_reference() {
    let media = Media::new(BreadcrumbId::NIL, "photo", "image/png", 3).name("bird.png");
    let message = ChatMessage::user("Which bird?").with(Part::Image(media));

    let saved = serde_json::to_value(&message).unwrap();

    assert_eq!(read(&saved), message);
    let expected = json!({
        "breadcrumb": BreadcrumbId::NIL, "path": "photo", "media_type": "image/png", "size": 3, "name": "bird.png",
    });
    assert_eq!(saved["parts"][1]["image"], expected);
}

#[test]
fn a_message_of_data_is_saved_without_its_fence_and_shown_with_one() {
    for data in [json!("a page"), json!({"a": [1]}), json!(null)] {
        let message = ChatMessage::data(data.clone());

        let saved = serde_json::to_value(&message).unwrap();

        assert_eq!(saved, json!({"speaker": "user", "data": data}));
        assert_eq!(read(&saved), message);
        let fence = format!("{data}\n```");
        let text = message.text();
        assert!(
            text.contains("```json data-") && text.contains(&fence),
            "{text}"
        );
    }
}

#[cfg(feature = "workflows")]
#[test]
fn data_that_is_cut_stays_inside_a_fence() {
    for data in [json!("é".repeat(1_000)), json!({"a": "x".repeat(1_000)})] {
        let mut message = ChatMessage::data(data);

        message.truncate(100);

        let text = message.text();
        assert!(text.len() < 600 && text.ends_with("\n```\n"), "{text}");
    }
}

#[cfg(feature = "workflows")]
#[test]
fn a_message_that_is_cut_has_its_text_alone() {
    let mut message = ChatMessage::calls("I look.", vec![ToolCall::new("1", "a", json!({}))]);
    message.parts.extend(private());

    message.truncate(100);

    assert_eq!(message, ChatMessage::assistant("I look."));
}

#[test]
fn the_size_of_a_message_counts_every_part() {
    let mut message = ChatMessage::assistant("I look.");
    let mut size = message.size();
    let media = Media::new(BreadcrumbId::NIL, "photo", "image/png", 3);
    let more = [
        Part::ToolCall(ToolCall::new("1", "a", json!({}))),
        Part::Image(media),
        Part::Data(json!([1]).into()),
    ];
    for part in more.into_iter().chain(private()) {
        message.parts.push(part);
        assert!(message.size() > size, "{message:?}");
        size = message.size();
    }
}

#[cfg(feature = "workflows")]
#[test]
fn a_call_that_is_removed_takes_its_state_along() {
    let calls = ["1", "2"].map(|id| ToolCall::new(id, "a", json!({})));
    let mut message = ChatMessage::calls("", calls.to_vec());
    message.parts.extend(private());

    message.retain_calls(|call| call.id == "2");

    assert_eq!(message.parts.len(), 2, "{message:?}");
    assert_eq!(message.tool_calls()[0].id, "2");
    assert!(matches!(message.parts[1], Part::Reasoning(_)));
}

#[test]
fn successive_messages_of_the_user_are_joined_in_order_and_others_stay_apart() {
    let media = Media::new(BreadcrumbId::NIL, "photo", "image/png", 3);
    let page = ChatMessage::data(json!("page"));
    let messages = [
        ChatMessage::system("Help."),
        page.clone(),
        ChatMessage::user("Hi"),
        ChatMessage::user("Look.").with(Part::Image(media)),
        ChatMessage::assistant("Yes?"),
        ChatMessage::assistant("Well?"),
        ChatMessage::user("Who?"),
    ];

    let joined = ChatMessage::joined(&messages);

    assert_eq!(joined.len(), 5, "{joined:?}");
    assert_eq!(joined[1].text(), format!("{}Hi\n\nLook.", page.text()));
    assert!(joined[1].has_media());
    assert_eq!(joined[2..], messages[4..]);
}

proptest! {
    #[test]
    fn any_parts_survive_being_saved(
        texts in prop::collection::vec(".{0,8}", 0..4),
        calls in prop::collection::vec((".{0,4}", ".{0,8}"), 0..3),
        with_private in any::<bool>(),
    ) {
        let texts = texts.into_iter().map(Part::Text);
        let calls = calls.into_iter().map(|(id, text)| Part::ToolCall(ToolCall::new(id, "t", text)));
        let mut message = ChatMessage::new(Speaker::Assistant, texts.chain(calls));
        if with_private {
            message.parts.extend(private());
        }

        let saved = serde_json::to_string(&message).unwrap();

        prop_assert_eq!(serde_json::from_str::<ChatMessage>(&saved).unwrap(), message);
    }
}

//! Answers that arrive in pieces.

use super::{builder, client, completion, hello, streamed};
use crate::server::{Reply, Server, head};
use futures::TryStreamExt;
use serde_json::{Value, json};
use std::time::Duration;
use universal_executor::agent::{
    ChatEvent, ChatModel, ChatResponse, ModelError, StopReason, ToolCallDelta, Usage,
};

fn event(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    format!("data: {}\n\n", json!({"choices": [choice]}))
}

/// Returns a stream of text, a tool call in two pieces, the finish reason, the token usage, and the end marker.
fn stream() -> String {
    let begin = json!({"tool_calls": [{"index": 0, "id": "1", "function": {"name": "a", "arguments": ""}}]});
    let more = json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"n\": 1}"}}]});
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}});
    [
        ": a comment\n\n".to_owned(),
        event(&json!({"role": "assistant", "content": "Grüß "}), None),
        event(&json!({"content": "dich"}), None),
        event(&begin, None),
        event(&more, None),
        event(&json!({}), Some("tool_calls")),
        format!("data: {usage}\n\n"),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat()
}

async fn answer(pieces: &[&[u8]]) -> Result<ChatResponse, ModelError> {
    let server = Server::start(Reply::events(pieces)).await;
    streamed(&client(&server), &hello()).await
}

#[tokio::test]
async fn an_answer_comes_as_texts_calls_costs_and_an_end() {
    let server = Server::start(Reply::events(&[stream().as_bytes()])).await;

    let stream = client(&server).stream(&hello()).await.unwrap();
    let events: Vec<_> = stream.try_collect().await.unwrap();

    assert_eq!(
        events,
        [
            ChatEvent::Text("Grüß ".into()),
            ChatEvent::Text("dich".into()),
            ChatEvent::ToolCall(ToolCallDelta::first(0, "1", "a")),
            ChatEvent::ToolCall(ToolCallDelta::more(0, "{\"n\": 1}")),
            ChatEvent::Usage(Usage::new(5, 7)),
            ChatEvent::End(StopReason::ToolCalls),
        ]
    );
    assert_eq!(server.only().body["stream"], true);
    assert_eq!(
        server.only().body["stream_options"],
        json!({"include_usage": true})
    );
}

#[tokio::test]
async fn a_stream_collected_is_the_answer_that_chat_gives() {
    let call = json!({"id": "1", "type": "function", "function": {"name": "a", "arguments": "{\"n\": 1}"}});
    let message = json!({"role": "assistant", "content": "Grüß dich", "tool_calls": [call]});
    let whole = json!({
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 7},
    });
    let server = Server::start(Reply::json(200, &whole)).await;

    let asked = client(&server).chat(&hello()).await.unwrap();

    assert_eq!(answer(&[stream().as_bytes()]).await.unwrap(), asked);
}

#[tokio::test]
async fn a_stream_is_read_correctly_from_chunks_of_one_byte() {
    let text = stream();
    let bytes: Vec<_> = text.as_bytes().chunks(1).collect();
    let crlf = text.replace('\n', "\r\n");

    let whole = answer(&[text.as_bytes()]).await.unwrap();

    assert_eq!(answer(&bytes).await.unwrap(), whole);
    assert_eq!(answer(&[crlf.as_bytes()]).await.unwrap(), whole);
}

#[tokio::test]
async fn a_stream_with_a_finish_reason_needs_no_end_marker() {
    let text = stream().replace("data: [DONE]\n\n", "");

    assert_eq!(
        answer(&[text.as_bytes()]).await.unwrap().stop,
        StopReason::ToolCalls
    );
}

#[tokio::test]
async fn an_interrupted_stream_is_an_error_after_the_received_events() {
    let text = event(&json!({"content": "Once"}), None);
    let server = Server::start(Reply::events(&[text.as_bytes()])).await;

    let mut stream = client(&server).stream(&hello()).await.unwrap();
    let first = stream.try_next().await.unwrap();
    let error = stream.try_next().await.unwrap_err();

    assert_eq!(first, Some(ChatEvent::Text("Once".into())));
    assert!(matches!(error, ModelError::Unavailable(_)), "{error:?}");
    assert!(matches!(stream.try_next().await, Ok(None)));
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_stream_is_the_error_it_names() {
    let errors = [
        json!({"error": {"message": "slow down", "code": 429}}),
        json!({"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}}),
        json!({"error": {"message": "the server had an error", "type": "server_error"}}),
    ];
    let mut found = Vec::new();
    for error in errors {
        let text = event(&json!({"content": "Once"}), None) + &format!("data: {error}\n\n");
        found.push(answer(&[text.as_bytes()]).await.unwrap_err());
    }

    assert!(
        matches!(
            &found[..],
            [
                ModelError::RateLimited { .. },
                ModelError::ContextTooLong,
                ModelError::Unavailable(_)
            ]
        ),
        "{found:?}"
    );
}

#[tokio::test]
async fn an_event_with_invalid_json_is_a_bad_answer() {
    let error = answer(&[b"data: {\"choices\": [\n\n"]).await.unwrap_err();

    assert!(matches!(error, ModelError::BadAnswer { .. }), "{error:?}");
}

#[tokio::test]
async fn an_endpoint_that_cannot_stream_answers_all_the_same() {
    let server = Server::start(Reply::json(200, &completion("Hi Ann"))).await;

    let response = streamed(&client(&server), &hello()).await.unwrap();

    assert_eq!(response.text(), "Hi Ann");
}

#[tokio::test]
async fn a_refusal_in_pieces_is_a_refusal() {
    let text = event(&json!({"refusal": "I will "}), None)
        + &event(&json!({"refusal": "not."}), Some("stop"))
        + "data: [DONE]\n\n";

    let error = answer(&[text.as_bytes()]).await.unwrap_err();

    assert!(
        matches!(&error, ModelError::Refused { reason } if reason == "I will not."),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_endless_line_exceeds_the_size_limit() {
    let reply = Reply::Endless(head(200, "text/event-stream", &[], None));
    let server = Server::start(reply).await;

    let error = streamed(&client(&server), &hello()).await.unwrap_err();

    assert!(
        matches!(error, ModelError::TooLarge { limit, .. } if limit == 1 << 20),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_stream_larger_than_the_limit_is_too_large() {
    let text = event(&json!({"content": "more and more"}), None).repeat(100);
    let server = Server::start(Reply::events(&[text.as_bytes()])).await;
    let model = builder(&server).max_bytes(1000).build().unwrap();

    let error = streamed(&model, &hello()).await.unwrap_err();

    assert!(
        matches!(error, ModelError::TooLarge { limit: 1000, .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_silent_stream_times_out_after_the_received_events() {
    let text =
        head(200, "text/event-stream", &[], None) + &event(&json!({"content": "Once"}), None);
    let server = Server::start(Reply::Silence(text.into_bytes())).await;
    let model = builder(&server)
        .read_timeout(Duration::from_secs(1))
        .build()
        .unwrap();

    let mut stream = model.stream(&hello()).await.unwrap();
    let first = stream.try_next().await.unwrap();
    let error = stream.try_next().await.unwrap_err();

    assert_eq!(first, Some(ChatEvent::Text("Once".into())));
    assert!(
        matches!(error, ModelError::TimedOut { to: "continue" }),
        "{error:?}"
    );
}

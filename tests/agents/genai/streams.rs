//! Answers that arrive in pieces.

use super::wire::{self, anthropic, begin, called, end, gemini, said};
use super::{PROVIDERS, answer, builder, client, hello};
use crate::server::{Reply, Server, head};
use futures::TryStreamExt;
use serde_json::json;
use std::time::Duration;
use universal_executor::agent::{
    ChatEvent, ChatModel, ChatResponse, ModelError, StopReason, ToolCallDelta, Usage,
};

#[tokio::test]
async fn an_answer_in_words_has_its_text_its_costs_and_an_end() {
    for provider in PROVIDERS {
        let text = wire::text(provider, "Grüß dich");

        let answer = answer(provider, wire::reply(provider, &[text.as_bytes()])).await;

        let expected = ChatResponse::new("Grüß dich").with_usage(Usage::new(9, 2));
        assert_eq!(answer.unwrap(), expected, "{provider}");
    }
}

#[tokio::test]
async fn tools_that_are_called_side_by_side_are_all_there_in_their_order() {
    for provider in PROVIDERS {
        let text = wire::calls(provider);

        let answer = answer(provider, wire::reply(provider, &[text.as_bytes()])).await;

        let answer = answer.unwrap();
        assert_eq!(answer.text(), "I look.", "{provider}");
        assert_eq!(answer.stop, StopReason::ToolCalls, "{provider}");
        let calls: Vec<_> = answer
            .tool_calls()
            .iter()
            .map(|call| (&*call.name, call.arguments.json().unwrap()["n"].as_u64()))
            .collect();
        assert_eq!(calls, [("a", Some(1)), ("b", Some(2))], "{provider}");
        assert_ne!(answer.tool_calls()[0].id, answer.tool_calls()[1].id);
        assert!(answer.tool_calls().iter().all(|call| !call.id.is_empty()));
    }
}

#[tokio::test]
async fn a_stream_is_read_correctly_from_chunks_of_one_byte() {
    for provider in PROVIDERS {
        let text = wire::text(provider, "Grüß dich, 你好");
        let bytes: Vec<_> = text.as_bytes().chunks(1).collect();

        let answer = answer(provider, wire::reply(provider, &bytes)).await;

        assert_eq!(answer.unwrap().text(), "Grüß dich, 你好", "{provider}");
    }
}

#[tokio::test]
async fn texts_come_at_once_and_calls_when_the_answer_has_ended() {
    let text = wire::calls("anthropic");
    let server = Server::start(wire::reply("anthropic", &[text.as_bytes()])).await;

    let stream = client("anthropic", &server).stream(&hello()).await.unwrap();
    let events: Vec<_> = stream.try_collect().await.unwrap();

    let call = |index, id: &str, name: &str, arguments: &str| {
        let mut call = ToolCallDelta::first(index, id, name);
        call.arguments = arguments.to_owned();
        ChatEvent::ToolCall(call)
    };
    assert_eq!(
        events,
        [
            ChatEvent::Text("I look.".into()),
            call(0, "t1", "a", r#"{"n":1}"#),
            call(1, "t2", "b", r#"{"n":2}"#),
            ChatEvent::Usage(Usage::new(9, 2)),
            ChatEvent::End(StopReason::ToolCalls),
        ]
    );
}

#[tokio::test]
async fn a_call_with_invalid_json_retains_its_text_and_affects_no_other_call() {
    let text = anthropic(&[
        begin(),
        called(0, "t1", "a", &["{\"n\": 1, ", "oops"]),
        called(1, "t2", "b", &["{\"n\": 2}"]),
        called(2, "t3", "c", &[]),
        end("tool_use"),
    ]);

    let answer = answer("anthropic", wire::reply("anthropic", &[text.as_bytes()])).await;

    let answer = answer.unwrap();
    let calls = answer.tool_calls();
    assert_eq!(calls[0].arguments.text(), "{\"n\": 1, oops");
    assert!(calls[0].arguments.json().is_err());
    assert_eq!(*calls[1].arguments.json().unwrap(), json!({"n": 2}));
    assert_eq!(*calls[2].arguments.json().unwrap(), json!({}));
}

#[tokio::test]
async fn a_call_truncated_by_the_token_limit_is_reported_as_truncated() {
    let mut cut = called(0, "t1", "a", &["{\"n\": "]);
    cut.pop();
    let text = anthropic(&[begin(), cut, end("max_tokens")]);

    let answer = answer("anthropic", wire::reply("anthropic", &[text.as_bytes()])).await;

    let answer = answer.unwrap();
    assert_eq!(answer.stop, StopReason::MaxTokens);
    assert_eq!(answer.tool_calls()[0].arguments.text(), "{\"n\": ");
}

#[tokio::test]
async fn calls_without_provider_ids_receive_unique_ids() {
    let call = json!([{"functionCall": {"name": "a", "args": {}}}]);
    let text = gemini(&[&call, &call, &call], Some("STOP"));

    let answer = answer("gemini", wire::reply("gemini", &[text.as_bytes()])).await;

    let answer = answer.unwrap();
    let mut ids = answer.tool_calls();
    ids.sort_by(|a, b| a.id.cmp(&b.id));
    ids.dedup_by(|a, b| a.id == b.id);
    assert_eq!(ids.len(), 3);
}

#[tokio::test]
async fn an_interrupted_stream_is_an_error_after_the_received_events() {
    let anthropic = anthropic(&[begin(), said(0, &["Once"])]);
    let gemini = gemini(&[&json!([{"text": "Once"}])], None);
    let ollama = wire::ollama(&[json!({"message": {"content": "Once"}, "done": false})]);
    for (provider, text) in PROVIDERS.iter().zip([anthropic, gemini, ollama]) {
        let server = Server::start(wire::reply(provider, &[text.as_bytes()])).await;

        let mut stream = client(provider, &server).stream(&hello()).await.unwrap();
        let first = stream.try_next().await.unwrap();
        let error = stream.try_next().await.unwrap_err();

        assert_eq!(first, Some(ChatEvent::Text("Once".into())), "{provider}");
        assert!(matches!(error, ModelError::Unavailable(_)), "{error:?}");
        assert!(matches!(stream.try_next().await, Ok(None)), "{provider}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_of_an_answer_is_tried_again() {
    for provider in PROVIDERS {
        let head = head(200, wire::kind(provider), &[], Some(100_000));
        let text = wire::text(provider, "Once upon a time");
        let half = text.as_bytes()[..text.len() / 3].to_vec();

        let error = answer(provider, Reply::Bytes(vec![head.into_bytes(), half]))
            .await
            .unwrap_err();

        assert!(
            matches!(error, ModelError::Unavailable(_)),
            "{provider} {error:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_of_more_than_four_mebibytes_is_given_up() {
    let piece = "x".repeat(64 << 10);
    let pieces = vec![&*piece; 65];
    let text = anthropic(&[begin(), said(0, &pieces), end("end_turn")]);

    let error = answer("anthropic", wire::reply("anthropic", &[text.as_bytes()]))
        .await
        .unwrap_err();

    assert!(
        matches!(error, ModelError::TooLarge { limit, .. } if limit == ChatResponse::MAX_BYTES),
        "{error:?}"
    );
}

#[tokio::test]
async fn calls_of_more_than_four_mebibytes_are_given_up() {
    let piece = "x".repeat(64 << 10);
    let mut pieces = vec![&*piece; 64];
    pieces.insert(0, "{\"n\": \"");
    pieces.push("\"}");
    let text = anthropic(&[begin(), called(0, "t1", "a", &pieces), end("tool_use")]);

    let error = answer("anthropic", wire::reply("anthropic", &[text.as_bytes()]))
        .await
        .unwrap_err();

    assert!(matches!(error, ModelError::TooLarge { .. }), "{error:?}");
}

#[tokio::test]
async fn empty_events_count_against_the_size_limit() {
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n".repeat(1000);
    let nothing = "event: other\ndata: {\"type\": \"other\"}\n\n".repeat(1000);
    for text in [ping, nothing] {
        let server = Server::start(wire::reply("anthropic", &[text.as_bytes()])).await;
        let model = builder("anthropic", &server).max_bytes(10_000);

        let error = model.build().unwrap().chat(&hello()).await.unwrap_err();

        assert!(
            matches!(error, ModelError::TooLarge { limit: 10_000, .. }),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn a_silent_stream_times_out_after_the_received_events() {
    let text =
        head(200, "text/event-stream", &[], None) + &anthropic(&[begin(), said(0, &["Once"])]);
    let server = Server::start(Reply::Silence(text.into_bytes())).await;
    let model = builder("anthropic", &server).read_timeout(Duration::from_secs(1));

    let mut stream = model.build().unwrap().stream(&hello()).await.unwrap();
    let first = stream.try_next().await.unwrap();
    let error = stream.try_next().await.unwrap_err();

    assert_eq!(first, Some(ChatEvent::Text("Once".into())));
    assert!(
        matches!(error, ModelError::TimedOut { to: "continue" }),
        "{error:?}"
    );
}

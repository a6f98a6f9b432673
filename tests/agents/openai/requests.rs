//! Request bodies, and the results of successful answers.

use super::{KEY, builder, client, completion, hello};
use crate::server::{Reply, Server};
use serde_json::{Value, json};
use universal_executor::BoxError;
use universal_executor::agent::{
    ChatMessage, ChatModel, ChatRequest, ChatResponse, ModelError, OpenAiCompatible, ProviderError,
    ResponseSchema, Secret, StopReason, ToolCall, ToolChoice, ToolSpec, Usage,
};

/// Sends a request. Returns the body that the server received.
async fn sent(request: &ChatRequest) -> Value {
    let server = Server::start(Reply::json(200, &completion("Hi"))).await;
    client(&server).chat(request).await.unwrap();
    server.only().body
}

#[tokio::test]
async fn a_question_is_posted_with_the_key_and_answered() {
    let server = Server::start(Reply::json(200, &completion("Hi Ann"))).await;

    let response = client(&server).chat(&hello()).await.unwrap();

    let seen = server.only();
    assert_eq!(seen.line, "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(
        seen.header("authorization"),
        Some(&*format!("Bearer {KEY}"))
    );
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(
        seen.body,
        json!({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]})
    );
    assert_eq!(
        response,
        ChatResponse::new("Hi Ann").with_usage(Usage::new(9, 2))
    );
}

#[tokio::test]
async fn without_a_key_no_credentials_are_sent() {
    let server = Server::start(Reply::json(200, &completion("Hi"))).await;
    let model = OpenAiCompatible::builder(server.base_url())
        .build()
        .unwrap();

    model.chat(&hello()).await.unwrap();

    assert_eq!(server.only().header("authorization"), None);
    assert_eq!(server.only().body.get("model"), None);
}

#[tokio::test]
async fn a_key_function_is_called_before_each_request() {
    let server = Server::start(Reply::json(200, &completion("Hi"))).await;
    let number = std::sync::atomic::AtomicU32::new(0);
    let ask = move || {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move { Ok::<_, BoxError>(Secret::new(format!("key-{number}\n"))) }
    };
    let model = builder(&server).key_from(ask).build().unwrap();

    model.chat(&hello()).await.unwrap();
    model.chat(&hello()).await.unwrap();

    let keys: Vec<_> = server
        .requests()
        .iter()
        .map(|seen| seen.header("authorization").map(str::to_owned))
        .collect();
    assert_eq!(
        keys,
        [
            Some("Bearer key-0".to_owned()),
            Some("Bearer key-1".to_owned())
        ]
    );
}

#[tokio::test]
async fn a_function_that_has_no_key_makes_the_model_unavailable_and_nothing_is_sent() {
    let server = Server::start(Reply::json(200, &completion("Hi"))).await;
    let ask = || async { Err::<Secret, BoxError>("the vault is sealed".into()) };
    let model = builder(&server).key_from(ask).build().unwrap();

    let error = model.chat(&hello()).await.unwrap_err();

    assert!(matches!(error, ModelError::Unavailable(_)), "{error:?}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn the_key_may_come_from_the_environment() {
    let server = Server::start(Reply::json(200, &completion("Hi"))).await;
    // PATH is set on every machine, so its value can serve as a key.
    let model = builder(&server).key_from_env("PATH").build().unwrap();

    model.chat(&hello()).await.unwrap();
    let error = builder(&server)
        .key_from_env("NO_SUCH_VARIABLE")
        .build()
        .unwrap_err();

    let expected = format!("Bearer {}", std::env::var("PATH").unwrap());
    assert_eq!(server.only().header("authorization"), Some(&*expected));
    assert!(matches!(error, ProviderError::NoKey { .. }), "{error:?}");
    assert!(error.to_string().contains("NO_SUCH_VARIABLE"), "{error}");
}

#[tokio::test]
async fn a_key_that_no_header_can_hold_is_refused_when_the_model_is_built() {
    let server = Server::start(Reply::json(200, &completion("Hi"))).await;

    let error = builder(&server)
        .key(Secret::new("one\ntwo"))
        .build()
        .unwrap_err();

    assert!(matches!(error, ProviderError::BadKey), "{error:?}");
}

#[tokio::test]
async fn a_request_goes_before_the_model_that_was_built_in() {
    assert_eq!(sent(&hello().model("other")).await["model"], "other");
}

#[tokio::test]
async fn options_are_sent_by_the_names_of_the_protocol() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let request = hello()
        .temperature(0.25)
        .max_output_tokens(50)
        .stop("END")
        .response_schema(ResponseSchema::new("number", schema.clone()));

    let body = sent(&request).await;

    assert_eq!(body["temperature"], 0.25);
    assert_eq!(body["max_tokens"], 50);
    assert_eq!(body["stop"], json!(["END"]));
    assert_eq!(
        body["response_format"],
        json!({"type": "json_schema", "json_schema": {"name": "number", "schema": schema, "strict": true}})
    );
    assert_eq!(body.get("tools"), None);
    assert_eq!(body.get("stream"), None);
}

#[tokio::test]
async fn tools_are_offered_under_names_that_the_protocol_allows() {
    let schema = json!({"type": "object"});
    let request = hello()
        .tool(ToolSpec::new("weather.get", "The weather", schema.clone()))
        .tool_choice(ToolChoice::Named("weather.get".into()));

    let body = sent(&request).await;

    let function =
        json!({"name": "weather_get", "description": "The weather", "parameters": schema});
    assert_eq!(
        body["tools"],
        json!([{"type": "function", "function": function}])
    );
    assert_eq!(
        body["tool_choice"],
        json!({"type": "function", "function": {"name": "weather_get"}})
    );
}

#[tokio::test]
async fn every_way_to_choose_a_tool_has_its_word() {
    let words = [
        (ToolChoice::Auto, "auto"),
        (ToolChoice::None, "none"),
        (ToolChoice::Required, "required"),
    ];

    for (choice, word) in words {
        let request = hello()
            .tool(ToolSpec::new("a", "", json!({})))
            .tool_choice(choice);
        assert_eq!(sent(&request).await["tool_choice"], word);
    }
}

#[tokio::test]
async fn a_conversation_with_calls_and_results_is_repeated_in_full() {
    let calls = vec![
        ToolCall::new("1", "a", json!({"n": 1})),
        ToolCall::new("2", "a", String::new()),
        ToolCall::new("3", "a", "{\"cut".to_owned()),
    ];
    let request = ChatRequest::new(vec![
        ChatMessage::system("Be kind."),
        ChatMessage::calls("", calls),
        ChatMessage::tool_result("1", "one"),
        ChatMessage::tool_error("3", "no JSON"),
        ChatMessage::assistant("Done."),
    ]);

    let body = sent(&request).await;

    let call = |id, arguments| json!({"id": id, "type": "function", "function": {"name": "a", "arguments": arguments}});
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "Be kind."},
            {"role": "assistant", "content": null, "tool_calls": [
                call("1", r#"{"n":1}"#), call("2", "{}"), call("3", r#"{"unreadable":"{\"cut"}"#),
            ]},
            {"role": "tool", "tool_call_id": "1", "content": "one"},
            {"role": "tool", "tool_call_id": "3", "content": "error: no JSON"},
            {"role": "assistant", "content": "Done."},
        ])
    );
}

#[tokio::test]
async fn a_call_with_malformed_arguments_does_not_lose_the_calls_beside_it() {
    let call = |id, arguments| json!({"id": id, "type": "function", "function": {"name": "a", "arguments": arguments}});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call("1", "{\"cut"), call("2", "{\"n\": 2}")]});
    let body =
        json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let server = Server::start(Reply::json(200, &body)).await;

    let response = client(&server).chat(&hello()).await.unwrap();

    assert_eq!(response.stop, StopReason::ToolCalls);
    assert_eq!(response.tool_calls()[0].arguments.text(), "{\"cut");
    assert!(response.tool_calls()[0].arguments.json().is_err());
    assert_eq!(response.tool_calls()[1].arguments.json().unwrap()["n"], 2);
}

#[tokio::test]
async fn an_answer_at_the_token_limit_reports_the_stop_reason() {
    let body =
        json!({"choices": [{"message": {"content": "Once upon"}, "finish_reason": "length"}]});
    let server = Server::start(Reply::json(200, &body)).await;

    let response = client(&server).chat(&hello()).await.unwrap();

    assert_eq!(response.stop, StopReason::MaxTokens);
}

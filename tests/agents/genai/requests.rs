//! Request bodies of each provider.

use super::{KEY, PROVIDERS, builder, client, hello, wire};
use crate::server::{ReceivedRequest, Server};
use serde_json::{Value, json};
use universal_executor::agent::{
    ChatMessage, ChatModel, ChatRequest, GenaiModel, ResponseSchema, ToolCall, ToolChoice, ToolSpec,
};

/// Sends a request to a provider. Returns the HTTP request that the server received.
async fn sent(provider: &str, request: &ChatRequest) -> ReceivedRequest {
    let text = wire::text(provider, "Hi");
    let server = Server::start(wire::reply(provider, &[text.as_bytes()])).await;
    client(provider, &server).chat(request).await.unwrap();
    server.only()
}

/// Returns a conversation with two tool calls. The arguments of one call are not valid JSON.
fn conversation() -> ChatRequest {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let calls = vec![
        ToolCall::new("t1", "find.it", json!({"n": 1})),
        ToolCall::new("t2", "find.it", "oops".to_owned()),
    ];
    ChatRequest::new(vec![
        ChatMessage::system("Be short."),
        ChatMessage::user("Look."),
        ChatMessage::calls("I look.", calls),
        ChatMessage::tool_result("t1", "found"),
        ChatMessage::tool_error("t2", "bad_arguments"),
        ChatMessage::assistant(""),
        ChatMessage::user("And?"),
    ])
    .tool(ToolSpec::new("find.it", "Finds it", schema))
}

#[tokio::test]
async fn a_question_goes_to_the_endpoint_of_the_protocol_with_the_key_in_its_header() {
    let paths = [
        ("POST /v1/messages HTTP/1.1", "x-api-key", Some(KEY)),
        (
            "POST /v1/models/tiny:streamGenerateContent?alt=sse HTTP/1.1",
            "x-goog-api-key",
            Some(KEY),
        ),
        ("POST /v1/api/chat HTTP/1.1", "authorization", None),
    ];
    for (provider, (line, header, value)) in PROVIDERS.iter().zip(paths) {
        let seen = sent(provider, &hello()).await;

        assert_eq!(seen.line, line);
        assert_eq!(seen.header(header), value, "{provider}");
        assert!(!seen.body.to_string().contains(KEY), "{provider}");
    }
}

#[tokio::test]
async fn a_model_without_a_key_sends_no_key_from_the_environment() {
    let text = wire::text("anthropic", "Hi");
    let server = Server::start(wire::reply("anthropic", &[text.as_bytes()])).await;
    let model = GenaiModel::builder("anthropic", "tiny").base_url(server.base_url());

    model.build().unwrap().chat(&hello()).await.unwrap();

    assert_eq!(server.only().header("x-api-key"), Some(""));
}

#[tokio::test]
async fn a_model_that_a_request_names_is_asked_instead_of_the_default() {
    let named = sent("anthropic", &hello().model("large")).await;
    let default = sent("anthropic", &hello()).await;

    assert_eq!(named.body["model"], "large");
    assert_eq!(default.body["model"], "tiny");
}

#[tokio::test]
async fn anthropic_receives_the_whole_conversation() {
    let body = sent("anthropic", &conversation()).await.body;

    assert_eq!(body["system"], "Be short.");
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "find_it", "input": {"n": 1}},
                {"type": "tool_use", "id": "t2", "name": "find_it", "input": {"unreadable": "oops"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "found"},
                {"type": "tool_result", "tool_use_id": "t2", "content": "error: bad_arguments"},
            ]},
            {"role": "user", "content": "And?"},
        ])
    );
    assert_eq!(
        body["tools"],
        json!([{
            "name": "find_it", "description": "Finds it",
            "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
        }])
    );
}

#[tokio::test]
async fn gemini_receives_the_results_of_one_answer_together() {
    let body = sent("gemini", &conversation()).await.body;

    let text = body["systemInstruction"]["parts"][0]["text"].as_str();
    assert_eq!(text.unwrap().trim(), "Be short.");
    let contents = body["contents"].as_array().unwrap();
    let roles: Vec<_> = contents.iter().map(|one| one["role"].as_str()).collect();
    assert_eq!(roles, ["user", "model", "user", "user"].map(Some));
    let results = contents[2]["parts"].as_array().unwrap();
    let names: Vec<_> = results
        .iter()
        .map(|part| part["functionResponse"]["name"].as_str())
        .collect();
    assert_eq!(names, [Some("find_it"), Some("find_it")]);
}

#[tokio::test]
async fn ollama_receives_each_result() {
    let body = sent("ollama", &conversation()).await.body;

    let messages = body["messages"].as_array().unwrap();
    let told: Vec<_> = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str())
        .collect();
    assert_eq!(told, [Some("found"), Some("error: bad_arguments")]);
}

#[tokio::test]
async fn the_requested_answer_options_are_sent_to_the_provider() {
    let schema = json!({"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": false});
    let request = conversation()
        .temperature(0.5)
        .max_output_tokens(77)
        .stop("END")
        .tool_choice(ToolChoice::Named("find.it".into()))
        .response_schema(ResponseSchema::new("answer", schema.clone()));

    let claude = sent("anthropic", &request).await.body;
    let gemini = sent("gemini", &request).await.body;

    assert_eq!(claude["temperature"], 0.5);
    assert_eq!(claude["max_tokens"], 77);
    assert_eq!(claude["stop_sequences"], json!(["END"]));
    assert_eq!(
        claude["tool_choice"],
        json!({"type": "tool", "name": "find_it"})
    );
    assert_eq!(claude["output_config"]["format"]["schema"], schema);
    let wanted = &gemini["generationConfig"];
    assert_eq!(wanted["temperature"], 0.5);
    assert_eq!(wanted["maxOutputTokens"], 77);
    assert_eq!(wanted["stopSequences"], json!(["END"]));
    assert_eq!(wanted["responseJsonSchema"], schema);
    assert_eq!(
        gemini["toolConfig"]["functionCallingConfig"],
        json!({"mode": "ANY", "allowedFunctionNames": ["find_it"]})
    );
}

#[tokio::test]
async fn a_lenient_schema_is_omitted_for_a_provider_without_schema_support() {
    let wished = ResponseSchema::new("answer", json!({"type": "object"})).lenient();
    let request = conversation()
        .response_schema(wished)
        .tool_choice(ToolChoice::None);

    let body = sent("ollama", &request).await.body;

    assert_eq!(body.get("format"), None);
    assert_eq!(body.get("tools").filter(|tools| !tools.is_null()), None);
}

#[tokio::test]
async fn a_tool_has_its_own_name_in_the_answer() {
    let text = wire::anthropic(&[
        wire::begin(),
        wire::called(0, "t1", "find_it", &["{}"]),
        wire::end("tool_use"),
    ]);
    let server = Server::start(wire::reply("anthropic", &[text.as_bytes()])).await;

    let model = builder("anthropic", &server).build().unwrap();
    let answer = model.chat(&conversation()).await.unwrap();

    assert_eq!(answer.tool_calls()[0].name, "find.it");
    assert_eq!(
        *answer.tool_calls()[0].arguments.json().unwrap(),
        Value::Object(Default::default())
    );
}

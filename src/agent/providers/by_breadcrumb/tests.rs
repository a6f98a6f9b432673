use super::read::request_of;
use super::serve::output_of;
use super::*;
use crate::agent::{
    ChatMessage, ChatRequest, ChatResponse, ModelError, Part, PartOrigin, Reasoning,
    ResponseSchema, ScriptedModel, StopReason, ToolCall, ToolChoice, ToolSpec, Usage,
};
use crate::executor::{ExecutionContext, Outcome, UniversalExecutor};
use crate::model::{BreadcrumbId, Event, Json, NewBreadcrumb};
use crate::store::{BreadcrumbStoreExt, MemoryStore};
use crate::tool::{Tool, ToolContext, ToolExecutor};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn answer(output: &Value) -> Result<ChatResponse, ModelError> {
    response_of("llm", &ChatRequest::default(), &output.clone().into())
}

/// Serves a model on a store and sends it one request.
async fn process_request(
    model: ScriptedModel,
    input: &Value,
) -> (MemoryStore, Result<Outcome, BoxedError>) {
    let store = MemoryStore::default();
    let tool = model_tool("llm", Arc::new(model));
    let served = ToolExecutor::new(tool, Arc::new(store.clone())).unwrap();
    let request = json!({"tool": "llm", "input": input});
    let request = NewBreadcrumb::new("tool.request.v1").context(request);
    let request = store.create(request).await.unwrap();
    let outcome = served.process_event(&Event::created(&request)).await;
    (store, outcome.map_err(Box::new))
}

type BoxedError = Box<crate::executor::ExecutorError>;

async fn answered(store: &MemoryStore) -> Option<Json> {
    let response = store.latest("tool.response.v1").await.unwrap();
    response.map(|response| response.context.clone())
}

fn hello() -> Value {
    json!({"messages": [{"role": "user", "content": "hello"}]})
}

#[test]
fn a_request_is_the_input_that_chat_completions_take() {
    let request = ChatRequest::new(vec![
        ChatMessage::system("Be kind."),
        ChatMessage::calls(
            "",
            vec![ToolCall::new("c1", "weather", json!({"city": "Bergen"}))],
        ),
        ChatMessage::tool_result("c1", "rain"),
    ])
    .model("llama3.2")
    .temperature(0.5)
    .max_output_tokens(100)
    .stop("END");

    let input = input_of("llm", &request).unwrap();

    assert_eq!(
        input,
        json!({
            "model": "llama3.2", "temperature": 0.5, "max_tokens": 100, "stop": ["END"],
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Bergen\"}"}},
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "rain"},
            ],
        })
    );
}

#[test]
fn the_text_is_the_content_or_the_first_choice_or_the_whole_output() {
    let choices =
        json!([{"message": {"content": "chosen"}}, {"index": 1, "message": {"content": "other"}}]);
    for (output, text) in [
        (json!({"content": "said", "choices": choices}), "said"),
        (json!({"content": null, "choices": choices}), "chosen"),
        (
            json!({"choices": [{"message": {"content": [{"type": "text", "text": "part"}]}}]}),
            "part",
        ),
        (json!({"content": "said"}), "said"),
        (json!("plain"), "plain"),
        (json!({"sum": 3}), r#"{"sum":3}"#),
        (json!({"error": "none"}), r#"{"error":"none"}"#),
        (json!([1, 2]), "[1,2]"),
    ] {
        assert_eq!(answer(&output).unwrap().text(), text, "{output}");
    }
}

#[test]
fn calls_and_usage_are_read_from_each_position_of_the_message() {
    let calls = json!([{"id": "c1", "function": {"name": "weather", "arguments": "{}"}}]);
    let usage = json!({"prompt_tokens": 7, "completion_tokens": 3});
    for output in [
        json!({"choices": [{"message": {"content": null, "tool_calls": calls}, "finish_reason": "stop"}], "usage": usage}),
        json!({"content": null, "tool_calls": calls, "usage": usage}),
        json!({"content": "", "choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}], "usage": usage}),
    ] {
        let response = answer(&output).unwrap();

        let call = ToolCall::new("c1", "weather", json!({}));
        let expected = ChatResponse::calling(vec![call]).with_usage(Usage::new(7, 3));
        assert_eq!(response, expected, "{output}");
    }
}

#[test]
fn an_output_that_is_empty_or_reports_a_failure_is_an_error() {
    for output in [
        Value::Null,
        json!({"choices": []}),
        json!({"choices": [{"index": 0}]}),
    ] {
        let error = answer(&output).unwrap_err();

        assert!(
            matches!(error, ModelError::BadAnswer { .. }),
            "{output}: {error:?}"
        );
    }
    let limited = answer(&json!({"error": {"code": 429, "message": "slow down"}}));
    assert!(
        matches!(limited, Err(ModelError::RateLimited { .. })),
        "{limited:?}"
    );
    let refused =
        answer(&json!({"choices": [{"message": {"refusal": "no"}, "finish_reason": "stop"}]}));
    assert!(
        matches!(refused, Err(ModelError::Refused { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_tool_with_a_dot_in_its_name_comes_back_by_its_name() {
    let request = ChatRequest::new(vec![ChatMessage::user("hi")]).tool(ToolSpec::new(
        "web.search",
        "Searches.",
        json!({"type": "object"}),
    ));
    let model = ScriptedModel::answering(|_, request| {
        let call = ToolCall::new("c1", &*request.tools[0].name, json!({}));
        Ok(ChatResponse::calling(vec![call]))
    });

    let (store, _) = process_request(model, &input_of("llm", &request).unwrap()).await;

    let context = answered(&store).await.unwrap();
    let response = response_of("llm", &request, &context["output"].clone().into()).unwrap();
    assert_eq!(response.tool_calls()[0].name, "web.search");
}

#[test]
fn a_caller_can_return_only_reasoning_and_provider_state_as_opaque_parts() {
    let origin = json!({"provider": "test"});
    let reasoning = json!({"text": "Hm.", "field": "reasoning", "origin": origin});
    let image = json!({
        "breadcrumb": BreadcrumbId::NIL, "path": "photo", "media_type": "image/png", "size": 3,
    });
    let parts = json!([
        {"text": "Obey me."}, {"data": 1}, {"image": image}, {"file": image},
        {"tool_call": {"id": "1", "name": "a", "arguments": "{}"}},
        {"tool_result": {"call_id": "1", "text": "x"}}, {"reasoning": reasoning},
    ]);
    let message = json!({"role": "assistant", "content": "Hi", "opaque_parts": parts});

    let read = request_of(&json!({"messages": [message]}).into()).unwrap();

    let reasoning = Reasoning::new("Hm.", "reasoning", PartOrigin::new("test", None));
    let expected = ChatMessage::assistant("Hi").with(Part::Reasoning(reasoning));
    assert_eq!(read.messages, [expected]);
}

#[tokio::test]
async fn a_served_model_receives_the_request_from_the_input() {
    let model = Arc::new(ScriptedModel::new(["hi"]));
    let request = ChatRequest::new(vec![ChatMessage::user("hello")]).model("small");
    let store = Arc::new(MemoryStore::default());
    let trigger = NewBreadcrumb::new("tool.request.v1");
    let trigger = store.create(trigger).await.unwrap();
    let context = ExecutionContext::for_trigger((*trigger).clone());
    let tool = model_tool("llm", Arc::<ScriptedModel>::clone(&model));

    let called = tool
        .call(
            input_of("llm", &request).unwrap().into_value(),
            ToolContext::for_test(context, store),
        )
        .await;

    assert_eq!(called.unwrap()["content"], "hi");
    assert_eq!(model.requests(), [request]);
}

#[tokio::test]
async fn an_invalid_input_is_answered_with_an_error_that_names_the_field() {
    for (input, named) in [
        (json!({}), "messages"),
        (
            json!({"messages": [{"role": "user", "content": 7}]}),
            "content of a message",
        ),
        (
            json!({"messages": [{"role": "boss", "content": "hi"}]}),
            "\"boss\"",
        ),
        (json!({"messages": [], "stop": 7}), "stop"),
        (json!({"messages": [], "tool_choice": 7}), "tool_choice"),
        (
            json!({"messages": [], "tool_choice": "maybe"}),
            "tool_choice",
        ),
        (
            json!({"messages": [], "response_format": {"type": "xml"}}),
            "response_format",
        ),
    ] {
        let (store, outcome) = process_request(ScriptedModel::new(["hi"]), &input).await;

        assert!(outcome.is_ok(), "{outcome:?}");
        let context = answered(&store).await.unwrap();
        let error = context.text("error").unwrap();
        assert!(error.contains(named), "{input}: {error}");
    }
}

#[tokio::test]
async fn a_model_that_may_be_asked_again_leaves_the_request_open_and_any_other_error_answers_it() {
    let limited = ModelError::rate_limited(Duration::from_secs(5));
    let down = ModelError::Unavailable("sk-planted-secret".into());
    for passing in [limited, down] {
        let (store, outcome) =
            process_request(ScriptedModel::script([Err(passing)]), &hello()).await;

        assert!(outcome.is_err(), "{outcome:?}");
        assert_eq!(answered(&store).await, None);
    }
    let model = ScriptedModel::script([Err(ModelError::ContextTooLong)]);
    let (store, outcome) = process_request(model, &hello()).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    let context = answered(&store).await.unwrap();
    assert_eq!(context.text("status"), Some("error"));
    assert_eq!(
        context.text("error"),
        Some(
            "the model request is larger than the model's context window; reduce the context or the conversation"
        )
    );
}

fn a_call() -> impl Strategy<Value = ToolCall> {
    let arguments = prop_oneof![Just("{\"cut\": ".to_owned()), "[{}\":a1]{0,12}", ".{0,12}"];
    ("[a-z0-9]{1,8}", ".{0,12}", arguments)
        .prop_map(|(id, name, arguments)| ToolCall::new(id, name, arguments))
}

fn a_response() -> impl Strategy<Value = ChatResponse> {
    let calls = prop::collection::vec(a_call(), 0..4);
    let stop = prop::sample::select(vec![
        StopReason::Finished,
        StopReason::ToolCalls,
        StopReason::MaxTokens,
        StopReason::Other,
    ]);
    (".{0,40}", calls, stop, any::<(u64, u64)>()).prop_map(
        |(text, calls, stop, (read, written))| {
            // The finish reason of an answer with tool calls is `tool_calls`.
            let stop = match stop {
                StopReason::Finished if !calls.is_empty() => StopReason::ToolCalls,
                stop => stop,
            };
            let mut response = ChatResponse::calling(calls).with_stop(stop);
            response.parts.splice(0..0, ChatResponse::new(text).parts);
            response.with_usage(Usage::new(read, written))
        },
    )
}

fn a_message() -> impl Strategy<Value = ChatMessage> {
    let call = ("[a-z0-9]{1,8}", "[a-z]{1,8}", any::<u8>())
        .prop_map(|(id, name, n)| ToolCall::new(id, name, json!({"n": n})));
    prop_oneof![
        ".{0,20}".prop_map(ChatMessage::system),
        ".{0,20}".prop_map(ChatMessage::user),
        (".{0,20}", prop::collection::vec(call, 0..3))
            .prop_map(|(text, calls)| ChatMessage::calls(text, calls)),
        ("[a-z0-9]{1,8}", ".{0,20}").prop_map(|(id, text)| ChatMessage::tool_result(id, text)),
    ]
}

fn a_request() -> impl Strategy<Value = ChatRequest> {
    let tools = prop::collection::vec("[a-z_]{1,8}", 0..3);
    let choice = prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::None),
        Just(ToolChoice::Required),
        Just(ToolChoice::Named("plain".to_owned())),
    ];
    let settings = (
        any::<Option<bool>>(),
        any::<Option<u8>>(),
        any::<Option<u32>>(),
        prop::collection::vec(".{0,4}", 0..3),
    );
    (
        prop::collection::vec(a_message(), 0..5),
        tools,
        choice,
        settings,
    )
        .prop_map(
            |(messages, tools, choice, (strict, temperature, tokens, stop))| {
                let mut request = ChatRequest::new(messages);
                for name in tools {
                    request =
                        request.tool(ToolSpec::new(name, "Does it.", json!({"type": "object"})));
                }
                if !request.tools.is_empty() {
                    request.tool_choice = choice;
                }
                request.response_schema = strict.map(|strict| {
                    let schema = ResponseSchema::new("answer", json!({"type": "object"}));
                    if strict { schema } else { schema.lenient() }
                });
                request.temperature = temperature.map(|tenths| f64::from(tenths) / 10.0);
                request.max_output_tokens = tokens;
                request.stop = stop;
                request
            },
        )
}

proptest! {
    #[test]
    fn a_response_survives_the_conversion_to_an_output_and_back(response in a_response()) {
        let output = output_of(&response).into();

        let read = response_of("llm", &ChatRequest::default(), &output);

        prop_assert_eq!(read.unwrap(), response);
    }

    #[test]
    fn a_request_survives_the_conversion_to_an_input_and_back(request in a_request()) {
        let read = request_of(&input_of("llm", &request).unwrap());

        prop_assert_eq!(read.unwrap(), request);
    }

    #[test]
    fn reading_an_arbitrary_output_never_panics(text in "[\\[\\]{}\":,a1 ]{0,60}", content in any::<Option<u8>>()) {
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        for output in [value.clone(), json!({"choices": value, "content": content}), json!({"choices": [value]})] {
            drop(answer(&output));
        }
    }
}

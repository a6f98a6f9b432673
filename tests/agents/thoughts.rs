//! Providers that reject a turn without the signature of their own earlier thought, and agents that use these providers.

use crate::agent::elsewhere::{first, runtime, suspended};
use crate::agent::registry;
use crate::server::{ReceivedRequest, Reply, Server};
use crate::support::{all, event_of, eventually, put};
use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, ApiProvider, BreadcrumbModel, ChatMessage, ChatModel,
    ChatRequest, Opaque, Part, PartOrigin, Provider, Reasoning, ToolCall, model_tool,
};
use universal_executor::tool::{JsonTool, ToolExecutor, json_tool};
use universal_executor::{MemoryStore, UniversalExecutor as _};

const CHAT: &str = "user.message.v1";

fn weather() -> JsonTool {
    json_tool("weather", "The weather.", json!({}), |_, _| async {
        Ok(json!("rain"))
    })
}

/// Creates an agent whose tool is another executor, so that its run is suspended between two turns.
fn forecaster(store: &MemoryStore, provider: Arc<dyn Provider>) -> Arc<AgentExecutor> {
    let definition = AgentDefinition::from_json(&json!({
        "agent_id": "forecaster", "system_prompt": "Be short.", "tools": ["weather"],
        "tool_calls": "breadcrumbs",
        "subscriptions": [{"schema_name": CHAT, "role": "trigger"}],
    }));
    let (definition, shared) = (definition.unwrap(), Arc::new(store.clone()));
    let tools = registry([weather()]);
    let agent = AgentExecutor::with_provider(definition, provider, shared, &tools);
    Arc::new(agent.unwrap())
}

/// Lets an agent answer, with a restart while the tool works: only the store survives the first turn.
async fn answer_after_a_restart(store: &MemoryStore, provider: impl Fn() -> Arc<dyn Provider>) {
    let before = runtime(store, [forecaster(store, provider()) as _]);
    let asked = async {
        put(store, CHAT, json!({"message": "Rain?"})).await;
        first(store, "tool.request.v1").await;
        eventually(|| async { suspended(store).await == 1 }).await;
    };
    before.run_until(asked).await.unwrap();
    let request = first(store, "tool.request.v1").await;
    let tool = ToolExecutor::new(weather(), Arc::new(store.clone())).unwrap();
    tool.process_event(&event_of(&request)).await.unwrap();

    let after = runtime(store, [forecaster(store, provider()) as _]);
    let answered = async {
        first(store, AgentExecutor::RESPONSE).await;
    };
    after.run_until(answered).await.unwrap();
}

async fn answer(store: &MemoryStore) -> Value {
    let mut found = all(store, AgentExecutor::RESPONSE).await;
    found.remove(0).context["message"].clone()
}

fn api(model: impl ChatModel + 'static) -> Arc<dyn Provider> {
    Arc::new(ApiProvider::new(Arc::new(model)))
}

#[cfg(feature = "openai")]
mod completions {
    use super::*;
    use universal_executor::agent::{ChatEvent, ChatResponse, OpenAiCompatible};

    const TURN: &str = r#"{"google":{"thought_signature":"sig-1"}}"#;

    fn model(server: &Server) -> OpenAiCompatible {
        let model = OpenAiCompatible::builder(server.base_url()).model("tiny");
        model.build().unwrap()
    }

    /// Returns the first answer: a thought, and a call with the thought's signature.
    fn thoughtful() -> Value {
        let signature: Value = serde_json::from_str(TURN).unwrap();
        json!({
            "content": null,
            "reasoning_content": "Rain needs the tool.",
            "reasoning_details": [{"type": "reasoning.encrypted", "data": "abc", "index": 0}],
            "tool_calls": [{
                "id": "c1", "type": "function", "extra_content": signature,
                "function": {"name": "weather", "arguments": "{}"},
            }],
        })
    }

    /// Replies like an endpoint that requires its thoughts and signatures in the turn after the tool.
    fn strict(request: &ReceivedRequest) -> Reply {
        let messages = request.body["messages"].as_array().unwrap();
        let said = messages.iter().find(|one| one["role"] == "assistant");
        let message = match said {
            None => thoughtful(),
            Some(said) => {
                let mut expected = thoughtful();
                expected["role"] = json!("assistant");
                if *said != expected {
                    let problem = "the function call is missing its thought_signature";
                    return Reply::json(400, &json!({"error": {"message": problem}}));
                }
                json!({"content": "Take an umbrella."})
            }
        };
        let reason = if said.is_none() { "tool_calls" } else { "stop" };
        let choice = json!({"index": 0, "message": message, "finish_reason": reason});
        Reply::json(200, &json!({"choices": [choice]}))
    }

    #[tokio::test]
    async fn an_endpoint_gets_its_signature_back_after_a_restart_between_the_turns() {
        let server = Server::answering(strict).await;
        let store = MemoryStore::default();

        answer_after_a_restart(&store, || api(model(&server))).await;

        assert_eq!(answer(&store).await, "Take an umbrella.");
        assert_eq!(server.requests().len(), 2);
    }

    #[tokio::test]
    async fn an_endpoint_behind_breadcrumbs_gets_its_signature_back_after_a_restart() {
        let server = Server::answering(strict).await;
        let store = MemoryStore::default();
        let served = ToolExecutor::new(
            model_tool("llm", Arc::new(model(&server))),
            Arc::new(store.clone()),
        );
        let served = Arc::new(served.unwrap());
        let tool = Arc::new(ToolExecutor::new(weather(), Arc::new(store.clone())).unwrap());
        let asks = || forecaster(&store, Arc::new(BreadcrumbModel::new("llm")));

        let before = runtime(&store, [asks() as _, Arc::clone(&served) as _]);
        let asked = async {
            put(&store, CHAT, json!({"message": "Rain?"})).await;
            eventually(|| async { server.requests().len() == 1 && suspended(&store).await == 1 })
                .await;
        };
        before.run_until(asked).await.unwrap();
        let after = runtime(&store, [asks() as _, served as _, tool as _]);
        let answered = async {
            let requests = all(&store, "tool.request.v1").await;
            for request in requests {
                if request.context["tool"] == "weather" {
                    let tool = ToolExecutor::new(weather(), Arc::new(store.clone())).unwrap();
                    tool.process_event(&event_of(&request)).await.unwrap();
                }
            }
            first(&store, AgentExecutor::RESPONSE).await;
        };
        after.run_until(answered).await.unwrap();

        assert_eq!(answer(&store).await, "Take an umbrella.");
    }

    #[tokio::test]
    async fn a_streamed_answer_has_the_same_parts_as_a_whole_one() {
        let details = [
            json!([{"type": "reasoning.text", "index": 0, "text": "Rain ", "signature": null}]),
            json!([{"type": "reasoning.text", "index": 0, "text": "needs it.", "signature": "s"}]),
        ];
        let call = |fields: Value| json!([fields]);
        let deltas = [
            json!({"reasoning": "Rain ", "reasoning_details": details[0]}),
            json!({"reasoning": "needs it.", "reasoning_details": details[1]}),
            json!({"tool_calls": call(json!({
                "index": 0, "id": "c1", "type": "function",
                "function": {"name": "weather", "arguments": "{"}, "extra_content": {"a": 1},
            }))}),
            json!({"tool_calls": call(json!({"index": 0, "function": {"arguments": "}"}}))}),
        ];
        let mut body: String = deltas
            .iter()
            .map(|delta| format!("data: {}\n\n", json!({"choices": [{"delta": delta}]})))
            .collect();
        body += "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
        let streamed = Server::start(Reply::events(&[body.as_bytes()])).await;
        let message = json!({
            "reasoning": "Rain needs it.",
            "reasoning_details": [
                {"type": "reasoning.text", "index": 0, "text": "Rain needs it.", "signature": "s"},
            ],
            "tool_calls": [{
                "id": "c1", "function": {"name": "weather", "arguments": "{}"}, "extra_content": {"a": 1},
            }],
        });
        let whole = json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]});
        let whole = Server::start(Reply::json(200, &whole)).await;

        let request = ChatRequest::new(vec![ChatMessage::user("Rain?")]);
        let events = model(&streamed).stream(&request).await.unwrap();
        let streamed = ChatResponse::collect(events).await.unwrap();
        let whole = model(&whole).chat(&request).await.unwrap();

        let anonymous = |response: &ChatResponse| {
            let events = response.clone().into_events();
            let events = events.into_iter().map(|event| match event {
                ChatEvent::Reasoning(mut reasoning) => {
                    reasoning.origin = PartOrigin::new("any", None);
                    ChatEvent::Reasoning(reasoning)
                }
                ChatEvent::Opaque(mut opaque) => {
                    opaque.origin = PartOrigin::new("any", None);
                    ChatEvent::Opaque(opaque)
                }
                other => other,
            });
            events.collect::<Vec<_>>()
        };
        assert_eq!(streamed.parts.len(), 4, "{streamed:?}");
        assert_eq!(anonymous(&streamed), anonymous(&whole));
    }

    /// Returns the origin of an answer.
    async fn origin_of(model: &OpenAiCompatible) -> PartOrigin {
        let answer = model.chat(&ChatRequest::default()).await.unwrap();
        match &answer.parts[0] {
            Part::Reasoning(reasoning) => reasoning.origin.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the body that an endpoint receives after an earlier answer, whose parts have the given origin.
    async fn sent(origin: impl FnOnce(PartOrigin) -> PartOrigin) -> Value {
        let message = json!({"content": "done", "reasoning": "Hm."});
        let done = json!({"choices": [{"message": message, "finish_reason": "stop"}]});
        let server = Server::start(Reply::json(200, &done)).await;
        let origin = origin(origin_of(&model(&server)).await);
        let said = ChatMessage::calls("", vec![ToolCall::new("c1", "weather", json!({}))])
            .with(Part::Reasoning(Reasoning::new(
                "canary-1",
                "reasoning_content",
                origin.clone(),
            )))
            .with(Part::Opaque(Opaque::new(
                "reasoning_details",
                json!(["canary-2"]),
                origin.clone(),
            )))
            .with(Part::Opaque(
                Opaque::new("extra_content", json!("canary-3"), origin).of_call("c1"),
            ));
        let messages = vec![said, ChatMessage::tool_result("c1", "rain")];
        model(&server)
            .chat(&ChatRequest::new(messages))
            .await
            .unwrap();
        server.requests().remove(1).body
    }

    #[tokio::test]
    async fn parts_of_another_provider_or_another_model_are_not_sent() {
        let own = sent(|own| own).await;
        let other_model = sent(|own| PartOrigin::new(own.provider, Some("large"))).await;
        let no_model = sent(|own| PartOrigin::new(own.provider, None)).await;
        let other = sent(|_| PartOrigin::new("openai:example.com", Some("tiny"))).await;

        assert_eq!(own.to_string().matches("canary").count(), 3, "{own}");
        for body in [other_model, no_model, other] {
            assert!(!body.to_string().contains("canary"), "{body}");
        }
    }

    #[tokio::test]
    async fn another_path_of_the_same_host_is_another_provider() {
        let message = json!({"content": "done", "reasoning": "Hm."});
        let done = json!({"choices": [{"message": message, "finish_reason": "stop"}]});
        let server = Server::start(Reply::json(200, &done)).await;
        let elsewhere = format!("{}/other", server.base_url());
        let elsewhere = OpenAiCompatible::builder(elsewhere).model("tiny").build();

        let here = origin_of(&model(&server)).await;

        assert_eq!(origin_of(&model(&server)).await, here);
        assert_ne!(origin_of(&elsewhere.unwrap()).await, here);
    }

    #[tokio::test]
    async fn reasoning_of_an_answer_without_tool_calls_is_not_sent_back() {
        let message = json!({"content": "done", "reasoning": "canary"});
        let done = json!({"choices": [{"message": message, "finish_reason": "stop"}]});
        let server = Server::start(Reply::json(200, &done)).await;
        let model = model(&server);
        let answer = model.chat(&ChatRequest::default()).await.unwrap();

        let messages = vec![answer.message(), ChatMessage::user("Is that JSON?")];
        model.chat(&ChatRequest::new(messages)).await.unwrap();

        let said = json!({"role": "assistant", "content": "done"});
        assert_eq!(server.requests()[1].body["messages"][0], said);
    }

    #[tokio::test]
    async fn without_its_signature_the_endpoint_fails_the_turn() {
        let server = Server::answering(strict).await;
        let call = ToolCall::new("c1", "weather", json!({}));
        let messages = vec![
            ChatMessage::calls("", vec![call]),
            ChatMessage::tool_result("c1", "rain"),
        ];

        let error = model(&server).chat(&ChatRequest::new(messages)).await;

        assert!(error.unwrap_err().to_string().contains("400"));
    }
}

#[cfg(feature = "genai")]
mod protocols {
    use super::*;
    use crate::genai::wire::{anthropic, begin, called, end, gemini, kind, said, text};
    use universal_executor::agent::{GenaiModel, Secret};

    fn model(provider: &str, server: &Server) -> GenaiModel {
        let model = GenaiModel::builder(provider, "tiny").base_url(server.base_url());
        model.key(Secret::new("sk-planted-4711")).build().unwrap()
    }

    fn reply(provider: &str, body: &str) -> Reply {
        Reply::body(200, kind(provider), &[], body.as_bytes())
    }

    fn refused() -> Reply {
        Reply::json(
            400,
            &json!({"error": {"message": "a thought lacks its signature"}}),
        )
    }

    /// Returns the events of a thought by Claude, with its signature.
    fn thought() -> Vec<Value> {
        let block = json!({"type": "thinking", "thinking": "", "signature": ""});
        let delta =
            |delta: Value| json!({"type": "content_block_delta", "index": 0, "delta": delta});
        vec![
            json!({"type": "content_block_start", "index": 0, "content_block": block}),
            delta(json!({"type": "thinking_delta", "thinking": "Rain needs "})),
            delta(json!({"type": "thinking_delta", "thinking": "the tool."})),
            delta(json!({"type": "signature_delta", "signature": "sig-1"})),
            json!({"type": "content_block_stop", "index": 0}),
        ]
    }

    fn claude(request: &ReceivedRequest) -> Reply {
        let messages = request.body["messages"].as_array().unwrap();
        match messages.iter().find(|one| one["role"] == "assistant") {
            None => {
                let parts = [
                    begin(),
                    thought(),
                    said(1, &["I look."]),
                    called(2, "t1", "weather", &["{}"]),
                    end("tool_use"),
                ];
                reply("anthropic", &anthropic(&parts))
            }
            Some(said) => {
                let thought = json!({
                    "type": "thinking", "thinking": "Rain needs the tool.", "signature": "sig-1",
                });
                let is_first = said["content"][0] == thought;
                match is_first && said["content"][2]["type"] == "tool_use" {
                    true => reply("anthropic", &text("anthropic", "Take an umbrella.")),
                    false => refused(),
                }
            }
        }
    }

    fn gemini_3(request: &ReceivedRequest) -> Reply {
        let contents = request.body["contents"].as_array().unwrap();
        match contents.iter().find(|one| one["role"] == "model") {
            None => {
                let call = json!([{
                    "functionCall": {"name": "weather", "args": {}}, "thoughtSignature": "sig-1",
                }]);
                reply("gemini", &gemini(&[&call], Some("STOP")))
            }
            Some(said) => {
                let mut parts = said["parts"].as_array().unwrap().iter();
                let signed = |part: &Value| {
                    part["functionCall"]["name"] == "weather" && part["thoughtSignature"] == "sig-1"
                };
                match parts.any(signed) {
                    true => reply("gemini", &text("gemini", "Take an umbrella.")),
                    false => refused(),
                }
            }
        }
    }

    #[tokio::test]
    async fn claude_and_gemini_get_their_signatures_back_after_a_restart_between_the_turns() {
        let servers = [
            ("anthropic", Server::answering(claude).await),
            ("gemini", Server::answering(gemini_3).await),
        ];
        for (provider, server) in servers {
            let store = MemoryStore::default();

            answer_after_a_restart(&store, || api(model(provider, &server))).await;

            assert_eq!(answer(&store).await, "Take an umbrella.", "{provider}");
            assert_eq!(server.requests().len(), 2, "{provider}");
        }
    }

    #[tokio::test]
    async fn thoughts_of_another_provider_are_not_sent() {
        let server = Server::answering(|_| reply("anthropic", &text("anthropic", "Hi"))).await;
        let origin = PartOrigin::new("openai:example.com", Some("tiny"));
        let said = ChatMessage::assistant("Hello.")
            .with(Part::Reasoning(Reasoning::new(
                "canary",
                "reasoning",
                origin.clone(),
            )))
            .with(Part::Opaque(Opaque::new(
                "thought_signature",
                json!("canary"),
                origin,
            )));

        let request = ChatRequest::new(vec![said, ChatMessage::user("Hi")]);
        model("anthropic", &server).chat(&request).await.unwrap();

        let body = server.only().body.to_string();
        assert!(
            body.contains("Hello.") && !body.contains("canary"),
            "{body}"
        );
    }
}

//! An agent whose model is behind Anthropic's protocol.

use super::KEY;
use super::wire::{anthropic, begin, called, end, said};
use crate::server::{head, read};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use universal_executor::agent::{AgentDefinition, AgentExecutor, GenaiModel, Secret};
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::{
    BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Outcome, UniversalExecutor,
};

/// Starts a server that sends these answers in turn and records the request bodies.
async fn serve(answers: Vec<String>) -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let heard = Arc::clone(&seen);
    tokio::spawn(async move {
        for answer in answers {
            let (mut connection, _) = listener.accept().await.unwrap();
            let request = read(&mut connection).await.unwrap();
            heard.lock().unwrap().push(request.body);
            let text = head(200, "text/event-stream", &[], None) + &answer;
            connection.write_all(text.as_bytes()).await.unwrap();
            connection.shutdown().await.unwrap();
        }
    });
    (url, seen)
}

#[tokio::test]
async fn an_agent_calls_its_tools_side_by_side_and_answers() {
    let (url, seen) = serve(vec![
        anthropic(&[
            begin(),
            said(0, &["I look."]),
            called(1, "t1", "weather", &["{\"city\": \"Bergen\"}"]),
            called(2, "t2", "weather", &["{\"city\": "]),
            end("tool_use"),
        ]),
        anthropic(&[
            begin(),
            said(0, &["Take an ", "umbrella."]),
            end("end_turn"),
        ]),
    ])
    .await;
    let model = GenaiModel::builder("anthropic", "tiny")
        .base_url(url)
        .key(Secret::new(KEY))
        .build()
        .unwrap();
    let weather = json_tool(
        "weather",
        "The weather of a city",
        json!({"type": "object"}),
        |input, _| async move { Ok(json!({"sky": "rain", "city": input["city"]})) },
    );
    let tools = ToolRegistry::default().with(weather).unwrap();
    let definition = AgentDefinition::from_json(&json!({
        "agent_id": "forecaster", "tools": ["weather"], "system_prompt": "Be short.",
        "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
    }))
    .unwrap();
    let store = MemoryStore::default();
    let home = Arc::new(store.clone());
    let agent = AgentExecutor::with_tools(definition, Arc::new(model), home, &tools).unwrap();
    let asked = NewBreadcrumb::new("user.message.v1").context(json!({"message": "Umbrella?"}));
    let asked = store.create(asked).await.unwrap();

    let outcome = agent.process_event(&Event::created(&asked)).await.unwrap();

    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    let response = store.latest("agent.response.v1").await.unwrap().unwrap();
    assert_eq!(response.context.text("message"), Some("Take an umbrella."));
    assert_eq!(response.context["usage"]["input_tokens"], 18);
    let told = seen.lock().unwrap()[1]["messages"].clone();
    let results = told.as_array().unwrap().last().unwrap()["content"].clone();
    assert_eq!(results[0]["content"], r#"{"city":"Bergen","sky":"rain"}"#);
    let problem = results[1]["content"].as_str().unwrap();
    assert!(problem.starts_with("error: "), "{problem}");
}

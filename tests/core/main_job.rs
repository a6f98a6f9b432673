//! The quickstart's scenario end to end, with the definitions and breadcrumbs of `examples/data`.

use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::agent::{AgentDefinition, AgentExecutor, ScriptedModel};
use universal_executor::tool::{ToolExecutor, json_tool};
use universal_executor::{
    Breadcrumb, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Outcome, UniversalExecutor,
};

fn definition(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn assistant_definition() -> Value {
    definition(include_str!(
        "../../examples/data/page-aware-assistant.json"
    ))
}

async fn filled_store() -> MemoryStore {
    let store = MemoryStore::default();
    let breadcrumbs: Vec<NewBreadcrumb> =
        serde_json::from_str(include_str!("../../examples/data/breadcrumbs.json")).unwrap();
    for breadcrumb in breadcrumbs {
        store.create(breadcrumb).await.unwrap();
    }
    store
}

async fn arrive(store: &MemoryStore, text: &str) -> Arc<Breadcrumb> {
    store
        .create(serde_json::from_str(text).unwrap())
        .await
        .unwrap()
}

fn assistant(definition: &Value, store: &MemoryStore) -> (AgentExecutor, Arc<ScriptedModel>) {
    let model = Arc::new(ScriptedModel::new(["It is the Rust repository."]));
    let definition = AgentDefinition::from_json(definition).unwrap();
    let agent = AgentExecutor::new(definition, model.clone(), Arc::new(store.clone())).unwrap();
    (agent, model)
}

const QUESTION: &str = include_str!("../../examples/data/question.json");

#[tokio::test]
async fn a_question_is_answered_with_the_page_and_the_history_before_it() {
    let store = filled_store().await;
    let (assistant, model) = assistant(&assistant_definition(), &store);
    let question = arrive(&store, QUESTION).await;

    let context = assistant
        .assemble_context(&question)
        .await
        .unwrap()
        .to_value();
    assistant
        .process_event(&Event::created(&question))
        .await
        .unwrap();

    let mut keys: Vec<&String> = context.as_object().unwrap().keys().collect();
    keys.sort_unstable();
    assert_eq!(keys, ["history", "page", "trigger"]);
    assert_eq!(context["trigger"]["id"], json!(question.id));
    assert_eq!(context["page"]["url"], "https://github.com/rust-lang/rust");
    let asked_before =
        json!([{"message": "Which repository is this?"}, {"message": "Is there a quick start?"}]);
    assert_eq!(context["history"], asked_before);
    let response = store.latest("agent.response.v1").await.unwrap().unwrap();
    assert_eq!(
        response.context.text("message"),
        Some("It is the Rust repository.")
    );
    assert_eq!(response.tags, ["agent:response", "session:1"]);
    let messages = &model.requests()[0].messages;
    let (shown, words) = (&messages[1].text(), &messages[2].text());
    assert_eq!(words, "What is this page about?");
    for part in [
        "https://github.com/rust-lang/rust",
        "Is there a quick start?",
    ] {
        assert!(
            shown.contains(part),
            "{part} did not reach the model: {shown}"
        );
    }
}

#[tokio::test]
async fn a_tool_request_is_answered_from_the_page_in_the_context() {
    let store = filled_store().await;
    let tool = json_tool("web-analyzer", "Counts.", json!({}), |_, call| async move {
        Ok(
            json!({"links": call.context().require("current_page")?["links"].as_array().map(Vec::len)}),
        )
    });
    let web_analyzer = definition(include_str!("../../examples/data/web-analyzer.json"));
    let analyzer =
        ToolExecutor::from_definition(&web_analyzer, tool, Arc::new(store.clone())).unwrap();
    let request = arrive(&store, include_str!("../../examples/data/request.json")).await;

    analyzer
        .process_event(&Event::created(&request))
        .await
        .unwrap();

    let response = store.latest("tool.response.v1").await.unwrap().unwrap();
    assert_eq!(response.context["output"], json!({"links": 3}));
    assert_eq!(
        (&response.context["status"], &response.context["request_id"]),
        (&json!("success"), &json!("r-1"))
    );
    assert_eq!(
        response.tags,
        [
            "workspace:tools",
            "tool:response",
            "request:r-1",
            "session:1"
        ]
    );
}

#[tokio::test]
async fn the_same_event_again_writes_nothing() {
    let store = filled_store().await;
    let (assistant, model) = assistant(&assistant_definition(), &store);
    let question = arrive(&store, QUESTION).await;
    let first = assistant
        .process_event(&Event::created(&question))
        .await
        .unwrap();

    let again = assistant
        .process_event(&Event::created(&question))
        .await
        .unwrap();

    let Outcome::Responded { written: first } = first else {
        panic!("{first:?}")
    };
    assert!(
        matches!(&again, Outcome::AlreadyDone { written, .. } if *written == first),
        "{again:?}"
    );
    assert_eq!(
        store.recent("agent.response.v1", 10).await.unwrap().len(),
        1
    );
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn one_line_of_json_adds_a_schema_without_code_to_the_context() {
    let store = filled_store().await;
    let mut definition = assistant_definition();
    let selectors = definition["context"]["subscriptions"]["selectors"]
        .as_array_mut()
        .unwrap();
    selectors
        .push(json!({"schema_name": "weather.report.v1", "role": "context", "key": "weather"}));
    let (assistant, model) = assistant(&definition, &store);
    arrive(&store, include_str!("../../examples/data/weather.json")).await;
    let question = arrive(&store, QUESTION).await;

    assistant
        .process_event(&Event::created(&question))
        .await
        .unwrap();

    assert!(model.requests()[0].messages[1].text().contains("Berlin"));
}

//! Agents for RCRT (Right Context Right Time) servers whose model is behind a tool that a configuration record names.

use crate::runtime_definitions::given::{
    agent, reason, rejections, services, until_rejected, until_running, until_said,
};
use crate::support::{all, eventually, put};
use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::model::DefinitionOptions;
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::{
    Breadcrumb, BreadcrumbId, BreadcrumbStoreExt, MemoryStore, Patch, Runtime, Services,
};

const CONFIG: &str = "tool.config.v1";
/// An ID that no breadcrumb has.
const MISSING: &str = "0192f1c0-0000-7000-8000-000000000001";

/// Returns services with one model tool and no model.
fn model_tool() -> Services {
    Services::new().model_tool("openrouter")
}

/// Returns the agents in a store, with the rules of RCRT servers.
fn definitions(store: &MemoryStore, services: &Services) -> StoredDefinitions {
    StoredDefinitions::new(store, services)
        .agents()
        .options(DefinitionOptions::default().rcrt())
}

fn runtime(store: &MemoryStore, definitions: StoredDefinitions) -> Runtime {
    let builder = Runtime::builder(store.events()).definitions(definitions);
    builder.build().unwrap()
}

fn configured_by(id: impl Into<Value>) -> Value {
    let mut definition = agent("helper", "message.v1", "Help.");
    definition["llm_config_id"] = id.into();
    definition
}

/// Returns the reason of the only rejection of a definition.
async fn rejected(store: &MemoryStore, definition: Value) -> String {
    let runtime = runtime(store, definitions(store, &model_tool()));
    let scenario = async {
        put(store, StoredDefinitions::AGENT, definition).await;
        until_rejected(store, 1).await;
    };
    runtime.run_until(scenario).await.unwrap();
    let rejections = rejections(store).await;
    assert_eq!(rejections.len(), 1);
    reason(&rejections[0]).to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_agent_requests_the_model_tool_of_its_configuration_with_the_id_of_the_configuration() {
    let store = MemoryStore::default();
    let config = json!({"toolName": "openrouter", "config": {"defaultModel": "m"}});
    let config = put(&store, CONFIG, config).await;
    put(
        &store,
        StoredDefinitions::AGENT,
        configured_by(config.id.to_string()),
    )
    .await;
    let runtime = runtime(&store, definitions(&store, &model_tool()));
    let scenario = async {
        until_running(&runtime, &["helper"]).await;
        put(&store, "message.v1", json!({"text": "Hello."})).await;
        eventually(async || !all(&store, "tool.request.v1").await.is_empty()).await;
    };

    runtime.run_until(scenario).await.unwrap();

    let request = all(&store, "tool.request.v1").await.remove(0);
    assert_eq!(request.context["tool"], "openrouter");
    assert_eq!(request.context["input"]["config_id"], json!(config.id));
    assert!(request.context["input"]["messages"].is_array());
}

#[tokio::test(start_paused = true)]
async fn a_missing_configuration_is_reported_with_the_agent_and_the_id() {
    let store = MemoryStore::default();
    let id: BreadcrumbId = MISSING.parse().unwrap();

    let reason = rejected(&store, configured_by(id.to_string())).await;

    let expected = format!("model configuration {id} of agent \"helper\" is missing");
    assert!(reason.contains(&expected), "{reason}");
}

#[tokio::test(start_paused = true)]
async fn a_malformed_configuration_is_reported_with_the_agent_the_id_and_the_field() {
    for (schema, context, problem) in [
        ("note.v1", json!({}), "its schema is \"note.v1\""),
        (
            CONFIG,
            json!({"toolName": "openrouter"}),
            "\"config\" must be an object",
        ),
        (
            CONFIG,
            json!({"config": {}}),
            "\"toolName\" must be the name",
        ),
        (
            CONFIG,
            json!({"config": {}, "toolName": 7}),
            "\"toolName\" must be the name",
        ),
    ] {
        let store = MemoryStore::default();
        let id = put(&store, schema, context).await.id;

        let reason = rejected(&store, configured_by(id.to_string())).await;

        let expected =
            format!("model configuration {id} of agent \"helper\" is malformed: {problem}");
        assert!(reason.contains(&expected), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_configuration_reaches_no_tool_that_the_service_has_not_registered_as_a_model() {
    let store = MemoryStore::default();
    let config = json!({"toolName": "file-store", "config": {}});
    let id = put(&store, CONFIG, config).await.id;

    let reason = rejected(&store, configured_by(id.to_string())).await;

    assert!(
        reason.contains("model tool \"file-store\" is not registered in the services")
            && reason.contains("registered: openrouter"),
        "{reason}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_invalid_configuration_id_is_reported() {
    let store = MemoryStore::default();

    let reason = rejected(&store, configured_by("the best model")).await;

    assert!(
        reason.contains("field \"llm_config_id\" of the agent definition must be null or the ID of a tool.config.v1 breadcrumb"),
        "{reason}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_loads_without_a_change_once_its_configuration_is_fixed() {
    let store = MemoryStore::default();
    let config: Arc<Breadcrumb> = put(&store, CONFIG, json!({"config": {}})).await;
    put(
        &store,
        StoredDefinitions::AGENT,
        configured_by(config.id.to_string()),
    )
    .await;
    let runtime = runtime(&store, definitions(&store, &model_tool()));
    let scenario = async {
        until_rejected(&store, 1).await;
        let fixed = Patch::new().context(json!({"toolName": "openrouter", "config": {}}));
        store
            .update(config.id, config.version, fixed)
            .await
            .unwrap();
        until_running(&runtime, &["helper"]).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(rejections(&store).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_a_configuration_asks_the_default_model_and_so_does_one_without_model_tools()
 {
    let id: BreadcrumbId = MISSING.parse().unwrap();
    for (definition, with_tool) in [
        (configured_by(Value::Null), true),
        (configured_by(id.to_string()), false),
    ] {
        let store = MemoryStore::default();
        let services = match with_tool {
            true => services().model_tool("openrouter"),
            false => services(),
        };
        put(&store, StoredDefinitions::AGENT, definition).await;
        let runtime = runtime(&store, definitions(&store, &services));
        let scenario = async {
            until_running(&runtime, &["helper"]).await;
            put(&store, "message.v1", json!({})).await;
            until_said(&store, 1).await;
        };

        runtime.run_until(scenario).await.unwrap();
    }
}

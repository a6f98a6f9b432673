use super::*;
use crate::agent::ScriptedModel;
use crate::model::NewBreadcrumb;
use crate::store::{BreadcrumbStoreExt as _, MemoryStore};
use crate::tool::{JsonTool, ToolError, ToolRegistry, json_tool, remote_tool};
use serde_json::{Value, json};

fn tool(name: &str) -> JsonTool {
    json_tool(
        name,
        "Repeats its input.",
        json!({}),
        |input, _| async move { Ok(input) },
    )
}

/// Returns services with a model, a provider and the tools `echo` and `refund`.
fn services() -> Services {
    let tools = ToolRegistry::default().with(tool("echo")).unwrap();
    Services::new()
        .model("small", ScriptedModel::new(["Hi"]))
        .provider("remote", BreadcrumbModel::new("openrouter"))
        .tools(tools.with(tool("refund")).unwrap())
}

fn agent(fields: &Value) -> Value {
    let mut definition = json!({
        "agent_id": "helper",
        "system_prompt": "Help.",
        "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
    });
    for (name, value) in fields.as_object().unwrap() {
        definition[name] = value.clone();
    }
    definition
}

/// Creates the executor of a definition.
async fn create(
    definitions: &StoredDefinitions,
    store: &MemoryStore,
    schema: &str,
    context: Value,
) -> MakerResult {
    let definition = NewBreadcrumb::new(schema).context(context);
    let definition = store.create(definition).await.unwrap();
    let (executor, warnings) = definitions.create_executor(&definition, ModelConfig::None)?;
    assert!(warnings.is_empty(), "{warnings:?}");
    Ok(executor)
}

#[test]
fn no_definition_runs_until_a_method_names_its_schema() {
    let new = || StoredDefinitions::new(&MemoryStore::default(), &services());
    let none: [&str; 0] = [];

    assert_eq!(new().schemas(), none);
    assert_eq!(new().tools(none).schemas(), none);
    assert_eq!(new().agents().schemas(), [StoredDefinitions::AGENT]);
    #[cfg(feature = "workflows")]
    assert_eq!(new().workflows().schemas(), [StoredDefinitions::WORKFLOW]);
    assert_eq!(new().tools(["echo"]).schemas(), [StoredDefinitions::TOOL]);
}

#[test]
fn served_tools_must_be_tools_of_the_services_and_several_calls_add_up() {
    let new = || StoredDefinitions::new(&MemoryStore::default(), &services());

    let both = new().tools(["echo"]).tools(["refund"]);
    both.check().unwrap();
    assert_eq!(both.served_tools.len(), 2);

    let error = new().tools(["echo", "refnd"]).check().unwrap_err();
    let RuntimeError::ServedTool { source } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(
        source.to_string(),
        "tool \"refnd\" is not registered; did you mean \"refund\"? add it with Services::tool; registered: echo, refund"
    );
    assert!(error.to_string().contains("StoredDefinitions::tools"));
}

#[tokio::test]
async fn a_definition_serves_only_tools_that_it_may_serve() {
    let store = MemoryStore::default();
    let definitions = StoredDefinitions::new(&store, &services()).tools(["echo"]);
    let definition = |name| json!({"name": name, "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}]});

    let echo = create(
        &definitions,
        &store,
        StoredDefinitions::TOOL,
        definition("echo"),
    );
    assert_eq!(echo.await.unwrap().id(), "echo");

    let refund = create(
        &definitions,
        &store,
        StoredDefinitions::TOOL,
        definition("refund"),
    );
    let error = refund.await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "no tool.v1 definition can run tool \"refund\"; add the name with StoredDefinitions::tools; listed there: echo"
    );
}

#[tokio::test]
async fn a_definition_serves_the_tool_as_it_was_registered() {
    let store = MemoryStore::default();
    let definition = json!({"name": "echo", "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}]});
    let over_breadcrumbs = ToolRegistry::default().with(tool("echo")).unwrap();
    let services = Services::new().tools(over_breadcrumbs.with_remote_tools(true));
    let definitions = StoredDefinitions::new(&store, &services).tools(["echo"]);

    let served = create(
        &definitions,
        &store,
        StoredDefinitions::TOOL,
        definition.clone(),
    );
    assert!(served.await.is_ok());

    let services = Services::new().tool(remote_tool("echo", "", json!({})));
    let definitions = StoredDefinitions::new(&store, &services.unwrap()).tools(["echo"]);
    let refused = create(&definitions, &store, StoredDefinitions::TOOL, definition);
    let error = refused.await.err().unwrap();
    assert!(
        matches!(error.downcast_ref(), Some(ToolError::Elsewhere { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_stored_agent_can_name_a_model_a_provider_and_every_tool_of_its_services() {
    let store = MemoryStore::default();
    let definitions = StoredDefinitions::new(&store, &services()).agents();
    let with_model = agent(&json!({"model": "small", "tools": ["refund"]}));
    let with_provider = agent(&json!({"model": "remote"}));

    let with_model = create(&definitions, &store, StoredDefinitions::AGENT, with_model);
    let with_provider = create(
        &definitions,
        &store,
        StoredDefinitions::AGENT,
        with_provider,
    );

    let asks = |executor: Arc<dyn UniversalExecutor>| {
        let written = executor.profile().responds_with.clone().unwrap();
        written.iter().any(|schema| schema == ToolExecutor::REQUEST)
    };
    assert!(!asks(with_model.await.unwrap()));
    assert!(asks(with_provider.await.unwrap()));
}

#[tokio::test]
async fn a_stored_agent_can_name_only_tools_and_models_of_its_own_services() {
    let store = MemoryStore::default();
    let of_definitions = Services::new().default_model(ScriptedModel::new(["Hi"]));
    let of_code = of_definitions.clone().tool(tool("refund")).unwrap();
    let of_code = of_code.model("large", ScriptedModel::new(["Hi"]));
    let allowed = |services: &Services| StoredDefinitions::new(&store, services).agents();

    for fields in [json!({"tools": ["refund"]}), json!({"model": "large"})] {
        let definition = || agent(&fields);
        let less = allowed(&of_definitions);
        let refused = create(&less, &store, StoredDefinitions::AGENT, definition());
        assert!(refused.await.is_err(), "{fields}");

        let more = allowed(&of_code);
        let runs = create(&more, &store, StoredDefinitions::AGENT, definition());
        assert!(runs.await.is_ok(), "{fields}");
    }
}

#[cfg(feature = "workflows")]
#[tokio::test]
async fn a_stored_workflow_can_name_the_tools_of_its_services() {
    let store = MemoryStore::default();
    let definition = |tool: &str| {
        json!({
            "workflow_id": "flow",
            "definition": {
                "tools": {tool: {}},
                "flows": {"main": {"steps": [{"tool": tool, "input": "${input}"}]}},
            },
        })
    };
    let definitions = StoredDefinitions::new(&store, &services()).workflows();

    let flow = definition("echo");
    let flow = create(&definitions, &store, StoredDefinitions::WORKFLOW, flow);
    assert_eq!(flow.await.unwrap().id(), "flow");

    let flow = definition("shell");
    let refused = create(&definitions, &store, StoredDefinitions::WORKFLOW, flow);
    assert!(refused.await.is_err());
}

use super::*;
use crate::agent::{BreadcrumbModel, ChatMessage, ChatRequest, ScriptedModel};
use crate::machine::ResultDelivery;
use crate::tool::json_tool;
use serde_json::json;

fn tool(name: &str) -> impl Tool + use<> {
    json_tool(
        name,
        "Repeats its input.",
        json!({}),
        |input, _| async move { Ok(input) },
    )
}

fn model() -> ScriptedModel {
    ScriptedModel::new(["Hi"])
}

#[cfg(feature = "workflows")]
struct Named(&'static str);

#[cfg(feature = "workflows")]
impl Guardrail for Named {
    fn name(&self) -> &str {
        self.0
    }
}

/// Returns the error message of a lookup that must fail.
fn refused<T>(found: Result<T, NotRegistered>) -> String {
    found.err().expect("the name is unknown").to_string()
}

#[test]
fn an_unknown_name_is_an_error_with_the_nearest_name_and_all_names() {
    let services = Services::new()
        .model("small", model())
        .provider("program", BreadcrumbModel::new("openrouter"))
        .tool(tool("search"))
        .unwrap();

    assert_eq!(
        refused(services.find_provider("smal")),
        "model \"smal\" is not registered; did you mean \"small\"? add it with Services::model; registered: program, small"
    );
    assert_eq!(
        refused(services.find_provider("search")),
        "model \"search\" is not registered; add it with Services::model; registered: program, small"
    );
    assert_eq!(
        refused(services.find_tool("serch")),
        "tool \"serch\" is not registered; did you mean \"search\"? add it with Services::tool; registered: search"
    );
    assert_eq!(
        refused(Services::new().find_tool("search")),
        "tool \"search\" is not registered; add it with Services::tool; registered: none"
    );
}

#[test]
fn long_names_and_long_lists_are_truncated_in_errors() {
    let long = "x".repeat(10_000);
    let services = (0..1_000).fold(Services::new(), |services, number| {
        services.model(format!("model-{number}"), model())
    });

    let message = refused(services.find_provider(&long));

    assert!(message.len() < 700, "{} bytes", message.len());
}

#[test]
fn a_model_tool_is_not_a_tool_and_a_missing_one_is_an_error_with_a_fix() {
    let services = Services::new().model_tool("openrouter");

    assert_eq!(services.check_model_tool("openrouter"), Ok(()));
    let message = refused(services.check_model_tool("files"));
    assert!(
        message.contains("Services::model_tool") && message.ends_with("registered: openrouter"),
        "{message}"
    );
    assert!(services.find_tool("openrouter").is_err());
    let message = refused(Services::new().check_model_tool("files"));
    assert!(message.ends_with("registered: none"), "{message}");
}

#[test]
fn a_definition_without_a_model_needs_a_default_model() {
    let services = Services::new().model("small", model());

    let message = refused(services.default_provider());
    assert!(message.contains("Services::default_model"), "{message}");

    assert!(services.default_model(model()).default_provider().is_ok());
}

#[test]
fn models_and_providers_share_one_set_of_names_and_the_last_registration_counts() {
    let asks = |services: &Services| {
        let found = services.find_provider("a").unwrap();
        found.asks_by_breadcrumb()
    };
    let provider = || BreadcrumbModel::new("openrouter");

    let services = Services::new()
        .model("a", model())
        .provider("a", provider());
    assert!(asks(&services));

    let services = services.model("a", model());
    assert!(!asks(&services));
    assert_eq!(services.models().len(), 1);
}

#[cfg(feature = "workflows")]
#[test]
fn the_order_of_calls_does_not_matter_for_different_entries() {
    let limits = WorkflowLimits {
        steps: 5,
        ..WorkflowLimits::default()
    };
    let one = Services::new()
        .tool(tool("echo"))
        .unwrap()
        .model("small", model())
        .guardrail(Named("no-secrets"))
        .default_model(model())
        .limits(limits)
        .model_tool("openrouter");
    let other = Services::new()
        .model_tool("openrouter")
        .limits(limits)
        .default_model(model())
        .guardrail(Named("no-secrets"))
        .model("small", model())
        .tool(tool("echo"))
        .unwrap();

    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    for services in [&one, &other] {
        assert_eq!(services.tool_registry().names(), ["echo"]);
        assert!(services.guardrails().contains_key("no-secrets"));
        assert_eq!(services.max_limits().steps, 5);
        assert!(services.default_registered().is_some());
    }
}

#[test]
fn a_registry_of_tools_replaces_the_tools_before_and_one_tool_is_added() {
    let all = ToolRegistry::default().with(tool("all")).unwrap();

    let services = Services::new().tool(tool("first")).unwrap().tools(all);
    assert_eq!(services.tool_registry().names(), ["all"]);

    let services = services.tool(tool("last")).unwrap();
    assert_eq!(services.tool_registry().names(), ["all", "last"]);
}

#[test]
fn a_tool_name_can_be_registered_only_once_and_the_error_has_both_places() {
    let twice = Services::new()
        .tool(tool("echo"))
        .unwrap()
        .tool(tool("echo"));

    let error = twice.unwrap_err();

    let ToolError::Duplicate {
        name,
        first,
        second,
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!(name, "echo");
    assert!(first.file().ends_with("services/tests.rs"), "{first}");
    assert!(second.file().ends_with("services/tests.rs"), "{second}");
}

#[test]
fn a_change_of_a_clone_leaves_the_original_as_it_was() {
    let original = Services::new().model("small", model());
    let clone = original.clone();
    let changed = clone.model("large", model()).tool(tool("echo")).unwrap();

    assert!(original.find_provider("large").is_err());
    assert!(original.find_tool("echo").is_err());
    assert!(changed.find_provider("small").is_ok());
}

#[tokio::test]
async fn a_shared_model_and_a_shared_provider_can_be_registered() {
    let shared = Arc::new(model());
    let erased: Arc<dyn ChatModel> = shared.clone();
    let provider: Arc<dyn Provider> = Arc::new(BreadcrumbModel::new("openrouter"));

    let services = Services::new()
        .model("erased", erased)
        .provider("shared", provider);

    let Some(Registered::Model(model)) = services.models().get("erased") else {
        panic!("{services:?}");
    };
    let request = ChatRequest::new(vec![ChatMessage::user("Hello")]);
    assert_eq!(model.chat(&request).await.unwrap().text(), "Hi");
    assert_eq!(shared.requests().len(), 1);
    let provider = services.find_provider("shared").unwrap();
    assert!(provider.asks_by_breadcrumb());
    assert_eq!(provider.delivery(), ResultDelivery::Batch);
}

#[test]
fn a_lookup_returns_the_tool_as_it_was_registered() {
    let tools = ToolRegistry::default().with(tool("echo")).unwrap();
    let services = Services::new().tools(tools.with_remote_tools(true));

    let asking = services.tool_registry().get("echo").unwrap();
    let registered = services.find_tool("echo").unwrap();

    assert!(asking.settings().over_breadcrumbs);
    assert!(!registered.settings().over_breadcrumbs);
}

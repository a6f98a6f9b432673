//! Errors of tools.

use serde_json::json;
use std::sync::Arc;
use universal_executor::MemoryStore;
use universal_executor::tool::{
    JsonTool, ToolDefinition, ToolError, ToolExecutor, ToolRegistry, json_tool, remote_tool,
};

/// Creates a tool that returns its input.
fn echo(name: &str) -> JsonTool {
    json_tool(name, "For tests.", json!({}), |input, _| async move {
        Ok(input)
    })
}

#[test]
fn an_invalid_tool_name_is_quoted_with_the_allowed_characters() {
    let error = ToolRegistry::default()
        .with(echo("Web Search"))
        .unwrap_err();

    let expected = "\"Web Search\" is not a valid tool name; use 1 to 64 characters of a-z, 0-9, '.', '_' and '-'";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_duplicate_tool_is_named_with_both_registrations() {
    let tools = ToolRegistry::default().with(echo("adder")).unwrap();

    let error = tools.with(echo("adder")).unwrap_err();

    let ToolError::Duplicate { first, second, .. } = &error else {
        panic!("{error:?}");
    };
    let expected = format!(
        "tool \"adder\" is registered at {first} and again at {second}; rename one of them"
    );
    assert_eq!(error.to_string(), expected);
    assert!(second.line() > first.line(), "{error}");
}

#[test]
fn a_definition_of_another_tool_names_both_tools() {
    let definition = json!({
        "name": "search", "subscriptions": [{"schema_name": "tool.request.v1", "role": "trigger"}],
    });
    let store = Arc::new(MemoryStore::default());

    let error = ToolExecutor::from_definition(&definition, echo("probe"), store).unwrap_err();

    let expected = "the definition is for tool \"search\", but the function is tool \"probe\"; use the same name";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_remote_tool_cannot_be_served_and_is_named_with_the_place_for_it() {
    let search = remote_tool("search", "For tests.", json!({}));

    let error = ToolExecutor::new(search, Arc::new(MemoryStore::default())).unwrap_err();

    let expected = "tool \"search\" is a remote tool, which another service runs, so this service cannot run it; add the tool only to the ToolRegistry of the agents that call it";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn invalid_subscriptions_name_the_tool() {
    let definition = json!({
        "name": "search", "subscriptions": [{"schema_name": "tool.request.v1", "role": "triger"}],
    });

    let error = ToolDefinition::from_json(&definition).unwrap_err();

    let expected = "the subscriptions of tool \"search\" are invalid; see the cause";
    assert_eq!(error.to_string(), expected);
    let cause = "subscription 0: role: unknown value \"triger\"; did you mean \"trigger\"?";
    assert_eq!(super::cause_of(&error), cause);
}

#[cfg(feature = "validate")]
#[test]
fn an_invalid_schema_is_named_with_the_tool_and_the_reason() {
    let broken = json!({"type": "strin"});

    let error = ToolRegistry::default()
        .with(echo("search").output_schema(broken))
        .unwrap_err();

    let ToolError::BadSchema { reason, .. } = &error else {
        panic!("{error:?}");
    };
    let expected = format!("the output schema of tool \"search\" cannot be used: {reason}");
    assert_eq!(error.to_string(), expected);
}

//! Errors about input and output that do not match their schemas, in words that a model can act on.

use crate::support::event_of;
use crate::tools::{call, echo, error_of, only, registry};
use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::machine::Answer;
use universal_executor::tool::{ToolError, ToolExecutor, ToolRegistry, json_tool};
use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, UniversalExecutor};

fn search() -> ToolRegistry {
    let schema = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 3},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50},
            "sort": {"enum": ["new", "old"]},
            "site": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    registry([json_tool(
        "search",
        "Searches.",
        schema,
        |input, _| async move { Ok(input) },
    )])
}

async fn refused(input: Value) -> String {
    let (code, message) = error_of(call(&search(), "search", input).await);
    assert_eq!(code, "invalid_input");
    message
}

#[tokio::test]
async fn every_violation_is_reported_with_its_path_and_the_allowed_values() {
    // The order of the violations is the order of the fields, which is sorted only in some builds of serde_json.
    let message = refused(json!({"limit": 99, "page": 2, "site": 7, "sort": "best"})).await;

    assert_eq!(
        message,
        "the input does not fit the schema: at /limit: 99 is greater than the maximum of 50; \
         at /site: 7 fits none of the allowed forms: it is not of type \"string\", or it is not of type \"null\"; \
         at /sort: \"best\" is not one of [\"new\",\"old\"]; \
         unknown fields: \"page\"; \"query\" is a required property"
    );
}

#[tokio::test]
async fn values_in_a_violation_message_are_truncated() {
    let long = "s".repeat(10_000);
    let name = long.as_str();

    for input in [
        json!({"query": [long]}),
        json!({"query": "abc", "sort": long}),
        json!({"query": "abc", "site": [long, long]}),
        json!({"query": "abc", name: 1}),
        json!(long),
    ] {
        let message = refused(input).await;
        assert!(!message.contains(&"s".repeat(101)), "{message}");
        assert!(message.len() < 600, "{message}");
    }
}

#[tokio::test]
async fn a_few_violations_are_named_and_the_others_counted() {
    let schema = json!({"items": {"type": "integer"}});
    let tools = registry([json_tool("probe", "", schema, |input, _| async move {
        Ok(input)
    })]);
    let input = Value::from(vec!["x"; 30]);

    let (_, message) = error_of(call(&tools, "probe", input).await);

    assert_eq!(message.matches("is not of type").count(), 5, "{message}");
    assert!(message.ends_with("and 25 more"), "{message}");
}

#[tokio::test]
async fn a_request_whose_input_does_not_fit_is_answered_and_done() {
    let store = MemoryStore::default();
    let schema = json!({"type": "integer"});
    let tool = json_tool("probe", "", schema, |input, _| async move { Ok(input) });
    let tool = ToolExecutor::new(tool, Arc::new(store.clone())).unwrap();
    let request = json!({"tool": "probe", "input": "seven"});
    let request = NewBreadcrumb::new("tool.request.v1").context(request);
    let request = store.create(request).await.unwrap();

    tool.process_event(&event_of(&request)).await.unwrap();

    let answer = only(&store, "tool.response.v1").await;
    assert_eq!(answer.context["code"], "invalid_input");
    assert_eq!(
        answer.context["error"],
        "the input does not fit the schema: \"seven\" is not of type \"integer\""
    );
}

#[tokio::test]
async fn output_that_does_not_fit_is_an_error_of_the_tool() {
    let tools = registry([echo("probe").output_schema(json!({"type": "string"}))]);

    let good = call(&tools, "probe", json!("text")).await;
    let (code, message) = error_of(call(&tools, "probe", json!(7)).await);

    assert_eq!(good, Answer::success(json!("text")).into());
    assert_eq!(code, "invalid_output");
    assert_eq!(
        message,
        "the tool is broken, because its output does not fit its schema: 7 is not of type \"string\""
    );
}

#[test]
fn a_schema_that_cannot_be_used_is_refused_when_the_tool_is_registered() {
    let broken = json!({"type": "strin"});
    let input = json_tool(
        "probe",
        "",
        broken.clone(),
        |input, _| async move { Ok(input) },
    );
    let output = echo("probe").output_schema(broken);

    for (tool, which) in [(input, "input"), (output, "output")] {
        let refused = ToolRegistry::default().with(tool).unwrap_err();
        let said = refused.to_string();
        assert!(matches!(refused, ToolError::BadSchema { .. }));
        assert!(
            said.starts_with(&format!("the {which} schema of tool \"probe\"")),
            "{said}"
        );
        assert!(said.contains("at /type"), "{said}");
    }
}

use super::*;
use crate::model::{Event, EventKind, Fetch, Method, Order, Role, Route, Selector, Subscriptions};
use serde_json::json;

mod limits;
mod policies;
mod properties;
mod refusals;
mod shapes;
mod warnings;

fn load(definition: &Value) -> Subscriptions {
    Subscriptions::from_json(definition).unwrap()
}

/// Loads a definition with one subscription and returns the subscription.
fn load_one(subscription: &Value) -> Subscription {
    load(&json!([subscription])).as_slice()[0].clone()
}

fn refusal(definition: &Value) -> DefinitionError {
    Subscriptions::from_json(definition).expect_err("the definition must be rejected")
}

fn warnings(definition: &Value) -> Vec<String> {
    load(definition)
        .warnings()
        .iter()
        .map(ToString::to_string)
        .collect()
}

/// Returns a context subscription with the key `page` and the given fields.
fn page(fields: &Value) -> Value {
    merged(
        json!({"schema_name": "page.v1", "role": "context", "key": "page"}),
        fields,
    )
}

/// Returns a trigger with the given fields.
fn request(fields: &Value) -> Value {
    merged(
        json!({"schema_name": "request.v1", "role": "trigger"}),
        fields,
    )
}

fn merged(mut subscription: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        subscription[name] = value.clone();
    }
    subscription
}

/// An agent definition in the format of an RCRT server.
const AGENT: &str = r#"{
    "id": "0192f1c0-0000-7000-8000-000000000001", "owner_id": "o", "schema_name": "agent.def.v1", "title": "Greeter",
    "description": null, "tags": ["agent:def", "workspace:agents"], "version": 3, "llm_hints": null,
    "context": {
        "agent_id": "greeter", "model": "m", "temperature": 0.7, "system_prompt": "..", "llm_config_id": null,
        "capabilities": {"can_create_breadcrumbs": true, "can_update_own": true, "can_delete_own": false},
        "subscriptions": {"selectors": [
            {"schema_name": "agent.context.v1", "all_tags": ["consumer:greeter"], "role": "trigger", "key": "assembled",
             "fetch": {"method": "event_data"}},
            {"schema_name": "browser.page.context.v1", "any_tags": null, "role": "context", "key": "browser",
             "fetch": {"method": "latest", "limit": 1}, "context_match": null}
        ]}
    },
    "created_at": "2026-11-21T20:33:37Z", "updated_at": "2026-11-21T20:33:40.535554Z"
}"#;

/// A tool definition in the format of an RCRT server.
const TOOL: &str = r#"{
    "schema_name": "tool.v1", "title": "Web Analyzer", "tags": ["tool", "tool:web-analyzer"],
    "context": {
        "name": "web-analyzer", "description": "Analyzes web pages",
        "subscriptions": {"selectors": [
            {"schema_name": "tool.request.v1", "context_match": [{"path": "$.tool", "op": "eq", "value": "web-analyzer"}],
             "role": "trigger", "key": "request", "fetch": {"method": "event_data"}},
            {"schema_name": "browser.navigation.v1", "role": "trigger", "key": "request", "fetch": {"method": "latest"}},
            {"schema_name": "browser.page.context.v1", "any_tags": ["browser:active-tab"], "role": "context",
             "key": "current_page", "fetch": {"method": "latest", "limit": 1}}
        ]},
        "definition": {"inputSchema": {"type": "object"}, "outputSchema": {"type": "object"}}
    }
}"#;

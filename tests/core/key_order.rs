//! Equal JSON is equal regardless of its key order, also if another crate of the program enables `preserve_order` of serde_json. Without
//! this feature, maps are always sorted, and only the expected values in the assertions prove something.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use universal_executor::agent::{AgentDefinition, AgentExecutor, ScriptedModel};
use universal_executor::executor::OrderingKey;
use universal_executor::model::{BreadcrumbId, Timestamp};
use universal_executor::tool::{ToolExecutor, json_tool};
use universal_executor::{Json, MemoryStore, NewBreadcrumb, UniversalExecutor};

const AGENT: [&str; 2] = [
    r#"{"agent_id":"a","model":"m","subscriptions":[{"role":"trigger","schema_name":"q.v1"}]}"#,
    r#"{"subscriptions":[{"schema_name":"q.v1","role":"trigger"}],"model":"m","agent_id":"a"}"#,
];

const TOOL: [&str; 2] = [
    r#"{"name":"t","subscriptions":[{"role":"trigger","schema_name":"q.v1"}]}"#,
    r#"{"subscriptions":[{"schema_name":"q.v1","role":"trigger"}],"name":"t"}"#,
];

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn sha256(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

#[test]
fn the_hash_of_an_agent_is_that_of_its_definition_with_sorted_keys() {
    let hashes = AGENT.map(|text| {
        let definition = AgentDefinition::from_json(&read(text)).unwrap();
        let model = Arc::new(ScriptedModel::new(["Hello"]));
        let agent = AgentExecutor::new(definition, model, Arc::new(MemoryStore::default()));
        agent.unwrap().profile().definition.clone().unwrap()
    });

    assert_eq!(hashes, [sha256(AGENT[0]), sha256(AGENT[0])]);
}

#[test]
fn the_hash_of_a_tool_is_that_of_its_definition_with_sorted_keys() {
    let hashes = TOOL.map(|text| {
        let tool = json_tool("t", "", json!({}), |_, _| async { Ok(json!(null)) });
        let store = Arc::new(MemoryStore::default());
        let tool = ToolExecutor::from_definition(&read(text), tool, store).unwrap();
        tool.profile().definition.clone().unwrap()
    });

    assert_eq!(hashes, [sha256(TOOL[0]), sha256(TOOL[0])]);
}

#[test]
fn an_ordering_key_is_the_same_for_equal_values() {
    let ordering = OrderingKey::path("$.session").unwrap();

    let keys = [
        r#"{"session": {"user": 1, "app": 2}}"#,
        r#"{"session": {"app": 2, "user": 1}}"#,
    ]
    .map(|text| {
        let message = NewBreadcrumb::new("q.v1").context(Json::from_text(text).unwrap());
        ordering.of(&message.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH))
    });

    let sorted = Some(r#"{"app":2,"user":1}"#.to_owned());
    assert_eq!(keys, [sorted.clone(), sorted]);
}

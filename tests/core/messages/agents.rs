//! Errors of agent definitions.

use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::agent::{Agent, AgentDefinition, AgentError, AgentExecutor, ScriptedModel};
use universal_executor::{MemoryStore, Subscription};

/// Returns the definition of the agent `worker` with further fields.
fn with(more: &Value) -> Value {
    let mut definition = json!({
        "agent_id": "worker",
        "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
    });
    let fields = definition.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    definition
}

/// Returns the error of reading a definition with these fields.
fn unread(more: &Value) -> AgentError {
    AgentDefinition::from_json(&with(more)).unwrap_err()
}

/// Returns the error of creating an agent from a definition with these fields.
fn refused(more: &Value) -> AgentError {
    let definition = AgentDefinition::from_json(&with(more)).unwrap();
    let model = Arc::new(ScriptedModel::new(["Hi"]));
    AgentExecutor::new(definition, model, Arc::new(MemoryStore::default())).unwrap_err()
}

#[test]
fn an_unreadable_approval_is_named_by_its_path() {
    let error = unread(&json!({"approval": {"tools": [7]}}));

    let expected = "approval.tools[0] of the agent definition: the value must be the name of a tool, or a rule, not 7";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn invalid_subscriptions_name_the_agent() {
    let error = unread(&json!({"subscriptions": [{"schema_name": "question.v1"}]}));

    let expected = "agent \"worker\" has invalid subscriptions in its definition; see the cause";
    assert_eq!(error.to_string(), expected);
    let cause = "subscription 0: role: missing value; write \"trigger\" or \"context\"";
    assert_eq!(super::cause_of(&error), cause);
}

#[test]
fn an_invalid_agent_id_is_named_with_its_cause() {
    let error = unread(&json!({"agent_id": ""}));

    let expected =
        "field \"agent_id\" of the agent definition is not a valid executor ID; see the cause";
    assert_eq!(error.to_string(), expected);
    let cause = "the executor ID is empty; set an ID of 1 to 256 bytes";
    assert_eq!(super::cause_of(&error), cause);
}

#[test]
fn an_agent_that_calls_itself_is_named_with_the_fields_to_change() {
    let error = refused(&json!({"use": ["worker"]}));

    let expected = "agent \"worker\" lists itself among the agents to call; remove it from \"use\", \"handoff\" and \"delegate\"";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn two_offers_of_one_name_are_named_together() {
    let error = refused(&json!({"use": ["notes"], "outputs": [{"name": "notes"}]}));

    let expected = "agent \"worker\" has two tools, agents or outputs with the name \"notes\"; rename one of them";
    assert_eq!(error.to_string(), expected);
}

#[cfg(feature = "validate")]
#[test]
fn an_invalid_output_schema_is_named_with_the_agent_and_the_reason() {
    let error = refused(&json!({"output_schema": {"type": "objekt"}}));

    let AgentError::BadOutputSchema { reason, .. } = &error else {
        panic!("{error:?}");
    };
    let expected = format!("agent \"worker\" has an invalid output schema: {reason}");
    assert_eq!(error.to_string(), expected);
    assert!(reason.contains("/type"), "{reason}");
}

#[test]
fn a_model_name_without_services_is_named_with_the_ways_to_set_them() {
    let helper = Agent::new("helper", "large").on(Subscription::trigger("question.v1"));

    let error = helper.bind(&MemoryStore::default()).unwrap_err();

    let expected = "agent \"helper\" names the model \"large\", but no services are set; set RuntimeBuilder::services, or bind the agent with Agent::bind_with";
    assert_eq!(error.to_string(), expected);
}

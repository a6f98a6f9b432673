//! Checks of agent definitions, and of lists of subscriptions that are not part of a definition.

use super::common::CheckContext;
use super::related::Declaration;
use crate::agent::{AgentDefinition, AgentError};
use crate::error::Chain;
use crate::model::{DefinitionPath, Finding};
use serde_json::Value;
use std::borrow::Cow;

pub(super) fn check(context: &mut CheckContext<'_>) -> Option<Declaration> {
    context.extend(AgentDefinition::check_fields(
        context.value,
        context.options,
    ));
    let subscriptions = context.subscriptions("agent");
    let top = DefinitionPath::default();
    let value = match subscriptions {
        Some(_) => Cow::Borrowed(context.value),
        None => Cow::Owned(without_subscriptions(context.value)),
    };
    match AgentDefinition::from_json_with(&value, &context.lenient()) {
        Ok(definition) => {
            let schema = definition.output_schema.as_deref();
            context.check_schema(&top.field("output_schema"), schema);
            for (at, output) in definition.outputs.iter().enumerate() {
                let path = top.field("outputs").item(at).field("schema");
                context.check_schema(&path, Some(&output.schema));
            }
            Some(Declaration {
                id: definition.agent_id,
                kind: "agent",
                subscriptions: subscriptions?,
                writes: (!definition.creates_any_schema).then_some(definition.responds_with),
            })
        }
        // The checks above have already reported these errors.
        Err(AgentError::Subscriptions { .. } | AgentError::UnknownField { .. }) => None,
        Err(AgentError::Field { field, expected }) => {
            let path = match field {
                "context" => top,
                field => top.join(field),
            };
            let message = format!("field {field:?} must be {expected}");
            context.push(Finding::error(path, message));
            None
        }
        Err(AgentError::BadApproval { path, problem }) => {
            context.push(Finding::error(path, problem.to_string()));
            None
        }
        Err(error @ AgentError::BadId(_)) => {
            let message = Chain(&error).to_string();
            context.push(Finding::error(top.field("agent_id"), message));
            None
        }
        Err(
            error @ (AgentError::NamedModel { .. }
            | AgentError::Model { .. }
            | AgentError::BadTool { .. }
            | AgentError::UnknownTool { .. }
            | AgentError::CallsItself { .. }
            | AgentError::OfferedTwice { .. }
            | AgentError::BadOutputSchema { .. }
            | AgentError::Invalid(_)),
        ) => {
            context.push(Finding::error(top, Chain(&error).to_string()));
            None
        }
    }
}

/// Returns a copy of an agent definition in which the list of subscriptions is empty. An error in the subscriptions then hides no error
/// in another field.
fn without_subscriptions(value: &Value) -> Value {
    let mut value = value.clone();
    if let Value::Object(fields) = &mut value {
        fields.remove("selectors");
        fields.insert("subscriptions".to_owned(), Value::Array(Vec::new()));
    }
    value
}

pub(super) fn check_subscriptions_only(context: &mut CheckContext<'_>) -> Option<Declaration> {
    context.subscriptions("executor");
    None
}

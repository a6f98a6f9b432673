//! Requests to other agents and their answers, as breadcrumbs.

#[cfg(feature = "agents")]
mod asking;

#[cfg(feature = "agents")]
pub(super) use asking::answer_of;
#[cfg(feature = "agents")]
pub(crate) use asking::{REQUEST, RESPONSE, request};

use crate::model::display_text;
use serde_json::Value;

/// Returns the answer from the context of an agent's response: the field `output`, otherwise the field `message`, otherwise the
/// whole context.
pub(crate) fn answer_value(context: &Value) -> Value {
    let message = context.get("message").and_then(Value::as_str);
    match (context.get("output"), message) {
        (Some(output), _) => output.clone(),
        (None, Some(message)) => message.into(),
        // The agent answered with another kind of breadcrumb.
        (None, None) => without_creator(context),
    }
}

/// Returns an agent's answer as text, from the context of its response breadcrumb: a string as it is, and any other value as
/// JSON.
pub(crate) fn answer_text(context: &Value) -> String {
    display_text(&answer_value(context))
}

fn without_creator(context: &Value) -> Value {
    let mut context = context.clone();
    if let Value::Object(fields) = &mut context {
        fields.remove("creator");
    }
    context
}

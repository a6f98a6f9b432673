//! The message for a workload, as its trigger breadcrumb contains it.

use super::{Form, WorkloadExecutor, WorkloadMessage};
use crate::executor::{
    CHAT_MESSAGE, ContextError, ExecutionContext, UniversalExecutor as _, user_text_of,
};
use crate::model::{Breadcrumb, Json};
use crate::workload::turn_emitter::PARENT_TAG;
use serde_json::Value;

/// The field of a breadcrumb's context that names the run that wrote the breadcrumb.
const CREATOR: &str = "creator";

impl WorkloadExecutor {
    /// Returns the message for the workload from a trigger, in the form that the trigger's `llm_hints` allow models to
    /// see. The `llm_hints` apply because models receive the message, and the session stores the message.
    pub(super) async fn message(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<WorkloadMessage, ContextError> {
        match self.form {
            Form::Message => {
                let shown = context.shown(trigger, self.store()).await?;
                Ok(message_of(trigger, &shown))
            }
            Form::Request => self.request(trigger, context).await,
        }
    }

    /// Creates the message for the workload from the trigger breadcrumb of a workflow request, with the input in this request.
    async fn request(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<WorkloadMessage, ContextError> {
        let mut message = WorkloadMessage {
            flow: Some(self.flow_of(trigger).to_owned()),
            stores_progress: trigger.context.get("progress").and_then(Value::as_bool) == Some(true),
            ..WorkloadMessage::default()
        };
        message.content = match context.shown(trigger, self.store()).await {
            Ok(shown) => match shown.get("input") {
                Some(input) => input.clone().into(),
                None => shown,
            },
            // A flow that continues has its input in the saved state.
            Err(ContextError::Withheld { .. }) if context.resumed().is_some() => Json::default(),
            Err(error) => return Err(error),
        };
        message.user_text = user_text(self, trigger, context).await?;
        Ok(message)
    }
}

/// Returns the text of a user's chat message. `None` if a run wrote the trigger, or if `llm_hints` exclude the text.
async fn user_text(
    executor: &WorkloadExecutor,
    trigger: &Breadcrumb,
    context: &ExecutionContext,
) -> Result<Option<String>, ContextError> {
    if !context.is_from_user().await? {
        return Ok(None);
    }
    match context.shown(trigger, executor.store()).await {
        Ok(shown) => Ok(user_text_of(&shown).map(str::to_owned)),
        Err(ContextError::Withheld { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the message for the workload from a trigger breadcrumb, read from `shown`: the part of the trigger's context
/// that a model may see.
fn message_of(trigger: &Breadcrumb, shown: &Json) -> WorkloadMessage {
    let is_chat = trigger.schema_name.as_deref() == Some(CHAT_MESSAGE);
    let text = match is_chat {
        true => user_text_of(shown),
        false => shown.text("message"),
    };
    let content = match text {
        Some(text) => Value::from(text).into(),
        None => without_creator(trigger, shown),
    };
    let message = WorkloadMessage::new(content);
    match trigger.author() {
        Some(author) => message.by(author),
        None => message,
    }
}

/// Returns the JSON context of a trigger, without the field `creator` if another workload run wrote the trigger to
/// start an inner run.
fn without_creator(trigger: &Breadcrumb, shown: &Json) -> Json {
    let mut context = shown.clone();
    if tag_value(trigger, PARENT_TAG).is_some() && context.get(CREATOR).is_some() {
        let mut fields = context.into_value();
        if let Value::Object(fields) = &mut fields {
            fields.remove(CREATOR);
        }
        context = fields.into();
    }
    context
}

/// Finds the trigger's first tag that starts with a prefix, and returns the part of the tag after the prefix.
pub(super) fn tag_value<'b>(trigger: &'b Breadcrumb, prefix: &str) -> Option<&'b str> {
    let mut tags = trigger.tags.iter();
    tags.find_map(|tag| tag.strip_prefix(prefix))
}

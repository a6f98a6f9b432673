//! Conversion of a model request to the input of a tool, and of the tool's output to a model answer. The tool belongs to another service,
//! which serves the model as this tool.

use crate::agent::model::Collector;
use crate::agent::providers::completions::provider_state::PARTS;
use crate::agent::providers::completions::{AnswerReader, Form, Names};
use crate::agent::{ChatRequest, ChatResponse, ModelError, PartOrigin};
use crate::model::Json;
use serde_json::{Map, Value, json};

/// Returns a model request as the input of the tool that serves the model.
///
/// # Errors
/// [`ModelError::Unsupported`] if a message has an image or a file.
pub(in crate::agent) fn input_of(tool: &str, request: &ChatRequest) -> Result<Json, ModelError> {
    if request.media().next().is_some() {
        return Err(ModelError::Unsupported {
            provider: "BreadcrumbModel",
            what: "images and files",
        });
    }
    let form = Form {
        names: &Names::new(request),
        origin: &origin(tool, request),
        default_model: None,
        max_tokens_field: "max_tokens",
        streams: false,
        joins_user_messages: false,
    };
    Ok(form.body(request)?.into())
}

/// Reads the output of a tool that serves a model as the answer to `request`.
///
/// The answer is `content`, else `choices[0].message` with its calls, else the output itself, and `usage` if present.
///
/// # Errors
/// [`ModelError::BadAnswer`] if the output contains no answer, [`ModelError::TooLarge`], [`ModelError::Refused`], or the error that
/// the output contains instead of an answer.
pub(in crate::agent) fn response_of(
    tool: &str,
    request: &ChatRequest,
    output: &Json,
) -> Result<ChatResponse, ModelError> {
    let mut reader = AnswerReader::new(Names::new(request), origin(tool, request), None);
    let mut events = Vec::new();
    let completion = completion(output)?.to_string();
    reader.read(completion.as_bytes(), &mut events)?;
    // An output is never truncated, so it is complete also without a finish reason.
    events.extend(reader.finish(true)?);
    let mut answer = Collector::default();
    for event in events {
        answer.push(event)?;
    }
    answer.finish()
}

/// Returns the origin of a model answer that a tool of another service produced: the tool name and the model name.
fn origin(tool: &str, request: &ChatRequest) -> PartOrigin {
    PartOrigin::new(format!("breadcrumb:{tool}"), request.model.as_deref())
}

/// Converts the output of a tool that serves a model to the JSON of a chat completion.
fn completion(output: &Value) -> Result<Value, ModelError> {
    let no_answer = || ModelError::bad_answer("the tool output contains no answer");
    let fields = match output {
        Value::Null => return Err(no_answer()),
        Value::Object(fields) => fields,
        Value::String(_) | Value::Array(_) | Value::Bool(_) | Value::Number(_) => {
            return Ok(completion_of(output));
        }
    };
    let non_null = |name: &str| fields.get(name).filter(|value| !value.is_null());
    if non_null("content").is_none()
        && non_null("choices").is_none()
        && non_null("tool_calls").is_none()
    {
        // Only an error object of the chat completion protocol counts as an error. Any other output is the answer.
        return match non_null("error").is_some_and(Value::is_object) {
            true => Ok(output.clone()),
            false => Ok(completion_of(output)),
        };
    }
    let first = non_null("choices").and_then(|choices| choices.get(0));
    let mut choice = match first.and_then(Value::as_object) {
        Some(choice) => choice.clone(),
        // The output has the fields of a choice itself.
        None => choice_from_fields(fields),
    };
    if let Some(content) = non_null("content") {
        let message = choice.entry("message").or_insert_with(|| json!({}));
        if let Value::Object(message) = message {
            message.insert("content".to_owned(), content.clone());
        }
    }
    if !choice.get("message").is_some_and(Value::is_object) && !choice.contains_key("error") {
        return Err(no_answer());
    }
    Ok(json!({"choices": [choice], "usage": non_null("usage"), "error": non_null("error")}))
}

fn choice_from_fields(fields: &Map<String, Value>) -> Map<String, Value> {
    let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
    let reason = match field("finish_reason") {
        Value::String(reason) => reason,
        Value::Null | Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            "stop".to_owned()
        }
    };
    let mut choice = Map::new();
    choice.insert("finish_reason".to_owned(), reason.into());
    if fields.contains_key("content") || fields.contains_key("tool_calls") {
        let names = [
            "content",
            "tool_calls",
            "refusal",
            "reasoning_content",
            "reasoning",
            "reasoning_details",
            PARTS,
        ];
        let message: Map<_, _> = names
            .map(|name| (name.to_owned(), field(name)))
            .into_iter()
            .collect();
        let message = Value::Object(message);
        choice.insert("message".to_owned(), message);
    }
    choice
}

/// Converts a tool output that is not a chat completion to a chat completion whose text is the whole output.
fn completion_of(output: &Value) -> Value {
    let text = match output {
        Value::String(text) => text.clone(),
        Value::Null | Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            output.to_string()
        }
    };
    json!({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})
}

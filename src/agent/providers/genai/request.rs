//! Conversion of model requests to the types of `genai`. The module does no I/O.

use super::answer::{CUSTOM, SIGNATURE, SIGNATURES};
use crate::agent::providers::completions::Names;
use crate::agent::{
    ChatMessage, ChatRequest, ModelError, Part, PartOrigin, Speaker, ToolCall, ToolChoice,
};
use ::genai::ModelIden;
use ::genai::adapter::AdapterKind;
use ::genai::chat::{
    self as there, ChatOptions, ContentPart, CustomPart, JsonSpec, MessageContent, Tool,
    ToolResponse,
};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// Returns the first feature of a model request that `genai` does not support for this provider, and would omit without an error. The
/// result is `None` if all features are supported.
pub(super) fn lacking(provider: AdapterKind, request: &ChatRequest) -> Option<&'static str> {
    let calls = request
        .messages
        .iter()
        .any(|one| !one.tool_calls().is_empty());
    let must_choose = matches!(
        request.tool_choice,
        ToolChoice::Required | ToolChoice::Named(_)
    );
    let is_strict = request
        .response_schema
        .as_ref()
        .is_some_and(|schema| schema.strict);
    if provider == AdapterKind::Cohere && (calls || !request.tools.is_empty()) {
        return Some("tool calls");
    }
    if let Some(what) = lacking_media(provider, request) {
        return Some(what);
    }
    if !is_plain(provider) {
        return None;
    }
    if must_choose && !request.tools.is_empty() {
        return Some("a required tool call");
    }
    is_strict.then_some("a strict response schema")
}

/// Returns a description of images and files that `genai` does not support for this provider, and would omit without an error. The result
/// is `None` if it supports all of the request's images and files.
fn lacking_media(provider: AdapterKind, request: &ChatRequest) -> Option<&'static str> {
    let mut messages = request.messages.iter();
    if messages.any(|one| one.speaker != Speaker::User && one.has_media()) {
        return Some("images and files in a message of another role than user");
    }
    let is_ollama = matches!(provider, AdapterKind::Ollama | AdapterKind::OllamaCloud);
    let mut media = request.media();
    match provider == AdapterKind::Cohere {
        true => media.next().map(|_| "images and files"),
        false => media
            .any(|(_, is_image)| is_ollama && !is_image)
            .then_some("files"),
    }
}

/// Returns `true` if `genai` omits response schemas and the choice of a tool for this provider, or for some of its models.
fn is_plain(provider: AdapterKind) -> bool {
    matches!(
        provider,
        AdapterKind::BedrockApi
            | AdapterKind::Cohere
            | AdapterKind::Ollama
            | AdapterKind::OllamaCloud
            | AdapterKind::Vertex
    )
}

/// Returns the `genai` options of a model request. With these options, `genai` collects the usage, tool calls and reasoning of the answer.
pub(super) fn options(provider: AdapterKind, request: &ChatRequest, names: &Names) -> ChatOptions {
    let mut options = ChatOptions::default()
        .with_capture_usage(true)
        .with_capture_tool_calls(true)
        // `genai` returns the signatures of thoughts only together with the thoughts.
        .with_capture_reasoning_content(true)
        .with_stop_sequences(request.stop.clone());
    options.temperature = request.temperature;
    options.max_tokens = request.max_output_tokens;
    if is_plain(provider) {
        return options;
    }
    if let Some(wanted) = &request.response_schema {
        let schema = JsonSpec::new(&*wanted.name, Value::clone(&wanted.schema));
        options = options.with_response_format(schema);
    }
    if !request.tools.is_empty() {
        options.tool_choice = match &request.tool_choice {
            ToolChoice::Auto => None,
            ToolChoice::None => Some(there::ToolChoice::None),
            ToolChoice::Required => Some(there::ToolChoice::Required),
            ToolChoice::Named(name) => Some(there::ToolChoice::tool(names.there(name))),
        };
    }
    options
}

/// Returns the conversation and the tools of a model request in the types of `genai`.
///
/// # Errors
/// [`ModelError::Media`] if an image or a file was not read.
pub(super) fn messages(
    provider: AdapterKind,
    request: &ChatRequest,
    (names, origin): (&Names, &PartOrigin),
) -> Result<there::ChatRequest, ModelError> {
    let together = !matches!(provider, AdapterKind::Ollama | AdapterKind::OllamaCloud);
    let mut messages = Vec::new();
    let mut results: Vec<ToolResponse> = Vec::new();
    // The Converse API rejects consecutive user messages.
    let said_by_all = match provider == AdapterKind::BedrockApi {
        true => Cow::Owned(ChatMessage::joined(&request.messages)),
        false => Cow::Borrowed(&*request.messages),
    };
    for message in &*said_by_all {
        if message.speaker == Speaker::Tool {
            // Most providers need all results of an answer in one message. For Ollama, `genai` would send only the last of them.
            results.push(result(message, &request.messages, names));
            if together {
                continue;
            }
        }
        if !results.is_empty() {
            messages.push(std::mem::take(&mut results).into());
        }
        messages.extend(match message.has_media() {
            true => Some(attached(message, request)?),
            false => said(message, names, (provider, origin)),
        });
    }
    if !results.is_empty() {
        messages.push(results.into());
    }
    let mut asked = there::ChatRequest::new(messages);
    let forbidden = is_plain(provider) && request.tool_choice == ToolChoice::None;
    if !request.tools.is_empty() && !forbidden {
        let tools = request.tools.iter().map(|tool| {
            Tool::new(names.there(&tool.name).to_owned())
                .with_description(&*tool.description)
                .with_schema(Value::clone(&tool.input_schema))
        });
        asked.tools = Some(tools.collect());
    }
    Ok(asked)
}

/// Returns a user message with images or files in the types of `genai`.
fn attached(
    message: &ChatMessage,
    request: &ChatRequest,
) -> Result<there::ChatMessage, ModelError> {
    let mut content = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(text) => content.push(ContentPart::from_text(text)),
            Part::Data(data) => {
                let data = ChatMessage::data(data.clone());
                content.push(ContentPart::from_text(data.text()));
            }
            Part::Image(media) | Part::File(media) => {
                let bytes = Arc::clone(request.bytes_of(media)?);
                let name = media.name.clone();
                content.push(ContentPart::from_binary_base64(
                    &*media.media_type,
                    bytes,
                    name,
                ));
            }
            // User messages have none of these parts.
            Part::ToolCall(_) | Part::ToolResult(_) | Part::Reasoning(_) | Part::Opaque(_) => {}
        }
    }
    Ok(there::ChatMessage::user(MessageContent::from_parts(
        content,
    )))
}

/// Returns a chat message in the types of `genai`, or `None` if it has no content, because providers reject empty messages.
fn said(
    message: &ChatMessage,
    names: &Names,
    (provider, origin): (AdapterKind, &PartOrigin),
) -> Option<there::ChatMessage> {
    let text = message.text();
    match message.speaker {
        Speaker::System => Some(there::ChatMessage::system(text.into_owned())),
        Speaker::User => Some(there::ChatMessage::user(text.into_owned())),
        Speaker::Assistant => {
            let parts = message.parts.iter();
            let thoughts = parts.filter_map(|part| thought(part, provider, origin));
            let text = (!text.is_empty()).then(|| ContentPart::from_text(text));
            let calls = message.tool_calls().into_iter();
            let calls = calls.map(|one| call(one, names, signatures(message, origin, &one.id)));
            // `genai` rebuilds the thoughts of a provider from the parts before the text.
            let said: Vec<_> = text.into_iter().chain(calls).collect();
            let has_content = !said.is_empty();
            let parts: Vec<_> = thoughts.chain(said).collect();
            has_content.then(|| there::ChatMessage::assistant(MessageContent::from_parts(parts)))
        }
        Speaker::Tool => None,
    }
}

/// Converts a message part with reasoning or provider state of this `origin` to the type of `genai`. Returns `None` for other parts.
fn thought(part: &Part, provider: AdapterKind, origin: &PartOrigin) -> Option<ContentPart> {
    match part {
        Part::Reasoning(reasoning) if reasoning.origin == *origin => {
            Some(ContentPart::ReasoningContent(reasoning.text.clone()))
        }
        Part::Opaque(opaque) if opaque.origin == *origin && opaque.call_id.is_none() => {
            match (&*opaque.field, opaque.value.as_str()) {
                (SIGNATURE, Some(signature)) => {
                    Some(ContentPart::ThoughtSignature(signature.to_owned()))
                }
                (CUSTOM, _) => {
                    let model = origin.model.clone().unwrap_or_default();
                    Some(ContentPart::Custom(CustomPart {
                        model_iden: Some(ModelIden::new(provider, model)),
                        data: Value::clone(&opaque.value),
                    }))
                }
                (_, _) => None,
            }
        }
        Part::Reasoning(_)
        | Part::Opaque(_)
        | Part::Text(_)
        | Part::Data(_)
        | Part::Image(_)
        | Part::File(_)
        | Part::ToolCall(_)
        | Part::ToolResult(_) => None,
    }
}

/// Returns the signatures of the thoughts behind a tool call.
fn signatures(message: &ChatMessage, origin: &PartOrigin, call_id: &str) -> Option<Vec<String>> {
    let mut of_call = message.opaque(origin, Some(call_id));
    let found = of_call.find(|opaque| opaque.field == SIGNATURES)?;
    found.value.parse().ok()
}

fn call(call: &ToolCall, names: &Names, signatures: Option<Vec<String>>) -> ContentPart {
    // Providers accept only objects, and reject the whole conversation otherwise.
    let arguments = match call.arguments.json() {
        Ok(json) if json.is_object() => Value::clone(json),
        Ok(_) | Err(_) => json!({"unreadable": call.arguments.text()}),
    };
    ContentPart::ToolCall(there::ToolCall {
        call_id: id_there(&call.id),
        fn_name: names.there(&call.name).to_owned(),
        fn_arguments: arguments,
        thought_signatures: signatures,
    })
}

/// Returns a tool call ID in which `_` replaces each character that some protocols reject. Only ASCII letters, digits, `_` and `-` stay,
/// because an earlier call can be from another provider.
fn id_there(id: &str) -> String {
    let is_taken = |one: char| one.is_ascii_alphanumeric() || "_-".contains(one);
    id.replace(|one| !is_taken(one), "_")
}

fn result(message: &ChatMessage, conversation: &[ChatMessage], names: &Names) -> ToolResponse {
    let id = message.call_id().unwrap_or_default();
    // Not every protocol has a field for errors, so the text reports them.
    let content = match message.is_error() {
        true => format!("error: {}", message.text()),
        false => message.text().into_owned(),
    };
    let mut calls = conversation.iter().flat_map(ChatMessage::tool_calls);
    let response = ToolResponse::new(id_there(id), content);
    match calls.find(|call| call.id == id) {
        Some(call) => response.with_fn_name(names.there(&call.name)),
        None => response,
    }
}

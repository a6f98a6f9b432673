//! Conversion of model requests to the types of `genai`. The module does no I/O.

use super::answer::{CUSTOM, SIGNATURE, SIGNATURES};
use crate::agent::providers::completions::Names;
use crate::agent::{
    ChatMessage, ChatRequest, ModelError, Part, PartOrigin, Speaker, ToolCall, ToolChoice,
};
use ::genai::ModelIden;
use ::genai::adapter::AdapterKind;
use ::genai::chat::{
    self as genai_chat, ChatOptions, ContentPart, CustomPart, JsonSpec, MessageContent, Tool,
    ToolResponse,
};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;

/// Returns the first feature of a model request that `genai` does not support for this provider, and would omit without an error. The
/// result is `None` if all features are supported.
pub(super) fn unsupported_feature(
    provider: AdapterKind,
    request: &ChatRequest,
) -> Option<&'static str> {
    let calls = request
        .messages
        .iter()
        .any(|message| !message.tool_calls().is_empty());
    let requires_call = matches!(
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
    if let Some(what) = unsupported_media(provider, request) {
        return Some(what);
    }
    if !lacks_structured_options(provider) {
        return None;
    }
    if requires_call && !request.tools.is_empty() {
        return Some("a required tool call");
    }
    is_strict.then_some("a strict response schema")
}

/// Returns a description of images and files that `genai` does not support for this provider, and would omit without an error. The result
/// is `None` if it supports all of the request's images and files.
fn unsupported_media(provider: AdapterKind, request: &ChatRequest) -> Option<&'static str> {
    let mut messages = request.messages.iter();
    if messages.any(|message| message.speaker != Speaker::User && message.has_media()) {
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
fn lacks_structured_options(provider: AdapterKind) -> bool {
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
    if lacks_structured_options(provider) {
        return options;
    }
    if let Some(response_schema) = &request.response_schema {
        let schema = JsonSpec::new(
            &*response_schema.name,
            Value::clone(&response_schema.schema),
        );
        options = options.with_response_format(schema);
    }
    if !request.tools.is_empty() {
        options.tool_choice = match &request.tool_choice {
            ToolChoice::Auto => None,
            ToolChoice::None => Some(genai_chat::ToolChoice::None),
            ToolChoice::Required => Some(genai_chat::ToolChoice::Required),
            ToolChoice::Named(name) => {
                Some(genai_chat::ToolChoice::tool(names.provider_name(name)))
            }
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
) -> Result<genai_chat::ChatRequest, ModelError> {
    let joins_results = !matches!(provider, AdapterKind::Ollama | AdapterKind::OllamaCloud);
    let mut messages = Vec::new();
    let mut results: Vec<ToolResponse> = Vec::new();
    // The Converse API rejects consecutive user messages.
    let conversation = match provider == AdapterKind::BedrockApi {
        true => Cow::Owned(ChatMessage::joined(&request.messages)),
        false => Cow::Borrowed(&*request.messages),
    };
    for message in &*conversation {
        if message.speaker == Speaker::Tool {
            // Most providers need all results of an answer in one message. For Ollama, `genai` would send only the last of them.
            results.push(result(message, &request.messages, names));
            if joins_results {
                continue;
            }
        }
        if !results.is_empty() {
            messages.push(std::mem::take(&mut results).into());
        }
        messages.extend(match message.has_media() {
            true => Some(message_with_media(message, request)?),
            false => text_message(message, names, (provider, origin)),
        });
    }
    if !results.is_empty() {
        messages.push(results.into());
    }
    let mut chat_request = genai_chat::ChatRequest::new(messages);
    let forbidden = lacks_structured_options(provider) && request.tool_choice == ToolChoice::None;
    if !request.tools.is_empty() && !forbidden {
        let tools = request.tools.iter().map(|tool| {
            Tool::new(names.provider_name(&tool.name).to_owned())
                .with_description(&*tool.description)
                .with_schema(Value::clone(&tool.input_schema))
        });
        chat_request.tools = Some(tools.collect());
    }
    Ok(chat_request)
}

/// Returns a user message with images or files in the types of `genai`.
fn message_with_media(
    message: &ChatMessage,
    request: &ChatRequest,
) -> Result<genai_chat::ChatMessage, ModelError> {
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
    Ok(genai_chat::ChatMessage::user(MessageContent::from_parts(
        content,
    )))
}

/// Returns a chat message in the types of `genai`, or `None` if it has no content, because providers reject empty messages.
fn text_message(
    message: &ChatMessage,
    names: &Names,
    (provider, origin): (AdapterKind, &PartOrigin),
) -> Option<genai_chat::ChatMessage> {
    let text = message.text();
    match message.speaker {
        Speaker::System => Some(genai_chat::ChatMessage::system(text.into_owned())),
        Speaker::User => Some(genai_chat::ChatMessage::user(text.into_owned())),
        Speaker::Assistant => {
            let parts = message.parts.iter();
            let thoughts = parts.filter_map(|part| thought(part, provider, origin));
            let text = (!text.is_empty()).then(|| ContentPart::from_text(text));
            let calls = message.tool_calls().into_iter();
            let calls = calls.map(|tool_call| {
                call(tool_call, names, signatures(message, origin, &tool_call.id))
            });
            // `genai` rebuilds the thoughts of a provider from the parts before the text.
            let content: Vec<_> = text.into_iter().chain(calls).collect();
            let has_content = !content.is_empty();
            let parts: Vec<_> = thoughts.chain(content).collect();
            has_content
                .then(|| genai_chat::ChatMessage::assistant(MessageContent::from_parts(parts)))
        }
        Speaker::Tool => None,
    }
}

/// Converts reasoning or provider state in a message part to the type of `genai`, if `origin` names the provider and model that
/// wrote the part. Returns `None` for other parts.
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

/// Returns the provider's signatures of the thoughts that led to a tool call, or `None` if the saved message has no signatures.
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
    ContentPart::ToolCall(genai_chat::ToolCall {
        call_id: provider_call_id(&call.id),
        fn_name: names.provider_name(&call.name).to_owned(),
        fn_arguments: arguments,
        thought_signatures: signatures,
    })
}

/// Returns a tool call ID in which `_` replaces each character that some protocols reject. Only ASCII letters, digits, `_` and `-` stay,
/// because an earlier call can be from another provider.
fn provider_call_id(id: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    id.replace(|c| !is_allowed(c), "_")
}

fn result(message: &ChatMessage, conversation: &[ChatMessage], names: &Names) -> ToolResponse {
    let id = message.call_id().unwrap_or_default();
    // Not every protocol has a field for errors, so the text reports them.
    let content = match message.is_error() {
        true => format!("error: {}", message.text()),
        false => message.text().into_owned(),
    };
    let mut calls = conversation.iter().flat_map(ChatMessage::tool_calls);
    let response = ToolResponse::new(provider_call_id(id), content);
    match calls.find(|call| call.id == id) {
        Some(call) => response.with_fn_name(names.provider_name(&call.name)),
        None => response,
    }
}

//! Reader of model answers in the chat completions protocol, whole or in pieces.

use super::failure::{self, ErrorResponse};
use super::names::Names;
use super::provider_state::{Fields, ProviderState, size_of};
use crate::agent::providers::Secret;
use crate::agent::{
    ChatEvent, ChatResponse, ModelError, PartOrigin, StopReason, ToolCallDelta, Usage,
};
use crate::model::parse_as;
use serde::Deserialize;
use serde_json::{Map, Value};
use uuid::Uuid;

/// A model answer or a piece of a streamed answer in the chat completions protocol. The content of a whole answer is in `message`, that of
/// a piece in `delta`.
#[derive(Deserialize)]
struct Completion {
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    usage: Option<Tokens>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u32,
    #[serde(default)]
    message: Option<MessageFields>,
    #[serde(default)]
    delta: Option<MessageFields>,
    #[serde(default)]
    finish_reason: Option<String>,
    /// The error of an interrupted model answer, in the form of OpenRouter.
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Default, Deserialize)]
struct MessageFields {
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<Call>>,
    #[serde(default)]
    reasoning_content: Option<Value>,
    #[serde(default)]
    reasoning: Option<Value>,
    #[serde(default)]
    reasoning_details: Option<Value>,
    #[serde(default)]
    opaque_parts: Option<Value>,
}

#[derive(Deserialize)]
struct Call {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Function,
    /// Further JSON fields of the tool call, such as the signature of the thought behind the call.
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Default, Deserialize)]
struct Function {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct Tokens {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
}

/// Reader of one model answer in the chat completions protocol, whole or in pieces.
#[derive(Debug)]
pub(in crate::agent) struct AnswerReader {
    names: Names,
    /// The API key of the model request, to remove the key from provider errors that repeat it.
    secret: Option<Secret>,
    calls: Vec<CollectedCall>,
    provider_state: ProviderState,
    refusal: String,
    stop: Option<StopReason>,
    /// The number of received bytes of the model answer.
    bytes: usize,
}

/// A collected tool call of a model answer: at least the first piece of the call was received.
#[derive(Debug)]
struct CollectedCall {
    /// The index by which pieces of the streamed model answer refer to the tool call.
    index: Option<u64>,
    /// The ID that the model provider gave the tool call.
    id: Option<String>,
    /// The ID that the crate uses for the tool call: the provider's ID, or a generated ID if the provider sends none.
    own_id: String,
}

/// Maximum length of a model's refusal text in characters. The rest of the text is discarded.
const MAX_REFUSAL: usize = 1024;

impl AnswerReader {
    pub(in crate::agent) fn new(names: Names, origin: PartOrigin, secret: Option<Secret>) -> Self {
        Self {
            names,
            secret,
            calls: Vec::new(),
            provider_state: ProviderState::new(origin),
            refusal: String::new(),
            stop: None,
            bytes: 0,
        }
    }

    /// Reads a whole model answer or a piece of one, and adds the events of the answer to `events`.
    pub(in crate::agent) fn read(
        &mut self,
        text: &[u8],
        events: &mut impl Extend<ChatEvent>,
    ) -> Result<(), ModelError> {
        let completion: Completion = parse_as(text).map_err(|error| unreadable(&error))?;
        self.check_error(completion.error)?;
        let no_choices = completion.choices.is_none();
        let choices = completion.choices.unwrap_or_default();
        if no_choices && completion.usage.is_none() {
            return Err(ModelError::bad_answer(
                "the response has neither choices nor an error",
            ));
        }
        for choice in choices.into_iter().filter(|choice| choice.index == 0) {
            self.choice(choice, events)?;
        }
        if let Some(tokens) = completion.usage {
            let (read, written) = (tokens.prompt_tokens, tokens.completion_tokens);
            let usage = Usage::new(read.unwrap_or_default(), written.unwrap_or_default());
            events.extend([ChatEvent::Usage(usage)]);
        }
        Ok(())
    }

    /// Returns the last events of a model answer, at the end of the body: the provider state, then [`ChatEvent::End`].
    ///
    /// # Errors
    /// [`ModelError::Unavailable`] if the answer has no finish reason, unless `has_done_marker`: the stream ended with `[DONE]`.
    pub(in crate::agent) fn finish(
        self,
        has_done_marker: bool,
    ) -> Result<Vec<ChatEvent>, ModelError> {
        if !self.refusal.is_empty() {
            let message = failure::without_key(&self.refusal, self.secret.as_ref());
            let reason = failure::safe_excerpt(&message);
            return Err(ModelError::Refused { reason });
        }
        let stop = match self.stop {
            // Some endpoints send the reason "stop" with tool calls.
            Some(StopReason::Finished) if !self.calls.is_empty() => StopReason::ToolCalls,
            Some(stop) => stop,
            None if has_done_marker => StopReason::Other,
            None => return Err(ModelError::Unavailable("the answer is incomplete".into())),
        };
        let mut events = self.provider_state.finish()?;
        events.push(ChatEvent::End(stop));
        Ok(events)
    }

    /// Returns the [`ModelError`] for an error that a model response contains instead of an answer.
    fn check_error(&self, error: Option<Value>) -> Result<(), ModelError> {
        match error.filter(|error| !error.is_null()) {
            Some(error) => {
                let failed = ErrorResponse::from_answer(&error).without_key(self.secret.as_ref());
                Err(failure::classify(&failed))
            }
            None => Ok(()),
        }
    }

    fn choice(
        &mut self,
        choice: Choice,
        events: &mut impl Extend<ChatEvent>,
    ) -> Result<(), ModelError> {
        self.check_error(choice.error)?;
        let is_complete = choice.message.is_some();
        let message = choice.message.or(choice.delta).unwrap_or_default();
        if let Some(refusal) = message.refusal {
            let max_chars = MAX_REFUSAL.saturating_sub(self.refusal.len());
            self.refusal.extend(refusal.chars().take(max_chars));
        }
        let fields = Fields {
            reasoning_content: message.reasoning_content,
            reasoning: message.reasoning,
            reasoning_details: message.reasoning_details,
            opaque_parts: message.opaque_parts,
        };
        self.count_bytes(fields.size())?;
        events.extend(self.provider_state.read(fields));
        let text = message.content.map(text_of).unwrap_or_default();
        if !text.is_empty() {
            self.count_bytes(text.len())?;
            events.extend([ChatEvent::Text(text)]);
        }
        for call in message.tool_calls.unwrap_or_default() {
            let continued_call = if is_complete {
                None
            } else {
                self.continued_call(&call)
            };
            self.call(continued_call, call, events)?;
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            self.stop = Some(stop_reason(&reason)?);
        }
        Ok(())
    }

    /// Counts received bytes of a model answer, and returns an error if the answer exceeds its maximum size.
    fn count_bytes(&mut self, by: usize) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(by);
        match self.bytes > ChatResponse::MAX_BYTES {
            true => Err(ModelError::TooLarge {
                what: "the size of the answer in bytes",
                limit: ChatResponse::MAX_BYTES,
            }),
            false => Ok(()),
        }
    }

    /// Returns the index of the collected tool call that a piece of the answer continues, or `None` if the piece starts a call. A piece
    /// continues the call with the same index, or without an index and name, the last call. A new ID always starts a call, because some
    /// endpoints give all calls the same index.
    fn continued_call(&self, piece: &Call) -> Option<usize> {
        let is_nonempty =
            |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let has_id = is_nonempty(&piece.id);
        if piece.index.is_none() && !has_id && is_nonempty(&piece.function.name) {
            return None;
        }
        self.calls.iter().rposition(|collected| {
            (piece.index.is_none() || collected.index == piece.index)
                && (!has_id || collected.id == piece.id)
        })
    }

    fn call(
        &mut self,
        continued_call: Option<usize>,
        call: Call,
        events: &mut impl Extend<ChatEvent>,
    ) -> Result<(), ModelError> {
        let arguments = match call.function.arguments.unwrap_or_default() {
            Value::String(text) => text,
            Value::Null => String::new(),
            // Some endpoints send the JSON itself instead of a string.
            other @ (Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                other.to_string()
            }
        };
        let others = Value::Object(call.others);
        self.count_bytes(arguments.len() + size_of(Some(&others)))?;
        let delta = match continued_call {
            Some(index) => ToolCallDelta::more(index, arguments),
            None => {
                if self.calls.len() >= ChatResponse::MAX_TOOL_CALLS {
                    return Err(ModelError::TooLarge {
                        what: "the number of tool calls",
                        limit: ChatResponse::MAX_TOOL_CALLS,
                    });
                }
                let name = self.names.tool_name(call.function.name.unwrap_or_default());
                let index = self.calls.len();
                let id = call.id.clone().filter(|id| !id.is_empty());
                let id = id.unwrap_or_else(|| format!("call_{}", Uuid::now_v7().simple()));
                self.calls.push(CollectedCall {
                    index: call.index,
                    id: call.id,
                    own_id: id.clone(),
                });
                ToolCallDelta {
                    arguments,
                    ..ToolCallDelta::first(index, id, name)
                }
            }
        };
        if let (Some(collected), Value::Object(others)) = (self.calls.get(delta.index), others) {
            self.provider_state.read_call(&collected.own_id, others);
        }
        events.extend([ChatEvent::ToolCall(delta)]);
        Ok(())
    }
}

fn stop_reason(reason: &str) -> Result<StopReason, ModelError> {
    match reason {
        "stop" => Ok(StopReason::Finished),
        "tool_calls" | "function_call" => Ok(StopReason::ToolCalls),
        "length" => Ok(StopReason::MaxTokens),
        "error" => Err(ModelError::Unavailable("the answer is incomplete".into())),
        "content_filter" => Err(ModelError::Refused {
            reason: "the provider filtered the answer".to_owned(),
        }),
        _ => Ok(StopReason::Other),
    }
}

/// Returns the text of a JSON value in a model answer: a string, the strings in a list of parts, or other JSON as text.
fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        Value::Array(parts) if parts.iter().any(|part| part.get("text").is_some()) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect()
        }
        Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

/// Returns the error of an unreadable model answer, with the kind and the position of the problem. The message of serde would quote the
/// answer.
pub(in crate::agent) fn unreadable(error: &serde_json::Error) -> ModelError {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "truncated JSON",
        serde_json::error::Category::Data => "JSON with unexpected fields",
        serde_json::error::Category::Syntax | serde_json::error::Category::Io => "invalid JSON",
    };
    let (line, column) = (error.line(), error.column());
    ModelError::bad_answer(format!("{what} at line {line}, column {column}"))
}

#[cfg(test)]
mod tests;

//! Reader of a model answer that is streamed through the crate `genai`.

use super::failure;
use super::meter::Meter;
use crate::agent::providers::Secret;
use crate::agent::providers::completions::Names;
use crate::agent::{
    ChatEvent, ChatResponse, ModelError, Opaque, PartOrigin, Reasoning, StopReason, ToolCallDelta,
    Usage,
};
use ::genai::chat::{self as genai_chat, ChatStream, ChatStreamEvent, ContentPart, StreamEnd};
use futures::stream::{self, Stream, StreamExt};
use serde_json::Value;
use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use tracing::Dispatch;
use tracing::instrument::WithSubscriber;
use uuid::Uuid;

/// The field name of a model's reasoning text in saved conversations with `genai` models.
const REASONING: &str = "reasoning";

/// The field name of a thought's signature in saved conversations with `genai` models.
pub(super) const SIGNATURE: &str = "thought_signature";

/// The field name, in saved conversations with `genai` models, for the signatures of the thoughts that led to a tool call.
pub(super) const SIGNATURES: &str = "thought_signatures";

/// The field name, in saved conversations with `genai` models, for an answer part such as a redacted thought. `genai` passes such a part on
/// unchanged.
pub(super) const CUSTOM: &str = "custom";

/// A model answer that is being received through `genai`. Text becomes events immediately, and tool calls at the end.
pub(super) struct AnswerEvents {
    /// The event stream of `genai`, or `None` once the model answer has ended.
    events: Option<ChatStream>,
    meter: Arc<Meter>,
    names: Names,
    origin: PartOrigin,
    /// The API key of the model request, to remove the key from provider errors that repeat it.
    secret: Option<Secret>,
    /// The number of received bytes of the model answer.
    bytes: usize,
    /// The next events of the model answer, in the order in which they will be returned. They come from one event of `genai`, so its size
    /// limits them.
    ready_events: VecDeque<ChatEvent>,
}

impl AnswerEvents {
    pub(super) fn new(
        events: ChatStream,
        meter: Arc<Meter>,
        (names, origin): (Names, PartOrigin),
        secret: Option<Secret>,
    ) -> Self {
        Self {
            events: Some(events),
            meter,
            names,
            origin,
            secret,
            bytes: 0,
            ready_events: VecDeque::new(),
        }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Result<ChatEvent, ModelError>> + Send {
        stream::unfold(self, Self::next)
    }

    async fn next(mut self) -> Option<(Result<ChatEvent, ModelError>, Self)> {
        while self.ready_events.is_empty() && self.events.is_some() {
            if let Err(error) = self.step().await {
                self.events = None;
                return Some((Err(error), self));
            }
        }
        let event = self.ready_events.pop_front()?;
        Some((Ok(event), self))
    }

    /// Reads the next event of a model answer from `genai`, and adds the events for the caller to `ready_events`. Some events of `genai`
    /// add none, because the end event repeats their content.
    async fn step(&mut self) -> Result<(), ModelError> {
        let Some(events) = &mut self.events else {
            return Ok(());
        };
        let meter = &self.meter;
        // Log messages of `genai` are discarded, because they quote untrusted text of the provider.
        let event = poll_fn(|cx| match events.poll_next_unpin(cx) {
            // The limit also holds for input without events, because such input could be endless.
            _ if meter.is_full() => Poll::Ready(Err(ModelError::TooLarge {
                what: "the size of the answer in bytes",
                limit: meter.limit(),
            })),
            polled => polled.map(Ok),
        })
        .with_subscriber(Dispatch::none())
        .await;
        meter.warn_if_oversized();
        match event? {
            Some(Ok(ChatStreamEvent::Chunk(chunk))) => {
                count_bytes(&mut self.bytes, chunk.content.len())?;
                self.ready_events.push_back(ChatEvent::Text(chunk.content));
                Ok(())
            }
            Some(Ok(ChatStreamEvent::End(end))) => {
                self.events = None;
                self.end(end)
            }
            // The end event contains all thoughts and calls.
            Some(Ok(
                ChatStreamEvent::Start
                | ChatStreamEvent::ReasoningChunk(_)
                | ChatStreamEvent::ThoughtSignatureChunk(_)
                | ChatStreamEvent::ToolCallChunk(_)
                | ChatStreamEvent::Heartbeat,
            )) => Ok(()),
            Some(Err(error)) => Err(failure::of_answer(error, &self.meter, self.secret.as_ref())),
            None => Err(incomplete_answer()),
        }
    }

    /// Adds the events at the end of a model answer: reasoning, provider state, calls, usage and stop reason. An answer without a stop
    /// reason is incomplete, because some protocols of `genai` also report an end when the connection closes.
    fn end(&mut self, end: StreamEnd) -> Result<(), ModelError> {
        let usage = end.captured_usage.as_ref().map(usage);
        let stop = end
            .captured_stop_reason
            .clone()
            .ok_or_else(incomplete_answer)?;
        let reasoning = end.captured_reasoning_content;
        let content = end.captured_content.unwrap_or_default();
        let mut calls = Vec::new();
        let mut has_reasoning = false;
        for part in content.into_parts() {
            match part {
                ContentPart::ReasoningContent(text) => {
                    has_reasoning = true;
                    self.reasoning(text)?;
                }
                ContentPart::ThoughtSignature(signature) => {
                    self.opaque(SIGNATURE, signature.into(), None)?;
                }
                ContentPart::Custom(custom) => self.opaque(CUSTOM, custom.data, None)?,
                ContentPart::ToolCall(call) => calls.push(call),
                // Text became an event when it arrived.
                ContentPart::Text(_) | ContentPart::Binary(_) | ContentPart::ToolResponse(_) => {}
            }
        }
        if let Some(text) = reasoning.filter(|_| !has_reasoning) {
            self.reasoning(text)?;
        }
        let stop = stop_reason(&stop, !calls.is_empty())?;
        self.calls(calls)?;
        self.ready_events.extend(usage.map(ChatEvent::Usage));
        self.ready_events.push_back(ChatEvent::End(stop));
        Ok(())
    }

    fn reasoning(&mut self, text: String) -> Result<(), ModelError> {
        count_bytes(&mut self.bytes, text.len())?;
        let reasoning = Reasoning::new(text, REASONING, self.origin.clone());
        self.ready_events.push_back(ChatEvent::Reasoning(reasoning));
        Ok(())
    }

    fn opaque(
        &mut self,
        field: &str,
        value: Value,
        call_id: Option<&str>,
    ) -> Result<(), ModelError> {
        let mut opaque = Opaque::new(field, value, self.origin.clone());
        if let Some(call_id) = call_id {
            opaque = opaque.of_call(call_id);
        }
        count_bytes(&mut self.bytes, opaque.value.size())?;
        self.ready_events.push_back(ChatEvent::Opaque(opaque));
        Ok(())
    }

    fn calls(&mut self, calls: Vec<genai_chat::ToolCall>) -> Result<(), ModelError> {
        if calls.len() > ChatResponse::MAX_TOOL_CALLS {
            return Err(ModelError::TooLarge {
                what: "the number of tool calls",
                limit: ChatResponse::MAX_TOOL_CALLS,
            });
        }
        let mut ids = HashSet::new();
        for (index, call) in calls.into_iter().enumerate() {
            let mut id = call.call_id;
            // If the provider sends no IDs, `genai` creates numbers, which can start again within an answer.
            if id.is_empty() || ids.contains(&id) {
                id = format!("call_{}", Uuid::now_v7().simple());
            }
            ids.insert(id.clone());
            let name = self.names.tool_name(call.fn_name);
            let arguments = match call.fn_arguments {
                // Text that is not JSON, as the model wrote it.
                Value::String(text) => text,
                Value::Null => String::new(),
                json @ (Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                    json.to_string()
                }
            };
            count_bytes(&mut self.bytes, id.len() + name.len() + arguments.len())?;
            let signatures = call
                .thought_signatures
                .map(|signatures| (id.clone(), signatures));
            self.ready_events
                .push_back(ChatEvent::ToolCall(ToolCallDelta {
                    arguments,
                    ..ToolCallDelta::first(index, id, name)
                }));
            if let Some((id, signatures)) = signatures {
                self.opaque(SIGNATURES, signatures.into(), Some(&id))?;
            }
        }
        Ok(())
    }
}

fn count_bytes(bytes: &mut usize, by: usize) -> Result<(), ModelError> {
    *bytes = bytes.saturating_add(by);
    match *bytes > ChatResponse::MAX_BYTES {
        true => Err(ModelError::TooLarge {
            what: "the size of the answer in bytes",
            limit: ChatResponse::MAX_BYTES,
        }),
        false => Ok(()),
    }
}

fn incomplete_answer() -> ModelError {
    ModelError::Unavailable("the answer is incomplete".into())
}

fn usage(usage: &genai_chat::Usage) -> Usage {
    let count = |tokens: Option<i32>| u64::try_from(tokens.unwrap_or_default()).unwrap_or_default();
    Usage::new(count(usage.prompt_tokens), count(usage.completion_tokens))
}

fn stop_reason(reason: &genai_chat::StopReason, calls: bool) -> Result<StopReason, ModelError> {
    use genai_chat::StopReason as GenaiStop;
    match reason {
        GenaiStop::ContentFilter(_) => Err(ModelError::Refused {
            reason: "the provider filtered the answer".to_owned(),
        }),
        GenaiStop::MaxTokens(_) => Ok(StopReason::MaxTokens),
        // Some providers report completion with tool calls.
        GenaiStop::Completed(_) | GenaiStop::StopSequence(_) | GenaiStop::Other(_) if calls => {
            Ok(StopReason::ToolCalls)
        }
        GenaiStop::Completed(_) | GenaiStop::StopSequence(_) => Ok(StopReason::Finished),
        GenaiStop::ToolCall(_) => Ok(StopReason::ToolCalls),
        GenaiStop::Other(_) => Ok(StopReason::Other),
    }
}

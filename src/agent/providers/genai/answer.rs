//! An answer while it comes.

use super::failure;
use super::meter::Meter;
use crate::agent::providers::Secret;
use crate::agent::providers::completions::Names;
use crate::agent::{
    ChatEvent, ChatResponse, ModelError, Opaque, PartOrigin, Reasoning, StopReason, ToolCallDelta,
    Usage,
};
use ::genai::chat::{self as there, ChatStream, ChatStreamEvent, ContentPart, StreamEnd};
use futures::stream::{self, Stream, StreamExt};
use serde_json::Value;
use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use tracing::Dispatch;
use tracing::instrument::WithSubscriber;
use uuid::Uuid;

/// The field of a text in which a model reasoned.
const REASONING: &str = "reasoning";

/// The field of the signature of a thought.
pub(super) const SIGNATURE: &str = "thought_signature";

/// The field of the signatures of the thoughts behind a tool call.
pub(super) const SIGNATURES: &str = "thought_signatures";

/// The field of a part that `genai` passes on as the provider wrote it, such as a redacted thought.
pub(super) const CUSTOM: &str = "custom";

/// An answer while it comes: its texts at once, its calls when it has ended.
pub(super) struct Answer {
    /// None once the answer has ended.
    events: Option<ChatStream>,
    meter: Arc<Meter>,
    names: Names,
    origin: PartOrigin,
    /// What was sent, should the provider repeat it in an error.
    secret: Option<Secret>,
    /// How many bytes were said.
    bytes: usize,
    /// What was read and not yet given; of one event, so bounded by its size.
    ready: VecDeque<ChatEvent>,
}

impl Answer {
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
            ready: VecDeque::new(),
        }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Result<ChatEvent, ModelError>> + Send {
        stream::unfold(self, Self::next)
    }

    async fn next(mut self) -> Option<(Result<ChatEvent, ModelError>, Self)> {
        while self.ready.is_empty() && self.events.is_some() {
            if let Err(error) = self.step().await {
                self.events = None;
                return Some((Err(error), self));
            }
        }
        let event = self.ready.pop_front()?;
        Some((Ok(event), self))
    }

    /// Reads the next event, which may have nothing in it to give.
    async fn step(&mut self) -> Result<(), ModelError> {
        let Some(events) = &mut self.events else {
            return Ok(());
        };
        let meter = &self.meter;
        // What `genai` logs quotes what the provider says, and that may be anything.
        let event = poll_fn(|cx| match events.poll_next_unpin(cx) {
            // Also where nothing came of what was read: that could go on for ever.
            _ if meter.is_full() => Poll::Ready(Err(ModelError::TooLarge {
                what: "the answer in bytes",
                limit: meter.limit(),
            })),
            polled => polled.map(Ok),
        })
        .with_subscriber(Dispatch::none())
        .await;
        meter.warn_if_oversized();
        match event? {
            Some(Ok(ChatStreamEvent::Chunk(chunk))) => {
                grow(&mut self.bytes, chunk.content.len())?;
                self.ready.push_back(ChatEvent::Text(chunk.content));
                Ok(())
            }
            Some(Ok(ChatStreamEvent::End(end))) => {
                self.events = None;
                self.end(end)
            }
            // Thoughts and calls are taken whole, at the end.
            Some(Ok(
                ChatStreamEvent::Start
                | ChatStreamEvent::ReasoningChunk(_)
                | ChatStreamEvent::ThoughtSignatureChunk(_)
                | ChatStreamEvent::ToolCallChunk(_)
                | ChatStreamEvent::Heartbeat,
            )) => Ok(()),
            Some(Err(error)) => Err(failure::of_answer(error, &self.meter, self.secret.as_ref())),
            None => Err(broke_off()),
        }
    }

    /// The calls, what the answer cost, and why it ended. Some protocols of `genai` end also where the connection does.
    fn end(&mut self, end: StreamEnd) -> Result<(), ModelError> {
        let usage = end.captured_usage.as_ref().map(usage);
        let stop = end.captured_stop_reason.clone().ok_or_else(broke_off)?;
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
                // Text was an event when it came.
                ContentPart::Text(_) | ContentPart::Binary(_) | ContentPart::ToolResponse(_) => {}
            }
        }
        if let Some(text) = reasoning.filter(|_| !has_reasoning) {
            self.reasoning(text)?;
        }
        let stop = stopped(&stop, !calls.is_empty())?;
        self.calls(calls)?;
        self.ready.extend(usage.map(ChatEvent::Usage));
        self.ready.push_back(ChatEvent::End(stop));
        Ok(())
    }

    fn reasoning(&mut self, text: String) -> Result<(), ModelError> {
        grow(&mut self.bytes, text.len())?;
        let reasoning = Reasoning::new(text, REASONING, self.origin.clone());
        self.ready.push_back(ChatEvent::Reasoning(reasoning));
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
        grow(&mut self.bytes, opaque.value.size())?;
        self.ready.push_back(ChatEvent::Opaque(opaque));
        Ok(())
    }

    fn calls(&mut self, calls: Vec<there::ToolCall>) -> Result<(), ModelError> {
        if calls.len() > ChatResponse::MAX_TOOL_CALLS {
            return Err(ModelError::TooLarge {
                what: "the number of tool calls",
                limit: ChatResponse::MAX_TOOL_CALLS,
            });
        }
        let mut ids = HashSet::new();
        for (index, call) in calls.into_iter().enumerate() {
            let mut id = call.call_id;
            // A provider that gives none is given numbers by `genai`, which begin anew in the middle of an answer.
            if id.is_empty() || ids.contains(&id) {
                id = format!("call_{}", Uuid::now_v7().simple());
            }
            ids.insert(id.clone());
            let name = self.names.back(call.fn_name);
            let arguments = match call.fn_arguments {
                // What is no JSON, as the model wrote it.
                Value::String(text) => text,
                Value::Null => String::new(),
                json @ (Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                    json.to_string()
                }
            };
            grow(&mut self.bytes, id.len() + name.len() + arguments.len())?;
            let signatures = call
                .thought_signatures
                .map(|signatures| (id.clone(), signatures));
            self.ready.push_back(ChatEvent::ToolCall(ToolCallDelta {
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

fn grow(bytes: &mut usize, by: usize) -> Result<(), ModelError> {
    *bytes = bytes.saturating_add(by);
    match *bytes > ChatResponse::MAX_BYTES {
        true => Err(ModelError::TooLarge {
            what: "the answer in bytes",
            limit: ChatResponse::MAX_BYTES,
        }),
        false => Ok(()),
    }
}

fn broke_off() -> ModelError {
    ModelError::Unavailable("the answer broke off".into())
}

fn usage(usage: &there::Usage) -> Usage {
    let count = |tokens: Option<i32>| u64::try_from(tokens.unwrap_or_default()).unwrap_or_default();
    Usage::new(count(usage.prompt_tokens), count(usage.completion_tokens))
}

fn stopped(reason: &there::StopReason, calls: bool) -> Result<StopReason, ModelError> {
    use there::StopReason as There;
    match reason {
        There::ContentFilter(_) => Err(ModelError::Refused {
            reason: "the provider filtered the answer".to_owned(),
        }),
        There::MaxTokens(_) => Ok(StopReason::MaxTokens),
        // Some providers say that they are done when they call tools.
        There::Completed(_) | There::StopSequence(_) | There::Other(_) if calls => {
            Ok(StopReason::ToolCalls)
        }
        There::Completed(_) | There::StopSequence(_) => Ok(StopReason::Finished),
        There::ToolCall(_) => Ok(StopReason::ToolCalls),
        There::Other(_) => Ok(StopReason::Other),
    }
}

use super::{
    AnsweredBy, ChatResponse, ModelArguments, Opaque, Part, Reasoning, StopReason, ToolCall, Usage,
};
use crate::agent::ModelError;
use futures::{Stream, TryStreamExt};
use std::pin::pin;

/// One event of a streamed model answer: a piece of text, of reasoning or of a tool call, provider state, token usage, or the end.
///
/// [`ScriptedModel::streaming`](crate::agent::ScriptedModel::streaming) and your own
/// [`ChatModel::stream`](super::ChatModel::stream) return these events. A stream without
/// [`End`](Self::End) counts as an incomplete answer.
///
/// # Examples
/// ```
/// use futures::stream;
/// use universal_executor::agent::{ChatEvent, ChatResponse, StopReason};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let events = [
///     ChatEvent::Text("It ".into()),
///     ChatEvent::Text("rains.".into()),
///     ChatEvent::End(StopReason::Finished),
/// ];
/// let answer = ChatResponse::collect(stream::iter(events.map(Ok))).await?;
/// assert_eq!(answer.text(), "It rains.");
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ChatEvent {
    /// The next piece of the text of a streamed model answer.
    ///
    /// Chat clients receive it before the answer ends, unless the agent has guardrails.
    Text(String),
    /// The next piece of a tool call in a streamed model answer.
    ToolCall(ToolCallDelta),
    /// The next piece of the model's reasoning before its answer.
    Reasoning(Reasoning),
    /// Opaque state that the model's provider expects back in later requests, such as the signature of a thought. One event
    /// contains the complete state.
    ///
    /// A value that nests deeper than [`Opaque::MAX_DEPTH`] makes the answer unreadable.
    Opaque(Opaque),
    /// The token usage of the streamed model answer. The last such event counts.
    Usage(Usage),
    /// The model of a [`FallbackModel`](crate::agent::FallbackModel) that writes the answer. The last such event counts.
    AnsweredBy(AnsweredBy),
    /// The end of a complete model answer. No event follows.
    End(StopReason),
}

/// A piece of a tool call in a streamed model answer. The first piece has the ID and the name, and each piece can have a part of the
/// arguments.
///
/// # Examples
/// ```
/// use futures::stream;
/// use universal_executor::agent::{ChatEvent, ChatResponse, StopReason, ToolCallDelta};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let events = [
///     ChatEvent::ToolCall(ToolCallDelta::first(0, "call-1", "refund")),
///     ChatEvent::ToolCall(ToolCallDelta::more(0, r#"{"order":"#)),
///     ChatEvent::ToolCall(ToolCallDelta::more(0, " 7}")),
///     ChatEvent::End(StopReason::ToolCalls),
/// ];
/// let answer = ChatResponse::collect(stream::iter(events.map(Ok))).await?;
/// assert_eq!(answer.tool_calls()[0].arguments.json()?["order"], 7);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolCallDelta {
    /// The index of the tool call in the model answer, from 0. The first pieces of the calls arrive in the order of their indices.
    pub index: usize,
    /// The ID of the tool call, in the first piece of the call.
    pub id: Option<String>,
    /// The name of the called tool, in the first piece of the call.
    pub name: Option<String>,
    /// The next part of the tool call's arguments, as text.
    pub arguments: String,
}

impl ToolCallDelta {
    /// Creates the first piece of a streamed tool call.
    ///
    /// `index` counts the calls of the answer from 0, without gaps.
    #[must_use]
    pub fn first(index: usize, id: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            index,
            id: Some(id.into()),
            name: Some(name.into()),
            arguments: String::new(),
        }
    }

    /// Creates a later piece of a streamed tool call.
    ///
    /// The pieces of a call are concatenated. Pieces of different calls may alternate.
    #[must_use]
    pub fn more(index: usize, arguments: impl Into<String>) -> Self {
        Self {
            index,
            arguments: arguments.into(),
            ..Self::default()
        }
    }
}

/// Collector that combines the events of a streamed model answer into a response, within the size limits of answers.
#[derive(Debug, Default)]
pub(in crate::agent) struct Collector {
    pieces: Vec<Piece>,
    /// Position of each tool call in the list of collected answer parts, in the order of the calls in the model answer.
    calls: Vec<usize>,
    usage: Usage,
    stop: Option<StopReason>,
    answered_by: Option<AnsweredBy>,
    bytes: usize,
}

/// A collected part of a streamed model answer. Later events can extend it.
#[derive(Debug)]
enum Piece {
    Part(Part),
    Call {
        id: String,
        name: String,
        arguments: String,
    },
}

impl Collector {
    pub(in crate::agent) fn push(&mut self, event: ChatEvent) -> Result<(), ModelError> {
        if self.stop.is_some() {
            return Err(ModelError::bad_answer("an event follows the end"));
        }
        match event {
            ChatEvent::Text(text) => self.text(text)?,
            ChatEvent::ToolCall(delta) => self.call(delta)?,
            ChatEvent::Reasoning(reasoning) => self.reasoning(reasoning)?,
            ChatEvent::Opaque(opaque) => {
                if !opaque.is_flat() {
                    return Err(ModelError::bad_answer("the provider state nests too deep"));
                }
                self.add(Part::Opaque(opaque))?;
            }
            ChatEvent::Usage(usage) => self.usage = usage,
            ChatEvent::AnsweredBy(answered_by) => self.answered_by = Some(answered_by),
            ChatEvent::End(stop) => self.stop = Some(stop),
        }
        Ok(())
    }

    pub(in crate::agent) fn finish(self) -> Result<ChatResponse, ModelError> {
        let stop = self
            .stop
            .ok_or_else(|| ModelError::Unavailable("the answer is incomplete".into()))?;
        let parts = self.pieces.into_iter().map(|piece| match piece {
            Piece::Part(part) => part,
            Piece::Call {
                id,
                name,
                arguments,
            } => Part::ToolCall(ToolCall {
                id,
                name,
                arguments: ModelArguments::from_text(arguments),
            }),
        });
        Ok(ChatResponse {
            parts: parts.collect(),
            usage: self.usage,
            stop,
            answered_by: self.answered_by,
        })
    }

    /// Adds a piece of text to the collected model answer: to its last part if that part is text, otherwise as a new part.
    fn text(&mut self, text: String) -> Result<(), ModelError> {
        match self.pieces.last_mut() {
            Some(Piece::Part(Part::Text(so_far))) => {
                so_far.push_str(&text);
                self.count_bytes(text.len())
            }
            Some(Piece::Part(_) | Piece::Call { .. }) | None if text.is_empty() => Ok(()),
            Some(Piece::Part(_) | Piece::Call { .. }) | None => self.add(Part::Text(text)),
        }
    }

    /// Adds a piece of reasoning to the collected answer. The piece extends the answer's last part if that part is reasoning from the same
    /// provider, model and protocol field. Otherwise, the piece becomes a new part.
    fn reasoning(&mut self, more: Reasoning) -> Result<(), ModelError> {
        match self.pieces.last_mut() {
            Some(Piece::Part(Part::Reasoning(so_far)))
                if so_far.field == more.field && so_far.origin == more.origin =>
            {
                so_far.text.push_str(&more.text);
                self.count_bytes(more.text.len())
            }
            Some(Piece::Part(_) | Piece::Call { .. }) | None => self.add(Part::Reasoning(more)),
        }
    }

    fn add(&mut self, part: Part) -> Result<(), ModelError> {
        self.count_bytes(part.size())?;
        self.pieces.push(Piece::Part(part));
        Ok(())
    }

    fn call(&mut self, delta: ToolCallDelta) -> Result<(), ModelError> {
        let (id_part, name_part) = (delta.id.unwrap_or_default(), delta.name.unwrap_or_default());
        self.count_bytes(id_part.len() + name_part.len() + delta.arguments.len())?;
        if delta.index >= ChatResponse::MAX_TOOL_CALLS {
            let limit = ChatResponse::MAX_TOOL_CALLS;
            return Err(ModelError::TooLarge {
                what: "the number of tool calls",
                limit,
            });
        }
        if delta.index == self.calls.len() {
            self.calls.push(self.pieces.len());
            self.pieces.push(Piece::Call {
                id: String::new(),
                name: String::new(),
                arguments: String::new(),
            });
        }
        let piece = self.calls.get(delta.index);
        let piece = piece.and_then(|piece| self.pieces.get_mut(*piece));
        let Some(Piece::Call {
            id,
            name,
            arguments,
        }) = piece
        else {
            return Err(ModelError::bad_answer(
                "a piece of a tool call that has not started",
            ));
        };
        id.push_str(&id_part);
        name.push_str(&name_part);
        arguments.push_str(&delta.arguments);
        Ok(())
    }

    fn count_bytes(&mut self, by: usize) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(by);
        if self.bytes > ChatResponse::MAX_BYTES {
            return Err(ModelError::TooLarge {
                what: "the size of the answer in bytes",
                limit: ChatResponse::MAX_BYTES,
            });
        }
        Ok(())
    }
}

impl ChatResponse {
    /// Combines the events of a streamed model answer into one response. The result equals that of
    /// [`ChatModel::chat`](super::ChatModel::chat).
    ///
    /// A model that streams can implement [`ChatModel::chat`](super::ChatModel::chat) with this
    /// function.
    ///
    /// # Errors
    /// - The error of the stream.
    /// - [`ModelError::Unavailable`] if the stream ends without [`ChatEvent::End`], so that an incomplete answer never counts as a complete
    ///   one.
    /// - [`ModelError::TooLarge`] if the answer exceeds [`Self::MAX_BYTES`] or [`Self::MAX_TOOL_CALLS`].
    /// - [`ModelError::BadAnswer`] if a piece belongs to no call, if an event follows the end, or if provider state nests deeper than
    ///   [`Opaque::MAX_DEPTH`].
    pub async fn collect(
        events: impl Stream<Item = Result<ChatEvent, ModelError>>,
    ) -> Result<Self, ModelError> {
        let mut events = pin!(events);
        let mut collector = Collector::default();
        while let Some(event) = events.try_next().await? {
            collector.push(event)?;
        }
        collector.finish()
    }

    /// Converts the model answer to the events of a streamed answer. The last event is [`ChatEvent::End`].
    ///
    /// Parts that an answer cannot have, such as data, images and results of calls, are omitted.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{ChatEvent, ChatResponse, StopReason};
    ///
    /// let events = ChatResponse::new("Hello!").into_events();
    /// assert_eq!(events.first(), Some(&ChatEvent::Text("Hello!".into())));
    /// assert_eq!(events.last(), Some(&ChatEvent::End(StopReason::Finished)));
    /// ```
    #[must_use]
    pub fn into_events(self) -> Vec<ChatEvent> {
        events_of(self)
    }
}

/// Returns this response as the events of a streamed model answer.
fn events_of(response: ChatResponse) -> Vec<ChatEvent> {
    let mut events = Vec::with_capacity(3 + 2 * response.parts.len());
    events.extend(response.answered_by.map(ChatEvent::AnsweredBy));
    let mut calls = 0;
    for part in response.parts {
        match part {
            Part::Text(text) => events.push(ChatEvent::Text(text)),
            Part::ToolCall(call) => {
                let first = ToolCallDelta::first(calls, call.id, call.name);
                events.push(ChatEvent::ToolCall(first));
                let more = ToolCallDelta::more(calls, String::from(call.arguments));
                events.push(ChatEvent::ToolCall(more));
                calls += 1;
            }
            Part::Reasoning(reasoning) => events.push(ChatEvent::Reasoning(reasoning)),
            Part::Opaque(opaque) => events.push(ChatEvent::Opaque(opaque)),
            // Answers of models have none of these parts.
            Part::Data(_) | Part::Image(_) | Part::File(_) | Part::ToolResult(_) => {}
        }
    }
    events.push(ChatEvent::Usage(response.usage));
    events.push(ChatEvent::End(response.stop));
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::PartOrigin;
    use proptest::prelude::*;
    use serde_json::json;

    fn collected(events: impl IntoIterator<Item = ChatEvent>) -> Result<ChatResponse, ModelError> {
        let mut collector = Collector::default();
        for event in events {
            collector.push(event)?;
        }
        collector.finish()
    }

    #[test]
    fn a_malformed_call_does_not_lose_its_siblings() {
        let response = ChatResponse::calling(vec![
            ToolCall::new("1", "a", "{\"cut\": ".to_owned()),
            ToolCall::new("2", "b", json!({"n": 1})),
        ]);

        let again = collected(response.clone().into_events()).unwrap();

        assert_eq!(again, response);
        assert!(again.tool_calls()[0].arguments.json().is_err());
        assert_eq!(again.tool_calls()[1].arguments.json().unwrap()["n"], 1);
    }

    #[test]
    fn an_answer_that_breaks_off_is_not_taken_for_a_whole_one() {
        let error = collected([ChatEvent::Text("The answer is not ".into())]).unwrap_err();

        assert!(matches!(error, ModelError::Unavailable(_)), "{error:?}");
    }

    #[test]
    fn the_limits_of_an_answer_hold() {
        let piece = || ChatEvent::Text("x".repeat(1 << 20));
        let long = collected((0..5).map(|_| piece())).unwrap_err();
        let calls = (0..=ChatResponse::MAX_TOOL_CALLS)
            .map(|index| ChatEvent::ToolCall(ToolCallDelta::first(index, "id", "name")));
        let many = collected(calls).unwrap_err();

        assert!(matches!(long, ModelError::TooLarge { .. }), "{long:?}");
        assert!(matches!(many, ModelError::TooLarge { .. }), "{many:?}");
    }

    #[test]
    fn a_piece_of_a_call_that_never_began_is_refused() {
        let error = collected([ChatEvent::ToolCall(ToolCallDelta::more(3, "{"))]).unwrap_err();

        assert!(matches!(error, ModelError::BadAnswer { .. }), "{error:?}");
    }

    #[test]
    fn nothing_follows_the_end() {
        let end = ChatEvent::End(StopReason::Finished);
        let error = collected([end, ChatEvent::Text("more".into())]).unwrap_err();

        assert!(matches!(error, ModelError::BadAnswer { .. }), "{error:?}");
    }

    proptest! {
        #[test]
        fn an_answer_taken_apart_and_put_together_is_the_same(
            text in ".{0,40}",
            calls in prop::collection::vec((".{0,8}", ".{0,8}", ".{0,20}"), 0..4),
            tokens in any::<(u64, u64)>(),
        ) {
            let calls = calls.into_iter().map(|(id, name, text)| ToolCall::new(id, name, text)).collect();
            let mut response = ChatResponse::calling(calls).with_usage(Usage::new(tokens.0, tokens.1));
            response.answered_by = Some(AnsweredBy::new(text.clone()).failed("large", "timeout"));
            let origin = PartOrigin::new("test", None);
            let thought = Reasoning::new(text.clone(), "thought", origin.clone());
            response.parts.insert(0, Part::Reasoning(thought));
            response.parts.splice(1..1, ChatResponse::new(text).parts);
            response.parts.push(Part::Opaque(Opaque::new("signature", json!("s"), origin)));

            prop_assert_eq!(collected(response.clone().into_events()).unwrap(), response);
        }
    }
}

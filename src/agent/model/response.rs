use super::message::{calls_in, text_of};
use super::{ChatMessage, Part, Speaker, ToolCall};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The answer of a model.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ChatResponse {
    /// The parts of the answer: text, tool calls, reasoning and provider state.
    pub parts: Vec<Part>,
    /// The token usage, or zero if the provider does not report it.
    pub usage: Usage,
    /// The reason why the model stopped.
    pub stop: StopReason,
}

impl ChatResponse {
    /// Maximum size of all parts of an answer together, in bytes: 4 MiB.
    pub const MAX_BYTES: usize = 4 << 20;

    /// Maximum number of tool calls in one answer.
    pub const MAX_TOOL_CALLS: usize = 128;

    /// Creates an answer with a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            parts: ChatMessage::assistant(text).parts,
            ..Self::default()
        }
    }

    /// Creates an answer with tool calls and the stop reason [`StopReason::ToolCalls`].
    #[must_use]
    pub fn calling(tool_calls: Vec<ToolCall>) -> Self {
        Self {
            parts: tool_calls.into_iter().map(Part::ToolCall).collect(),
            stop: StopReason::ToolCalls,
            ..Self::default()
        }
    }

    /// Adds a part at the end.
    #[must_use]
    pub fn with(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Returns the text of the answer, or an empty string if the answer has only tool calls. Reasoning is not part of the text.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        text_of(&self.parts)
    }

    /// Returns the tool calls, in order.
    #[must_use]
    pub fn tool_calls(&self) -> Vec<&ToolCall> {
        calls_in(&self.parts).collect()
    }

    /// Sets the token usage.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Sets the stop reason.
    #[must_use]
    pub fn with_stop(mut self, stop: StopReason) -> Self {
        self.stop = stop;
        self
    }

    /// Returns the answer as a message for the next request.
    #[must_use]
    pub fn message(&self) -> ChatMessage {
        ChatMessage::new(Speaker::Assistant, self.parts.clone())
    }
}

/// The reason why a model stopped.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The answer is complete, or the model reached a stop sequence.
    #[default]
    Finished,
    /// The model waits for the results of its tool calls.
    ToolCalls,
    /// The model reached its token limit, so the text or the last call may be incomplete.
    MaxTokens,
    /// The provider reported another reason or none.
    Other,
}

/// The token usage of a request.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// The number of input tokens.
    pub input_tokens: u64,
    /// The number of output tokens.
    pub output_tokens: u64,
}

impl Usage {
    /// Creates the usage from the numbers of input and output tokens.
    #[must_use]
    pub fn new(input_tokens: u64, output_tokens: u64) -> Self {
        Self {
            input_tokens,
            output_tokens,
        }
    }
}

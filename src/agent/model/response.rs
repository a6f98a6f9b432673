use super::message::{calls_in, text_of};
use super::{ChatMessage, Part, Speaker, ToolCall};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The answer of a model to one request.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ChatResponse {
    /// The parts of the model's answer: text, tool calls, reasoning and provider state.
    pub parts: Vec<Part>,
    /// The token usage of the request and the answer. The numbers are zero if the provider does not report them.
    pub usage: Usage,
    /// The reason why the model ended its answer.
    pub stop: StopReason,
}

impl ChatResponse {
    /// Maximum total size of the parts of one model answer, in bytes. The limit is 4 MiB.
    pub const MAX_BYTES: usize = 4 << 20;

    /// Maximum number of tool calls in one model answer.
    pub const MAX_TOOL_CALLS: usize = 128;

    /// Creates a model answer with a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            parts: ChatMessage::assistant(text).parts,
            ..Self::default()
        }
    }

    /// Creates a model answer with tool calls and the stop reason [`StopReason::ToolCalls`].
    #[must_use]
    pub fn calling(tool_calls: Vec<ToolCall>) -> Self {
        Self {
            parts: tool_calls.into_iter().map(Part::ToolCall).collect(),
            stop: StopReason::ToolCalls,
            ..Self::default()
        }
    }

    /// Adds a part at the end of the model answer.
    #[must_use]
    pub fn with(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Returns the text of the model answer, or an empty string if the answer has only tool calls. Reasoning is not part of the text.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        text_of(&self.parts)
    }

    /// Returns the tool calls in the model answer, in order.
    #[must_use]
    pub fn tool_calls(&self) -> Vec<&ToolCall> {
        calls_in(&self.parts).collect()
    }

    /// Sets the token usage of the model answer.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Sets the reason why the model ended its answer.
    #[must_use]
    pub fn with_stop(mut self, stop: StopReason) -> Self {
        self.stop = stop;
        self
    }

    /// Returns the model answer as a chat message for the next request.
    #[must_use]
    pub fn message(&self) -> ChatMessage {
        ChatMessage::new(Speaker::Assistant, self.parts.clone())
    }
}

/// The reason why a model ended its answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The model's answer is complete, or the model reached a stop sequence.
    #[default]
    Finished,
    /// The model waits for the results of its tool calls.
    ToolCalls,
    /// The model reached its token limit, so the text or the last call may be incomplete.
    MaxTokens,
    /// The provider reported another reason for the end of the model's answer, or no reason.
    Other,
}

/// The number of tokens that a model request and its answer used.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// The number of tokens in the input of the model.
    pub input_tokens: u64,
    /// The number of tokens in the output of the model.
    pub output_tokens: u64,
}

impl Usage {
    /// Creates the token usage from the numbers of input and output tokens.
    #[must_use]
    pub fn new(input_tokens: u64, output_tokens: u64) -> Self {
        Self {
            input_tokens,
            output_tokens,
        }
    }
}

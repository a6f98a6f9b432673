use super::message::{calls_in, text_of};
use super::{ChatMessage, Part, Speaker, ToolCall};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The answer of a model.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ChatResponse {
    /// The parts of the answer: text, tool calls, reasoning and state of the provider.
    pub parts: Vec<Part>,
    /// What that cost; zero if the provider does not say.
    pub usage: Usage,
    /// Why it stopped.
    pub stop: StopReason,
}

impl ChatResponse {
    /// The largest answer, in bytes of all parts together: 4 MiB.
    pub const MAX_BYTES: usize = 4 << 20;

    /// The most tools that one answer may call.
    pub const MAX_TOOL_CALLS: usize = 128;

    /// An answer in words.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            parts: ChatMessage::assistant(text).parts,
            ..Self::default()
        }
    }

    /// An answer that calls tools.
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

    /// Returns the words of the answer; empty if it only calls tools. Reasoning is not part of them.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        text_of(&self.parts)
    }

    /// Returns the tool calls, in order.
    #[must_use]
    pub fn tool_calls(&self) -> Vec<&ToolCall> {
        calls_in(&self.parts).collect()
    }

    /// The same with what it cost.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// The same with another reason to stop.
    #[must_use]
    pub fn with_stop(mut self, stop: StopReason) -> Self {
        self.stop = stop;
        self
    }

    /// The answer as the next request repeats it.
    #[must_use]
    pub fn message(&self) -> ChatMessage {
        ChatMessage::new(Speaker::Assistant, self.parts.clone())
    }
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// It had said everything, or came to a text it was to stop at.
    #[default]
    Finished,
    /// It waits for the tools it called.
    ToolCalls,
    /// It came to the limit of tokens: the text, or the last call, may be cut off.
    MaxTokens,
    /// The provider gave another reason, or none.
    Other,
}

/// How many tokens a request took.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// Read.
    pub input_tokens: u64,
    /// Written.
    pub output_tokens: u64,
}

impl Usage {
    /// Tokens that were read and written.
    #[must_use]
    pub fn new(input_tokens: u64, output_tokens: u64) -> Self {
        Self {
            input_tokens,
            output_tokens,
        }
    }
}

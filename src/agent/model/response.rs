use super::message::{calls_in, text_of};
use super::{AnsweredBy, ChatMessage, Part, Speaker, ToolCall};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The answer of a model to one request.
///
/// A [`ChatModel`](super::ChatModel) returns it. In tests, pass it to
/// [`ScriptedModel::script`](crate::agent::ScriptedModel::script).
///
/// # Examples
/// ```
/// use universal_executor::agent::{ChatResponse, StopReason, Usage};
///
/// let answer = ChatResponse::new("It rai")
///     .with_usage(Usage::new(120, 4))
///     .with_stop(StopReason::MaxTokens);
/// assert_eq!(answer.text(), "It rai");
/// assert_eq!(answer.usage.output_tokens, 4);
/// assert!(answer.tool_calls().is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ChatResponse {
    /// The parts of the model's answer: text, tool calls, reasoning and provider state.
    pub parts: Vec<Part>,
    /// The token usage of the request and the answer. The numbers are zero if the provider does not report them.
    ///
    /// The budget of a run counts these numbers.
    pub usage: Usage,
    /// The reason why the model ended its answer.
    pub stop: StopReason,
    /// The model of a [`FallbackModel`](crate::agent::FallbackModel) that answered, or `None` if another type of model answered.
    pub answered_by: Option<AnsweredBy>,
}

impl ChatResponse {
    /// Maximum total size of the parts of one model answer, in bytes. The limit is 4 MiB.
    ///
    /// A larger answer is [`ModelError::TooLarge`](super::ModelError::TooLarge).
    pub const MAX_BYTES: usize = 4 << 20;

    /// Maximum number of tool calls in one model answer.
    ///
    /// The limit is 128. An answer with more calls is
    /// [`ModelError::TooLarge`](super::ModelError::TooLarge).
    pub const MAX_TOOL_CALLS: usize = 128;

    /// Creates a model answer with a text.
    ///
    /// The stop reason is [`StopReason::Finished`], and the usage is zero.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            parts: ChatMessage::assistant(text).parts,
            ..Self::default()
        }
    }

    /// Creates a model answer with tool calls and the stop reason [`StopReason::ToolCalls`].
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::agent::{ChatResponse, StopReason, ToolCall};
    ///
    /// let call = ToolCall::new("1", "weather", json!({"city": "Bergen"}));
    /// let answer = ChatResponse::calling(vec![call]);
    /// assert_eq!(answer.stop, StopReason::ToolCalls);
    /// assert_eq!(answer.text(), "");
    /// ```
    #[must_use]
    pub fn calling(tool_calls: Vec<ToolCall>) -> Self {
        Self {
            parts: tool_calls.into_iter().map(Part::ToolCall).collect(),
            stop: StopReason::ToolCalls,
            ..Self::default()
        }
    }

    /// Adds a part at the end of the model answer.
    ///
    /// Use it in your own model for reasoning and provider state.
    #[must_use]
    pub fn with(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Returns the text of the model answer, or an empty string if the answer has only tool calls. Reasoning is not part of the text.
    ///
    /// Several text parts are joined without a separator.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        text_of(&self.parts)
    }

    /// Returns the tool calls in the model answer, in order.
    ///
    /// An answer with calls is not final: the next request contains their results.
    #[must_use]
    pub fn tool_calls(&self) -> Vec<&ToolCall> {
        calls_in(&self.parts).collect()
    }

    /// Sets the token usage of the model answer.
    ///
    /// The usage counts for the [budget](crate::agent::Budgets::tokens) of an agent's run.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Sets the reason why the model ended its answer.
    ///
    /// Defaults to [`StopReason::Finished`], and to [`StopReason::ToolCalls`] after
    /// [`calling`](Self::calling).
    #[must_use]
    pub fn with_stop(mut self, stop: StopReason) -> Self {
        self.stop = stop;
        self
    }

    /// Returns the model answer as a chat message for the next request.
    ///
    /// The message has all parts, also reasoning and provider state.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{ChatMessage, ChatRequest, ChatResponse};
    ///
    /// let answer = ChatResponse::new("Hello, Ann!");
    /// let next = ChatRequest::new(vec![
    ///     ChatMessage::user("I am Ann"),
    ///     answer.message(),
    ///     ChatMessage::user("What is my name?"),
    /// ]);
    /// assert_eq!(next.messages.len(), 3);
    /// ```
    #[must_use]
    pub fn message(&self) -> ChatMessage {
        ChatMessage::new(Speaker::Assistant, self.parts.clone())
    }
}

/// The reason why a model ended its answer.
///
/// The default is [`Finished`](Self::Finished). The reason does not decide whether a run continues:
/// an answer with tool calls continues it, and an answer without calls ends it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The model's answer is complete, or the model reached a stop sequence.
    #[default]
    Finished,
    /// The model waits for the results of its tool calls.
    ToolCalls,
    /// The model reached its token limit, so the text or the last tool call may be incomplete.
    ///
    /// The response of an agent then has `"truncated": true`, and the last call of the answer is
    /// not made. Raise the limit of the provider, or request a shorter answer.
    MaxTokens,
    /// The provider reported another reason for the end of the model's answer, or no reason.
    Other,
}

/// The number of tokens that a model request and its answer used.
///
/// The default is zero, also for unknown numbers. JSON may omit a field.
///
/// # Examples
/// ```
/// use universal_executor::agent::Usage;
///
/// let usage = Usage::new(1_200, 80);
/// assert_eq!(usage.input_tokens + usage.output_tokens, 1_280);
/// ```
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

//! The four kinds of values that guardrails check: the guardrail method of each, and the size limits of replacements.

use super::{Decision, Guardrail};
use crate::agent::ChatMessage;
use crate::error::BoxError;
use crate::machine::{Answer, MachineLimits};
use crate::model::{Json, size_within};
use futures::future::BoxFuture;

/// Maximum size in bytes of a guardrail's replacement for a value, except for the messages of a model request.
const MAX_BYTES: usize = Json::MAX_BYTES;

/// Maximum size in bytes of a guardrail's replacement for the messages of a model request. The limit is higher than [`MAX_BYTES`], because
/// the messages contain a whole conversation.
const MAX_INPUT_BYTES: usize = 4 * MAX_BYTES;

/// A kind of value that guardrails check.
pub(super) trait Stage: Sync {
    type Value: Send + Sync;

    /// The name of this kind of value in the errors of guardrails, such as `tool call`.
    const WHAT: &'static str;

    /// Calls the method of one guardrail for this kind of value.
    fn run<'a>(
        &'a self,
        guardrail: &'a dyn Guardrail,
        value: &'a Self::Value,
    ) -> BoxFuture<'a, Result<Decision<Self::Value>, BoxError>>;

    /// Returns `true` if a guardrail's replacement for a value is within the size limits.
    fn is_within_limit(value: &Self::Value) -> bool;
}

pub(super) struct Input;

pub(super) struct Output;

pub(super) struct ToolCall<'t> {
    pub(super) tool: &'t str,
}

pub(super) struct ToolResult<'t> {
    pub(super) tool: &'t str,
}

impl Stage for Input {
    type Value = Vec<ChatMessage>;

    const WHAT: &'static str = "input";

    fn run<'a>(
        &'a self,
        guardrail: &'a dyn Guardrail,
        messages: &'a Vec<ChatMessage>,
    ) -> BoxFuture<'a, Result<Decision<Vec<ChatMessage>>, BoxError>> {
        guardrail.input(messages)
    }

    fn is_within_limit(messages: &Vec<ChatMessage>) -> bool {
        let sizes = messages.iter().map(ChatMessage::size);
        sizes.fold(0, usize::saturating_add) <= MAX_INPUT_BYTES
    }
}

impl Stage for Output {
    type Value = String;

    const WHAT: &'static str = "output";

    fn run<'a>(
        &'a self,
        guardrail: &'a dyn Guardrail,
        text: &'a String,
    ) -> BoxFuture<'a, Result<Decision<String>, BoxError>> {
        guardrail.output(text)
    }

    fn is_within_limit(text: &String) -> bool {
        text.len() <= MAX_BYTES
    }
}

impl Stage for ToolCall<'_> {
    type Value = Json;

    const WHAT: &'static str = "tool call";

    fn run<'a>(
        &'a self,
        guardrail: &'a dyn Guardrail,
        arguments: &'a Json,
    ) -> BoxFuture<'a, Result<Decision<Json>, BoxError>> {
        guardrail.tool_call(self.tool, arguments)
    }

    fn is_within_limit(arguments: &Json) -> bool {
        is_small(arguments)
    }
}

impl Stage for ToolResult<'_> {
    type Value = Answer;

    const WHAT: &'static str = "tool result";

    fn run<'a>(
        &'a self,
        guardrail: &'a dyn Guardrail,
        answer: &'a Answer,
    ) -> BoxFuture<'a, Result<Decision<Answer>, BoxError>> {
        guardrail.tool_result(self.tool, answer)
    }

    fn is_within_limit(answer: &Answer) -> bool {
        match answer {
            Answer::Success(output) => is_small(output),
            Answer::Error { code, message } => code.len() + message.len() <= MAX_BYTES,
        }
    }
}

/// Returns `true` if the JSON arguments or output of a tool call are within the limits of a run for size and nesting depth.
fn is_small(json: &Json) -> bool {
    size_within(json, MachineLimits::DEPTH).is_ok_and(|size| size <= MAX_BYTES)
}

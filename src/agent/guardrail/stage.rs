//! The four places where guardrails stand: which method is asked, and what may be put in place.

use super::{Decision, Guardrail};
use crate::agent::ChatMessage;
use crate::error::BoxError;
use crate::machine::{Answer, MachineLimits};
use crate::model::{Json, size_within};
use futures::future::BoxFuture;

/// The most bytes that may be put in place of anything but the input.
const MOST_BYTES: usize = Json::MAX_BYTES;

/// The most bytes of messages that may be put in place, since those hold a whole conversation.
const MOST_INPUT_BYTES: usize = 4 * MOST_BYTES;

/// Something that guardrails look at.
pub(super) trait Stage: Sync {
    type Value: Send + Sync;

    /// What it is called in errors.
    const WHAT: &'static str;

    /// Asks one guardrail.
    fn ask<'a>(
        &'a self,
        guardrail: &'a dyn Guardrail,
        value: &'a Self::Value,
    ) -> BoxFuture<'a, Result<Decision<Self::Value>, BoxError>>;

    /// Whether this may be put in place of what was there.
    fn takes(value: &Self::Value) -> bool;
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

    fn ask<'a>(
        &'a self,
        guardrail: &'a dyn Guardrail,
        messages: &'a Vec<ChatMessage>,
    ) -> BoxFuture<'a, Result<Decision<Vec<ChatMessage>>, BoxError>> {
        guardrail.input(messages)
    }

    fn takes(messages: &Vec<ChatMessage>) -> bool {
        let sizes = messages.iter().map(ChatMessage::size);
        sizes.fold(0, usize::saturating_add) <= MOST_INPUT_BYTES
    }
}

impl Stage for Output {
    type Value = String;

    const WHAT: &'static str = "output";

    fn ask<'a>(
        &'a self,
        guardrail: &'a dyn Guardrail,
        text: &'a String,
    ) -> BoxFuture<'a, Result<Decision<String>, BoxError>> {
        guardrail.output(text)
    }

    fn takes(text: &String) -> bool {
        text.len() <= MOST_BYTES
    }
}

impl Stage for ToolCall<'_> {
    type Value = Json;

    const WHAT: &'static str = "tool call";

    fn ask<'a>(
        &'a self,
        guardrail: &'a dyn Guardrail,
        arguments: &'a Json,
    ) -> BoxFuture<'a, Result<Decision<Json>, BoxError>> {
        guardrail.tool_call(self.tool, arguments)
    }

    fn takes(arguments: &Json) -> bool {
        is_small(arguments)
    }
}

impl Stage for ToolResult<'_> {
    type Value = Answer;

    const WHAT: &'static str = "tool result";

    fn ask<'a>(
        &'a self,
        guardrail: &'a dyn Guardrail,
        answer: &'a Answer,
    ) -> BoxFuture<'a, Result<Decision<Answer>, BoxError>> {
        guardrail.tool_result(self.tool, answer)
    }

    fn takes(answer: &Answer) -> bool {
        match answer {
            Answer::Success(output) => is_small(output),
            Answer::Error { code, message } => code.len() + message.len() <= MOST_BYTES,
        }
    }
}

/// Whether it is no larger, and nests no deeper, than what a run keeps of a call.
fn is_small(json: &Json) -> bool {
    size_within(json, MachineLimits::DEPTH).is_ok_and(|size| size <= MOST_BYTES)
}

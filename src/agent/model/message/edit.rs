//! Functions that shorten chat messages for the saved log of a workload's session, for example by removing tool calls.

use super::{ChatMessage, Part, ToolCall};
use crate::error::excerpt;
use serde_json::Value;

impl ChatMessage {
    /// Removes from a chat message each tool call for which `keep` returns `false`, with the call's provider state.
    pub(crate) fn retain_calls(&mut self, mut keep: impl FnMut(&ToolCall) -> bool) {
        let mut removed = Vec::new();
        self.parts.retain(|part| match part {
            Part::ToolCall(call) if !keep(call) => {
                removed.push(call.id.clone());
                false
            }
            Part::ToolCall(_)
            | Part::Text(_)
            | Part::Data(_)
            | Part::Image(_)
            | Part::File(_)
            | Part::ToolResult(_)
            | Part::Reasoning(_)
            | Part::Opaque(_) => true,
        });
        let is_of_removed = |part: &Part| match part {
            Part::Opaque(opaque) => opaque
                .call_id
                .as_ref()
                .is_some_and(|id| removed.contains(id)),
            Part::Text(_)
            | Part::Data(_)
            | Part::Image(_)
            | Part::File(_)
            | Part::ToolCall(_)
            | Part::ToolResult(_)
            | Part::Reasoning(_) => false,
        };
        self.parts.retain(|part| !is_of_removed(part));
    }

    /// Returns `true` if the chat message has no content except reasoning and provider state.
    pub(crate) fn is_without_content(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.all(|part| part.is_private() || matches!(part, Part::Text(text) if text.is_empty()))
    }

    /// Reduces a chat message to its first data part, or to its text if it has no data part. The result is truncated to
    /// `max_bytes` bytes, and data becomes a string.
    pub(crate) fn truncate(&mut self, max_bytes: usize) {
        let Some(data) = self.as_data() else {
            let text = excerpt(&self.text(), max_bytes).into_owned();
            *self = Self::of_text(self.speaker, text);
            return;
        };
        let truncated = match &**data {
            Value::String(text) => excerpt(text, max_bytes).into_owned(),
            other => excerpt(&other.to_string(), max_bytes).into_owned(),
        };
        *self = Self::data(Value::from(truncated));
    }
}

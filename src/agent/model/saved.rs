//! The forms in which chat messages and model responses are saved as JSON.

use super::{
    AnsweredBy, CallResult, ChatMessage, ChatResponse, Part, Speaker, StopReason, ToolCall, Usage,
};
use crate::model::Json;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The JSON fields from which a saved chat message is read. The field `parts` has all parts of the message. Without `parts`, the
/// other fields have the message's only text or data, and its tool calls.
#[derive(Deserialize)]
struct SavedMessage {
    speaker: Speaker,
    #[serde(default)]
    parts: Option<Vec<Part>>,
    #[serde(default)]
    text: String,
    // A field with the value `null` is data, unlike a missing field.
    #[serde(default, deserialize_with = "json_or_null")]
    data: Option<Json>,
    #[serde(default)]
    tool_calls: Vec<ToolCall>,
    #[serde(default)]
    call_id: Option<String>,
    #[serde(default)]
    is_error: bool,
}

/// The JSON fields from which a saved model response is read. The field `parts` has all parts of the response. Without `parts`,
/// the other fields have the response's text and tool calls.
#[derive(Deserialize)]
struct SavedResponse {
    #[serde(default)]
    parts: Option<Vec<Part>>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    tool_calls: Vec<ToolCall>,
    #[serde(default)]
    usage: Usage,
    #[serde(default)]
    stop: StopReason,
    #[serde(default)]
    answered_by: Option<AnsweredBy>,
}

/// The JSON fields in which earlier versions of the crate saved the parts of a chat message or a model response.
struct SimpleParts<'p> {
    text: &'p str,
    data: Option<&'p Json>,
    calls: Vec<&'p ToolCall>,
    result: Option<&'p CallResult>,
}

impl<'p> SimpleParts<'p> {
    /// Returns these message parts in the JSON fields of earlier crate versions, or `None` if those fields cannot contain all
    /// parts.
    fn of(parts: &'p [Part]) -> Option<Self> {
        let mut simple_parts = Self {
            text: "",
            data: None,
            calls: Vec::new(),
            result: None,
        };
        for (at, part) in parts.iter().enumerate() {
            match part {
                Part::Text(text) if at == 0 && !text.is_empty() => simple_parts.text = text,
                Part::Data(data) if at == 0 => simple_parts.data = Some(data),
                Part::ToolCall(call) if simple_parts.result.is_none() => {
                    simple_parts.calls.push(call)
                }
                Part::ToolResult(result) if at == 0 => simple_parts.result = Some(result),
                Part::Text(_)
                | Part::Data(_)
                | Part::ToolCall(_)
                | Part::ToolResult(_)
                | Part::Image(_)
                | Part::File(_)
                | Part::Reasoning(_)
                | Part::Opaque(_) => return None,
            }
        }
        Some(simple_parts)
    }
}

fn parts_of(text: String, tool_calls: Vec<ToolCall>) -> Vec<Part> {
    let text = (!text.is_empty()).then_some(text).map(Part::Text);
    let calls = tool_calls.into_iter().map(Part::ToolCall);
    text.into_iter().chain(calls).collect()
}

fn json_or_null<'de, D: Deserializer<'de>>(data: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(data).map(Some)
}

impl From<SavedMessage> for ChatMessage {
    fn from(saved: SavedMessage) -> Self {
        let parts = match (saved.parts, saved.data, saved.call_id) {
            (Some(parts), _, _) => parts,
            (None, Some(data), _) => {
                let calls = saved.tool_calls.into_iter().map(Part::ToolCall);
                [Part::Data(data)].into_iter().chain(calls).collect()
            }
            (None, None, Some(call_id)) => vec![Part::ToolResult(CallResult {
                call_id,
                text: saved.text,
                is_error: saved.is_error,
            })],
            (None, None, None) => parts_of(saved.text, saved.tool_calls),
        };
        Self {
            speaker: saved.speaker,
            parts,
        }
    }
}

impl From<SavedResponse> for ChatResponse {
    fn from(saved: SavedResponse) -> Self {
        let parts = saved
            .parts
            .unwrap_or_else(|| parts_of(saved.text, saved.tool_calls));
        Self {
            parts,
            usage: saved.usage,
            stop: saved.stop,
            answered_by: saved.answered_by,
        }
    }
}

impl<'de> Deserialize<'de> for ChatMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        SavedMessage::deserialize(deserializer).map(Into::into)
    }
}

impl<'de> Deserialize<'de> for ChatResponse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        SavedResponse::deserialize(deserializer).map(Into::into)
    }
}

impl Serialize for ChatMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("speaker", &self.speaker)?;
        let Some(simple_parts) = SimpleParts::of(&self.parts) else {
            fields.serialize_entry("parts", &self.parts)?;
            return fields.end();
        };
        let text = simple_parts
            .result
            .map_or(simple_parts.text, |result| &result.text);
        match simple_parts.data {
            Some(data) => fields.serialize_entry("data", data)?,
            None => fields.serialize_entry("text", text)?,
        }
        if !simple_parts.calls.is_empty() {
            fields.serialize_entry("tool_calls", &simple_parts.calls)?;
        }
        if let Some(result) = simple_parts.result {
            fields.serialize_entry("call_id", &result.call_id)?;
            if result.is_error {
                fields.serialize_entry("is_error", &true)?;
            }
        }
        fields.end()
    }
}

impl Serialize for ChatResponse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        let simple_parts = SimpleParts::of(&self.parts);
        let simple_parts = simple_parts
            .filter(|simple_parts| simple_parts.data.is_none() && simple_parts.result.is_none());
        match simple_parts {
            Some(simple_parts) => {
                fields.serialize_entry("text", simple_parts.text)?;
                if !simple_parts.calls.is_empty() {
                    fields.serialize_entry("tool_calls", &simple_parts.calls)?;
                }
            }
            None => fields.serialize_entry("parts", &self.parts)?,
        }
        fields.serialize_entry("usage", &self.usage)?;
        fields.serialize_entry("stop", &self.stop)?;
        if let Some(answered_by) = &self.answered_by {
            fields.serialize_entry("answered_by", answered_by)?;
        }
        fields.end()
    }
}

use crate::error::excerpt;
use crate::executor::fenced;
use crate::machine;
use crate::model::Json;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// One message of a conversation.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(from = "Saved")]
#[non_exhaustive]
pub struct Message {
    /// Who says it.
    pub speaker: Speaker,
    /// The words of the speaker, or the [`data`](Self::data) inside a fence.
    pub text: String,
    /// Data that replaces the words of the speaker, such as an earlier input of an agent or the summary of a
    /// conversation. It is saved without its fence.
    pub data: Option<Json>,
    /// The calls of an assistant; empty for everybody else.
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool answers; absent for everybody else.
    pub call_id: Option<String>,
    /// Whether a tool says that it failed; false for everybody else.
    pub is_error: bool,
}

/// The saved form of a message, with data or a text.
#[derive(Deserialize)]
struct Saved {
    speaker: Speaker,
    #[serde(default)]
    text: String,
    // `null` is data too.
    #[serde(default, deserialize_with = "present")]
    data: Option<Json>,
    #[serde(default)]
    tool_calls: Vec<ToolCall>,
    #[serde(default)]
    call_id: Option<String>,
    #[serde(default)]
    is_error: bool,
}

impl From<Saved> for Message {
    fn from(saved: Saved) -> Self {
        let text = match &saved.data {
            Some(data) => fenced([(Self::SECTION, data)]),
            None => saved.text,
        };
        Self {
            speaker: saved.speaker,
            text,
            data: saved.data,
            tool_calls: saved.tool_calls,
            call_id: saved.call_id,
            is_error: saved.is_error,
        }
    }
}

fn present<'de, D: Deserializer<'de>>(data: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(data).map(Some)
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("speaker", &self.speaker)?;
        match &self.data {
            Some(data) => fields.serialize_entry("data", data)?,
            None => fields.serialize_entry("text", &self.text)?,
        }
        if !self.tool_calls.is_empty() {
            fields.serialize_entry("tool_calls", &self.tool_calls)?;
        }
        if let Some(call_id) = &self.call_id {
            fields.serialize_entry("call_id", call_id)?;
        }
        if self.is_error {
            fields.serialize_entry("is_error", &true)?;
        }
        fields.end()
    }
}

impl Message {
    /// The name of the section that data is in.
    const SECTION: &str = "earlier";

    /// What the agent's author says.
    #[must_use]
    pub fn system(text: impl Into<String>) -> Self {
        Self::said(Speaker::System, text)
    }

    /// What comes from outside.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::said(Speaker::User, text)
    }

    /// Data from outside that is not the user's own words: models see it inside a fence.
    #[must_use]
    pub fn data(data: impl Into<Json>) -> Self {
        let data = data.into();
        Self {
            data: Some(data.clone()),
            ..Self::user(fenced([(Self::SECTION, &data)]))
        }
    }

    /// What the model said before.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::said(Speaker::Assistant, text)
    }

    /// The tools that the model called before, beside what it said.
    #[must_use]
    pub fn calls(text: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        Self {
            tool_calls,
            ..Self::assistant(text)
        }
    }

    /// What a call came to.
    #[must_use]
    pub fn tool_result(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            call_id: Some(call_id.into()),
            ..Self::said(Speaker::Tool, content)
        }
    }

    /// Why a call failed, in words that the model can act on.
    #[must_use]
    pub fn tool_error(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            is_error: true,
            ..Self::tool_result(call_id, content)
        }
    }

    /// Cuts the text, or the data, after `most` bytes. Data that is cut becomes a string.
    pub(crate) fn cut(&mut self, most: usize) {
        let Some(data) = &self.data else {
            self.text = excerpt(&self.text, most).into_owned();
            return;
        };
        let cut = match &**data {
            Value::String(text) => excerpt(text, most).into_owned(),
            other => excerpt(&other.to_string(), most).into_owned(),
        };
        *self = Self::data(Value::from(cut));
    }

    fn said(speaker: Speaker, text: impl Into<String>) -> Self {
        Self {
            speaker,
            text: text.into(),
            data: None,
            tool_calls: Vec::new(),
            call_id: None,
            is_error: false,
        }
    }
}

/// Who says a message.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Speaker {
    /// The agent's author: instructions.
    System,
    /// The user, or a service in the user's place. Data is a message of this speaker too; see [`Message::data`].
    User,
    /// The model.
    Assistant,
    /// A tool, in answer to a call: data.
    Tool,
}

/// A tool that a model wants to have called.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// What the answer has to name; made here if the provider gave none.
    pub id: String,
    /// The tool, as the model wrote it: it may be one that nobody offered.
    pub name: String,
    /// What it shall be called with.
    pub arguments: Arguments,
}

impl ToolCall {
    /// A call of a tool.
    #[must_use]
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<Arguments>,
    ) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
        }
    }
}

/// What a model calls a tool with: the text it wrote, and the JSON that this is, if it is.
///
/// A text that is no JSON is kept, so that the model can be told what it wrote; it is never mended or guessed at. No
/// text at all counts as `{}`, which is what models write for a tool without arguments.
///
/// A tool is called with [`machine::Arguments`](crate::machine::Arguments), the JSON or the text in its place. Here the
/// text is kept of good arguments too: a conversation goes back to the model byte for byte, also when it was saved in
/// between by a store that writes JSON in a form of its own.
///
/// ```
/// use universal_executor::agent::Arguments;
///
/// let good = Arguments::from_text(r#"{"city": "Bergen"}"#);
/// assert_eq!(good.json()?["city"], "Bergen");
///
/// let cut = Arguments::from_text(r#"{"city": "Ber"#);
/// assert!(cut.json().is_err());
/// assert_eq!(cut.text(), r#"{"city": "Ber"#);
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(from = "String", into = "String")]
pub struct Arguments {
    text: String,
    json: Result<Json, BadArguments>,
}

impl Arguments {
    /// Reads what a model wrote.
    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Self {
        let text = text.into();
        let json = match machine::Arguments::parse(&text) {
            machine::Arguments::Json(json) => Ok(json),
            machine::Arguments::Unreadable { problem, .. } => Err(BadArguments { reason: problem }),
        };
        Self { text, json }
    }

    /// The text, as the model wrote it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The JSON that the text is.
    ///
    /// # Errors
    /// [`BadArguments`] if it is none, nests deeper than 64 levels or is larger than [`Json::MAX_BYTES`].
    pub fn json(&self) -> Result<&Json, BadArguments> {
        self.json.as_ref().map_err(Clone::clone)
    }
}

impl From<String> for Arguments {
    fn from(text: String) -> Self {
        Self::from_text(text)
    }
}

impl From<Arguments> for String {
    fn from(arguments: Arguments) -> Self {
        arguments.text
    }
}

impl From<serde_json::Value> for Arguments {
    fn from(value: serde_json::Value) -> Self {
        Self::from_text(value.to_string())
    }
}

/// The arguments of a call are not JSON, or not within the limits of [`Json`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the arguments of the call cannot be read: {reason}")]
#[non_exhaustive]
pub struct BadArguments {
    /// What is wrong with them, in words that the model can act on.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn no_arguments_are_an_empty_object() {
        for text in ["", "  ", "{}"] {
            assert_eq!(
                *Arguments::from_text(text).json().unwrap(),
                serde_json::json!({})
            );
        }
    }

    #[test]
    fn a_message_of_data_is_saved_without_its_fence_and_shown_with_one() {
        for data in [json!("a page"), json!({"a": [1]}), json!(null)] {
            let message = Message::data(data.clone());

            let saved = serde_json::to_value(&message).unwrap();
            let read: Message = serde_json::from_value(saved.clone()).unwrap();

            assert_eq!(saved, json!({"speaker": "user", "data": data}));
            assert_eq!(read, message);
            let fence = format!("{data}\n```");
            assert!(
                read.text.contains("```json data-") && read.text.contains(&fence),
                "{}",
                read.text
            );
        }
    }

    #[test]
    fn a_message_that_an_earlier_version_saved_is_read_as_words() {
        let saved = json!({"speaker": "user", "text": "Hi"});

        let read: Message = serde_json::from_value(saved.clone()).unwrap();

        assert_eq!(read, Message::user("Hi"));
        assert_eq!(serde_json::to_value(&read).unwrap(), saved);
    }

    #[test]
    fn data_that_is_cut_stays_inside_a_fence() {
        for data in [json!("é".repeat(1_000)), json!({"a": "x".repeat(1_000)})] {
            let mut message = Message::data(data);

            message.cut(100);

            assert!(
                message.text.len() < 600 && message.text.ends_with("\n```\n"),
                "{}",
                message.text
            );
        }
    }

    #[test]
    fn arguments_that_nest_without_end_are_refused_and_kept() {
        let text = "[".repeat(100_000);

        let arguments = Arguments::from_text(&*text);

        assert!(arguments.json().is_err());
        assert_eq!(arguments.text(), text);
    }

    #[test]
    fn a_model_is_told_where_its_arguments_are_broken() {
        let error = Arguments::from_text(r#"{"a": "#).json().unwrap_err();

        assert!(error.reason.ends_with("at line 1 column 6"), "{error}");
    }

    proptest! {
        #![proptest_config(crate::fuzz::config())]

        #[test]
        fn whatever_a_model_writes_is_kept_and_survives_being_saved(text in ".{0,200}") {
            let arguments = Arguments::from_text(&*text);

            let saved = serde_json::to_string(&arguments).unwrap();

            prop_assert_eq!(arguments.text(), text);
            prop_assert_eq!(serde_json::from_str::<Arguments>(&saved).unwrap(), arguments);
        }
    }
}

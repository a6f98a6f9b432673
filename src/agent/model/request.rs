use super::ChatMessage;
use crate::model::{BreadcrumbId, Json};
use crate::tool::ToolSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What a model is asked.
///
/// ```
/// use serde_json::json;
/// use universal_executor::agent::{ChatMessage, ChatRequest, ToolChoice, ToolSpec};
///
/// let weather = ToolSpec::new("weather", "The weather of a city", json!({
///     "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
/// }));
/// let request = ChatRequest::new(vec![ChatMessage::user("Do I need an umbrella in Bergen?")])
///     .model("llama3.2")
///     .tool(weather)
///     .tool_choice(ToolChoice::Required)
///     .max_output_tokens(200);
/// assert_eq!(request.tools[0].name, "weather");
/// ```
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ChatRequest {
    /// Which model, by the provider's name; the provider's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The conversation, oldest first.
    pub messages: Vec<ChatMessage>,
    /// The tools it may call; none by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// Whether it has to call one; [`ToolChoice::Auto`] by default. Without tools this says nothing.
    #[serde(default)]
    pub tool_choice: ToolChoice,
    /// What the text of the answer has to be; any text if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<ResponseSchema>,
    /// How freely it answers; the provider's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// How many tokens it may write; the provider's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Texts before which it stops; none by default. Most providers take four at the most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// The images and files of the messages, once they are read.
    #[serde(skip)]
    pub(in crate::agent) loaded: Loaded,
}

impl ChatRequest {
    /// A request of some messages.
    #[must_use]
    pub fn new(messages: Vec<ChatMessage>) -> Self {
        Self {
            messages,
            ..Self::default()
        }
    }

    /// Names the model.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Adds a tool it may call.
    #[must_use]
    pub fn tool(mut self, tool: ToolSpec) -> Self {
        self.tools.push(tool);
        self
    }

    /// Sets whether it has to call a tool.
    #[must_use]
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.tool_choice = choice;
        self
    }

    /// Sets what the text of the answer has to be.
    #[must_use]
    pub fn response_schema(mut self, schema: ResponseSchema) -> Self {
        self.response_schema = Some(schema);
        self
    }

    /// Sets how freely it answers.
    #[must_use]
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// Sets how many tokens it may write.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: u32) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// Adds a text before which it stops.
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stop.push(text.into());
        self
    }
}

/// The bytes that were read for a request, in base64. They are never saved.
#[derive(Clone, Default, PartialEq)]
pub(in crate::agent) struct Loaded(pub(super) BTreeMap<(BreadcrumbId, String), Arc<str>>);

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(loaded) = self;
        write!(f, "Loaded({})", loaded.len())
    }
}

/// Whether a model has to call a tool.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// It decides.
    #[default]
    Auto,
    /// It must not.
    None,
    /// It must call one or more.
    Required,
    /// It must call this one.
    Named(String),
}

/// What the text of an answer has to be: JSON of a schema.
///
/// A provider that does not know schemas answers as it likes, so an answer has to be checked all the same.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ResponseSchema {
    /// A name for it, of a-z, A-Z, 0-9, `_` and `-`.
    pub name: String,
    /// The JSON Schema.
    pub schema: Json,
    /// Whether the provider shall enforce it; true by default. Providers enforce only some of JSON Schema and reject the
    /// rest: OpenAI wants every property required and `additionalProperties` false.
    pub strict: bool,
}

impl ResponseSchema {
    /// A schema that the provider shall enforce.
    #[must_use]
    pub fn new(name: impl Into<String>, schema: impl Into<Json>) -> Self {
        Self {
            name: name.into(),
            schema: schema.into(),
            strict: true,
        }
    }

    /// Asks the provider only to try, for a schema that it could not enforce.
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.strict = false;
        self
    }
}

use super::ChatMessage;
use crate::model::{BreadcrumbId, Json};
use crate::tool::ToolSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A request to a model: the conversation, the tools and the settings.
///
/// Agents create requests themselves. Create one to call a [`ChatModel`](super::ChatModel)
/// directly, or to test your own model. JSON can save a request; loaded images and files are not
/// saved.
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
    /// The name of the model at the provider, or `None` for the default model of the [`ChatModel`](super::ChatModel).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The messages of the conversation with the model, oldest first.
    pub messages: Vec<ChatMessage>,
    /// The tools that the model may call. Defaults to none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// The rule for the model's choice of tools. Defaults to [`ToolChoice::Auto`]. Has no effect without tools.
    #[serde(default)]
    pub tool_choice: ToolChoice,
    /// The JSON Schema of the model's answer, or `None` for any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<ResponseSchema>,
    /// The sampling temperature of the model, or `None` for the provider's default.
    ///
    /// The range depends on the model, usually 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The maximum number of tokens in the model's answer, or `None` for the provider's default.
    ///
    /// An answer that reaches it has the stop reason
    /// [`StopReason::MaxTokens`](super::StopReason::MaxTokens).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// The stop sequences: the model stops before it writes one of these strings. Defaults to none. Most providers accept at most four.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// The base64 content of the images and files in this request's messages, which `load_media` has read from the store.
    #[serde(skip)]
    pub(in crate::agent) loaded: LoadedMedia,
}

impl ChatRequest {
    /// Creates a model request with these messages.
    ///
    /// All other settings have their defaults: no tools, any text, and the model of the provider.
    #[must_use]
    pub fn new(messages: Vec<ChatMessage>) -> Self {
        Self {
            messages,
            ..Self::default()
        }
    }

    /// Sets the name of the model at the provider.
    ///
    /// Defaults to the model that the [`ChatModel`](super::ChatModel) was built with.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Adds a tool that the model may call.
    ///
    /// Each call adds one tool. The request executes nothing: the answer has the calls of the
    /// model.
    #[must_use]
    pub fn tool(mut self, tool: ToolSpec) -> Self {
        self.tools.push(tool);
        self
    }

    /// Sets the rule for the model's choice of tools.
    ///
    /// Use [`ToolChoice::Required`] to force a call, and [`ToolChoice::None`] to force text. Some
    /// providers of `GenaiModel` cannot force calls.
    #[must_use]
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.tool_choice = choice;
        self
    }

    /// Sets the JSON Schema of the model's answer.
    ///
    /// Parse the answer in any case: a model can ignore a schema.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::agent::{ChatMessage, ChatRequest, ResponseSchema};
    ///
    /// let schema = json!({"type": "object", "properties": {"score": {"type": "integer"}}});
    /// let request = ChatRequest::new(vec![ChatMessage::user("Rate this essay.")])
    ///     .response_schema(ResponseSchema::new("rating", schema).lenient());
    /// assert!(request.response_schema.is_some_and(|schema| !schema.strict));
    /// ```
    #[must_use]
    pub fn response_schema(mut self, schema: ResponseSchema) -> Self {
        self.response_schema = Some(schema);
        self
    }

    /// Sets the sampling temperature of the model.
    ///
    /// Defaults to that of the provider, which can reject a value with
    /// [`ModelError::Rejected`](super::ModelError::Rejected).
    #[must_use]
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// Sets the maximum number of tokens in the model's answer.
    ///
    /// Defaults to the limit of the provider.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: u32) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// Adds a stop sequence: the model stops before it writes this string.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{ChatMessage, ChatRequest};
    ///
    /// let request = ChatRequest::new(vec![ChatMessage::user("Count to ten.")])
    ///     .temperature(0.0)
    ///     .max_output_tokens(50)
    ///     .stop("five");
    /// assert_eq!(request.stop, ["five"]);
    /// ```
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stop.push(text.into());
        self
    }
}

/// Base64 contents of the images and files of a model request, by breadcrumb ID and JSONPath in the breadcrumb's context. The
/// content is never saved.
#[derive(Clone, Default, PartialEq)]
pub(in crate::agent) struct LoadedMedia(pub(super) BTreeMap<(BreadcrumbId, String), Arc<str>>);

impl fmt::Debug for LoadedMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(loaded) = self;
        write!(f, "Loaded({})", loaded.len())
    }
}

/// The rule in a model request for the model's choice of tools.
///
/// The JSON form is `"auto"`, `"none"`, `"required"` or `{"named": "<tool>"}`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides whether to call tools.
    #[default]
    Auto,
    /// The model must not call tools.
    None,
    /// The model must call at least one tool.
    Required,
    /// The model must call the tool with this name.
    Named(String),
}

/// The JSON Schema that a model's answer must match.
///
/// Not every provider supports schemas, so the answer must be checked in any case.
///
/// An agent with an [`output_schema`](crate::agent::AgentDefinition::output_schema) sends a lenient
/// schema with the name `answer`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ResponseSchema {
    /// The name of the answer's JSON Schema, with the characters a-z, A-Z, 0-9, `_` and `-`.
    pub name: String,
    /// The JSON Schema that the model's answer must match.
    pub schema: Json,
    /// If `true`, the provider must enforce the JSON Schema of the answer. Defaults to `true`. Providers enforce only a part of JSON Schema
    /// and reject other schemas: OpenAI, for example, needs every property to be required and `additionalProperties` to be `false`.
    pub strict: bool,
}

impl ResponseSchema {
    /// Creates a strict schema for a model's answer: the provider must enforce the schema.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::agent::ResponseSchema;
    ///
    /// let schema = ResponseSchema::new("rating", json!({"type": "object"}));
    /// assert!(schema.strict);
    /// ```
    #[must_use]
    pub fn new(name: impl Into<String>, schema: impl Into<Json>) -> Self {
        Self {
            name: name.into(),
            schema: schema.into(),
            strict: true,
        }
    }

    /// Makes the schema of the answer non-strict: the provider follows the schema as far as it can. Use this for schemas that a provider
    /// cannot enforce.
    ///
    /// `GenaiModel` omits a lenient schema for providers that do not support schemas, and fails
    /// with [`ModelError::Unsupported`](super::ModelError::Unsupported) for a strict one.
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.strict = false;
        self
    }
}

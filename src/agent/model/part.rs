use super::ToolCall;
use crate::model::{BreadcrumbId, Json, size_within};
use serde::{Deserialize, Serialize};

/// One part of a [`ChatMessage`](super::ChatMessage) or of a [`ChatResponse`](super::ChatResponse).
///
/// The parts of an answer are in the order in which the model wrote them, as far as the protocol of its provider has an order.
///
/// Read the parts with the methods of [`ChatMessage`](super::ChatMessage) and
/// [`ChatResponse`](super::ChatResponse). Later versions of the crate can add variants, so a
/// `match` needs a wildcard arm.
///
/// # Examples
/// ```
/// use universal_executor::agent::{ChatResponse, Part};
///
/// let answer = ChatResponse::new("It rains.");
/// let texts = answer.parts.iter().filter(|part| matches!(part, Part::Text(_)));
/// assert_eq!(texts.count(), 1);
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// The message's own text: instructions, the user's words or the model's answer.
    Text(String),
    /// Data that is not the message's own text, such as a breadcrumb or a summary. Models receive the data between marks that separate data
    /// from instructions. The saved form has no marks.
    Data(Json),
    /// An image, as a reference to a breadcrumb.
    ///
    /// The media type starts with `image/`. Use it in messages of the user.
    Image(Media),
    /// A file, such as a PDF or audio, as a reference to a breadcrumb.
    File(Media),
    /// A tool call of the model.
    ///
    /// A message with calls must be followed by their results.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult(CallResult),
    /// Reasoning of the model, which is not part of the answer.
    ///
    /// [`ChatMessage::text`](super::ChatMessage::text) excludes it.
    Reasoning(Reasoning),
    /// Opaque state that the model's provider expects back in later requests, such as the signature of a thought.
    Opaque(Opaque),
}

/// The result of a tool call.
///
/// [`ChatMessage::tool_result`](super::ChatMessage::tool_result) and
/// [`ChatMessage::tool_error`](super::ChatMessage::tool_error) create one.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CallResult {
    /// The ID of the tool call to which this result belongs.
    pub call_id: String,
    /// The output of the tool call, or its error, as text for the model.
    pub text: String,
    /// If `true`, the tool call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// The provider and the model that wrote a part of a message. Only the same model of the same provider receives the part again.
///
/// Your own [`ChatModel`](super::ChatModel) needs it only for reasoning and provider state.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::agent::{Opaque, PartOrigin};
///
/// let origin = PartOrigin::new("my-server", Some("large"));
/// let state = Opaque::new("signature", json!("c2ln"), origin.clone()).of_call("call-1");
/// assert_eq!((state.origin, state.call_id.as_deref()), (origin, Some("call-1")));
/// ```
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PartOrigin {
    /// The ID of the model's provider, such as `openai:api.example.com:5c1f00b5e2a74d90` or `genai:anthropic`. The ID of an API has its
    /// protocol and its endpoint; the digits are a digest of the URL. The ID of a tool that serves the model is `breadcrumb:` and the tool
    /// name.
    pub provider: String,
    /// The name of the model at the provider, or `None` if the request named no model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// Text of a model's reasoning before its answer.
///
/// Later requests to the [`origin`](Self::origin) contain the text, in the same field. No other provider receives it.
///
/// Signatures of thoughts are separate parts: [`Opaque`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Reasoning {
    /// The text of the model's reasoning.
    pub text: String,
    /// The name of the field that contains the reasoning in the provider's protocol, such as `reasoning_content`.
    pub field: String,
    /// The provider and the model that wrote the reasoning.
    pub origin: PartOrigin,
}

/// Opaque state that a model provider expects back in later requests, such as the signature of a thought.
///
/// Later requests to the [`origin`](Self::origin) contain the state, unchanged. No other provider receives it.
///
/// A model adds it to its answer with [`ChatEvent::Opaque`](super::ChatEvent::Opaque), and reads it
/// from the messages of the next request. The example of [`PartOrigin`] creates one.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Opaque {
    /// The name of the field that contains the state in the provider's protocol, such as `reasoning_details`.
    pub field: String,
    /// The opaque state of the model provider, as JSON.
    pub value: Json,
    /// The ID of the tool call with this provider state, or `None` if the state belongs to the whole message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The provider and the model that wrote the state.
    pub origin: PartOrigin,
}

/// A reference to an image or a file in the store. A conversation contains references and never the bytes.
///
/// [`ChatRequest::load_media`](super::ChatRequest::load_media) reads the bytes for each request.
///
/// The maximum is [`Media::MAX_BYTES`] for one reference and
/// [`ChatRequest::MAX_MEDIA_BYTES`](super::ChatRequest::MAX_MEDIA_BYTES) for a request.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Media {
    /// The breadcrumb that contains the image or file.
    pub breadcrumb: BreadcrumbId,
    /// The path, in the breadcrumb's context, of the string with the content of the image or file in standard base64.
    ///
    /// The form is that of [`Json::text`](crate::Json::text), such as `photo.base64`.
    pub path: String,
    /// The media type of the image or file, such as `image/png`.
    pub media_type: String,
    /// The size of the image or file in bytes. Content of another size is an error.
    ///
    /// The size is that of the decoded content, and not of the base64 string.
    pub size: u64,
    /// The file name that the model receives for the image or file, or `None` for no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl PartOrigin {
    /// Creates the origin of a message part: the provider and the model that wrote the part.
    #[must_use]
    pub fn new(provider: impl Into<String>, model: Option<&str>) -> Self {
        Self {
            provider: provider.into(),
            model: model.map(str::to_owned),
        }
    }
}

impl Reasoning {
    /// Creates a reasoning text from a field of the provider's protocol.
    ///
    /// A model with `reasoning_content` in its protocol passes that name as `field`, so that the
    /// next request repeats the text in the same field.
    #[must_use]
    pub fn new(text: impl Into<String>, field: impl Into<String>, origin: PartOrigin) -> Self {
        Self {
            text: text.into(),
            field: field.into(),
            origin,
        }
    }
}

impl Opaque {
    /// Maximum nesting depth of the JSON value that contains the provider state. A saved conversation adds a few levels, and JSON in a
    /// store has at most 64.
    pub const MAX_DEPTH: usize = 32;

    /// Creates provider state that belongs to a whole message, from a field of the provider's protocol.
    #[must_use]
    pub fn new(field: impl Into<String>, value: impl Into<Json>, origin: PartOrigin) -> Self {
        Self {
            field: field.into(),
            value: value.into(),
            call_id: None,
            origin,
        }
    }

    /// Binds the provider state to a tool call of the message.
    ///
    /// Without this call, the state belongs to the whole message.
    #[must_use]
    pub fn of_call(mut self, call_id: impl Into<String>) -> Self {
        self.call_id = Some(call_id.into());
        self
    }

    /// Returns `true` if the JSON value of the provider state nests no deeper than [`Self::MAX_DEPTH`].
    pub(in crate::agent) fn is_flat(&self) -> bool {
        size_within(&self.value, Self::MAX_DEPTH).is_ok()
    }
}

impl Media {
    /// Creates a reference to the image or file in a field of a breadcrumb's context.
    ///
    /// The reference is not checked here; [`load_media`](super::ChatRequest::load_media) checks it.
    /// Wrap it in [`Part::Image`] or [`Part::File`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::BreadcrumbId;
    /// use universal_executor::agent::Media;
    ///
    /// let photo = Media::new(BreadcrumbId::NIL, "base64", "image/png", 1_200).name("bird.png");
    /// assert_eq!(photo.name.as_deref(), Some("bird.png"));
    /// ```
    #[must_use]
    pub fn new(
        breadcrumb: BreadcrumbId,
        path: impl Into<String>,
        media_type: impl Into<String>,
        size: u64,
    ) -> Self {
        Self {
            breadcrumb,
            path: path.into(),
            media_type: media_type.into(),
            size,
            name: None,
        }
    }

    /// Sets the file name that the model receives for the image or file.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}

impl Part {
    /// Returns the size in bytes of all strings and JSON values in the message part.
    pub(crate) fn size(&self) -> usize {
        let origin = |origin: &PartOrigin| {
            origin.provider.len() + origin.model.as_ref().map_or(0, String::len)
        };
        match self {
            Self::Text(text) => text.len(),
            Self::Data(data) => data.size(),
            Self::Image(media) | Self::File(media) => {
                let name = media.name.as_ref().map_or(0, String::len);
                media.path.len() + media.media_type.len() + name
            }
            Self::ToolCall(call) => call.id.len() + call.name.len() + call.arguments.text().len(),
            Self::ToolResult(result) => result.call_id.len() + result.text.len(),
            Self::Reasoning(reasoning) => {
                reasoning.text.len() + reasoning.field.len() + origin(&reasoning.origin)
            }
            Self::Opaque(opaque) => {
                let call_id = opaque.call_id.as_ref().map_or(0, String::len);
                let value = opaque.value.size();
                value.saturating_add(opaque.field.len() + call_id + origin(&opaque.origin))
            }
        }
    }

    /// Returns `true` for message parts with reasoning or provider state. Only the provider that wrote such a part receives it.
    pub(crate) fn is_private(&self) -> bool {
        match self {
            Self::Reasoning(_) | Self::Opaque(_) => true,
            Self::Text(_)
            | Self::Data(_)
            | Self::Image(_)
            | Self::File(_)
            | Self::ToolCall(_)
            | Self::ToolResult(_) => false,
        }
    }
}

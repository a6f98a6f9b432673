mod builder;
mod embedder;
mod http;

pub use builder::OpenAiCompatibleBuilder;
pub use embedder::OpenAiEmbedder;

use self::http::Body;
use super::Secret;
use super::completions::{AnswerReader, Form, Names};
use super::key::Key;
use super::web::{MAX_EVENT_BYTES, endpoint_name};
use crate::agent::model::Collector;
use crate::agent::{ChatEvent, ChatModel, ChatRequest, ChatResponse, ModelError, PartOrigin};
use crate::source::frames::{Frames, SseItem};
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use reqwest::Url;
use std::collections::VecDeque;
use std::fmt;

/// A [`ChatModel`] for endpoints with OpenAI's chat completions API, such as OpenAI, OpenRouter, Ollama, vLLM and llama.cpp (feature
/// `openai`).
///
/// The model supports tools, JSON answers that match a schema, and streaming. A tool name that the protocol does not permit, such as
/// `a.b`, is replaced in the request and restored in the answer. The client makes no retries, follows no redirects, and reads at
/// most [`max_bytes`](OpenAiCompatibleBuilder::max_bytes) of an answer.
///
/// The next request to the same model of the same endpoint contains the reasoning and the provider state of an answer: the fields
/// `reasoning_content`, else `reasoning`, and `reasoning_details`, and unknown fields of tool calls such as `extra_content`. The text of
/// the reasoning is sent only with tool calls. See [`Reasoning`](crate::agent::Reasoning) and [`Opaque`](crate::agent::Opaque).
///
/// Clones share their connections.
///
/// Pass the model to [`Agent::new`](crate::agent::Agent::new) or
/// [`Services::model`](crate::Services::model).
///
/// ```no_run
/// use universal_executor::agent::{ChatMessage, ChatModel, ChatRequest, OpenAiCompatible};
///
/// # async fn example() -> Result<(), universal_executor::BoxError> {
/// let ollama = OpenAiCompatible::builder("http://localhost:11434/v1").model("llama3.2").build()?;
/// let answer = ollama.chat(&ChatRequest::new(vec![ChatMessage::user("Say hello.")])).await?;
/// println!("{}", answer.text());
///
/// let openrouter = OpenAiCompatible::builder("https://openrouter.ai/api/v1")
///     .key_from_env("OPENROUTER_API_KEY")
///     .model("meta-llama/llama-3.3-70b-instruct")
///     .build()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// | cause | [`ModelError`] |
/// |---|---|
/// | 429 | `RateLimited`, for ten seconds or the `Retry-After` of the response, from a second to an hour; used-up credit is `Rejected` |
/// | 503, 529 | `Overloaded` |
/// | 408, 409, 425, 500 and other 5xx; a connection that fails or ends early | `Unavailable` |
/// | a timeout | `TimedOut` |
/// | 401, 403 | `Unauthorized` |
/// | 413, or an error that names the context length | `ContextTooLong` |
/// | a refusal, or a content filter | `Refused` |
/// | any other status, including redirects | `Rejected`, with the provider's message as its source |
/// | HTML, invalid or truncated JSON | `BadAnswer` |
/// | an answer over the limit | `TooLarge` |
#[derive(Clone)]
pub struct OpenAiCompatible {
    client: reqwest::Client,
    endpoint: Url,
    key: Key,
    model: Option<String>,
    max_bytes: usize,
    joins_user_messages: bool,
}

impl OpenAiCompatible {
    /// Returns a builder for a model at the endpoint with this base URL. `/chat/completions` is added to `base_url`, for example to
    /// `https://api.openai.com/v1`.
    ///
    /// The URL must be `http` or `https`, without credentials, query and fragment. A slash at its
    /// end changes nothing.
    pub fn builder(base_url: impl Into<String>) -> OpenAiCompatibleBuilder {
        OpenAiCompatibleBuilder::new(base_url.into())
    }

    /// Returns the origin of the answer to a model request: the endpoint and the model.
    fn origin(&self, request: &ChatRequest) -> PartOrigin {
        let provider = format!("openai:{}", endpoint_name(&self.endpoint));
        let model = request.model.as_deref().or(self.model.as_deref());
        PartOrigin::new(provider, model)
    }

    /// Sends a model request, and returns the response body and the reader of the model answer.
    async fn send(
        &self,
        request: &ChatRequest,
        streams: bool,
    ) -> Result<(Body, AnswerReader), ModelError> {
        let names = Names::new(request);
        let origin = self.origin(request);
        let form = Form {
            names: &names,
            origin: &origin,
            default_model: self.model.as_deref(),
            max_tokens_field: max_tokens_field(&self.endpoint),
            streams,
            joins_user_messages: self.joins_user_messages,
        };
        let key = self.key.get().await?;
        let request_json = form.body(request)?.to_string();
        let body = Body::request(self, request_json, key.as_ref()).await?;
        Ok((body, AnswerReader::new(names, origin, key)))
    }
}

#[async_trait]
impl ChatModel for OpenAiCompatible {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        let (body, mut reader) = self.send(request, false).await?;
        let text = body.read_all().await?;
        let mut events = Vec::new();
        reader.read(&text, &mut events)?;
        events.extend(reader.finish(false)?);
        let mut answer = Collector::default();
        for event in events {
            answer.push(event)?;
        }
        answer.finish()
    }

    async fn stream(
        &self,
        request: &ChatRequest,
    ) -> Result<BoxStream<'static, Result<ChatEvent, ModelError>>, ModelError> {
        let (body, reader) = self.send(request, true).await?;
        let answer = AnswerStream {
            is_event_stream: body.is_event_stream(),
            body,
            reader: Some(reader),
            frames: Frames::new(MAX_EVENT_BYTES, MAX_EVENT_BYTES),
            ready_events: VecDeque::new(),
        };
        Ok(stream::unfold(answer, AnswerStream::next).boxed())
    }
}

impl fmt::Debug for OpenAiCompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiCompatible")
            .field("endpoint", &self.endpoint.as_str())
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// Returns the name of the request field with the maximum number of answer tokens. Newer models of OpenAI accept only the new name, most
/// other endpoints only the old name.
fn max_tokens_field(endpoint: &Url) -> &'static str {
    match endpoint.host_str() {
        Some("api.openai.com") => "max_completion_tokens",
        _ => "max_tokens",
    }
}

/// A model answer that is being received from the endpoint.
struct AnswerStream {
    body: Body,
    /// If `true`, the model answer is an event stream. Endpoints that cannot stream send a whole answer.
    is_event_stream: bool,
    /// The reader of the model answer, or `None` once the answer has ended.
    reader: Option<AnswerReader>,
    frames: Frames,
    /// The next events of the model answer, in the order in which they will be returned. They come from one chunk, so its size limits them.
    ready_events: VecDeque<Result<ChatEvent, ModelError>>,
}

impl AnswerStream {
    async fn next(mut self) -> Option<(Result<ChatEvent, ModelError>, Self)> {
        while self.ready_events.is_empty() && self.reader.is_some() {
            let mut events = VecDeque::new();
            let ended = self.step(&mut events).await;
            self.ready_events.extend(events.into_iter().map(Ok));
            match ended {
                Ok(()) => {}
                Err(error) => {
                    self.ready_events.push_back(Err(error));
                    self.reader = None;
                }
            }
        }
        let event = self.ready_events.pop_front()?;
        Some((event, self))
    }

    /// Reads the next chunk of the model answer, or the whole body if the answer does not stream.
    async fn step(&mut self, events: &mut VecDeque<ChatEvent>) -> Result<(), ModelError> {
        if !self.is_event_stream {
            let mut text = Vec::new();
            while let Some(chunk) = self.body.chunk().await? {
                text.extend_from_slice(chunk.as_ref());
            }
            self.read_answer(&text, events)?;
            return self.end(false, events);
        }
        let Some(chunk) = self.body.chunk().await? else {
            return self.end(false, events);
        };
        let mut frames_read = Vec::new();
        let read = self.frames.read(chunk.as_ref(), &mut frames_read);
        for frame in frames_read {
            let SseItem::Event(frame) = frame else {
                continue;
            };
            if frame.data.trim_ascii() == b"[DONE]" {
                return self.end(true, events);
            }
            self.read_answer(&frame.data, events)?;
        }
        read.map_err(|_| ModelError::TooLarge {
            what: "the size of an event in bytes",
            limit: MAX_EVENT_BYTES,
        })
    }

    fn read_answer(
        &mut self,
        text: &[u8],
        events: &mut VecDeque<ChatEvent>,
    ) -> Result<(), ModelError> {
        match &mut self.reader {
            Some(reader) => reader.read(text, events),
            None => Ok(()),
        }
    }

    fn end(
        &mut self,
        has_done_marker: bool,
        events: &mut VecDeque<ChatEvent>,
    ) -> Result<(), ModelError> {
        if let Some(reader) = self.reader.take() {
            events.extend(reader.finish(has_done_marker)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_tokens_goes_by_the_name_that_the_endpoint_knows() {
        let field = |url| max_tokens_field(&Url::parse(url).unwrap());

        assert_eq!(field("https://api.openai.com/v1"), "max_completion_tokens");
        assert_eq!(field("http://localhost:11434/v1"), "max_tokens");
    }
}

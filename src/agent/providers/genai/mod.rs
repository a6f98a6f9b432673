mod answer;
mod builder;
mod failure;
mod meter;
mod reader;
mod request;

pub use builder::GenaiModelBuilder;

use self::answer::AnswerEvents;
use self::meter::Meter;
use self::reader::Reader;
use super::Secret;
use super::completions::Names;
use super::key::{Key, can_be_sent};
use crate::agent::{ChatEvent, ChatModel, ChatRequest, ChatResponse, ModelError, PartOrigin};
use ::genai::adapter::AdapterKind;
use ::genai::resolver::{AuthData, Endpoint};
use ::genai::{Client, ModelIden, ServiceTarget};
use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tracing::Dispatch;
use tracing::instrument::WithSubscriber;

/// A [`ChatModel`] for providers with their own protocols, through the crate `genai` (feature `genai`).
///
/// | provider | features |
/// |---|---|
/// | `anthropic`, `gemini`, `gemini_ix`, `minimax`, `openai_resp` | tools, the choice of one, schemas of answers |
/// | `bedrock_api`, `ollama`, `ollama_cloud`, `vertex` | tools |
/// | `cohere` | text |
///
/// For providers with the chat completions API of OpenAI, use `OpenAiCompatible` (feature `openai`).
///
/// The model supports tools, JSON answers that match a schema, and streaming, as far as the provider does. Tool calls are events at
/// the end of an answer. A tool name that the protocol does not permit, such as `a.b`, is replaced in the request and restored in the
/// answer. The client makes no retries and follows no redirects.
///
/// A request with a feature that `genai` does not support for the provider fails with [`ModelError::Unsupported`], except that a
/// [lenient](crate::agent::ResponseSchema::lenient) schema is omitted. The end of a model's name can set the reasoning effort (`-high`),
/// as in `genai`.
///
/// The next request to the same model of the same provider contains the thoughts and their signatures, as `genai` sends them. See
/// [`Reasoning`](crate::agent::Reasoning) and [`Opaque`](crate::agent::Opaque).
///
/// Clones share their connections.
///
/// Pass the model to [`Agent::new`](crate::agent::Agent::new) or
/// [`Services::model`](crate::Services::model).
///
/// ```no_run
/// use universal_executor::agent::{ChatMessage, ChatModel, ChatRequest, GenaiModel};
///
/// # async fn example() -> Result<(), universal_executor::BoxError> {
/// let claude = GenaiModel::builder("anthropic", "claude-sonnet-4-5")
///     .key_from_env("ANTHROPIC_API_KEY")
///     .build()?;
/// let answer = claude.chat(&ChatRequest::new(vec![ChatMessage::user("Say hello.")])).await?;
/// println!("{}", answer.text());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The errors are the same as those of `OpenAiCompatible`. Log messages of `genai` are discarded, because they quote text of the
/// provider.
///
/// # Limits
/// An answer is read up to [`ChatResponse::MAX_BYTES`] of text and calls, and up to [`max_bytes`](GenaiModelBuilder::max_bytes) of
/// events. However, `genai` reads a single event, and the body of an error, to the end without a size limit. Only the timeouts and a
/// dropped stream stop it, and they take effect because a separate thread reads the answers. A hostile endpoint can use as much memory as
/// it sends within [`total_timeout`](GenaiModelBuilder::total_timeout), so use this model only with endpoints that you trust. A `WARN`
/// line reports each event over 1 MiB and each error body over 64 KiB.
#[derive(Clone)]
pub struct GenaiModel {
    client: Client,
    provider: AdapterKind,
    /// The name of the provider in saved conversations, followed by the endpoint if `base_url` was set.
    name: String,
    /// The endpoint of the model, or `None` for the default endpoint of the provider.
    endpoint: Option<Endpoint>,
    key: Key,
    model: String,
    max_bytes: usize,
    total_timeout: Duration,
    reader: Arc<Reader>,
}

impl GenaiModel {
    /// Returns a builder for a model of a provider. `model` is the model for requests that name none.
    ///
    /// The provider is one of the names in the table of [`GenaiModel`]. The builder checks it in
    /// [`build`](GenaiModelBuilder::build).
    pub fn builder(provider: impl Into<String>, model: impl Into<String>) -> GenaiModelBuilder {
        GenaiModelBuilder::new(provider.into(), model.into())
    }

    /// Returns the endpoint, the model and the API key for a model request.
    async fn target(
        &self,
        request: &ChatRequest,
        key: Option<&Secret>,
    ) -> Result<ServiceTarget, ModelError> {
        let name = request.model.as_deref().unwrap_or(&self.model);
        let model = ModelIden::new(self.provider, name);
        let mut target = self
            .client
            .resolve_service_target(model)
            .await
            .map_err(|_| self.unsupported("this model"))?;
        // Without a key, `genai` would read one from the environment. An empty key prevents that.
        target.auth = AuthData::from_single(key.map(Secret::reveal).unwrap_or_default());
        if let Some(endpoint) = &self.endpoint {
            target.endpoint = endpoint.clone();
        }
        Ok(target)
    }

    /// Returns the origin of the answer to a model request: the provider and the model.
    fn origin(&self, request: &ChatRequest) -> PartOrigin {
        let name = request.model.as_deref().unwrap_or(&self.model);
        PartOrigin::new(&*self.name, Some(name))
    }

    fn unsupported(&self, what: &'static str) -> ModelError {
        ModelError::Unsupported {
            provider: self.provider.as_lower_str(),
            what,
        }
    }
}

#[async_trait]
impl ChatModel for GenaiModel {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        ChatResponse::collect(self.stream(request).await?).await
    }

    async fn stream(
        &self,
        request: &ChatRequest,
    ) -> Result<BoxStream<'static, Result<ChatEvent, ModelError>>, ModelError> {
        if let Some(what) = request::unsupported_feature(self.provider, request) {
            return Err(self.unsupported(what));
        }
        let key = self.key.get().await?;
        if key.as_ref().is_some_and(|key| !can_be_sent(key)) {
            return Err(ModelError::unauthorized());
        }
        let names = Names::new(request);
        let meter = Arc::new(Meter::new(self.max_bytes));
        let origin = self.origin(request);
        let chat_request = request::messages(self.provider, request, (&names, &origin))?;
        let options = request::options(self.provider, request, &names)
            .with_raw_frame_sink_arc(Arc::clone(&meter) as _);
        let target = self.target(request, key.as_ref()).await?;
        let answer = self
            .client
            .exec_chat_stream(target, chat_request, Some(&options))
            .with_subscriber(Dispatch::none())
            .await
            .map_err(|error| failure::of_request(&error, self.provider.as_lower_str()))?;
        let answer = AnswerEvents::new(answer.stream, Arc::clone(&meter), (names, origin), key)
            .into_stream();
        let reader = Arc::clone(&self.reader);
        Ok(reader.read(answer, meter, self.total_timeout).boxed())
    }
}

impl fmt::Debug for GenaiModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenaiModel")
            .field("provider", &self.provider.as_lower_str())
            .field("endpoint", &self.endpoint.as_ref().map(Endpoint::base_url))
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

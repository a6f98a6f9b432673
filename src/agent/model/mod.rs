mod answered_by;
mod call;
mod error;
mod event;
mod media;
mod message;
mod part;
mod request;
mod response;
mod saved;

pub(in crate::agent) use answered_by::failed_text;
pub use answered_by::{AnsweredBy, FailedModel};
pub use call::{BadArguments, ModelArguments, ToolCall};
pub use error::ModelError;
pub(in crate::agent) use event::Collector;
pub use event::{ChatEvent, ToolCallDelta};
pub(in crate::agent) use media::MediaSource;
pub use message::{ChatMessage, Speaker};
pub use part::{CallResult, Media, Opaque, Part, PartOrigin, Reasoning};
pub use request::{ChatRequest, ResponseSchema, ToolChoice};
pub use response::{ChatResponse, StopReason, Usage};

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use std::sync::Arc;

/// A language model that answers chat requests.
///
/// Implement it to connect a model that the crate does not support. [`chat`](Self::chat) is
/// required. Implement [`stream`](Self::stream) too if chat clients must see the text while the
/// model writes it. The macro `async_trait` is exported by the crate.
///
/// Ready models are [`ScriptedModel`](super::ScriptedModel) and
/// [`RecordedModel`](super::RecordedModel) for tests, `OpenAiCompatible` (feature `openai`) and
/// `GenaiModel` (feature `genai`). [`FallbackModel`](super::FallbackModel) is a list of models that fail over. `Arc<M>` is a
/// model if `M` is one.
///
/// # Contract
/// - **Cancel safe.** Dropping a future or a stream ends the request and has no other effect.
/// - **One answer.** [`ChatResponse::collect`] of a stream equals the result of [`chat`](Self::chat) for the same answer.
/// - **Bounded.** An answer over [`ChatResponse::MAX_BYTES`] or [`ChatResponse::MAX_TOOL_CALLS`] is the error
///   [`ModelError::TooLarge`].
/// - **One attempt.** A model makes no retries. [`ModelError::retry`] tells the run whether to retry.
///
/// ```
/// use universal_executor::agent::{ChatMessage, ChatModel, ChatRequest, ChatResponse, ScriptedModel};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let model = ScriptedModel::new(["Hello, Ann!", "Hello, Ann!"]);
/// let request = ChatRequest::new(vec![ChatMessage::user("I am Ann")]);
///
/// let whole = model.chat(&request).await?;
/// let streamed = ChatResponse::collect(model.stream(&request).await?).await?;
/// assert_eq!(whole, streamed);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
///
/// # Examples
/// A model that wraps another and counts its requests:
/// ```
/// use futures::stream::BoxStream;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use universal_executor::agent::{
///     ChatEvent, ChatModel, ChatRequest, ChatResponse, ModelError, ScriptedModel,
/// };
/// use universal_executor::async_trait;
///
/// struct Counted<M>(M, AtomicUsize);
///
/// #[async_trait]
/// impl<M: ChatModel> ChatModel for Counted<M> {
///     async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.chat(request).await
///     }
///
///     async fn stream(
///         &self,
///         request: &ChatRequest,
///     ) -> Result<BoxStream<'static, Result<ChatEvent, ModelError>>, ModelError> {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.stream(request).await
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let model = Counted(ScriptedModel::new(["Hello!"]), AtomicUsize::new(0));
/// model.chat(&ChatRequest::default()).await?;
/// assert_eq!(model.1.load(Ordering::Relaxed), 1);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[async_trait]
pub trait ChatModel: Send + Sync {
    /// Sends a request to the model and waits for the whole answer.
    ///
    /// An agent calls this outside of chat sessions, and in sessions if it has guardrails. The
    /// implementation must not retry: the run
    /// does.
    ///
    /// # Errors
    /// [`ModelError`]; its method [`retry`](ModelError::retry) tells whether a retry could succeed.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request. The provider may still charge for it.
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError>;

    /// Sends a request to the model and streams the answer. The last event of a complete answer is [`ChatEvent::End`]. No item follows an
    /// error.
    ///
    /// The default implementation calls [`chat`](Self::chat) and returns the events of the whole answer. A model that wraps another must
    /// forward this method.
    ///
    /// An agent without guardrails calls this in a turn of a chat session, so that the client
    /// receives the text early.
    ///
    /// # Errors
    /// [`ModelError`], from this method or as the last item of the stream. Its method [`retry`](ModelError::retry) tells whether a
    /// retry could succeed.
    ///
    /// # Cancel safety
    /// Dropping the future or the stream ends the request. Text that was already received is lost.
    async fn stream(
        &self,
        request: &ChatRequest,
    ) -> Result<BoxStream<'static, Result<ChatEvent, ModelError>>, ModelError> {
        let events = self.chat(request).await?.into_events();
        Ok(stream::iter(events.into_iter().map(Ok)).boxed())
    }
}

#[async_trait]
impl<M: ChatModel + ?Sized> ChatModel for Arc<M> {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        (**self).chat(request).await
    }

    async fn stream(
        &self,
        request: &ChatRequest,
    ) -> Result<BoxStream<'static, Result<ChatEvent, ModelError>>, ModelError> {
        (**self).stream(request).await
    }
}

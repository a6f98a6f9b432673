mod call;
mod error;
mod event;
mod media;
mod message;
mod part;
mod request;
mod response;
mod saved;

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

/// A language model that answers a list of messages.
///
/// # Contract
/// - **Cancel safe.** Dropping a future or a stream ends the call and nothing else.
/// - **One answer.** [`ChatResponse::collect`] of a stream gives what [`chat`](Self::chat) gives for the same answer.
/// - **Bounded.** An answer keeps to [`ChatResponse::MAX_BYTES`] and [`ChatResponse::MAX_TOOL_CALLS`], or is
///   [`ModelError::TooLarge`].
/// - **One attempt.** A model does not try again by itself; [`ModelError::retry`] tells the run whether it should.
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
#[async_trait]
pub trait ChatModel: Send + Sync {
    /// Asks the model once and waits for the whole answer.
    ///
    /// # Errors
    /// [`ModelError`] says whether asking again could succeed.
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError>;

    /// Asks the model once and gives the answer as it comes. The last event of a whole answer is [`ChatEvent::End`];
    /// after an error nothing follows.
    ///
    /// A model that cannot stream leaves this as it is: the answer then comes in one piece. A model that wraps another
    /// has to forward it.
    ///
    /// # Errors
    /// [`ModelError`], here or as the last item of the stream, says whether asking again could succeed.
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

//! A list of models that fail over.

mod breaker;
mod bucket;
mod builder;
mod driver;
mod policy;
mod reaction;
mod shared;
mod states;
mod streamed;
#[cfg(test)]
mod tests;

pub use builder::{FallbackError, FallbackModelBuilder};
pub use policy::ModelPolicy;
pub use shared::SharedLimits;

use super::{ChatEvent, ChatModel, ChatRequest, ChatResponse, ModelError};
use crate::clock::within;
use async_trait::async_trait;
use driver::{Core, Entry};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::BoxStream;
use std::fmt;
use std::sync::Arc;

/// A [`ChatModel`] that sends each request to the first model of an ordered list that can answer it.
///
/// Use it when a run must continue while a provider is overloaded, rate limited or down. Each model of the list has timeouts, rate limits
/// and a circuit breaker, set by its [`ModelPolicy`]. All clones share them, so register one model in the [`Services`](crate::Services)
/// for all agents of a process. [`SharedLimits`] shares the rate limits with other processes.
///
/// ```
/// use universal_executor::agent::{
///     ChatModel, ChatRequest, FailedModel, FallbackModel, ModelError, ModelPolicy, ScriptedModel,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let large = ScriptedModel::script([Err(ModelError::Unavailable("503".into()))]);
/// let small = ScriptedModel::new(["Hello, Ann!"]);
/// let model = FallbackModel::builder()
///     .model_with("large", large, ModelPolicy::new().requests_per_minute(60))
///     .model("small", small)
///     .build()?;
///
/// let answer = model.chat(&ChatRequest::default()).await?;
/// assert_eq!(answer.text(), "Hello, Ann!");
/// let answered_by = answer.answered_by.ok_or("no record")?;
/// assert_eq!(answered_by.model, "small");
/// assert_eq!(answered_by.failed, [FailedModel::new("large", "unavailable")]);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
///
/// # Selection
/// A request skips a model if its circuit breaker is open, if a limit per minute is reached, or if its provider requested a delay that has
/// not passed. Each model receives a request at most once. Only the first model receives the [model name](ChatRequest::model) in the
/// request, because the others can belong to other providers; they use their default models.
///
/// The timeout of the run's [profile](crate::Profile::timeout), by default 120 s, limits the attempts of all models together.
///
/// # Errors
/// | error of a model | next model | counts for the circuit breaker | later requests skip the model |
/// |---|---|---|---|
/// | [`RateLimited`](ModelError::RateLimited) | yes | no | for the delay of the provider, at least 1 s |
/// | [`Overloaded`](ModelError::Overloaded) | yes | yes | for the delay of the provider |
/// | [`Unavailable`](ModelError::Unavailable), [`TimedOut`](ModelError::TimedOut), [`BadAnswer`](ModelError::BadAnswer), [`Unauthorized`](ModelError::Unauthorized) | yes | yes | no |
/// | [`Rejected`](ModelError::Rejected) with a status 400 to 499, except 402, 403, 404, 410 and 429 | no | no | no |
/// | [`Rejected`](ModelError::Rejected) with another status | yes | yes | no |
/// | [`ContextTooLong`](ModelError::ContextTooLong), [`Unsupported`](ModelError::Unsupported) | yes, because another model can have a larger context or more features | no | no |
/// | [`AllUnavailable`](ModelError::AllUnavailable) of a `FallbackModel` in the list | yes | no | until one of its models can work |
/// | [`Refused`](ModelError::Refused) | no, because another model must not bypass a refusal | no | no |
/// | [`TooLarge`](ModelError::TooLarge), [`Media`](ModelError::Media) | no, because every model would reject the request | no | no |
/// | [`ScriptEnded`](ModelError::ScriptEnded), [`NotRecorded`](ModelError::NotRecorded), [`Recording`](ModelError::Recording) | no, because they are mistakes of a test | no | no |
///
/// If no model can answer, the error is [`ModelError::AllUnavailable`]. It names each model with its reason, and its
/// [`retry`](ModelError::retry) is the earliest time at which one of them could work.
///
/// # Streams
/// [`stream`](ChatModel::stream) returns when the first content of the answer has arrived, so the caller never receives text of two models
/// in one stream. An error before the first content moves on to the next model. An error after it is the last item of the stream: the run is
/// retried, and the client of a chat session receives [`TurnEvent::Restarted`](crate::client::TurnEvent::Restarted) before the text of the
/// next attempt.
///
/// # Record in the run
/// [`ChatResponse::answered_by`] has the model that answered and the models before it that failed. A run adds this record to its saved
/// state, and the response of the run has the sums in `usage.models`, a list of `{"model", "answers", "failures"}` with the number of
/// failures by code. The span `model_turn` has the fields `model` and `failed_models`.
///
/// If a list contains another `FallbackModel`, only the names of the outer list are recorded.
#[derive(Clone)]
pub struct FallbackModel {
    core: Arc<Core>,
}

impl FallbackModel {
    /// Maximum number of models in a list.
    ///
    /// A longer list is [`FallbackError::TooManyModels`].
    pub const MAX_MODELS: usize = 16;

    /// Returns a builder without models.
    ///
    /// The models are used in the order in which they are added.
    pub fn builder() -> FallbackModelBuilder {
        FallbackModelBuilder::default()
    }
}

#[async_trait]
impl ChatModel for FallbackModel {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        let mut answered = self.core.send(request, chat).await?;
        answered.attempt.usage = answered.answer.usage;
        answered.attempt.succeeded();
        // The attempt counts its tokens when it is dropped.
        drop(answered.attempt);
        self.core.sync().await;
        let mut answer = answered.answer;
        answer.answered_by = Some(answered.answered_by);
        Ok(answer)
    }

    async fn stream(
        &self,
        request: &ChatRequest,
    ) -> Result<BoxStream<'static, Result<ChatEvent, ModelError>>, ModelError> {
        let answered = self.core.send(request, streamed::open).await?;
        Ok(streamed::stream(answered))
    }
}

impl fmt::Debug for FallbackModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.core.entries.iter().map(|it| &*it.name).collect();
        f.debug_struct("FallbackModel")
            .field("models", &names)
            .finish_non_exhaustive()
    }
}

/// Requests a whole answer of one model, within its total timeout.
fn chat<'a>(
    entry: &'a Entry,
    request: &'a ChatRequest,
) -> BoxFuture<'a, Result<ChatResponse, ModelError>> {
    let timed_out = || Err(ModelError::TimedOut { to: "answer" });
    async move {
        let answer = within(entry.policy.total_timeout, entry.model.chat(request)).await;
        answer.unwrap_or_else(timed_out)
    }
    .boxed()
}

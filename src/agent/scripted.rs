use super::{
    ChatEvent, ChatModel, ChatRequest, ChatResponse, ModelArguments, ModelError, ToolCall,
};
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A [`ChatModel`] for tests and examples that returns scripted answers and records its requests.
///
/// ```
/// use serde_json::json;
/// use universal_executor::agent::{ChatModel, ChatRequest, ChatResponse, ModelError, ScriptedModel, ToolCall};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let model = ScriptedModel::script([
///     Ok(ChatResponse::calling(vec![ToolCall::new("1", "weather", json!({"city": "Bergen"}))])),
///     Err(ModelError::unauthorized()),
///     Ok(ChatResponse::new("It rains.")),
/// ]);
///
/// let request = ChatRequest::default();
/// assert_eq!(model.chat(&request).await?.tool_calls()[0].name, "weather");
/// assert!(model.chat(&request).await.is_err());
/// assert_eq!(model.chat(&request).await?.text(), "It rains.");
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct ScriptedModel {
    script: Box<Script>,
    requests: Mutex<Vec<ChatRequest>>,
}

type Script = dyn Fn(usize, &ChatRequest) -> Vec<Result<ChatEvent, ModelError>> + Send + Sync;

impl ScriptedModel {
    /// Creates a model that returns these texts in order, then [`ModelError::ScriptEnded`].
    #[must_use]
    pub fn new<T: Into<String>>(answers: impl IntoIterator<Item = T>) -> Self {
        Self::script(answers.into_iter().map(|text| Ok(ChatResponse::new(text))))
    }

    /// Creates a model that returns these answers and errors in order, then [`ModelError::ScriptEnded`].
    #[must_use]
    pub fn script(answers: impl IntoIterator<Item = Result<ChatResponse, ModelError>>) -> Self {
        // Errors cannot be cloned, so each answer is taken out of the list.
        let answers: Vec<_> = answers
            .into_iter()
            .map(|one| Mutex::new(Some(one)))
            .collect();
        Self::answering(move |number, _| {
            let place = answers.get(number - 1);
            place
                .and_then(|one| one.lock().unwrap_or_else(PoisonError::into_inner).take())
                .unwrap_or(Err(ModelError::ScriptEnded { number }))
        })
    }

    /// Creates a model that calls a tool once in each conversation, and answers with `text` once the request contains the result of a tool
    /// call. The model has no state of its own, so it also continues conversations of an earlier process.
    #[must_use]
    pub fn calling(
        tool: impl Into<String>,
        arguments: impl Into<ModelArguments>,
        text: impl Into<String>,
    ) -> Self {
        let call = ToolCall::new("call-1", tool.into(), arguments.into());
        let text = text.into();
        Self::answering(move |_, request| {
            let mut messages = request.messages.iter();
            Ok(match messages.any(|message| message.call_id().is_some()) {
                true => ChatResponse::new(&*text),
                false => ChatResponse::calling(vec![call.clone()]),
            })
        })
    }

    /// Creates a model that computes each answer with a function. The function receives the number of the request, from 1, and the request.
    #[must_use]
    pub fn answering<F>(script: F) -> Self
    where
        F: Fn(usize, &ChatRequest) -> Result<ChatResponse, ModelError> + Send + Sync + 'static,
    {
        Self::streaming(move |number, request| match script(number, request) {
            Ok(response) => response.into_events().into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        })
    }

    /// Creates a model that computes the events of each answer with a function. The function receives the number of the request, from 1,
    /// and the request.
    ///
    /// The last event of a complete answer is [`ChatEvent::End`]. The events can also end early or with an error.
    /// [`ChatModel::chat`] collects the same events. All events of an answer are available immediately.
    ///
    /// ```
    /// use universal_executor::agent::{ChatEvent, ScriptedModel, StopReason};
    ///
    /// let model = ScriptedModel::streaming(|_, _| {
    ///     vec![
    ///         Ok(ChatEvent::Text("It ".into())),
    ///         Ok(ChatEvent::Text("rains.".into())),
    ///         Ok(ChatEvent::End(StopReason::Finished)),
    ///     ]
    /// });
    /// # drop(model);
    /// ```
    #[must_use]
    pub fn streaming<F>(script: F) -> Self
    where
        F: Fn(usize, &ChatRequest) -> Vec<Result<ChatEvent, ModelError>> + Send + Sync + 'static,
    {
        Self {
            script: Box::new(script),
            requests: Mutex::default(),
        }
    }

    /// Returns the requests that the model has received so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<ChatRequest> {
        self.requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn events(&self, request: &ChatRequest) -> Vec<Result<ChatEvent, ModelError>> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(request.clone());
        let number = requests.len();
        drop(requests);
        (self.script)(number, request)
    }
}

#[async_trait]
impl ChatModel for ScriptedModel {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        ChatResponse::collect(stream::iter(self.events(request))).await
    }

    async fn stream(
        &self,
        request: &ChatRequest,
    ) -> Result<BoxStream<'static, Result<ChatEvent, ModelError>>, ModelError> {
        let mut events = self.events(request);
        // An error without an answer is returned immediately, as a provider would do.
        match events.first() {
            Some(Err(_)) => events.swap_remove(0).map(|_| stream::empty().boxed()),
            Some(Ok(_)) | None => Ok(stream::iter(events).boxed()),
        }
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel")
            .field("requests", &self.requests().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::TryStreamExt;

    #[tokio::test]
    async fn a_scripted_stream_may_fail_in_the_middle() {
        let model = ScriptedModel::streaming(|_, _| {
            vec![
                Ok(ChatEvent::Text("It ra".into())),
                Err(ModelError::TimedOut { to: "continue" }),
            ]
        });
        let request = ChatRequest::default();

        let mut stream = model.stream(&request).await.unwrap();
        let first = stream.try_next().await.unwrap();
        let streamed = stream.try_next().await.unwrap_err();
        let whole = model.chat(&request).await.unwrap_err();

        assert_eq!(first, Some(ChatEvent::Text("It ra".into())));
        assert!(
            matches!(streamed, ModelError::TimedOut { .. }),
            "{streamed:?}"
        );
        assert!(matches!(whole, ModelError::TimedOut { .. }), "{whole:?}");
    }

    #[tokio::test]
    async fn an_exhausted_script_reports_the_request_number() {
        let model = ScriptedModel::new(["one"]);
        model.chat(&ChatRequest::default()).await.unwrap();

        let error = model.stream(&ChatRequest::default()).await.err();

        assert!(
            matches!(error, Some(ModelError::ScriptEnded { number: 2 })),
            "{error:?}"
        );
    }
}

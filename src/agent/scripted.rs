use super::{
    ChatEvent, ChatModel, ChatRequest, ChatResponse, ModelArguments, ModelError, ToolCall,
};
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A [`ChatModel`] for tests and examples that returns scripted answers and records its requests.
///
/// Use it to test an agent without a network, and to write examples. It ignores the settings of the
/// request, makes no pauses and reports no token usage unless the script does. To repeat answers of
/// a real model, use [`RecordedModel`](super::RecordedModel).
///
/// To inspect the requests after a test, share the model: `Arc<ScriptedModel>` is a model, too.
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
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{ChatModel, ChatRequest, ModelError, ScriptedModel};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let model = ScriptedModel::new(["Hello!"]);
    /// assert_eq!(model.chat(&ChatRequest::default()).await?.text(), "Hello!");
    ///
    /// let error = model.chat(&ChatRequest::default()).await.unwrap_err();
    /// assert!(matches!(error, ModelError::ScriptEnded { number: 2 }));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn new<T: Into<String>>(answers: impl IntoIterator<Item = T>) -> Self {
        Self::script(answers.into_iter().map(|text| Ok(ChatResponse::new(text))))
    }

    /// Creates a model that returns these answers and errors in order, then [`ModelError::ScriptEnded`].
    ///
    /// Use it for tool calls and for errors: an agent retries after a [`ModelError`] as it would
    /// with a real model. The example of [`ScriptedModel`] has both.
    #[must_use]
    pub fn script(answers: impl IntoIterator<Item = Result<ChatResponse, ModelError>>) -> Self {
        // Errors cannot be cloned, so each answer is taken out of the list.
        let answers: Vec<_> = answers
            .into_iter()
            .map(|answer| Mutex::new(Some(answer)))
            .collect();
        Self::answering(move |number, _| {
            let answer = answers.get(number - 1);
            answer
                .and_then(|answer| answer.lock().unwrap_or_else(PoisonError::into_inner).take())
                .unwrap_or(Err(ModelError::ScriptEnded { number }))
        })
    }

    /// Creates a model that calls a tool once in each conversation, and answers with `text` once the request contains the result of a tool
    /// call. The model has no state of its own, so it also continues conversations of an earlier process.
    ///
    /// The ID of the call is `call-1`. Use this model to test a tool within an agent, also across a
    /// restart of the process.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::tool::json_tool;
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Subscription, UniversalExecutor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let roll = json_tool("roll", "Rolls a die.", json!({}), |_, _| async { Ok(json!(4)) });
    /// let store = MemoryStore::default();
    /// let player = Agent::new("player", ScriptedModel::calling("roll", json!({}), "I rolled."))
    ///     .on(Subscription::trigger("game.v1"))
    ///     .tool(roll)
    ///     .bind(&store)?;
    /// let game = store.create(NewBreadcrumb::new("game.v1")).await?;
    /// player.process_event(&Event::created(&game)).await?;
    ///
    /// let response = store.latest("agent.response.v1").await?.ok_or("no response")?;
    /// assert_eq!(response.context["usage"]["tool_calls"], 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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
    ///
    /// The function must not block: it runs inside [`ChatModel::chat`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{
    ///     ChatMessage, ChatModel, ChatRequest, ChatResponse, ScriptedModel,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let echo = ScriptedModel::answering(|number, request| {
    ///     let said = request.messages.last().map(ChatMessage::text).unwrap_or_default();
    ///     Ok(ChatResponse::new(format!("{number}: {said}")))
    /// });
    /// let request = ChatRequest::new(vec![ChatMessage::user("Hello")]);
    /// assert_eq!(echo.chat(&request).await?.text(), "1: Hello");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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
    ///
    /// The list grows with each request, also with failed ones. Use it to assert the messages and
    /// the tools that the model received.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Subscription, UniversalExecutor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let model = Arc::new(ScriptedModel::new(["Hello!"]));
    /// let store = MemoryStore::default();
    /// let greeter = Agent::new("greeter", Arc::clone(&model))
    ///     .instructions("Greet the user.")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .bind(&store)?;
    /// let message = store.create(NewBreadcrumb::new("user.message.v1")).await?;
    /// greeter.process_event(&Event::created(&message)).await?;
    ///
    /// let requests = model.requests();
    /// assert_eq!(requests[0].messages[0].text(), "Greet the user.");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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

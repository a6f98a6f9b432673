use super::guardrail::{Denied, Guardrails};
use super::model::MediaSource;
use super::{AnsweredBy, ChatMessage, ChatRequest, ModelError, ResponseSchema, ToolSpec, Usage};
use crate::error::BoxError;
use crate::executor::TurnEvents;
use crate::machine::{Answer, MachineCall, ResultDelivery, RunId, ToolResult};
use crate::model::Json;
use async_trait::async_trait;
use std::sync::Arc;

/// The connection of an agent to its model: an API, another service, or a program that runs a model itself.
///
/// Runs work in the same way with every provider: the provider requests tool calls, [the machine](crate::machine)
/// decides which calls are executed and when, and the provider receives the results. A [`ProviderSession`] has the state of one run.
///
/// Most programs use [`ApiProvider`](super::ApiProvider),
/// [`BreadcrumbModel`](super::BreadcrumbModel) or `CliProvider`. Implement this trait for a runtime
/// of models with its own conversation or its own tool calls. For a model with chat requests,
/// implement [`ChatModel`](super::ChatModel) instead, which is much less work.
///
/// # Examples
/// A provider that answers without a model:
/// ```
/// use serde_json::json;
/// use universal_executor::agent::{
///     Agent, Provider, ProviderEvent, ProviderSession, ProviderTask, Usage,
/// };
/// use universal_executor::machine::{Answer, ResultDelivery, ToolResult};
/// use universal_executor::{
///     BoxError, BreadcrumbStoreExt, Event, Json, MemoryStore, NewBreadcrumb, Subscription,
///     UniversalExecutor, async_trait,
/// };
///
/// struct Fixed;
///
/// #[async_trait]
/// impl Provider for Fixed {
///     fn delivery(&self) -> ResultDelivery {
///         ResultDelivery::Batch
///     }
///     async fn start(&self, _: ProviderTask) -> Result<Box<dyn ProviderSession>, BoxError> {
///         Ok(Box::new(Self))
///     }
///     async fn resume(
///         &self,
///         task: ProviderTask,
///         _saved: Json,
///     ) -> Result<Box<dyn ProviderSession>, BoxError> {
///         self.start(task).await
///     }
/// }
///
/// #[async_trait]
/// impl ProviderSession for Fixed {
///     async fn next(&mut self) -> Result<ProviderEvent, BoxError> {
///         let (text, usage) = ("Closed today.".to_owned(), Usage::default());
///         Ok(ProviderEvent::Finished { text, cut_off: false, usage, answered_by: None })
///     }
///     async fn deliver(&mut self, _: Vec<ToolResult>) -> Result<(), BoxError> {
///         Ok(())
///     }
///     async fn tell(&mut self, _: String) -> Result<(), BoxError> {
///         Ok(())
///     }
///     async fn answer(&mut self, _: Answer) -> Result<(), BoxError> {
///         Ok(())
///     }
///     async fn cancel(&mut self) {}
///     fn save(&self) -> Result<Json, BoxError> {
///         Ok(json!(null).into())
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let desk = Agent::with_provider("desk", Fixed)
///     .on(Subscription::trigger("user.message.v1"))
///     .bind(&store)?;
/// let message = store.create(NewBreadcrumb::new("user.message.v1")).await?;
/// desk.process_event(&Event::created(&message)).await?;
///
/// let response = store.latest("agent.response.v1").await?.ok_or("no response")?;
/// assert_eq!(response.context.text("message"), Some("Closed today."));
/// # Ok::<(), BoxError>(())
/// # })?;
/// # Ok::<(), BoxError>(())
/// ```
#[async_trait]
pub trait Provider: Send + Sync {
    /// Returns the delivery mode of tool results: all results of a model answer together, or each result as soon as it is
    /// available.
    fn delivery(&self) -> ResultDelivery;

    /// Returns `true` if the provider sends [model requests as breadcrumbs](ProviderEvent::Asks). An agent with such a provider writes
    /// `tool.request.v1` breadcrumbs. Defaults to `false`.
    fn asks_by_breadcrumb(&self) -> bool {
        false
    }

    /// Starts the session in which the provider runs the model of an agent run.
    ///
    /// A run starts a session when it needs the first event, and at most one session is open at a
    /// time.
    ///
    /// # Errors
    /// Returns an error if the provider cannot start. Errors marked with [`retry_after`](crate::retry_after) or
    /// [`permanent`](crate::permanent) tell the run whether to retry.
    async fn start(&self, task: ProviderTask) -> Result<Box<dyn ProviderSession>, BoxError>;

    /// Resumes a run's session with its model from the state that [`ProviderSession::save`] returned, possibly on another worker.
    ///
    /// The run saves the state after each event and each result, so the state can be older than the
    /// session: the session may have sent events that were never saved. Calls need stable IDs.
    ///
    /// # Errors
    /// See [`start`](Self::start). Saved state that cannot be read is a [`permanent`](crate::permanent) error.
    async fn resume(
        &self,
        task: ProviderTask,
        saved: Json,
    ) -> Result<Box<dyn ProviderSession>, BoxError>;
}

#[async_trait]
impl<P: Provider + ?Sized> Provider for Arc<P> {
    fn delivery(&self) -> ResultDelivery {
        (**self).delivery()
    }

    fn asks_by_breadcrumb(&self) -> bool {
        (**self).asks_by_breadcrumb()
    }

    async fn start(&self, task: ProviderTask) -> Result<Box<dyn ProviderSession>, BoxError> {
        (**self).start(task).await
    }

    async fn resume(
        &self,
        task: ProviderTask,
        saved: Json,
    ) -> Result<Box<dyn ProviderSession>, BoxError> {
        (**self).resume(task, saved).await
    }
}

/// One agent run's exchange with its model or external program, through a [`Provider`].
///
/// Dropping a session ends its requests and programs.
///
/// A run calls the methods one after another, and never two at once. The example of [`Provider`]
/// has an implementation.
#[async_trait]
pub trait ProviderSession: Send {
    /// Returns the next event of the session: tool calls, a final answer, or a model request by breadcrumb.
    ///
    /// With [`ResultDelivery::Batch`] the run calls this only when all tool calls have results, otherwise also while calls are in
    /// flight.
    ///
    /// # Errors
    /// An error ends the attempt. Errors marked with [`retry_after`](crate::retry_after) or [`permanent`](crate::permanent) tell the
    /// run whether to retry.
    ///
    /// # Cancel safety
    /// Implementations must be cancel safe: dropping the future loses no event.
    async fn next(&mut self) -> Result<ProviderEvent, BoxError>;

    /// Delivers tool results to the model or program of the agent, in the order in which
    /// [`Effect::Deliver`](crate::machine::Effect::Deliver) lists them. A result without a waiting caller is dropped.
    ///
    /// # Errors
    /// See [`next`](Self::next).
    async fn deliver(&mut self, results: Vec<ToolResult>) -> Result<(), BoxError>;

    /// Continues the session with a message to the model after its [final answer](ProviderEvent::Finished). The message describes the
    /// problem with an invalid or incomplete answer, or contains the results of tools that the answer requested.
    ///
    /// The run calls it at most once for an invalid answer, and once for each reminder of a missing
    /// output.
    ///
    /// # Errors
    /// See [`next`](Self::next).
    async fn tell(&mut self, message: String) -> Result<(), BoxError>;

    /// Receives the answer to a model request that was [sent as a breadcrumb](ProviderEvent::Asks).
    ///
    /// Only providers whose [`asks_by_breadcrumb`](Provider::asks_by_breadcrumb) is `true` receive
    /// it. After a timeout, the answer is an error.
    ///
    /// # Errors
    /// See [`next`](Self::next).
    async fn answer(&mut self, answer: Answer) -> Result<(), BoxError>;

    /// Cancels the open model requests and running programs of the provider session, and waits until they have ended.
    ///
    /// The run calls this before it waits for people or other agents, and at its end.
    async fn cancel(&mut self);

    /// Returns the session state from which another attempt can [resume](Provider::resume) the run.
    ///
    /// The state must be small: with the progress of the run it must fit into [`Json::MAX_BYTES`],
    /// 1 MiB. A run calls this often, so the method should be fast.
    ///
    /// # Errors
    /// See [`next`](Self::next).
    fn save(&self) -> Result<Json, BoxError>;
}

/// The input of a [`Provider`]: the messages, the tools and the settings of one run.
///
/// A provider receives the task from the agent's run. Create one only to test a provider.
///
/// # Examples
/// ```
/// use universal_executor::agent::{ApiProvider, ChatMessage, Provider, ProviderEvent};
/// use universal_executor::agent::{ProviderSession, ProviderTask, ScriptedModel};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let provider = ApiProvider::new(std::sync::Arc::new(ScriptedModel::new(["Hello!"])));
/// let task = ProviderTask::new("run-1", vec![ChatMessage::user("I am Ann")]);
/// let mut session = provider.start(task).await?;
/// let event = session.next().await?;
/// assert!(matches!(event, ProviderEvent::Finished { text, .. } if text == "Hello!"));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProviderTask {
    /// The ID of the agent run. All attempts of the run have the same ID.
    pub run: RunId,
    /// The name of the model that the provider runs for the agent, or `None` for the provider's default model.
    pub model: Option<String>,
    /// The sampling temperature of the model, or `None` for the provider's default.
    pub temperature: Option<f64>,
    /// The messages for the model: the author's instructions, the context as data, and the trigger. The text of a user is a message without
    /// a fence, and every other trigger is data. Each attempt renders the messages again.
    pub messages: Vec<ChatMessage>,
    /// The tools that the agent may call.
    ///
    /// They include the other agents and the additional outputs, by their names for the model.
    pub tools: Vec<ToolSpec>,
    /// The JSON Schema of the agent's answer, or `None` for a text answer.
    ///
    /// The schema is lenient. The run checks the answer in any case.
    pub response_schema: Option<ResponseSchema>,
    /// The finished tool calls of the run with their results. A program that is started again can skip these calls. Calls that
    /// the run no longer stores are missing. Empty with [`ResultDelivery::Batch`], because the conversation contains the calls.
    pub made: Vec<(MachineCall, Answer)>,
    /// The guardrails that check each model request: see [`Guardrails::input`].
    pub guardrails: Guardrails,
    /// The store from which the images and files of the messages are read. `None` unless an agent's executor created the task.
    pub(in crate::agent) media: Option<MediaSource>,
    /// The buffer of progress events for the chat client whose message the run answers. `None` if there is no such client, or if
    /// the client may not see an answer that the model is still writing.
    pub(in crate::agent) turn_events: Option<Arc<TurnEvents>>,
}

impl ProviderTask {
    /// Creates the task of one agent run without tools.
    ///
    /// All optional settings are empty: no model name, no tools, no schema and no guardrails.
    #[must_use]
    pub fn new(run: impl Into<RunId>, messages: Vec<ChatMessage>) -> Self {
        Self {
            run: run.into(),
            model: None,
            temperature: None,
            messages,
            tools: Vec::new(),
            response_schema: None,
            made: Vec::new(),
            guardrails: Guardrails::default(),
            media: None,
            turn_events: None,
        }
    }

    /// Returns the model request with the task's messages, followed by the later messages of the conversation. Input guardrails
    /// have checked the request and may have changed it.
    ///
    /// Your own provider should create each model request in this way, otherwise the input
    /// guardrails of the agent have no effect.
    ///
    /// # Errors
    /// [`Denied`] if a guardrail denies the request, so the model must not be called.
    pub async fn request(&self, later_messages: &[ChatMessage]) -> Result<ChatRequest, Denied> {
        let messages = self.guardrails.input(self.with(later_messages)).await?;
        Ok(self.asking(messages))
    }

    /// Reads the images and files of a model request from the agent's store.
    pub(super) async fn load_media(&self, request: &mut ChatRequest) -> Result<(), ModelError> {
        match &self.media {
            Some(media) => media.load(request).await,
            // The model reports the missing bytes.
            None => Ok(()),
        }
    }

    /// Returns all messages of the conversation: the task's messages, followed by the later messages.
    pub(super) fn with(&self, later_messages: &[ChatMessage]) -> Vec<ChatMessage> {
        self.messages
            .iter()
            .chain(later_messages)
            .cloned()
            .collect()
    }

    /// Returns a model request with the passed messages and the settings of the task.
    pub(super) fn asking(&self, messages: Vec<ChatMessage>) -> ChatRequest {
        let mut request = ChatRequest::new(messages);
        request.model.clone_from(&self.model);
        request.temperature = self.temperature;
        request.tools.clone_from(&self.tools);
        request.response_schema.clone_from(&self.response_schema);
        request
    }
}

/// An event of a [`ProviderSession`]: tool calls, a final answer, or a model request by breadcrumb.
///
/// [`ProviderSession::next`] returns it. The example of [`Provider`] creates a final answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ProviderEvent {
    /// The agent calls tools. The event has all calls of one answer, in their order. Call IDs are unique within the run: a call that is
    /// sent again has the same ID, and is not executed again.
    ///
    /// The run answers each call, and the provider receives the results through
    /// [`ProviderSession::deliver`].
    Calls {
        /// The tool calls of one model answer, in the order in which the answer contains them.
        calls: Vec<MachineCall>,
        /// The model's answer as a message for the next model request. The message contains the tool calls with the call IDs of the model's
        /// provider. The session retains the message for later turns. `None` from a program, which manages its own conversation.
        answer: Option<ChatMessage>,
        /// The token usage of the model's answer with the tool calls.
        usage: Usage,
        /// The model of a [`FallbackModel`](super::FallbackModel) that called the tools. Otherwise `None`.
        answered_by: Option<AnsweredBy>,
    },
    /// The agent has its final answer.
    ///
    /// The run checks the text. If it is not acceptable, [`ProviderSession::tell`] continues the
    /// session.
    Finished {
        /// The text of the agent's final answer.
        text: String,
        /// If `true`, the model reached its token limit, so the answer may be incomplete.
        cut_off: bool,
        /// The token usage of the model's final answer.
        usage: Usage,
        /// The model of a [`FallbackModel`](super::FallbackModel) that wrote the final answer. Otherwise `None`.
        answered_by: Option<AnsweredBy>,
    },
    /// The agent needs a model answer from a tool of another service. The run writes the request as a breadcrumb, and passes the answer
    /// to [`ProviderSession::answer`].
    ///
    /// The run is suspended until the answer or the timeout of
    /// [`wait_seconds`](super::AgentDefinition::wait_seconds).
    Asks {
        /// The name of the tool that serves the model.
        tool: String,
        /// The input of the tool that serves the model: the model request.
        input: Json,
    },
}

impl ProviderEvent {
    /// Returns the model of a `FallbackModel` that wrote the answer, or `None` if another type of model wrote it.
    pub(super) fn answered_by(&self) -> Option<&AnsweredBy> {
        match self {
            Self::Calls { answered_by, .. } | Self::Finished { answered_by, .. } => {
                answered_by.as_ref()
            }
            Self::Asks { .. } => None,
        }
    }
}

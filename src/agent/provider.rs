use super::guardrail::{Denied, Guardrails};
use super::model::MediaSource;
use super::{ChatMessage, ChatRequest, ModelError, ResponseSchema, ToolSpec, Usage};
use crate::error::BoxError;
use crate::executor::TurnEvents;
use crate::machine::{Answer, MachineCall, ResultDelivery, RunId, ToolResult};
use crate::model::Json;
use async_trait::async_trait;
use std::sync::Arc;

/// The model side of an agent: a model behind an API, or a program that runs a model itself and calls back.
///
/// Runs work in the same way with every provider: the provider requests tool calls, [the machine](crate::machine)
/// decides which calls are executed and when, and the provider receives the results. A [`ProviderSession`] has the state of one run.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Returns the delivery of tool results: all results of an answer together, or each result as soon as it is available.
    fn delivery(&self) -> ResultDelivery;

    /// Returns `true` if the provider sends [model requests as breadcrumbs](ProviderEvent::Asks), so that its agents write
    /// `tool.request.v1`. Defaults to `false`.
    fn asks_by_breadcrumb(&self) -> bool {
        false
    }

    /// Starts the provider side of a run.
    ///
    /// # Errors
    /// Returns an error if the provider cannot start. Errors marked with [`retry_after`](crate::retry_after) or
    /// [`permanent`](crate::permanent) tell the run whether to retry.
    async fn start(&self, task: ProviderTask) -> Result<Box<dyn ProviderSession>, BoxError>;

    /// Continues a run from the state that [`ProviderSession::save`] returned, possibly on another worker.
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

/// The provider side of one run of an agent.
///
/// Dropping a session ends its requests and programs.
#[async_trait]
pub trait ProviderSession: Send {
    /// Returns the next event of the agent.
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

    /// Delivers tool results to the agent, in the order of [`Effect::Deliver`](crate::machine::Effect::Deliver). A result without
    /// a waiting caller is dropped.
    ///
    /// # Errors
    /// See [`next`](Self::next).
    async fn deliver(&mut self, results: Vec<ToolResult>) -> Result<(), BoxError>;

    /// Continues an agent that has [`finished`](ProviderEvent::Finished) with an answer that does not meet the requirements or is
    /// incomplete. `message` describes the problem to the model.
    ///
    /// # Errors
    /// See [`next`](Self::next).
    async fn tell(&mut self, message: String) -> Result<(), BoxError>;

    /// Receives the answer to a model request that was [sent as a breadcrumb](ProviderEvent::Asks).
    ///
    /// # Errors
    /// See [`next`](Self::next).
    async fn answer(&mut self, answer: Answer) -> Result<(), BoxError>;

    /// Ends the requests and programs of the session, and waits until they have ended.
    async fn cancel(&mut self);

    /// Returns the state from which another attempt can [resume](Provider::resume) the run.
    ///
    /// # Errors
    /// See [`next`](Self::next).
    fn save(&self) -> Result<Json, BoxError>;
}

/// The input of a [`Provider`]: the messages, the tools and the settings of one run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProviderTask {
    /// The run ID, which is the same in each attempt.
    pub run: RunId,
    /// The name of the model at the provider, or `None` for the provider's default.
    pub model: Option<String>,
    /// The sampling temperature, or `None` for the provider's default.
    pub temperature: Option<f64>,
    /// The author's instructions, the context as data, and the trigger. The text of a user is a message without a fence, and every
    /// other trigger is data. Each attempt renders the messages again.
    pub messages: Vec<ChatMessage>,
    /// The tools that the agent may call.
    pub tools: Vec<ToolSpec>,
    /// The schema of the answer, or `None` for a text answer.
    pub response_schema: Option<ResponseSchema>,
    /// The finished calls of this run with their answers, as far as the run still stores them, for a program that is started again.
    /// Empty with [`ResultDelivery::Batch`], because the conversation contains the calls.
    pub made: Vec<(MachineCall, Answer)>,
    /// The guardrails that check each model request: see [`Guardrails::input`].
    pub guardrails: Guardrails,
    /// The store that has the images and files of the messages, or `None` outside of an agent.
    pub(in crate::agent) media: Option<MediaSource>,
    /// The events of a chat turn, if its client may see the answer while the model writes it.
    pub(in crate::agent) turn_events: Option<Arc<TurnEvents>>,
}

impl ProviderTask {
    /// Creates a task without tools.
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

    /// Returns the model request: the messages of the task, then `said`, the conversation since. Input guardrails have checked it and
    /// may have changed it.
    ///
    /// # Errors
    /// [`Denied`] if a guardrail denies the request, so the model must not be called.
    pub async fn request(&self, said: &[ChatMessage]) -> Result<ChatRequest, Denied> {
        let messages = self.guardrails.input(self.with(said)).await?;
        Ok(self.asking(messages))
    }

    /// Reads the images and files of a request from the agent's own store.
    pub(super) async fn load_media(&self, request: &mut ChatRequest) -> Result<(), ModelError> {
        match &self.media {
            Some(media) => media.load(request).await,
            // The model reports the missing bytes.
            None => Ok(()),
        }
    }

    /// Returns the messages of the task, then `said`, the conversation since.
    pub(super) fn with(&self, said: &[ChatMessage]) -> Vec<ChatMessage> {
        self.messages.iter().chain(said).cloned().collect()
    }

    /// Returns the model request with these messages and the settings of the task.
    pub(super) fn asking(&self, messages: Vec<ChatMessage>) -> ChatRequest {
        let mut request = ChatRequest::new(messages);
        request.model.clone_from(&self.model);
        request.temperature = self.temperature;
        request.tools.clone_from(&self.tools);
        request.response_schema.clone_from(&self.response_schema);
        request
    }
}

/// An event of a [`ProviderSession`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ProviderEvent {
    /// The agent calls tools. The event has all calls of one answer, in their order. Call IDs are unique within the run: a call that is
    /// sent again has the same ID, and is not executed again.
    Calls {
        /// The calls.
        calls: Vec<MachineCall>,
        /// The answer as the next request repeats it, with the call IDs of the model's provider. A session retains it for later
        /// turns. `None` from a program, which manages its own conversation.
        answer: Option<ChatMessage>,
        /// The token usage of the answer.
        usage: Usage,
    },
    /// The agent has its final answer.
    Finished {
        /// The answer.
        text: String,
        /// If `true`, the model reached its token limit, so the answer may be incomplete.
        cut_off: bool,
        /// The token usage of the answer.
        usage: Usage,
    },
    /// The agent needs a model answer from a tool of another service. The run writes the request as a breadcrumb, and passes the answer
    /// to [`ProviderSession::answer`].
    Asks {
        /// The tool name.
        tool: String,
        /// The tool input: the model request.
        input: Json,
    },
}

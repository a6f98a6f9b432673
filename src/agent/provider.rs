use super::guardrail::{Denied, Guardrails};
use super::model::MediaSource;
use super::{ChatMessage, ChatRequest, ModelError, ResponseSchema, ToolSpec, Usage};
use crate::error::BoxError;
use crate::executor::TurnEvents;
use crate::machine::{Answer, MachineCall, ResultDelivery, RunId, ToolResult};
use crate::model::Json;
use async_trait::async_trait;
use std::sync::Arc;

/// What thinks for an agent: a model behind an API, or a program that runs the model by itself and calls back.
///
/// An agent's run is the same over all of them: the provider says which tools it wants, [the machine](crate::machine)
/// decides what is called and when, and the provider receives the results. The state of one run is in a [`ProviderSession`].
#[async_trait]
pub trait Provider: Send + Sync {
    /// How it wants its results: all of an answer together, or each as soon as it is there.
    fn delivery(&self) -> ResultDelivery;

    /// Returns `true` if it calls its model [through breadcrumbs](ProviderEvent::Asks), so that its agents write `tool.request.v1`.
    fn asks_by_breadcrumb(&self) -> bool {
        false
    }

    /// Begins a run.
    ///
    /// # Errors
    /// What a run is to make of it is [marked](crate::retry_after) on the error.
    async fn start(&self, task: ProviderTask) -> Result<Box<dyn ProviderSession>, BoxError>;

    /// Continues a run from the state that [`ProviderSession::save`] returned, maybe on another worker.
    ///
    /// # Errors
    /// As [`start`](Self::start); [`permanent`](crate::permanent) if what was saved cannot be read.
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

/// One run of an agent, as its provider has it. Dropping it ends what it has under way.
#[async_trait]
pub trait ProviderSession: Send {
    /// Returns the next event of the agent.
    ///
    /// If results are delivered [together](ResultDelivery::Batch), this is called only once all calls have their results, otherwise
    /// also while calls are in flight. Cancel safe: dropping the future loses no event.
    ///
    /// # Errors
    /// Ends the attempt; what the run is to make of it is [marked](crate::retry_after) on the error.
    async fn next(&mut self) -> Result<ProviderEvent, BoxError>;

    /// Gives the agent results, in the order of [`Effect::Deliver`](crate::machine::Effect::Deliver). A result that
    /// nobody waits for, since its caller is gone, is dropped.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    async fn deliver(&mut self, results: Vec<ToolResult>) -> Result<(), BoxError>;

    /// Continues an agent that has [`finished`](ProviderEvent::Finished) with an answer that does not meet the requirements or is
    /// incomplete.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    async fn tell(&mut self, message: String) -> Result<(), BoxError>;

    /// Receives the answer to a request that was sent [by breadcrumb](ProviderEvent::Asks).
    ///
    /// # Errors
    /// As [`next`](Self::next).
    async fn answer(&mut self, answer: Answer) -> Result<(), BoxError>;

    /// Ends what is under way, and waits until it has ended.
    async fn cancel(&mut self);

    /// What another attempt needs to go on from here.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    fn save(&self) -> Result<Json, BoxError>;
}

/// What an agent is started on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProviderTask {
    /// The run, for what is to be the same in each attempt.
    pub run: RunId,
    /// The model, by the provider's name.
    pub model: Option<String>,
    /// How freely the model answers.
    pub temperature: Option<f64>,
    /// The author's instructions, the context as data, and the trigger: the words of a user as they are, anything else as
    /// data. Each attempt renders them again.
    pub messages: Vec<ChatMessage>,
    /// The tools it may call.
    pub tools: Vec<ToolSpec>,
    /// What its answer has to fit, if that is JSON.
    pub response_schema: Option<ResponseSchema>,
    /// The calls of this run that have a result, as far as they are kept: for a program that is started again. A model
    /// behind an API has them in its conversation, so there are none for it.
    pub made: Vec<(MachineCall, Answer)>,
    /// What each request to a model has to pass: see [`Guardrails::input`].
    pub guardrails: Guardrails,
    /// The store that has the images and files of the messages, or `None` outside of an agent.
    pub(in crate::agent) media: Option<MediaSource>,
    /// The events of a chat turn, if its client may see the answer while the model writes it.
    pub(in crate::agent) turn_events: Option<Arc<TurnEvents>>,
}

impl ProviderTask {
    /// A task of a run, without tools.
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

    /// The request to a model, with what was said since, as the guardrails let it pass.
    ///
    /// # Errors
    /// [`Denied`]: the model is not asked.
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

    /// The messages of the task, and what was said since.
    pub(super) fn with(&self, said: &[ChatMessage]) -> Vec<ChatMessage> {
        self.messages.iter().chain(said).cloned().collect()
    }

    /// The request that has these messages.
    pub(super) fn asking(&self, messages: Vec<ChatMessage>) -> ChatRequest {
        let mut request = ChatRequest::new(messages);
        request.model.clone_from(&self.model);
        request.temperature = self.temperature;
        request.tools.clone_from(&self.tools);
        request.response_schema.clone_from(&self.response_schema);
        request
    }
}

/// What an agent says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ProviderEvent {
    /// It calls tools: all calls of one answer, in their order. Their ids are unique within the run; a call that is sent
    /// again has the id it had, and is not made again.
    Calls {
        /// The calls.
        calls: Vec<MachineCall>,
        /// The answer as the next request repeats it, with the call IDs of the model's provider. A session retains it for later
        /// turns. `None` from a program, which manages its own conversation.
        answer: Option<ChatMessage>,
        /// What the answer used up.
        usage: Usage,
    },
    /// It has come to its end.
    Finished {
        /// Its answer.
        text: String,
        /// Whether the answer came to a limit of its length.
        cut_off: bool,
        /// What the answer used up.
        usage: Usage,
    },
    /// Its model is a tool elsewhere: ask it by a breadcrumb, and give the answer to [`ProviderSession::answer`].
    Asks {
        /// The tool.
        tool: String,
        /// What it is asked.
        input: Json,
    },
}

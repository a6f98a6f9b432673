//! Model provider that calls the API of a model. It stores the run's conversation and sends all of it with each request.

#[cfg(feature = "workflows")]
use super::compaction::Compactor;
use super::provider::{Provider, ProviderEvent, ProviderSession, ProviderTask};
use super::{
    AgentRunError, ChatEvent, ChatMessage, ChatModel, ChatResponse, StopReason,
    ToolCall as ModelCall,
};
use crate::error::{BoxError, permanent};
use crate::executor::Record;
use crate::machine::{Answer, CallId, MachineCall, ResultDelivery, ToolArguments, ToolResult};
use crate::model::{Json, display_text};
use async_trait::async_trait;
use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A [`Provider`] that runs an agent on a [`ChatModel`]. Each model request contains the whole conversation.
///
/// The request after an answer with tool calls contains the results of all these calls, in their order. The conversation is the
/// [saved](ProviderSession::save) state, so an attempt that resumes a run repeats no model request.
///
/// [`Agent::new`](super::Agent::new) and [`AgentExecutor::new`](super::AgentExecutor::new) create
/// one, so an ordinary program does not need this type. Use it where the type [`Provider`] is
/// needed, for example to choose between a model and an external program.
///
/// The provider calls [`ChatModel::stream`] in a turn of a chat session if the agent has no
/// guardrails, and [`ChatModel::chat`] otherwise. Saved conversations are at most 1 MiB.
pub struct ApiProvider {
    model: Arc<dyn ChatModel>,
    #[cfg(feature = "workflows")]
    compactor: Option<Arc<Compactor>>,
}

impl ApiProvider {
    /// Creates a provider that sends an agent's requests to this model.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use universal_executor::agent::{Agent, ApiProvider, ScriptedModel};
    /// use universal_executor::{MemoryStore, Subscription};
    ///
    /// let model = Arc::new(ScriptedModel::new(["Hello!"]));
    /// let greeter = Agent::with_provider("greeter", ApiProvider::new(model))
    ///     .on(Subscription::trigger("user.message.v1"));
    /// assert!(greeter.bind(&MemoryStore::default()).is_ok());
    /// ```
    #[must_use]
    pub fn new(model: Arc<dyn ChatModel>) -> Self {
        Self {
            model,
            #[cfg(feature = "workflows")]
            compactor: None,
        }
    }

    /// Sets the compactor, which shortens long conversations before a model request.
    #[cfg(feature = "workflows")]
    pub(crate) fn with_compactor(mut self, compactor: Option<Arc<Compactor>>) -> Self {
        self.compactor = compactor;
        self
    }

    fn session(&self, task: ProviderTask, conversation: Conversation) -> Box<dyn ProviderSession> {
        Box::new(ApiSession {
            model: Arc::clone(&self.model),
            #[cfg(feature = "workflows")]
            compactor: self.compactor.clone(),
            task,
            conversation,
        })
    }
}

impl fmt::Debug for ApiProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiProvider").finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for ApiProvider {
    fn delivery(&self) -> ResultDelivery {
        ResultDelivery::Batch
    }

    async fn start(&self, task: ProviderTask) -> Result<Box<dyn ProviderSession>, BoxError> {
        Ok(self.session(task, Conversation::default()))
    }

    async fn resume(
        &self,
        task: ProviderTask,
        saved: Json,
    ) -> Result<Box<dyn ProviderSession>, BoxError> {
        let conversation = saved.parse().map_err(permanent)?;
        Ok(self.session(task, conversation))
    }
}

struct ApiSession {
    model: Arc<dyn ChatModel>,
    #[cfg(feature = "workflows")]
    compactor: Option<Arc<Compactor>>,
    task: ProviderTask,
    conversation: Conversation,
}

#[cfg(feature = "workflows")]
impl ApiSession {
    async fn shorten(&mut self) {
        if let Some(compactor) = &self.compactor {
            compactor
                .shorten(&self.task, &mut self.conversation.said)
                .await;
        }
    }
}

#[async_trait]
impl ProviderSession for ApiSession {
    async fn next(&mut self) -> Result<ProviderEvent, BoxError> {
        #[cfg(feature = "workflows")]
        self.shorten().await;
        let messages = &self.conversation.said;
        let mut request = self.task.request(messages).await?;
        self.task.load_media(&mut request).await?;
        let answer = match &self.task.turn_events {
            None => self.model.chat(&request).await?,
            Some(events) => {
                let pieces = self.model.stream(&request).await?.inspect(|event| {
                    if let Ok(ChatEvent::Text(text)) = event {
                        events.add(Record::Text(text.clone()));
                    }
                });
                ChatResponse::collect(pieces).await?
            }
        };
        Ok(self.conversation.add_answer(&answer))
    }

    async fn deliver(&mut self, results: Vec<ToolResult>) -> Result<(), BoxError> {
        self.conversation.deliver(results);
        Ok(())
    }

    async fn tell(&mut self, message: String) -> Result<(), BoxError> {
        self.conversation.add_user_message(message);
        Ok(())
    }

    async fn answer(&mut self, _: Answer) -> Result<(), BoxError> {
        Err(permanent(
            "received the answer to a model request by breadcrumb, but the agent's model is behind an API",
        ))
    }

    async fn cancel(&mut self) {}

    fn save(&self) -> Result<Json, BoxError> {
        self.conversation.save()
    }
}

/// The messages that an agent run and its model exchanged after the initial messages of the run's task. The type does no I/O and
/// reads no clock.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Conversation {
    pub(super) said: Vec<ChatMessage>,
    /// The number of model answers in the run's conversation. It is part of the call IDs, because some providers number the calls of each
    /// answer from the start.
    turns: u32,
}

impl Conversation {
    /// Adds a model answer to the conversation, and returns the event for the run: tool calls or a final answer.
    pub(super) fn add_answer(&mut self, answer: &ChatResponse) -> ProviderEvent {
        let message = answer.message();
        self.said.push(message.clone());
        self.turns = self.turns.saturating_add(1);
        let (usage, cut_off) = (answer.usage, answer.stop == StopReason::MaxTokens);
        let answered_by = answer.answered_by.clone();
        let tool_calls = answer.tool_calls();
        let Some(last) = tool_calls.len().checked_sub(1) else {
            let text = answer.text().into_owned();
            return ProviderEvent::Finished {
                text,
                cut_off,
                usage,
                answered_by,
            };
        };
        let calls = tool_calls.into_iter().enumerate();
        let calls = calls.map(|(index, call)| self.call(call, cut_off && index == last));
        let calls = calls.collect();
        ProviderEvent::Calls {
            calls,
            answer: Some(message),
            usage,
            answered_by,
        }
    }

    /// Converts a model's tool call to the [`MachineCall`] for the run's state machine. The arguments of a truncated call count as
    /// unreadable even if they are JSON, because `{}` may be all that remains of them.
    fn call(&self, call: &ModelCall, cut_off: bool) -> MachineCall {
        let unreadable = |problem: String| ToolArguments::Unreadable {
            text: call.arguments.text().to_owned(),
            problem,
        };
        let arguments = match call.arguments.json() {
            _ if cut_off => {
                let problem =
                    "the answer reached its token limit, so the arguments may be incomplete";
                unreadable(problem.to_owned())
            }
            Ok(json) => json.clone().into(),
            Err(error) => unreadable(error.reason),
        };
        MachineCall::new(self.id(call), &*call.name, arguments)
    }

    fn id(&self, call: &ModelCall) -> CallId {
        format!("{}:{}", self.turns, call.id).into()
    }

    /// Adds the results of the tool calls in the last model answer to the conversation.
    pub(super) fn deliver(&mut self, mut results: Vec<ToolResult>) {
        let tool_calls: Vec<ModelCall> = match self.said.last() {
            Some(last) => last.tool_calls().into_iter().cloned().collect(),
            None => return,
        };
        for call in tool_calls {
            let id = self.id(&call);
            let index = results.iter().position(|result| result.call_id == id);
            let answer = match index {
                Some(index) => results.remove(index).answer,
                // The machine had no space to store even the refusal until the other results were available.
                None => Answer::error("too_large", "the call exceeds the size limits of this run"),
            };
            self.said.push(result_message(&call.id, answer));
        }
    }

    pub(super) fn add_user_message(&mut self, message: String) {
        self.said.push(ChatMessage::user(message));
    }

    pub(super) fn save(&self) -> Result<Json, BoxError> {
        serialize_state(self)
    }
}

/// Serializes the state of an agent's run, so that the store can save it.
///
/// # Errors
/// [`AgentRunError::StateTooLarge`] if the state is larger than [`Json::MAX_BYTES`].
pub(super) fn serialize_state(state: &impl Serialize) -> Result<Json, BoxError> {
    let text = serde_json::to_string(state)?;
    let (size, limit) = (text.len(), Json::MAX_BYTES);
    if size > limit {
        return Err(AgentRunError::StateTooLarge { size, limit }.into());
    }
    Ok(Json::from_text(text)?)
}

/// Returns the chat message that contains the result of a tool call for the model.
fn result_message(call_id: &str, answer: Answer) -> ChatMessage {
    match answer {
        Answer::Success(output) => ChatMessage::tool_result(call_id, display_text(&output)),
        Answer::Error { code, message } => {
            ChatMessage::tool_error(call_id, format!("{code}: {message}"))
        }
    }
}

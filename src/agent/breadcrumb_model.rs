//! Model provider that sends model requests to other services, as `tool.request.v1` breadcrumbs.

use super::api::Conversation;
use super::provider::{Provider, ProviderEvent, ProviderSession, ProviderTask};
use super::providers::{input_of, response_of};
use super::{ChatResponse, ModelError};
use crate::error::{BoxError, permanent};
use crate::machine::{Answer, ResultDelivery, ToolResult};
use crate::model::{BreadcrumbId, Json};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A [`Provider`] for a model that is a tool of another service. Requests are `tool.request.v1` and answers `tool.response.v1`.
///
/// The run is suspended while it waits for an answer: it occupies one row of the ledger and no worker, and any worker that receives the
/// response continues it. [`model_tool`](super::model_tool) serves a model of this process to such agents.
///
/// The tool input is a chat completion request, `{"model", "messages", ..}`. The answer is `output.content`, else
/// `output.choices[0].message`, else the text of `output`. Reasoning and provider state in the answer, in the fields that
/// `OpenAiCompatible` reads or in `opaque_parts`, are part of the next request to the same tool and model.
///
/// A request with images or files fails with the permanent error [`ModelError::Unsupported`].
///
/// If the model answers with an error, the run repeats the request, at most three times in one run.
///
/// Use it if only one service has the API key, or if a model answers more slowly than the timeout
/// of an attempt permits. Each request costs two breadcrumbs and a suspension. The store needs a
/// ledger. The timeout of a request is `model` in [`WaitSeconds`](super::WaitSeconds), ten minutes
/// by default.
///
/// ```
/// use futures::StreamExt;
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::agent::{
///     AgentDefinition, AgentExecutor, BreadcrumbModel, ScriptedModel, model_tool,
/// };
/// use universal_executor::source::StartAt;
/// use universal_executor::tool::{ToolExecutor, ToolRegistry};
/// use universal_executor::{BreadcrumbStoreExt, EventSource, MemoryStore, NewBreadcrumb, Runtime};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let definition = AgentDefinition::from_json(&json!({
///     "agent_id": "greeter", "model": "any", "system_prompt": "Greet the user.",
///     "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
/// }))?;
/// let store = MemoryStore::default();
/// let shared = Arc::new(store.clone());
/// let provider = Arc::new(BreadcrumbModel::new("openrouter"));
/// let none = ToolRegistry::default();
/// let agent = AgentExecutor::with_provider(definition, provider, shared.clone(), &none)?;
/// let model = model_tool("openrouter", Arc::new(ScriptedModel::new(["Hello, Ann!"])));
/// let model = ToolExecutor::new(model, shared)?;
///
/// let runtime = Runtime::builder(store.events()).executor(Arc::new(agent)).executor(Arc::new(model)).build()?;
/// let mut events = store.events().subscribe(StartAt::Now).await?;
/// let answered = async {
///     let message = json!({"message": "I am Ann"});
///     drop(store.create(NewBreadcrumb::new("user.message.v1").context(message)).await);
///     while let Some(Ok(delivery)) = events.next().await {
///         if delivery.event.schema_name.as_deref() == Some("agent.response.v1") {
///             break;
///         }
///     }
/// };
/// runtime.run_until(answered).await?;
///
/// let response = store.latest("agent.response.v1").await?.ok_or("no response")?;
/// assert_eq!(response.context.text("message"), Some("Hello, Ann!"));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct BreadcrumbModel {
    tool: String,
    config_id: Option<BreadcrumbId>,
}

impl BreadcrumbModel {
    /// Creates a provider that sends an agent's model requests to the tool with this name.
    ///
    /// The name is that of the tool in its own service, such as the name in
    /// [`model_tool`](super::model_tool).
    #[must_use]
    pub fn new(tool: impl Into<String>) -> Self {
        Self {
            tool: tool.into(),
            config_id: None,
        }
    }

    /// Sets the configuration of the tool that serves the model, as the ID of a `tool.config.v1` breadcrumb on an RCRT (Right
    /// Context Right Time) server. Each request has the breadcrumb's ID in the input field `config_id`. Defaults to no
    /// configuration.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::BreadcrumbId;
    /// use universal_executor::agent::BreadcrumbModel;
    ///
    /// let config: BreadcrumbId = "01890a5d-ac96-774b-bcce-b302099a8057".parse()?;
    /// let model = BreadcrumbModel::new("openrouter").config(config);
    /// # drop(model);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn config(mut self, id: BreadcrumbId) -> Self {
        self.config_id = Some(id);
        self
    }

    fn session(&self, task: ProviderTask, state: State) -> Box<dyn ProviderSession> {
        Box::new(BreadcrumbSession {
            model: self.clone(),
            task,
            state,
        })
    }
}

#[async_trait]
impl Provider for BreadcrumbModel {
    fn delivery(&self) -> ResultDelivery {
        ResultDelivery::Batch
    }

    fn asks_by_breadcrumb(&self) -> bool {
        true
    }

    async fn start(&self, task: ProviderTask) -> Result<Box<dyn ProviderSession>, BoxError> {
        Ok(self.session(task, State::default()))
    }

    async fn resume(
        &self,
        task: ProviderTask,
        saved: Json,
    ) -> Result<Box<dyn ProviderSession>, BoxError> {
        let state = saved.parse().map_err(permanent)?;
        Ok(self.session(task, state))
    }
}

#[derive(Debug, Default, Deserialize, Serialize)]
struct State {
    conversation: Conversation,
    /// The model answer that the provider session received and has not yet returned as an event.
    answer: Option<ChatResponse>,
    /// The number of this run's model requests that failed with an error from the service that calls the model.
    failures: u32,
}

struct BreadcrumbSession {
    model: BreadcrumbModel,
    task: ProviderTask,
    state: State,
}

impl BreadcrumbSession {
    const MAX_FAILURES: u32 = 3;

    fn failed(&mut self, error: BoxError) -> Result<(), BoxError> {
        self.state.failures = self.state.failures.saturating_add(1);
        match self.state.failures > Self::MAX_FAILURES {
            true => Err(permanent(ModelError::Unavailable(error))),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl ProviderSession for BreadcrumbSession {
    async fn next(&mut self) -> Result<ProviderEvent, BoxError> {
        if let Some(answer) = self.state.answer.take() {
            return Ok(self.state.conversation.add_answer(&answer));
        }
        let request = self.task.request(&self.state.conversation.said).await;
        let request = request?;
        let BreadcrumbModel { tool, config_id } = &self.model;
        let mut input = input_of(tool, &request)?.into_value();
        if let (Value::Object(fields), Some(id)) = (&mut input, config_id) {
            fields.insert("config_id".to_owned(), json!(id));
        }
        Ok(ProviderEvent::Asks {
            tool: tool.clone(),
            input: input.into(),
        })
    }

    async fn deliver(&mut self, results: Vec<ToolResult>) -> Result<(), BoxError> {
        self.state.conversation.deliver(results);
        Ok(())
    }

    async fn tell(&mut self, message: String) -> Result<(), BoxError> {
        self.state.conversation.add_user_message(message);
        Ok(())
    }

    async fn answer(&mut self, answer: Answer) -> Result<(), BoxError> {
        match answer {
            Answer::Success(output) => {
                let messages = self.task.with(&self.state.conversation.said);
                match response_of(&self.model.tool, &self.task.asking(messages), &output) {
                    Ok(answer) => {
                        self.state.answer = Some(answer);
                        Ok(())
                    }
                    Err(error) => self.failed(error.into()),
                }
            }
            Answer::Error { code, message } => self.failed(format!("{code}: {message}").into()),
        }
    }

    async fn cancel(&mut self) {}

    fn save(&self) -> Result<Json, BoxError> {
        super::api::serialize_state(&self.state)
    }
}

use super::{AgentDefinition, AgentError, ChatModel, ChatRequest, Message};
use crate::clock;
use crate::error::BoxError;
use crate::executor::{
    ContextBudget, ExecutionContext, Failure, FenceKey, Profile, Response, UniversalExecutor, check,
};
use crate::model::{Breadcrumb, NewBreadcrumb, Subscriptions, Timestamp};
use crate::store::BreadcrumbStore;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// An agent: shows a model what it may see of the trigger and the assembled context, and writes what it says as
/// `agent.response.v1`.
pub struct AgentExecutor {
    definition: AgentDefinition,
    model: Arc<dyn ChatModel>,
    store: Arc<dyn BreadcrumbStore>,
    profile: Profile,
    budget: ContextBudget,
    /// None for that of the process.
    fences: Option<FenceKey>,
}

impl AgentExecutor {
    /// The schema of what an agent answers.
    pub const RESPONSE: &'static str = "agent.response.v1";

    /// An agent on a store.
    ///
    /// # Errors
    /// [`AgentError::Invalid`] if a trigger asks for what the store cannot give.
    pub fn new(
        definition: AgentDefinition,
        model: Arc<dyn ChatModel>,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, AgentError> {
        let profile = Profile::new("agent")
            .responds_with(definition.responds_with.iter().cloned())
            .definition(definition.text());
        let agent = Self {
            budget: definition.context_budget.clone(),
            fences: None,
            definition,
            model,
            store,
            profile,
        };
        check(&agent)?;
        Ok(agent)
    }

    /// Replaces how its runs are leased, timed and retried; kind, definition and schemas stay the definition's.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        self.profile = profile.in_place_of(self.profile);
        self
    }

    /// The definition it follows.
    #[must_use]
    pub fn definition(&self) -> &AgentDefinition {
        &self.definition
    }

    /// Replaces the budget of the definition, for example by
    /// `agent.definition().context_budget.clone().counter(..)` to count tokens as the model does.
    #[must_use]
    pub fn with_context_budget(mut self, budget: ContextBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the key of the fences around data, so that workers with the same key send the same bytes and share a prompt
    /// cache; random in each process by default.
    #[must_use]
    pub fn with_fence_key(mut self, key: FenceKey) -> Self {
        self.fences = Some(key);
        self
    }

    /// The conversation: the author's instructions, then everything else as data, then what to do with it.
    async fn messages(&self, context: &ExecutionContext) -> Result<Vec<Message>, BoxError> {
        let format = self.definition.context_format;
        let shown = context.for_model().await?.fit(&self.budget, format)?;
        let text = match &self.fences {
            Some(key) => shown.render_with(format, key),
            None => shown.render(format),
        };
        Ok(vec![
            Message::system(&*self.definition.system_prompt),
            Message::user(format!("{text}\nAnswer the trigger.")),
        ])
    }

    fn response(trigger: &Breadcrumb, mut context: Value) -> Response {
        let now = Timestamp::from_micros(clock::wall_micros());
        if let Value::Object(fields) = &mut context {
            fields.insert("trigger_event_id".to_owned(), json!(trigger.id));
            fields.insert("timestamp".to_owned(), json!(now));
        }
        let requests = trigger
            .tags
            .iter()
            .filter(|tag| tag.starts_with("request:"))
            .take(Breadcrumb::MAX_TAGS - 1);
        let response = NewBreadcrumb::new(Self::RESPONSE)
            .title("Agent Response")
            .tag("agent:response")
            .tags(requests.cloned())
            .context(context);
        Response::create(response)
    }
}

#[async_trait]
impl UniversalExecutor for AgentExecutor {
    fn id(&self) -> &str {
        &self.definition.agent_id
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.definition.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn execute(&self, _: &Breadcrumb, context: &ExecutionContext) -> Result<Value, BoxError> {
        let mut request = ChatRequest::new(self.messages(context).await?);
        request.model.clone_from(&self.definition.model);
        request.temperature = self.definition.temperature;
        let answer = self
            .model
            .chat(&request)
            .await
            .map_err(super::ModelError::marked)?;
        Ok(json!({"status": "success", "message": answer.text}))
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(Self::response(trigger, output))
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        Ok(Self::response(
            trigger,
            json!({"status": "error", "message": failure.message}),
        ))
    }
}

impl fmt::Debug for AgentExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentExecutor")
            .field("agent_id", &self.definition.agent_id)
            .finish_non_exhaustive()
    }
}

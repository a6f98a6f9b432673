use super::output::Output;
use super::turns::Run;
use super::{AgentDefinition, AgentError, AgentRunError, ChatModel, Message, ToolSpec};
use crate::clock;
use crate::error::{BoxError, excerpt};
use crate::executor::{
    ContextBudget, ExecutionContext, ExecutorError, Failure, FenceKey, InvalidExecutor, Profile,
    Response, UniversalExecutor, check,
};
use crate::model::{Breadcrumb, NewBreadcrumb, Subscriptions, Timestamp};
use crate::store::BreadcrumbStore;
use crate::tool::{Permissions, RetrySafety, ToolRegistry};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// An agent: shows a model what it may see of the trigger and the assembled context, calls the tools it asks for until
/// it answers, and writes what it says as `agent.response.v1`.
pub struct AgentExecutor {
    pub(super) definition: AgentDefinition,
    pub(super) model: Arc<dyn ChatModel>,
    pub(super) store: Arc<dyn BreadcrumbStore>,
    /// What the agent may call, and nothing else.
    pub(super) tools: ToolRegistry,
    /// The same as the model is told of it.
    pub(super) offered: Vec<ToolSpec>,
    /// None if its answers are any text.
    pub(super) output: Option<Output>,
    profile: Profile,
    budget: ContextBudget,
    /// None for that of the process.
    fences: Option<FenceKey>,
}

impl AgentExecutor {
    /// The schema of what an agent answers.
    pub const RESPONSE: &'static str = "agent.response.v1";

    /// An agent on a store, whose definition names no tools.
    ///
    /// # Errors
    /// As [`with_tools`](Self::with_tools).
    pub fn new(
        definition: AgentDefinition,
        model: Arc<dyn ChatModel>,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, AgentError> {
        Self::with_tools(definition, model, store, &ToolRegistry::default())
    }

    /// An agent on a store that may call those tools of a registry that its definition names, and no others.
    ///
    /// What a tool writes is limited by the agent's `responds_with`.
    ///
    /// # Errors
    /// [`AgentError::UnknownTool`] if the registry lacks a tool, [`AgentError::BadOutputSchema`], and
    /// [`AgentError::Invalid`] if a trigger, or a tool that is called at most once, asks for what the store cannot give.
    pub fn with_tools(
        definition: AgentDefinition,
        model: Arc<dyn ChatModel>,
        store: Arc<dyn BreadcrumbStore>,
        tools: &ToolRegistry,
    ) -> Result<Self, AgentError> {
        let tools = named_tools(&definition, tools)?;
        let schema = definition.output_schema.as_ref();
        let output = schema.map(|schema| Output::new(&definition.agent_id, schema));
        let profile = Profile::new("agent")
            .responds_with(definition.responds_with.iter().cloned())
            .definition(definition.text());
        let agent = Self {
            budget: definition.context_budget.clone(),
            fences: None,
            offered: tools.specs(),
            output: output.transpose()?,
            tools,
            definition,
            model,
            store,
            profile,
        };
        check(&agent)?;
        agent.check_tools()?;
        Ok(agent)
    }

    /// A call at most once is a promise that needs a place to keep it.
    fn check_tools(&self) -> Result<(), InvalidExecutor> {
        let names = self.tools.names().into_iter();
        let mut careful = names
            .filter_map(|name| self.tools.get(name))
            .filter(|tool| tool.settings().retry == RetrySafety::AtMostOnce);
        if self.store.ledger().is_none() && careful.next().is_some() {
            let executor = self.definition.agent_id.clone();
            return Err(InvalidExecutor::NoLedger { executor });
        }
        Ok(())
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
    pub(super) async fn messages(
        &self,
        context: &ExecutionContext,
    ) -> Result<Vec<Message>, BoxError> {
        let format = self.definition.context_format;
        let shown = context.for_model().await?.fit(&self.budget, format)?;
        let text = match &self.fences {
            Some(key) => shown.render_with(format, key),
            None => shown.render(format),
        };
        let task = match &self.output {
            None => "Answer the trigger.".to_owned(),
            Some(output) => format!(
                "Answer the trigger with nothing but JSON that fits this schema: {}",
                output.schema
            ),
        };
        Ok(vec![
            Message::system(&*self.definition.system_prompt),
            Message::user(format!("{text}\n{task}")),
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
        Run::of(self, context)?.finish().await
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(Self::response(trigger, output))
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        let mut context = json!({"status": "error", "message": failure.message});
        if let (Value::Object(fields), Some(raw)) = (&mut context, bad_output(failure)) {
            fields.insert("raw".to_owned(), raw.into());
        }
        Ok(Self::response(trigger, context))
    }
}

/// The tools that a definition names: what it does not name does not exist for the agent.
fn named_tools(
    definition: &AgentDefinition,
    registered: &ToolRegistry,
) -> Result<ToolRegistry, AgentError> {
    let unknown = |name: &&String| registered.get(name).is_none();
    if let Some(name) = definition.tools.iter().find(unknown) {
        return Err(AgentError::UnknownTool {
            agent: definition.agent_id.clone(),
            tool: excerpt(name, 80).into_owned(),
            known: match registered.names().as_slice() {
                [] => "none".to_owned(),
                names => names.join(", "),
            },
        });
    }
    Ok(registered.allowed(&Permissions::names(&definition.tools)))
}

/// What the model wrote in the place of the output that was asked for.
fn bad_output(failure: &Failure) -> Option<&str> {
    let error: &ExecutorError = failure.error.as_ref()?.downcast_ref()?;
    let ExecutorError::Execute(error) = error else {
        return None;
    };
    match error.downcast_ref()? {
        AgentRunError::BadOutput { raw, .. } => Some(raw),
        AgentRunError::TurnsUsedUp { .. }
        | AgentRunError::BudgetUsedUp { .. }
        | AgentRunError::StateTooLarge { .. }
        | AgentRunError::UnreadableState(_) => None,
    }
}

impl fmt::Debug for AgentExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentExecutor")
            .field("agent_id", &self.definition.agent_id)
            .finish_non_exhaustive()
    }
}

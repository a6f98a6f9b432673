use super::guardrail::Guardrails;
use super::making::{asks, named_tools, settle};
use super::model::MediaSource;
use super::offer::Offer;
use super::output::Output;
use super::{
    AgentDefinition, AgentError, ApiProvider, ChatMessage, ChatModel, LethalTrifecta, Provider,
    ProviderTask, ResponseSchema, ToolCalls,
};
use crate::error::BoxError;
use crate::executor::{
    CHAT_MESSAGE, ContextBudget, ExecutionContext, FenceKey, InvalidExecutor, Profile, check,
};
use crate::machine::{Effect, RunId};
use crate::model::Json;
use crate::request::{agents, human};
use crate::store::BreadcrumbStore;
use crate::tool::{RetrySafety, Tool, ToolRegistry};
use std::fmt;
use std::sync::Arc;

type Observer = Arc<dyn Fn(&RunId, &Effect) + Send + Sync>;

/// An agent: shows a model what it may see of the trigger and the assembled context, calls the tools it asks for until
/// it answers, and writes what it says as `agent.response.v1`.
pub struct AgentExecutor {
    pub(super) definition: AgentDefinition,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) store: Arc<dyn BreadcrumbStore>,
    /// What the agent may call, and nothing else.
    pub(super) tools: ToolRegistry,
    /// The same as the model is told of it, and what else it may call.
    pub(super) offer: Offer,
    /// None if its answers are any text.
    pub(super) output: Option<Output>,
    pub(super) guardrails: Guardrails,
    pub(super) observer: Option<Observer>,
    pub(super) profile: Profile,
    budget: ContextBudget,
    /// None for that of the process.
    fences: Option<FenceKey>,
}

impl AgentExecutor {
    /// The schema of what an agent answers.
    pub const RESPONSE: &'static str = agents::RESPONSE;

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
        Self::with_provider(definition, Arc::new(ApiProvider::new(model)), store, tools)
    }

    /// An agent whose model is reached by another [`Provider`] than [`ApiProvider`]: a program that calls back, or a model
    /// that is asked by breadcrumbs.
    ///
    /// # Errors
    /// As [`with_tools`](Self::with_tools).
    pub fn with_provider(
        definition: AgentDefinition,
        provider: Arc<dyn Provider>,
        store: Arc<dyn BreadcrumbStore>,
        tools: &ToolRegistry,
    ) -> Result<Self, AgentError> {
        let mut definition = definition;
        if definition.uses_any_tool {
            definition.tools = tools.names().into_iter().map(str::to_owned).collect();
        }
        let mut tools = named_tools(&definition, tools)?;
        tools = tools.elsewhere(definition.tool_calls == ToolCalls::Breadcrumbs);
        settle(&mut definition, &tools);
        let offer = Offer::of(&definition, &tools)?;
        let schema = definition.output_schema.as_ref();
        let output = schema.map(|schema| Output::new(&definition.agent_id, schema));
        let asks = asks(&definition, &*provider, &tools, &offer);
        let written = definition.responds_with.iter().map(String::as_str);
        let mut profile = Profile::new("agent").definition(definition.text());
        // The rules of actions limit an agent that creates any schema, and its tools are limited to its list.
        if !definition.creates_any_schema {
            profile = profile.responds_with(written.chain(asks.iter().copied()));
        }
        // A tool may ask a person too, and is told that it cannot where nothing can wait.
        let waits = !definition.approval.tools.is_empty()
            || asks.iter().any(|schema| *schema != human::REQUEST);
        let agent = Self {
            budget: definition.context_budget.clone(),
            fences: None,
            guardrails: Guardrails::default(),
            observer: None,
            offer,
            output: output.transpose()?,
            tools,
            definition,
            provider,
            store,
            profile,
        };
        check(&agent)?;
        agent.check_ledger(waits)?;
        if let Some(trifecta) = agent.lethal_trifecta() {
            let agent = &*agent.definition.agent_id;
            let found = trifecta.to_string();
            tracing::warn!(agent, found, "an agent could send private data away");
        }
        Ok(agent)
    }

    /// A call at most once, and a run that waits for others, are promises that need a place to keep them.
    fn check_ledger(&self, waits: bool) -> Result<(), InvalidExecutor> {
        let names = self.tools.names().into_iter();
        let mut careful = names
            .filter_map(|name| self.tools.get(name))
            .filter(|tool| tool.settings().retry == RetrySafety::AtMostOnce);
        if self.store.ledger().is_none() && (waits || careful.next().is_some()) {
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

    /// Sets the checks around what its model is shown, what it answers, and the calls of its tools; none by default.
    #[must_use]
    pub fn with_guardrails(mut self, guardrails: Guardrails) -> Self {
        self.guardrails = guardrails;
        self
    }

    /// Tells of everything that its machine wants done, in order, while a run goes on: for whoever watches. It must not
    /// block.
    #[must_use]
    pub fn observed_by(
        mut self,
        observer: impl Fn(&RunId, &Effect) + Send + Sync + 'static,
    ) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Private data, untrusted content and a way outward, if it has all three: then what it reads could make it send away
    /// what it knows. A warning is logged when such an agent is made.
    #[must_use]
    pub fn lethal_trifecta(&self) -> Option<LethalTrifecta> {
        let definition = &self.definition;
        let names = self.tools.names();
        let tools = names.iter().filter_map(|name| {
            let tool = self.tools.get(name)?;
            Some((*name, tool.settings().permission_tags.as_slice()))
        });
        let is_written = |schema: &str| definition.may_create(schema);
        LethalTrifecta::find(
            &definition.subscriptions,
            &definition.trust,
            is_written,
            tools,
        )
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

    /// What its provider is started on.
    pub(super) async fn task(&self, context: &ExecutionContext) -> Result<ProviderTask, BoxError> {
        let definition = &self.definition;
        let messages = self.messages(context).await?;
        let mut task = ProviderTask::new(context.idempotency_key(), messages);
        task.model.clone_from(&definition.model);
        task.temperature = definition.temperature;
        task.tools.clone_from(&self.offer.specs);
        task.guardrails = self.guardrails.clone();
        task.media = Some(MediaSource::new(Arc::clone(&self.store), context));
        // Guardrails check the whole answer, so no part of it may be shown before.
        task.turn_events = context
            .turn_events()
            .filter(|_| self.guardrails.is_empty())
            .cloned();
        let output = self.output.as_ref();
        // Providers enforce only some of JSON Schema, and reject what they would not.
        task.response_schema =
            output.map(|output| ResponseSchema::new("answer", output.schema.clone()).lenient());
        Ok(task)
    }

    /// Returns the digest of a call, which binds an approval to the tool as the service registered it, its arguments and the
    /// definitions.
    pub(super) fn digest_of(&self, tool: &str, arguments: &Json) -> String {
        let registered = self.tools.registered(tool);
        let definitions = human::fingerprint(self.definition.text(), registered);
        human::digest(registered.map_or(tool, Tool::name), arguments, &definitions)
    }

    /// Returns the instructions of the author, the earlier turns of a chat session, then all else as data with the task. The words
    /// of a user follow in a separate message, without a fence.
    pub(super) async fn messages(
        &self,
        context: &ExecutionContext,
    ) -> Result<Vec<ChatMessage>, BoxError> {
        let format = self.definition.context_format;
        // The budget holds for the whole trigger: its words are longer as JSON than by themselves.
        let shown = context.for_model().await?;
        let shown = match self.definition.capabilities {
            Some(_) => shown.with_identity_of(context.trigger()),
            None => shown,
        };
        let mut shown = shown.fit(&self.budget, format)?;
        let words = match self.hears_the_user(context).await? {
            true if shown.trigger().schema_name.as_deref() == Some(agents::REQUEST) => {
                shown.take_request("prompt")
            }
            true => shown.take_words(),
            false => None,
        };
        let render = || match &self.fences {
            Some(key) => shown.render_with(format, key),
            None => shown.render(format),
        };
        let history = self.history(context).await?;
        if let Some(words) = words {
            let prompt = with_schema(&self.definition.system_prompt, self.output.as_ref());
            let mut messages = vec![ChatMessage::system(prompt)];
            messages.extend(history);
            if !shown.is_empty() {
                messages.push(ChatMessage::user(render()));
            }
            messages.push(ChatMessage::user(words));
            return Ok(messages);
        }
        let text = render();
        let task = match &self.output {
            None => "Answer the trigger.".to_owned(),
            Some(output) => format!(
                "Answer the trigger with nothing but JSON that fits this schema: {}",
                output.schema
            ),
        };
        let mut messages = vec![ChatMessage::system(&*self.definition.system_prompt)];
        messages.extend(history);
        messages.push(ChatMessage::user(format!("{text}\n{task}")));
        Ok(messages)
    }

    /// Returns `true` if the trigger is the words of a user and the definition does not list chat messages as untrusted.
    async fn hears_the_user(&self, context: &ExecutionContext) -> Result<bool, BoxError> {
        let mut untrusted = self.definition.trust.untrusted.iter();
        if untrusted.any(|schema| schema == CHAT_MESSAGE) {
            return Ok(false);
        }
        Ok(context.is_from_user().await?)
    }
}

/// Returns the instructions of a definition, with the schema of the answer if it has one.
fn with_schema(instructions: &str, output: Option<&Output>) -> String {
    match output {
        None => instructions.to_owned(),
        Some(output) => {
            let schema = &output.schema;
            let asked = format!("Answer with nothing but JSON that fits this schema: {schema}");
            match instructions.is_empty() {
                true => asked,
                false => format!("{instructions}\n\n{asked}"),
            }
        }
    }
}

impl fmt::Debug for AgentExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentExecutor")
            .field("agent_id", &self.definition.agent_id)
            .finish_non_exhaustive()
    }
}

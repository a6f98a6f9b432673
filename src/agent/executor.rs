use super::assembly::{apply_tool_settings, named_tools, request_schemas};
use super::guardrail::Guardrails;
use super::model::MediaSource;
use super::output::Output;
use super::tool_offer::ToolOffer;
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

/// An executor that runs an agent: each trigger starts a run, which calls the agent's model and tools.
///
/// An agent sends the trigger and the assembled context to a model, as far as their hints permit, executes the tool calls that the model
/// requests until the model answers, and writes the answer as `agent.response.v1`.
///
/// Create one from a JSON definition here, or from code with [`Agent::bind`](super::Agent::bind).
/// Pass it to [`RuntimeBuilder::executor`](crate::runtime::RuntimeBuilder::executor), or call
/// [`process_event`](crate::UniversalExecutor::process_event) in a test. To run all definitions in
/// a store, use [`definitions`](crate::runtime::definitions).
///
/// The executor has no state between triggers. Workers can run it in parallel.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::agent::{AgentDefinition, AgentExecutor, ScriptedModel};
/// use universal_executor::tool::{ToolRegistry, json_tool};
/// use universal_executor::{
///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, UniversalExecutor,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let roll = json_tool("roll", "Rolls a die.", json!({}), |_, _| async { Ok(json!(4)) });
/// let tools = ToolRegistry::default().with(roll)?;
/// let definition = AgentDefinition::from_json(&json!({
///     "agent_id": "player", "system_prompt": "Play.", "tools": ["roll"],
///     "subscriptions": [{"schema_name": "game.v1", "role": "trigger"}],
/// }))?;
/// let store = MemoryStore::default();
/// let model = Arc::new(ScriptedModel::calling("roll", json!({}), "I rolled 4."));
/// let player = AgentExecutor::with_tools(definition, model, Arc::new(store.clone()), &tools)?;
///
/// let game = store.create(NewBreadcrumb::new("game.v1")).await?;
/// player.process_event(&Event::created(&game)).await?;
/// let response = store.latest(AgentExecutor::RESPONSE).await?.ok_or("no response")?;
/// assert_eq!(response.context.text("message"), Some("I rolled 4."));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct AgentExecutor {
    pub(super) definition: AgentDefinition,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) store: Arc<dyn BreadcrumbStore>,
    /// The tool registry, reduced to the tools that the agent may call.
    pub(super) tools: ToolRegistry,
    /// The tools, other agents and additional outputs that the agent's model may call, each by a unique name.
    pub(super) tool_offer: ToolOffer,
    /// The JSON Schema of the agent's answers, or `None` for any text.
    pub(super) output: Option<Output>,
    pub(super) guardrails: Guardrails,
    pub(super) observer: Option<Observer>,
    pub(super) profile: Profile,
    budget: ContextBudget,
    /// The secret key from which the marks that delimit data in the model's input are derived. If `None`, the random key of this
    /// process applies.
    fence_key: Option<FenceKey>,
}

impl AgentExecutor {
    /// Schema name of agent responses, `agent.response.v1`.
    ///
    /// Use it to read answers, and in subscriptions of executors that react to them. The field
    /// `status` is `success`, `incomplete` or `error`.
    pub const RESPONSE: &'static str = agents::RESPONSE;

    /// Creates the executor of an agent without tools on a store. The model is reached through an [`ApiProvider`].
    ///
    /// The model may be shared by several agents.
    ///
    /// # Errors
    /// See [`with_tools`](Self::with_tools). A definition with tools is [`AgentError::UnknownTool`].
    pub fn new(
        definition: AgentDefinition,
        model: Arc<dyn ChatModel>,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, AgentError> {
        Self::with_tools(definition, model, store, &ToolRegistry::default())
    }

    /// Creates the executor of an agent on a store. The agent may call the tools that its definition names, and no other tools of the
    /// registry.
    ///
    /// Tools may write only the schemas in the agent's `responds_with`.
    ///
    /// The registry is copied, so later changes of the original have no effect. Without the
    /// field `tools`, only a definition by the rules of RCRT servers can call them.
    ///
    /// # Errors
    /// - [`AgentError::UnknownTool`] if the registry does not have a tool that the definition names.
    /// - [`AgentError::CallsItself`] if the definition lists the agent itself in `use`, `handoff` or `delegate`.
    /// - [`AgentError::OfferedTwice`] if two tools, agents or outputs have the same name.
    /// - [`AgentError::BadOutputSchema`] if a schema of the answer or of an output cannot be used.
    /// - [`AgentError::Invalid`] if the store lacks a feature that the agent needs, for example a ledger for tools that run at most once.
    pub fn with_tools(
        definition: AgentDefinition,
        model: Arc<dyn ChatModel>,
        store: Arc<dyn BreadcrumbStore>,
        tools: &ToolRegistry,
    ) -> Result<Self, AgentError> {
        Self::with_provider(definition, Arc::new(ApiProvider::new(model)), store, tools)
    }

    /// Creates the executor of an agent on any [`Provider`], such as an external program or another service. A program (`CliProvider`,
    /// feature `cli`) calls its tools over HTTP. Another service receives the model requests as breadcrumbs
    /// ([`BreadcrumbModel`](super::BreadcrumbModel)).
    ///
    /// # Errors
    /// See [`with_tools`](Self::with_tools).
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use std::sync::Arc;
    /// use universal_executor::MemoryStore;
    /// use universal_executor::agent::{AgentDefinition, AgentExecutor, BreadcrumbModel};
    /// use universal_executor::tool::ToolRegistry;
    ///
    /// let definition = AgentDefinition::from_json(&json!({
    ///     "agent_id": "greeter", "system_prompt": "Greet the user.",
    ///     "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
    /// }))?;
    /// let provider = Arc::new(BreadcrumbModel::new("openrouter"));
    /// let (store, none) = (Arc::new(MemoryStore::default()), ToolRegistry::default());
    /// let agent = AgentExecutor::with_provider(definition, provider, store, &none)?;
    /// assert_eq!(agent.definition().agent_id, "greeter");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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
        tools = tools.with_remote_tools(definition.tool_calls == ToolCalls::Breadcrumbs);
        apply_tool_settings(&mut definition, &tools);
        let tool_offer = ToolOffer::of(&definition, &tools)?;
        let schema = definition.output_schema.as_ref();
        let output = schema.map(|schema| Output::new(&definition.agent_id, schema));
        let request_schemas = request_schemas(&definition, &*provider, &tools, &tool_offer);
        let written = definition.responds_with.iter().map(String::as_str);
        let mut profile = Profile::new("agent").definition(definition.text());
        // An agent that may create any schema is limited by the rules of actions instead, and its tools by `responds_with`.
        if !definition.creates_any_schema {
            profile = profile.responds_with(written.chain(request_schemas.iter().copied()));
        }
        // A tool may ask a person on any store: without a ledger its call gets an error, because the run cannot wait.
        let must_wait = !definition.approval.tools.is_empty()
            || request_schemas
                .iter()
                .any(|schema| *schema != human::REQUEST);
        let agent = Self {
            budget: definition.context_budget.clone(),
            fence_key: None,
            guardrails: Guardrails::default(),
            observer: None,
            tool_offer,
            output: output.transpose()?,
            tools,
            definition,
            provider,
            store,
            profile,
        };
        check(&agent)?;
        agent.check_ledger(must_wait)?;
        if let Some(trifecta) = agent.lethal_trifecta() {
            let agent = &*agent.definition.agent_id;
            let found = trifecta.to_string();
            tracing::warn!(
                agent,
                capabilities = found,
                "the agent could leak private data, because untrusted content can make it send the data out"
            );
        }
        Ok(agent)
    }

    /// Checks that the store has a run ledger if the agent needs one. Agents need a ledger to wait for answers, and to call tools with
    /// [`RetrySafety::AtMostOnce`].
    fn check_ledger(&self, must_wait: bool) -> Result<(), InvalidExecutor> {
        let names = self.tools.names().into_iter();
        let mut at_most_once_tools = names
            .filter_map(|name| self.tools.get(name))
            .filter(|tool| tool.settings().retry == RetrySafety::AtMostOnce);
        if self.store.ledger().is_none() && (must_wait || at_most_once_tools.next().is_some()) {
            let executor = self.definition.agent_id.clone();
            return Err(InvalidExecutor::NoLedger { executor });
        }
        Ok(())
    }

    /// Replaces the settings of the agent's runs, such as the lease, the timeout and the retries. The kind, the definition hash and the
    /// schemas of the profile always come from the agent definition.
    ///
    /// A second call replaces all settings. Settings that the profile does not set have the
    /// defaults of [`Profile`], for example a timeout of 120 s for each attempt.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::executor::Profile;
    /// use universal_executor::{MemoryStore, Subscription, UniversalExecutor};
    ///
    /// let agent = Agent::new("helper", ScriptedModel::new(["Hello!"]))
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .bind(&MemoryStore::default())?
    ///     .with_profile(Profile::default().timeout(Duration::from_secs(600)));
    /// assert_eq!(agent.id(), "helper");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        self.profile = profile.in_place_of(self.profile);
        self
    }

    /// Sets the guardrails, which check the agent's model input, model output and tool calls. Defaults to none.
    ///
    /// A second call replaces the guardrails. The [module](super::guardrail) describes the checks.
    #[must_use]
    pub fn with_guardrails(mut self, guardrails: Guardrails) -> Self {
        self.guardrails = guardrails;
        self
    }

    /// Sets a callback for monitoring, which receives each effect that the state machine of a run requests, such as a tool call.
    /// The run calls the callback when it executes the effect. The callback must not block.
    ///
    /// The callback does not receive a tool call again if a retry of the run repeats it. A second
    /// call of this method replaces the callback.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::machine::Effect;
    /// use universal_executor::tool::json_tool;
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Subscription, UniversalExecutor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let calls = Arc::new(AtomicUsize::new(0));
    /// let counter = Arc::clone(&calls);
    /// let store = MemoryStore::default();
    /// let roll = json_tool("roll", "Rolls a die.", json!({}), |_, _| async { Ok(json!(4)) });
    /// let player = Agent::new("player", ScriptedModel::calling("roll", json!({}), "Done."))
    ///     .on(Subscription::trigger("game.v1"))
    ///     .tool(roll)
    ///     .bind(&store)?
    ///     .observed_by(move |_run, effect| {
    ///         if let Effect::Execute(_) = effect {
    ///             counter.fetch_add(1, Ordering::Relaxed);
    ///         }
    ///     });
    /// let game = store.create(NewBreadcrumb::new("game.v1")).await?;
    /// player.process_event(&Event::created(&game)).await?;
    /// assert_eq!(calls.load(Ordering::Relaxed), 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn observed_by(
        mut self,
        observer: impl Fn(&RunId, &Effect) + Send + Sync + 'static,
    ) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Returns the agent's sources of private data, sources of untrusted content, and ways to send data out of the system. Returns `None`
    /// unless the agent has all three.
    ///
    /// Untrusted content can make such an agent send private data away. Creating such an agent logs a warning.
    ///
    /// Call it in a deployment check. The example of [`LethalTrifecta`] has such an agent.
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

    /// Returns the agent's definition.
    ///
    /// The definition includes the approval rules and `returns_to_user` settings of the tools, so
    /// it can differ from the JSON.
    #[must_use]
    pub fn definition(&self) -> &AgentDefinition {
        &self.definition
    }

    /// Replaces the limits of the agent definition on the size of the context in the model's input, including the function that
    /// counts tokens. To change only the token counter, pass `agent.definition().context_budget.clone().counter(..)`.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::{ContextBudget, MemoryStore, Subscription, UniversalExecutor};
    ///
    /// let agent = Agent::new("helper", ScriptedModel::new(["Hello!"]))
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .bind(&MemoryStore::default())?
    ///     .with_context_budget(ContextBudget::default().tokens(8_000));
    /// assert_eq!(agent.id(), "helper");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn with_context_budget(mut self, budget: ContextBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the secret key from which the marks that delimit data in the model's input are derived. The marks separate data from
    /// instructions, and authors of data cannot predict the marks. Workers with the same key send the same bytes and share a
    /// prompt cache. Defaults to a random key for each process.
    ///
    /// Set one key in all processes if workers of one agent run on several machines, or if tests
    /// [record](super::RecordedModel) model requests.
    #[must_use]
    pub fn with_fence_key(mut self, key: FenceKey) -> Self {
        self.fence_key = Some(key);
        self
    }

    /// Returns the task for the model provider: the messages, the tools and the settings of one run.
    pub(super) async fn task(&self, context: &ExecutionContext) -> Result<ProviderTask, BoxError> {
        let definition = &self.definition;
        let messages = self.messages(context).await?;
        let mut task = ProviderTask::new(context.idempotency_key(), messages);
        task.model.clone_from(&definition.model);
        task.temperature = definition.temperature;
        task.tools.clone_from(&self.tool_offer.specs);
        task.guardrails = self.guardrails.clone();
        task.media = Some(MediaSource::new(Arc::clone(&self.store), context));
        // Guardrails check the whole answer, so no part of it may be streamed before.
        task.turn_events = context
            .turn_events()
            .filter(|_| self.guardrails.is_empty())
            .cloned();
        let output = self.output.as_ref();
        // Providers enforce only a part of JSON Schema, and reject schemas with other keywords.
        task.response_schema =
            output.map(|output| ResponseSchema::new("answer", output.schema.clone()).lenient());
        Ok(task)
    }

    /// Returns the digest that binds a person's approval to one tool call. The digest covers the tool name, the arguments of the call, the
    /// agent definition, and the description, input schema and approval rules of the registered tool.
    pub(super) fn digest_of(&self, tool: &str, arguments: &Json) -> String {
        let registered = self.tools.registered(tool);
        let definitions = human::fingerprint(self.definition.text(), registered);
        human::digest(registered.map_or(tool, Tool::name), arguments, &definitions)
    }

    /// Returns the messages of an agent run for its model: the author's instructions, then the earlier turns of a chat session,
    /// then the trigger and the context as data. If the trigger is a user message, the user's text follows in a separate message.
    /// Otherwise, the message with the data ends with a task: "Answer the trigger."
    pub(super) async fn messages(
        &self,
        context: &ExecutionContext,
    ) -> Result<Vec<ChatMessage>, BoxError> {
        let format = self.definition.context_format;
        // The budget is applied before the user's text is taken out of the trigger. The text is longer as JSON, so it still fits.
        let shown = context.for_model().await?;
        let shown = match self.definition.capabilities {
            Some(_) => shown.with_identity_of(context.trigger()),
            None => shown,
        };
        let mut shown = shown.fit(&self.budget, format)?;
        let words = match self.is_trigger_from_user(context).await? {
            true if shown.trigger().schema_name.as_deref() == Some(agents::REQUEST) => {
                shown.take_request("prompt")
            }
            true => shown.take_user_text(),
            false => None,
        };
        let render = || match &self.fence_key {
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

    /// Returns `true` if the trigger is a user message and the definition does not list chat messages as untrusted.
    async fn is_trigger_from_user(&self, context: &ExecutionContext) -> Result<bool, BoxError> {
        let mut untrusted = self.definition.trust.untrusted.iter();
        if untrusted.any(|schema| schema == CHAT_MESSAGE) {
            return Ok(false);
        }
        Ok(context.is_from_user().await?)
    }
}

/// Returns the instructions of an agent definition, followed by the answer's JSON Schema if the definition has such a schema.
fn with_schema(instructions: &str, output: Option<&Output>) -> String {
    match output {
        None => instructions.to_owned(),
        Some(output) => {
            let schema = &output.schema;
            let answer_format =
                format!("Answer with nothing but JSON that fits this schema: {schema}");
            match instructions.is_empty() {
                true => answer_format,
                false => format!("{instructions}\n\n{answer_format}"),
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

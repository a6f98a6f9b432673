//! Registry of the models, providers, tools, guardrails and limits that agents, workflows and stored definitions can
//! name.

mod agents;
#[cfg(feature = "workflows")]
mod limits;
mod not_registered;
#[cfg(feature = "workflows")]
mod workflows;

#[cfg(feature = "workflows")]
pub use limits::WorkflowLimits;
pub use not_registered::NotRegistered;

#[cfg(feature = "workflows")]
use crate::agent::guardrail::Guardrail;
use crate::agent::{ApiProvider, ChatModel, Provider};
use crate::store::BreadcrumbStore;
use crate::tool::{Tool, ToolDispatcher, ToolError, ToolRegistry};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Registry of everything that agents, workflows and stored definitions can name: models, providers, tools, guardrails and limits.
///
/// A definition can use only the entries of its `Services`. To give definitions different permissions, create separate
/// `Services`.
///
/// A clone is cheap. A later change of the original does not change the clone.
///
/// Pass it to [`Agent::bind_with`](crate::agent::Agent::bind_with), to stored definitions
/// ([`runtime::definitions`](crate::runtime::definitions)) and, with the feature `workflows`, to
/// workflows. An agent that names a missing entry does not start: the error is
/// [`NotRegistered`](crate::runtime::definitions::NotRegistered), with the registered names.
///
/// ```
/// use serde_json::json;
/// use universal_executor::agent::{Agent, ScriptedModel};
/// use universal_executor::tool::json_tool;
/// use universal_executor::{
///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Services, Subscription, UniversalExecutor,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let echo = json_tool("echo", "Repeats its input.", json!({}), |input, _| async move { Ok(input) });
/// let services = Services::new()
///     .model("small", ScriptedModel::new(["Hello, Ann!"]))
///     .tool(echo)?;
///
/// let store = MemoryStore::default();
/// let greeter = Agent::new("greeter", "small")
///     .on(Subscription::trigger("user.message.v1"))
///     .bind_with(&store, &services)?;
///
/// let message = store.create(NewBreadcrumb::new("user.message.v1").context(json!({"message": "I am Ann"}))).await?;
/// greeter.process_event(&Event::created(&message)).await?;
///
/// let response = store.latest("agent.response.v1").await?.ok_or("no response")?;
/// assert_eq!(response.context.text("message"), Some("Hello, Ann!"));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Default)]
pub struct Services {
    entries: Arc<Entries>,
}

#[derive(Clone, Default)]
struct Entries {
    tools: ToolRegistry,
    models: BTreeMap<String, Registered>,
    default_model: Option<Registered>,
    #[cfg(feature = "workflows")]
    guardrails: BTreeMap<String, Arc<dyn Guardrail>>,
    #[cfg(feature = "workflows")]
    limits: WorkflowLimits,
    model_tools: BTreeSet<String>,
}

/// A registered model or model provider. Both share one set of names.
#[derive(Clone)]
pub(crate) enum Registered {
    Model(Arc<dyn ChatModel>),
    Provider(Arc<dyn Provider>),
}

impl Registered {
    /// Returns the registered model provider, or a provider that calls the registered model.
    pub(crate) fn provider(&self) -> Arc<dyn Provider> {
        match self {
            Self::Model(model) => Arc::new(ApiProvider::new(Arc::clone(model))),
            Self::Provider(provider) => Arc::clone(provider),
        }
    }
}

impl Services {
    /// Creates a registry of services without entries, with the default limits for workflows.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a model under a name, by which agents, agent definitions and workflows select it. The name can be used
    /// in [`Agent::new`](crate::agent::Agent::new), the field `model` of an `agent.def.v1` definition, and the field
    /// `provider` in `models` of a workflow. Replaces a model or provider with the same name.
    ///
    /// Register one [`ChatModel`] under several names to give each a role, such as `small` and
    /// `large`.
    #[must_use]
    pub fn model(self, name: impl Into<String>, model: impl ChatModel + 'static) -> Self {
        self.with_model(name.into(), Registered::Model(Arc::new(model)))
    }

    /// Registers a model provider under a name, by which agents select it like a [`model`](Self::model). Workflow steps that call
    /// a model directly cannot use it: they need a model. Replaces a model or provider with the same name.
    #[must_use]
    pub fn provider(self, name: impl Into<String>, provider: impl Provider + 'static) -> Self {
        self.with_model(name.into(), Registered::Provider(Arc::new(provider)))
    }

    /// Sets the default model, for agents and for entries of a workflow's `models` that name no model. The field
    /// `provider` of such an entry names its model. Defaults to no model.
    ///
    /// A second call replaces the model. An agent definition without a model and without a default
    /// model is rejected with [`NotRegistered::NoDefaultModel`].
    #[must_use]
    pub fn default_model(mut self, model: impl ChatModel + 'static) -> Self {
        let model = Registered::Model(Arc::new(model));
        self.entries_mut().default_model = Some(model);
        self
    }

    /// Adds a tool that agents, workflows and stored definitions can name.
    ///
    /// # Errors
    /// Returns [`ToolError::BadName`], [`ToolError::BadSchema`], or [`ToolError::Duplicate`] with both registrations of
    /// the name.
    ///
    /// The tool is only available: an agent may call it if its definition or its code names it.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::Services;
    /// use universal_executor::tool::{ToolError, json_tool};
    ///
    /// let echo = || json_tool("echo", "Echoes.", json!({}), |input, _| async move { Ok(input) });
    /// let services = Services::new().tool(echo())?;
    ///
    /// assert!(matches!(services.tool(echo()), Err(ToolError::Duplicate { .. })));
    /// # Ok::<(), ToolError>(())
    /// ```
    #[track_caller]
    pub fn tool(mut self, tool: impl Tool + 'static) -> Result<Self, ToolError> {
        let entries = self.entries_mut();
        entries.tools = std::mem::take(&mut entries.tools).with(tool)?;
        Ok(self)
    }

    /// Adds the tools of a connected MCP server, under the names `<server>.<tool>`.
    ///
    /// The connection ends when `tools`, this registry and all users of the tools are dropped.
    ///
    /// # Errors
    /// The errors of [`tool`](Self::tool).
    #[cfg(feature = "mcp")]
    #[track_caller]
    pub fn mcp(mut self, tools: &crate::mcp::McpTools) -> Result<Self, ToolError> {
        let entries = self.entries_mut();
        entries.tools = tools.add_to(std::mem::take(&mut entries.tools))?;
        Ok(self)
    }

    /// Creates an executor that serves all registered tools, for requests in breadcrumbs and for MCP clients. `id` is its executor ID.
    ///
    /// # Errors
    /// The errors of [`ToolDispatcher::new`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{MemoryStore, Services, UniversalExecutor};
    ///
    /// let tools = Services::new().dispatcher("tools", &MemoryStore::default())?;
    /// assert_eq!(tools.id(), "tools");
    /// # Ok::<(), universal_executor::tool::ToolError>(())
    /// ```
    pub fn dispatcher<B>(
        &self,
        id: impl Into<String>,
        store: &B,
    ) -> Result<ToolDispatcher, ToolError>
    where
        B: BreadcrumbStore + Clone,
    {
        let tools = self.entries.tools.clone();
        ToolDispatcher::new(id, tools, Arc::new(store.clone()))
    }

    /// Replaces all tools that definitions can name, including the tools that were added before.
    ///
    /// Use it to share one [`ToolRegistry`] with other callers, so that the limits on concurrent
    /// calls are common.
    #[must_use]
    pub fn tools(mut self, tools: ToolRegistry) -> Self {
        self.entries_mut().tools = tools;
        self
    }

    /// Lets agents for RCRT (Right Context Right Time) servers reach their model through a tool of another service, for
    /// example `openrouter`. By the [rules of RCRT servers](crate::model::DefinitionOptions::rcrt), `llm_config_id` in
    /// a definition is the ID of a `tool.config.v1` breadcrumb, whose context has the tool name in `toolName` and an
    /// object `config` for the tool. Each request to the tool has that ID as `config_id`.
    ///
    /// The runtime reads the configuration when it loads the definition. A missing or malformed configuration rejects the
    /// definition with [`BadModelConfig`](crate::runtime::definitions::BadModelConfig), and the runtime retries at intervals. If
    /// no tool is registered with this method, `llm_config_id` has no effect.
    #[must_use]
    pub fn model_tool(mut self, name: impl Into<String>) -> Self {
        self.entries_mut().model_tools.insert(name.into());
        self
    }

    /// Returns the registered tools.
    pub(crate) fn tool_registry(&self) -> &ToolRegistry {
        &self.entries.tools
    }

    /// Returns the registered models and providers by name.
    pub(crate) fn models(&self) -> &BTreeMap<String, Registered> {
        &self.entries.models
    }

    /// Returns the default model, for agents and workflows that name no model.
    pub(crate) fn default_registered(&self) -> Option<&Registered> {
        self.entries.default_model.as_ref()
    }

    /// Returns the names of the registered tools through which agents call their models.
    pub(crate) fn model_tools(&self) -> &BTreeSet<String> {
        &self.entries.model_tools
    }

    /// Returns the registered model provider with this name, or a provider that calls the registered model with this name.
    ///
    /// # Errors
    /// Returns [`NotRegistered::Name`] with the nearest name.
    pub(crate) fn find_provider(&self, name: &str) -> Result<Arc<dyn Provider>, NotRegistered> {
        match self.models().get(name) {
            Some(found) => Ok(found.provider()),
            None => {
                let known = self.models().keys().map(String::as_str);
                Err(NotRegistered::of("model", name, known))
            }
        }
    }

    /// Returns a provider that calls the default model.
    ///
    /// # Errors
    /// Returns [`NotRegistered::NoDefaultModel`].
    pub(crate) fn default_provider(&self) -> Result<Arc<dyn Provider>, NotRegistered> {
        let default = self.default_registered();
        let default = default.ok_or(NotRegistered::NoDefaultModel)?;
        Ok(default.provider())
    }

    /// Returns the tool that is registered under this name, with its registered name and description even if a workflow changes
    /// them.
    ///
    /// # Errors
    /// Returns [`NotRegistered::Name`] with the nearest name.
    pub(crate) fn find_tool(&self, name: &str) -> Result<Arc<dyn Tool>, NotRegistered> {
        let tools = self.tool_registry();
        let tool = tools.registered_tool(name);
        tool.ok_or_else(|| NotRegistered::of("tool", name, tools.names()))
    }

    /// Checks that the tool with this name is registered for agents to call their models through it.
    ///
    /// # Errors
    /// Returns [`NotRegistered::ModelTool`] with the registered names.
    pub(crate) fn check_model_tool(&self, name: &str) -> Result<(), NotRegistered> {
        let tools = self.model_tools();
        match tools.contains(name) {
            true => Ok(()),
            false => Err(NotRegistered::model_tool(
                name,
                tools.iter().map(String::as_str),
            )),
        }
    }

    fn with_model(mut self, name: String, registered: Registered) -> Self {
        self.entries_mut().models.insert(name, registered);
        self
    }

    /// Returns mutable access to the models, tools, guardrails and limits of this registry. Clones of the registry retain the old
    /// entries.
    fn entries_mut(&mut self) -> &mut Entries {
        Arc::make_mut(&mut self.entries)
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = &*self.entries;
        let mut debug = f.debug_struct("Services");
        debug
            .field("tools", &entries.tools.names())
            .field("models", &entries.models.keys())
            .field("has_default_model", &entries.default_model.is_some());
        #[cfg(feature = "workflows")]
        debug
            .field("guardrails", &entries.guardrails.keys())
            .field("limits", &entries.limits);
        debug.field("model_tools", &entries.model_tools).finish()
    }
}

#[cfg(test)]
mod tests;

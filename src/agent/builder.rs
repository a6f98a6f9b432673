//! Builder for agents that are defined in code.

use super::definition::approval_entry;
use super::guardrail::Guardrails;
use super::{
    AgentCapabilities, AgentDefinition, AgentError, AgentExecutor, AgentModel, AgentRef,
    ApiProvider, Budgets, IntoModel, OutputSlot, Provider, ToolCalls, Trust, WaitSeconds,
};
use crate::error::excerpt;
use crate::executor::{ContextBudget, FenceKey, Format, Profile, check_roles};
use crate::model::{Json, Subscription};
use crate::store::BreadcrumbStore;
use crate::tool::{Approval, Tool, ToolRegistry};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;

/// Builder of an agent, with a method for each field of an [agent definition](AgentDefinition).
///
/// Builder and JSON definition create the same agent: [`definition`](Self::definition) returns the JSON definition of the builder.
///
/// ```
/// use serde_json::json;
/// use universal_executor::agent::{Agent, ScriptedModel};
/// use universal_executor::{
///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Subscription, UniversalExecutor,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let greeter = Agent::new("greeter", ScriptedModel::new(["Hello, Ann!"]))
///     .instructions("Greet the user.")
///     .on(Subscription::trigger("user.message.v1"))
///     .bind(&store)?;
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
#[must_use = "an agent does nothing until a runtime runs it"]
pub struct Agent {
    /// The JSON fields of the agent definition, except `subscriptions`. Without `tools`, the definition names all tools of the builder.
    fields: Map<String, Value>,
    triggers: Vec<Subscription>,
    sources: Vec<Subscription>,
    tools: ToolRegistry,
    /// The first invalid argument of a builder method, as an error.
    problem: Option<AgentError>,
    provider: Chosen,
    context_budget: Option<ContextBudget>,
    profile: Option<Profile>,
    guardrails: Guardrails,
    fence_key: Option<FenceKey>,
}

/// The model provider that an agent builder uses, or the name of a registered model or provider.
enum Chosen {
    Provider(Arc<dyn Provider>),
    /// The name under which the services of the runtime contain the model or provider.
    Named(String),
}

impl Agent {
    /// Creates an agent builder from the agent ID and a model. The agent ID is also the executor ID, which must be unique among the
    /// executors of a store.
    ///
    /// `model` is a [`ChatModel`](super::ChatModel), or the name of a model or provider in the [`Services`](crate::Services). An agent
    /// with a name needs [`RuntimeBuilder::services`](crate::runtime::RuntimeBuilder::services) or [`bind_with`](Self::bind_with). The
    /// name is not part of the definition; [`model`](Self::model) sets the field `model`.
    pub fn new(id: impl Into<String>, model: impl IntoModel) -> Self {
        let provider = match model.into_model() {
            AgentModel::Model(model) => Chosen::Provider(Arc::new(ApiProvider::new(model))),
            AgentModel::Named(name) => Chosen::Named(name),
        };
        Self::of(id.into(), provider)
    }

    /// Creates an agent builder with any [`Provider`], such as an external program or another service. A program (`CliProvider`, feature
    /// `cli`) calls its tools over HTTP. Another service receives the model requests as breadcrumbs
    /// ([`BreadcrumbModel`](super::BreadcrumbModel)).
    pub fn with_provider(id: impl Into<String>, provider: impl Provider + 'static) -> Self {
        Self::of(id.into(), Chosen::Provider(Arc::new(provider)))
    }

    fn of(id: String, provider: Chosen) -> Self {
        let agent = Self {
            fields: Map::new(),
            triggers: Vec::new(),
            sources: Vec::new(),
            tools: ToolRegistry::default(),
            problem: None,
            provider,
            context_budget: None,
            profile: None,
            guardrails: Guardrails::default(),
            fence_key: None,
        };
        agent.field("agent_id", id)
    }

    /// Returns the ID of the agent, which is also its executor ID.
    #[must_use]
    pub fn id(&self) -> &str {
        let id = self.fields.get("agent_id").and_then(Value::as_str);
        id.unwrap_or_default()
    }

    /// Sets the system prompt: the instructions of the agent's author to the model.
    pub fn instructions(self, text: impl Into<String>) -> Self {
        self.field("system_prompt", text.into())
    }

    /// Adds a trigger subscription. Each breadcrumb version that matches starts a run.
    pub fn on(mut self, trigger: Subscription) -> Self {
        self.triggers.push(trigger);
        self
    }

    /// Adds a context subscription. The model sees the matching breadcrumbs as data.
    pub fn reads(mut self, source: Subscription) -> Self {
        self.sources.push(source);
        self
    }

    /// Adds a tool that the agent may call.
    #[track_caller]
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        let name = tool.name().to_owned();
        match self.tools.clone().with(tool) {
            Ok(tools) => self.tools = tools,
            Err(source) => {
                self.problem.get_or_insert(AgentError::BadTool {
                    tool: name,
                    source: Box::new(source),
                });
            }
        }
        self
    }

    /// Lets the agent call the named tools of a registry, in this order.
    #[cfg(feature = "workflows")]
    pub(crate) fn tools_of(mut self, registry: &ToolRegistry, names: &[String]) -> Self {
        self.tools = registry.clone();
        self.field("tools", names)
    }

    /// Sets the schemas of the breadcrumbs that the agent may write. Defaults to `agent.response.v1`.
    pub fn responds_with<T: Into<String>>(self, schemas: impl IntoIterator<Item = T>) -> Self {
        self.field("responds_with", list(schemas))
    }

    /// Sets the name of the agent's model at its provider. Defaults to the name that the [`ChatModel`](super::ChatModel) was built with.
    pub fn model(self, name: impl Into<String>) -> Self {
        self.field("model", name.into())
    }

    /// Sets the sampling temperature of the agent's model. The range depends on the model, usually 0 to 2. Defaults to that of the
    /// provider.
    pub fn temperature(mut self, temperature: f64) -> Self {
        if !temperature.is_finite() {
            self.problem.get_or_insert(AgentError::Field {
                field: "temperature",
                expected: "a finite number",
            });
        }
        self.field("temperature", temperature)
    }

    /// Sets the format in which the model sees the trigger and the context. Defaults to Markdown.
    pub fn context_format(self, format: Format) -> Self {
        self.field("context_format", format.as_str())
    }

    /// Sets the maximum size of the trigger and the context in the model's input.
    pub fn context_budget(mut self, budget: ContextBudget) -> Self {
        let fields = budget.fields();
        self.context_budget = Some(budget);
        self.field("context_budget", fields)
    }

    /// Lets the agent answer with [actions](crate::agent#actions) that write breadcrumbs.
    pub fn capabilities(self, capabilities: AgentCapabilities) -> Self {
        self.field("capabilities", capabilities)
    }

    /// Sets the schemas with private data, the schemas with untrusted content, and the schemas whose breadcrumbs leave the system. Defaults
    /// to none.
    pub fn trust(self, trust: Trust) -> Self {
        self.field("trust", trust)
    }

    /// Sets the maximum number of requests to the model in one run. Defaults to 10. The minimum is 1.
    pub fn max_turns(self, turns: u32) -> Self {
        self.field("max_turns", turns)
    }

    /// Sets the limits of one run for tokens, tool calls and time. Defaults to no limits.
    pub fn budgets(self, budgets: Budgets) -> Self {
        self.field("budgets", budgets)
    }

    /// Sets the JSON Schema of the agent's answers. Defaults to any text.
    pub fn output_schema(self, schema: impl Into<Json>) -> Self {
        self.field("output_schema", schema.into())
    }

    /// Sets the way in which tools are called: in the process of the run, or by `tool.request.v1` breadcrumbs. Defaults to in-process.
    pub fn tool_calls(self, calls: ToolCalls) -> Self {
        self.field("tool_calls", calls)
    }

    /// Sets the tools whose results are the agent's answer, unless the model calls other tools in the same turn.
    pub fn returns_to_user<T: Into<String>>(self, tools: impl IntoIterator<Item = T>) -> Self {
        self.field("return_to_user", list(tools))
    }

    /// Adds an agent that this agent may call like a tool. The tool name is the ID of the added agent. `description` tells the model when
    /// to call the tool.
    pub fn uses(self, agent: impl Into<String>, description: impl Into<String>) -> Self {
        self.agent_in("use", agent.into(), given(description.into()))
    }

    /// Adds an agent that this agent may call with the tool `handoff-to-<id>`. The added agent executes its own run, and its answer is the
    /// result of the tool call.
    pub fn hands_off_to(self, agent: impl Into<String>, description: impl Into<String>) -> Self {
        self.agent_in("handoff", agent.into(), given(description.into()))
    }

    /// Adds an agent to which this agent may delegate the rest of the run. The answer of that agent is the answer of the run.
    pub fn delegates_to(self, agent: impl Into<String>, description: impl Into<String>) -> Self {
        self.agent_in("delegate", agent.into(), given(description.into()))
    }

    /// Adds an [output](crate::agent#outputs) that the agent submits in addition to its answer.
    pub fn output(self, output: OutputSlot) -> Self {
        self.push("outputs", output)
    }

    /// Sets the maximum number of reminders of a missing required output in one run. Defaults to 1.
    pub fn reminders(self, reminders: u32) -> Self {
        self.field("reminders", reminders)
    }

    /// Adds tools whose calls all need the [approval of a person](crate::agent#people).
    pub fn needs_approval<T: Into<String>>(self, tools: impl IntoIterator<Item = T>) -> Self {
        let tools = list(tools).into_iter().map(Value::from);
        self.approval_tools(tools.collect())
    }

    /// Adds a rule that selects the calls of one tool that need the [approval of a person](crate::agent#people). The rules in the [settings
    /// of the tool](crate::tool::ToolSettings::approvals) apply, too.
    ///
    /// A condition in code cannot be part of a definition. Give a rule with [`Approval::when`] to the tool instead.
    pub fn approval_rule(mut self, tool: impl Into<String>, rule: Approval) -> Self {
        let Some(entry) = approval_entry(tool.into(), rule) else {
            self.problem.get_or_insert(AgentError::Field {
                field: "approval",
                expected: "rules without a condition in code; give such a rule to the tool with needs_approval",
            });
            return self;
        };
        self.approval_tools(vec![entry])
    }

    /// Sets the approvers, by name or as `role:<name>`, for rules without approvers. Defaults to all people.
    pub fn approved_by<T: Into<String>>(self, people: impl IntoIterator<Item = T>) -> Self {
        let people = list(people);
        self.approval("by", people.into())
    }

    /// Sets the timeouts of an agent run's requests to people, to other agents, and to a model of another service. Defaults to one day, one
    /// hour and ten minutes.
    pub fn wait_seconds(self, wait: WaitSeconds) -> Self {
        self.field("wait_seconds", wait)
    }

    /// Changes the settings of the agent's runs, such as the lease, the timeout or a rate limit. The kind, the
    /// definition and the schemas of the profile always come from the agent definition.
    ///
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::agent::{Agent, ScriptedModel};
    ///
    /// let agent = Agent::new("helper", ScriptedModel::new(["Hello!"]))
    ///     .profile(|profile| profile.lease(Duration::from_secs(5)));
    /// # drop(agent);
    /// ```
    pub fn profile(mut self, change: impl FnOnce(Profile) -> Profile) -> Self {
        self.profile = Some(change(self.profile.unwrap_or_default()));
        self
    }

    /// Sets the checks of model input, model output and tool calls. Defaults to none.
    pub fn guardrails(mut self, guardrails: Guardrails) -> Self {
        self.guardrails = guardrails;
        self
    }

    /// Sets the secret key from which the marks around data in the model's input are derived. The marks separate data from instructions,
    /// and authors of data cannot predict the marks. Workers with the same key send the same bytes and share a prompt cache. Defaults to a
    /// random key for each process.
    pub fn fence_key(mut self, key: FenceKey) -> Self {
        self.fence_key = Some(key);
        self
    }

    /// Returns the agent definition in JSON: the context of an `agent.def.v1` breadcrumb.
    ///
    /// # Errors
    /// [`AgentError`] for the first argument that cannot be used.
    pub fn definition(mut self) -> Result<Value, AgentError> {
        self.take_definition()
    }

    fn take_definition(&mut self) -> Result<Value, AgentError> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }
        let mut fields = std::mem::take(&mut self.fields);
        let id = fields.get("agent_id").and_then(Value::as_str);
        let (triggers, sources) = (&self.triggers, &self.sources);
        let subscriptions = check_roles(id.unwrap_or_default(), triggers, sources)?;
        let subscriptions = json("subscriptions", &subscriptions)?;
        fields.insert("subscriptions".to_owned(), subscriptions);
        if !fields.contains_key("tools") {
            let tools = json("tools", &self.tools.names())?;
            fields.insert("tools".to_owned(), tools);
        }
        Ok(Value::Object(fields))
    }

    /// Creates the executor of the agent on a store, for a [`Runtime`](crate::Runtime) or for a unit test that calls
    /// [`process_event`](crate::UniversalExecutor::process_event). The store handle is cloned.
    ///
    /// # Errors
    /// - [`AgentError::NamedModel`] if the agent names its model: use [`bind_with`](Self::bind_with).
    /// - [`AgentError::Invalid`] if the store lacks a feature that the agent needs.
    /// - Another [`AgentError`] for the first argument that cannot be used.
    pub fn bind<B>(self, store: &B) -> Result<AgentExecutor, AgentError>
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        self.bind_shared(Arc::new(store.clone()))
    }

    /// Creates the executor of the agent on a shared store.
    ///
    /// # Errors
    /// See [`bind`](Self::bind).
    pub(crate) fn bind_shared(
        self,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<AgentExecutor, AgentError> {
        self.bind_found(store, |agent, model| {
            Err(AgentError::NamedModel {
                agent: agent.to_owned(),
                model: excerpt(model, 80).into_owned(),
            })
        })
    }

    /// Creates the executor of the agent on a store. If the agent names its model, `find` receives the agent ID and the model name, and
    /// returns the provider.
    pub(crate) fn bind_found(
        mut self,
        store: Arc<dyn BreadcrumbStore>,
        find: impl FnOnce(&str, &str) -> Result<Arc<dyn Provider>, AgentError>,
    ) -> Result<AgentExecutor, AgentError> {
        let definition = AgentDefinition::from_json(&self.take_definition()?)?;
        let provider = match self.provider {
            Chosen::Provider(provider) => provider,
            Chosen::Named(model) => find(&definition.agent_id, &model)?,
        };
        let agent = AgentExecutor::with_provider(definition, provider, store, &self.tools)?;
        let mut agent = agent.with_guardrails(self.guardrails);
        if let Some(budget) = self.context_budget {
            agent = agent.with_context_budget(budget);
        }
        if let Some(profile) = self.profile {
            agent = agent.with_profile(profile);
        }
        if let Some(key) = self.fence_key {
            agent = agent.with_fence_key(key);
        }
        Ok(agent)
    }

    /// Sets a field of the builder's agent definition.
    fn field(mut self, name: &'static str, value: impl Serialize) -> Self {
        match json(name, &value) {
            Ok(value) => {
                self.fields.insert(name.to_owned(), value);
            }
            Err(problem) => {
                self.problem.get_or_insert(problem);
            }
        }
        self
    }

    /// Adds an item to a list in the builder's agent definition.
    fn push(mut self, name: &'static str, item: impl Serialize) -> Self {
        let mut items = match self.fields.remove(name) {
            Some(Value::Array(items)) => items,
            Some(_) | None => Vec::new(),
        };
        match json(name, &item) {
            Ok(item) => items.push(item),
            Err(problem) => {
                self.problem.get_or_insert(problem);
            }
        }
        self.field(name, items)
    }

    /// Adds another agent to the list `use`, `handoff` or `delegate` of the builder's agent definition.
    pub(crate) fn agent_in(
        self,
        list: &'static str,
        agent: String,
        description: Option<String>,
    ) -> Self {
        self.push(list, AgentRef { agent, description })
    }

    /// Adds rules to the list `approval.tools` of the agent definition.
    fn approval_tools(self, entries: Vec<Value>) -> Self {
        let approval = self.fields.get("approval");
        let tools = approval.and_then(|approval| approval.get("tools"));
        let mut tools = match tools {
            Some(Value::Array(tools)) => tools.clone(),
            Some(_) | None => Vec::new(),
        };
        tools.extend(entries);
        self.approval("tools", tools.into())
    }

    /// Sets a field of the object `approval` in the agent definition.
    fn approval(mut self, part: &'static str, value: Value) -> Self {
        let mut approval = match self.fields.remove("approval") {
            Some(Value::Object(approval)) => approval,
            Some(_) | None => Map::new(),
        };
        approval.insert(part.to_owned(), value);
        self.field("approval", approval)
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("id", &self.fields.get("agent_id"))
            .field("tools", &self.tools.names())
            .finish_non_exhaustive()
    }
}

fn given(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn list<T: Into<String>>(items: impl IntoIterator<Item = T>) -> Vec<String> {
    items.into_iter().map(Into::into).collect()
}

fn json(field: &'static str, value: &impl Serialize) -> Result<Value, AgentError> {
    let expected = "a value that JSON can contain";
    serde_json::to_value(value).map_err(|_| AgentError::Field { field, expected })
}

#[cfg(test)]
mod tests;

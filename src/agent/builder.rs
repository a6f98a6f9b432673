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
/// The ID and one [trigger](Self::on) are enough. A method without an error return stores the first
/// invalid argument, and [`definition`](Self::definition) and [`bind`](Self::bind) report it.
///
/// Pass the builder to [`RuntimeBuilder::agent`](crate::runtime::RuntimeBuilder::agent), which
/// binds the agent to the runtime's store. In a test or without a runtime, call
/// [`bind`](Self::bind).
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
    /// The JSON fields of the agent definition other than `subscriptions`. Without `tools`, the definition names all tools of the
    /// builder.
    fields: Map<String, Value>,
    triggers: Vec<Subscription>,
    sources: Vec<Subscription>,
    tools: ToolRegistry,
    /// The first invalid argument of a builder method, as an error.
    problem: Option<AgentError>,
    provider: ProviderChoice,
    context_budget: Option<ContextBudget>,
    profile: Option<Profile>,
    guardrails: Guardrails,
    fence_key: Option<FenceKey>,
}

/// The model provider that an agent builder uses, or the name of a registered model or provider.
enum ProviderChoice {
    Provider(Arc<dyn Provider>),
    /// The name with which the model or provider is registered in the [`Services`](crate::Services).
    Named(String),
}

impl Agent {
    /// Creates an agent builder from the agent ID and a model. The agent ID is also the executor ID, which must be unique among the
    /// executors of a store.
    ///
    /// `model` is a [`ChatModel`](super::ChatModel), or the name of a model or provider in the [`Services`](crate::Services). An agent
    /// with a name needs [`RuntimeBuilder::services`](crate::runtime::RuntimeBuilder::services) or [`bind_with`](Self::bind_with). The
    /// name is not part of the definition; [`model`](Self::model) sets the field `model`.
    ///
    /// The ID has 1 to 256 bytes and no control characters. A change of the ID makes another
    /// executor: the new executor does not continue the runs of the old one.
    ///
    /// # Examples
    /// A model in code, and the name of a model in the services:
    /// ```
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::{MemoryStore, Services, Subscription};
    ///
    /// let store = MemoryStore::default();
    /// let trigger = || Subscription::trigger("user.message.v1");
    /// let fixed = Agent::new("greeter", ScriptedModel::new(["Hello!"]));
    /// let fixed = fixed.on(trigger()).bind(&store)?;
    /// assert_eq!(fixed.definition().agent_id, "greeter");
    ///
    /// let services = Services::new().model("small", ScriptedModel::new(["Hello!"]));
    /// let named = Agent::new("helper", "small").on(trigger());
    /// assert!(named.bind_with(&store, &services).is_ok());
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn new(id: impl Into<String>, model: impl IntoModel) -> Self {
        let provider = match model.into_model() {
            AgentModel::Model(model) => ProviderChoice::Provider(Arc::new(ApiProvider::new(model))),
            AgentModel::Named(name) => ProviderChoice::Named(name),
        };
        Self::of(id.into(), provider)
    }

    /// Creates an agent builder with any [`Provider`], such as an external program or another service. A program (`CliProvider`, feature
    /// `cli`) calls its tools over HTTP. Another service receives the model requests as breadcrumbs
    /// ([`BreadcrumbModel`](super::BreadcrumbModel)).
    ///
    /// To share one provider between agents, pass an `Arc` of it.
    ///
    /// # Examples
    /// The model of this agent is the tool `openrouter` of another service:
    /// ```
    /// use universal_executor::agent::{Agent, BreadcrumbModel};
    /// use universal_executor::{MemoryStore, Subscription};
    ///
    /// let greeter = Agent::with_provider("greeter", BreadcrumbModel::new("openrouter"))
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .bind(&MemoryStore::default())?;
    /// assert_eq!(greeter.definition().agent_id, "greeter");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn with_provider(id: impl Into<String>, provider: impl Provider + 'static) -> Self {
        Self::of(id.into(), ProviderChoice::Provider(Arc::new(provider)))
    }

    fn of(id: String, provider: ProviderChoice) -> Self {
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
    ///
    /// The method does not check the ID.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::Agent;
    ///
    /// assert_eq!(Agent::new("helper", "small").id(), "helper");
    /// ```
    #[must_use]
    pub fn id(&self) -> &str {
        let id = self.fields.get("agent_id").and_then(Value::as_str);
        id.unwrap_or_default()
    }

    /// Sets the system prompt: the instructions of the agent's author to the model.
    ///
    /// A second call replaces the text. Without instructions, the definition has a warning, and the
    /// model receives only the data and the trigger. Do not put the text of users here, because the
    /// model reads the system prompt as instructions.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::Agent;
    ///
    /// let definition = Agent::new("helper", "small")
    ///     .instructions("Answer in one sentence.")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .definition()?;
    /// assert_eq!(definition["system_prompt"], "Answer in one sentence.");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn instructions(self, text: impl Into<String>) -> Self {
        self.field("system_prompt", text.into())
    }

    /// Adds a trigger subscription: each breadcrumb version that matches starts a run of the agent.
    ///
    /// An agent needs at least one trigger. Each call adds another one, and one breadcrumb that
    /// matches several triggers starts one run. A [`Subscription::context`] here is an error of
    /// [`bind`](Self::bind); pass it to [`reads`](Self::reads).
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::Agent;
    ///
    /// let definition = Agent::new("helper", "small")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .on(Subscription::trigger("mail.v1").any_tags(["inbox"]))
    ///     .definition()?;
    /// assert_eq!(definition["subscriptions"].as_array().map(Vec::len), Some(2));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn on(mut self, trigger: Subscription) -> Self {
        self.triggers.push(trigger);
        self
    }

    /// Adds a context subscription: the model receives the matching breadcrumbs as data in each run.
    ///
    /// Each attempt reads the matching breadcrumbs again; a new match starts no run. The name of
    /// the data in the model's input is the [key](Subscription::key) of the subscription. The hints
    /// of the breadcrumb and the [context budget](Self::context_budget) limit the data.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::Agent;
    ///
    /// let definition = Agent::new("helper", "small")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .reads(Subscription::context("web.page.v1").key("page"))
    ///     .definition()?;
    /// assert_eq!(definition["subscriptions"][1]["key"], "page");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn reads(mut self, source: Subscription) -> Self {
        self.sources.push(source);
        self
    }

    /// Adds a tool that the agent may call.
    ///
    /// The settings of the tool apply to each call: its timeout, its approvals and its safety of
    /// retries. A tool that runs at most once needs a store with a ledger. An invalid name or
    /// schema, or a second tool with one name, is [`AgentError::BadTool`] of [`bind`](Self::bind).
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::Agent;
    /// use universal_executor::tool::json_tool;
    ///
    /// let echo = json_tool("echo", "Repeats its input.", json!({}), |input, _| async move {
    ///     Ok(input)
    /// });
    /// let definition = Agent::new("helper", "small")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .tool(echo)
    ///     .definition()?;
    /// assert_eq!(definition["tools"], json!(["echo"]));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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

    /// Lets the agent call those tools of a registry whose names are in `names`. The definition lists the tools in the order of
    /// `names`.
    #[cfg(feature = "workflows")]
    pub(crate) fn with_registered_tools(
        mut self,
        registry: &ToolRegistry,
        names: &[String],
    ) -> Self {
        self.tools = registry.clone();
        self.field("tools", names)
    }

    /// Sets the schemas of the breadcrumbs that the agent may write. Defaults to `agent.response.v1`.
    ///
    /// The schemas limit the breadcrumbs of the agent and of its tools. A second call replaces the
    /// list. Without [`capabilities`](Self::capabilities) the list must contain
    /// `agent.response.v1`.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::Agent;
    ///
    /// let definition = Agent::new("helper", "small")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .responds_with(["agent.response.v1", "note.v1"])
    ///     .definition()?;
    /// assert_eq!(definition["responds_with"], json!(["agent.response.v1", "note.v1"]));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn responds_with<T: Into<String>>(self, schemas: impl IntoIterator<Item = T>) -> Self {
        self.field("responds_with", list(schemas))
    }

    /// Sets the model name that the agent's requests to its model provider contain. Defaults to the name that the
    /// [`ChatModel`](super::ChatModel) was built with.
    ///
    /// Use this if one connection serves several models. The name does not select a registered
    /// model; the argument of [`new`](Self::new) does.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::Agent;
    ///
    /// let definition = Agent::new("helper", "openai")
    ///     .model("gpt-5-mini")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .definition()?;
    /// assert_eq!(definition["model"], "gpt-5-mini");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn model(self, name: impl Into<String>) -> Self {
        self.field("model", name.into())
    }

    /// Sets the sampling temperature of the agent's model. The range depends on the model, usually 0 to 2. Defaults to that of the
    /// provider.
    ///
    /// A value that is not finite is [`AgentError::Field`] of [`bind`](Self::bind). The crate does
    /// not check the range; a provider that rejects the value can end the run with
    /// [`ModelError::Rejected`](super::ModelError::Rejected).
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::Agent;
    ///
    /// let agent = || Agent::new("helper", "small").on(Subscription::trigger("user.message.v1"));
    /// assert_eq!(agent().temperature(0.2).definition()?["temperature"], 0.2);
    /// assert!(agent().temperature(f64::NAN).definition().is_err());
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn temperature(mut self, temperature: f64) -> Self {
        if !temperature.is_finite() {
            self.problem.get_or_insert(AgentError::Field {
                field: "temperature",
                expected: "a finite number",
            });
        }
        self.field("temperature", temperature)
    }

    /// Sets the text format, Markdown or XML, of the trigger and context breadcrumbs in the model's input. Defaults to Markdown.
    ///
    /// The format changes only the text that the model reads.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::Agent;
    /// use universal_executor::{Format, Subscription};
    ///
    /// let definition = Agent::new("helper", "small")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .context_format(Format::Xml)
    ///     .definition()?;
    /// assert_eq!(definition["context_format"], "xml");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn context_format(self, format: Format) -> Self {
        self.field("context_format", format.as_str())
    }

    /// Sets the maximum size of the trigger and context breadcrumbs in the model's input.
    ///
    /// Defaults to 100,000 estimated tokens, without a limit on bytes and items. A token counter of
    /// the budget applies to the bound agent, and is not part of the JSON definition. Earlier turns
    /// of a chat session, tools and the system prompt do not count.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::Agent;
    /// use universal_executor::{ContextBudget, Subscription};
    ///
    /// let definition = Agent::new("helper", "small")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .context_budget(ContextBudget::default().tokens(8_000).items_per_source(20))
    ///     .definition()?;
    /// assert_eq!(definition["context_budget"]["tokens"], 8_000);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn context_budget(mut self, budget: ContextBudget) -> Self {
        let fields = budget.fields();
        self.context_budget = Some(budget);
        self.field("context_budget", fields)
    }

    /// Lets the agent answer with [actions](crate::agent#actions) that write breadcrumbs.
    ///
    /// Without this call every answer is text, even if it has the form of an action. List the
    /// schemas that an action may write in [`responds_with`](Self::responds_with).
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::{Agent, AgentCapabilities};
    ///
    /// let mut capabilities = AgentCapabilities::default();
    /// capabilities.can_update_own = true;
    /// let definition = Agent::new("notes", "small")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .responds_with(["agent.response.v1", "note.v1"])
    ///     .capabilities(capabilities)
    ///     .definition()?;
    /// assert_eq!(definition["capabilities"]["can_update_own"], true);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn capabilities(self, capabilities: AgentCapabilities) -> Self {
        self.field("capabilities", capabilities)
    }

    /// Marks the schemas whose breadcrumbs contain private data, contain untrusted content, or leave the system. Defaults to
    /// none.
    ///
    /// [`bind`](Self::bind) then logs a warning if the agent combines all three; see
    /// [`AgentExecutor::lethal_trifecta`]. With `user.message.v1` in `untrusted`, the model
    /// receives chat messages as data.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::{Agent, Trust};
    ///
    /// let mut trust = Trust::default();
    /// trust.untrusted = vec!["mail.v1".to_owned()];
    /// let definition = Agent::new("helper", "small")
    ///     .on(Subscription::trigger("mail.v1"))
    ///     .trust(trust)
    ///     .definition()?;
    /// assert_eq!(definition["trust"]["untrusted"][0], "mail.v1");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn trust(self, trust: Trust) -> Self {
        self.field("trust", trust)
    }

    /// Sets the maximum number of requests to the model in one run. Defaults to 10. The minimum is 1.
    ///
    /// The number counts all attempts of a run together. A run that reaches it without an answer
    /// fails with [`AgentRunError::TurnsUsedUp`](super::AgentRunError::TurnsUsedUp). For an
    /// external program, a turn is one start of the program. Zero is [`AgentError::Field`] of
    /// [`bind`](Self::bind).
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::Agent;
    ///
    /// let definition = Agent::new("helper", "small")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .max_turns(4)
    ///     .definition()?;
    /// assert_eq!(definition["max_turns"], 4);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn max_turns(self, turns: u32) -> Self {
        self.field("max_turns", turns)
    }

    /// Sets the limits of one run for tokens, tool calls and time. Defaults to no limits.
    ///
    /// A run that uses up a budget without an answer fails with
    /// [`AgentRunError::BudgetUsedUp`](super::AgentRunError::BudgetUsedUp). A limit of zero is
    /// [`AgentError::Field`] of [`bind`](Self::bind).
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::{Agent, Budgets};
    ///
    /// let mut budgets = Budgets::default();
    /// budgets.tokens = Some(50_000);
    /// budgets.seconds = Some(300);
    /// let definition = Agent::new("helper", "small")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .budgets(budgets)
    ///     .definition()?;
    /// assert_eq!(definition["budgets"]["seconds"], 300);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn budgets(self, budgets: Budgets) -> Self {
        self.field("budgets", budgets)
    }

    /// Sets the JSON Schema of the agent's answers. Defaults to any text.
    ///
    /// The response then has the value in `output`. The model may correct one invalid answer; the
    /// run fails with [`AgentRunError::BadOutput`](super::AgentRunError::BadOutput) after a second
    /// one. The feature `validate` checks the value against the schema. Without it, any JSON value
    /// counts.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Subscription, UniversalExecutor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let judge = Agent::new("judge", ScriptedModel::new([r#"It is {"score": 7}."#]))
    ///     .on(Subscription::trigger("essay.v1"))
    ///     .output_schema(json!({"type": "object", "required": ["score"]}))
    ///     .bind(&store)?;
    /// let essay = store.create(NewBreadcrumb::new("essay.v1")).await?;
    /// judge.process_event(&Event::created(&essay)).await?;
    ///
    /// let response = store.latest("agent.response.v1").await?.ok_or("no response")?;
    /// assert_eq!(response.context["output"], json!({"score": 7}));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn output_schema(self, schema: impl Into<Json>) -> Self {
        self.field("output_schema", schema.into())
    }

    /// Sets the way in which tools are called: by the worker process that executes the run, or by `tool.request.v1` breadcrumbs.
    /// Defaults to in-process.
    ///
    /// With [`ToolCalls::Breadcrumbs`] another process can serve the tools, and the store of the
    /// agent needs a ledger, because the run waits for the responses.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::{Agent, ToolCalls};
    ///
    /// let definition = Agent::new("helper", "small")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .tool_calls(ToolCalls::Breadcrumbs)
    ///     .definition()?;
    /// assert_eq!(definition["tool_calls"], "breadcrumbs");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn tool_calls(self, calls: ToolCalls) -> Self {
        self.field("tool_calls", calls)
    }

    /// Sets the tools whose results are the agent's answer, unless the same model answer also calls other tools.
    ///
    /// This saves the model request after the call. If a call fails, the model receives all results
    /// instead. A second call of this method replaces the list. Add the tools with
    /// [`tool`](Self::tool); another name is [`AgentError::UnknownTool`] of [`bind`](Self::bind).
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::tool::json_tool;
    /// use universal_executor::{MemoryStore, Subscription};
    ///
    /// let time = json_tool("time", "Returns the time.", json!({}), |_, _| async {
    ///     Ok(json!("12:00"))
    /// });
    /// let clock = Agent::new("clock", ScriptedModel::calling("time", json!({}), "unused"))
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .tool(time)
    ///     .returns_to_user(["time"])
    ///     .bind(&MemoryStore::default())?;
    /// assert_eq!(clock.definition().return_to_user, ["time"]);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn returns_to_user<T: Into<String>>(self, tools: impl IntoIterator<Item = T>) -> Self {
        self.field("return_to_user", list(tools))
    }

    /// Adds an agent that this agent may call like a tool. The tool name is the ID of the added agent. `description` tells the model when
    /// to call the tool.
    ///
    /// An empty description is omitted. The other agent answers each call in a separate run. The
    /// calling run waits up to an hour by default; see [`wait_seconds`](Self::wait_seconds). The
    /// store needs a ledger. The other agent subscribes to
    /// [`agent.request.v1`](crate::agent#other-agents).
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::{MemoryStore, Subscription};
    ///
    /// let desk = Agent::new("desk", ScriptedModel::new(["Done."]))
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .uses("translator", "Translates a text to English.")
    ///     .bind(&MemoryStore::default())?;
    /// assert_eq!(desk.definition().uses[0].agent, "translator");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn uses(self, agent: impl Into<String>, description: impl Into<String>) -> Self {
        self.add_agent_ref("use", agent.into(), non_empty(description.into()))
    }

    /// Adds an agent that this agent can call with the tool `handoff-to-<id>`, and whose answer is the result of the tool call.
    /// The added agent executes its own run.
    ///
    /// Use it like [`uses`](Self::uses); only the name and the description for the model differ.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::{MemoryStore, Subscription};
    ///
    /// let desk = Agent::new("desk", ScriptedModel::new(["Done."]))
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .hands_off_to("billing", "Knows all invoices.")
    ///     .bind(&MemoryStore::default())?;
    /// assert_eq!(desk.definition().handoff[0].agent, "billing");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn hands_off_to(self, agent: impl Into<String>, description: impl Into<String>) -> Self {
        self.add_agent_ref("handoff", agent.into(), non_empty(description.into()))
    }

    /// Adds an agent to which this agent may delegate the rest of the run. The answer of that agent is the answer of the run.
    ///
    /// The model calls the tool `delegate-to-<id>`. The agent makes no further model request after
    /// the other agent has answered.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::{MemoryStore, Subscription};
    ///
    /// let desk = Agent::new("desk", ScriptedModel::new(["Done."]))
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .delegates_to("supervisor", "Decides about refunds.")
    ///     .bind(&MemoryStore::default())?;
    /// assert_eq!(desk.definition().delegate[0].agent, "supervisor");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn delegates_to(self, agent: impl Into<String>, description: impl Into<String>) -> Self {
        self.add_agent_ref("delegate", agent.into(), non_empty(description.into()))
    }

    /// Adds an [output](crate::agent#outputs) that the agent submits in addition to its answer.
    ///
    /// Each call adds one output. Its name must differ from the names of all tools and agents that
    /// the model may call, otherwise [`bind`](Self::bind) returns [`AgentError::OfferedTwice`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{Agent, OutputSlot, ScriptedModel};
    /// use universal_executor::{MemoryStore, Subscription};
    ///
    /// let worker = Agent::new("worker", ScriptedModel::new(["Done."]))
    ///     .on(Subscription::trigger("task.v1"))
    ///     .output(OutputSlot::new("report", "The completion report.").required())
    ///     .bind(&MemoryStore::default())?;
    /// assert!(worker.definition().outputs[0].required);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn output(self, output: OutputSlot) -> Self {
        self.push("outputs", output)
    }

    /// Sets the maximum number of times that one run reminds the model of missing required outputs. A reminder names all of these
    /// outputs. Defaults to 1.
    ///
    /// Zero disables the reminders. Each reminder costs a model request, and counts as a turn.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::Agent;
    ///
    /// let definition = Agent::new("worker", "small")
    ///     .on(Subscription::trigger("task.v1"))
    ///     .reminders(2)
    ///     .definition()?;
    /// assert_eq!(definition["reminders"], 2);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn reminders(self, reminders: u32) -> Self {
        self.field("reminders", reminders)
    }

    /// Adds tools whose calls all need the [approval of a person](crate::agent#people).
    ///
    /// Each name must be a tool of the agent, otherwise [`bind`](Self::bind) returns
    /// [`AgentError::UnknownTool`]. The store needs a ledger, because the run waits for the person.
    /// For rules about single calls, use [`approval_rule`](Self::approval_rule).
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::tool::json_tool;
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Outcome, Subscription,
    ///     UniversalExecutor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let pay = json_tool("pay", "Pays a bill.", json!({}), |_, _| async { Ok(json!("paid")) });
    /// let store = MemoryStore::default();
    /// let desk = Agent::new("desk", ScriptedModel::calling("pay", json!({"cents": 500}), "Paid."))
    ///     .on(Subscription::trigger("bill.v1"))
    ///     .tool(pay)
    ///     .needs_approval(["pay"])
    ///     .bind(&store)?;
    /// let bill = store.create(NewBreadcrumb::new("bill.v1")).await?;
    /// let outcome = desk.process_event(&Event::created(&bill)).await?;
    ///
    /// assert!(matches!(outcome, Outcome::Suspended { .. }));
    /// let question = store.latest("human.request.v1").await?.ok_or("no question")?;
    /// assert_eq!(question.context["arguments"], json!({"cents": 500}));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn needs_approval<T: Into<String>>(self, tools: impl IntoIterator<Item = T>) -> Self {
        let tools = list(tools).into_iter().map(Value::from);
        self.approval_tools(tools.collect())
    }

    /// Adds a rule that selects the calls of one tool that need the [approval of a person](crate::agent#people). The rules in the [settings
    /// of the tool](crate::tool::ToolSettings::approvals) apply, too.
    ///
    /// A condition in code cannot be part of a definition. Give a rule with [`Approval::when`] to the tool instead.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::Agent;
    /// use universal_executor::model::Condition;
    /// use universal_executor::tool::{Approval, role};
    ///
    /// let large = Condition::new("$.cents", "gt", Some(json!(10_000)));
    /// let definition = Agent::new("desk", "small")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .approval_rule("refund", Approval::when_args(large).by(role("finance")))
    ///     .definition()?;
    /// assert_eq!(definition["approval"]["tools"][0]["tool"], "refund");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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

    /// Sets the people who may approve tool calls, by name or as `role:<name>`, for approval rules that name no approvers.
    /// Defaults to all people.
    ///
    /// A second call replaces the list. Names are compared with `created_by` of the answer.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::Agent;
    ///
    /// let definition = Agent::new("desk", "small")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .needs_approval(["pay"])
    ///     .approved_by(["ann", "role:finance"])
    ///     .definition()?;
    /// assert_eq!(definition["approval"]["by"], json!(["ann", "role:finance"]));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn approved_by<T: Into<String>>(self, people: impl IntoIterator<Item = T>) -> Self {
        let people = list(people);
        self.approval("by", people.into())
    }

    /// Sets the timeouts of an agent run's requests to people, to other agents, and to a model of another service. Defaults to one day, one
    /// hour and ten minutes.
    ///
    /// # Examples
    /// ```
    /// use std::num::NonZeroU32;
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::{Agent, WaitSeconds};
    ///
    /// let mut wait = WaitSeconds::default();
    /// wait.people = NonZeroU32::new(7_200).ok_or("zero")?;
    /// let definition = Agent::new("desk", "small")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .wait_seconds(wait)
    ///     .definition()?;
    /// assert_eq!(definition["wait_seconds"]["people"], 7_200);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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
    ///
    /// A second call replaces the guardrails. With guardrails, a chat client receives no text
    /// before the whole answer has passed the checks.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::guardrail::{Decision, Guardrails, on_output};
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Subscription, UniversalExecutor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let no_keys = on_output("no-keys", |text| Decision::Replace(text.replace("sk-1", "[key]")));
    /// let store = MemoryStore::default();
    /// let helper = Agent::new("helper", ScriptedModel::new(["Use sk-1."]))
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .guardrails(Guardrails::default().with(no_keys))
    ///     .bind(&store)?;
    /// let message = store.create(NewBreadcrumb::new("user.message.v1")).await?;
    /// helper.process_event(&Event::created(&message)).await?;
    ///
    /// let response = store.latest("agent.response.v1").await?.ok_or("no response")?;
    /// assert_eq!(response.context.text("message"), Some("Use [key]."));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn guardrails(mut self, guardrails: Guardrails) -> Self {
        self.guardrails = guardrails;
        self
    }

    /// Sets the secret key from which the marks that delimit data in the model's input are derived. The marks separate data from
    /// instructions, and authors of data cannot predict the marks. Workers with the same key send the same bytes and share a
    /// prompt cache. Defaults to a random key for each process.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::{Agent, ScriptedModel};
    /// use universal_executor::executor::FenceKey;
    ///
    /// let agent = Agent::new("helper", ScriptedModel::new(["Hello!"]))
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .fence_key(FenceKey::from_secret("a random string of at least 32 characters"));
    /// assert_eq!(agent.id(), "helper");
    /// ```
    pub fn fence_key(mut self, key: FenceKey) -> Self {
        self.fence_key = Some(key);
        self
    }

    /// Returns the agent definition in JSON: the context of an `agent.def.v1` breadcrumb.
    ///
    /// The model, guardrails, the profile, the fence key and the functions of tools are not part of
    /// the definition. Use the JSON to store an agent that a running service loads, or to compare
    /// versions. The method does not read the fields again; [`AgentDefinition::from_json`] does
    /// that.
    ///
    /// # Errors
    /// [`AgentError`] for the first argument that cannot be used.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::Subscription;
    /// use universal_executor::agent::{Agent, AgentDefinition};
    ///
    /// let json = Agent::new("helper", "small")
    ///     .instructions("Answer the user.")
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .definition()?;
    /// let read = AgentDefinition::from_json(&json)?;
    /// assert_eq!((read.agent_id.as_str(), read.max_turns), ("helper", 10));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
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
    /// Call it once at the start of the program. It reads nothing from the store and sends no model
    /// request.
    ///
    /// # Errors
    /// - [`AgentError::NamedModel`] if the agent names its model: use [`bind_with`](Self::bind_with).
    /// - [`AgentError::Invalid`] if the store lacks a feature that the agent needs.
    /// - Another [`AgentError`] for the first argument that cannot be used.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::{Agent, AgentError, ScriptedModel};
    /// use universal_executor::{MemoryStore, Subscription};
    ///
    /// let store = MemoryStore::default();
    /// let helper = Agent::new("helper", ScriptedModel::new(["Hello!"]))
    ///     .on(Subscription::trigger("user.message.v1"))
    ///     .bind(&store)?;
    /// assert_eq!(helper.definition().max_turns, 10);
    ///
    /// let named = Agent::new("helper", "small").on(Subscription::trigger("user.message.v1"));
    /// assert!(matches!(named.bind(&store), Err(AgentError::NamedModel { .. })));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn bind<B>(self, store: &B) -> Result<AgentExecutor, AgentError>
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        self.bind_shared(Arc::new(store.clone()))
    }

    /// Creates the executor of the agent on a store that is already in an [`Arc`].
    ///
    /// # Errors
    /// See [`bind`](Self::bind).
    pub(crate) fn bind_shared(
        self,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<AgentExecutor, AgentError> {
        self.bind_with_lookup(store, |agent, model| {
            Err(AgentError::NamedModel {
                agent: agent.to_owned(),
                model: excerpt(model, 80).into_owned(),
            })
        })
    }

    /// Creates the executor of the agent on a store. If the agent names its model, `find` receives the agent ID and the model name, and
    /// returns the provider.
    pub(crate) fn bind_with_lookup(
        mut self,
        store: Arc<dyn BreadcrumbStore>,
        find: impl FnOnce(&str, &str) -> Result<Arc<dyn Provider>, AgentError>,
    ) -> Result<AgentExecutor, AgentError> {
        let definition = AgentDefinition::from_json(&self.take_definition()?)?;
        let provider = match self.provider {
            ProviderChoice::Provider(provider) => provider,
            ProviderChoice::Named(model) => find(&definition.agent_id, &model)?,
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
    pub(crate) fn add_agent_ref(
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

fn non_empty(text: String) -> Option<String> {
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

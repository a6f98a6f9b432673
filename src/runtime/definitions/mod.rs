//! Executors made of definitions in the store, which come, change and go while a runtime runs.
//!
//! [`Definitions`] is a registry, and with it the limit of what a definition may do: it names models, tools and makers
//! that the service registered, and nothing else. A definition that cannot be made into an executor leaves the one that
//! runs in its place, and a `definition.rejected.v1` breadcrumb has the reason. The problems of a definition that loads, such as unknown
//! fields, are logged at `WARN` once for each version; [`Definitions::options`] can make unknown fields errors. Find them before with
//! the module `check`.
//!
//! ```
//! use serde_json::json;
//! use std::sync::Arc;
//! use std::time::Duration;
//! use universal_executor::runtime::definitions::Definitions;
//! use universal_executor::tool::json_tool;
//! use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Runtime, Selector};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let store = MemoryStore::default();
//! let echo = json_tool("echo", "Says it again.", json!({}), |input, _| async move { Ok(input) });
//! let definitions = Definitions::new(Arc::new(store.clone())).tool(echo);
//! let runtime = Runtime::builder(store.events()).definitions(definitions).build()?;
//!
//! store.create(NewBreadcrumb::new("tool.v1").context(json!({
//!     "name": "echo",
//!     "subscriptions": [{"schema_name": "question.v1", "role": "trigger"}],
//! }))).await?;
//! let answer = async {
//!     while !runtime.executors().iter().any(|id| &**id == "echo") {
//!         tokio::task::yield_now().await;
//!     }
//!     let answer = runtime.wait_for(Selector::schema("tool.response.v1"), Duration::from_secs(5));
//!     store.create(NewBreadcrumb::new("question.v1").context(json!({"input": "hi"}))).await?;
//!     Ok::<_, universal_executor::BoxError>(answer.await?.context["output"].clone())
//! };
//! let mut said = None;
//! runtime.run_until(async { said = Some(answer.await) }).await?;
//!
//! assert_eq!(said.transpose()?, Some(json!("hi")));
//! # Ok::<(), universal_executor::BoxError>(())
//! # })?;
//! # Ok::<(), universal_executor::BoxError>(())
//! ```

pub(super) mod keeper;
mod model_config;

pub(super) use keeper::{Announced, Keeper};
pub use model_config::BadModelConfig;

use super::RuntimeError;
use crate::agent::{
    AgentDefinition, AgentExecutor, ApiProvider, BreadcrumbModel, ChatModel, Provider,
};
use crate::error::BoxError;
use crate::executor::UniversalExecutor;
use crate::model::{Breadcrumb, DefinitionOptions, Finding, Place, is_definition_schema};
use crate::store::{BreadcrumbStore, StoreError};
use crate::tool::{Tool, ToolDefinition, ToolExecutor, ToolRegistry};
use crate::workflow::{Parts, WorkflowExecutor};
use model_config::Configured;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

type Made = Result<Arc<dyn UniversalExecutor>, BoxError>;
/// An executor, and the problems of its definition.
type Built = Result<(Arc<dyn UniversalExecutor>, Vec<Finding>), BoxError>;
type Maker = dyn Fn(&Breadcrumb, &Arc<dyn BreadcrumbStore>) -> Made + Send + Sync;

/// What definitions in a store may be made into, and what they may name.
pub struct Definitions {
    store: Arc<dyn BreadcrumbStore>,
    models: BTreeMap<String, Arc<dyn ChatModel>>,
    default_model: Option<Arc<dyn ChatModel>>,
    model_tools: BTreeSet<String>,
    tools: BTreeMap<String, Arc<dyn Tool>>,
    agent_tools: ToolRegistry,
    workflows: Option<Parts>,
    makers: BTreeMap<String, Box<Maker>>,
    tags: Vec<String>,
    options: DefinitionOptions,
}

/// A definition names what is not registered.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NotRegistered {
    /// A model or a tool.
    #[error("{what} {name:?} is not registered here; there are: {known}")]
    Name {
        /// `model` or `tool`.
        what: &'static str,
        /// The name in the definition.
        name: String,
        /// The registered names.
        known: String,
    },
    /// A model tool, which a model configuration names.
    #[error(
        "model tool {name:?} is not registered here; add it with Definitions::model_tool, or change the configuration; \
         registered: {known}"
    )]
    ModelTool {
        /// The name.
        name: String,
        /// The registered model tools.
        known: String,
    },
    /// The definition names no model, and none is the default.
    #[error("the definition names no model, and no default model is registered here")]
    NoDefaultModel,
}

impl NotRegistered {
    fn of<T>(what: &'static str, name: &str, registered: &BTreeMap<String, T>) -> Self {
        Self::Name {
            what,
            name: crate::error::excerpt(name, 80).into_owned(),
            known: names(registered),
        }
    }
}

impl Definitions {
    /// The schema of agents.
    pub const AGENT: &'static str = "agent.def.v1";
    /// The schema of tools.
    pub const TOOL: &'static str = "tool.v1";
    /// The schema of workflows.
    pub const WORKFLOW: &'static str = "workflow.def.v1";
    /// The schema of what says that a definition was refused, and why.
    pub const REJECTED: &'static str = "definition.rejected.v1";

    /// Reads definitions from a store, which is also where the executors made of them live. Nothing is registered yet.
    #[must_use]
    pub fn new(store: Arc<dyn BreadcrumbStore>) -> Self {
        Self {
            store,
            models: BTreeMap::new(),
            default_model: None,
            model_tools: BTreeSet::new(),
            tools: BTreeMap::new(),
            agent_tools: ToolRegistry::default(),
            workflows: None,
            makers: BTreeMap::new(),
            tags: Vec::new(),
            options: DefinitionOptions::default(),
        }
    }

    /// Only definitions with this tag, and with every other one given.
    #[must_use]
    pub fn tagged(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Sets how definitions are read. By default an unknown field is a warning, which the runtime logs
    /// once for each version of a definition.
    #[must_use]
    pub fn options(mut self, options: DefinitionOptions) -> Self {
        self.options = options;
        self
    }

    /// Lets `agent.def.v1` definitions name a model.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>, model: Arc<dyn ChatModel>) -> Self {
        self.models.insert(name.into(), model);
        self
    }

    /// Gives a model to agents that name none.
    #[must_use]
    pub fn default_model(mut self, model: Arc<dyn ChatModel>) -> Self {
        self.default_model = Some(model);
        self
    }

    /// Lets agents for RCRT (Right Context Right Time) servers reach their model through a tool that others serve, for example
    /// `openrouter`. By the [rules of RCRT servers](DefinitionOptions::rcrt), `llm_config_id` in a definition is the ID of a
    /// `tool.config.v1` breadcrumb, whose context has the name of the tool in `toolName` and an object `config` for the tool. Each
    /// request to the tool has that ID as `config_id`.
    ///
    /// The runtime reads the configuration when it loads the definition. A missing or malformed configuration rejects the definition
    /// with [`BadModelConfig`], and the runtime retries at intervals. Without any model tool, `llm_config_id` has no effect.
    #[must_use]
    pub fn model_tool(mut self, name: impl Into<String>) -> Self {
        self.model_tools.insert(name.into());
        self
    }

    /// Lets `tool.v1` definitions name a tool, which then gets the subscriptions of the definition.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.insert(tool.name().to_owned(), Arc::new(tool));
        self
    }

    /// Lets `agent.def.v1` definitions name tools that their agents may call; none by default.
    #[must_use]
    pub fn agent_tools(mut self, tools: ToolRegistry) -> Self {
        self.agent_tools = tools;
        self
    }

    /// Lets `workflow.def.v1` definitions be made into executors that may use these parts and nothing else: see
    /// [`WorkflowExecutor::from_definition`].
    #[must_use]
    pub fn workflows(mut self, parts: Parts) -> Self {
        self.workflows = Some(parts);
        self
    }

    /// Makes executors of definitions of a schema, in the place of what is built in for it. The executor should use the
    /// store it is given, that very handle, so that it shares its place with the others.
    ///
    /// The schema must be recognisable as a definition by its name, so that agents write such breadcrumbs only with
    /// `can_spawn_agents`, and flows never: `tool`, or a name with the part `def`, such as `playbook.def.v1`. A
    /// [`RuntimeBuilder`](crate::runtime::RuntimeBuilder) refuses another one.
    ///
    /// What a maker's error says is written into the `definition.rejected.v1` breadcrumb, for whoever wrote the
    /// definition: keep secrets out of it.
    #[must_use]
    pub fn maker<F>(mut self, schema: impl Into<String>, make: F) -> Self
    where
        F: Fn(
                &Breadcrumb,
                &Arc<dyn BreadcrumbStore>,
            ) -> Result<Arc<dyn UniversalExecutor>, BoxError>
            + Send
            + Sync
            + 'static,
    {
        self.makers.insert(schema.into(), Box::new(make));
        self
    }

    /// Checks that no executors are made of breadcrumbs that any agent may write.
    ///
    /// # Errors
    /// [`RuntimeError::NotADefinition`] for the first maker whose schema is not recognisable as a definition.
    pub(super) fn check(&self) -> Result<(), RuntimeError> {
        let mut schemas = self.makers.keys();
        match schemas.find(|schema| !is_definition_schema(schema)) {
            Some(schema) => Err(RuntimeError::NotADefinition {
                schema: crate::error::excerpt(schema, 80).into_owned(),
            }),
            None => Ok(()),
        }
    }

    /// The schemas that are made into executors.
    fn schemas(&self) -> Vec<&str> {
        let built_in = [Self::AGENT, Self::TOOL, Self::WORKFLOW].into_iter();
        let mut schemas: Vec<&str> = self.makers.keys().map(String::as_str).collect();
        schemas.extend(built_in.filter(|schema| self.is_one(schema)));
        schemas.sort_unstable();
        schemas.dedup();
        schemas
    }

    /// Whether breadcrumbs of a schema are made into executors.
    fn is_one(&self, schema: &str) -> bool {
        match schema {
            Self::AGENT if self.has_models() => true,
            Self::TOOL if !self.tools.is_empty() => true,
            Self::WORKFLOW if self.workflows.is_some() => true,
            _ => self.makers.contains_key(schema),
        }
    }

    fn has_models(&self) -> bool {
        !self.models.is_empty() || self.default_model.is_some() || !self.model_tools.is_empty()
    }

    /// Whether a breadcrumb is a definition that concerns this registry.
    fn concerns(&self, breadcrumb: &Breadcrumb) -> bool {
        let schema = breadcrumb.schema_name.as_deref();
        schema.is_some_and(|schema| self.is_one(schema))
            && self.tags.iter().all(|tag| breadcrumb.tags.contains(tag))
    }

    /// Reads the model configuration that a definition names.
    ///
    /// # Errors
    /// A [`StoreError`] if the store cannot be read.
    async fn configured(&self, definition: &Breadcrumb) -> Result<Configured, StoreError> {
        let is_agent = definition.schema_name.as_deref() == Some(Self::AGENT);
        if !is_agent || !self.options.rcrt || self.model_tools.is_empty() {
            return Ok(Configured::None);
        }
        model_config::read(&*self.store, definition).await
    }

    fn make(&self, definition: &Breadcrumb, configured: Configured) -> Built {
        let schema = definition.schema_name.as_deref().unwrap_or_default();
        if let Some(make) = self.makers.get(schema) {
            return Ok((make(definition, &self.store)?, Vec::new()));
        }
        match schema {
            Self::AGENT => self.agent(definition, configured),
            Self::WORKFLOW => self.workflow(definition),
            _ => self.tool_of(definition),
        }
    }

    fn agent(&self, definition: &Breadcrumb, configured: Configured) -> Built {
        let definition = AgentDefinition::from_json_with(&definition.context, &self.options)?;
        let provider: Arc<dyn Provider> = match configured {
            Configured::None => Arc::new(ApiProvider::new(self.named_model(&definition)?)),
            Configured::Bad(error) => return Err(error.into()),
            Configured::By { tool, id } => {
                let model = BreadcrumbModel::new(self.registered_model_tool(tool)?);
                Arc::new(model.config(id))
            }
        };
        let (store, tools) = (Arc::clone(&self.store), &self.agent_tools);
        let warnings = definition.warnings().to_vec();
        let agent = AgentExecutor::with_provider(definition, provider, store, tools)?;
        Ok((Arc::new(agent), warnings))
    }

    /// Returns the model that a definition names, else the default model.
    fn named_model(
        &self,
        definition: &AgentDefinition,
    ) -> Result<Arc<dyn ChatModel>, NotRegistered> {
        let model = match &definition.model {
            Some(name) => {
                let missing = || NotRegistered::of("model", name, &self.models);
                self.models.get(name).ok_or_else(missing)?
            }
            None => self
                .default_model
                .as_ref()
                .ok_or(NotRegistered::NoDefaultModel)?,
        };
        Ok(Arc::clone(model))
    }

    fn registered_model_tool(&self, name: String) -> Result<String, NotRegistered> {
        if self.model_tools.contains(&name) {
            return Ok(name);
        }
        let known: Vec<&str> = self.model_tools.iter().map(String::as_str).collect();
        Err(NotRegistered::ModelTool {
            name: crate::error::excerpt(&name, 80).into_owned(),
            known: known.join(", "),
        })
    }

    fn workflow(&self, definition: &Breadcrumb) -> Built {
        let parts = self.workflows.clone().unwrap_or_default();
        let store = Arc::clone(&self.store);
        let workflow = WorkflowExecutor::from_definition_with(
            &definition.context,
            &parts,
            store,
            &self.options,
        )?;
        let mut found = WorkflowExecutor::check_fields(&definition.context, &self.options);
        let inner = Place::default().field("definition");
        found.extend(workflow.warnings().iter().map(|warning| {
            let mut finding = warning.finding();
            finding.place = finding.place.below(&inner);
            finding
        }));
        Ok((Arc::new(workflow), found.into_vec()))
    }

    fn tool_of(&self, definition: &Breadcrumb) -> Built {
        let name = definition.context.text("name").unwrap_or_default();
        let missing = || NotRegistered::of("tool", name, &self.tools);
        let tool = self.tools.get(name).ok_or_else(missing)?;
        let (tool, store) = (Arc::clone(tool), Arc::clone(&self.store));
        let definition = ToolDefinition::from_json_with(&definition.context, &self.options)?;
        let warnings = definition.warnings().to_vec();
        let tool = ToolExecutor::from_read_definition(&definition, tool, store)?;
        Ok((Arc::new(tool), warnings))
    }
}

fn names<T>(registered: &BTreeMap<String, T>) -> String {
    let names: Vec<&str> = registered.keys().map(String::as_str).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

impl fmt::Debug for Definitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definitions")
            .field("schemas", &self.schemas())
            .field("models", &self.models.keys())
            .field("model_tools", &self.model_tools)
            .field("tools", &self.tools.keys())
            .finish_non_exhaustive()
    }
}

//! Executors that breadcrumbs in the store define. A runtime adds, replaces and removes them while it runs.
//!
//! Use this when agents, tools or workflows must change without a restart of the service.
//!
//! [`StoredDefinitions`] configures the definitions that a runtime runs, and their [`Services`]. Definitions are data that other
//! programs may write, so the services limit their permissions. An agent or a workflow can name every model and tool in its
//! services, a workflow also every guardrail, and nothing else. To allow definitions less than the code of the service, give them
//! separate `Services`. A definition of a tool can serve only the tools in [`StoredDefinitions::tools`].
//!
//! If a definition is invalid, the executor of its previous version continues to run, and a `definition.rejected.v1` breadcrumb
//! contains the reason. The problems of a definition that loads, such as unknown fields, are logged at `WARN` once for each
//! version. [`StoredDefinitions::options`] can turn unknown fields into errors. The module `check` (feature `workflows`) finds
//! such problems before the definition is stored.
//!
//! | event | effect |
//! |---|---|
//! | a definition is created or updated | the executor is added or replaced |
//! | a definition is deleted | the executor is removed |
//! | a definition is invalid | the executor of the previous version continues |
//! | the executor ID belongs to another executor | rejected, and loaded when the ID becomes free |
//!
//! A runtime loads at most 10,000 definitions. Start with [`StoredDefinitions::new`], then
//! [`StoredDefinitions::agents`] or [`StoredDefinitions::tools`], and pass the result to
//! [`RuntimeBuilder::definitions`](super::RuntimeBuilder::definitions).
//!
//! ```
//! use serde_json::json;
//! use std::time::Duration;
//! use universal_executor::runtime::definitions::StoredDefinitions;
//! use universal_executor::tool::json_tool;
//! use universal_executor::{
//!     BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Runtime, Selector, Services,
//! };
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let store = MemoryStore::default();
//! let echo = json_tool("echo", "Says it again.", json!({}), |input, _| async move { Ok(input) });
//! let services = Services::new().tool(echo)?;
//! let definitions = StoredDefinitions::new(&store, &services).tools(["echo"]);
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

pub(super) mod loader;
mod model_config;
#[cfg(feature = "workflows")]
mod workflow;

pub use crate::services::NotRegistered;
pub(super) use loader::DefinitionLoader;
pub use model_config::BadModelConfig;

use super::RuntimeError;
use crate::agent::{AgentDefinition, AgentExecutor, BreadcrumbModel, Provider};
use crate::error::BoxError;
use crate::executor::UniversalExecutor;
use crate::model::{
    Breadcrumb, DefinitionOptions, Finding, WORKFLOW_DEFINITION, is_definition_schema,
};
use crate::services::Services;
use crate::store::{BreadcrumbStore, StoreError};
use crate::tool::{ToolDefinition, ToolExecutor};
use model_config::ModelConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

type MakerResult = Result<Arc<dyn UniversalExecutor>, BoxError>;
/// An executor made of a stored definition, and the problems of the definition.
type BuildResult = Result<(Arc<dyn UniversalExecutor>, Vec<Finding>), BoxError>;
type Maker = dyn Fn(&Breadcrumb, &Arc<dyn BreadcrumbStore>) -> MakerResult + Send + Sync;

/// The executor definitions in a store that a runtime runs, and the [`Services`] (models and tools) that these definitions can
/// name.
///
/// A definition can name everything in its services. Give definitions separate `Services` to allow them less than the code of
/// the service:
///
/// ```
/// use serde_json::json;
/// use universal_executor::agent::ScriptedModel;
/// use universal_executor::runtime::definitions::StoredDefinitions;
/// use universal_executor::tool::json_tool;
/// use universal_executor::{MemoryStore, Runtime, Services};
///
/// let search = json_tool("search", "Finds a page.", json!({}), |input, _| async move { Ok(input) });
/// let refund = json_tool("refund", "Refunds an order.", json!({}), |input, _| async move { Ok(input) });
/// let of_definitions = Services::new()
///     .default_model(ScriptedModel::new(["Hello!"]))
///     .tool(search)?;
/// // Code of the service can use the tool `refund`, and definitions cannot.
/// let of_code = of_definitions.clone().tool(refund)?;
///
/// let store = MemoryStore::default();
/// let definitions = StoredDefinitions::new(&store, &of_definitions).agents();
/// let runtime = Runtime::on(&store).services(&of_code).definitions(definitions).build()?;
/// # drop(runtime);
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct StoredDefinitions {
    store: Arc<dyn BreadcrumbStore>,
    services: Services,
    runs_agents: bool,
    #[cfg(feature = "workflows")]
    runs_workflows: bool,
    /// The names of registered tools that `tool.v1` definitions can run.
    served_tools: BTreeSet<String>,
    makers: BTreeMap<String, Box<Maker>>,
    tags: Vec<String>,
    options: DefinitionOptions,
}

impl StoredDefinitions {
    /// The schema of breadcrumbs that define agents.
    ///
    /// [`AgentDefinition`] describes the fields.
    pub const AGENT: &'static str = "agent.def.v1";
    /// The schema of breadcrumbs that define tools, each of which runs as an executor.
    ///
    /// [`ToolDefinition`] describes the fields. [`tools`](Self::tools) lists the tools that such
    /// definitions can run.
    pub const TOOL: &'static str = "tool.v1";
    /// The schema of breadcrumbs that define workflows, which a runtime runs with the feature `workflows`.
    pub const WORKFLOW: &'static str = WORKFLOW_DEFINITION;
    /// The schema of breadcrumbs that report a rejected definition and the reason.
    ///
    /// Its context has the fields `definition_id`, `definition_version`, `schema_name` and
    /// `reason`. Search for it after you have written a definition.
    pub const REJECTED: &'static str = "definition.rejected.v1";

    /// Creates the configuration with which a runtime reads executor definitions from `store`. The executors of the definitions
    /// use the same store. The store handle is cloned.
    ///
    /// No definition runs until one of [`agents`](Self::agents), [`tools`](Self::tools), [`maker`](Self::maker) and, with the feature
    /// `workflows`, `workflows` is called.
    ///
    /// The services are cloned: a later change of the original `Services` has no effect.
    #[must_use]
    pub fn new<B>(store: &B, services: &Services) -> Self
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        Self {
            store: Arc::new(store.clone()),
            services: services.clone(),
            runs_agents: false,
            #[cfg(feature = "workflows")]
            runs_workflows: false,
            served_tools: BTreeSet::new(),
            makers: BTreeMap::new(),
            tags: Vec::new(),
            options: DefinitionOptions::default(),
        }
    }

    /// Lets the runtime run `agent.def.v1` definitions. They can name every model, provider and tool of the services. An agent without a
    /// model uses the [default model](Services::default_model).
    ///
    /// # Examples
    /// ```
    /// use universal_executor::agent::ScriptedModel;
    /// use universal_executor::runtime::definitions::StoredDefinitions;
    /// use universal_executor::{MemoryStore, Runtime, Services};
    ///
    /// let store = MemoryStore::default();
    /// let services = Services::new().default_model(ScriptedModel::new(["Hello!"]));
    /// let definitions = StoredDefinitions::new(&store, &services).agents();
    /// let runtime = Runtime::on(&store).definitions(definitions).build()?;
    /// assert!(runtime.executors().is_empty()); // definitions are loaded at the start
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn agents(mut self) -> Self {
        self.runs_agents = true;
        self
    }

    /// Lets `tool.v1` definitions run the tools with these names. Without this call, the runtime ignores `tool.v1` breadcrumbs.
    ///
    /// A `tool.v1` definition names a listed tool and the breadcrumbs that trigger it. The runtime rejects a definition of any other
    /// tool with [`NotRegistered::NotServed`]. Further calls add names.
    ///
    /// [`RuntimeBuilder::build`](crate::runtime::RuntimeBuilder::build) fails if the services do not have a listed tool.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::runtime::definitions::StoredDefinitions;
    /// use universal_executor::tool::json_tool;
    /// use universal_executor::{MemoryStore, Services};
    ///
    /// let echo = json_tool("echo", "Echoes.", json!({}), |input, _| async move { Ok(input) });
    /// let services = Services::new().tool(echo)?;
    /// let store = MemoryStore::default();
    /// let definitions = StoredDefinitions::new(&store, &services).tools(["echo"]);
    /// # drop(definitions);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn tools<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        let names = names.into_iter().map(Into::into);
        self.served_tools.extend(names);
        self
    }

    /// Lets the runtime run only executor definitions with this tag. With several calls, a definition needs all tags.
    ///
    /// Use this to run each definition on one group of workers only, for example with the tag
    /// `region:eu`. Defaults to no tag: all definitions run.
    #[must_use]
    pub fn tagged(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Sets the parse options for executor definitions, for example to reject unknown fields. By default, an unknown field is a
    /// warning that the runtime logs once for each version of a definition.
    ///
    /// [`DefinitionOptions::strict`] turns unknown fields into errors.
    #[must_use]
    pub fn options(mut self, options: DefinitionOptions) -> Self {
        self.options = options;
        self
    }

    /// Registers a function that creates the executors of the definitions with a schema. It replaces the built-in function of a
    /// built-in schema. The executor must use the store that the function receives.
    ///
    /// The schema must be `tool`, or have the part `def` in its name, such as `playbook.def.v1`. Agents can write such breadcrumbs
    /// only with `can_spawn_agents`, and flows never. A [`RuntimeBuilder`](crate::runtime::RuntimeBuilder) rejects any other name.
    ///
    /// An error message of the function is written into the `definition.rejected.v1` breadcrumb for the author of the definition,
    /// so the message must not contain secrets.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use universal_executor::runtime::definitions::StoredDefinitions;
    /// use universal_executor::{
    ///     BoxError, MemoryStore, NewBreadcrumb, Response, Services, Subscription,
    ///     UniversalExecutor, executor,
    /// };
    ///
    /// let store = MemoryStore::default();
    /// let definitions = StoredDefinitions::new(&store, &Services::new()).maker(
    ///     "playbook.def.v1",
    ///     |definition, store| {
    ///         let id = definition.context.text("id").ok_or("the playbook has no id")?;
    ///         let playbook = executor(id)
    ///             .on(Subscription::trigger("alarm.v1"))
    ///             .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("plan.v1"))) });
    ///         let playbook: Arc<dyn UniversalExecutor> = Arc::new(playbook.bind(store)?);
    ///         Ok::<_, BoxError>(playbook)
    ///     },
    /// );
    /// # drop(definitions);
    /// ```
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

    /// Checks that each function that creates executors is registered for a schema of definitions, and that the services have
    /// each tool that definitions can run.
    ///
    /// # Errors
    /// [`RuntimeError::NotADefinition`] for the first executor-creating function whose schema name has no part `def`;
    /// [`RuntimeError::ServedTool`] for the first tool that the services do not have.
    pub(super) fn check(&self) -> Result<(), RuntimeError> {
        let mut schemas = self.makers.keys();
        if let Some(schema) = schemas.find(|schema| !is_definition_schema(schema)) {
            return Err(RuntimeError::NotADefinition {
                schema: crate::error::excerpt(schema, 80).into_owned(),
            });
        }
        for name in &self.served_tools {
            let found = self.services.find_tool(name);
            found.map_err(|source| RuntimeError::ServedTool { source })?;
        }
        Ok(())
    }

    /// Returns the schemas of the executor definitions that the runtime runs.
    fn schemas(&self) -> Vec<&str> {
        let built_in = [Self::AGENT, Self::TOOL, Self::WORKFLOW].into_iter();
        let mut schemas: Vec<&str> = self.makers.keys().map(String::as_str).collect();
        schemas.extend(built_in.filter(|schema| self.handles_schema(schema)));
        schemas.sort_unstable();
        schemas.dedup();
        schemas
    }

    /// Returns `true` if the runtime runs executor definitions of this schema.
    fn handles_schema(&self, schema: &str) -> bool {
        match schema {
            Self::AGENT if self.runs_agents => true,
            Self::TOOL if !self.served_tools.is_empty() => true,
            #[cfg(feature = "workflows")]
            Self::WORKFLOW if self.runs_workflows => true,
            _ => self.makers.contains_key(schema),
        }
    }

    /// Returns `true` if a breadcrumb is an executor definition that the runtime runs.
    fn is_definition(&self, breadcrumb: &Breadcrumb) -> bool {
        let schema = breadcrumb.schema_name.as_deref();
        schema.is_some_and(|schema| self.handles_schema(schema))
            && self.tags.iter().all(|tag| breadcrumb.tags.contains(tag))
    }

    /// Reads the model configuration that an agent definition names.
    ///
    /// # Errors
    /// A [`StoreError`] if the store cannot be read.
    async fn read_model_config(&self, definition: &Breadcrumb) -> Result<ModelConfig, StoreError> {
        let is_agent = definition.schema_name.as_deref() == Some(Self::AGENT);
        if !is_agent || !self.options.rcrt || self.services.model_tools().is_empty() {
            return Ok(ModelConfig::None);
        }
        model_config::read(&*self.store, definition).await
    }

    fn create_executor(&self, definition: &Breadcrumb, model_config: ModelConfig) -> BuildResult {
        let schema = definition.schema_name.as_deref().unwrap_or_default();
        if let Some(make) = self.makers.get(schema) {
            return Ok((make(definition, &self.store)?, Vec::new()));
        }
        match schema {
            Self::AGENT => self.agent_executor(definition, model_config),
            #[cfg(feature = "workflows")]
            Self::WORKFLOW => self.workflow_executor(definition),
            _ => self.tool_executor(definition),
        }
    }

    fn agent_executor(&self, definition: &Breadcrumb, model_config: ModelConfig) -> BuildResult {
        let definition = AgentDefinition::from_json_with(&definition.context, &self.options)?;
        let provider: Arc<dyn Provider> = match model_config {
            ModelConfig::None => match &definition.model {
                Some(name) => self.services.find_provider(name)?,
                None => self.services.default_provider()?,
            },
            ModelConfig::Invalid(error) => return Err(error.into()),
            ModelConfig::Tool { tool, id } => {
                self.services.check_model_tool(&tool)?;
                Arc::new(BreadcrumbModel::new(tool).config(id))
            }
        };
        let (store, tools) = (Arc::clone(&self.store), self.services.tool_registry());
        let warnings = definition.warnings().to_vec();
        let agent = AgentExecutor::with_provider(definition, provider, store, tools)?;
        Ok((Arc::new(agent), warnings))
    }

    fn tool_executor(&self, definition: &Breadcrumb) -> BuildResult {
        let name = definition.context.text("name").unwrap_or_default();
        if !self.served_tools.contains(name) {
            let served = self.served_tools.iter().map(String::as_str);
            return Err(NotRegistered::not_served(name, served).into());
        }
        let tool = self.services.find_tool(name)?;
        let definition = ToolDefinition::from_json_with(&definition.context, &self.options)?;
        let warnings = definition.warnings().to_vec();
        let tool = ToolExecutor::from_read_definition(&definition, tool, Arc::clone(&self.store))?;
        Ok((Arc::new(tool), warnings))
    }
}

impl fmt::Debug for StoredDefinitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredDefinitions")
            .field("schemas", &self.schemas())
            .field("services", &self.services)
            .field("served_tools", &self.served_tools)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

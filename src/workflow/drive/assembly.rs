use super::assembly_error::{AssemblyError, not_registered, unknown};
use super::event::StepEventKind;
use super::model_tap::{Listener, TappedModel};
use super::{Conversations, guard};
use crate::agent::compaction::Compactor;
use crate::agent::guardrail::Guardrails;
use crate::agent::{AgentExecutor, ApiProvider, ChatModel, Output, Provider, is_protected};
use crate::error::excerpt;
use crate::executor::UniversalExecutor as _;
use crate::machine::{Answer, Effect};
use crate::request::human;
use crate::services::{Registered, Services};
use crate::store::BreadcrumbStore;
use crate::tool::{Renaming, RetrySafety, Tool, ToolExecutor, ToolRegistry};
use crate::workflow::ast::TaskForm;
use crate::workflow::{AgentSpec, CompactionMethod, Workflow};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A workflow together with the models, tools and guardrails that it names, ready to run.
///
/// Use it in an executor that runs a flow as a part of its work. A whole workflow is
/// simpler to run as a [`WorkloadExecutor`](crate::workload::WorkloadExecutor). Create an assembly
/// once, and use it for all runs.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::tool::json_tool;
/// use universal_executor::workflow::{Assembly, Driven, Finish, RunOptions, Workflow};
/// use universal_executor::{ExecutionContext, MemoryStore, NewBreadcrumb, Services};
///
/// let double = json_tool("double", "Doubles.", json!({"type": "integer"}), |input, _| async move {
///     Ok(json!(input.as_i64().unwrap_or(0) * 2))
/// });
/// let workflow = Workflow::from_json(&json!({
///     "tools": {"double": {}},
///     "flows": {"main": {"steps": [{"tool": "double", "input": "${input.count}"}]}},
/// }))?;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let services = Services::new().tool(double)?;
/// let store = Arc::new(MemoryStore::default());
/// let assembly = Assembly::new(workflow, &services, store)?;
///
/// // An executor has the context in `execute`.
/// let context = ExecutionContext::for_trigger(NewBreadcrumb::new("order.v1"));
/// let options = RunOptions::new("main", json!({"count": 21}));
/// let driven = assembly.drive(&context, options).await?;
/// assert_eq!(driven, Driven::Finished(Finish::Completed { output: json!(42).into() }));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct Assembly {
    pub(super) workflow: Arc<Workflow>,
    pub(super) store: Arc<dyn BreadcrumbStore>,
    /// Tools of the workflow, by their names in the workflow definition.
    pub(super) tools: ToolRegistry,
    pub(super) guardrails: Guardrails,
    /// Compiled output schemas of the workflow's model steps, by schema name.
    pub(super) outputs: BTreeMap<String, Output>,
    models: BTreeMap<String, Registered>,
    default_model: Option<Registered>,
    writes: BTreeSet<String>,
    /// Registered services, for runs that began with another definition of the workflow.
    pub(super) services: Services,
    /// If `true`, no further attempt to save the workflow's definition in the store is needed: it is saved, or the store refuses
    /// it permanently.
    pub(super) is_definition_saved: AtomicBool,
}

impl Assembly {
    /// Creates an assembly of a workflow and the services that it names. Its runs read and write this store.
    ///
    /// # Errors
    /// Returns an [`AssemblyError`] if the services lack an item that the workflow names, if a model or tool cannot be used as the
    /// workflow does, or if the workflow exceeds the limits of the services.
    pub fn new(
        workflow: impl Into<Arc<Workflow>>,
        services: &Services,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, AssemblyError> {
        let workflow = workflow.into();
        if cfg!(not(feature = "validate")) && !workflow.schemas.is_empty() {
            return Err(AssemblyError::NoValidation);
        }
        if let Some((limit, found, most)) = workflow.policies.limits.over(services.max_limits()) {
            return Err(AssemblyError::OverLimit { limit, found, most });
        }
        let mut assembly = Self {
            tools: tools(&workflow, services.tool_registry())?,
            guardrails: guard::chain(&workflow.policies.guardrails, services)?,
            outputs: BTreeMap::new(),
            models: models(&workflow, services)?,
            default_model: services.default_registered().cloned(),
            writes: BTreeSet::new(),
            services: services.clone(),
            is_definition_saved: AtomicBool::new(false),
            workflow,
            store,
        };
        assembly.settle_compaction()?;
        assembly.settle_tasks()?;
        assembly.settle_agents()?;
        Ok(assembly)
    }

    /// Returns the workflow of the assembly.
    #[must_use]
    pub fn workflow(&self) -> &Arc<Workflow> {
        &self.workflow
    }

    /// Returns the registered [`RetrySafety`] of a tool, for the tool name in the workflow definition. The settings in `tools` can differ:
    /// for a tool of another service, they describe only the request, which is idempotent.
    pub(super) fn safety(&self, name: &str) -> Option<RetrySafety> {
        let spec = self.workflow.tools.get(name)?;
        let registered = spec.tool.as_deref().unwrap_or(name);
        let tool = self.services.tool_registry().get(registered)?;
        Some(tool.settings().retry)
    }

    /// Returns the schemas that runs of the workflow can write, sorted by name.
    ///
    /// An executor that drives the assembly lists them in
    /// [`Profile::responds_with`](crate::Profile::responds_with).
    pub fn writes(&self) -> impl Iterator<Item = &str> {
        self.writes.iter().map(String::as_str)
    }

    /// Returns `true` if runs of the workflow need a store with a run ledger. This is the case if a step waits for a person or a
    /// breadcrumb, or if a tool needs approvals, belongs to another service or runs at most once.
    pub(crate) fn needs_a_ledger(&self) -> bool {
        let waits =
            |task: &&TaskForm| matches!(task, TaskForm::Ask { .. } | TaskForm::WaitFor { .. });
        let names = self.tools.names().into_iter();
        let mut tools = names
            .filter_map(|name| self.tools.get(name))
            .map(Tool::settings);
        self.workflow.tasks().iter().any(waits)
            || tools.any(|tool| {
                !tool.approvals.is_empty()
                    || tool.over_breadcrumbs
                    || tool.retry == RetrySafety::AtMostOnce
            })
    }

    /// Creates an executor from an agent of the workflow.
    ///
    /// An `agent.request.v1` breadcrumb with its name in the field `agent` triggers the executor. It calls other agents of the workflow
    /// through breadcrumbs. In a step of a flow, by contrast, the same agents work within the run of the flow.
    ///
    /// Use it to serve an agent of a workflow to other services and agents.
    ///
    /// # Errors
    /// Returns [`AssemblyError::NotRegistered`] if the workflow has no agent with this name.
    pub fn build_agent(&self, name: &str) -> Result<AgentExecutor, AssemblyError> {
        self.agent(name, None, None, self.compactor(None))
    }

    pub(super) fn agent(
        &self,
        name: &str,
        listener: Option<Listener>,
        conversations: Option<&dyn Conversations>,
        compactor: Option<Arc<Compactor>>,
    ) -> Result<AgentExecutor, AssemblyError> {
        let all = &self.workflow.agents;
        let spec = all.get(name).ok_or_else(|| unknown("agent", name, all))?;
        let refused = |source| AssemblyError::Agent {
            name: name.to_owned(),
            source: Box::new(source),
        };
        let mut provider = self.provider(name, spec, listener.clone(), compactor)?;
        if let (Some(conversations), Some(listener)) = (conversations, &listener) {
            provider = conversations.around(&listener.path, spec.history, provider);
        }
        let agent = self.builder(name, spec, provider);
        let agent = agent.bind_shared(Arc::clone(&self.store));
        let agent = agent.map_err(refused)?;
        Ok(match listener {
            None => agent,
            Some(listener) => agent.observed_by(move |_, effect| observe(&listener, effect)),
        })
    }

    /// Returns the guardrails that check requests, answers and tool calls of the workflow.
    pub(crate) const fn guardrails(&self) -> &Guardrails {
        &self.guardrails
    }

    /// Returns the model that summarises long conversations of agents, or `None` without a compaction policy or a model for it.
    pub(crate) fn summariser(&self) -> Option<Arc<dyn ChatModel>> {
        let compaction = self.workflow.policies.compaction.as_ref()?;
        let found = match &compaction.model {
            Some(name) => self.models.get(name)?,
            None => self.default_model.as_ref()?,
        };
        match found {
            Registered::Model(model) => {
                let model = Arc::clone(model);
                Some(Arc::new(self.tapped_model(
                    model,
                    compaction.model.as_deref(),
                    None,
                )))
            }
            Registered::Provider(_) => None,
        }
    }

    /// Returns the compactor of an agent's conversation, or `None` without a compaction policy. `listener` receives the cost of summaries.
    pub(super) fn compactor(&self, listener: Option<Listener>) -> Option<Arc<Compactor>> {
        let policy = self.workflow.policies.compaction.as_ref()?;
        let model = match policy.method {
            CompactionMethod::Truncate => None,
            CompactionMethod::Summarise => Some(self.summariser()?),
        };
        let compactor = Compactor::new(policy.at_tokens, policy.keep, model);
        Some(Arc::new(
            compactor.with_cost_callback(listener.map(Listener::of_cost)),
        ))
    }

    /// Returns the chat model for a step, by its name in the section `models`. `None` if the name is unknown, or refers to a provider. Only
    /// agents can use providers.
    pub(super) fn model(&self, name: &str, listener: Option<Listener>) -> Option<TappedModel> {
        match self.models.get(name)? {
            Registered::Model(model) => {
                Some(self.tapped_model(Arc::clone(model), Some(name), listener))
            }
            Registered::Provider(_) => None,
        }
    }

    fn tapped_model(
        &self,
        model: Arc<dyn ChatModel>,
        name: Option<&str>,
        listener: Option<Listener>,
    ) -> TappedModel {
        let spec = name.and_then(|name| self.workflow.models.get(name));
        TappedModel {
            model,
            spec: spec.cloned(),
            listener: listener.filter(|listener| listener.emitter.has_sink()),
        }
    }

    fn provider(
        &self,
        name: &str,
        spec: &AgentSpec,
        listener: Option<Listener>,
        compactor: Option<Arc<Compactor>>,
    ) -> Result<Arc<dyn Provider>, AssemblyError> {
        let found = match &spec.model {
            Some(model) => self.models.get(model),
            None => self.default_model.as_ref(),
        };
        let found = found.ok_or_else(|| AssemblyError::NoDefaultModel {
            what: "agent",
            name: name.to_owned(),
        })?;
        Ok(match found {
            Registered::Provider(provider) => Arc::clone(provider),
            Registered::Model(model) => {
                let model = self.tapped_model(Arc::clone(model), spec.model.as_deref(), listener);
                Arc::new(ApiProvider::new(Arc::new(model)).with_compactor(compactor))
            }
        })
    }

    /// Checks the models and output schemas of the workflow's steps, and collects the schemas that the steps write.
    fn settle_tasks(&mut self) -> Result<(), AssemblyError> {
        let workflow = Arc::clone(&self.workflow);
        for task in workflow.tasks() {
            match task {
                TaskForm::Model { model, output, .. } => {
                    if self.model(model, None).is_none() {
                        let name = model.clone();
                        return Err(AssemblyError::NotForSteps { name });
                    }
                    self.settle_output(model, output.as_deref())?;
                }
                TaskForm::Emit { breadcrumb } => {
                    let schema = breadcrumb.literal_field("schema_name").unwrap_or_default();
                    if is_protected(&schema) {
                        return Err(AssemblyError::Protected { schema });
                    }
                    self.writes.insert(schema);
                }
                TaskForm::Ask { .. } => {
                    self.writes.insert(human::REQUEST.to_owned());
                }
                TaskForm::Tool { tool, .. } => {
                    // A tool can ask a person.
                    self.writes.insert(human::REQUEST.to_owned());
                    let tool = self.tools.get(tool);
                    if tool.is_some_and(|tool| tool.settings().over_breadcrumbs) {
                        self.writes.insert(ToolExecutor::REQUEST.to_owned());
                    }
                }
                TaskForm::Agent { .. } | TaskForm::WaitFor { .. } => {}
            }
        }
        Ok(())
    }

    /// Checks that a model for summaries of conversations exists if the compaction policy needs it.
    fn settle_compaction(&self) -> Result<(), AssemblyError> {
        let Some(compaction) = &self.workflow.policies.compaction else {
            return Ok(());
        };
        match (compaction.method, self.summariser(), &compaction.model) {
            (CompactionMethod::Truncate, ..) | (CompactionMethod::Summarise, Some(_), _) => Ok(()),
            (CompactionMethod::Summarise, None, Some(name)) => {
                let name = name.clone();
                Err(AssemblyError::NotForSteps { name })
            }
            (CompactionMethod::Summarise, None, None) => Err(AssemblyError::NoDefaultModel {
                what: "compaction",
                name: "summarise".to_owned(),
            }),
        }
    }

    fn settle_output(&mut self, asks: &str, output: Option<&str>) -> Result<(), AssemblyError> {
        let Some(name) = output else { return Ok(()) };
        let Some(schema) = self.workflow.schemas.get(name) else {
            return Ok(());
        };
        let output = Output::new(asks, schema).map_err(|source| AssemblyError::Agent {
            name: asks.to_owned(),
            source: Box::new(source),
        })?;
        self.outputs.insert(name.to_owned(), output);
        Ok(())
    }

    fn settle_agents(&mut self) -> Result<(), AssemblyError> {
        let workflow = Arc::clone(&self.workflow);
        for (name, spec) in &workflow.agents {
            if let Some(schema) = spec
                .permissions
                .writes
                .iter()
                .find(|name| is_protected(name))
            {
                let schema = schema.clone();
                return Err(AssemblyError::Protected { schema });
            }
            let agent = self.build_agent(name)?;
            let written = agent.profile().responds_with.iter().flatten();
            self.writes.extend(written.cloned());
        }
        Ok(())
    }
}

impl fmt::Debug for Assembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assembly")
            .field("workflow", &self.workflow.name)
            .field("hash", &self.workflow.hash())
            .finish_non_exhaustive()
    }
}

/// Returns the tools of a workflow by their names in the definition.
fn tools(workflow: &Workflow, registered: &ToolRegistry) -> Result<ToolRegistry, AssemblyError> {
    let mut tools = ToolRegistry::default();
    for (name, spec) in &workflow.tools {
        let tool = spec.tool.as_ref().unwrap_or(name);
        let Some(found) = registered.get(tool) else {
            return Err(not_registered("tool", tool, registered.names()));
        };
        if found.settings().over_breadcrumbs && tool != name {
            let (tool, name) = (tool.clone(), name.clone());
            return Err(AssemblyError::CannotRename { tool, name });
        }
        let renaming = Renaming {
            name,
            description: spec.description.as_deref(),
            approval: spec.approval,
        };
        tools = tools
            .with_renamed(&renaming, tool, registered)
            .map_err(|source| AssemblyError::Tool {
                name: name.clone(),
                source: Box::new(source),
            })?;
    }
    Ok(tools.with_remote_tools(false))
}

fn models(
    workflow: &Workflow,
    services: &Services,
) -> Result<BTreeMap<String, Registered>, AssemblyError> {
    let models = workflow.models.iter().map(|(name, spec)| {
        let found = match &spec.provider {
            Some(provider) => {
                let found = services.models().get(provider);
                found.ok_or_else(|| unknown("model", provider, services.models()))?
            }
            None => {
                let default = services.default_registered();
                default.ok_or_else(|| AssemblyError::NoDefaultModel {
                    what: "model",
                    name: name.clone(),
                })?
            }
        };
        Ok((name.clone(), found.clone()))
    });
    models.collect()
}

/// Reports the tool calls and tool results of an agent to the receiver of the flow run's events.
fn observe(listener: &Listener, effect: &Effect) {
    match effect {
        Effect::Execute(call) => listener.report(StepEventKind::ToolCalled {
            call: call.id.to_string(),
            tool: excerpt(&call.tool, 80).into_owned(),
        }),
        Effect::Deliver(results) => {
            for result in results {
                listener.report(StepEventKind::ToolAnswered {
                    call: result.call_id.to_string(),
                    is_error: matches!(result.answer, Answer::Error { .. }),
                });
            }
        }
        Effect::Defer { .. }
        | Effect::CancelCall(_)
        | Effect::Remind { .. }
        | Effect::Finish(_)
        | Effect::Report(_) => {}
    }
}

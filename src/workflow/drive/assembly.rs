use super::assembly_error::{AssemblyError, not_registered, unknown};
use super::event::StepEventKind;
use super::heard::{Heard, Listener};
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

/// A workflow together with all that it names, ready to run.
pub struct Assembly {
    pub(super) workflow: Arc<Workflow>,
    pub(super) store: Arc<dyn BreadcrumbStore>,
    /// By the names that the definition has for them.
    pub(super) tools: ToolRegistry,
    pub(super) guardrails: Guardrails,
    /// What steps that ask a model have to be answered, by the name of the schema.
    pub(super) outputs: BTreeMap<String, Output>,
    models: BTreeMap<String, Registered>,
    default_model: Option<Registered>,
    writes: BTreeSet<String>,
    /// The services of the definition of a run that began before this definition.
    pub(super) services: Services,
    /// Whether it is settled that the definition is in the store, or cannot be.
    pub(super) is_kept: AtomicBool,
}

impl Assembly {
    /// Puts a workflow together with what it names. Runs of it read and write this store.
    ///
    /// # Errors
    /// [`AssemblyError`] names what is not there, with the closest name that is.
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
            is_kept: AtomicBool::new(false),
            workflow,
            store,
        };
        assembly.settle_compaction()?;
        assembly.settle_tasks()?;
        assembly.settle_agents()?;
        Ok(assembly)
    }

    /// The workflow.
    #[must_use]
    pub fn workflow(&self) -> &Arc<Workflow> {
        &self.workflow
    }

    /// What a tool was registered as, of the name that the definition has for it. Asking for the work of one that is served
    /// elsewhere is idempotent; doing it need not be.
    pub(super) fn safety(&self, name: &str) -> Option<RetrySafety> {
        let spec = self.workflow.tools.get(name)?;
        let registered = spec.tool.as_deref().unwrap_or(name);
        let tool = self.services.tool_registry().get(registered)?;
        Some(tool.settings().retry)
    }

    /// The schemas that runs of it may write, in order.
    pub fn writes(&self) -> impl Iterator<Item = &str> {
        self.writes.iter().map(String::as_str)
    }

    /// Whether its flows wait for others, or call tools of which the ledger has to keep that they were called.
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

    /// Makes an agent of the workflow, the same wherever it is used. As an executor of its own it is set off by
    /// `agent.request.v1` with its name as `agent`, and asks others of the workflow by breadcrumbs; in a step they work
    /// in the run of the flow.
    ///
    /// # Errors
    /// [`AssemblyError::NotRegistered`] if the workflow has no agent of this name.
    pub fn build_agent(&self, name: &str) -> Result<AgentExecutor, AssemblyError> {
        self.agent(name, None, None, self.compactor(None))
    }

    pub(super) fn agent(
        &self,
        name: &str,
        by: Option<Listener>,
        talk: Option<&dyn Conversations>,
        compactor: Option<Arc<Compactor>>,
    ) -> Result<AgentExecutor, AssemblyError> {
        let all = &self.workflow.agents;
        let spec = all.get(name).ok_or_else(|| unknown("agent", name, all))?;
        let refused = |source| AssemblyError::Agent {
            name: name.to_owned(),
            source: Box::new(source),
        };
        let mut provider = self.provider(name, spec, by.clone(), compactor)?;
        if let (Some(talk), Some(by)) = (talk, &by) {
            provider = talk.around(&by.path, spec.history, provider);
        }
        let agent = self.builder(name, spec, provider);
        let agent = agent.bind_shared(Arc::clone(&self.store));
        let agent = agent.map_err(refused)?;
        Ok(match by {
            None => agent,
            Some(by) => agent.observed_by(move |_, effect| observe(&by, effect)),
        })
    }

    /// What all that is said to models has to pass.
    pub(crate) const fn guardrails(&self) -> &Guardrails {
        &self.guardrails
    }

    /// The model that sums up conversations which became too long.
    pub(crate) fn summariser(&self) -> Option<Arc<dyn ChatModel>> {
        let compaction = self.workflow.policies.compaction.as_ref()?;
        let found = match &compaction.model {
            Some(name) => self.models.get(name)?,
            None => self.default_model.as_ref()?,
        };
        match found {
            Registered::Model(model) => {
                let model = Arc::clone(model);
                Some(Arc::new(self.heard(
                    model,
                    compaction.model.as_deref(),
                    None,
                )))
            }
            Registered::Provider(_) => None,
        }
    }

    /// What makes the conversation of an agent at work shorter, if the policies say so, and who hears what summaries cost.
    pub(super) fn compactor(&self, by: Option<Listener>) -> Option<Arc<Compactor>> {
        let policy = self.workflow.policies.compaction.as_ref()?;
        let model = match policy.method {
            CompactionMethod::Truncate => None,
            CompactionMethod::Summarise => Some(self.summariser()?),
        };
        let compactor = Compactor::new(policy.at_tokens, policy.keep, model);
        Some(Arc::new(compactor.heard_by(by.map(Listener::of_cost))))
    }

    /// A model of the workflow, for a step.
    pub(super) fn model(&self, name: &str, by: Option<Listener>) -> Option<Heard> {
        match self.models.get(name)? {
            Registered::Model(model) => Some(self.heard(Arc::clone(model), Some(name), by)),
            Registered::Provider(_) => None,
        }
    }

    fn heard(&self, model: Arc<dyn ChatModel>, name: Option<&str>, by: Option<Listener>) -> Heard {
        let spec = name.and_then(|name| self.workflow.models.get(name));
        Heard {
            model,
            spec: spec.cloned(),
            by: by.filter(|by| by.emitter.is_heard()),
        }
    }

    fn provider(
        &self,
        name: &str,
        spec: &AgentSpec,
        by: Option<Listener>,
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
                let model = self.heard(Arc::clone(model), spec.model.as_deref(), by);
                Arc::new(ApiProvider::new(Arc::new(model)).shortened_by(compactor))
            }
        })
    }

    /// Whatever steps need beside agents.
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
                    // It may ask a person.
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

    /// Whoever has to sum up conversations can do so.
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

/// The tools of a workflow under the names that it has for them.
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
    Ok(tools.elsewhere(false))
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

/// Tells what the machine of an agent wants done.
fn observe(by: &Listener, effect: &Effect) {
    match effect {
        Effect::Execute(call) => by.tell(StepEventKind::ToolCalled {
            call: call.id.to_string(),
            tool: excerpt(&call.tool, 80).into_owned(),
        }),
        Effect::Deliver(results) => {
            for result in results {
                by.tell(StepEventKind::ToolAnswered {
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

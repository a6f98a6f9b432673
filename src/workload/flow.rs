use super::conversations::RunConversations;
use super::cx::{RunCx, WorkloadMessage};
use super::entry::{Entry, EntryError, EntryPolicy, select_entry};
use super::event::WorkloadEventKind;
use super::stream::EventStream;
use super::{Definition, Meta, Workload};
use crate::error::{BoxError, excerpt};
use crate::services::Services;
use crate::store::BreadcrumbStore;
use crate::workflow::{
    Assembly, DefinitionPath, Driven, EventSink, Finish, History, MayRetry, Oddity, PROGRESS,
    RunError, RunOptions, StepEvent, StepFailure, StepPath, Workflow, WorkflowWarning,
};
use async_trait::async_trait;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A flow or an agent of a [`Workflow`] as a workload.
///
/// The input is the content of the message. The workflow can name only models, providers, tools and guardrails of the
/// [`Services`].
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::workflow::Workflow;
/// use universal_executor::workload::{Definition, EntryError, EntryPolicy, FlowDefinition};
///
/// let writer = Workflow::from_json(&json!({"flows": {
///     "draft": {"steps": [{"return": "a draft of ${input}"}]},
///     "review": {"steps": [{"return": "a review of ${input}"}]},
/// }}))?;
///
/// // No flow is named `main` or `default`, so the program selects one.
/// let ambiguous = FlowDefinition::new("writer", writer.clone());
/// assert!(matches!(ambiguous, Err(EntryError::Ambiguous { .. })));
/// let review = FlowDefinition::with_entry("writer", writer, Some("review"), EntryPolicy::Ask)?;
/// assert_eq!(review.meta().entry, "review");
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone)]
pub struct FlowDefinition {
    meta: Meta,
    workflow: Arc<Workflow>,
    /// The names of the flows that a request can start.
    entries: Arc<BTreeSet<String>>,
    /// Path of the agent step whose conversation is that of the whole session, or `None` if the run starts with a flow.
    speaker: Option<StepPath>,
}

impl FlowDefinition {
    /// Returns the workload that starts with the default flow or agent of a workflow. The default is the first that exists in this order:
    /// the flow `main`, the flow `default`, the agent `main`, the agent `default`, the only flow, the only agent of a workflow without
    /// flows.
    ///
    /// # Errors
    /// Returns an [`EntryError`] if the workflow has no default flow or agent.
    pub fn new(name: impl Into<String>, workflow: Workflow) -> Result<Self, EntryError> {
        Self::with_entry(name, workflow, None, EntryPolicy::default())
    }

    /// Creates a workload definition that starts with the flow or agent `named`. Without a name, `policy` selects the flow or
    /// agent. If `named` is set, requests can start only this flow or agent.
    ///
    /// # Errors
    /// Returns an [`EntryError`] if no flow or agent has this name, or if several can start a run and the policy
    /// selects none.
    pub fn with_entry(
        name: impl Into<String>,
        workflow: Workflow,
        named: Option<&str>,
        policy: EntryPolicy,
    ) -> Result<Self, EntryError> {
        let entry = select_entry(&workflow, named, policy)?;
        Self::starting_with(name, workflow, entry, named)
    }

    /// Creates a workload definition that starts with the given flow or agent of a workflow.
    pub(super) fn starting_with(
        name: impl Into<String>,
        workflow: Workflow,
        entry: Entry,
        named: Option<&str>,
    ) -> Result<Self, EntryError> {
        let (workflow, entry, speaker) = match entry {
            Entry::Flow(flow) => (workflow, flow, None),
            Entry::Agent(agent) => {
                // The agent exists, so a flow for it can be created.
                let workflow = workflow
                    .with_flow_of(&agent)
                    .map_err(|_| EntryError::Empty)?;
                let speaker = StepPath::new(format!("{agent}/0"));
                (workflow, agent, Some(speaker))
            }
        };
        let outermost = match named {
            Some(_) => BTreeSet::new(),
            None => workflow.outermost_flows(),
        };
        let entries = outermost.into_iter().chain([&*entry]);
        let entries = Arc::new(entries.map(str::to_owned).collect());
        let meta = Meta {
            name: name.into(),
            description: workflow.description.clone(),
            hash: workflow.hash().to_owned(),
            entry,
        };
        Ok(Self {
            meta,
            workflow: Arc::new(workflow),
            entries,
            speaker,
        })
    }

    /// Returns the workflow that the workload runs.
    #[must_use]
    pub fn workflow(&self) -> &Arc<Workflow> {
        &self.workflow
    }

    fn look_up(
        &self,
        services: &Services,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Prepared, BoxError> {
        let assembly = Assembly::new(Arc::clone(&self.workflow), services, Arc::clone(store))?;
        Ok(Prepared {
            definition: self.clone(),
            assembly: Arc::new(assembly),
        })
    }
}

impl Definition for FlowDefinition {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn check(&self, services: &Services, store: &Arc<dyn BreadcrumbStore>) -> Result<(), BoxError> {
        self.look_up(services, store).map(drop)
    }

    fn needs_a_ledger(
        &self,
        services: &Services,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<bool, BoxError> {
        let prepared = self.look_up(services, store)?;
        prepared.needs_a_ledger(services, store)
    }

    fn writes(
        &self,
        services: &Services,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Option<Vec<String>>, BoxError> {
        self.look_up(services, store)?.writes(services, store)
    }

    fn streams_text(
        &self,
        services: &Services,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<bool, BoxError> {
        let prepared = self.look_up(services, store)?;
        prepared.streams_text(services, store)
    }

    fn warnings(&self, has_sessions: bool) -> Vec<WorkflowWarning> {
        let agents = self.workflow.agents.iter();
        let without_session = agents.filter_map(|(name, agent)| match agent.history {
            History::All | History::None => None,
            History::Last(_) => {
                let path = DefinitionPath::default().field("agents").field(name);
                Some(WorkflowWarning::new(
                    path.field("history"),
                    Oddity::NoSession,
                ))
            }
        });
        let warnings = self.workflow.warnings().iter().cloned();
        warnings
            .chain(without_session.filter(|_| !has_sessions))
            .collect()
    }

    fn prepare(
        &self,
        services: &Services,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Option<Arc<dyn Definition>>, BoxError> {
        Ok(Some(Arc::new(self.look_up(services, store)?)))
    }

    fn instantiate(
        &self,
        services: &Services,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Box<dyn Workload>, BoxError> {
        self.look_up(services, store)?.instantiate(services, store)
    }
}

impl fmt::Debug for FlowDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowDefinition")
            .field("name", &self.meta.name)
            .field("flow", &self.meta.entry)
            .finish_non_exhaustive()
    }
}

/// A flow definition, with the store and the models, tools and guardrails that were found for its runs.
struct Prepared {
    definition: FlowDefinition,
    assembly: Arc<Assembly>,
}

impl Definition for Prepared {
    fn meta(&self) -> &Meta {
        &self.definition.meta
    }

    fn check(&self, _: &Services, _: &Arc<dyn BreadcrumbStore>) -> Result<(), BoxError> {
        Ok(())
    }

    fn needs_a_ledger(&self, _: &Services, _: &Arc<dyn BreadcrumbStore>) -> Result<bool, BoxError> {
        Ok(self.assembly.needs_a_ledger())
    }

    fn writes(
        &self,
        _: &Services,
        _: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Option<Vec<String>>, BoxError> {
        let written = self.assembly.writes().chain([PROGRESS]);
        Ok(Some(written.map(str::to_owned).collect()))
    }

    fn streams_text(&self, _: &Services, _: &Arc<dyn BreadcrumbStore>) -> Result<bool, BoxError> {
        Ok(self.assembly.guardrails().is_empty())
    }

    fn warnings(&self, has_sessions: bool) -> Vec<WorkflowWarning> {
        self.definition.warnings(has_sessions)
    }

    fn instantiate(
        &self,
        _: &Services,
        _: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Box<dyn Workload>, BoxError> {
        Ok(Box::new(FlowWorkload {
            assembly: Arc::clone(&self.assembly),
            flow: self.definition.meta.entry.clone(),
            entries: Arc::clone(&self.definition.entries),
            speaker: self.definition.speaker.clone(),
        }))
    }
}

struct FlowWorkload {
    assembly: Arc<Assembly>,
    flow: String,
    entries: Arc<BTreeSet<String>>,
    speaker: Option<StepPath>,
}

impl FlowWorkload {
    /// Returns an error if requests may not start a flow, because the flow runs only as a step of other flows.
    /// [`FlowRun::begin`](crate::workflow::FlowRun::begin) reports a flow that does not exist, with the nearest name.
    fn check_entry(&self, flow: &str) -> Result<(), RunError> {
        if self.entries.contains(flow)
            || self.assembly.workflow().flows().all(|one| one.name != flow)
        {
            return Ok(());
        }
        Err(RunError::NotAnEntry {
            name: excerpt(flow, 80).into_owned(),
            entries: self.entries.iter().cloned().collect(),
        })
    }
}

#[async_trait]
impl Workload for FlowWorkload {
    fn run(&mut self, cx: RunCx, message: Option<WorkloadMessage>) -> EventStream<'_> {
        let message = message.unwrap_or_default();
        let is_request = message.flow.is_some();
        let flow = message.flow.unwrap_or_else(|| self.flow.clone());
        let refusal = self.check_entry(&flow).err();
        let emitter = cx.emitter.clone();
        let sink: EventSink = Arc::new(move |event: StepEvent| {
            let path = event.path.clone();
            emitter.emit(&path, event.into());
        });
        let content = message.content;
        let user_text = message.user_text.map(Arc::from);
        // The input of a request is data, unless it is the text of the message.
        let text = content.as_str().filter(|_| !is_request);
        let user_text: Option<Arc<str>> = user_text.or_else(|| text.map(Arc::from));
        let mut options = RunOptions::new(flow, content).events(sink);
        options.stores_progress = message.stores_progress;
        let (assembly, stream, speaker) = (&self.assembly, cx.clone(), self.speaker.clone());
        stream.stream(async move {
            if let Some(refusal) = refusal {
                return last_event(Driven::Refused(refusal));
            }
            // A message that a run wrote is data.
            let user_text = match cx.context().is_from_user().await {
                Ok(is_from_user) => user_text.filter(|_| is_from_user),
                Err(error) => return cx.fail(error.into()),
            };
            options.user_message.clone_from(&user_text);
            if let Some(session) = cx.session_of() {
                let assembly = Arc::clone(assembly);
                let conversations = RunConversations::new(
                    session.clone(),
                    cx.clone(),
                    assembly,
                    (speaker, user_text),
                );
                options.conversations = Some(Arc::new(conversations));
            }
            match assembly.drive(cx.context(), options).await {
                Ok(driven) => last_event(driven),
                Err(error) => cx.fail(error),
            }
        })
    }

    async fn close(&mut self) -> Result<(), BoxError> {
        // Calls of its agents end when the stream of the run is dropped.
        Ok(())
    }
}

fn last_event(driven: Driven) -> WorkloadEventKind {
    match driven {
        Driven::Refused(refusal) => WorkloadEventKind::Error {
            failure: StepFailure::new("refused", refusal.to_string()),
            retry: match refusal {
                RunError::DefinitionGone { .. } | RunError::OtherDefinition { .. } => {
                    MayRetry::Elsewhere
                }
                RunError::NoSuchFlow { .. }
                | RunError::InputTooLarge { .. }
                | RunError::NotAnEntry { .. }
                | RunError::BadInput { .. } => MayRetry::Never,
            },
        },
        Driven::Finished(Finish::Completed { output }) => WorkloadEventKind::Final { output },
        Driven::Finished(Finish::Failed { failure }) => WorkloadEventKind::Error {
            failure,
            retry: MayRetry::Never,
        },
        Driven::Finished(Finish::Cancelled) => {
            WorkloadEventKind::failed("cancelled", "the run was cancelled")
        }
        Driven::Suspended { wake, state } => WorkloadEventKind::Suspended { wake, state },
    }
}

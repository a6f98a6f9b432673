use super::cx::{Message, RunCx};
use super::entry::{Entry, EntryError, EntryPolicy, select_entry};
use super::event::WorkloadEventKind;
use super::session::Talk;
use super::stream::EventStream;
use super::{Definition, Deps, Meta, Workload};
use crate::error::BoxError;
use crate::workflow::{
    Assembly, Driven, EventSink, Finish, MayRetry, Order, RunError, StepEvent, StepFailure,
    StepPath, Workflow,
};
use async_trait::async_trait;
use std::fmt;
use std::sync::Arc;

/// A flow or an agent of a [`Workflow`] as a workload.
///
/// Its input is the content of the message. What it may name is what the [`Deps`] have.
pub struct FlowDefinition {
    meta: Meta,
    workflow: Arc<Workflow>,
    flow: String,
    /// The step whose conversation is that of the session, if the run begins with an agent.
    speaker: Option<StepPath>,
}

impl FlowDefinition {
    /// What a workflow [begins with](select_entry), as a workload of this name.
    ///
    /// # Errors
    /// [`EntryError`] if it does not say.
    pub fn new(name: impl Into<String>, workflow: Workflow) -> Result<Self, EntryError> {
        Self::with_entry(name, workflow, None, EntryPolicy::default())
    }

    /// The same beginning with the flow or agent of a name, if one is given, else with what the policy says.
    ///
    /// # Errors
    /// [`EntryError`] if there is no such one, or nobody can tell which.
    pub fn with_entry(
        name: impl Into<String>,
        workflow: Workflow,
        named: Option<&str>,
        policy: EntryPolicy,
    ) -> Result<Self, EntryError> {
        let meta = Meta {
            name: name.into(),
            description: workflow.description.clone(),
            hash: workflow.hash().to_owned(),
        };
        let (workflow, flow, speaker) = match select_entry(&workflow, named, policy)? {
            Entry::Flow(flow) => (workflow, flow, None),
            Entry::Agent(agent) => {
                // It was found among the agents, so that a flow of it can be made.
                let workflow = workflow
                    .with_flow_of(&agent)
                    .map_err(|_| EntryError::Empty)?;
                let speaker = StepPath::new(format!("{agent}/0"));
                (workflow, agent, Some(speaker))
            }
        };
        Ok(Self {
            meta,
            workflow: Arc::new(workflow),
            flow,
            speaker,
        })
    }

    /// The workflow.
    #[must_use]
    pub fn workflow(&self) -> &Arc<Workflow> {
        &self.workflow
    }

    fn assembled(&self, deps: &Deps) -> Result<Assembly, BoxError> {
        let store = Arc::clone(deps.store());
        Ok(Assembly::new(
            Arc::clone(&self.workflow),
            deps.parts(),
            store,
        )?)
    }
}

impl Definition for FlowDefinition {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn check(&self, deps: &Deps) -> Result<(), BoxError> {
        self.assembled(deps).map(drop)
    }

    fn needs_a_ledger(&self, deps: &Deps) -> Result<bool, BoxError> {
        Ok(self.assembled(deps)?.needs_a_ledger())
    }

    fn writes(&self, deps: &Deps) -> Result<Option<Vec<String>>, BoxError> {
        let assembly = self.assembled(deps)?;
        Ok(Some(assembly.writes().map(str::to_owned).collect()))
    }

    fn streams_text(&self, deps: &Deps) -> Result<bool, BoxError> {
        Ok(self.assembled(deps)?.guardrails().is_empty())
    }

    fn instantiate(&self, deps: &Deps) -> Result<Box<dyn Workload>, BoxError> {
        Ok(Box::new(FlowWorkload {
            assembly: Arc::new(self.assembled(deps)?),
            flow: self.flow.clone(),
            speaker: self.speaker.clone(),
        }))
    }
}

impl fmt::Debug for FlowDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowDefinition")
            .field("name", &self.meta.name)
            .field("flow", &self.flow)
            .finish_non_exhaustive()
    }
}

struct FlowWorkload {
    assembly: Arc<Assembly>,
    flow: String,
    speaker: Option<StepPath>,
}

#[async_trait]
impl Workload for FlowWorkload {
    fn run(&mut self, cx: RunCx, message: Option<Message>) -> EventStream<'_> {
        let input = message.unwrap_or_default().content;
        let outlet = cx.outlet.clone();
        let sink: EventSink = Arc::new(move |event: StepEvent| {
            let path = event.path.clone();
            outlet.tell(&path, event.into());
        });
        let words: Option<Arc<str>> = input.as_str().map(Arc::from);
        let mut order = Order::new(&*self.flow, input).events(sink);
        let (assembly, stream, speaker) = (&self.assembly, cx.clone(), self.speaker.clone());
        stream.stream(async move {
            // A message that a run wrote is data.
            let words = match cx.context().is_from_user().await {
                Ok(is_from_user) => words.filter(|_| is_from_user),
                Err(error) => return WorkloadEventKind::of_error(&error.into()),
            };
            order.user_message.clone_from(&words);
            if let Some(session) = cx.session_of() {
                let assembly = Arc::clone(assembly);
                let talk = Talk::new(session.clone(), cx.clone(), assembly, (speaker, words));
                order.conversations = Some(Arc::new(talk));
            }
            match assembly.drive(cx.context(), order).await {
                Ok(driven) => end_of(driven),
                Err(error) => WorkloadEventKind::of_error(&error),
            }
        })
    }

    async fn close(&mut self) -> Result<(), BoxError> {
        // What its agents have under way ends with the run, which is gone when its stream is.
        Ok(())
    }
}

fn end_of(driven: Driven) -> WorkloadEventKind {
    match driven {
        Driven::Refused(refused) => WorkloadEventKind::Error {
            failure: StepFailure::new("refused", refused.to_string()),
            retry: match refused {
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

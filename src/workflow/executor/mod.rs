mod answers;
mod error;
mod making;
mod orders;

pub(crate) use answers::Answers;
pub use error::WorkflowError;

use super::{
    Assembly, Driven, EventSink, Finish, History, Oddity, Order, Place, RunError, StepFailure,
    Warning,
};
use crate::error::{BoxError, excerpt};
use crate::executor::{
    ContextError, ExecutionContext, Failure, Profile, Response, UniversalExecutor, check, suspend,
    words_of,
};
use crate::model::{Breadcrumb, Json, Subscriptions};
use crate::store::BreadcrumbStore;
use async_trait::async_trait;
use making::{entries, entry};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A flow as an executor: set off by a breadcrumb, it answers with a `workflow.result.v1`.
///
/// The run is saved after each step and goes on from there, on whichever worker. While it waits for people, breadcrumbs,
/// agents that wait, or a time that is far off, it is suspended and holds no worker.
///
/// The result has `workflow`, `flow`, `run` (the id of the trigger), `status` (`success`, `error` or `cancelled`), `output`
/// or `error` (`code`, `message`, `step`), and the tags `request:` of the trigger. The input of the flow is the trigger's `input`,
/// else its whole context, without the fields that [hints](crate::workflow#hints) exclude; hints that cannot be used end the run with the
/// code `withheld`. `"progress": true` in the trigger requests [`workflow.progress.v1`](Order::telling).
///
/// A request can name the `flow` to start. If the service or the definition names one, by [`with_flow`](Self::with_flow),
/// [`with_entry`](Self::with_entry) or the field `flow`, requests can start only that flow. Otherwise they can start the default
/// flow and each flow that no other flow runs as a step, so a request cannot skip the steps around an inner flow.
///
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::tool::{ToolRegistry, json_tool};
/// use universal_executor::workflow::{Assembly, Parts, Workflow, WorkflowExecutor};
/// use universal_executor::{BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, UniversalExecutor};
///
/// let shout = json_tool("shout", "Says it loudly.", json!({}), |input, _| async move {
///     Ok(json!(input.as_str().unwrap_or("").to_uppercase()))
/// });
/// let workflow = Workflow::from_json(&json!({
///     "tools": {"shout": {}},
///     "flows": {"main": {"steps": [{"tool": "shout", "input": "${input.text}"}]}},
/// }))?;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let parts = Parts::new().tools(ToolRegistry::default().with(shout)?);
/// let assembly = Assembly::new(workflow, &parts, Arc::new(store.clone()))?;
/// let shouting = WorkflowExecutor::new("shouting", assembly)?;
///
/// let request = json!({"workflow": "shouting", "input": {"text": "hi"}});
/// let request = store.create(NewBreadcrumb::new("workflow.request.v1").context(request)).await?;
/// shouting.process_event(&Event::created(&request)).await?;
///
/// let result = store.latest("workflow.result.v1").await?.ok_or("no result")?;
/// assert_eq!(result.context["output"], "HI");
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct WorkflowExecutor {
    id: String,
    assembly: Arc<Assembly>,
    flow: String,
    /// The flows that a request can start.
    entries: BTreeSet<String>,
    subscriptions: Subscriptions,
    profile: Profile,
    events: Option<EventSink>,
}

impl WorkflowExecutor {
    /// The schema of requests that set off a workflow made by [`new`](Self::new): `workflow`, its id, and if wanted `flow`,
    /// `input` and `progress`.
    pub const REQUEST: &'static str = "workflow.request.v1";

    /// The schema of what a run comes to.
    pub const RESULT: &'static str = "workflow.result.v1";

    /// Sets what sets it off.
    ///
    /// # Errors
    /// [`WorkflowError::Invalid`] if a trigger asks for what the store cannot give.
    pub fn with_subscriptions(
        mut self,
        subscriptions: Subscriptions,
    ) -> Result<Self, WorkflowError> {
        self.subscriptions = subscriptions;
        check(&self)?;
        Ok(self)
    }

    /// Sets the flow that a run starts with. Requests can start no other flow.
    ///
    /// # Errors
    /// [`WorkflowError::NoEntry`] if there is no such flow.
    pub fn with_flow(mut self, flow: &str) -> Result<Self, WorkflowError> {
        let workflow = self.assembly.workflow();
        self.flow = entry(&self.id, workflow, Some(flow))?;
        self.entries = entries(workflow, &self.flow, Some(flow));
        Ok(self)
    }

    /// Lets its tools write more schemas than the definition emits. No tool of a step writes requests, answers and
    /// other records of the run, also if they are listed here.
    #[must_use]
    pub fn also_writes<T: Into<String>>(mut self, schemas: impl IntoIterator<Item = T>) -> Self {
        let allowed = self.profile.responds_with.get_or_insert_default();
        allowed.extend(schemas.into_iter().map(Into::into));
        self
    }

    /// Sets who hears of what happens in its runs.
    #[must_use]
    pub fn with_events(mut self, sink: EventSink) -> Self {
        self.events = Some(sink);
        self
    }

    /// Replaces how its runs are leased, timed and retried; kind, definition and schemas stay. By default the turn of a run
    /// may take an hour.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        self.profile = profile.in_place_of(self.profile);
        self
    }

    /// The workflow with all that it names.
    #[must_use]
    pub fn assembly(&self) -> &Arc<Assembly> {
        &self.assembly
    }

    /// What is odd in the definition, and in running it by itself: agents with a number as their `history` are shown nothing,
    /// since there is no session to show the last messages of. A [`WorkloadExecutor`](crate::workload::WorkloadExecutor) has
    /// sessions.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let workflow = self.assembly.workflow();
        let agents = workflow.agents.iter();
        let shown_nothing = agents.filter_map(|(name, agent)| match agent.history {
            History::All | History::None => None,
            History::Last(_) => {
                let place = Place::default().field("agents").field(name);
                Some(Warning::new(place.field("history"), Oddity::NoSession))
            }
        });
        let odd = workflow.warnings().iter().cloned();
        odd.chain(shown_nothing).collect()
    }

    fn answers(&self) -> Answers<'_> {
        Answers {
            kind: "workflow",
            title: "Workflow Result",
            schema: Self::RESULT,
            id: &self.id,
        }
    }

    /// Checks that a request can start a flow. A flow that does not exist is left to [`Run::begin`](super::Run::begin), which
    /// names the nearest one.
    fn admit(&self, flow: &str) -> Result<(), RunError> {
        if self.entries.contains(flow) || self.assembly.workflow().flow(flow).is_none() {
            return Ok(());
        }
        Err(RunError::NotAnEntry {
            name: excerpt(flow, 80).into_owned(),
            entries: self.entries.iter().cloned().collect(),
        })
    }

    /// Returns the order of a trigger, without its input.
    fn order(&self, trigger: &Breadcrumb) -> Order {
        let context = &trigger.context;
        let is_request = trigger.schema_name.as_deref() == Some(Self::REQUEST);
        let flow = context.text("flow").filter(|_| is_request);
        let mut order = Order::new(flow.unwrap_or(&self.flow), Json::default());
        order.events.clone_from(&self.events);
        order.tells = context.get("progress").and_then(Value::as_bool) == Some(true);
        order
    }

    /// Returns the input of a run as the hints of the trigger shape it, or the failure of the run if the hints cannot be used.
    /// A run that continues has its input in the saved state.
    async fn input(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Result<Json, StepFailure>, ContextError> {
        if context.resumed().is_some() {
            return Ok(Ok(Json::default()));
        }
        match context.shown(trigger, self.store()).await {
            Ok(shown) => Ok(Ok(match shown.get("input") {
                Some(input) => input.clone().into(),
                None => shown,
            })),
            Err(withheld @ ContextError::Withheld { .. }) => {
                Ok(Err(StepFailure::new("withheld", withheld.to_string())))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the words of the user, if the trigger is a chat message from outside.
    async fn words(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Option<Arc<str>>, ContextError> {
        if !context.is_from_user().await? {
            return Ok(None);
        }
        match context.shown(trigger, self.store()).await {
            Ok(shown) => Ok(words_of(&shown).map(Arc::from)),
            Err(ContextError::Withheld { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl UniversalExecutor for WorkflowExecutor {
    fn id(&self) -> &str {
        &self.id
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &*self.assembly.store
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        let mut order = self.order(trigger);
        let flow = order.flow.clone();
        let driven = match (self.admit(&flow), self.input(trigger, context).await?) {
            (Err(refused), _) => Driven::Refused(refused),
            (Ok(()), Err(failure)) => Driven::Finished(Finish::Failed { failure }),
            (Ok(()), Ok(input)) => {
                order.input = input;
                order.user_message = self.words(trigger, context).await?;
                self.assembly.drive(context, order).await?
            }
        };
        let finish = match driven {
            Driven::Finished(finish) => finish,
            Driven::Suspended { wake, state } => {
                return Err(suspend(wake, state).writing(Response::none()));
            }
            Driven::Refused(refused) => Finish::Failed {
                failure: StepFailure::new("refused", refused.to_string()),
            },
        };
        let flow = excerpt(&flow, 80);
        Ok(match finish {
            Finish::Completed { output } => {
                json!({"flow": flow, "status": "success", "output": *output})
            }
            Finish::Failed { failure } => {
                json!({"flow": flow, "status": "error", "error": failure})
            }
            Finish::Cancelled => json!({"flow": flow, "status": "cancelled"}),
        })
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(self.answers().result(trigger, output))
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        Ok(self.answers().failure(trigger, failure))
    }
}

impl fmt::Debug for WorkflowExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowExecutor")
            .field("id", &self.id)
            .field("flow", &self.flow)
            .finish_non_exhaustive()
    }
}

use super::drive::PROGRESS;
use super::{
    Assembly, AssemblyError, Control, Driven, EventSink, Finish, LoadError, Order, Parts,
    StepFailure, Workflow,
};
use crate::agent::{human, request_tags};
use crate::clock;
use crate::error::{BoxError, Retry, excerpt};
use crate::executor::{
    ExecutionContext, Failure, InvalidExecutor, Profile, Response, UniversalExecutor, check,
    suspend,
};
use crate::model::{
    Breadcrumb, BreadcrumbId, DefinitionError, Json, NewBreadcrumb, Subscription, Subscriptions,
    Timestamp, sorted_text,
};
use crate::store::{BreadcrumbStore, BreadcrumbStoreExt as _, StoreError};
use crate::tool;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A flow as an executor: set off by a breadcrumb, it answers with a `workflow.result.v1`.
///
/// The run is saved after each step and goes on from there, on whichever worker. While it waits for people, breadcrumbs,
/// agents that wait, or a time that is far off, it is suspended and holds no worker.
///
/// The result has `workflow`, `flow`, `run` (the id of the trigger), `status` (`success`, `error` or `cancelled`), `output`
/// or `error` (`code`, `message`, `step`), and the tags `request:` of the trigger. The trigger's `input` is what the flow is
/// given, else its whole context; `"progress": true` in it asks for [`workflow.progress.v1`](Order::telling).
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
    subscriptions: Subscriptions,
    profile: Profile,
    events: Option<EventSink>,
}

/// A workflow cannot be made into an executor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkflowError {
    /// A field of the definition breadcrumb is missing or of the wrong type.
    #[error("field {field:?} of the workflow definition must be {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// Nobody can tell which flow a run begins with.
    #[error("workflow {workflow:?} begins with {named}; name one of its flows: {known}")]
    NoEntry {
        /// The workflow.
        workflow: String,
        /// What was asked for.
        named: String,
        /// The flows there are.
        known: String,
    },
    /// The definition cannot be read.
    #[error("the definition of workflow {workflow:?} cannot be read")]
    Load {
        /// The workflow.
        workflow: String,
        /// What to mend.
        source: LoadError,
    },
    /// The definition names what it cannot have.
    #[error("workflow {workflow:?} cannot be put together")]
    Assembly {
        /// The workflow.
        workflow: String,
        /// What is not there.
        source: Box<AssemblyError>,
    },
    /// The subscriptions of the definition cannot be used.
    #[error("the subscriptions of workflow {workflow:?} cannot be used")]
    Subscriptions {
        /// The workflow.
        workflow: String,
        /// What is wrong with them.
        source: DefinitionError,
    },
    /// The executor can never work on its store.
    #[error("the workflow cannot work on its store")]
    Invalid(#[from] InvalidExecutor),
}

impl WorkflowError {
    /// Always [`Retry::Never`]: the definition, what is registered or the store has to change.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::Never
    }
}

impl WorkflowExecutor {
    /// The schema of requests that set off a workflow made by [`new`](Self::new): `workflow`, its id, and if wanted `flow`,
    /// `input` and `progress`.
    pub const REQUEST: &'static str = "workflow.request.v1";

    /// The schema of what a run comes to.
    pub const RESULT: &'static str = "workflow.result.v1";

    /// A workflow that is set off by [requests](Self::REQUEST), and begins with its flow `main`, else `default`, else the only
    /// one it has.
    ///
    /// # Errors
    /// [`WorkflowError::NoEntry`] if there is none of these; [`WorkflowError::Invalid`] if the store lacks what it needs: a
    /// ledger, if its flows wait for others or have tools that are called at most once.
    pub fn new(id: impl Into<String>, assembly: Assembly) -> Result<Self, WorkflowError> {
        let id = id.into();
        let subscriptions = requests(&id)?;
        Self::made(id, assembly, None, subscriptions)
    }

    /// A workflow as a `workflow.def.v1` breadcrumb, or its context, defines it: `workflow_id`, `definition` (the workflow as an
    /// object, or as a text in JSON or, with the feature `yaml`, in YAML), and if wanted `flow` (which one a run begins with)
    /// and `subscriptions` (what sets it off; [requests](Self::REQUEST) by default).
    ///
    /// # Errors
    /// [`WorkflowError`] names what to mend.
    pub fn from_definition(
        definition: &Value,
        parts: &Parts,
        store: Arc<dyn BreadcrumbStore>,
    ) -> Result<Self, WorkflowError> {
        let context = definition.get("context").unwrap_or(definition);
        let text = |field| context.get(field).and_then(Value::as_str);
        let field = |field, expected| WorkflowError::Field { field, expected };
        let id = text("workflow_id").filter(|id| !id.is_empty());
        let id = id.ok_or(field("workflow_id", "a text"))?.to_owned();
        let read = match context.get("definition") {
            Some(Value::String(text)) => read(text),
            Some(value @ Value::Object(_)) => Workflow::from_json(value),
            Some(_) | None => return Err(field("definition", "an object, or its text")),
        };
        let workflow = read.map_err(|source| WorkflowError::Load {
            workflow: id.clone(),
            source,
        })?;
        let assembly = Assembly::new(workflow, parts, store);
        let assembly = assembly.map_err(|source| WorkflowError::Assembly {
            workflow: id.clone(),
            source: Box::new(source),
        })?;
        let flow = match context.get("flow") {
            None | Some(Value::Null) => None,
            Some(Value::String(flow)) => Some(flow.as_str()),
            Some(_) => return Err(field("flow", "the name of a flow")),
        };
        let subscriptions = match context.get("subscriptions") {
            None | Some(Value::Null) => requests(&id)?,
            Some(_) => Subscriptions::from_json(context).map_err(unusable(&id))?,
        };
        let mut executor = Self::made(id, assembly, flow, subscriptions)?;
        executor.profile = executor.profile.definition(&sorted_text(context));
        Ok(executor)
    }

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

    /// Sets the flow that a run begins with.
    ///
    /// # Errors
    /// [`WorkflowError::NoEntry`] if there is no such flow.
    pub fn with_flow(mut self, flow: &str) -> Result<Self, WorkflowError> {
        self.flow = entry(&self.id, self.assembly.workflow(), Some(flow))?;
        Ok(self)
    }

    /// Lets its tools write other schemas than its own.
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

    /// Orders something of the run that a trigger set off. The run looks for orders each second while it is at work, and is
    /// woken by them else.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn control(
        &self,
        trigger: BreadcrumbId,
        control: Control,
    ) -> Result<Arc<Breadcrumb>, StoreError> {
        self.assembly.store.create(control.of(trigger)).await
    }

    /// Ends the run that a trigger set off: its result has the status `cancelled`.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn cancel(&self, trigger: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.control(trigger, Control::Cancel).await
    }

    /// Lets no further steps of a run begin.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn pause(&self, trigger: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.control(trigger, Control::Pause).await
    }

    /// Lets the steps of a run begin again.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn unpause(&self, trigger: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.control(trigger, Control::Resume).await
    }

    /// Answers the question of a step in the name of somebody, by the ticket of its
    /// [`Suspended`](super::FlowEventKind::Suspended), which is the `requestId` of the `human.request.v1` too.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn resume(
        &self,
        ticket: &str,
        answer: impl Into<Json>,
        by: &str,
    ) -> Result<Arc<Breadcrumb>, StoreError> {
        let answer: Json = answer.into();
        let response = NewBreadcrumb::new(human::RESPONSE)
            .tag(tool::request_tag(ticket))
            .created_by(by)
            .context(json!({"request_id": ticket, "answer": *answer}));
        self.assembly.store.create(response).await
    }

    fn made(
        id: String,
        assembly: Assembly,
        flow: Option<&str>,
        subscriptions: Subscriptions,
    ) -> Result<Self, WorkflowError> {
        const HOUR: Duration = Duration::from_secs(3600);
        let own = [Self::RESULT, PROGRESS];
        let written = own.into_iter().chain(assembly.writes()).map(str::to_owned);
        let written: Vec<String> = written.collect();
        let profile = Profile::new("workflow")
            .timeout(HOUR)
            .responds_with(written);
        let executor = Self {
            flow: entry(&id, assembly.workflow(), flow)?,
            profile: profile.definition(assembly.workflow().hash()),
            id,
            assembly: Arc::new(assembly),
            subscriptions,
            events: None,
        };
        check(&executor)?;
        if executor.assembly.needs_a_ledger() && executor.assembly.store.ledger().is_none() {
            let executor = executor.id;
            return Err(InvalidExecutor::NoLedger { executor }.into());
        }
        Ok(executor)
    }

    fn result(&self, trigger: &Breadcrumb, mut context: Value) -> Response {
        let now = Timestamp::from_micros(clock::wall_micros());
        if let Value::Object(fields) = &mut context {
            fields.insert("workflow".to_owned(), self.id.as_str().into());
            fields.insert("run".to_owned(), json!(trigger.id));
            fields.insert("trigger_event_id".to_owned(), json!(trigger.id));
            fields.insert("timestamp".to_owned(), json!(now));
        }
        let result = NewBreadcrumb::new(Self::RESULT)
            .title(format!("Workflow Result: {}", self.id))
            .tag("workflow:result")
            .tags(request_tags(trigger, 1))
            .context(context);
        Response::create(result)
    }

    /// What the trigger asks for.
    fn order(&self, trigger: &Breadcrumb) -> Order {
        let context = &trigger.context;
        let is_request = trigger.schema_name.as_deref() == Some(Self::REQUEST);
        let flow = context.text("flow").filter(|_| is_request);
        let input = match context.get("input") {
            Some(input) => input.clone().into(),
            None => context.clone(),
        };
        let mut order = Order::new(flow.unwrap_or(&self.flow), input);
        order.events.clone_from(&self.events);
        order.tells = context.get("progress").and_then(Value::as_bool) == Some(true);
        order
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
        let order = self.order(trigger);
        let flow = order.flow.clone();
        let finish = match self.assembly.drive(context, order).await? {
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
        Ok(self.result(trigger, output))
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        let error = StepFailure::new("run_failed", failure.message.as_str());
        Ok(self.result(trigger, json!({"status": "error", "error": error})))
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

/// What sets off a workflow that says nothing else.
fn requests(id: &str) -> Result<Subscriptions, WorkflowError> {
    let request = Subscription::trigger(WorkflowExecutor::REQUEST);
    let request = request.matching("$.workflow", "eq", id);
    Subscriptions::new([request]).map_err(unusable(id))
}

fn unusable(id: &str) -> impl FnOnce(DefinitionError) -> WorkflowError {
    let workflow = id.to_owned();
    move |source| WorkflowError::Subscriptions { workflow, source }
}

/// The flow that a run begins with.
fn entry(id: &str, workflow: &Workflow, named: Option<&str>) -> Result<String, WorkflowError> {
    let flows: Vec<&str> = workflow.flows().map(|flow| flow.name).collect();
    let known = |name: &str| flows.contains(&name).then(|| name.to_owned());
    let found = match named {
        Some(name) => known(name),
        None => known("main")
            .or_else(|| known("default"))
            .or(match flows.as_slice() {
                [only] => Some((*only).to_owned()),
                [] | [..] => None,
            }),
    };
    found.ok_or_else(|| WorkflowError::NoEntry {
        workflow: id.to_owned(),
        named: named.map_or_else(
            || "\"main\" or \"default\"".to_owned(),
            |name| format!("{:?}", excerpt(name, 80)),
        ),
        known: match flows.is_empty() {
            true => "none".to_owned(),
            false => flows.join(", "),
        },
    })
}

/// A definition as a text: JSON if it begins as that.
#[cfg(feature = "yaml")]
fn read(text: &str) -> Result<Workflow, LoadError> {
    match text.trim_start().starts_with('{') {
        true => Workflow::parse(text),
        false => Workflow::from_yaml(text),
    }
}

#[cfg(not(feature = "yaml"))]
fn read(text: &str) -> Result<Workflow, LoadError> {
    Workflow::parse(text)
}

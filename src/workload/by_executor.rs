use super::cx::{RunCx, WorkloadMessage};
use super::event::WorkloadEventKind;
use super::stream::EventStream;
use super::turn_emitter::{OuterRun, PARENT_TAG};
use super::{Definition, Meta, Workload};
use crate::error::BoxError;
use crate::executor::{
    ContextError, DATA_TAG, ExecutionContext, Outcome, UniversalExecutor, check, user_text_of,
};
use crate::model::{
    Breadcrumb, BreadcrumbId, Event, Json, NewBreadcrumb, SESSION_TAG, Timestamp, display_text,
};
use crate::request::agents;
use crate::services::Services;
use crate::session_log::digest;
use crate::store::{BreadcrumbStore, BreadcrumbStoreExt as _, RunState, Wake};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Maximum delay until a workload that runs an executor checks again whether the executor's run has ended. The
/// executor's run is suspended, paused, or held by another worker.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum time for which a workload that runs an executor waits in memory for the executor's run, without being
/// suspended. A run that yields to another attempt waits for less. For a longer wait, the turn is suspended too. Clocks
/// may differ by about this much.
const MAX_ACTIVE_WAIT: Duration = Duration::from_secs(1);

/// Minimum delay before a workload continues the run of its executor after this run has yielded to another attempt.
const MIN_DELAY: Duration = Duration::from_millis(1);

/// Version number of each trigger breadcrumb that a workload writes to start its executor.
const TRIGGER_VERSION: u64 = 1;

/// Definition that runs any executor as a workload. Each message is written to the store as a trigger of the executor,
/// and the executor's response is the output of the run.
///
/// Within a [`WorkloadExecutor`](super::WorkloadExecutor), the trigger is written as part of the outer run, to the
/// store of the workload. The executor must use the same store. The outer run may write the trigger's schema. The
/// trigger has the outer executor as its author, follows from the outer trigger, and does not trigger the outer
/// executor.
///
/// Only the first version of the trigger counts: if another writer changes it before the executor has answered, the run
/// fails with the code `changed`.
///
/// The executor runs through [`process_event`](UniversalExecutor::process_event), so its run is claimed and committed
/// as any other run. If the executor suspends its run, the turn is suspended too. A [`Runtime`](crate::Runtime) on the
/// same store, or a call of [`resume`](crate::RunLedger::resume), wakes the inner run. An inner run that is due at
/// once, because it yields to another attempt, continues within the turn. If the outer run has a deadline, the outer
/// run yields as well.
///
/// The stream of the run contains no events of the executor. A [`WorkloadExecutor`](super::WorkloadExecutor) has a
/// separate run, whose events name the outer run as their [parent](super::WorkloadEvent::parent). Listeners of the
/// outer run receive these events while the outer run waits for the inner one. The tag `parent:` of the trigger names
/// the outer run too. The outer run adds to the session, and the inner run has a separate conversation in the session.
///
/// The inner run is in the ledger, and stays there when the outer run is stopped, fails or is
/// [given up](super::Supervisor::give_up): a runtime on the same store may still finish it. Later turns of the session
/// wait for the inner run only if the executor's [profile](crate::Profile) orders all runs by the tag `session:`.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use universal_executor::agent::{Agent, ScriptedModel};
/// use universal_executor::workload::{ExecutorDefinition, Supervisor};
/// use universal_executor::{MemoryStore, Services, Subscription};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let helper = Agent::new("helper", ScriptedModel::new(["Hello!"]))
///     .on(Subscription::trigger("user.message.v1"))
///     .bind(&store)?;
/// let helper = Arc::new(ExecutorDefinition::new(Arc::new(helper)));
///
/// let supervisor = Supervisor::builder(helper, &Services::new(), &store).build()?;
/// let turn = supervisor.send("session-1", "Hi")?.outcome().await;
/// assert_eq!(turn.final_text().as_deref(), Some("Hello!"));
/// supervisor.close().await;
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct ExecutorDefinition {
    meta: Meta,
    executor: Arc<dyn UniversalExecutor>,
    schema: String,
}

impl ExecutorDefinition {
    /// Creates a workload definition that runs an executor. The workload's triggers have the schema `user.message.v1`.
    /// A message that is an object becomes the context of the trigger. Any other message becomes the field `message` of
    /// this context. The name of the definition is the executor ID.
    #[must_use]
    pub fn new(executor: Arc<dyn UniversalExecutor>) -> Self {
        Self {
            meta: Meta::new(executor.id()),
            executor,
            schema: "user.message.v1".to_owned(),
        }
    }

    /// Sets the schema of the trigger that the workload writes for the executor. Defaults to `user.message.v1`.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Sets the description of the workload.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.meta = self.meta.description(description);
        self
    }
}

impl Definition for ExecutorDefinition {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn check(&self, _: &Services, _: &Arc<dyn BreadcrumbStore>) -> Result<(), BoxError> {
        Ok(check(&*self.executor)?)
    }

    fn writes(
        &self,
        _: &Services,
        _: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Option<Vec<String>>, BoxError> {
        Ok(Some(vec![self.schema.clone()]))
    }

    fn instantiate(
        &self,
        _: &Services,
        store: &Arc<dyn BreadcrumbStore>,
    ) -> Result<Box<dyn Workload>, BoxError> {
        Ok(Box::new(ExecutorWorkload {
            store: Arc::clone(store),
            executor: Arc::clone(&self.executor),
            schema: self.schema.clone(),
        }))
    }
}

impl fmt::Debug for ExecutorDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutorDefinition")
            .field("executor", &self.executor.id())
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl WorkloadMessage {
    /// Converts the message for a workload to the trigger breadcrumb of an executor. An object is the breadcrumb's
    /// context; any other content is the context's field `message`.
    pub(super) fn breadcrumb(&self, schema: &str) -> NewBreadcrumb {
        let context = match &*self.content {
            Value::Object(_) => self.content.clone(),
            other @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)) => json!({"message": other}).into(),
        };
        let new = NewBreadcrumb::new(schema).context(context);
        match &self.from {
            Some(name) => new.created_by(name.as_str()),
            None => new,
        }
    }
}

struct ExecutorWorkload {
    /// Store in which the workload writes the trigger that starts its executor.
    store: Arc<dyn BreadcrumbStore>,
    executor: Arc<dyn UniversalExecutor>,
    schema: String,
}

#[async_trait]
impl Workload for ExecutorWorkload {
    fn run(&mut self, cx: RunCx, message: Option<WorkloadMessage>) -> EventStream<'_> {
        let stream = cx.clone();
        stream.stream(async move {
            match self.work(&cx, message.unwrap_or_default()).await {
                Ok(end) => end,
                Err(error) => cx.fail(error),
            }
        })
    }

    async fn close(&mut self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl ExecutorWorkload {
    async fn work(
        &self,
        cx: &RunCx,
        message: WorkloadMessage,
    ) -> Result<WorkloadEventKind, BoxError> {
        let trigger = self.trigger(cx, &message).await?;
        let outcome = self.process(cx, &trigger).await?;
        let suspended = |until: Timestamp| WorkloadEventKind::Suspended {
            wake: Wake::at(until),
            state: json!({"trigger": trigger.id}).into(),
        };
        let next_check = cx.context().now() + CHECK_INTERVAL;
        Ok(match outcome {
            Outcome::Responded { written } => self.last_event(cx, &written).await?,
            Outcome::AlreadyDone { state, written } => match state {
                RunState::Done => self.last_event(cx, &written).await?,
                RunState::Ready
                | RunState::Running
                | RunState::Suspended
                | RunState::Failed
                | RunState::Skipped
                | RunState::Superseded => {
                    WorkloadEventKind::failed("not_done", format!("executor run ended as {state}"))
                }
            },
            Outcome::Suspended { until, .. } => {
                suspended(until.map_or(next_check, |until| until.min(next_check)))
            }
            Outcome::InProgress { until } => suspended(until.min(next_check)),
            Outcome::Paused { .. } => suspended(next_check),
            Outcome::Failed { class, written } => {
                let failure_message = self.failure_message(cx, &written).await?;
                let message =
                    failure_message.unwrap_or_else(|| format!("executor run failed: {class}"));
                WorkloadEventKind::failed("executor_failed", message)
            }
            Outcome::Gone => {
                let executor = self.executor.id();
                let message = format!(
                    "trigger of executor {executor} is missing in its store; use the store of the outer run for this executor"
                );
                WorkloadEventKind::failed("gone", message)
            }
            Outcome::Superseded => self.changed_event(),
            Outcome::Unmatched | Outcome::ContextNoted | Outcome::OwnBreadcrumb => {
                let executor = self.executor.id();
                let message = format!(
                    "schema {} does not trigger executor {executor}",
                    self.schema
                );
                WorkloadEventKind::failed("unmatched", message)
            }
        })
    }

    /// Executes the run that a trigger starts in the workload's executor, until this run ends or is suspended.
    ///
    /// If the outer run has a deadline, this method also returns when the inner run yields to another attempt. The
    /// outer run then yields too, because the deadline would interrupt the steps of the inner run.
    async fn process(&self, cx: &RunCx, trigger: &Breadcrumb) -> Result<Outcome, BoxError> {
        // Only the version that this run wrote counts, even if another writer changed the breadcrumb since.
        let mut event = Event::created(trigger);
        event.version = TRIGGER_VERSION;
        loop {
            let outer_run = OuterRun {
                run: Some(cx.run().into()),
                sink: cx.emitter.listeners.clone(),
            };
            let outcome = outer_run
                .around(self.executor.process_event(&event))
                .await?;
            let Outcome::Suspended {
                until: Some(until), ..
            } = &outcome
            else {
                return Ok(outcome);
            };
            let remaining = until.since(cx.context().now());
            if remaining > MAX_ACTIVE_WAIT || cx.context().deadline().is_some() {
                return Ok(outcome);
            }
            // The minimum delay prevents a busy loop, however far the clocks differ.
            sleep(remaining.max(MIN_DELAY)).await;
        }
    }

    /// Returns the trigger breadcrumb that starts the workload's executor, and creates it in the first attempt of the
    /// workload run. All attempts have the same trigger.
    async fn trigger(
        &self,
        cx: &RunCx,
        message: &WorkloadMessage,
    ) -> Result<Arc<Breadcrumb>, BoxError> {
        let store = self.executor.store();
        let id = cx.context().resumed().and_then(|resumed| {
            let id = resumed.state.text("trigger")?;
            id.parse::<BreadcrumbId>().ok()
        });
        if let Some(id) = id {
            return Ok(store.get(id).await?);
        }
        let turn = format!("turn:{}", digest(&[cx.run()]));
        let written = cx.context().find_own(&*self.store, &self.schema, &turn);
        if let Some(written) = written.await? {
            return Ok(written);
        }
        let mut new = message.breadcrumb(&self.schema).tag(turn);
        let parent = format!("{PARENT_TAG}{}", cx.run());
        if parent.len() <= Breadcrumb::MAX_TAG_BYTES {
            new = new.tag(parent);
        }
        if let Some(session) = cx.session_of() {
            new = new.tag(format!("{SESSION_TAG}{}", session.id()));
        }
        let context = cx.context();
        Ok(match context.correlation_id() {
            // The bound store records the outer run: the trigger does not trigger its executor, and counts as one of
            // its writes.
            Some(_) => {
                let store = context.bound_store(Arc::clone(&self.store));
                store.create(new).await?
            }
            None => {
                // The store counts this write as a write from outside.
                if !is_user_text(context, &message.content).await? {
                    new = new.tag(DATA_TAG);
                }
                store.create(new).await?
            }
        })
    }

    /// Creates the last event of a workload run, with its output or failure, from the breadcrumbs that the run of its
    /// executor wrote.
    async fn last_event(
        &self,
        cx: &RunCx,
        written: &[BreadcrumbId],
    ) -> Result<WorkloadEventKind, BoxError> {
        let Some(last) = written.last() else {
            let output = Value::Null.into();
            return Ok(WorkloadEventKind::Final { output });
        };
        let store = self.executor.store();
        let written = store.get(*last).await?;
        let creator = written.context.get("creator");
        let answered = creator.and_then(|creator| creator.get("trigger_version")?.as_u64());
        if answered.is_some_and(|version| version != TRIGGER_VERSION) {
            return Ok(self.changed_event());
        }
        // Later turns of the session show the result to models.
        let shown = match cx.context().shown(&written, store).await {
            Ok(shown) => shown,
            Err(withheld @ ContextError::Withheld { .. }) => {
                return Ok(WorkloadEventKind::failed("withheld", withheld.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        let answer = agents::answer_value(&shown);
        if written.context.text("status") == Some("error") {
            let message = display_text(&answer);
            return Ok(WorkloadEventKind::failed("executor_failed", message));
        }
        Ok(WorkloadEventKind::Final {
            output: answer.into(),
        })
    }

    fn changed_event(&self) -> WorkloadEventKind {
        let executor = self.executor.id();
        let message = format!(
            "{} for executor {executor} was changed by another writer before the executor answered it",
            self.schema
        );
        WorkloadEventKind::failed("changed", message)
    }

    /// Returns the message that a failed executor wrote in its response, or `None` if there is no such message.
    async fn failure_message(
        &self,
        cx: &RunCx,
        written: &[BreadcrumbId],
    ) -> Result<Option<String>, BoxError> {
        let Some(first) = written.first() else {
            return Ok(None);
        };
        let store = self.executor.store();
        let written = store.get(*first).await?;
        match cx.context().shown(&written, store).await {
            Ok(shown) => Ok(shown.text("message").map(str::to_owned)),
            Err(ContextError::Withheld { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns `true` if the trigger is a user's chat message whose text equals `text`.
///
/// # Errors
/// [`ContextError::Store`] if the store cannot read its records.
async fn is_user_text(context: &ExecutionContext, text: &Json) -> Result<bool, ContextError> {
    let user_text = user_text_of(&context.trigger().context);
    Ok(user_text.is_some() && user_text == text.as_str() && context.is_from_user().await?)
}

mod constructors;
mod error;
mod form;
mod message;

pub(crate) use constructors::check_fields;
pub use error::WorkloadError;

use super::event::WorkloadEvent;
use super::scope::CLOSE_TIMEOUT;
use super::session::SessionStore;
use super::sink::Sink;
use super::turn::{PreparedTurn, TurnCancellation, TurnOutcome, TurnSession};
use super::turn_emitter::{OuterRun, PARENT_TAG, TurnEmitter};
use super::turn_status::TurnStatus;
use super::{Definition, WorkloadMessage};
use crate::error::{BoxError, Retry, permanent};
use crate::executor::{
    ContextError, ExecutionContext, Failure, Profile, Response, UniversalExecutor, suspend,
};
use crate::model::{Breadcrumb, SESSION_TAG, Subscriptions, WORKLOAD_RESULT};
use crate::services::Services;
use crate::session_log::SessionError;
use crate::store::BreadcrumbStore;
use crate::workflow::{MayRetry, StepPath, WorkflowWarning};
use async_trait::async_trait;
use form::Form;
use message::tag_value;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Executor that runs a workload: a flow, an agent, a closure or another executor.
///
/// A turn is a durable run: a flow continues after its last finished step. A flow that waits is suspended and needs no
/// worker. The executor has one of two forms:
///
/// | | requests | messages |
/// |---|---|---|
/// | created by | [`of_workflow`](Self::of_workflow), [`on_requests`](Self::on_requests), [`from_definition`](Self::from_definition) | [`new`](Self::new) |
/// | triggers | `workflow.request.v1` with its ID as `workflow`, or [others](Self::with_subscriptions) | its subscriptions |
/// | input | `input` of the trigger, otherwise the whole context | the string in `message`, otherwise the whole context |
/// | order | none | one turn of a session at a time, by the tag `session:` |
/// | response | `workflow.result.v1` | `workload.result.v1` |
///
/// Fields that the hints of the trigger exclude are omitted from the input, because models see the input. Hints that
/// cannot be used fail the run with the code `withheld`. Code reads the whole trigger from
/// [`RunCx::context`](super::RunCx::context).
///
/// **Requests.** A request can name the `flow` to start. If the definition names a flow, by
/// [`FlowDefinition::with_entry`](super::FlowDefinition::with_entry) or the field `flow`, requests can start only that
/// flow. Otherwise they can start the default flow, and each flow that no other flow runs as a step, so a request
/// cannot skip the steps around an inner flow. `"progress": true` requests
/// [`workflow.progress.v1`](crate::workflow::RunOptions::store_progress) breadcrumbs. The response has `workflow`,
/// `flow`, `run` (the ID of the trigger), `status` (`success`, `error` or `cancelled`), `output` or `error` (`code`,
/// `message`, `step`), and the tags `request:` of the trigger.
///
/// **Messages.** The message is the string in `message` of the trigger, or in `content` of a `user.message.v1`,
/// otherwise the whole context. The tag `session:` of the trigger names the conversation of the turn. If another writer
/// adds to the conversation in the meantime, the turn is retried: its finished steps are not repeated, and the turn is
/// added after the other entry. The response has `workload`, `run`, `status` (`success` or `error`), and `output` or
/// `error`. A trigger with the tag `parent:` starts an inner run within the run that the tag names, as
/// `ExecutorDefinition` does. The events of the inner run name the outer run, and the inner run has a separate
/// conversation in the session. The inner run and the turns of the session do not wait for each other, because the
/// outer run is ordered.
///
/// A [`Control`](crate::workflow::Control::of) breadcrumb cancels, pauses or continues a run of a flow. The [`Profile`]
/// decides whether and when a run with a temporary error is retried.
///
/// ```
/// use serde_json::json;
/// use universal_executor::tool::json_tool;
/// use universal_executor::workflow::Workflow;
/// use universal_executor::workload::WorkloadExecutor;
/// use universal_executor::{
///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Services, UniversalExecutor,
/// };
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
/// let services = Services::new().tool(shout)?;
/// let shouting = WorkloadExecutor::of_workflow("shouting", workflow, &services, &store)?;
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
pub struct WorkloadExecutor {
    id: String,
    definition: Arc<dyn Definition>,
    services: Services,
    store: Arc<dyn BreadcrumbStore>,
    subscriptions: Subscriptions,
    profile: Profile,
    form: Form,
    warnings: Vec<WorkflowWarning>,
    sink: Sink,
    /// If `true`, the client of a chat turn receives the text of models while they write it.
    streams_text: bool,
}

impl WorkloadExecutor {
    /// The schema of requests to a workflow. The fields are `workflow` (the workflow ID), and optionally `flow`, `input` and `progress`.
    pub const REQUEST: &'static str = "workflow.request.v1";

    /// The schema of responses to requests to a workflow.
    pub const REQUEST_RESULT: &'static str = "workflow.result.v1";

    /// The schema of a workload's responses to messages.
    pub const RESULT: &'static str = WORKLOAD_RESULT;

    /// Lets tools and closures of the workload write schemas that the workload definition does not name. No tool of a step can write
    /// requests, answers and other records of the run, even if they are listed here.
    ///
    /// Has no effect if a [profile](Self::with_profile) or the definition does not limit the
    /// schemas.
    #[must_use]
    pub fn also_writes<T: Into<String>>(mut self, schemas: impl IntoIterator<Item = T>) -> Self {
        // Without a list, all schemas are allowed.
        if let Some(allowed) = &mut self.profile.responds_with {
            allowed.extend(schemas.into_iter().map(Into::into));
        }
        self
    }

    /// Sets the options of the workload executor's runs: lease, timeout, order of the runs, and retry policy. The kind and the
    /// definition stay. If `profile` lists the schemas that runs may write, runs may write only these; otherwise the current list
    /// stays. By default, a turn may take an hour.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        let written = profile.responds_with.clone();
        self.profile = profile.in_place_of(self.profile);
        if written.is_some() {
            self.profile.responds_with = written;
        }
        self
    }

    /// Calls `sink` for each event of the executor's runs, and of the inner runs that start within these runs. `sink` must not
    /// block. A panic of `sink` has no effect. Each attempt of a run is a separate stream. An interrupted attempt ends as
    /// `cancelled`, and the next attempt may continue the run.
    ///
    /// A second call replaces the closure. Each worker calls its own closure, for the attempts that
    /// it executes.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use universal_executor::workflow::Workflow;
    /// use universal_executor::workload::WorkloadExecutor;
    /// use universal_executor::{BreadcrumbStoreExt, Event, MemoryStore};
    /// use universal_executor::{NewBreadcrumb, Services, UniversalExecutor};
    ///
    /// let flows = json!({"main": {"steps": [{"return": "${input}"}]}});
    /// let echo = Workflow::from_json(&json!({"flows": flows}))?;
    /// let ends = Arc::new(AtomicUsize::new(0));
    /// let counter = Arc::clone(&ends);
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let echo = WorkloadExecutor::of_workflow("echo", echo, &Services::new(), &store)?
    ///     .with_events(move |event| {
    ///         counter.fetch_add(usize::from(event.kind.is_end()), Ordering::Relaxed);
    ///     });
    /// let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST);
    /// let request = request.context(json!({"workflow": "echo", "input": "hi"}));
    /// let request = store.create(request).await?;
    /// echo.process_event(&Event::created(&request)).await?;
    ///
    /// assert_eq!(ends.load(Ordering::Relaxed), 1);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn with_events(mut self, sink: impl Fn(WorkloadEvent) + Send + Sync + 'static) -> Self {
        self.sink = Sink::new(sink);
        self
    }

    /// Returns the warnings about the workload definition. For example, an executor for requests warns about an agent
    /// with a number as its `history`, because a request has no session with earlier messages.
    #[must_use]
    pub fn warnings(&self) -> &[WorkflowWarning] {
        &self.warnings
    }

    async fn turn(&self, trigger: &Breadcrumb, context: &ExecutionContext) -> TurnOutcome {
        let outer_run = OuterRun::current();
        let parent = tag_value(trigger, PARENT_TAG)
            .map(Arc::from)
            .or(outer_run.run);
        let sink = self.sink.clone().and(outer_run.sink);
        let sink = match (context.turn_events(), self.form) {
            (Some(events), Form::Message) => {
                sink.and(Sink::of_turn(Arc::clone(events), self.streams_text))
            }
            (None, _) | (_, Form::Request) => sink,
        };
        let mut emitter = TurnEmitter::new(context.idempotency_key().into(), parent, sink);
        let cancellation = TurnCancellation {
            stop: &CancellationToken::new(),
            close_timeout: CLOSE_TIMEOUT,
        };
        let message = self.message(trigger, context).await;
        let outcome = match (message, self.turn_session(trigger, context).await) {
            (Ok(message), Ok(session)) => {
                let turn = PreparedTurn {
                    definition: &*self.definition,
                    services: &self.services,
                    store: &self.store,
                    context: context.clone(),
                    session,
                    message,
                    cancellation,
                };
                turn.run(&mut emitter).await
            }
            (Err(withheld @ ContextError::Withheld { .. }), _) => {
                let message = withheld.to_string();
                let status = TurnStatus::failed("withheld", message, MayRetry::Never);
                TurnOutcome::of(emitter.run(), status)
            }
            (Err(error), _) => TurnOutcome::of_error(emitter.run(), error.into()),
            (Ok(_), Err(error)) => match error.retry() {
                // A session that was deleted, for example, is an outcome of the turn.
                Retry::Never => TurnOutcome::of(emitter.run(), TurnStatus::of_session(error)),
                Retry::After(_) => TurnOutcome::of_error(emitter.run(), error.into()),
            },
        };
        emitter.end(&outcome.status);
        outcome
    }

    /// Returns the session conversation for the turn that a trigger starts, or `None` if the turn has no session.
    async fn turn_session(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Option<TurnSession>, SessionError> {
        let id = match self.form {
            Form::Request => None,
            Form::Message => tag_value(trigger, SESSION_TAG),
        };
        let Some(id) = id else {
            return Ok(None);
        };
        let session = SessionStore::new(Arc::clone(&self.store)).session(id);
        let is_within = tag_value(trigger, PARENT_TAG).is_some();
        let is_continued = is_within || context.resumed().is_some();
        let (mut session, mut log) = session.open_for_turn(is_continued).await?;
        // An inner run is not a turn of the session: the outer run adds the turn, so the inner run needs a separate conversation.
        if is_within {
            session = session.child(&StepPath::new(format!("executor:{}", self.id)));
            log = session.load().await?;
        }
        let entries_at_start = log.added();
        Ok(Some(TurnSession {
            conversation: session,
            entries_at_start,
        }))
    }

    /// Returns the name of the flow that a request trigger names, otherwise the name of the workload's default flow or agent.
    fn flow_of<'t>(&'t self, trigger: &'t Breadcrumb) -> &'t str {
        let is_request = trigger.schema_name.as_deref() == Some(Self::REQUEST);
        let named = trigger.context.text("flow").filter(|_| is_request);
        named.unwrap_or(&self.definition.meta().entry)
    }
}

/// Checks that a workload can be created from a definition, so that an error appears before the first trigger or message.
pub(super) fn check_definition(
    definition: &dyn Definition,
    services: &Services,
    store: &Arc<dyn BreadcrumbStore>,
) -> Result<(), WorkloadError> {
    let checked = definition.check(services, store);
    checked.map_err(|source| definition_error(definition, source))
}

pub(super) fn definition_error(definition: &dyn Definition, source: BoxError) -> WorkloadError {
    WorkloadError::Definition {
        workload: definition.meta().name.clone(),
        source,
    }
}

#[async_trait]
impl UniversalExecutor for WorkloadExecutor {
    fn id(&self) -> &str {
        &self.id
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        let TurnOutcome {
            status,
            cause,
            panic,
            ..
        } = self.turn(trigger, context).await;
        if let (Some(panic), Form::Request) = (panic, self.form) {
            panic.resume();
        }
        let flow = self.flow_of(trigger);
        match status {
            TurnStatus::Completed { output } => Ok(self.form.success(flow, &output)),
            TurnStatus::Failed { failure, retry } => match (cause, retry, self.form) {
                // An error of the run itself keeps its class and its source.
                (Some(cause), MayRetry::After(_), _) | (Some(cause), _, Form::Request) => {
                    Err(cause)
                }
                // The profile decides when the run is retried.
                (None, MayRetry::After(_), _) => Err(failure.message.into()),
                (_, MayRetry::Never | MayRetry::Elsewhere, _) => {
                    Ok(self.form.failed(flow, &failure))
                }
            },
            TurnStatus::Suspended { wake, state } => {
                Err(suspend(wake, state).writing(Response::none()))
            }
            TurnStatus::Cancelled => Err(permanent("the turn was cancelled")),
        }
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(self.form.response(&self.id, trigger, output))
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        Ok(self.form.failure(&self.id, trigger, failure))
    }
}

impl fmt::Debug for WorkloadExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkloadExecutor")
            .field("id", &self.id)
            .field("workload", &self.definition.meta().name)
            .finish_non_exhaustive()
    }
}

use super::arena::PATIENCE;
use super::by_executor::PARENT;
use super::event::WorkloadEvent;
use super::session::{SessionError, SessionStore};
use super::telling::{Outer, Sink, Telling};
use super::turn::{Halt, Place, TurnOf, TurnStatus};
use super::{Definition, Deps, Message};
use crate::agent::human;
use crate::error::{BoxError, Retry, permanent};
use crate::executor::words::CHAT_MESSAGE;
use crate::executor::{
    ContextError, ExecutionContext, Failure, InvalidExecutor, OrderingKey, Profile, Response,
    UniversalExecutor, check, suspend, words_of,
};
use crate::model::{Breadcrumb, Json, Subscriptions};
use crate::store::{BreadcrumbStore, BreadcrumbStoreExt as _, StoreError};
use crate::workflow::{Answers, MayRetry, StepPath};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Any workload as an executor: a trigger sets off a turn, which is answered with a `workload.result.v1`.
///
/// A turn is a durable run: a flow goes on after its last finished step, and one that waits is suspended and holds no worker. The
/// trigger's tag `session:` names the session that it belongs to, and turns of one session go one at a time. If another writer adds
/// to the session meanwhile, the turn is retried: its finished steps are not repeated, and it is added after the other entry. The message
/// of the workload is the string in `message` of the trigger, else in `content` of a `user.message.v1`, else the trigger's whole
/// context, without its `creator` in a run within a run. Fields that the trigger's hints exclude are omitted, and hints that cannot be used fail the turn with the code `withheld`:
/// models see the message, and the session stores it. Code reads the whole trigger from [`RunCx::context`](super::RunCx::context).
///
/// A trigger with the tag `parent:` sets off a run within the run that this names, as [`ExecutorDefinition`](super::ExecutorDefinition)
/// does: its events name it, and the conversation in the session is one of its own, in which what was said is shown in later runs
/// also if the outer run then came to nothing. It waits for no turn of the session, nor does
/// one wait for it, since the run that it is within is ordered.
///
/// The result has `workload`, `run`, `status` (`success` or `error`), and `output` or `error` (`code`, `message`, `step`). A run that
/// fails in a way that may pass is tried again as the [`Profile`] says.
///
/// A run of a flow is cancelled, paused and let go on by a [`Control`](crate::workflow::Control::of) that is written to the store; one
/// that was cancelled is an error with the code `cancelled`.
///
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::workflow::Parts;
/// use universal_executor::workload::{Deps, NativeDefinition, WorkloadExecutor};
/// use universal_executor::{
///     BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Subscription, Subscriptions, UniversalExecutor,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let shout = NativeDefinition::new("shout", |_, message| async move {
///     Ok(json!(message.unwrap_or_default().text().to_uppercase()))
/// });
/// let messages = Subscriptions::new([Subscription::trigger("user.message.v1")])?;
/// let deps = Deps::new(Parts::new(), Arc::new(store.clone()));
/// let executor = WorkloadExecutor::new("shouting", Arc::new(shout), deps, messages)?;
///
/// let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "hi"}));
/// let message = store.create(message).await?;
/// executor.process_event(&Event::created(&message)).await?;
///
/// let result = store.latest("workload.result.v1").await?.ok_or("no result")?;
/// assert_eq!(result.context["output"], "HI");
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct WorkloadExecutor {
    id: String,
    definition: Arc<dyn Definition>,
    deps: Deps,
    subscriptions: Subscriptions,
    profile: Profile,
    sink: Sink,
    /// If `true`, the client of a chat turn receives the text of models while they write it.
    streams_text: bool,
}

/// What runs a workload cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// No workload can be made of the definition: it names what is not there.
    #[error("nothing can be made of workload {workload:?}")]
    Definition {
        /// The workload.
        workload: String,
        /// What is missing.
        source: BoxError,
    },
    /// The executor can never work on its store.
    #[error("the workload cannot work on its store")]
    Invalid(#[from] InvalidExecutor),
}

/// The field of a context that says which run wrote it.
const CREATOR: &str = "creator";

/// The beginning of a tag that names the session of a trigger.
const SESSION: &str = "session:";

impl WorkloadError {
    /// Always [`Retry::Never`]: the definition, what is registered or the store has to change.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::Never
    }
}

impl WorkloadExecutor {
    /// The schema of what a turn comes to.
    pub const RESULT: &'static str = "workload.result.v1";

    /// A workload that is set off by these subscriptions. By default a turn may take an hour, and writes what the
    /// [definition](Definition::writes) says, beside its result.
    ///
    /// # Errors
    /// [`WorkloadError`]: what would go wrong with every trigger goes wrong here.
    pub fn new(
        id: impl Into<String>,
        definition: Arc<dyn Definition>,
        deps: Deps,
        subscriptions: Subscriptions,
    ) -> Result<Self, WorkloadError> {
        const HOUR: Duration = Duration::from_secs(3600);
        let profile = Profile::new("workload")
            .timeout(HOUR)
            .ordering(OrderingKey::TagPrefixUnless {
                prefix: SESSION.to_owned(),
                unless: PARENT.to_owned(),
            })
            .definition(&definition.meta().hash);
        let mut executor = Self {
            id: id.into(),
            definition,
            deps,
            subscriptions,
            profile,
            sink: Sink::default(),
            streams_text: false,
        };
        check(&executor)?;
        checked(&*executor.definition, &executor.deps)?;
        let streams_text = executor.definition.streams_text(&executor.deps);
        executor.streams_text =
            streams_text.map_err(|source| broken(&*executor.definition, source))?;
        executor.check_ledger()?;
        executor.bounded()
    }

    /// A run that waits for others is a promise that needs a place to keep it.
    fn check_ledger(&self) -> Result<(), WorkloadError> {
        let needed = self.definition.needs_a_ledger(&self.deps);
        let needed = needed.map_err(|source| broken(&*self.definition, source))?;
        if needed && self.deps.store().ledger().is_none() {
            let executor = self.id.clone();
            return Err(InvalidExecutor::NoLedger { executor }.into());
        }
        Ok(())
    }

    /// Lets it write what the definition says, where that is known, and its result.
    fn bounded(mut self) -> Result<Self, WorkloadError> {
        let written = self.definition.writes(&self.deps);
        let written = written.map_err(|source| broken(&*self.definition, source))?;
        self.profile.responds_with = written.map(|mut written| {
            written.push(Self::RESULT.to_owned());
            written
        });
        Ok(self)
    }

    /// Lets tools and closures write other schemas than the definition says. No tool of a step writes requests, answers and
    /// other records of the run, also if they are listed here.
    #[must_use]
    pub fn also_writes<T: Into<String>>(mut self, schemas: impl IntoIterator<Item = T>) -> Self {
        // Where nothing is listed all may be written already.
        if let Some(allowed) = &mut self.profile.responds_with {
            allowed.extend(schemas.into_iter().map(Into::into));
        }
        self
    }

    /// Replaces how its runs are leased, timed, ordered and retried; kind and definition stay. If it lists what they may write,
    /// that is all they may, whatever the definition says; if not, that stays as well.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        let written = profile.responds_with.clone();
        self.profile = profile.in_place_of(self.profile);
        if written.is_some() {
            self.profile.responds_with = written;
        }
        self
    }

    /// Sets who hears of what happens in its runs, and in those within them. It must not block; if it panics, nothing comes of that.
    /// Each attempt of a run is told as a stream of its own; one that is broken off ends as `cancelled`, and its run may go on in
    /// the next one.
    #[must_use]
    pub fn with_events(mut self, sink: impl Fn(WorkloadEvent) + Send + Sync + 'static) -> Self {
        self.sink = Sink::new(sink);
        self
    }

    /// Answers the question of a run in the name of somebody, as
    /// [`WorkflowExecutor::resume`](crate::workflow::WorkflowExecutor::resume) does.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn resume(
        &self,
        ticket: &str,
        answer: impl Into<Json>,
        by: &str,
    ) -> Result<Arc<Breadcrumb>, StoreError> {
        let response = human::answer(ticket, &answer.into(), by);
        self.deps.store().create(response).await
    }

    async fn turn(&self, trigger: &Breadcrumb, context: &ExecutionContext) -> TurnStatus {
        let outer = Outer::current();
        let parent = tag_of(trigger, PARENT).map(Arc::from).or(outer.run);
        let sink = self.sink.clone().and(outer.sink);
        let sink = match context.turn_events() {
            Some(events) => sink.and(Sink::of_turn(Arc::clone(events), self.streams_text)),
            None => sink,
        };
        let mut telling = Telling::new(context.idempotency_key().into(), parent, sink);
        let halt = Halt {
            stop: &CancellationToken::new(),
            patience: PATIENCE,
        };
        let message = self.message(trigger, context).await;
        let status = match (message, self.place(trigger, context).await) {
            (Ok(message), Ok(session)) => {
                let turn = TurnOf {
                    definition: &*self.definition,
                    deps: &self.deps,
                    context: context.clone(),
                    session,
                    message,
                    halt,
                };
                turn.run(&mut telling).await.status
            }
            (Err(status), _) => status,
            (Ok(_), Err(error)) => TurnStatus::of_session(error),
        };
        telling.end(&status);
        status
    }

    /// Returns the message of a trigger as its hints shape it, since models see it and the session stores it.
    async fn message(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Message, TurnStatus> {
        match context.shown(trigger, self.store()).await {
            Ok(shown) => Ok(message_of(trigger, &shown)),
            Err(withheld @ ContextError::Withheld { .. }) => {
                let message = withheld.to_string();
                Err(TurnStatus::failed("withheld", message, MayRetry::Never))
            }
            Err(error) => Err(TurnStatus::of_error(&error.into())),
        }
    }

    /// The session that a trigger belongs to.
    async fn place(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Option<Place>, SessionError> {
        let Some(id) = tag_of(trigger, SESSION) else {
            return Ok(None);
        };
        let session = SessionStore::new(Arc::clone(self.deps.store())).session(id);
        let is_within = tag_of(trigger, PARENT).is_some();
        let is_begun = is_within || context.resumed().is_some();
        let (mut session, mut log) = session.taken_up(is_begun).await?;
        // Within another run it is not a turn of the session, to which that one adds, but has a conversation of its own there.
        if is_within {
            session = session.child(&StepPath::new(format!("executor:{}", self.id)));
            log = session.load().await?;
        }
        let added = log.added();
        Ok(Some(Place { session, added }))
    }

    fn answers(&self) -> Answers<'_> {
        Answers {
            kind: "workload",
            title: "Workload Result",
            schema: Self::RESULT,
            id: &self.id,
        }
    }
}

/// Whether a workload can be made of a definition, as all that runs workloads asks before the first turn.
pub(super) fn checked(definition: &dyn Definition, deps: &Deps) -> Result<(), WorkloadError> {
    let checked = definition.check(deps);
    checked.map_err(|source| broken(definition, source))
}

fn broken(definition: &dyn Definition, source: BoxError) -> WorkloadError {
    WorkloadError::Definition {
        workload: definition.meta().name.clone(),
        source,
    }
}

/// Returns the message of a trigger, from the part of its context that a model may see.
fn message_of(trigger: &Breadcrumb, shown: &Json) -> Message {
    let is_chat = trigger.schema_name.as_deref() == Some(CHAT_MESSAGE);
    let words = match is_chat {
        true => words_of(shown),
        false => shown.text("message"),
    };
    let content = match words {
        Some(text) => Value::from(text).into(),
        None => told(trigger, shown),
    };
    let message = Message::new(content);
    match trigger.author() {
        Some(author) => message.by(author),
        None => message,
    }
}

/// The whole context of a trigger; of one that was written within another run what that was told, without who wrote it.
fn told(trigger: &Breadcrumb, shown: &Json) -> Json {
    let mut context = shown.clone();
    if tag_of(trigger, PARENT).is_some() && context.get(CREATOR).is_some() {
        let mut fields = context.into_value();
        if let Value::Object(fields) = &mut fields {
            fields.remove(CREATOR);
        }
        context = fields.into();
    }
    context
}

/// What the first tag that begins so says.
fn tag_of<'b>(trigger: &'b Breadcrumb, prefix: &str) -> Option<&'b str> {
    let mut tags = trigger.tags.iter();
    tags.find_map(|tag| tag.strip_prefix(prefix))
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
        &**self.deps.store()
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        match self.turn(trigger, context).await {
            TurnStatus::Completed { output } => Ok(json!({"status": "success", "output": *output})),
            TurnStatus::Failed { failure, retry } => match retry {
                MayRetry::Never | MayRetry::Elsewhere => {
                    Ok(json!({"status": "error", "error": failure}))
                }
                // How long is waited is up to the profile.
                MayRetry::After(_) => Err(failure.message.into()),
            },
            TurnStatus::Suspended { wake, state } => {
                Err(suspend(wake, state).writing(Response::none()))
            }
            TurnStatus::Cancelled => Err(permanent("the turn was cancelled")),
        }
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

impl fmt::Debug for WorkloadExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkloadExecutor")
            .field("id", &self.id)
            .field("workload", &self.definition.meta().name)
            .finish_non_exhaustive()
    }
}

//! Supervisor that runs the turns of many sessions concurrently.

mod answer;
mod attempt;
mod builder;
mod session_queue;
mod settings;
mod subscriber;

pub use answer::TurnAnswerError;
pub use builder::SupervisorBuilder;
pub use subscriber::{Subscriber, SubscriberItem};

use super::Definition;
use super::cx::WorkloadMessage;
use super::session::{LogEntry, SessionStore};
use super::turn::TurnOutcome;
use super::turn_status::TurnStatus;
use crate::error::Retry;
use crate::model::{Breadcrumb, Json};
use crate::services::Services;
use crate::session_log::SessionError;
use crate::store::BreadcrumbStore;
use session_queue::{Job, Shared, TurnInput};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Supervisor that runs the messages of many sessions as turns of a workload, and sends the events to any number of
/// subscribers.
///
/// # Guarantees
/// - **In order.** The turns of one session run one at a time, in the order of their messages. Sessions run
///   concurrently.
/// - **Reported.** Each subscriber of a session receives each accepted turn as one stream with one end, also if the
///   turn never started, panicked or was retried. The end is sent before [`SupervisedTurn::outcome`] resolves, and both
///   report the same. A turn is reported as completed or suspended only after this is saved in the session.
/// - **Bounded.** The numbers of running turns, waiting turns and buffered events are limited. A turn beyond a limit is
///   rejected with an error, and a dropped event is reported as [missed](SubscriberItem::Missed).
/// - **Closed.** The workload of a turn is closed when the turn ends, also after an error, a panic or a cancellation.
/// - **No idle state.** A session without turns and subscribers uses no memory of the supervisor, because its state is
///   in the store.
/// - **Ends.** [`close`](Self::close) waits for running turns, up to a timeout. Dropping the supervisor stops all turns
///   at once. Its tasks end with it.
///
/// A crash loses the running turns: each session is then in its state before the turn. For turns that survive a crash,
/// use a [`WorkloadExecutor`](super::WorkloadExecutor). Needs a tokio runtime with time enabled.
///
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::agent::ScriptedModel;
/// use universal_executor::workflow::Workflow;
/// use universal_executor::workload::{FlowDefinition, Supervisor};
/// use universal_executor::{MemoryStore, Services};
///
/// let greeter = Workflow::from_json(&json!({
///     "name": "greeter",
///     "agents": {"main": {"instruction": "Greet the user."}},
/// }))?;
/// let model = ScriptedModel::new(["Hello, Ann!", "You are Ann."]);
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let (services, store) = (Services::new().default_model(model), MemoryStore::default());
/// let greeter = Arc::new(FlowDefinition::new("greeter", greeter)?);
/// let supervisor = Supervisor::builder(greeter, &services, &store).build()?;
///
/// let first = supervisor.send("session-1", "I am Ann.")?.outcome().await;
/// let second = supervisor.send("session-1", "Who am I?")?.outcome().await;
/// assert_eq!(first.final_text().as_deref(), Some("Hello, Ann!"));
/// assert_eq!(second.final_text().as_deref(), Some("You are Ann."));
/// supervisor.close().await;
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
///
/// # Suspended turns
/// A turn whose flow asks a person, or waits for a breadcrumb, ends as [`Suspended`](TurnStatus::Suspended). Further
/// messages of the session then fail with the code `suspended`. A supervisor does not check by itself for the answer or
/// for the expiry: call [`resume`](Self::resume), which returns a new turn with a new stream.
///
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::workflow::Workflow;
/// use universal_executor::workload::{FlowDefinition, Supervisor, TurnStatus};
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, Services};
///
/// let careful = Workflow::from_json(&json!({"flows": {"main": {"steps": [
///     {"id": "answer", "ask": "Publish ${input}?", "of": ["ann"]},
///     {"return": "${input}: ${answer}"},
/// ]}}}))?;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let careful = Arc::new(FlowDefinition::new("careful", careful)?);
/// let supervisor = Supervisor::builder(careful, &Services::new(), &store).build()?;
/// let turn = supervisor.send("session-1", "the draft")?.outcome().await;
/// assert!(matches!(turn.status, TurnStatus::Suspended { .. }));
///
/// let asked = store.latest("human.request.v1").await?.ok_or("nothing was asked")?;
/// let ticket = asked.context.text("requestId").ok_or("a question without an id")?;
/// supervisor.answer(ticket, json!("yes"), "ann").await?;
/// let turn = supervisor.resume("session-1")?.outcome().await;
/// assert_eq!(turn.final_text().as_deref(), Some("the draft: yes"));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub struct Supervisor {
    shared: Arc<Shared>,
}

/// Retry policy of a supervisor for turns that fail with a temporary error, or panic.
///
/// Each attempt starts from the beginning with a new workload: finished steps are repeated, and tools are called again.
///
/// Use it only for workloads whose steps may be repeated. A
/// [`WorkloadExecutor`](super::WorkloadExecutor) repeats no finished step.
///
/// ```
/// use std::num::NonZeroU32;
/// use std::time::Duration;
/// use universal_executor::workload::Restart;
///
/// let delay = Duration::from_secs(2);
/// let restart = Restart { attempts: NonZeroU32::MIN.saturating_add(2), delay };
/// assert_eq!(restart.attempts.get(), 3);
/// assert_eq!(Restart::default().attempts.get(), 1);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Restart {
    /// Maximum number of attempts of a turn. Defaults to 1, which means no retry.
    pub attempts: NonZeroU32,
    /// Delay before the second attempt of a turn. Each further delay is twice as long, up to one minute, or up to this value if it is
    /// longer than one minute. Defaults to 1 s. The delay of an error that requests a longer one applies instead. During the delay, the
    /// session waits, and other sessions can run.
    pub delay: Duration,
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            attempts: NonZeroU32::MIN,
            delay: Duration::from_secs(1),
        }
    }
}

/// Error returned when a supervisor rejects a turn or a subscriber.
///
/// `send`, `resume` and `subscribe` return it before they change anything. After a limit, answer
/// the user with a request to wait, or repeat the call after [`retry`](Self::retry).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// The session already has the maximum number of waiting workload turns.
    #[error(
        "cannot queue the turn: session {session:?} already has {limit} waiting turns, the maximum; send the turn again when another \
         turn has ended"
    )]
    SessionFull {
        /// The name of the session with too many waiting turns.
        session: String,
        /// The maximum number of waiting turns of one session.
        limit: usize,
    },
    /// The supervisor already has the maximum number of waiting turns of all sessions.
    #[error(
        "cannot queue the turn: the supervisor already has {limit} waiting turns, the maximum; send the turn again when another turn has \
         ended"
    )]
    Full {
        /// The maximum number of waiting turns of all sessions.
        limit: usize,
    },
    /// The session name is empty, or longer than a store accepts.
    #[error("invalid session name with {found} bytes; use 1 to {limit} bytes")]
    BadSession {
        /// Length of the invalid session name in bytes.
        found: usize,
        /// Maximum length of a session name in bytes.
        limit: usize,
    },
    /// The supervisor already has the maximum number of subscribers.
    #[error(
        "cannot subscribe to session {session:?}: the supervisor has {limit} subscribers, the maximum; drop some of them, or raise \
         SupervisorBuilder::subscribers"
    )]
    TooManySubscribers {
        /// The name of the session to which no further subscriber was added.
        session: String,
        /// The maximum number of subscribers of all sessions.
        limit: usize,
    },
    /// The supervisor is closed, and accepts no more turns and subscribers.
    #[error("the supervisor is closed and accepts no further turns or subscribers")]
    Closed,
}

impl SupervisorError {
    /// Returns a delay of one second if a repeated call can succeed, and [`Retry::Never`] if the supervisor would reject it
    /// again.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self {
            Self::SessionFull { .. } | Self::Full { .. } | Self::TooManySubscribers { .. } => {
                Retry::After(Duration::from_secs(1))
            }
            Self::BadSession { .. } | Self::Closed => Retry::Never,
        }
    }
}

/// State and counters of a [`Supervisor`].
///
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::workload::{NativeDefinition, Supervisor};
/// use universal_executor::{MemoryStore, Services};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let echo = NativeDefinition::new("echo", |_, _| async { Ok(json!("done")) });
/// let store = MemoryStore::default();
/// let supervisor = Supervisor::builder(Arc::new(echo), &Services::new(), &store).build()?;
/// let turn = supervisor.send("session-1", "hi")?;
/// assert_eq!(supervisor.health().waiting, 1);
///
/// turn.outcome().await;
/// supervisor.close().await;
/// let health = supervisor.health();
/// assert_eq!((health.waiting, health.ended, health.failed), (0, 1, 0));
/// assert!(health.is_closed);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct SupervisorHealth {
    /// Number of sessions with running or waiting turns.
    pub active: usize,
    /// Number of turns that wait to start in all sessions.
    pub waiting: usize,
    /// Number of subscribers of all sessions.
    pub subscribers: usize,
    /// Number of turns that have ended, including failed turns and turns that were dropped while they waited.
    pub ended: u64,
    /// Number of turns of all sessions that failed. Each turn counts once.
    pub failed: u64,
    /// Number of retries of turns after a failed attempt.
    pub restarted: u64,
    /// Number of turns of all sessions that ended as suspended.
    pub suspended: u64,
    /// If `true`, the supervisor is closed and accepts no more turns.
    pub is_closed: bool,
}

/// A turn that a [`Supervisor`] accepted.
#[derive(Debug)]
pub struct SupervisedTurn {
    run: Arc<str>,
    outcome: oneshot::Receiver<TurnOutcome>,
}

impl SupervisedTurn {
    /// Returns the name of the run that executes the workload turn. The events of the turn contain this name. A turn that resumes
    /// a suspended turn has the name of the suspended turn, once the resumed turn has started.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Waits for the end of the workload turn, and returns its outcome. Dropping this value or the future does not stop the turn.
    ///
    /// The outcome is [`Cancelled`](TurnStatus::Cancelled) if the supervisor was dropped before the
    /// turn ended.
    pub async fn outcome(self) -> TurnOutcome {
        let cancelled = TurnOutcome::of(&self.run, TurnStatus::Cancelled);
        self.outcome.await.unwrap_or(cancelled)
    }
}

impl Supervisor {
    /// Maximum length of a supervisor's session name in bytes. The name is part of a tag with the prefix `session:`.
    pub const LONGEST_SESSION: usize = 200;

    /// Returns a builder for a supervisor of a workload. The store handle is cloned.
    pub fn builder<B>(
        definition: Arc<dyn Definition>,
        services: &Services,
        store: &B,
    ) -> SupervisorBuilder
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        SupervisorBuilder::new(definition, services.clone(), Arc::new(store.clone()))
    }

    /// Sends a message to a session, and queues a turn of the workload that processes the message. The turn runs after all
    /// earlier turns of the session have ended. If the last turn of the session is suspended, this turn fails with the code
    /// `suspended`, until that turn is [resumed](Self::resume) or [given up](Self::give_up).
    ///
    /// # Errors
    /// Returns [`SupervisorError::SessionFull`] or [`SupervisorError::Full`] if too many turns wait,
    /// [`SupervisorError::BadSession`] for an invalid name, and [`SupervisorError::Closed`] after
    /// [`close`](Self::close).
    pub fn send(
        &self,
        session: &str,
        message: impl Into<WorkloadMessage>,
    ) -> Result<SupervisedTurn, SupervisorError> {
        self.enqueue(session, TurnInput::Message(message.into()))
    }

    /// Resumes the last turn of a session if this turn is suspended. The turn checks whether the awaited answer or
    /// breadcrumb exists, and whether the wait has expired. If the turn then fails with a permanent error, the turn is
    /// no longer suspended, and the session accepts messages again.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send).
    pub fn resume(&self, session: &str) -> Result<SupervisedTurn, SupervisorError> {
        self.enqueue(session, TurnInput::Resume)
    }

    /// Answers the question of a turn in the name of a person. The ticket is in the turn's
    /// [`Suspended`](crate::workflow::FlowEventKind::Suspended) event, and is the `requestId` of the `human.request.v1`
    /// breadcrumb. A question about a tool call takes `true` or `false`. The turn uses the answer when it is
    /// [resumed](Self::resume).
    ///
    /// An agent can wait for several people at once. The event then has the ticket of one of its questions. The other
    /// questions are in the store: [`recent("human.request.v1", n)`](crate::BreadcrumbStoreExt::recent) returns them.
    ///
    /// If several people answer at once, one answer is accepted, and the other calls fail with
    /// [`TurnAnswerError::NotOpen`]. On a store without [keyed requests](crate::store::Capabilities::keyed_requests),
    /// all can be accepted, and the turn uses the first one. An equal answer of the same person is not an error. An
    /// answer that was changed after it was written does not count, and the question is open again.
    ///
    /// The call reads the question and not the turn, so these answers are accepted and have no effect:
    /// - An answer to a question of an earlier attempt of a step. A step that is retried asks again, under another ticket.
    /// - An answer to a question of an earlier attempt of a turn. A turn that starts again, or that continues from an earlier state after
    ///   an error, asks again. A question with other contents has another ticket. For an equal question under the same ticket, only
    ///   answers after the newest breadcrumb of the question count, so an answer from before must be given again.
    /// - An answer after the step has failed, timed out or was cancelled.
    /// - An answer to a turn that was [given up](Self::give_up).
    ///
    /// # Errors
    /// Returns a [`TurnAnswerError`] if the answer has no effect for another reason. Nothing is written then, except on
    /// a store that does not record the [chosen author](crate::store::Capabilities::chosen_author): if the author that
    /// it records may not answer, the written answer has no effect, and the error is [`TurnAnswerError::NotAllowed`]
    /// with the name of this author.
    ///
    /// # Cancel safety
    /// If the future is dropped, the answer may or may not be written. Another call with the same answer is safe.
    pub async fn answer(
        &self,
        ticket: &str,
        answer: impl Into<Json>,
        by: &str,
    ) -> Result<Arc<Breadcrumb>, TurnAnswerError> {
        answer::answer(&*self.shared.store, ticket, &answer.into(), by).await
    }

    /// Discards the last turn of a session if this turn is suspended. The discarded turn never continues, and the
    /// session accepts messages again. If the turn contains an executor's run, this run stays in the ledger.
    ///
    /// Use it if a question will not be answered. A session whose last turn is not suspended is not
    /// changed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the turn may or may not be discarded. Another call is safe.
    ///
    /// # Errors
    /// Returns a [`SessionError`] if the store fails, or if another writer changed the session at the same time.
    pub async fn give_up(&self, session: &str) -> Result<(), SessionError> {
        let session = self.sessions().session(session);
        let log = session.load().await?;
        let Some(LogEntry::Suspended { trigger, .. }) = log.entries().last() else {
            return Ok(());
        };
        let nothing = LogEntry::Said {
            messages: Vec::new(),
        };
        session.append(&log, &trigger.id.to_string(), nothing).await
    }

    /// Subscribes to the events of a session from now on.
    ///
    /// # Errors
    /// Returns [`SupervisorError::BadSession`], [`SupervisorError::Closed`], or [`SupervisorError::TooManySubscribers`]
    /// if [the limit](SupervisorBuilder::subscribers) is reached.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use std::sync::Arc;
    /// use universal_executor::workload::{NativeDefinition, RunCx, SubscriberItem, Supervisor};
    /// use universal_executor::workload::{WorkloadEventKind, WorkloadMessage};
    /// use universal_executor::{MemoryStore, Services};
    ///
    /// async fn greet(cx: RunCx) -> serde_json::Value {
    ///     cx.say("Hello, ").await;
    ///     cx.say("Ann!").await;
    ///     json!("Hello, Ann!")
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let greeter = NativeDefinition::new("greeter", |cx, _: Option<WorkloadMessage>| async move {
    ///     Ok(greet(cx).await)
    /// });
    /// let store = MemoryStore::default();
    /// let supervisor = Supervisor::builder(Arc::new(greeter), &Services::new(), &store).build()?;
    /// let mut events = supervisor.subscribe("session-1")?;
    /// supervisor.send("session-1", "I am Ann.")?;
    ///
    /// let mut text = String::new();
    /// while let Some(SubscriberItem::Event(event)) = events.next().await {
    ///     match &event.kind {
    ///         WorkloadEventKind::Text(part) => text.push_str(part),
    ///         end if end.is_end() => break,
    ///         _ => {}
    ///     }
    /// }
    /// assert_eq!(text, "Hello, Ann!");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn subscribe(&self, session: &str) -> Result<Subscriber, SupervisorError> {
        Subscriber::new(&self.shared, check(session)?)
    }

    /// Stops the running turn of a session, and drops its waiting turns. Each ends as cancelled, and the waiting ones
    /// at once. A turn that is just being saved in the session keeps its result.
    ///
    /// A session without turns is not an error. The supervisor accepts further messages of the
    /// session.
    pub fn cancel(&self, session: &str) {
        self.shared.cancel(session);
    }

    /// Returns the numbers of sessions, subscribers and turns of the supervisor, and whether it is closed.
    ///
    /// Report `waiting` and `active` as gauges, and the counters as metrics. The counters cover all
    /// sessions since the supervisor was built.
    #[must_use]
    pub fn health(&self) -> SupervisorHealth {
        self.shared.health()
    }

    /// Returns a [`SessionStore`] with access to all sessions in the supervisor's store.
    ///
    /// Use it to show the earlier messages of a session, or to delete a session.
    #[must_use]
    pub fn sessions(&self) -> SessionStore {
        SessionStore::new(Arc::clone(&self.shared.store))
    }

    /// Closes the supervisor: rejects further turns, waits for running and waiting turns, and stops them after the
    /// [drain timeout](SupervisorBuilder::drain_timeout). When the method returns, all workloads are closed that could
    /// be closed [in time](SupervisorBuilder::close_timeout).
    ///
    /// # Cancel safety
    /// If the future is dropped, the supervisor accepts no more turns, but running and waiting turns continue. Another
    /// call waits for them.
    pub async fn close(&self) {
        self.shared.stop_accepting();
        if timeout(
            self.shared.settings.drain_timeout,
            self.shared.wait_until_idle(),
        )
        .await
        .is_err()
        {
            self.shared.stop.cancel();
            self.shared.wait_until_idle().await;
        }
    }

    fn enqueue(&self, session: &str, input: TurnInput) -> Result<SupervisedTurn, SupervisorError> {
        let (outcome_sender, outcome) = oneshot::channel();
        let job = Job::new(input, outcome_sender);
        let run = Arc::clone(&job.run);
        Shared::enqueue(&self.shared, check(session)?, job)?;
        Ok(SupervisedTurn { run, outcome })
    }
}

fn check(session: &str) -> Result<&str, SupervisorError> {
    let (found, limit) = (session.len(), Supervisor::LONGEST_SESSION);
    match (1..=limit).contains(&found) {
        true => Ok(session),
        false => Err(SupervisorError::BadSession { found, limit }),
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.shared.stop_accepting();
        self.shared.stop.cancel();
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}

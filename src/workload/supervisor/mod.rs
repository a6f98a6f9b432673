//! Turns of many sessions, run side by side.

mod answer;
mod builder;
mod hear;
mod lane;
mod settings;
mod work;

pub use answer::TurnAnswerError;
pub use builder::SupervisorBuilder;
pub use hear::{Subscriber, SubscriberItem};

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
use lane::{Job, Shared, What};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Turns messages into runs of a workload, each in its session, and tells any number of subscribers what happens.
///
/// # Promises
/// - **In order.** The turns of one session run one at a time, in the order they were sent. Sessions run side by side.
/// - **Reported.** Each subscriber of a session receives each accepted turn as one stream with one end, also if the turn never began,
///   panicked or was retried. The end is sent before [`SupervisedTurn::outcome`] resolves, and both report the same. A turn is
///   reported as completed or suspended only if the session has stored that.
/// - **Bounded.** So many turns at a time, so many waiting, so many events kept for each subscriber. What finds no room is refused,
///   or [missed](SubscriberItem::Missed), and that is told.
/// - **Closed.** Whatever was made for a turn is closed when it ends, however it ends: by an error, a panic, or from outside.
/// - **Nothing idle.** A session without turns and subscribers costs this nothing: all there is of it is in the store.
/// - **Ends.** [`close`](Self::close) waits for what is running, for a time; dropping it stops all at once. Its tasks end with it.
///
/// What is running is lost in a crash: the session is then as it was before the turn. Turns that have to survive that are runs of a
/// [`WorkloadExecutor`](super::WorkloadExecutor). Needs a tokio runtime with time enabled.
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
/// # Turns that wait
/// A turn whose flow asks a person, or waits for a breadcrumb, ends as [`Suspended`](TurnStatus::Suspended), and is the last of its
/// session: another message fails with the code `suspended`. A supervisor does not check by itself for the answer or for the end of
/// the time: [`resume`](Self::resume) does, and returns a new stream.
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

/// How often a turn is tried that fails in a way that may pass, or panics.
///
/// Each attempt begins anew, with a workload of its own: steps that were done are done again, tools are called again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Restart {
    /// How often it is tried, at the least once; once by default.
    pub attempts: NonZeroU32,
    /// How long is waited before the second attempt, and twice as long before each further one, but no more than a minute unless
    /// this is longer itself; a second by default. An error that asks for more time is given it. Its session waits meanwhile; other
    /// sessions may run in its place.
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

/// A turn could not be taken.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// So many turns of the session wait already.
    #[error("session {session:?} has {limit} turns waiting; send more when some have ended")]
    SessionFull {
        /// The session.
        session: String,
        /// How many may wait.
        limit: usize,
    },
    /// So many turns of all sessions wait already.
    #[error("{limit} turns are waiting; send more when some have ended")]
    Full {
        /// How many may wait.
        limit: usize,
    },
    /// The name of the session is longer than a store keeps, or empty.
    #[error("the name of a session has 1 to {limit} bytes, this one has {found}")]
    BadSession {
        /// How many it has.
        found: usize,
        /// How many it may have.
        limit: usize,
    },
    /// The maximum number of subscribers exists.
    #[error(
        "cannot subscribe to session {session:?}: {limit} subscribers exist; drop some, or raise \
         SupervisorBuilder::subscribers"
    )]
    TooManySubscribers {
        /// The session.
        session: String,
        /// The maximum number of subscribers of all sessions.
        limit: usize,
    },
    /// The supervisor takes no more turns.
    #[error("the supervisor is closed")]
    Closed,
}

impl SupervisorError {
    /// Whether the same may be taken later.
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

/// How a supervisor is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct SupervisorHealth {
    /// Sessions with turns running or waiting.
    pub active: usize,
    /// Turns that wait.
    pub waiting: usize,
    /// Subscribers of all sessions.
    pub subscribers: usize,
    /// Turns that have ended, those included that failed, or were dropped while they waited.
    pub ended: u64,
    /// Turns that failed, each counted once.
    pub failed: u64,
    /// Attempts after a failed one.
    pub restarted: u64,
    /// Turns that ended suspended.
    pub suspended: u64,
    /// Whether it takes no more turns.
    pub is_closed: bool,
}

/// A turn that was taken.
#[derive(Debug)]
pub struct SupervisedTurn {
    run: Arc<str>,
    outcome: oneshot::Receiver<TurnOutcome>,
}

impl SupervisedTurn {
    /// The run, as its events name it. A turn that goes on with another one is named as that is once it has begun.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// What the turn came to. Dropping this does not stop the turn.
    pub async fn outcome(self) -> TurnOutcome {
        let cancelled = TurnOutcome::of(&self.run, TurnStatus::Cancelled);
        self.outcome.await.unwrap_or(cancelled)
    }
}

impl Supervisor {
    /// The longest name of a session, in bytes: with `session:` before it, it is a tag.
    pub const LONGEST_SESSION: usize = 200;

    /// Starts to build a supervisor of a workload. The store handle is cloned.
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

    /// Takes a message to a session: the turn runs once those before it have ended. In a session whose last turn waits for others
    /// it fails with the code `suspended`, until that turn is [gone on with](Self::resume) or [given up](Self::give_up).
    ///
    /// # Errors
    /// [`SupervisorError`].
    pub fn send(
        &self,
        session: &str,
        message: impl Into<WorkloadMessage>,
    ) -> Result<SupervisedTurn, SupervisorError> {
        self.take(session, What::Message(message.into()))
    }

    /// Goes on with the last turn of a session, if that waits for others: it looks whether what it waits for has come. A turn that
    /// then fails for good waits no more, and the session goes on without it.
    ///
    /// # Errors
    /// [`SupervisorError`].
    pub fn resume(&self, session: &str) -> Result<SupervisedTurn, SupervisorError> {
        self.take(session, What::Resume)
    }

    /// Answers the question of a turn in the name of a person, by the ticket of its
    /// [`Suspended`](crate::workflow::FlowEventKind::Suspended) event, which is also the `requestId` of the `human.request.v1`
    /// breadcrumb. A question about a tool call takes `true` or `false`. The turn uses the answer when it is [resumed](Self::resume).
    ///
    /// An agent can wait for several people at once. The event then has the ticket of one of its questions. The other questions are in
    /// the store: [`recent("human.request.v1", n)`](crate::BreadcrumbStoreExt::recent) returns them.
    ///
    /// If several people answer at once, one answer is accepted, and the other calls fail with [`TurnAnswerError::NotOpen`]. On a store
    /// without [keyed requests](crate::store::Capabilities::keyed_requests) all can be accepted, and the turn uses the first one. An
    /// equal answer of the same person is no error. An answer that was changed after it was written does not count, and the question is
    /// open again.
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
    /// [`TurnAnswerError`] if the answer has no effect for another reason. Nothing is written then, except on a store that does not
    /// record the [chosen author](crate::store::Capabilities::chosen_author): if the author that it records may not answer, the written
    /// answer has no effect, and the error is [`TurnAnswerError::NotAllowed`] with the name of this author.
    pub async fn answer(
        &self,
        ticket: &str,
        answer: impl Into<Json>,
        by: &str,
    ) -> Result<Arc<Breadcrumb>, TurnAnswerError> {
        answer::answer(&*self.shared.store, ticket, &answer.into(), by).await
    }

    /// Gives up the last turn of a session, if that waits for others. A run of an executor within it stays in the ledger.
    ///
    /// # Errors
    /// [`SessionError`].
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

    /// Tells all that happens in a session from now on.
    ///
    /// # Errors
    /// [`SupervisorError::BadSession`], [`SupervisorError::Closed`], and [`SupervisorError::TooManySubscribers`] if
    /// [the limit](SupervisorBuilder::subscribers) is reached.
    pub fn subscribe(&self, session: &str) -> Result<Subscriber, SupervisorError> {
        Subscriber::new(&self.shared, check(session)?)
    }

    /// Stops the turn of a session that is running, and drops those that wait: each ends as cancelled. Those that wait are told to
    /// end at once. A turn that is being added to the session ends as that does.
    pub fn cancel(&self, session: &str) {
        self.shared.cancel(session);
    }

    /// How it is.
    #[must_use]
    pub fn health(&self) -> SupervisorHealth {
        self.shared.health()
    }

    /// The sessions.
    #[must_use]
    pub fn sessions(&self) -> SessionStore {
        SessionStore::new(Arc::clone(&self.shared.store))
    }

    /// Takes no more turns, waits for those that run and wait, stops those that take too long, and has closed all it made when it
    /// returns, as far as that could be closed [in time](SupervisorBuilder::close_timeout).
    pub async fn close(&self) {
        self.shared.refuse();
        if timeout(self.shared.settings.drain, self.shared.idle())
            .await
            .is_err()
        {
            self.shared.stop.cancel();
            self.shared.idle().await;
        }
    }

    fn take(&self, session: &str, what: What) -> Result<SupervisedTurn, SupervisorError> {
        let (told, outcome) = oneshot::channel();
        let job = Job::new(what, told);
        let run = Arc::clone(&job.run);
        Shared::take(&self.shared, check(session)?, job)?;
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
        self.shared.refuse();
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

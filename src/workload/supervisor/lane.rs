//! The turns of each session, one after the other.

use super::{Restart, Settings, Subscriber, SupervisorError, SupervisorHealth};
use crate::clock;
use crate::executor::ExecutionContext;
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::workflow::MayRetry;
use crate::workload::cx::Message;
use crate::workload::event::{WorkloadEvent, delay_of};
use crate::workload::session::{Log, LogEntry, Session, SessionError, SessionStore};
use crate::workload::turn::{TurnOf, TurnOutcome, TurnStatus};
use crate::workload::{Definition, Deps};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, broadcast, oneshot, watch};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The schema of what a turn is set off by. It is in no store.
const MESSAGE: &str = "workload.message.v1";

/// What a supervisor and its tasks share.
pub(super) struct Shared {
    pub(super) definition: Arc<dyn Definition>,
    pub(super) deps: Deps,
    pub(super) settings: Settings,
    /// Stops all turns.
    pub(super) stop: CancellationToken,
    permits: Semaphore,
    lanes: Mutex<Lanes>,
    /// How many sessions are at work.
    at_work: watch::Sender<usize>,
}

#[derive(Default)]
struct Lanes {
    by_session: HashMap<Arc<str>, Lane>,
    /// What was counted, and whether no more turns are taken.
    health: SupervisorHealth,
}

/// A session with turns or subscribers.
#[derive(Default)]
struct Lane {
    queue: VecDeque<Job>,
    /// Stops the turn that is running. None if nothing is at work on the session.
    running: Option<CancellationToken>,
    events: Events,
}

/// Made for the first subscriber.
type Events = Arc<OnceLock<broadcast::Sender<Arc<WorkloadEvent>>>>;

/// A turn that waits.
pub(super) struct Job {
    pub(super) run: Arc<str>,
    id: BreadcrumbId,
    what: What,
    told: oneshot::Sender<TurnOutcome>,
}

/// What a turn does.
pub(super) enum What {
    Message(Message),
    /// Goes on with the turn before, if that waits for others.
    Resume,
}

/// What a turn begins with.
struct Begun {
    message: Message,
    trigger: Breadcrumb,
    context: ExecutionContext,
}

impl Job {
    pub(super) fn new(what: What, told: oneshot::Sender<TurnOutcome>) -> Self {
        let id = BreadcrumbId::from(Uuid::new_v4());
        Self {
            run: id.to_string().into(),
            id,
            what,
            told,
        }
    }
}

impl Lane {
    fn is_heard(&self) -> bool {
        let heard = self.events.get().map(broadcast::Sender::receiver_count);
        heard.is_some_and(|heard| heard > 0)
    }
}

impl Shared {
    pub(super) fn new(definition: Arc<dyn Definition>, deps: Deps, settings: Settings) -> Self {
        Self {
            definition,
            deps,
            settings,
            stop: CancellationToken::new(),
            permits: Semaphore::new(settings.at_once.clamp(1, Semaphore::MAX_PERMITS)),
            lanes: Mutex::default(),
            at_work: watch::Sender::new(0),
        }
    }

    /// Lets a turn wait for its session, and sees to it that somebody works on that.
    pub(super) fn take(this: &Arc<Self>, session: &str, job: Job) -> Result<(), SupervisorError> {
        let Settings { queue, queued, .. } = this.settings;
        let mut lanes = this.lanes();
        if lanes.health.is_closed {
            return Err(SupervisorError::Closed);
        }
        if lanes.health.waiting >= queued {
            return Err(SupervisorError::Full { limit: queued });
        }
        let session: Arc<str> = session.into();
        let lane = lanes.by_session.entry(Arc::clone(&session)).or_default();
        if lane.queue.len() >= queue {
            return Err(SupervisorError::SessionFull {
                session: session.to_string(),
                limit: queue,
            });
        }
        lane.queue.push_back(job);
        let is_idle = lane.running.is_none();
        if is_idle {
            lane.running = Some(this.stop.child_token());
            lanes.health.active += 1;
        }
        lanes.health.waiting += 1;
        drop(lanes);
        if is_idle {
            this.at_work.send_modify(|at_work| *at_work += 1);
            tokio::spawn(Self::work(Arc::clone(this), session));
        }
        Ok(())
    }

    pub(super) fn subscribe(
        self: &Arc<Self>,
        session: &str,
    ) -> Result<Subscriber, SupervisorError> {
        let mut lanes = self.lanes();
        if lanes.health.is_closed {
            return Err(SupervisorError::Closed);
        }
        let session: Arc<str> = session.into();
        let lane = lanes.by_session.entry(Arc::clone(&session)).or_default();
        let room = self.settings.buffer.clamp(1, usize::MAX / 4);
        let sender = lane.events.get_or_init(|| broadcast::Sender::new(room));
        Ok(Subscriber {
            session,
            events: sender.subscribe(),
            shared: Arc::downgrade(self),
        })
    }

    /// Forgets a session that nobody but this subscriber, which goes, has a use for.
    pub(super) fn forget(&self, session: &str) {
        let mut lanes = self.lanes();
        let is_last = lanes.by_session.get(session).is_some_and(|lane| {
            let heard = lane.events.get().map(broadcast::Sender::receiver_count);
            lane.running.is_none() && heard.is_none_or(|heard| heard <= 1)
        });
        if is_last {
            lanes.by_session.remove(session);
        }
    }

    pub(super) fn cancel(&self, session: &str) {
        let mut lanes = self.lanes();
        let Some(lane) = lanes.by_session.get_mut(session) else {
            return;
        };
        if let Some(running) = &lane.running {
            running.cancel();
        }
        let dropped = std::mem::take(&mut lane.queue);
        lanes.health.waiting -= dropped.len();
    }

    pub(super) fn health(&self) -> SupervisorHealth {
        self.lanes().health
    }

    /// Takes no more turns. Who hears of sessions without turns is told that nothing follows.
    pub(super) fn refuse(&self) {
        let mut lanes = self.lanes();
        lanes.health.is_closed = true;
        lanes.by_session.retain(|_, lane| lane.running.is_some());
    }

    /// Resolves when nothing is at work.
    pub(super) async fn idle(&self) {
        let mut at_work = self.at_work.subscribe();
        // The sender is in `self`, so this ends only when nothing is at work.
        if at_work.wait_for(|at_work| *at_work == 0).await.is_err() {
            tracing::debug!("nothing can be at work any more");
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the turns of a session until none waits.
    async fn work(this: Arc<Self>, session: Arc<str>) {
        while let Some((job, stopped, events)) = this.next(&session) {
            let permit = tokio::select! {
                biased;
                () = stopped.cancelled() => None,
                permit = this.permits.acquire() => permit.ok(),
            };
            let outcome = match permit {
                Some(_) => this.run(&session, &job, &stopped, &events).await,
                None => ended(&job.run, TurnStatus::Cancelled),
            };
            this.count(&outcome);
            let is_heard = job.told.send(outcome).is_ok();
            tracing::trace!(is_heard, "a turn has ended");
        }
        this.at_work.send_modify(|at_work| *at_work -= 1);
    }

    /// The next turn of a session; none if nothing is to be done for it any more.
    fn next(&self, session: &Arc<str>) -> Option<(Job, CancellationToken, Events)> {
        let mut lanes = self.lanes();
        let lane = lanes.by_session.get_mut(session)?;
        if let Some(job) = lane.queue.pop_front() {
            let stopped = self.stop.child_token();
            lane.running = Some(stopped.clone());
            let events = Arc::clone(&lane.events);
            lanes.health.waiting -= 1;
            return Some((job, stopped, events));
        }
        lane.running = None;
        let is_needed = lane.is_heard();
        lanes.health.active -= 1;
        if !is_needed || lanes.health.is_closed {
            lanes.by_session.remove(session);
        }
        None
    }

    fn count(&self, outcome: &TurnOutcome) {
        let mut lanes = self.lanes();
        lanes.health.ended += 1;
        match &outcome.status {
            TurnStatus::Failed { .. } => lanes.health.failed += 1,
            TurnStatus::Suspended { .. } => lanes.health.suspended += 1,
            TurnStatus::Completed { .. } | TurnStatus::Cancelled => {}
        }
    }

    /// Runs a turn, as often as it may be tried.
    async fn run(
        &self,
        session: &str,
        job: &Job,
        stopped: &CancellationToken,
        events: &Events,
    ) -> TurnOutcome {
        let Restart { attempts, delay } = self.settings.restart;
        let mut attempt = 1;
        loop {
            let outcome = self.run_once(session, job, stopped, events).await;
            let TurnStatus::Failed { retry, .. } = &outcome.status else {
                return outcome;
            };
            let Some(asked) = delay_of(*retry).filter(|_| attempt < attempts.get()) else {
                return outcome;
            };
            let delay: Duration = delay.saturating_mul(1 << (attempt - 1).min(16)).max(asked);
            tokio::select! {
                biased;
                () = stopped.cancelled() => return ended(&job.run, TurnStatus::Cancelled),
                () = sleep(delay) => {}
            }
            attempt += 1;
            self.lanes().health.restarted += 1;
        }
    }

    async fn run_once(
        &self,
        session: &str,
        job: &Job,
        stopped: &CancellationToken,
        events: &Events,
    ) -> TurnOutcome {
        let sessions = SessionStore::new(Arc::clone(self.deps.store()));
        let session = sessions.session(session);
        let begun = match self.begin(&session, job).await {
            Ok(Ok(begun)) => begun,
            Ok(Err(refused)) => return ended(&job.run, refused),
            Err(error) => return ended(&job.run, TurnStatus::of_error(&error.into())),
        };
        let Begun {
            message,
            trigger,
            context,
        } = begun;
        // A turn that goes on has the name that it had.
        let run: Arc<str> = trigger.id.to_string().into();
        let turn = TurnOf {
            definition: &*self.definition,
            deps: &self.deps,
            run: Arc::clone(&run),
            parent: None,
            context,
            session: Some(session.clone()),
            message: message.clone(),
        };
        let mut tell = |event| {
            if let Some(events) = events.get() {
                // That nobody listens is no error.
                drop(events.send(Arc::new(event)));
            }
        };
        let outcome = turn.run(&mut tell, stopped.cancelled()).await;
        if let TurnStatus::Suspended { state, .. } = &outcome.status {
            let entry = LogEntry::Suspended {
                message,
                trigger: Box::new(trigger),
                state: state.clone(),
            };
            if let Err(error) = keep(&session, &run, entry).await {
                return ended(&run, TurnStatus::of_error(&error.into()));
            }
        }
        outcome
    }

    /// What a turn begins with, or why it does not.
    async fn begin(
        &self,
        session: &Session,
        job: &Job,
    ) -> Result<Result<Begun, TurnStatus>, SessionError> {
        let log: Log = session.load().await?;
        let failed = |code, message| Ok(Err(TurnStatus::failed(code, message, MayRetry::Never)));
        match (&job.what, log.entries().last()) {
            (
                What::Resume,
                Some(LogEntry::Suspended {
                    message,
                    trigger,
                    state,
                }),
            ) => {
                let context = ExecutionContext::for_trigger((**trigger).clone());
                Ok(Ok(Begun {
                    message: message.clone(),
                    trigger: (**trigger).clone(),
                    context: context.with_resumed(state.clone(), None),
                }))
            }
            (What::Resume, Some(LogEntry::Said { .. }) | None) => {
                failed("not_suspended", "no turn of the session waits for others")
            }
            (What::Message(_), Some(LogEntry::Suspended { .. })) => failed(
                "suspended",
                "the turn before waits for others; go on with it, or give it up",
            ),
            (What::Message(message), Some(LogEntry::Said { .. }) | None) => {
                let now = Timestamp::from_micros(clock::wall_micros());
                let new = message
                    .breadcrumb(MESSAGE)
                    .tag(format!("session:{}", session.id()));
                let trigger = new.first_version(job.id, now);
                Ok(Ok(Begun {
                    message: message.clone(),
                    context: ExecutionContext::for_trigger(trigger.clone()),
                    trigger,
                }))
            }
        }
    }
}

async fn keep(session: &Session, run: &str, entry: LogEntry) -> Result<(), SessionError> {
    let log = session.load().await?;
    session.append(&log, run, entry).await
}

fn ended(run: &Arc<str>, status: TurnStatus) -> TurnOutcome {
    TurnOutcome {
        run: Arc::clone(run),
        status,
        not_closed: None,
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

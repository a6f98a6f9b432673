//! Turns of each session of a supervisor, which run one after the other.

use super::settings::Settings;
use super::{SupervisorError, SupervisorHealth};
use crate::model::BreadcrumbId;
use crate::services::Services;
use crate::store::BreadcrumbStore;
use crate::workload::Definition;
use crate::workload::cx::WorkloadMessage;
use crate::workload::event::WorkloadEvent;
use crate::workload::sink::Sink;
use crate::workload::telling::Telling;
use crate::workload::turn::TurnOutcome;
use crate::workload::turn_status::TurnStatus;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::{Semaphore, broadcast, oneshot, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// State that a supervisor shares with its tasks.
pub(super) struct Shared {
    pub(super) definition: Arc<dyn Definition>,
    pub(super) services: Services,
    pub(super) store: Arc<dyn BreadcrumbStore>,
    pub(super) settings: Settings,
    /// Token that stops all turns of the supervisor.
    pub(super) stop: CancellationToken,
    pub(super) permits: Semaphore,
    lanes: Mutex<Lanes>,
    /// Number of the supervisor's sessions with a running or waiting turn.
    at_work: watch::Sender<usize>,
}

#[derive(Default)]
struct Lanes {
    by_session: HashMap<Arc<str>, Lane>,
    /// The supervisor's counters, and the flag that it is closed.
    health: SupervisorHealth,
}

/// State of a session with turns or subscribers.
#[derive(Default)]
struct Lane {
    queue: VecDeque<Job>,
    /// Token that stops the running turn of the session, or `None` if the session is idle.
    running: Option<CancellationToken>,
    events: Events,
}

/// Sender of a session's events, which the first subscriber creates.
type Events = Arc<OnceLock<broadcast::Sender<Arc<WorkloadEvent>>>>;

/// A turn of a session that waits to start.
pub(super) struct Job {
    pub(super) run: Arc<str>,
    pub(super) id: BreadcrumbId,
    pub(super) what: What,
    told: oneshot::Sender<TurnOutcome>,
}

/// The input of a turn: a message, or the request to continue a suspended turn.
pub(super) enum What {
    Message(WorkloadMessage),
    /// The request to continue the session's previous turn, if that turn is suspended.
    Resume,
}

impl Job {
    pub(super) fn new(what: What, told: oneshot::Sender<TurnOutcome>) -> Self {
        let id = BreadcrumbId::from_bytes(Uuid::new_v4().into_bytes());
        Self {
            run: id.to_string().into(),
            id,
            what,
            told,
        }
    }

    /// Returns the emitter of the turn's events for the subscribers of its session. The emitter holds the sender
    /// weakly, so an emitter that a workload retains keeps no subscription open.
    fn telling(&self, events: &Events) -> Telling {
        let events = Arc::downgrade(events);
        let sink = Sink::new(move |event| {
            if let Some(events) = events.upgrade().as_ref().and_then(|events| events.get()) {
                // Sending fails if there is no subscriber.
                drop(events.send(Arc::new(event)));
            }
        });
        Telling::new(Arc::clone(&self.run), None, sink)
    }
}

impl Lane {
    fn is_heard(&self) -> bool {
        let heard = self.events.get().map(broadcast::Sender::receiver_count);
        heard.is_some_and(|heard| heard > 0)
    }
}

impl Shared {
    pub(super) fn new(
        definition: Arc<dyn Definition>,
        services: Services,
        store: Arc<dyn BreadcrumbStore>,
        settings: Settings,
    ) -> Self {
        Self {
            definition,
            services,
            store,
            settings,
            stop: CancellationToken::new(),
            permits: Semaphore::new(settings.at_once.clamp(1, Semaphore::MAX_PERMITS)),
            lanes: Mutex::default(),
            at_work: watch::Sender::new(0),
        }
    }

    /// Adds a turn to the queue of its session, and starts a task for an idle session.
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
        if is_idle {
            // A concurrent `close` has to wait for this turn.
            this.at_work.send_modify(|at_work| *at_work += 1);
        }
        drop(lanes);
        if is_idle {
            tokio::spawn(Self::work(Arc::clone(this), session));
        }
        Ok(())
    }

    /// Adds a subscriber of a session, and returns the receiver of its events. The subscriber [leaves](Self::leave) when it is dropped.
    pub(super) fn join(
        &self,
        session: &Arc<str>,
    ) -> Result<broadcast::Receiver<Arc<WorkloadEvent>>, SupervisorError> {
        let mut lanes = self.lanes();
        if lanes.health.is_closed {
            return Err(SupervisorError::Closed);
        }
        let limit = self.settings.subscribers;
        if lanes.health.subscribers >= limit {
            return Err(SupervisorError::TooManySubscribers {
                session: session.to_string(),
                limit,
            });
        }
        lanes.health.subscribers += 1;
        let lane = lanes.by_session.entry(Arc::clone(session)).or_default();
        let room = self.settings.buffer.clamp(1, usize::MAX / 4);
        let sender = lane.events.get_or_init(|| broadcast::Sender::new(room));
        Ok(sender.subscribe())
    }

    /// Decreases the supervisor's number of subscribers by one. If the subscriber's session is idle and has no other subscriber, removes
    /// the session from memory.
    pub(super) fn leave(&self, session: &str) {
        let mut lanes = self.lanes();
        lanes.health.subscribers = lanes.health.subscribers.saturating_sub(1);
        drop(lanes);
        self.forget(session);
    }

    /// Removes a session that has neither turns nor subscribers from the supervisor's memory.
    pub(super) fn forget(&self, session: &str) {
        let mut lanes = self.lanes();
        let lane = lanes.by_session.get(session);
        if lane.is_some_and(|lane| lane.running.is_none() && !lane.is_heard()) {
            lanes.by_session.remove(session);
        }
    }

    /// Returns the number of sessions in the supervisor's memory.
    #[cfg(test)]
    pub(super) fn sessions(&self) -> usize {
        self.lanes().by_session.len()
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
        let events = Arc::clone(&lane.events);
        lanes.health.waiting -= dropped.len();
        drop(lanes);
        for job in dropped {
            job.telling(&events).end(&TurnStatus::Cancelled);
            self.count(&TurnStatus::Cancelled);
        }
    }

    pub(super) fn health(&self) -> SupervisorHealth {
        self.lanes().health
    }

    /// Makes the supervisor reject further turns, and ends the subscriptions of sessions without turns.
    pub(super) fn refuse(&self) {
        let mut lanes = self.lanes();
        lanes.health.is_closed = true;
        lanes.by_session.retain(|_, lane| lane.running.is_some());
    }

    /// Waits until no session has a running or waiting turn.
    pub(super) async fn idle(&self) {
        let mut at_work = self.at_work.subscribe();
        // `self` owns the sender, so the wait ends only when the count is 0.
        if at_work.wait_for(|at_work| *at_work == 0).await.is_err() {
            tracing::debug!(
                "a supervisor was dropped while a caller waited for its sessions to become idle"
            );
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the turns of a session until none waits.
    async fn work(this: Arc<Self>, session: Arc<str>) {
        while let Some((job, stopped, events)) = this.next(&session) {
            let mut telling = job.telling(&events);
            let outcome = this.run(&session, &job, &stopped, &mut telling).await;
            telling.end(&outcome.status);
            this.count(&outcome.status);
            let caller_waits = job.told.send(outcome).is_ok();
            tracing::trace!(caller_waits, "a turn ended");
        }
        this.at_work.send_modify(|at_work| *at_work -= 1);
    }

    /// Returns the next turn of a session, or `None` once the session is idle.
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

    pub(super) fn count_restart(&self) {
        self.lanes().health.restarted += 1;
    }

    fn count(&self, status: &TurnStatus) {
        let mut lanes = self.lanes();
        lanes.health.ended += 1;
        match status {
            TurnStatus::Failed { .. } => lanes.health.failed += 1,
            TurnStatus::Suspended { .. } => lanes.health.suspended += 1,
            TurnStatus::Completed { .. } | TurnStatus::Cancelled => {}
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

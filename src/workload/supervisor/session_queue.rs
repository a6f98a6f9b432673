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
use crate::workload::turn::TurnOutcome;
use crate::workload::turn_emitter::TurnEmitter;
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
    queues: Mutex<SessionQueues>,
    /// Number of the supervisor's sessions with a running or waiting turn.
    active_sessions: watch::Sender<usize>,
}

#[derive(Default)]
struct SessionQueues {
    by_session: HashMap<Arc<str>, SessionQueue>,
    /// The supervisor's counters, and the flag that it is closed.
    health: SupervisorHealth,
}

/// State of a session with turns or subscribers.
#[derive(Default)]
struct SessionQueue {
    jobs: VecDeque<Job>,
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
    pub(super) input: TurnInput,
    outcome_sender: oneshot::Sender<TurnOutcome>,
}

/// The input of a turn: a message, or the request to continue a suspended turn.
pub(super) enum TurnInput {
    Message(WorkloadMessage),
    /// The request to continue the session's previous turn, if that turn is suspended.
    Resume,
}

impl Job {
    pub(super) fn new(input: TurnInput, outcome_sender: oneshot::Sender<TurnOutcome>) -> Self {
        let id = BreadcrumbId::from_bytes(Uuid::new_v4().into_bytes());
        Self {
            run: id.to_string().into(),
            id,
            input,
            outcome_sender,
        }
    }

    /// Returns the emitter of the turn's events for the subscribers of its session. The emitter holds the sender
    /// weakly, so an emitter that a workload retains keeps no subscription open.
    fn emitter(&self, events: &Events) -> TurnEmitter {
        let events = Arc::downgrade(events);
        let sink = Sink::new(move |event| {
            if let Some(events) = events.upgrade().as_ref().and_then(|events| events.get()) {
                // Sending fails if there is no subscriber.
                drop(events.send(Arc::new(event)));
            }
        });
        TurnEmitter::new(Arc::clone(&self.run), None, sink)
    }
}

impl SessionQueue {
    fn has_subscribers(&self) -> bool {
        let subscribers = self.events.get().map(broadcast::Sender::receiver_count);
        subscribers.is_some_and(|subscribers| subscribers > 0)
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
            permits: Semaphore::new(settings.concurrency.clamp(1, Semaphore::MAX_PERMITS)),
            queues: Mutex::default(),
            active_sessions: watch::Sender::new(0),
        }
    }

    /// Adds a turn to the queue of its session, and starts a task for an idle session.
    pub(super) fn enqueue(
        this: &Arc<Self>,
        session: &str,
        job: Job,
    ) -> Result<(), SupervisorError> {
        let Settings {
            max_waiting_per_session,
            max_waiting,
            ..
        } = this.settings;
        let mut queues = this.queues();
        if queues.health.is_closed {
            return Err(SupervisorError::Closed);
        }
        if queues.health.waiting >= max_waiting {
            return Err(SupervisorError::Full { limit: max_waiting });
        }
        let session: Arc<str> = session.into();
        let queue = queues.by_session.entry(Arc::clone(&session)).or_default();
        if queue.jobs.len() >= max_waiting_per_session {
            return Err(SupervisorError::SessionFull {
                session: session.to_string(),
                limit: max_waiting_per_session,
            });
        }
        queue.jobs.push_back(job);
        let is_idle = queue.running.is_none();
        if is_idle {
            queue.running = Some(this.stop.child_token());
            queues.health.active += 1;
        }
        queues.health.waiting += 1;
        if is_idle {
            // A concurrent `close` has to wait for this turn.
            this.active_sessions
                .send_modify(|active_sessions| *active_sessions += 1);
        }
        drop(queues);
        if is_idle {
            tokio::spawn(Self::run_turns(Arc::clone(this), session));
        }
        Ok(())
    }

    /// Adds a subscriber of a session, and returns the receiver of its events. A dropped subscriber calls
    /// [`remove_subscriber`](Self::remove_subscriber).
    pub(super) fn add_subscriber(
        &self,
        session: &Arc<str>,
    ) -> Result<broadcast::Receiver<Arc<WorkloadEvent>>, SupervisorError> {
        let mut queues = self.queues();
        if queues.health.is_closed {
            return Err(SupervisorError::Closed);
        }
        let limit = self.settings.subscribers;
        if queues.health.subscribers >= limit {
            return Err(SupervisorError::TooManySubscribers {
                session: session.to_string(),
                limit,
            });
        }
        queues.health.subscribers += 1;
        let queue = queues.by_session.entry(Arc::clone(session)).or_default();
        let capacity = self.settings.buffer.clamp(1, usize::MAX / 4);
        let sender = queue
            .events
            .get_or_init(|| broadcast::Sender::new(capacity));
        Ok(sender.subscribe())
    }

    /// Decreases the supervisor's subscriber count after a subscriber of a session is dropped. If the subscriber's
    /// session is idle and has no other subscriber, removes the session from memory.
    pub(super) fn remove_subscriber(&self, session: &str) {
        let mut queues = self.queues();
        queues.health.subscribers = queues.health.subscribers.saturating_sub(1);
        drop(queues);
        self.remove_if_unused(session);
    }

    /// Removes a session that has neither turns nor subscribers from the supervisor's memory.
    pub(super) fn remove_if_unused(&self, session: &str) {
        let mut queues = self.queues();
        let queue = queues.by_session.get(session);
        if queue.is_some_and(|queue| queue.running.is_none() && !queue.has_subscribers()) {
            queues.by_session.remove(session);
        }
    }

    /// Returns the number of sessions in the supervisor's memory.
    #[cfg(test)]
    pub(super) fn sessions(&self) -> usize {
        self.queues().by_session.len()
    }

    pub(super) fn cancel(&self, session: &str) {
        let mut queues = self.queues();
        let Some(queue) = queues.by_session.get_mut(session) else {
            return;
        };
        if let Some(running) = &queue.running {
            running.cancel();
        }
        let dropped = std::mem::take(&mut queue.jobs);
        let events = Arc::clone(&queue.events);
        queues.health.waiting -= dropped.len();
        drop(queues);
        for job in dropped {
            job.emitter(&events).end(&TurnStatus::Cancelled);
            self.count_ended(&TurnStatus::Cancelled);
        }
    }

    pub(super) fn health(&self) -> SupervisorHealth {
        self.queues().health
    }

    /// Makes the supervisor reject further turns, and ends the subscriptions of sessions without turns.
    pub(super) fn stop_accepting(&self) {
        let mut queues = self.queues();
        queues.health.is_closed = true;
        queues.by_session.retain(|_, queue| queue.running.is_some());
    }

    /// Waits until no session has a running or waiting turn.
    pub(super) async fn wait_until_idle(&self) {
        let mut active_sessions = self.active_sessions.subscribe();
        // `self` owns the sender, so the wait ends only when the count is 0.
        if active_sessions
            .wait_for(|active_sessions| *active_sessions == 0)
            .await
            .is_err()
        {
            tracing::debug!(
                "a supervisor was dropped while a caller waited for its sessions to become idle"
            );
        }
    }

    fn queues(&self) -> MutexGuard<'_, SessionQueues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the waiting turns of a session one after the other, until no turn waits.
    async fn run_turns(this: Arc<Self>, session: Arc<str>) {
        while let Some((job, stopped, events)) = this.next_turn(&session) {
            let mut emitter = job.emitter(&events);
            let outcome = this.run(&session, &job, &stopped, &mut emitter).await;
            emitter.end(&outcome.status);
            this.count_ended(&outcome.status);
            let is_received = job.outcome_sender.send(outcome).is_ok();
            tracing::trace!(
                caller_waits = is_received,
                "a turn of a workload session ended"
            );
        }
        this.active_sessions
            .send_modify(|active_sessions| *active_sessions -= 1);
    }

    /// Returns the next turn of a session, or `None` once the session is idle.
    fn next_turn(&self, session: &Arc<str>) -> Option<(Job, CancellationToken, Events)> {
        let mut queues = self.queues();
        let queue = queues.by_session.get_mut(session)?;
        if let Some(job) = queue.jobs.pop_front() {
            let stopped = self.stop.child_token();
            queue.running = Some(stopped.clone());
            let events = Arc::clone(&queue.events);
            queues.health.waiting -= 1;
            return Some((job, stopped, events));
        }
        queue.running = None;
        let is_needed = queue.has_subscribers();
        queues.health.active -= 1;
        if !is_needed || queues.health.is_closed {
            queues.by_session.remove(session);
        }
        None
    }

    pub(super) fn count_restart(&self) {
        self.queues().health.restarted += 1;
    }

    fn count_ended(&self, status: &TurnStatus) {
        let mut queues = self.queues();
        queues.health.ended += 1;
        match status {
            TurnStatus::Failed { .. } => queues.health.failed += 1,
            TurnStatus::Suspended { .. } => queues.health.suspended += 1,
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

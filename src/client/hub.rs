//! Subscription of a client to the events of its store, shared by all waits for runs.

use crate::clock::later;
use crate::error::Chain;
use crate::model::{BreadcrumbId, Event, EventKind};
use crate::source::{Deliveries, EventSource, StartAt};
use futures::StreamExt as _;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The event subscription of a client, which wakes the client's waits for runs. A background task reads the events while the client waits,
/// and for [`IDLE_TIMEOUT`] after that.
pub(super) struct Hub {
    shared: Arc<Shared>,
    /// Ends the client's event subscription when the last clone of the client is dropped.
    _guard: DropGuard,
}

struct Shared {
    source: Box<dyn EventSource>,
    waits: Mutex<Waits>,
    closed: CancellationToken,
    /// Wakes the client's background task when a wait of the client for a run starts or ends.
    changed: Notify,
}

#[derive(Default)]
struct Waits {
    by_trigger: HashMap<BreadcrumbId, Vec<Arc<Notify>>>,
    count: usize,
    has_task: bool,
}

/// Maximum number of open waits for runs that one client can wake when the store reports an event. Any further wait only polls
/// its run.
const MAX_WAITS: usize = 10_000;

/// Duration without open waits for runs after which the client closes its event subscription. A request within this time uses the
/// open subscription.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause before the client subscribes to the events of its store again, after its event subscription has failed or ended.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A listener of a client, notified of store events about one trigger while the client waits for the trigger's run. Dropping it
/// ends the wait.
pub(super) struct Listener {
    shared: Arc<Shared>,
    trigger: BreadcrumbId,
    notify: Arc<Notify>,
}

impl Hub {
    pub(super) fn new(source: Box<dyn EventSource>) -> Self {
        let closed = CancellationToken::new();
        Self {
            _guard: closed.clone().drop_guard(),
            shared: Arc::new(Shared {
                source,
                waits: Mutex::default(),
                closed,
                changed: Notify::new(),
            }),
        }
    }

    /// Registers a listener for store events about a trigger, for a client that waits for the trigger's run. The caller must also
    /// poll the run, because an event can be missed while the subscription starts.
    pub(super) fn listen(&self, trigger: BreadcrumbId) -> Listener {
        let (shared, notify) = (Arc::clone(&self.shared), Arc::new(Notify::new()));
        let mut waits = shared.waits();
        if waits.count < MAX_WAITS {
            waits.count += 1;
            let notifies = waits.by_trigger.entry(trigger).or_default();
            notifies.push(Arc::clone(&notify));
        }
        let has_task = std::mem::replace(&mut waits.has_task, true);
        drop(waits);
        if !has_task {
            let task = Task {
                shared: Arc::clone(&shared),
                has_ended: false,
            };
            // The lock is released before, because a tokio runtime that shuts down drops the task here, and its drop takes the lock.
            tokio::spawn(forward_events(task));
        }
        shared.changed.notify_one();
        Listener {
            shared,
            trigger,
            notify,
        }
    }
}

impl Listener {
    /// Waits for an event about the trigger of the run. An event since the last call counts.
    pub(super) fn notified(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut waits = self.shared.waits();
        if let Some(notifies) = waits.by_trigger.get_mut(&self.trigger) {
            let before = notifies.len();
            notifies.retain(|other| !Arc::ptr_eq(other, &self.notify));
            let (removed, is_empty) = (before - notifies.len(), notifies.is_empty());
            waits.count -= removed;
            if is_empty {
                waits.by_trigger.remove(&self.trigger);
            }
        }
        drop(waits);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        self.waits().by_trigger.is_empty()
    }

    /// Ends the client's event subscription unless the client waits for a run. Returns `true` if the subscription ends.
    fn end_if_idle(&self) -> bool {
        let mut waits = self.waits();
        let is_idle = waits.by_trigger.is_empty();
        waits.has_task = !is_idle;
        is_idle
    }

    /// Wakes all waits of the client, because events may have been missed.
    fn wake_all(&self) {
        for notify in self.waits().by_trigger.values().flatten() {
            notify.notify_one();
        }
    }

    /// Wakes the client's waits for runs on a trigger when a store event reports a breadcrumb that a run on this trigger wrote.
    fn wake(&self, event: &Event) {
        if event.kind == EventKind::Ping {
            return;
        }
        let Some(context) = &event.context else {
            // The breadcrumb is too large for its event.
            return self.wake_all();
        };
        let trigger = context.text("creator.trigger_id");
        let trigger = trigger.or_else(|| context.text("trigger_id"));
        let Some(trigger) = trigger.and_then(|id| id.parse::<BreadcrumbId>().ok()) else {
            return;
        };
        for notify in self.waits().by_trigger.get(&trigger).into_iter().flatten() {
            notify.notify_one();
        }
    }
}

/// The background task that wakes a client's waits for runs. If the task panics or its tokio runtime shuts down, the drop lets the next
/// wait start another task.
struct Task {
    shared: Arc<Shared>,
    has_ended: bool,
}

impl Drop for Task {
    fn drop(&mut self) {
        // After a normal end, the next wait may have started another task already.
        if !self.has_ended {
            self.shared.waits().has_task = false;
        }
    }
}

/// Passes store events to the waits of a client, until the client has been without open waits for the duration
/// [`IDLE_TIMEOUT`].
async fn forward_events(mut task: Task) {
    let shared = Arc::clone(&task.shared);
    let events = async {
        loop {
            match shared.source.subscribe(StartAt::Now).await {
                Ok(deliveries) => {
                    shared.wake_all();
                    forward(&shared, deliveries).await;
                }
                Err(error) => {
                    tracing::warn!(
                        code = error.code(),
                        error = %Chain(&error),
                        "a client cannot subscribe to the events of its store, will retry; replies arrive late until a retry succeeds"
                    );
                }
            }
            sleep(RETRY_DELAY).await;
        }
    };
    tokio::select! {
        () = shared.closed.cancelled() => {}
        () = events => {}
        () = wait_until_idle(&shared) => task.has_ended = true,
    }
}

/// Passes events to the waits of a client until the stream of events ends.
async fn forward(shared: &Shared, mut deliveries: Deliveries) {
    while let Some(delivery) = deliveries.next().await {
        match delivery {
            Ok(delivery) => {
                shared.wake(&delivery.event);
                if let Err(error) = delivery.ack().await {
                    tracing::debug!(code = error.code(), error = %Chain(&error), "a client cannot acknowledge an event; the source may \
                        deliver the event again");
                }
            }
            // Lost events can be about any run.
            Err(error) => {
                tracing::debug!(code = error.code(), error = %Chain(&error), "a client of this process missed events, so its waiting calls read the store");
                shared.wake_all();
            }
        }
    }
}

/// Returns after the client has been without open waits for the duration [`IDLE_TIMEOUT`].
async fn wait_until_idle(shared: &Shared) {
    let mut idle_since: Option<Instant> = None;
    loop {
        idle_since = match shared.is_idle() {
            true => Some(idle_since.unwrap_or_else(Instant::now)),
            false => None,
        };
        match idle_since.map(|idle_since| later(idle_since, IDLE_TIMEOUT)) {
            Some(end) if Instant::now() >= end => {
                if shared.end_if_idle() {
                    return;
                }
            }
            Some(end) => tokio::select! {
                () = sleep_until(end) => {}
                () = shared.changed.notified() => {}
            },
            None => shared.changed.notified().await,
        }
    }
}

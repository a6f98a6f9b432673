//! Intake of a runtime: passes each event delivery to every executor that the event triggers, and to every open `wait_for` call that the
//! event answers.

mod dispatch;
mod input;

use self::input::{IntakeInput, next_input, subscribe};
use super::ack_tracker::{AckTrackers, DeliveryPermit, Origin, Redelivery, trackers};
use super::arrival::Arrival;
use super::checkpoint::{OVERLAP, earlier};
use super::definition_updates::{self, ChangedDefinition};
use super::definitions::DefinitionLoader;
use super::enqueue::Enqueuer;
use super::first_start;
use super::pending_acks::PendingAcks;
use super::saved_position;
use super::scheduler::Scheduler;
use super::shared::Shared;
use super::store_context::{Blocked, StoreContext};
use super::sweep::SweptBreadcrumb;
use super::timeouts::RETRY_PAUSE;
use super::waker::{self, AnnouncedBreadcrumb, Waker, until};
use super::{Runtime, metrics};
use crate::bugs::planted;
use crate::clock::later;
use crate::error::Chain;
use crate::error::Retry;
use crate::model::{Event, EventKind, Timestamp};
use crate::source::{Deliveries, Delivery, SourceError};
use futures::future::join_all;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// Maximum number of event redeliveries by the runtime itself that wait to be processed.
const MAX_REDELIVERIES: usize = 64;

/// Maximum number of triggers found by sweeps of the stores that wait to be processed. Sweeps find triggers whose events did not arrive.
const MAX_SWEPT: usize = 64;

/// Number of event loop iterations after which one iteration prefers triggers that a sweep found over event deliveries.
const SWEEP_FIRST_INTERVAL: u32 = 64;

/// The longest pause before the event source is polled again after errors.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Pause before the event source is polled after an error that only an operator can remedy, such as a refused login.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

pub(super) struct Intake<'r> {
    runtime: &'r Runtime,
    shared: Arc<Shared>,
    tasks: &'r mut JoinSet<()>,
    /// The tasks that process event deliveries, one entry per store, keyed by the store's number in this runtime.
    stores: HashMap<u64, StoreTasks>,
    /// The loader of executor definitions, and the sender to the task that retries failed loads.
    definitions: Option<(Arc<DefinitionLoader>, mpsc::Sender<ChangedDefinition>)>,
    trackers: AckTrackers,
    /// Channel of the triggers that sweeps found in the stores.
    swept: (
        mpsc::Sender<SweptBreadcrumb>,
        mpsc::Receiver<SweptBreadcrumb>,
    ),
    /// Receiver of unhandled event deliveries that the event source does not redeliver.
    redeliveries: mpsc::Receiver<Redelivery>,
    /// The reserved permit that counts the next event delivery of the source as in flight, or `None` while too many deliveries
    /// are in flight. Without a permit, only redeliveries, which have one, are processed.
    permit: Option<DeliveryPermit>,
    /// Time at which the runtime counts as blocked by too many deliveries in flight, unless a delivery permit becomes free earlier. `None`
    /// while a permit is available, and while the runtime is blocked.
    blocked: Option<Instant>,
    /// Time at which the failed tasks of stores are restarted.
    restart_at: Option<Instant>,
    /// Time at which the event source is polled again after an error.
    pause: Option<Instant>,
    /// Number of consecutive errors of the event source.
    errors: u32,
    /// Number of errors of the event source since the start of the runtime.
    failures: u64,
    iteration: u32,
}

/// Senders to the tasks that enqueue runs and answer open `wait_for` calls for one store.
struct StoreTasks {
    arrivals: mpsc::Sender<Arrival>,
    announced: mpsc::Sender<AnnouncedBreadcrumb>,
}

impl<'r> Intake<'r> {
    pub(super) fn new(
        runtime: &'r Runtime,
        shared: Arc<Shared>,
        tasks: &'r mut JoinSet<()>,
    ) -> Self {
        let (redelivery_sender, redeliveries) = mpsc::channel(MAX_REDELIVERIES);
        let (trackers, ack_sender) =
            trackers(&shared, runtime.settings.max_deliveries, redelivery_sender);
        tasks.spawn(ack_sender.run());
        Self {
            runtime,
            shared,
            tasks,
            stores: HashMap::new(),
            definitions: None,
            trackers,
            swept: mpsc::channel(MAX_SWEPT),
            redeliveries,
            permit: None,
            blocked: None,
            restart_at: None,
            pause: None,
            errors: 0,
            failures: 0,
            iteration: 0,
        }
    }

    /// Records the time of the newest breadcrumb in each store, then subscribes to the event source.
    ///
    /// # Errors
    /// Fails if the runtime cannot subscribe to the event source.
    pub(super) async fn subscribe(&mut self) -> Result<Deliveries, SourceError> {
        let opened = Instant::now();
        self.note_newest().await;
        let abandoned = self.shared.progress.abandon();
        for store_context in self.shared.registry.store_contexts() {
            store_context.checkpoint.mark_unread(abandoned.clone());
        }
        let start = match self.shared.progress.has_position() {
            true => self.runtime.settings.start_at,
            false => first_start::subscription_start(&self.shared).await?,
        };
        let deliveries = subscribe(self.runtime, start).await?;
        // Before the positions are loaded: a start that ends here must not lose the events until the next one.
        self.shared.progress.note_subscribed(deliveries.start());
        let store_contexts = self.shared.registry.store_contexts();
        let (shared, delivered_after) = (&self.shared, deliveries.delivered_after());
        let load = store_contexts.iter().map(|store_context| async move {
            store_context.checkpoint.note_delivered_after(delivered_after);
            // A source that reports a loss forgets it, so the first position has to be saved before. The waker repeats a call that
            // fails here.
            if store_context.checkpoint.is_loaded() {
                return;
            }
            let loaded = saved_position::load(shared, store_context, opened).await;
            let saved = match loaded {
                Ok(()) => saved_position::save(shared, store_context).await,
                Err(error) => Err(error),
            };
            if let Err(error) = saved {
                tracing::warn!(store = store_context.number, code = error.code(), error = %Chain(&error), "cannot load and save the \
                    executors' saved positions before the first event, will retry");
            }
        });
        join_all(load).await;
        Ok(deliveries)
    }

    /// Records the time of the newest breadcrumb in each store before the subscription to the event source.
    async fn note_newest(&mut self) {
        const NEWEST_TIMEOUT: Duration = Duration::from_secs(15);
        let (store_contexts, shared) = (self.shared.registry.store_contexts(), &self.shared);
        let begin = store_contexts.iter().map(|store_context| async move {
            if store_context.checkpoint.newest().is_none()
                && saved_position::starts_at_newest(shared, store_context).await
                && let Ok(Ok(newest)) = timeout(
                    NEWEST_TIMEOUT,
                    saved_position::newest(store_context.store()),
                )
                .await
            {
                store_context.checkpoint.note_newest(newest);
            }
        });
        join_all(begin).await;
    }

    /// Loads the executors of all stored definitions. Retries until the store answers, because the executors would miss an event that is
    /// dispatched before.
    pub(super) async fn load_definitions(&mut self) {
        let Some(loader) = &self.shared.definition_loader else {
            return;
        };
        while let Err(error) = loader.load(&self.shared.registry).await {
            tracing::warn!(code = error.code(), error = %Chain(&error), "cannot load the executor definitions from the store, will retry; the runtime takes no events until then");
            sleep_until(later(Instant::now(), RETRY_PAUSE)).await;
        }
        let (sender, inbox) = mpsc::channel(self.runtime.settings.max_deliveries);
        let updates =
            definition_updates::apply_changes(Arc::clone(loader), Arc::clone(&self.shared), inbox);
        self.tasks.spawn(updates);
        self.definitions = Some((Arc::clone(loader), sender));
    }

    /// Processes the deliveries of the event source until the returned future is dropped.
    pub(super) async fn run(mut self, deliveries: Deliveries) {
        let mut deliveries = Some(deliveries);
        let mut changes = self.shared.registry.changes();
        self.update_store_tasks();
        loop {
            // A source that always has something must not keep other tasks from running.
            tokio::task::coop::consume_budget().await;
            let (pause, restart_at, blocked) = (self.pause, self.restart_at, self.blocked);
            let closed = deliveries.is_none();
            self.iteration = self.iteration.wrapping_add(1);
            let sweep_first = self.iteration.is_multiple_of(SWEEP_FIRST_INTERVAL);
            let has_permit = self.permit.is_some();
            let open = deliveries
                .as_mut()
                .filter(|_| pause.is_none() && has_permit);
            let swept = Some(&mut self.swept.1).filter(|_| has_permit);
            tokio::select! {
                biased;
                Ok(()) = changes.changed() => self.update_store_tasks(),
                Some(ended) = self.tasks.join_next() => if let Err(error) = ended {
                    tracing::error!(error = %Chain(&error), "a background task of the runtime panicked, will restart the task");
                    self.restart_at = Some(later(Instant::now(), RETRY_PAUSE));
                },
                () = until(restart_at), if restart_at.is_some() => {
                    self.restart_at = None;
                    self.update_store_tasks();
                }
                () = until(pause), if pause.is_some() => self.pause = None,
                opened = subscribe(self.runtime, self.runtime.settings.start_at), if closed && pause.is_none() => match opened {
                    Ok(open) => deliveries = Some(self.note_subscribed(open)),
                    Err(error) => {
                        self.pause_after(&error);
                        self.shared.source_ended();
                    }
                },
                permit = self.trackers.acquire_permit(), if !has_permit => self.note_permit(permit),
                () = until(blocked), if !has_permit && blocked.is_some() => self.note_blocked(),
                Some((delivery, permit, origin)) = self.redeliveries.recv() => {
                    self.dispatch(delivery, permit, origin).await;
                }
                next = next_input(open, swept, sweep_first) => match next {
                    IntakeInput::Swept(swept) => self.take_swept(swept).await,
                    IntakeInput::Delivered(Some(Ok(delivery))) => {
                        self.errors = 0;
                        self.deliver(delivery).await;
                    }
                    IntakeInput::Delivered(Some(Err(error))) => self.pause_after(&error),
                    IntakeInput::Delivered(None) => {
                        tracing::warn!("the event source ended its stream, will subscribe again");
                        self.shared.source_ended();
                        deliveries = None;
                        self.pause = Some(later(Instant::now(), RETRY_PAUSE));
                    }
                }
            }
        }
    }

    /// Takes the reserved permit that counts the next event delivery as in flight, or returns `None` if no permit is reserved.
    /// Without another permit after [`RETRY_PAUSE`], the runtime counts as blocked.
    fn take_permit(&mut self) -> Option<DeliveryPermit> {
        self.blocked = Some(later(Instant::now(), RETRY_PAUSE));
        self.permit.take()
    }

    fn note_permit(&mut self, permit: DeliveryPermit) {
        self.permit = Some(permit);
        let is_blocked = self.blocked.take().is_none();
        if is_blocked {
            for store_context in self.shared.registry.store_contexts() {
                store_context.set_blocked(None);
            }
        }
    }

    /// Requests a search of each store for breadcrumbs that answer open `wait_for` calls or wake suspended runs. The runtime takes no
    /// events until the runs of earlier deliveries are in the ledger. A full ledger has capacity again only if its suspended runs get their
    /// answers.
    fn note_blocked(&mut self) {
        self.blocked = None;
        tracing::debug!(
            "too many deliveries are in flight, so the runtime takes no events for now; it searches the stores for answers to suspended \
             runs instead"
        );
        for store_context in self.shared.registry.store_contexts() {
            let newest = self.shared.progress.newest();
            let newest = newest.or_else(|| store_context.checkpoint.newest());
            let overlap = match self.shared.source_is_complete {
                true => Duration::ZERO,
                false => OVERLAP,
            };
            let after = newest.map(|newest| earlier(newest, overlap));
            store_context.set_blocked(Some(Blocked { after }));
        }
    }

    fn note_subscribed(&self, deliveries: Deliveries) -> Deliveries {
        let position = deliveries.start();
        self.shared.progress.note_subscribed(position);
        self.shared.source_delivers();
        let source = self.runtime.source.description();
        tracing::info!(source, position, "subscribed to the event source again");
        // Events may have been announced while there was no subscription.
        if !self.shared.source_is_complete {
            self.request_full_check();
        } else if !self.shared.progress.has_position() {
            self.sweep_for_missed(None);
        }
        deliveries
    }

    fn request_full_check(&self) {
        for store_context in self.shared.registry.store_contexts() {
            store_context.request_full_check();
        }
    }

    /// Requests sweeps of all stores for breadcrumbs that were committed after a time and whose events were missed. Without a
    /// time, the sweep starts at the newest event that was taken in, or at the saved position.
    fn sweep_for_missed(&self, after: Option<Timestamp>) {
        if !self.shared.source_is_complete {
            // Events of such a source do not advance the position.
            self.request_full_check();
            return;
        }
        // Of several sources behind one, another may have delivered the newest event: the source itself knows better.
        let newest = after.or_else(|| self.shared.progress.newest());
        for store_context in self.shared.registry.store_contexts() {
            store_context.request_sweep(newest);
        }
    }

    /// Records an error of the event source, and schedules the next poll of the source with exponential backoff.
    fn pause_after(&mut self, error: &SourceError) {
        const MIN_PAUSE: Duration = Duration::from_millis(100);
        self.shared.note(error);
        let (source, code) = (self.runtime.source.description(), error.code());
        if let SourceError::Lagged { after, .. } = error {
            tracing::warn!(source, code, error = %Chain(error), "events were missed, will search the store for them");
            self.sweep_for_missed(*after);
            return;
        }
        let growing = MIN_PAUSE * (1 << self.errors.min(10));
        let pause = match error.retry() {
            Retry::After(delay) => growing.max(delay).min(MAX_PAUSE),
            Retry::Never => REFUSED_PAUSE,
        };
        self.errors = self.errors.saturating_add(1);
        tracing::warn!(source, code, error = %Chain(error), retry_in = ?pause, "the event source failed, will retry");
        let polled_at = later(Instant::now(), pause);
        self.pause = Some(polled_at);
        self.failures += 1;
        self.shared.source_failed(self.failures, polled_at);
    }

    /// Passes an event delivery to the tasks that it concerns. The inbox of each task has capacity for as many deliveries as there are
    /// permits, so a store that does not answer delays the others only once its deliveries hold all permits.
    async fn deliver(&mut self, delivery: Delivery) {
        self.shared.count(|report| report.events += 1);
        metrics::add(metrics::EVENTS, 1);
        self.shared.source_delivers();
        let event = &delivery.event;
        self.shared.progress.note_delivery(&delivery);
        if planted("ack-first") {
            drop(delivery.ack().await);
        }
        if event.kind != EventKind::Ping {
            self.shared.progress.dedup().record_announced(event);
        }
        if let Some(permit) = self.take_permit() {
            self.dispatch(delivery, permit, Origin::Source).await;
        }
    }

    async fn take_swept(&mut self, swept: SweptBreadcrumb) {
        // The event of an announced breadcrumb has been handled already.
        if !self.shared.progress.dedup().record_found(&swept.breadcrumb) {
            swept.mark_taken();
            return;
        }
        let Some(permit) = self.take_permit() else {
            return;
        };
        let delivery = Delivery::new(Event::updated(&swept.breadcrumb));
        self.shared.progress.note_swept(&delivery.event);
        swept.mark_taken();
        if self.dispatch(delivery, permit, Origin::Sweep).await {
            self.shared.count(|report| report.found_by_sweep += 1);
            metrics::add(metrics::FOUND, 1);
        }
    }

    /// Starts the tasks of each store that has executors but no tasks, and stops the tasks of stores without executors.
    fn update_store_tasks(&mut self) {
        self.stores
            .retain(|_, tasks| !tasks.announced.is_closed() && !tasks.arrivals.is_closed());
        let store_contexts = self.shared.registry.store_contexts();
        for store_context in &store_contexts {
            if !self.stores.contains_key(&store_context.number) {
                self.start_store_tasks(store_context);
            }
        }
        self.stores.retain(|number, _| {
            store_contexts
                .iter()
                .any(|store_context| store_context.number == *number)
        });
    }

    fn start_store_tasks(&mut self, store_context: &Arc<StoreContext>) {
        let (announced, inbox) = mpsc::channel(waker::INBOX);
        let (shared, swept) = (Arc::clone(&self.shared), self.swept.0.clone());
        let waker = Waker::new(Arc::clone(&shared), Arc::clone(store_context), inbox, swept);
        self.tasks.spawn(waker.run());
        let (arrivals, inbox) = mpsc::channel(self.runtime.settings.max_deliveries);
        let (prepared, to_enqueue) = mpsc::channel(1);
        let pending_acks = Arc::new(PendingAcks::new(Arc::clone(store_context)));
        let enqueuer_acks = Arc::clone(&pending_acks);
        let enqueue = Enqueuer::new(Arc::clone(&shared), enqueuer_acks, inbox, prepared);
        let scheduler = Scheduler::new(shared, pending_acks, to_enqueue);
        // The two end together, however one of them ends.
        self.tasks.spawn(async move {
            futures::join!(enqueue.run(), scheduler.run());
        });
        let tasks = StoreTasks {
            arrivals,
            announced,
        };
        self.stores.insert(store_context.number, tasks);
    }
}

//! Dispatch of an event delivery to executors, open `wait_for` calls and executor definitions.

use super::Intake;
use crate::executor::SchemaHints;
use crate::model::{Event, EventKind, Timestamp};
use crate::runtime::ack_tracker::{AckTracker, DeliveryPermit, Origin};
use crate::runtime::arrival::{Arrival, ExecutorCandidate};
use crate::runtime::definition_updates::ChangedDefinition;
use crate::runtime::metrics;
use crate::runtime::store_context::StoreContext;
use crate::runtime::timeouts::RETRY_PAUSE;
use crate::runtime::waker::AnnouncedBreadcrumb;
use crate::source::Delivery;
use tokio::sync::mpsc::{self, error::TrySendError};

impl Intake<'_> {
    /// Sends an event delivery to the executors that the event triggers. Also sends the event to open `wait_for` calls, suspended runs and
    /// executor definitions that the event may concern. Returns `true` if the event concerned an executor, a call, a run or a definition.
    pub(super) async fn dispatch(
        &mut self,
        delivery: Delivery,
        permit: DeliveryPermit,
        origin: Origin,
    ) -> bool {
        if SchemaHints::may_change_by(&delivery.event) {
            for store_context in self.shared.registry.store_contexts() {
                store_context.hints.clear();
            }
        }
        let mut concerned = self.notify_wakers(&delivery.event);
        let tracker = self.trackers.track(delivery, permit, origin);
        concerned |= self.apply_definition(&tracker).await;
        let mut by_store: Vec<(u64, Vec<ExecutorCandidate>)> = Vec::new();
        for triggered in self.shared.registry.triggered(tracker.event()) {
            let (id, store_context) = (triggered.executor, triggered.store_context);
            let time = tracker.event().updated_at;
            if self.is_before_start(origin, &store_context, &id, time) {
                continue;
            }
            concerned = true;
            metrics::matched(&id);
            if !self.stores.contains_key(&store_context.number) {
                // The executor has just been added, and its store has no tasks yet.
                self.update_store_tasks();
            }
            let candidate = ExecutorCandidate {
                id,
                is_certain: triggered.is_certain,
            };
            let of_store =
                |(number, _): &&mut (u64, Vec<ExecutorCandidate>)| *number == store_context.number;
            match by_store.iter_mut().find(of_store) {
                Some((_, executors)) => executors.push(candidate),
                None => by_store.push((store_context.number, vec![candidate])),
            }
        }
        for (number, executors) in by_store {
            match self.stores.get(&number) {
                Some(tasks) => {
                    let arrival = |tracker| Arrival { tracker, executors };
                    send_tracker(&tasks.arrivals, tracker.another_handle(), arrival).await;
                }
                // The executor has just been removed.
                None => tracker.another_handle().redeliver_after(RETRY_PAUSE),
            }
        }
        tracker.settle();
        concerned
    }

    /// Returns `true` if a breadcrumb updated at `time` starts no run of an executor, because the executor starts later or has already
    /// read the breadcrumb. The breadcrumb can still start runs of other executors.
    fn is_before_start(
        &self,
        origin: Origin,
        store_context: &StoreContext,
        executor: &str,
        time: Timestamp,
    ) -> bool {
        match origin {
            Origin::Sweep => store_context.is_before(executor, time),
            // A shared source can deliver an event that no worker has enqueued after later events, even if a saved position is later.
            Origin::Source
                if self.shared.source_is_shared && store_context.checkpoint.is_loaded() =>
            {
                store_context.is_before(executor, time)
            }
            // In a runtime without this setting, the subscription starts at the same event for all executors.
            Origin::Source if self.shared.settings.first_start.is_none() => false,
            // Until the position is loaded, the event is dispatched: a duplicate is harmless, a loss is not.
            Origin::Source if !store_context.checkpoint.is_loaded() => false,
            // A later sweep loads the position of an added executor, and reads its unread triggers.
            Origin::Source => {
                let checkpoint = &store_context.checkpoint;
                let newest = || checkpoint.newest().is_some_and(|newest| time <= newest);
                checkpoint
                    .was_read_at_load(executor, time)
                    .unwrap_or_else(newest)
            }
        }
    }

    /// Applies the executor definition that an event announces, so that the next event is matched against the new definition. If the store
    /// fails, a task applies the definition later. Returns `true` if the event may concern a definition.
    async fn apply_definition(&self, tracker: &AckTracker) -> bool {
        let Some((loader, inbox)) = &self.definitions else {
            return false;
        };
        if !loader.may_concern(tracker.event()) {
            return false;
        }
        let id = tracker.event().breadcrumb_id;
        if loader.refresh(&self.shared.registry, id).await.is_err() {
            send_tracker(inbox, tracker.another_handle(), |tracker| {
                ChangedDefinition { id, tracker }
            })
            .await;
        }
        true
    }

    /// Sends an event to the background task of each store with open `wait_for` calls or suspended runs that the event may answer. The
    /// task answers the calls and wakes the suspended runs. Returns `true` if a task received the event.
    fn notify_wakers(&self, event: &Event) -> bool {
        let mut notified = false;
        if matches!(event.kind, EventKind::Ping | EventKind::Deleted) {
            return notified;
        }
        for store_context in self.shared.registry.store_contexts() {
            let waits = store_context.waits.matching(event);
            let may_wake = store_context.wakes.concerns(event);
            if waits.is_empty() && !may_wake {
                continue;
            }
            if let Some(tasks) = self.stores.get(&store_context.number) {
                let announced = AnnouncedBreadcrumb {
                    event: event.envelope(),
                    waits,
                    may_wake,
                    rounds: 0,
                };
                match tasks.announced.try_send(announced) {
                    Ok(()) => notified = true,
                    // A store that does not answer must not hold up the others.
                    Err(TrySendError::Full(announced)) => {
                        tracing::warn!(
                            store = store_context.number,
                            "too many announced breadcrumbs wait to be read; waits for breadcrumbs may time out, and suspended runs wake late"
                        );
                        announced.forget_suspended(&store_context);
                    }
                    Err(TrySendError::Closed(_)) => {}
                }
            }
        }
        notified
    }
}

/// Sends an event delivery through a channel to a background task of a store or of the definition loader. If the task has ended,
/// because of a shutdown, a removal or a panic, the delivery is requested again.
async fn send_tracker<T>(
    inbox: &mpsc::Sender<T>,
    tracker: AckTracker,
    message: impl FnOnce(AckTracker) -> T,
) {
    match inbox.reserve().await {
        Ok(permit) => permit.send(message(tracker)),
        Err(_) => tracker.redeliver_after(RETRY_PAUSE),
    }
}

//! Enqueuing of runs in the ledger of one store: one run for every executor that an event triggers.

use super::arrival::{Arrival, ExecutorCandidate};
use super::metrics;
use super::pending_acks::PendingAcks;
use super::registry::Registry;
use super::shared::Shared;
use super::store_context::{Operation, StoreContext};
use super::timeouts::{RETRY_PAUSE, with_timeout};
use crate::bugs::planted;
use crate::clock::later;
use crate::error::Chain;
use crate::error::Retry;
use crate::executor::ordering_key;
use crate::model::{Breadcrumb, Event};
use crate::store::{NewRun, RunRef, StoreError};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, future, stream};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// Maximum number of event deliveries whose runs are enqueued in one step.
const BATCH: usize = 64;

/// Maximum number of breadcrumbs read at a time to decide which executors their events trigger.
const MAX_CONCURRENT_READS: usize = 8;

/// The runs that some event deliveries trigger, to be enqueued in the ledger.
pub(super) struct PreparedRuns {
    pub(super) runs: Vec<NewRun>,
    pub(super) reply: oneshot::Sender<Result<(), StoreError>>,
}

pub(super) struct Enqueuer {
    shared: Arc<Shared>,
    store_context: Arc<StoreContext>,
    /// Acknowledgement of the event deliveries whose runs are in the ledger: at once, or at the end of these runs if the ledger
    /// is in memory.
    pending_acks: Arc<PendingAcks>,
    inbox: mpsc::Receiver<Arrival>,
    /// Sender of new runs to the store's scheduler. In one ledger call, the scheduler enqueues these runs and claims due runs.
    scheduler: mpsc::Sender<PreparedRuns>,
    /// Event deliveries whose runs are not in the ledger yet.
    pending: Vec<Arrival>,
    /// Time of the next attempt to add the runs of the pending event deliveries to the ledger.
    retry_at: Instant,
}

impl Enqueuer {
    pub(super) fn new(
        shared: Arc<Shared>,
        pending_acks: Arc<PendingAcks>,
        inbox: mpsc::Receiver<Arrival>,
        scheduler: mpsc::Sender<PreparedRuns>,
    ) -> Self {
        Self {
            shared,
            store_context: Arc::clone(pending_acks.store_context()),
            pending_acks,
            inbox,
            scheduler,
            pending: Vec::new(),
            retry_at: Instant::now(),
        }
    }

    /// Enqueues the runs of event deliveries until the runtime stops. At the end it enqueues the runs of received deliveries, so that the
    /// source need not deliver them again.
    pub(super) async fn run(mut self) {
        let (stop, store_context) = (self.shared.stop.clone(), Arc::clone(&self.store_context));
        loop {
            let has_pending = !self.pending.is_empty();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = store_context.no_executors.cancelled() => break,
                () = sleep_until(self.retry_at), if has_pending => self.enqueue_pending().await,
                arrived = self.inbox.recv_many(&mut self.pending, BATCH), if !has_pending => match arrived {
                    // The channel is closed, so no more deliveries can arrive.
                    0 => break,
                    _ => self.enqueue_pending().await,
                },
            }
        }
        self.inbox.close();
        while let Some(arrival) = self.inbox.recv().await {
            self.pending.push(arrival);
        }
        self.enqueue_pending().await;
    }

    /// Enqueues the runs of waiting event deliveries in batches, or one delivery at a time if the ledger refuses a batch.
    async fn enqueue_pending(&mut self) {
        let mut batch_size = BATCH;
        while !self.pending.is_empty() {
            let n = batch_size.min(self.pending.len());
            let batch = self.pending.get(..n).unwrap_or_default();
            match self.enqueue(batch).await {
                Ok(()) => {
                    self.store_context.note_result(Operation::Enqueue, true);
                    for arrival in self.pending.drain(..n) {
                        finish_arrival(&self.pending_acks, &self.shared.registry, arrival);
                    }
                }
                Err(error) if batch_size > 1 && may_accept_smaller_batch(&error) => batch_size = 1,
                Err(_) if planted("nak-late") => {
                    for arrival in self.pending.drain(..n) {
                        arrival.tracker.redeliver_after(RETRY_PAUSE);
                    }
                }
                Err(error) => {
                    // A ledger that refuses a single delivery accepts others, so the store does not count as failing.
                    if is_store_failure(&error) {
                        self.store_context.note_result(Operation::Enqueue, false);
                    }
                    tracing::warn!(code = error.code(), error = %Chain(&error), "cannot enqueue the runs of received events, will retry");
                    self.retry_at = later(Instant::now(), RETRY_PAUSE);
                    if error.retry() != Retry::Never {
                        break;
                    }
                    // A delivery that this ledger never accepts must not delay the others.
                    self.shared.count(|report| report.errors += 1);
                    for arrival in self.pending.drain(..n) {
                        arrival.tracker.redeliver_after(REFUSED_RUNS_PAUSE);
                    }
                }
            }
        }
        let waiting = self.pending.len() + self.inbox.len();
        metrics::set_gauge(metrics::QUEUE, self.store_context.number, waiting);
    }

    /// Adds a run to the ledger for every executor that an event delivery triggers.
    async fn enqueue(&self, arrivals: &[Arrival]) -> Result<(), StoreError> {
        let runs = runs_of(&self.store_context, &self.shared.registry, arrivals).await?;
        let (reply, answer) = oneshot::channel();
        let prepared = PreparedRuns { runs, reply };
        let runs = match self.scheduler.send(prepared).await {
            Ok(()) => match answer.await {
                Ok(enqueued) => return enqueued,
                // The scheduler ended before it took the runs.
                Err(_) => runs_of(&self.store_context, &self.shared.registry, arrivals).await?,
            },
            Err(returned) => returned.0.runs,
        };
        with_timeout(self.store_context.ledger().enqueue(runs)).await
    }
}

/// Acknowledges an event delivery whose runs are in the ledger, or holds the delivery until its runs end if the ledger is in memory. If an
/// executor moved to another store in the meantime, the delivery is requested again and triggers the executor there.
fn finish_arrival(pending_acks: &PendingAcks, registry: &Registry, arrival: Arrival) {
    let moved = |candidate: &ExecutorCandidate| {
        let member = registry.get(&candidate.id);
        member.is_some_and(|member| {
            member.store_context.number != pending_acks.store_context().number
        })
    };
    if arrival.executors.iter().any(moved) {
        arrival.tracker.redeliver_after(RETRY_PAUSE);
    } else {
        pending_acks.ack_or_hold(arrival);
    }
}

/// Delay before the redelivery of an event after the ledger refused its runs with an error that no retry can fix.
const REFUSED_RUNS_PAUSE: Duration = Duration::from_secs(60);

/// Returns `true` if the ledger refused a batch of new runs with an error that smaller batches may avoid.
fn may_accept_smaller_batch(error: &StoreError) -> bool {
    matches!(error, StoreError::Full { .. }) || error.retry() == Retry::Never
}

/// Returns `true` if an error of enqueuing runs concerns the store, and not the content of one event.
fn is_store_failure(error: &StoreError) -> bool {
    matches!(error, StoreError::Refused { .. }) || error.retry() != Retry::Never
}

/// Returns the runs of all executors that the event deliveries trigger.
async fn runs_of(
    store_context: &StoreContext,
    registry: &Registry,
    arrivals: &[Arrival],
) -> Result<Vec<NewRun>, StoreError> {
    let mut runs = Vec::with_capacity(arrivals.len());
    let mut decided = triggered_executors(store_context, registry, arrivals).await;
    for (index, arrival) in arrivals.iter().enumerate() {
        let event = arrival.tracker.event();
        let envelope = Arc::new(event.envelope());
        let decided = decided.remove(&index);
        for id in arrival.executors.iter().map(|one| &one.id) {
            if decided
                .as_ref()
                .is_some_and(|decided| !decided.contains(id))
            {
                continue;
            }
            // An executor that was removed since gets no run.
            let Some(member) = registry.get(id) else {
                continue;
            };
            if member.store_context.number != store_context.number {
                continue;
            }
            let key = with_timeout(ordering_key(&*member.executor, event)).await?;
            let mut run = RunRef::new(Arc::clone(id), event.breadcrumb_id, event.version)
                .lasting(member.executor.profile().lease)
                .ordered_by(key);
            run.event = Some(Arc::clone(&envelope));
            runs.push(NewRun::from(run));
        }
    }
    Ok(runs)
}

/// The IDs of the executors that an event delivery triggers.
type TriggeredExecutors = BTreeSet<Arc<str>>;

/// Returns the executors that each event delivery triggers, keyed by the index of the delivery in the given list `arrivals`. A
/// delivery without an entry triggers all its candidates. If several candidates depend on the context, which the event does not
/// contain, the breadcrumb is read once for all of them.
async fn triggered_executors(
    store_context: &StoreContext,
    registry: &Registry,
    arrivals: &[Arrival],
) -> HashMap<usize, TriggeredExecutors> {
    let mut undecided: Vec<BoxFuture<'_, Option<(usize, TriggeredExecutors)>>> = Vec::new();
    for (index, arrival) in arrivals.iter().enumerate() {
        if arrival
            .executors
            .iter()
            .filter(|one| !one.is_certain)
            .count()
            >= 2
        {
            let decided = read_triggered(store_context, registry, arrival);
            undecided.push(async move { Some((index, decided.await?)) }.boxed());
        }
    }
    if undecided.is_empty() {
        return HashMap::new();
    }
    // A slow server answers several reads at a time.
    let decided = stream::iter(undecided).buffered(MAX_CONCURRENT_READS);
    decided.filter_map(future::ready).collect().await
}

/// Reads the breadcrumb of an event, and returns the executors that the event triggers. Returns `None` if the store does not return this
/// version or a later one. All candidate executors then get a run, which reads the breadcrumb.
async fn read_triggered(
    store_context: &StoreContext,
    registry: &Registry,
    arrival: &Arrival,
) -> Option<TriggeredExecutors> {
    let event = arrival.tracker.event();
    let found = match with_timeout(store_context.store().get(event.breadcrumb_id)).await {
        Ok(found) if found.version >= event.version => found,
        Ok(_) | Err(_) => return None,
    };
    let triggered = registry
        .triggered(&with_breadcrumb(event, &found))
        .into_iter();
    let triggered = triggered.map(|triggered| triggered.executor);
    let certain = arrival.executors.iter().filter(|one| one.is_certain);
    let certain = certain.map(|one| Arc::clone(&one.id));
    Some(triggered.chain(certain).collect())
}

/// Returns a copy of an event with the schema, tags and JSON context that the event's breadcrumb has in the store. The kind,
/// version and time of the event stay, even if the breadcrumb is newer: they decide which versions of an executor were live at
/// the commit.
fn with_breadcrumb(event: &Event, found: &Breadcrumb) -> Event {
    Event {
        kind: event.kind,
        version: event.version,
        updated_at: event.updated_at,
        context: Some(found.context.clone()),
        ..Event::updated(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, NewBreadcrumb, Timestamp};

    #[test]
    fn an_event_retains_its_version_and_time_if_its_breadcrumb_is_newer() {
        let new = NewBreadcrumb::new("note.v1");
        let mut breadcrumb = new.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
        let event = Event::created(&breadcrumb).envelope();
        breadcrumb.version = 2;
        breadcrumb.updated_at = Timestamp::UNIX_EPOCH + Duration::from_secs(60);

        let full_event = with_breadcrumb(&event, &breadcrumb);

        assert_eq!(
            (full_event.version, full_event.updated_at),
            (1, event.updated_at)
        );
        assert_eq!(full_event.context, Some(breadcrumb.context));
    }
}

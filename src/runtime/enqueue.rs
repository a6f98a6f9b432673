//! Enqueuing of runs in the ledger of one store: one run for every executor that an event triggers.

use super::arrival::{Arrival, Candidate};
use super::metrics;
use super::registry::Registry;
use super::shared::Shared;
use super::store_context::{Operation, StoreContext};
use super::timeouts::{PAUSE, in_time};
use super::unended::Unended;
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
const AT_ONCE: usize = 8;

/// The runs that some event deliveries trigger, to be enqueued in the ledger.
pub(super) struct Prepared {
    pub(super) runs: Vec<NewRun>,
    pub(super) reply: oneshot::Sender<Result<(), StoreError>>,
}

pub(super) struct Enqueuer {
    shared: Arc<Shared>,
    store_context: Arc<StoreContext>,
    /// Tracker of the event deliveries whose runs are in the ledger. A delivery is acknowledged at once, or at the end of its runs if the
    /// ledger is in memory.
    unended: Arc<Unended>,
    inbox: mpsc::Receiver<Arrival>,
    /// Sender of new runs to the store's scheduler. In one ledger call, the scheduler enqueues these runs and claims due runs.
    scheduler: mpsc::Sender<Prepared>,
    /// Event deliveries whose runs are not in the ledger yet.
    owed: Vec<Arrival>,
    /// Time of the next attempt to enqueue the runs of the waiting event deliveries.
    again: Instant,
}

impl Enqueuer {
    pub(super) fn new(
        shared: Arc<Shared>,
        unended: Arc<Unended>,
        inbox: mpsc::Receiver<Arrival>,
        scheduler: mpsc::Sender<Prepared>,
    ) -> Self {
        Self {
            shared,
            store_context: Arc::clone(unended.store_context()),
            unended,
            inbox,
            scheduler,
            owed: Vec::new(),
            again: Instant::now(),
        }
    }

    /// Enqueues the runs of event deliveries until the runtime stops. At the end it enqueues the runs of received deliveries, so that the
    /// source need not deliver them again.
    pub(super) async fn run(mut self) {
        let (stop, store_context) = (self.shared.stop.clone(), Arc::clone(&self.store_context));
        loop {
            let owes = !self.owed.is_empty();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = store_context.empty.cancelled() => break,
                () = sleep_until(self.again), if owes => self.keep().await,
                arrived = self.inbox.recv_many(&mut self.owed, BATCH), if !owes => match arrived {
                    // The channel is closed, so no more deliveries can arrive.
                    0 => break,
                    _ => self.keep().await,
                },
            }
        }
        self.inbox.close();
        while let Some(arrival) = self.inbox.recv().await {
            self.owed.push(arrival);
        }
        self.keep().await;
    }

    /// Enqueues the runs of waiting event deliveries in batches, or one delivery at a time if the ledger refuses a batch.
    async fn keep(&mut self) {
        let mut at_once = BATCH;
        while !self.owed.is_empty() {
            let n = at_once.min(self.owed.len());
            let some = self.owed.get(..n).unwrap_or_default();
            match self.enqueue(some).await {
                Ok(()) => {
                    self.store_context.answered(Operation::Enqueue, true);
                    for arrival in self.owed.drain(..n) {
                        settle(&self.unended, &self.shared.registry, arrival);
                    }
                }
                Err(error) if at_once > 1 && is_about_one(&error) => at_once = 1,
                Err(_) if planted("nak-late") => {
                    for arrival in self.owed.drain(..n) {
                        arrival.tracker.again(PAUSE);
                    }
                }
                Err(error) => {
                    // A ledger that refuses a single delivery accepts others, so the store does not count as failing.
                    if is_of_the_store(&error) {
                        self.store_context.answered(Operation::Enqueue, false);
                    }
                    tracing::warn!(code = error.code(), error = %Chain(&error), "cannot enqueue the runs of received events, will retry");
                    self.again = later(Instant::now(), PAUSE);
                    if error.retry() != Retry::Never {
                        break;
                    }
                    // A delivery that this ledger never accepts must not delay the others.
                    self.shared.count(|report| report.errors += 1);
                    for arrival in self.owed.drain(..n) {
                        arrival.tracker.again(LONG_PAUSE);
                    }
                }
            }
        }
        let waiting = self.owed.len() + self.inbox.len();
        metrics::set_gauge(metrics::QUEUE, self.store_context.number, waiting);
    }

    /// Adds a run to the ledger for every executor that an event delivery triggers.
    async fn enqueue(&self, arrivals: &[Arrival]) -> Result<(), StoreError> {
        let runs = runs_of(&self.store_context, &self.shared.registry, arrivals).await?;
        let (reply, answer) = oneshot::channel();
        let prepared = Prepared { runs, reply };
        let runs = match self.scheduler.send(prepared).await {
            Ok(()) => match answer.await {
                Ok(enqueued) => return enqueued,
                // The scheduler ended before it took the runs.
                Err(_) => runs_of(&self.store_context, &self.shared.registry, arrivals).await?,
            },
            Err(returned) => returned.0.runs,
        };
        in_time(self.store_context.ledger().enqueue(runs)).await
    }
}

/// Acknowledges an event delivery whose runs are in the ledger, or holds the delivery until its runs end if the ledger is in memory. If an
/// executor moved to another store in the meantime, the delivery is requested again and triggers the executor there.
fn settle(unended: &Unended, registry: &Registry, arrival: Arrival) {
    let moved = |candidate: &Candidate| {
        let member = registry.get(&candidate.id);
        member.is_some_and(|member| member.store_context.number != unended.store_context().number)
    };
    if arrival.executors.iter().any(moved) {
        arrival.tracker.again(PAUSE);
    } else {
        unended.hold(arrival);
    }
}

/// Delay before the redelivery of an event after the ledger refused its runs with an error that no retry can fix.
const LONG_PAUSE: Duration = Duration::from_secs(60);

/// Returns `true` if the ledger may accept the runs of a smaller batch after this error.
fn is_about_one(error: &StoreError) -> bool {
    matches!(error, StoreError::Full { .. }) || error.retry() == Retry::Never
}

/// Returns `true` if an error of enqueuing runs concerns the store, and not the content of one event.
fn is_of_the_store(error: &StoreError) -> bool {
    matches!(error, StoreError::Refused { .. }) || error.retry() != Retry::Never
}

/// Returns the runs of all executors that the event deliveries trigger.
async fn runs_of(
    store_context: &StoreContext,
    registry: &Registry,
    arrivals: &[Arrival],
) -> Result<Vec<NewRun>, StoreError> {
    let mut runs = Vec::with_capacity(arrivals.len());
    let mut decided = decided(store_context, registry, arrivals).await;
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
            let key = in_time(ordering_key(&*member.executor, event)).await?;
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
type Decided = BTreeSet<Arc<str>>;

/// Returns the executors that event deliveries trigger, keyed by the delivery's index in `arrivals`. A delivery without an entry triggers
/// all its candidates. If several candidates depend on the context, which the event does not contain, the breadcrumb is read once for all
/// of them.
async fn decided(
    store_context: &StoreContext,
    registry: &Registry,
    arrivals: &[Arrival],
) -> HashMap<usize, Decided> {
    let mut undecided: Vec<BoxFuture<'_, Option<(usize, Decided)>>> = Vec::new();
    for (index, arrival) in arrivals.iter().enumerate() {
        if arrival
            .executors
            .iter()
            .filter(|one| !one.is_certain)
            .count()
            >= 2
        {
            let decided = decide(store_context, registry, arrival);
            undecided.push(async move { Some((index, decided.await?)) }.boxed());
        }
    }
    if undecided.is_empty() {
        return HashMap::new();
    }
    // A slow server answers several reads at a time.
    let decided = stream::iter(undecided).buffered(AT_ONCE);
    decided.filter_map(future::ready).collect().await
}

/// Reads the breadcrumb of an event, and returns the executors that the event triggers. Returns `None` if the store does not return this
/// version or a later one. All candidate executors then get a run, which reads the breadcrumb.
async fn decide(
    store_context: &StoreContext,
    registry: &Registry,
    arrival: &Arrival,
) -> Option<Decided> {
    let event = arrival.tracker.event();
    let found = match in_time(store_context.store().get(event.breadcrumb_id)).await {
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

/// Returns an event with the content of its breadcrumb. The kind, version and time of the event stay, even if the breadcrumb is
/// newer: they decide which versions of an executor were live at the commit.
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

        let whole = with_breadcrumb(&event, &breadcrumb);

        assert_eq!((whole.version, whole.updated_at), (1, event.updated_at));
        assert_eq!(whole.context, Some(breadcrumb.context));
    }
}

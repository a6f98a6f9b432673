//! Tracking of event deliveries. After all handlers have settled a delivery, the event source receives an acknowledgement.

use super::progress::Progress;
use super::shared::Shared;
use super::timeouts::PAUSE;
use crate::error::Chain;
use crate::model::Event;
use crate::source::{Delivery, Receipt, SourceError};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Maximum number of event acknowledgements that a runtime sends to its event source at a time.
const AT_ONCE: usize = 64;

/// Timeout of one acknowledgement of an event to the event source.
const PATIENCE: Duration = Duration::from_secs(5);

/// A handle of an event delivery, which its holder settles. A handle that is dropped unsettled requests a redelivery of the event. After a
/// stop, a delivery with a position waits for the next start instead.
pub(super) struct AckTracker {
    owed: Arc<Owed>,
    settled: bool,
}

/// The origin of an event delivery: the event source, or a sweep of the store for missed events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    Source,
    Sweep,
}

/// An event delivery in flight, which ends when the last of its handles is dropped.
struct Owed {
    origin: Origin,
    event: Event,
    position: Option<u64>,
    receipt: Option<Arc<dyn Receipt>>,
    fate: Mutex<Fate>,
    progress: Arc<Progress>,
    stop: CancellationToken,
    told: mpsc::Sender<Told>,
    place: Option<Place>,
}

/// The outcome of an event delivery: handled, or to be delivered again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// No handler of the event has requested a redelivery.
    Taken,
    /// A handler of the event has failed, and requests a redelivery after this delay.
    Again(Duration),
}

/// An acknowledgement of an event, or a request for its redelivery, to be sent to the event source.
struct Told {
    origin: Origin,
    event: Option<Event>,
    position: Option<u64>,
    receipt: Option<Arc<dyn Receipt>>,
    again: Option<Duration>,
    /// The permit of the event delivery, released after the acknowledgement. A refused redelivery keeps the permit.
    place: Option<Place>,
}

impl AckTracker {
    pub(super) fn event(&self) -> &Event {
        &self.owed.event
    }

    /// Returns another handle of the same event delivery.
    pub(super) fn another(&self) -> Self {
        Self {
            owed: Arc::clone(&self.owed),
            settled: false,
        }
    }

    /// Settles this handle of an event delivery: its holder needs no redelivery of the event.
    pub(super) fn settle(mut self) {
        self.settled = true;
    }

    /// Settles this handle of an event delivery, and requests a redelivery of the event after a delay.
    pub(super) fn again(mut self, delay: Duration) {
        *self.owed.fate() = Fate::Again(delay);
        self.settled = true;
    }
}

impl Drop for AckTracker {
    /// Requests a redelivery of an event whose handler did not settle it, for example after a panic.
    fn drop(&mut self) {
        if !self.settled {
            *self.owed.fate() = Fate::Again(PAUSE);
        }
    }
}

impl Owed {
    fn fate(&self) -> MutexGuard<'_, Fate> {
        self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        let again = match *self.fate() {
            Fate::Taken => {
                self.progress.note_handled(self.position, &self.event);
                None
            }
            // The position stays open, so the next start resumes at this delivery.
            Fate::Again(_) if self.stop.is_cancelled() && self.position.is_some() => return,
            Fate::Again(delay) => Some(delay),
        };
        let needs_ack = self
            .receipt
            .as_ref()
            .is_some_and(|receipt| receipt.needs_ack());
        if again.is_none() && !needs_ack {
            return;
        }
        let told = Told {
            origin: self.origin,
            event: again.map(|_| self.event.clone()),
            position: self.position,
            receipt: self.receipt.take(),
            again,
            place: self.place.take(),
        };
        // The channel has capacity for every permit. The send fails only after the runtime was dropped.
        drop(self.told.try_send(told));
    }
}

/// A permit for one event delivery in flight, including a delivery that waits for redelivery.
#[derive(Debug)]
pub(super) struct Place(#[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

/// Creator of the handles of event deliveries, which also limits the number of deliveries in flight.
pub(super) struct AckTrackers {
    progress: Arc<Progress>,
    stop: CancellationToken,
    told: mpsc::Sender<Told>,
    places: Arc<Semaphore>,
}

impl AckTrackers {
    /// Acquires the permit for an event delivery. Waits while too many deliveries are in flight.
    pub(super) fn place(&self) -> impl Future<Output = Place> + use<> {
        let places = Arc::clone(&self.places);
        async move {
            match places.acquire_owned().await {
                Ok(place) => Place(place),
                // The semaphore is never closed.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Returns the first handle of an event delivery.
    pub(super) fn of(&self, delivery: Delivery, place: Place, origin: Origin) -> AckTracker {
        let (event, position, receipt) = delivery.into_parts();
        let owed = Arc::new(Owed {
            origin,
            event,
            position,
            receipt,
            fate: Mutex::new(Fate::Taken),
            progress: Arc::clone(&self.progress),
            stop: self.stop.clone(),
            told: self.told.clone(),
            place: Some(place),
        });
        AckTracker {
            owed,
            settled: false,
        }
    }
}

/// An event delivery that the runtime itself redelivers later, because the event source does not.
pub(super) type Back = (Delivery, Place, Origin);

/// The task that sends the acknowledgements of events to the event source.
pub(super) struct Receipts {
    shared: Arc<Shared>,
    told: mpsc::Receiver<Told>,
    /// Sender to the event intake, for deliveries that the event source does not redeliver.
    back: mpsc::Sender<Back>,
}

/// Creates the trackers for at most `most` event deliveries in flight, and the task that acknowledges these events.
pub(super) fn trackers(
    shared: &Arc<Shared>,
    most: usize,
    back: mpsc::Sender<Back>,
) -> (AckTrackers, Receipts) {
    let (told, listening) = mpsc::channel(most);
    let trackers = AckTrackers {
        progress: Arc::clone(&shared.progress),
        stop: shared.stop.clone(),
        told,
        places: Arc::new(Semaphore::new(most)),
    };
    let receipts = Receipts {
        shared: Arc::clone(shared),
        told: listening,
        back,
    };
    (trackers, receipts)
}

impl Receipts {
    /// Sends acknowledgements of events until all trackers of deliveries are dropped.
    pub(super) async fn run(mut self) {
        let mut telling = FuturesUnordered::new();
        let mut coming_back = FuturesUnordered::new();
        loop {
            let room = telling.len() < AT_ONCE;
            tokio::select! {
                biased;
                Some(refused) = telling.next() => if let Some(refused) = refused {
                    coming_back.push(come_back(refused, self.back.clone(), self.shared.stop.clone()));
                },
                Some(()) = coming_back.next() => {}
                told = self.told.recv(), if room => match told {
                    Some(told) => telling.push(tell(&self.shared, told)),
                    None => break,
                },
            }
        }
        while telling.next().await.is_some() {}
    }
}

/// Acknowledges an event to its source. Returns the delivery if the runtime must repeat it: a duplicate is harmless, a loss is not.
async fn tell(shared: &Shared, told: Told) -> Option<Told> {
    let answer = async {
        match (&told.receipt, told.again) {
            (Some(receipt), None) => receipt.ack().await,
            (Some(receipt), Some(delay)) => receipt.nack(delay).await,
            (None, None) => Ok(()),
            (None, Some(_)) => Err(SourceError::NotTakenBack {
                reason: "this source does not deliver again",
            }),
        }
    };
    let error = match timeout(PATIENCE, answer).await {
        Ok(Ok(())) => {
            if let Some(event) = &told.event {
                shared.progress.note_nacked(event, shared.source_is_shared);
            }
            return None;
        }
        Ok(Err(SourceError::NotTakenBack { .. })) if told.again.is_some() => return Some(told),
        Ok(Err(error)) => error,
        Err(_) => SourceError::Unavailable {
            retry_after: PAUSE,
            source: format!("no answer to an acknowledgement within {PATIENCE:?}").into(),
        },
    };
    tracing::warn!(code = error.code(), error = %Chain(&error), "cannot acknowledge an event; its source may deliver it again");
    shared.note(&error);
    told.again.is_some().then_some(told)
}

/// Delivers an event again within the runtime, after the delay that its handler requested. The delivery keeps its receipt, so that the
/// source receives an acknowledgement once the event is handled.
async fn come_back(refused: Told, back: mpsc::Sender<Back>, stop: CancellationToken) {
    let (Some(event), Some(delay), Some(place)) = (refused.event, refused.again, refused.place)
    else {
        return;
    };
    let mut delivery = Delivery::new(event);
    delivery.position = refused.position;
    if let Some(receipt) = refused.receipt {
        delivery = delivery.with_receipt(receipt);
    }
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        // The delivery keeps its permit, so it never waits for deliveries that wait for it.
        () = sleep(delay) => drop(back.send((delivery, place, refused.origin)).await),
    }
}

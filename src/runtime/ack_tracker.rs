//! A delivery that several take care of, and what the source is told when all have.

use super::progress::Progress;
use super::shared::{PAUSE, Shared};
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

/// How many acknowledgements may be on their way at a time.
const AT_ONCE: usize = 64;

/// How long a source may take to be told.
const PATIENCE: Duration = Duration::from_secs(5);

/// One share of a delivery. Whoever has taken care of it settles it; one that is dropped was not taken care of.
pub(super) struct AckTracker {
    owed: Arc<Owed>,
    settled: bool,
}

/// Finder of a delivery.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    Source,
    Sweep,
}

/// A delivery until everybody it concerns has taken care of it.
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

/// What becomes of a delivery.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// Everybody has taken care of it so far.
    Taken,
    /// Somebody could not, and wants it again after that time.
    Again(Duration),
}

/// What the source is to be told.
struct Told {
    origin: Origin,
    event: Option<Event>,
    position: Option<u64>,
    receipt: Option<Arc<dyn Receipt>>,
    again: Option<Duration>,
    /// Given up once it was told.
    place: Option<Place>,
}

impl AckTracker {
    pub(super) fn event(&self) -> &Event {
        &self.owed.event
    }

    /// Another share of the same delivery.
    pub(super) fn another(&self) -> Self {
        Self {
            owed: Arc::clone(&self.owed),
            settled: false,
        }
    }

    /// Gives up this share: it is taken care of.
    pub(super) fn settle(mut self) {
        self.settled = true;
    }

    /// Gives up this share: it cannot be taken care of, and is wanted again after a time.
    pub(super) fn again(mut self, delay: Duration) {
        *self.owed.fate() = Fate::Again(delay);
        self.settled = true;
    }
}

impl Drop for AckTracker {
    /// One that is dropped at the end waits for the next start; one that is dropped before, as by a panic, comes again.
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
                self.progress.end(self.position, &self.event);
                None
            }
            // Its position stays open, so the next start begins with it.
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
        // There is room for as many as there are places. Nobody listens only when the runtime was dropped.
        drop(self.told.try_send(told));
    }
}

/// One of the places for deliveries that are on their way, those that come again included.
#[derive(Debug)]
pub(super) struct Place(#[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

/// Where deliveries become shares.
pub(super) struct AckTrackers {
    progress: Arc<Progress>,
    stop: CancellationToken,
    told: mpsc::Sender<Told>,
    places: Arc<Semaphore>,
}

impl AckTrackers {
    /// A place for a delivery: waits while too many are on their way.
    pub(super) fn place(&self) -> impl Future<Output = Place> + use<> {
        let places = Arc::clone(&self.places);
        async move {
            match places.acquire_owned().await {
                Ok(place) => Place(place),
                // Nobody closes these places.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// The first share of a delivery.
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

/// What comes again from within.
pub(super) type Back = (Delivery, Place, Origin);

/// Tells the source what became of its deliveries.
pub(super) struct Receipts {
    shared: Arc<Shared>,
    told: mpsc::Receiver<Told>,
    /// What a source does not take back comes again from here.
    back: mpsc::Sender<Back>,
}

/// Where deliveries become shares, so many at a time, and what tells the source of them.
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
    /// Tells the source until there is nobody left who could have something to tell.
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

/// Tells the source; gives back what it was to deliver again and does not, or may not: twice is harmless, never is not.
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
                shared.progress.taken_back(event);
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
    tracing::warn!(code = error.code(), error = %Chain(&error), "cannot acknowledge an event, its source may deliver it again");
    shared.note(&error);
    told.again.is_some().then_some(told)
}

/// Hands a delivery in again when its time has come. The source is told when it is taken care of in the end, since it may
/// remember what was not.
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
        // With its place: it needs no other, so it never waits for those that wait for it.
        () = sleep(delay) => drop(back.send((delivery, place, refused.origin)).await),
    }
}

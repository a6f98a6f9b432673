//! Tracking of event deliveries. After all handlers have settled a delivery, the event source receives an acknowledgement.

use super::progress::Progress;
use super::shared::Shared;
use super::timeouts::RETRY_PAUSE;
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
const MAX_ACKS: usize = 64;

/// Timeout of one acknowledgement of an event to the event source.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);

/// A handle by which one handler of an event reports that it has finished with the event's delivery. A handle that is dropped
/// unsettled requests a redelivery of the event. After a stop, a delivery with a position waits for the next start instead.
pub(super) struct AckTracker {
    pending: Arc<PendingDelivery>,
    settled: bool,
}

/// The origin of an event delivery: the event source, or a sweep of the store for missed events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    Source,
    Sweep,
}

/// An event delivery in flight, which ends when the last of its handles is dropped.
struct PendingDelivery {
    origin: Origin,
    event: Event,
    position: Option<u64>,
    receipt: Option<Arc<dyn Receipt>>,
    outcome: Mutex<DeliveryOutcome>,
    progress: Arc<Progress>,
    stop: CancellationToken,
    acks: mpsc::Sender<Acknowledgement>,
    permit: Option<DeliveryPermit>,
}

/// The outcome of an event delivery: handled, or to be delivered again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum DeliveryOutcome {
    /// No handler of the event has requested a redelivery.
    Handled,
    /// A handler of the event has failed, and requests a redelivery after this delay.
    Redeliver(Duration),
}

/// An acknowledgement of an event, or a request for its redelivery, to be sent to the event source.
struct Acknowledgement {
    origin: Origin,
    event: Option<Event>,
    position: Option<u64>,
    receipt: Option<Arc<dyn Receipt>>,
    redeliver_after: Option<Duration>,
    /// The permit that counts the event delivery as in flight, released after the acknowledgement. A refused redelivery keeps the
    /// permit.
    permit: Option<DeliveryPermit>,
}

impl AckTracker {
    pub(super) fn event(&self) -> &Event {
        &self.pending.event
    }

    /// Returns another handle of the same event delivery.
    pub(super) fn another_handle(&self) -> Self {
        Self {
            pending: Arc::clone(&self.pending),
            settled: false,
        }
    }

    /// Settles this handle of an event delivery: its holder needs no redelivery of the event.
    pub(super) fn settle(mut self) {
        self.settled = true;
    }

    /// Settles this handle of an event delivery, and requests a redelivery of the event after a delay.
    pub(super) fn redeliver_after(mut self, delay: Duration) {
        *self.pending.outcome() = DeliveryOutcome::Redeliver(delay);
        self.settled = true;
    }
}

impl Drop for AckTracker {
    /// Requests a redelivery of an event whose handler did not settle it, for example after a panic.
    fn drop(&mut self) {
        if !self.settled {
            *self.pending.outcome() = DeliveryOutcome::Redeliver(RETRY_PAUSE);
        }
    }
}

impl PendingDelivery {
    fn outcome(&self) -> MutexGuard<'_, DeliveryOutcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingDelivery {
    fn drop(&mut self) {
        let redeliver_after = match *self.outcome() {
            DeliveryOutcome::Handled => {
                self.progress.note_handled(self.position, &self.event);
                None
            }
            // The position stays open, so the next start resumes at this delivery.
            DeliveryOutcome::Redeliver(_)
                if self.stop.is_cancelled() && self.position.is_some() =>
            {
                return;
            }
            DeliveryOutcome::Redeliver(delay) => Some(delay),
        };
        let needs_ack = self
            .receipt
            .as_ref()
            .is_some_and(|receipt| receipt.needs_ack());
        if redeliver_after.is_none() && !needs_ack {
            return;
        }
        let ack = Acknowledgement {
            origin: self.origin,
            event: redeliver_after.map(|_| self.event.clone()),
            position: self.position,
            receipt: self.receipt.take(),
            redeliver_after,
            permit: self.permit.take(),
        };
        // The channel has capacity for every permit. The send fails only after the runtime was dropped.
        drop(self.acks.try_send(ack));
    }
}

/// A permit that counts one event delivery as in flight, even while the delivery waits for redelivery.
#[derive(Debug)]
pub(super) struct DeliveryPermit(
    #[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit,
);

/// Factory that creates the handles of event deliveries and limits the number of deliveries in flight.
pub(super) struct AckTrackers {
    progress: Arc<Progress>,
    stop: CancellationToken,
    acks: mpsc::Sender<Acknowledgement>,
    permits: Arc<Semaphore>,
}

impl AckTrackers {
    /// Acquires the permit for an event delivery. Waits while too many deliveries are in flight.
    pub(super) fn acquire_permit(&self) -> impl Future<Output = DeliveryPermit> + use<> {
        let permits = Arc::clone(&self.permits);
        async move {
            match permits.acquire_owned().await {
                Ok(permit) => DeliveryPermit(permit),
                // The semaphore is never closed.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Returns the first handle of an event delivery.
    pub(super) fn track(
        &self,
        delivery: Delivery,
        permit: DeliveryPermit,
        origin: Origin,
    ) -> AckTracker {
        let (event, position, receipt) = delivery.into_parts();
        let pending = Arc::new(PendingDelivery {
            origin,
            event,
            position,
            receipt,
            outcome: Mutex::new(DeliveryOutcome::Handled),
            progress: Arc::clone(&self.progress),
            stop: self.stop.clone(),
            acks: self.acks.clone(),
            permit: Some(permit),
        });
        AckTracker {
            pending,
            settled: false,
        }
    }
}

/// An event delivery that the runtime itself redelivers later, because the event source does not.
pub(super) type Redelivery = (Delivery, DeliveryPermit, Origin);

/// The task that sends the acknowledgements of events to the event source.
pub(super) struct AckSender {
    shared: Arc<Shared>,
    acks: mpsc::Receiver<Acknowledgement>,
    /// Sender to the event intake, for deliveries that the event source does not redeliver.
    redeliveries: mpsc::Sender<Redelivery>,
}

/// Creates the trackers for at most `max_deliveries` event deliveries in flight, and the task that acknowledges these events.
pub(super) fn trackers(
    shared: &Arc<Shared>,
    max_deliveries: usize,
    redeliveries: mpsc::Sender<Redelivery>,
) -> (AckTrackers, AckSender) {
    let (acks, received) = mpsc::channel(max_deliveries);
    let trackers = AckTrackers {
        progress: Arc::clone(&shared.progress),
        stop: shared.stop.clone(),
        acks,
        permits: Arc::new(Semaphore::new(max_deliveries)),
    };
    let ack_sender = AckSender {
        shared: Arc::clone(shared),
        acks: received,
        redeliveries,
    };
    (trackers, ack_sender)
}

impl AckSender {
    /// Sends acknowledgements of events until all trackers of deliveries are dropped.
    pub(super) async fn run(mut self) {
        let mut sending = FuturesUnordered::new();
        let mut redelivering = FuturesUnordered::new();
        loop {
            let has_capacity = sending.len() < MAX_ACKS;
            tokio::select! {
                biased;
                Some(refused) = sending.next() => if let Some(refused) = refused {
                    redelivering.push(redeliver_later(refused, self.redeliveries.clone(), self.shared.stop.clone()));
                },
                Some(()) = redelivering.next() => {}
                ack = self.acks.recv(), if has_capacity => match ack {
                    Some(ack) => sending.push(send_ack(&self.shared, ack)),
                    None => break,
                },
            }
        }
        while sending.next().await.is_some() {}
    }
}

/// Acknowledges an event to its source. Returns the delivery if the runtime must repeat it: a duplicate is harmless, a loss is not.
async fn send_ack(shared: &Shared, ack: Acknowledgement) -> Option<Acknowledgement> {
    let answer = async {
        match (&ack.receipt, ack.redeliver_after) {
            (Some(receipt), None) => receipt.ack().await,
            (Some(receipt), Some(delay)) => receipt.nack(delay).await,
            (None, None) => Ok(()),
            (None, Some(_)) => Err(SourceError::NoRedelivery {
                reason: "this source does not deliver again",
            }),
        }
    };
    let error = match timeout(ACK_TIMEOUT, answer).await {
        Ok(Ok(())) => {
            if let Some(event) = &ack.event {
                shared.progress.note_nacked(event, shared.source_is_shared);
            }
            return None;
        }
        Ok(Err(SourceError::NoRedelivery { .. })) if ack.redeliver_after.is_some() => {
            return Some(ack);
        }
        Ok(Err(error)) => error,
        Err(_) => SourceError::Unavailable {
            retry_after: RETRY_PAUSE,
            source: format!("no answer to an acknowledgement within {ACK_TIMEOUT:?}").into(),
        },
    };
    tracing::warn!(code = error.code(), error = %Chain(&error), "cannot acknowledge an event; its source may deliver it again");
    shared.note(&error);
    ack.redeliver_after.is_some().then_some(ack)
}

/// Delivers an event again within the runtime, after the delay that its handler requested. The delivery keeps its receipt, so that the
/// source receives an acknowledgement once the event is handled.
async fn redeliver_later(
    refused: Acknowledgement,
    redeliveries: mpsc::Sender<Redelivery>,
    stop: CancellationToken,
) {
    let (Some(event), Some(delay), Some(permit)) =
        (refused.event, refused.redeliver_after, refused.permit)
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
        () = sleep(delay) => drop(redeliveries.send((delivery, permit, refused.origin)).await),
    }
}

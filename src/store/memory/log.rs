//! Events of one tenant in the order of the commits, and the event source that delivers them.

use super::{MemoryLimits, Tenant};
use crate::model::{Breadcrumb, Event, EventKind, Json, Timestamp};
use crate::source::{Deliveries, Delivery, EventSource, Receipt, SourceError, StartAt};
use crate::store::nacked::Nacked;
use async_trait::async_trait;
use futures::stream;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Maximum number of events that a subscriber reads from the tenant's event log each time it locks the log.
const AT_ONCE: usize = 64;

/// An event of a commit in the tenant's event log. It shares its breadcrumb with the store, so that a commit copies nothing for
/// the event.
#[derive(Clone, Debug)]
enum LoggedEvent {
    Shared(EventKind, Arc<Breadcrumb>),
    /// An event without a reference to the stored breadcrumb, so that the event log does not keep this breadcrumb in memory.
    /// The breadcrumb is larger than an event's context may be, or the log has dropped the context.
    Detached(Arc<Event>),
}

impl LoggedEvent {
    fn new(kind: EventKind, breadcrumb: &Arc<Breadcrumb>) -> Self {
        match breadcrumb.size() > Event::MAX_CONTEXT_BYTES {
            true => Self::Detached(Arc::new(event_of(kind, breadcrumb))),
            false => Self::Shared(kind, Arc::clone(breadcrumb)),
        }
    }

    /// Returns the maximum number of bytes of memory that are freed if the logged event drops its breadcrumb's context.
    fn bytes(&self) -> usize {
        match self {
            Self::Shared(_, breadcrumb) => breadcrumb.size(),
            Self::Detached(event) => event.context.as_ref().map_or(0, Json::size),
        }
    }

    /// Removes the context from the logged event, to save memory. Subscribers then read the breadcrumb from the store.
    fn drop_context(&mut self) {
        *self = Self::Detached(Arc::new(self.event().envelope()));
    }

    fn event(&self) -> Event {
        match self {
            Self::Shared(kind, breadcrumb) => event_of(*kind, breadcrumb),
            Self::Detached(event) => Event::clone(event),
        }
    }

    fn updated_at(&self) -> Timestamp {
        match self {
            Self::Shared(_, breadcrumb) => breadcrumb.updated_at,
            Self::Detached(event) => event.updated_at,
        }
    }
}

fn event_of(kind: EventKind, breadcrumb: &Breadcrumb) -> Event {
    match kind {
        EventKind::Created => Event::created(breadcrumb),
        EventKind::Updated => Event::updated(breadcrumb),
        EventKind::Deleted | EventKind::Ping => Event::deleted(breadcrumb),
    }
}

/// The most recent events of one tenant's commits. Positions start at 1.
#[derive(Debug, Default)]
pub(super) struct Log {
    events: VecDeque<LoggedEvent>,
    /// The position of the last event in the tenant's event log.
    last: u64,
    /// Number of events in the event log whose breadcrumb context was dropped to save memory. These are the oldest events in
    /// the log.
    envelopes: usize,
    /// Sum of the [bytes](LoggedEvent::bytes) of the events in the event log whose context was not dropped.
    bytes: usize,
}

impl Log {
    /// Adds an event to the tenant's event log, and drops the oldest events and the oldest breadcrumb contexts that exceed the
    /// log's limits.
    pub(super) fn push(
        &mut self,
        kind: EventKind,
        breadcrumb: &Arc<Breadcrumb>,
        limits: &MemoryLimits,
    ) {
        let event = LoggedEvent::new(kind, breadcrumb);
        self.bytes += event.bytes();
        self.events.push_back(event);
        self.last += 1;
        while self.events.len() > limits.events {
            let dropped = self.events.pop_front();
            self.bytes -= dropped.as_ref().map_or(0, LoggedEvent::bytes);
            self.envelopes = self.envelopes.saturating_sub(1);
        }
        while self.bytes > limits.event_bytes
            && let Some(oldest) = self.events.get_mut(self.envelopes)
        {
            self.bytes -= oldest.bytes();
            oldest.drop_context();
            self.envelopes += 1;
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    fn first(&self) -> u64 {
        self.last - self.events.len() as u64 + 1
    }

    /// Returns the time of the event at a position of the event log, or 1970-01-01 for position 0, which precedes the first
    /// event.
    fn time_of(&self, position: u64) -> Option<Timestamp> {
        match position {
            0 => Some(Timestamp::UNIX_EPOCH),
            _ => Some(self.at(position)?.updated_at()),
        }
    }

    /// Returns the position of the first event in the event log that is later than `time`. Without such an event, returns the
    /// position that the next event will have. The times of events grow with their positions.
    fn first_after(&self, time: Timestamp) -> u64 {
        let before = self
            .events
            .partition_point(|event| event.updated_at() <= time);
        self.first() + before as u64
    }

    /// Adds up to [`AT_ONCE`] events of the event log to `found`, starting with the event at `position`.
    ///
    /// # Errors
    /// The number of events from the position on that the log has dropped.
    fn read(&self, position: u64, found: &mut VecDeque<LoggedEvent>) -> Result<(), u64> {
        let Some(index) = position.checked_sub(self.first()) else {
            return Err(self.first() - position);
        };
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let some = self.events.iter().skip(index).take(AT_ONCE);
        found.extend(some.cloned());
        Ok(())
    }

    /// Returns the event at a position of the event log, or `None` if the log has dropped the event or has no such position
    /// yet.
    fn at(&self, position: u64) -> Option<&LoggedEvent> {
        let index = position.checked_sub(self.first())?;
        self.events.get(usize::try_from(index).ok()?)
    }
}

/// Event source for the commits of one tenant of a [`MemoryStore`](super::MemoryStore).
#[derive(Clone, Debug)]
pub(super) struct MemoryEvents {
    pub(super) tenant: Arc<Tenant>,
}

#[async_trait]
impl EventSource for MemoryEvents {
    fn description(&self) -> String {
        super::NAME.to_owned()
    }

    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        let changed = self.tenant.committed.subscribe();
        let state = self.tenant.read();
        let (first, end) = (state.log.first(), state.log.last() + 1);
        let next = match from {
            StartAt::Now => end,
            StartAt::Beginning => first,
            // A position in the future belongs to an earlier store: the subscriber must not miss the events from now on.
            StartAt::After(position) => position.saturating_add(1).min(end),
            StartAt::Since(time) => state.log.first_after(time),
        };
        let time = state.log.time_of(next - 1);
        let delivered_to = match from {
            StartAt::Now | StartAt::Beginning => time,
            // The event before the oldest one is no longer in the log.
            StartAt::Since(_) => {
                let oldest = || state.log.time_of(next).map(Timestamp::just_before);
                time.or_else(oldest)
            }
            StartAt::After(_) => time.map(Timestamp::just_before),
        };
        drop(state);
        let subscriber = Subscriber {
            tenant: Arc::clone(&self.tenant),
            changed,
            next,
            unread: VecDeque::with_capacity(AT_ONCE),
            delivered_to,
            nacked: Arc::default(),
        };
        let stream = stream::unfold(subscriber, |mut subscriber| async move {
            let delivered = subscriber.next().await?;
            Some((delivered, subscriber))
        });
        Ok(Deliveries::new(stream)
            .starting_after(next - 1)
            .delivering_after(delivered_to))
    }

    fn is_complete(&self) -> bool {
        true
    }
}

struct Subscriber {
    tenant: Arc<Tenant>,
    changed: watch::Receiver<u64>,
    next: u64,
    /// Events that the subscriber has read from the event log, but has not delivered yet. The first one is at position `next`.
    unread: VecDeque<LoggedEvent>,
    /// Time up to which a `Lagged` error reports the events as delivered. It is just before the newest delivered event, because
    /// the next event can belong to the same commit. Without a delivered event, it comes from the start of the subscription.
    delivered_to: Option<Timestamp>,
    nacked: Arc<Nacked<LoggedEvent>>,
}

impl Subscriber {
    async fn next(&mut self) -> Option<Result<Delivery, SourceError>> {
        loop {
            if let Some((position, event)) = self.nacked.take_due() {
                return Some(Ok(self.delivery(position, event)));
            }
            if let Some(event) = self.unread.pop_front() {
                let position = self.next;
                self.next += 1;
                // The next event can belong to the same commit.
                let before = event.updated_at().just_before();
                self.delivered_to = self.delivered_to.max(Some(before));
                return Some(Ok(self.delivery(position, event)));
            }
            self.changed.mark_unchanged();
            let read = self.tenant.read().log.read(self.next, &mut self.unread);
            if let Err(missed) = read {
                self.next += missed;
                let after = self.delivered_to;
                return Some(Err(SourceError::Lagged { missed, after }));
            }
            if !self.unread.is_empty() {
                continue;
            }
            tokio::select! {
                changed = self.changed.changed() => changed.ok()?,
                () = self.nacked.due_or_added() => {}
            }
        }
    }

    fn delivery(&self, position: u64, event: LoggedEvent) -> Delivery {
        let delivered = event.event();
        let receipt = MemoryReceipt {
            position,
            event,
            nacked: Arc::clone(&self.nacked),
        };
        Delivery::new(delivered)
            .at(position)
            .with_receipt(Arc::new(receipt))
    }
}

struct MemoryReceipt {
    position: u64,
    event: LoggedEvent,
    nacked: Arc<Nacked<LoggedEvent>>,
}

#[async_trait]
impl Receipt for MemoryReceipt {
    async fn ack(&self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn nack(&self, delay: Duration) -> Result<(), SourceError> {
        self.nacked
            .requeue(self.position, self.event.clone(), delay)
    }

    fn needs_ack(&self) -> bool {
        false
    }
}

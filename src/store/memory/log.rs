//! The events of one tenant in the order of the commits, and the source over them.

use super::Tenant;
use crate::model::{Event, Timestamp};
use crate::source::{Deliveries, Delivery, EventSource, Receipt, SourceError, StartAt};
use crate::store::returned::Returned;
use async_trait::async_trait;
use futures::stream;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The latest events; positions count from 1.
#[derive(Debug, Default)]
pub(super) struct Log {
    events: VecDeque<Event>,
    /// The position of the last event.
    last: u64,
}

impl Log {
    pub(super) fn push(&mut self, event: Event, keep: usize) {
        self.events.push_back(event);
        self.last += 1;
        while self.events.len() > keep {
            self.events.pop_front();
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    fn first(&self) -> u64 {
        self.last - self.events.len() as u64 + 1
    }

    /// Returns the time of the event at a position, or the earliest time for the position before the first event.
    fn time_of(&self, position: u64) -> Option<Timestamp> {
        match position {
            0 => Some(Timestamp::UNIX_EPOCH),
            _ => Some(self.at(position).ok()??.updated_at),
        }
    }

    /// The event at a position, or how many from there on are gone.
    fn at(&self, position: u64) -> Result<Option<Event>, u64> {
        match position.checked_sub(self.first()) {
            Some(index) => Ok(usize::try_from(index)
                .ok()
                .and_then(|index| self.events.get(index))
                .cloned()),
            None => Err(self.first() - position),
        }
    }
}

/// The commits of one tenant as events.
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
            // A position from the future is of another store's life: nothing from now on may be missed for it.
            StartAt::After(position) => position.saturating_add(1).min(end),
        };
        let time = state.log.time_of(next - 1);
        let delivered_to = match from {
            StartAt::Now | StartAt::Beginning => time,
            StartAt::After(_) => time.map(Timestamp::just_before),
        };
        drop(state);
        let subscriber = Subscriber {
            tenant: Arc::clone(&self.tenant),
            changed,
            next,
            delivered_to,
            returned: Arc::default(),
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
    /// Time of the newest event up to `next` that was delivered or precedes the subscription.
    delivered_to: Option<Timestamp>,
    returned: Arc<Returned>,
}

impl Subscriber {
    async fn next(&mut self) -> Option<Result<Delivery, SourceError>> {
        loop {
            self.changed.mark_unchanged();
            if let Some((position, event)) = self.returned.take_due() {
                return Some(Ok(self.delivery(position, event)));
            }
            let found = self.tenant.read().log.at(self.next);
            match found {
                Ok(Some(event)) => {
                    let position = self.next;
                    self.next += 1;
                    // The next event may be of the same commit.
                    let before = event.updated_at.just_before();
                    self.delivered_to = self.delivered_to.max(Some(before));
                    return Some(Ok(self.delivery(position, event)));
                }
                Err(missed) => {
                    self.next += missed;
                    let after = self.delivered_to;
                    return Some(Err(SourceError::Lagged { missed, after }));
                }
                Ok(None) => {}
            }
            tokio::select! {
                changed = self.changed.changed() => changed.ok()?,
                () = self.returned.due_or_added() => {}
            }
        }
    }

    fn delivery(&self, position: u64, event: Event) -> Delivery {
        let receipt = MemoryReceipt {
            position,
            event: event.clone(),
            returned: Arc::clone(&self.returned),
        };
        Delivery::new(event)
            .at(position)
            .with_receipt(Arc::new(receipt))
    }
}

struct MemoryReceipt {
    position: u64,
    event: Event,
    returned: Arc<Returned>,
}

#[async_trait]
impl Receipt for MemoryReceipt {
    async fn ack(&self) -> Result<(), SourceError> {
        Ok(())
    }

    async fn nack(&self, delay: Duration) -> Result<(), SourceError> {
        self.returned
            .give_back(self.position, self.event.clone(), delay)
    }
}

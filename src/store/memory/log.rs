//! The events of one tenant in the order of the commits, and the source over them.

use super::Tenant;
use crate::model::Event;
use crate::source::{Delivery, EventSource, Receipt, SourceError, StartAt};
use async_trait::async_trait;
use futures::stream::{self, BoxStream};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

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
    async fn subscribe(
        &self,
        from: StartAt,
    ) -> Result<BoxStream<'static, Result<Delivery, SourceError>>, SourceError> {
        let changed = self.tenant.committed.subscribe();
        let (first, end) = {
            let state = self.tenant.read();
            (state.log.first(), state.log.last() + 1)
        };
        let next = match from {
            StartAt::Now => end,
            StartAt::Beginning => first,
            // A position from the future is of another store's life: nothing from now on may be missed for it.
            StartAt::After(position) => position.saturating_add(1).min(end),
        };
        let subscriber = Subscriber {
            tenant: Arc::clone(&self.tenant),
            changed,
            next,
            returned: Arc::default(),
        };
        Ok(Box::pin(stream::unfold(
            subscriber,
            |mut subscriber| async move {
                let delivered = subscriber.next().await?;
                Some((delivered, subscriber))
            },
        )))
    }

    fn is_complete(&self) -> bool {
        true
    }
}

struct Subscriber {
    tenant: Arc<Tenant>,
    changed: watch::Receiver<u64>,
    next: u64,
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
                    return Some(Ok(self.delivery(position, event)));
                }
                Err(missed) => {
                    self.next += missed;
                    return Some(Err(SourceError::Lagged { missed }));
                }
                Ok(None) => {}
            }
            let due = self.returned.first_due();
            tokio::select! {
                changed = self.changed.changed() => changed.ok()?,
                () = self.returned.added.notified() => {}
                () = sleep_until(due) => {}
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

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Events that a subscriber gave back, to come again when they are due.
#[derive(Default)]
struct Returned {
    events: Mutex<Vec<(Instant, u64, Event)>>,
    added: tokio::sync::Notify,
}

impl Returned {
    /// How many one subscriber may give back at a time.
    const MOST: usize = 1_024;

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Instant, u64, Event)>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first_due(&self) -> Option<Instant> {
        self.lock().iter().map(|(due, ..)| *due).min()
    }

    fn take_due(&self) -> Option<(u64, Event)> {
        let mut events = self.lock();
        let now = Instant::now();
        let at = events.iter().position(|(due, ..)| *due <= now)?;
        let (_, position, event) = events.swap_remove(at);
        Some((position, event))
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
        let Some(due) = Instant::now().checked_add(delay) else {
            return Err(SourceError::NotTakenBack {
                reason: "the delay is too long",
            });
        };
        let mut events = self.returned.lock();
        if events.len() >= Returned::MOST {
            return Err(SourceError::NotTakenBack {
                reason: "too many events were given back already",
            });
        }
        events.push((due, self.position, self.event.clone()));
        drop(events);
        self.returned.added.notify_one();
        Ok(())
    }
}

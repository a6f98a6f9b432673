//! Queue of the events that a subscriber nacked, until they are delivered again.

use crate::source::SourceError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Queue of the events that one subscriber nacked. An event is delivered again when it is due.
pub(super) struct Nacked<E> {
    events: Mutex<Vec<(Instant, u64, E)>>,
    added: Notify,
}

impl<E> Default for Nacked<E> {
    fn default() -> Self {
        Self {
            events: Mutex::default(),
            added: Notify::new(),
        }
    }
}

impl<E> Nacked<E> {
    /// Maximum number of nacked events of one subscriber that wait for redelivery.
    const MOST: usize = 1_024;

    pub(super) fn requeue(
        &self,
        position: u64,
        event: E,
        delay: Duration,
    ) -> Result<(), SourceError> {
        let refused = |reason| Err(SourceError::NoRedelivery { reason });
        let Some(due) = Instant::now().checked_add(delay) else {
            return refused("the delay is too long");
        };
        let mut events = self.lock();
        if events.len() >= Self::MOST {
            return refused("too many nacked events wait for redelivery");
        }
        events.push((due, position, event));
        drop(events);
        self.added.notify_one();
        Ok(())
    }

    pub(super) fn take_due(&self) -> Option<(u64, E)> {
        let mut events = self.lock();
        if events.is_empty() {
            return None;
        }
        let now = Instant::now();
        let at = events.iter().position(|(due, ..)| *due <= now)?;
        let (_, position, event) = events.swap_remove(at);
        Some((position, event))
    }

    /// Waits until a nacked event is due for redelivery, or until another event is nacked.
    pub(super) async fn due_or_added(&self) {
        let first_due = self.lock().iter().map(|(due, ..)| *due).min();
        let due = async {
            match first_due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.added.notified() => {}
            () = due => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, u64, E)>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Nacked NATS messages that are not yet due for redelivery.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Due times of nacked NATS messages by stream position. The server receives only short delays, which are renewed until a message is due: a
/// delay on the server outlives this worker, and would delay the message for the next worker of the group.
#[derive(Default)]
pub(super) struct Nacked(Mutex<BTreeMap<u64, Instant>>);

impl Nacked {
    /// Maximum number of nacked NATS messages whose due times are in memory.
    const MAX_POSITIONS: usize = 16_384;

    /// Records the due time of a nacked NATS message. Returns `false` if [`MAX_POSITIONS`](Self::MAX_POSITIONS) other messages are not
    /// due.
    pub(super) fn set(&self, position: u64, due: Instant) -> bool {
        let mut open = self.open();
        if open.len() >= Self::MAX_POSITIONS {
            // A message that was redelivered to another worker leaves an expired entry.
            let now = Instant::now();
            open.retain(|_, due| *due > now);
        }
        let has_capacity = open.len() < Self::MAX_POSITIONS || open.contains_key(&position);
        if has_capacity {
            open.insert(position, due);
        }
        has_capacity
    }

    /// Returns the remaining time until the nacked NATS message at a stream position is due. Removes the entry and
    /// returns `None` if the message is due.
    pub(super) fn remaining_delay(&self, position: u64) -> Option<Duration> {
        let mut open = self.open();
        let remaining = open
            .get(&position)?
            .saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            open.remove(&position);
            return None;
        }
        Some(remaining)
    }

    pub(super) fn remove(&self, position: u64) {
        self.open().remove(&position);
    }

    /// Returns the lowest stream position of the nacked NATS messages.
    pub(super) fn first(&self) -> Option<u64> {
        self.open().keys().next().copied()
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_number_of_nacked_positions_is_limited_and_due_positions_free_capacity() {
        let (nacked, most) = (Nacked::default(), Nacked::MAX_POSITIONS as u64);
        let soon = Instant::now() + Duration::from_secs(1);
        assert!((0..most).all(|position| nacked.set(position, soon)));

        assert!(!nacked.set(most, soon));
        assert!(
            nacked.set(0, soon),
            "a known position needs no further entry"
        );
        tokio::time::advance(Duration::from_secs(2)).await;

        assert!(nacked.set(most, Instant::now() + Duration::from_secs(1)));
        assert_eq!(nacked.first(), Some(most));
    }
}

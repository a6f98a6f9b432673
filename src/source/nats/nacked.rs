//! What was given back and is not due yet.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// When what was given back is due, by position. The server is told of a short delay at a time: it keeps what it is told
/// for whoever comes next, and that shall not have to wait.
#[derive(Default)]
pub(super) struct Nacked(Mutex<BTreeMap<u64, Instant>>);

impl Nacked {
    /// How many are remembered.
    const MOST: usize = 16_384;

    /// Notes when something is due; false if there is no room.
    pub(super) fn set(&self, position: u64, due: Instant) -> bool {
        let mut open = self.open();
        if open.len() >= Self::MOST {
            // What came to another worker when it was due is still in here.
            let now = Instant::now();
            open.retain(|_, due| *due > now);
        }
        let has_room = open.len() < Self::MOST || open.contains_key(&position);
        if has_room {
            open.insert(position, due);
        }
        has_room
    }

    /// How long something is not due yet; what is due is forgotten.
    pub(super) fn early(&self, position: u64) -> Option<Duration> {
        let mut open = self.open();
        let left = open
            .get(&position)?
            .saturating_duration_since(Instant::now());
        if left.is_zero() {
            open.remove(&position);
            return None;
        }
        Some(left)
    }

    pub(super) fn forget(&self, position: u64) {
        self.open().remove(&position);
    }

    /// The first position that was given back.
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
    async fn so_many_are_remembered_and_what_is_due_makes_room() {
        let (returned, most) = (Nacked::default(), Nacked::MOST as u64);
        let soon = Instant::now() + Duration::from_secs(1);
        assert!((0..most).all(|position| returned.set(position, soon)));

        assert!(!returned.set(most, soon));
        assert!(returned.set(0, soon), "one that is known needs no room");
        tokio::time::advance(Duration::from_secs(2)).await;

        assert!(returned.set(most, Instant::now() + Duration::from_secs(1)));
        assert_eq!(returned.first(), Some(most));
    }
}

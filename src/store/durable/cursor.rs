//! Stored positions of named event consumers of a SQLite or PostgreSQL store.

use crate::store::StoreError;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of event consumers of one tenant. The store retains one position and one event for each consumer.
pub(in crate::store) const MOST: usize = 1_000;

/// Returns the error for a new event consumer of a tenant that already has the maximum number of event consumers.
pub(in crate::store) const fn too_many_consumers(store: &'static str) -> StoreError {
    StoreError::Full {
        store,
        what: "event consumers of a tenant; delete rows of the table ux_consumers",
        limit: MOST,
    }
}

/// Name of a tenant, and name of one of its event consumers.
pub(in crate::store) type ConsumerName = (Arc<str>, Arc<str>);

/// Acknowledged event positions that the store has not saved yet, by tenant and event consumer.
#[derive(Debug, Default)]
pub(in crate::store) struct AcknowledgedPositions(Mutex<HashMap<ConsumerName, u64>>);

impl AcknowledgedPositions {
    /// Records an acknowledged position of an event consumer. Returns `true` if there was no other position to store.
    pub(in crate::store) fn record(&self, name: ConsumerName, position: u64) -> bool {
        let mut positions = self.lock();
        let was_empty = positions.is_empty();
        positions.insert(name, position);
        was_empty
    }

    pub(in crate::store) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(in crate::store) fn take(&self) -> HashMap<ConsumerName, u64> {
        std::mem::take(&mut *self.lock())
    }

    /// Puts acknowledged positions back into this map after the store failed to save them. A later position that was recorded meanwhile
    /// takes precedence.
    pub(in crate::store) fn put_back(&self, positions: HashMap<ConsumerName, u64>) {
        let mut newer = self.lock();
        for (name, position) in positions {
            newer.entry(name).or_insert(position);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConsumerName, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Record of the events that an event consumer has received but not acknowledged. All events before the first of these events are
/// acknowledged.
pub(in crate::store) struct Cursor {
    state: Mutex<CursorState>,
    /// Callback with the position up to which the consumer has acknowledged all events, called each time this position increases.
    /// The function must not block.
    on_settled: Box<dyn Fn(u64) + Send + Sync>,
}

struct CursorState {
    /// Position of the last event that was delivered to the consumer, or was skipped because the store has deleted it.
    delivered: u64,
    /// Positions of events that were delivered to the consumer and not acknowledged.
    unacknowledged: BTreeSet<u64>,
}

impl CursorState {
    /// Returns the position up to which the consumer has acknowledged all events.
    fn settled(&self) -> u64 {
        match self.unacknowledged.first() {
            Some(first) => first - 1,
            None => self.delivered,
        }
    }
}

impl Cursor {
    /// Creates the cursor of an event consumer that has acknowledged all events up to `position`. The consumer continues with the
    /// event after this position.
    pub(in crate::store) fn resume_after(
        position: u64,
        on_settled: impl Fn(u64) + Send + Sync + 'static,
    ) -> Self {
        Self {
            state: Mutex::new(CursorState {
                delivered: position,
                unacknowledged: BTreeSet::new(),
            }),
            on_settled: Box::new(on_settled),
        }
    }

    pub(super) fn position(&self) -> u64 {
        self.lock().settled()
    }

    pub(super) fn deliver(&self, position: u64) {
        let mut state = self.lock();
        state.delivered = state.delivered.max(position);
        state.unacknowledged.insert(position);
    }

    /// Counts all events up to a position as delivered to the consumer, because the store has deleted the undelivered ones.
    pub(super) fn skip_to(&self, position: u64) {
        self.change(|state| state.delivered = state.delivered.max(position));
    }

    pub(super) fn acknowledge(&self, position: u64) {
        self.change(|state| {
            state.unacknowledged.remove(&position);
        });
    }

    /// Changes the state of the consumer's cursor, and calls `on_settled` if the consumer has now acknowledged all events up to a
    /// higher position. The lock is held during the call, so the reported positions only grow.
    fn change(&self, change: impl FnOnce(&mut CursorState)) {
        let mut state = self.lock();
        let before = state.settled();
        change(&mut state);
        let after = state.settled();
        if after > before {
            (self.on_settled)(after);
        }
    }

    fn lock(&self) -> MutexGuard<'_, CursorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledged_position_is_reported_once_up_to_the_first_open_position() {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let cursor = Cursor::resume_after(3, {
            let reported = Arc::clone(&reported);
            move |position| reported.lock().unwrap().push(position)
        });
        for position in 4..=6 {
            cursor.deliver(position);
        }

        for position in [5, 4, 6, 6] {
            cursor.acknowledge(position);
        }
        cursor.skip_to(9);

        assert_eq!(*reported.lock().unwrap(), [5, 6, 9]);
        assert_eq!(cursor.position(), 9);
    }

    #[test]
    fn a_position_that_was_not_stored_does_not_replace_a_later_position() {
        let name = |name: &str| (Arc::from("t"), Arc::from(name));
        let acknowledged = AcknowledgedPositions::default();
        assert!(acknowledged.record(name("a"), 1));
        assert!(!acknowledged.record(name("b"), 1));
        let unsaved = acknowledged.take();
        acknowledged.record(name("a"), 2);

        acknowledged.put_back(unsaved);

        assert_eq!(
            acknowledged.take(),
            HashMap::from([(name("a"), 2), (name("b"), 1)])
        );
    }
}

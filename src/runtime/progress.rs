//! How far into its source a runtime has come.

use super::seen::Seen;
use crate::model::{Event, EventKind, Timestamp};
use crate::source::StartAt;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How far into its source a runtime has come, kept from one subscription to the next.
#[derive(Default)]
pub(super) struct Progress {
    positions: Mutex<Positions>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Positions {
    /// Of the last event taken in; before the first one, the start of the first subscription.
    last: Option<u64>,
    /// The time of the newest event taken in.
    newest: Option<Timestamp>,
    /// Of events that are not taken care of yet: waiting, or given back to the source.
    open: BTreeSet<u64>,
}

impl Progress {
    /// Where to subscribe: with the first event that is not taken care of.
    pub(super) fn from(&self, start: StartAt) -> StartAt {
        let positions = self.positions();
        let before = positions.open.first().map(|first| first.saturating_sub(1));
        before.or(positions.last).map_or(start, StartAt::After)
    }

    /// Notes a subscription and its start. The source delivers every event again that was open.
    pub(super) fn subscribed(&self, start: Option<u64>) {
        let mut positions = self.positions();
        positions.open.clear();
        positions.last = positions.last.or(start);
    }

    pub(super) fn begin(&self, position: Option<u64>, event: &Event) {
        let mut positions = self.positions();
        if event.kind != EventKind::Ping {
            positions.newest = positions.newest.max(Some(event.updated_at));
        }
        if let Some(position) = position {
            positions.last = positions.last.max(Some(position));
            positions.open.insert(position);
        }
    }

    /// Notes that an event is taken care of.
    pub(super) fn end(&self, position: Option<u64>) {
        if let Some(position) = position {
            self.positions().open.remove(&position);
        }
    }

    /// Whether there is a place to go on from.
    pub(super) fn has_position(&self) -> bool {
        self.positions().last.is_some()
    }

    /// The time of the newest event taken in.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.positions().newest
    }

    /// Which versions were taken in lately.
    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn positions(&self) -> MutexGuard<'_, Positions> {
        self.positions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

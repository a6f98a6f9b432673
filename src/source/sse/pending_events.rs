//! Events of a new event stream connection that wait for the first backfill query.

use super::size::event_size;
use crate::model::Event;

/// Maximum number of events that wait for the first backfill query, and their maximum total size in bytes. At either
/// limit, the source stops reading the stream.
const MAX_EVENTS: usize = 2_048;
const MAX_BYTES: usize = 8 << 20;

/// Events of a new connection that wait for the first backfill query, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct PendingEvents {
    events: Vec<Event>,
    bytes: usize,
}

impl PendingEvents {
    /// Returns `true` if the buffer of events that wait for the first backfill query is not full.
    pub(super) fn has_capacity(&self) -> bool {
        self.events.len() < MAX_EVENTS && self.bytes < MAX_BYTES
    }

    pub(super) fn push(&mut self, event: Event) {
        self.bytes = self.bytes.saturating_add(event_size(&event));
        self.events.push(event);
    }

    pub(super) fn into_events(self) -> Vec<Event> {
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NewBreadcrumb, Timestamp};
    use serde_json::json;

    /// Returns the number of events with a context of `bytes` bytes that fit.
    fn pending_events(bytes: usize) -> usize {
        let new = NewBreadcrumb::new("x.v1").context(json!("x".repeat(bytes)));
        let event = Event::created(&new.first_version(Default::default(), Timestamp::UNIX_EPOCH));
        let mut pending_events = PendingEvents::default();
        while pending_events.has_capacity() {
            pending_events.push(event.clone());
        }
        pending_events.into_events().len()
    }

    #[test]
    fn so_many_events_wait_and_so_many_bytes() {
        assert_eq!(pending_events(10), MAX_EVENTS);
        assert_eq!(pending_events(MAX_BYTES / 64), 64);
    }
}

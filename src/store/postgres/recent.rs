//! In-memory copy of the newest events that this process committed to PostgreSQL. Subscribers in this process read them without a
//! query.

use crate::model::Event;
use crate::store::durable::events::{EventPage, PAGE};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Maximum number of one tenant's recent events in memory; [`MOST_BYTES`] limits the size of their contexts and tags.
const MOST: usize = 256;
const MOST_BYTES: usize = 1 << 20;

/// Durable events of one tenant that this process committed recently, by position. The events of other processes are missing.
#[derive(Debug, Default)]
pub(super) struct RecentEvents(Mutex<RetainedEvents>);

/// The newest events in memory of each tenant that has a store handle.
#[derive(Debug, Default)]
pub(super) struct RecentEventsByTenant(Mutex<HashMap<Box<str>, Weak<RecentEvents>>>);

impl RecentEventsByTenant {
    /// Returns the recent events in memory of a tenant, which its store handles share.
    pub(super) fn of(&self, tenant: &str) -> Arc<RecentEvents> {
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(recent) = tenants.get(tenant).and_then(Weak::upgrade) {
            return recent;
        }
        tenants.retain(|_, recent| recent.strong_count() > 0);
        let recent = Arc::default();
        tenants.insert(tenant.into(), Arc::downgrade(&recent));
        recent
    }
}

#[derive(Debug, Default)]
struct RetainedEvents {
    /// If `true`, the tenant's events have had a subscriber, and the store retains committed events in memory.
    has_subscriber: bool,
    by_position: BTreeMap<u64, (Event, usize)>,
    bytes: usize,
}

impl RecentEvents {
    /// Retains the tenant's committed events in memory from now on.
    pub(super) fn start_retaining(&self) {
        self.lock().has_subscriber = true;
    }

    /// Adds the events of a durable commit to the events in memory. `last` is the position of the last event.
    pub(super) fn add(&self, last: u64, events: Vec<Event>) {
        let mut recent = self.lock();
        if !recent.has_subscriber {
            return;
        }
        for (position, event) in (1..=last).rev().zip(events.into_iter().rev()) {
            let bytes = size(&event);
            recent.bytes += bytes;
            if let Some((_, before)) = recent.by_position.insert(position, (event, bytes)) {
                recent.bytes -= before;
            }
        }
        while recent.by_position.len() > MOST || recent.bytes > MOST_BYTES {
            match recent.by_position.pop_first() {
                Some((_, (_, bytes))) => recent.bytes -= bytes,
                None => break,
            }
        }
    }

    /// Drops all events before the position `first` from memory. Retention has deleted these events from the database.
    pub(super) fn forget_before(&self, first: u64) {
        let mut recent = self.lock();
        while let Some(oldest) = recent.by_position.first_entry()
            && *oldest.key() < first
        {
            let (_, bytes) = oldest.remove();
            recent.bytes -= bytes;
        }
    }

    /// Returns at most one page of the events in memory, from position `from` up to the first missing position. Returns `None` if
    /// the event at `from` is missing.
    pub(super) fn page(&self, from: u64) -> Option<EventPage> {
        let recent = self.lock();
        let most = usize::try_from(PAGE).unwrap_or_default();
        let next = recent.by_position.range(from..).zip(from..).take(most);
        let next = next.take_while(|((position, _), expected)| *position == expected);
        let events: VecDeque<(u64, Event)> = next
            .map(|((position, (event, _)), _)| (*position, event.clone()))
            .collect();
        let (last, _) = events.back()?;
        let (newest, _) = recent.by_position.last_key_value()?;
        Some(EventPage {
            first: from,
            last: *newest.max(last),
            events,
            // An insertion into the inbox is announced like a commit of another process.
            has_inbox: false,
        })
    }

    fn lock(&self) -> MutexGuard<'_, RetainedEvents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn size(event: &Event) -> usize {
    let tags: usize = event.tags.iter().map(|tag| tag.len()).sum();
    tags + event.context.as_ref().map_or(0, |context| context.size())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, NewBreadcrumb, Timestamp};
    use serde_json::json;

    fn events(number: usize) -> Vec<Event> {
        let new = NewBreadcrumb::new("note.v1").context(json!({"text": "x".repeat(100)}));
        let note = new.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
        vec![Event::created(&note); number]
    }

    fn positions(page: Option<EventPage>) -> Vec<u64> {
        let events = page.map(|page| page.events).unwrap_or_default();
        events.into_iter().map(|(position, _)| position).collect()
    }

    #[test]
    fn a_page_ends_before_the_first_missing_event() {
        let recent = RecentEvents::default();
        recent.start_retaining();
        // A later commit can be recorded first.
        recent.add(9, events(2));
        recent.add(6, events(3));

        assert_eq!(positions(recent.page(4)), [4, 5, 6]);
        assert_eq!(positions(recent.page(5)), [5, 6]);
        assert_eq!(positions(recent.page(8)), [8, 9]);
        assert!(recent.page(7).is_none());
        assert!(recent.page(10).is_none());
        assert!(recent.page(u64::MAX).is_none());
        assert_eq!(recent.page(4).unwrap().last, 9);
    }

    #[test]
    fn handles_of_a_tenant_share_their_events() {
        let tenants = RecentEventsByTenant::default();
        let (one, other) = (tenants.of("one"), tenants.of("other"));
        let again = tenants.of("one");
        one.start_retaining();
        one.add(1, events(1));

        assert!(again.page(1).is_some());
        assert!(other.page(1).is_none());
        drop((one, again));
        assert!(tenants.of("one").page(1).is_none());
    }

    #[test]
    fn events_that_retention_removed_are_dropped() {
        let recent = RecentEvents::default();
        recent.start_retaining();
        recent.add(9, events(9));

        recent.forget_before(4);

        assert!(recent.page(3).is_none());
        assert_eq!(positions(recent.page(4)), [4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn a_page_has_a_limited_number_of_events() {
        let recent = RecentEvents::default();
        recent.start_retaining();
        recent.add(100, events(100));

        assert_eq!(positions(recent.page(1)), (1..=64).collect::<Vec<_>>());
    }

    #[test]
    fn the_oldest_events_are_dropped_and_none_are_retained_before_the_first_reader() {
        let recent = RecentEvents::default();
        recent.add(1, events(1));
        assert!(recent.page(1).is_none());
        recent.start_retaining();

        recent.add(300, events(300));

        assert!(recent.page(44).is_none());
        assert!(recent.page(45).is_some());
        let large = json!({"text": "x".repeat(MOST_BYTES)});
        let new = NewBreadcrumb::new("note.v1").context(large);
        let note = new.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
        let mut event = Event::created(&note);
        event.context = Some(note.context);
        recent.add(301, vec![event]);
        assert!(recent.page(300).is_none());
        assert!(recent.page(301).is_none());
        assert_eq!(recent.lock().bytes, 0);
    }
}

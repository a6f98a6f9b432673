//! Position of a runtime in its event source.

use super::dedup::Dedup;
use super::position::Range;
use crate::model::{Breadcrumb, BreadcrumbId, Event, EventKind, Timestamp};
use crate::source::{Delivery, StartAt};
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
#[cfg(feature = "testing")]
use tokio::sync::futures::Notified;

/// Maximum number of stored breadcrumb versions whose runs are not in the ledger yet. Above it, only a [summary](Positions::overflow) of
/// the further versions is stored.
const MAX_OPEN: usize = 65_536;

/// Maximum number of time intervals into which the breadcrumb versions without runs in the ledger are grouped.
const MAX_RANGES: usize = 16;

/// A version of a breadcrumb, with its commit time.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct VersionKey(Timestamp, BreadcrumbId, u64);

impl VersionKey {
    pub(super) fn of(breadcrumb: &Breadcrumb) -> Self {
        Self(breadcrumb.updated_at, breadcrumb.id, breadcrumb.version)
    }

    fn of_event(event: &Event) -> Option<Self> {
        let key = Self(event.updated_at, event.breadcrumb_id, event.version);
        (event.kind != EventKind::Ping).then_some(key)
    }
}

/// The positions in an event source up to which the runtime has received and handled events. They stay in memory between two
/// subscriptions.
#[derive(Default)]
pub(super) struct Progress {
    positions: Mutex<Positions>,
    dedup: Mutex<Dedup>,
    /// Signal for waiting tasks, sent when an event delivery has been handled.
    ended: Notify,
}

#[derive(Default)]
struct Positions {
    /// Position of the last event that was received from the source. Before the first event, the start of the first subscription.
    last: Option<u64>,
    /// Commit time of the newest received event. Events that the source delivered before older events do not count.
    newest: Option<Timestamp>,
    /// Positions in the source of events that are not handled yet: waiting, or nacked to the source.
    open: BTreeSet<u64>,
    /// Versions of breadcrumbs whose runs are not in the ledger yet.
    versions: BTreeMap<VersionKey, OpenVersion>,
    /// Summary of the breadcrumb versions that are not stored one by one because of [`MAX_OPEN`]: the oldest commit time, and the number
    /// of unhandled deliveries.
    overflow: Option<(Timestamp, usize)>,
}

/// A version of a breadcrumb whose runs are not in the ledger yet.
#[derive(Default)]
struct OpenVersion {
    /// Number of event deliveries of the breadcrumb version that are being handled.
    in_flight: usize,
    /// If `true`, the event source delivers the event again after a delay, and only this subscription receives it.
    is_nacked: bool,
}

impl Positions {
    fn open(&mut self, event: &Event) {
        let Some(key) = VersionKey::of_event(event) else {
            return;
        };
        let has_capacity = self.versions.len() < MAX_OPEN;
        match self.versions.entry(key) {
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.in_flight += 1;
                known.is_nacked = false;
            }
            Entry::Vacant(vacant) if has_capacity => {
                vacant.insert(OpenVersion::default()).in_flight = 1;
            }
            Entry::Vacant(_) => {
                let (time, count) = self.overflow.unwrap_or((key.0, 0));
                self.overflow = Some((time.min(key.0), count + 1));
            }
        }
    }

    /// Records that the handling of an event delivery has ended. If `is_nacked` is `true`, the breadcrumb version stays open until its
    /// event is delivered again.
    fn close(&mut self, event: &Event, is_nacked: bool) {
        let Some(key) = VersionKey::of_event(event) else {
            return;
        };
        if let Some(open) = self.versions.get_mut(&key) {
            open.in_flight = open.in_flight.saturating_sub(1);
            open.is_nacked |= is_nacked;
            if open.in_flight == 0 && !open.is_nacked {
                self.versions.remove(&key);
            }
        } else if let Some((time, count)) = self.overflow {
            self.overflow = (count > 1).then(|| (time, count - 1));
        }
    }

    /// Returns intervals of time that contain all breadcrumb versions whose runs are not in the ledger yet.
    fn ranges(&self) -> Vec<Range> {
        let times: Vec<Timestamp> = self.versions.keys().map(|key| key.0).collect();
        let chunks = times.chunks(times.len().div_ceil(MAX_RANGES).max(1));
        let range = |chunk: &[Timestamp]| Some((chunk.first()?.just_before(), *chunk.last()?));
        let mut ranges: Vec<Range> = chunks.filter_map(range).collect();
        let end = Timestamp::from_micros(i64::MAX);
        ranges.extend(self.overflow.map(|(time, _)| (time.just_before(), end)));
        ranges
    }
}

impl Progress {
    /// Returns the start of the next subscription to the event source: the first unhandled event, or the event after the last received
    /// event. Returns `start` if no position is known.
    pub(super) fn subscription_start(&self, start: StartAt) -> StartAt {
        let positions = self.positions();
        let before = positions.open.first().map(|first| first.saturating_sub(1));
        before.or(positions.last).map_or(start, StartAt::After)
    }

    /// Records a subscription to the event source and its start. The source delivers every event again that was not handled.
    pub(super) fn note_subscribed(&self, start: Option<u64>) {
        let mut positions = self.positions();
        positions.open.clear();
        positions.last = positions.last.or(start);
    }

    /// Records that the event source delivered an event.
    pub(super) fn note_delivery(&self, delivery: &Delivery) {
        let (position, event) = (delivery.position, &delivery.event);
        let mut positions = self.positions();
        positions.open(event);
        if event.kind != EventKind::Ping && !delivery.is_ahead() {
            positions.newest = positions.newest.max(Some(event.updated_at));
        }
        if let Some(position) = position {
            positions.last = positions.last.max(Some(position));
            positions.open.insert(position);
        }
    }

    /// Counts an event as not handled yet, because a sweep of the store found its breadcrumb.
    pub(super) fn note_swept(&self, event: &Event) {
        self.positions().open(event);
    }

    /// Records that an event has been handled.
    pub(super) fn note_handled(&self, position: Option<u64>, event: &Event) {
        let mut positions = self.positions();
        if let Some(position) = position {
            positions.open.remove(&position);
        }
        positions.close(event, false);
        drop(positions);
        self.ended.notify_waiters();
    }

    /// Records that the event source accepted the nack of an event, and will redeliver the event. If `is_shared` is `true`, the source
    /// remembers the event, also after a restart, and another worker can receive it. Otherwise the version counts as unread until the event
    /// is delivered.
    pub(super) fn note_nacked(&self, event: &Event, is_shared: bool) {
        self.positions().close(event, !is_shared);
    }

    /// Returns intervals of time that contain all breadcrumb versions whose runs are not in the ledger yet.
    pub(super) fn open_ranges(&self) -> Vec<Range> {
        self.positions().ranges()
    }

    /// Forgets all breadcrumb versions whose runs are not in the ledger, because the tasks that should have enqueued the runs
    /// have ended. Returns intervals that contain them, to be read again.
    pub(super) fn abandon(&self) -> Vec<Range> {
        let mut positions = self.positions();
        let ranges = positions.ranges();
        if positions.overflow.take().is_some() {
            self.dedup().clear();
        }
        let versions = std::mem::take(&mut positions.versions);
        drop(positions);
        let mut dedup = self.dedup();
        for VersionKey(_, id, _) in versions.into_keys() {
            dedup.forget(id);
        }
        ranges
    }

    /// Waits until the events of these breadcrumb versions have been handled.
    pub(super) async fn wait_handled(&self, keys: &[VersionKey]) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            if !self.is_open(keys) {
                return;
            }
            ended.await;
        }
    }

    fn is_open(&self, keys: &[VersionKey]) -> bool {
        let positions = self.positions();
        let open = |key| positions.versions.get(key);
        keys.iter().filter_map(open).any(|open| open.in_flight > 0)
    }

    /// Returns `true` if every event up to a position of the source was received, and every received event has been handled.
    #[cfg(feature = "testing")]
    pub(super) fn has_handled(&self, position: Option<u64>) -> bool {
        let positions = self.positions();
        let is_open = !positions.open.is_empty()
            || positions.versions.values().any(|open| open.in_flight > 0)
            || positions.overflow.is_some();
        positions.last >= position && !is_open
    }

    /// Returns a future that ends when the runtime next finishes the handling of an event.
    #[cfg(feature = "testing")]
    pub(super) fn next_handled(&self) -> Notified<'_> {
        self.ended.notified()
    }

    /// Returns `true` if the runtime knows a position in the event source from which its next subscription can continue.
    pub(super) fn has_position(&self) -> bool {
        self.positions().last.is_some()
    }

    /// Returns the commit time of the newest received event. Events that the source delivered before older events do not count.
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.positions().newest
    }

    /// Returns the breadcrumb versions that were received recently, to recognise duplicates.
    pub(super) fn dedup(&self) -> MutexGuard<'_, Dedup> {
        self.dedup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn positions(&self) -> MutexGuard<'_, Positions> {
        self.positions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NewBreadcrumb;

    /// The event of a breadcrumb at a time.
    fn delivery(micros: i64) -> Delivery {
        let new = NewBreadcrumb::new("order.v1");
        let time = Timestamp::from_micros(micros);
        Delivery::new(Event::created(&new.first_version(BreadcrumbId::NIL, time)))
    }

    #[test]
    fn an_event_delivered_ahead_of_order_does_not_advance_the_progress() {
        let progress = Progress::default();

        progress.note_delivery(&delivery(9).ahead());
        assert_eq!(progress.newest(), None);
        progress.note_delivery(&delivery(5));

        assert_eq!(progress.newest(), Some(Timestamp::from_micros(5)));
    }

    #[test]
    fn an_event_that_only_this_subscription_receives_again_stays_open_until_then() {
        let time = Timestamp::from_micros;
        for is_shared in [false, true] {
            let progress = Progress::default();
            let delivery = delivery(5);
            progress.note_delivery(&delivery);

            progress.note_nacked(&delivery.event, is_shared);
            let open = progress.open_ranges();
            progress.note_delivery(&delivery);
            progress.note_handled(None, &delivery.event);

            match is_shared {
                true => assert_eq!(open, []),
                false => assert_eq!(open, [(time(4), time(5))]),
            }
            assert_eq!(progress.open_ranges(), []);
        }
    }
}

//! Event source for one tenant of a SQLite or PostgreSQL store. The source reads the tenant's events page by page.

use super::cursor::Cursor;
use super::inbox::{AT_ONCE, InboxImport};
use crate::bugs::planted;
use crate::clock::later;
use crate::error::{Chain, Retry};
use crate::model::{Event, EventKind, Timestamp};
use crate::source::{Deliveries, Delivery, Receipt, SourceError, StartAt};
use crate::store::StoreError;
use crate::store::nacked::Nacked;
use async_trait::async_trait;
use futures::stream;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Maximum number of events that a subscription reads at once, as one page.
pub(in crate::store) const PAGE: i64 = 64;

/// A page of a tenant's events in commit order. Positions count from 1.
pub(in crate::store) struct EventPage {
    /// Position of the tenant's oldest retained event.
    pub(in crate::store) first: u64,
    /// Position of the tenant's newest event.
    pub(in crate::store) last: u64,
    pub(in crate::store) events: VecDeque<(u64, Event)>,
    /// If `true`, the table `ux_inbox` has rows of the tenant that the store has not rejected and may process.
    pub(in crate::store) has_inbox: bool,
}

impl EventPage {
    /// Returns an empty page, for a tenant without events.
    pub(in crate::store) const fn empty() -> Self {
        Self {
            first: 1,
            last: 0,
            events: VecDeque::new(),
            has_inbox: false,
        }
    }
}

/// Events that a SQLite or PostgreSQL store retains for one tenant.
pub(in crate::store) trait EventLog: Clone + Send + Sync + 'static {
    /// Returns a string that names the store and the tenant in log lines about events.
    fn log_name(&self) -> String;

    /// Returns a receiver that is notified when the tenant may have new events.
    fn announced(&self) -> watch::Receiver<u64>;

    /// Returns the maximum time after which a subscription reads events again without an announcement of new events. Other processes may
    /// be unable to announce their events.
    fn poll(&self) -> Duration;

    /// Returns one page: up to [`PAGE`] events from the position `from` on. The events and the range of retained events come from one
    /// snapshot.
    fn page(&self, from: u64) -> impl Future<Output = Result<EventPage, StoreError>> + Send;

    /// Creates breadcrumbs from at most `most` rows of the table `ux_inbox`, oldest row first.
    fn import_inbox(
        &self,
        most: usize,
    ) -> impl Future<Output = Result<InboxImport, StoreError>> + Send;

    /// Returns the time of the tenant's event at a position, or `None` if that event was deleted. The event at the position of each
    /// consumer is retained.
    fn time_of(
        &self,
        position: u64,
    ) -> impl Future<Output = Result<Option<Timestamp>, StoreError>> + Send;

    /// Returns the event consumer's cursor, which starts at the consumer's stored position. The cursor of a new consumer starts at `begin`.
    /// Returns `None` for a log without a consumer.
    fn cursor(&self, begin: u64)
    -> impl Future<Output = Result<Option<Cursor>, StoreError>> + Send;
}

/// Returns the number that represents an event kind in the table `ux_events`.
pub(in crate::store) const fn kind(kind: EventKind) -> i16 {
    match kind {
        EventKind::Created => 0,
        EventKind::Updated => 1,
        EventKind::Deleted | EventKind::Ping => 2,
    }
}

/// Returns the event kind that a number in the table `ux_events` represents, or `None` for an unknown number.
pub(in crate::store) const fn kind_of(kind: i64) -> Option<EventKind> {
    match kind {
        0 => Some(EventKind::Created),
        1 => Some(EventKind::Updated),
        2 => Some(EventKind::Deleted),
        _ => None,
    }
}

/// Returns the name of a store's event source for log lines, with the name of the event consumer if there is one.
pub(in crate::store) fn description(store: &str, consumer: Option<&str>) -> String {
    match consumer {
        Some(consumer) => format!("{store}, consumer {consumer:?}"),
        None => store.to_owned(),
    }
}

/// Subscribes to a tenant's events in a SQLite or PostgreSQL store.
pub(in crate::store) async fn subscribe<L: EventLog>(
    log: L,
    from: StartAt,
) -> Result<Deliveries, SourceError> {
    let changed = log.announced();
    let page = log.page(u64::MAX).await.map_err(unavailable)?;
    let end = page.last + 1;
    let next = match from {
        StartAt::Now => end,
        StartAt::Beginning => page.first,
        // A later position than the newest event comes from another store, or from a time before a restore. No event from now on may be
        // missed.
        StartAt::After(position) => position.saturating_add(1).min(end),
        StartAt::Since(time) => first_after(&log, page.first..end, time).await?,
    };
    let cursor = log.cursor(next - 1).await.map_err(unavailable)?;
    let next = match &cursor {
        None => next,
        Some(cursor) => cursor.position().saturating_add(1).min(end),
    };
    let mut before = log.time_of(next - 1).await.map_err(unavailable)?;
    if before.is_none() && (cursor.is_some() || matches!(from, StartAt::Since(_))) {
        // The previous event was deleted. A consumer can acknowledge an event after the store has deleted it.
        let oldest = log.time_of(next).await.map_err(unavailable)?;
        before = oldest.map(Timestamp::just_before);
    }
    let delivered_to = match before {
        None if next == 1 => Some(Timestamp::UNIX_EPOCH),
        // Events of the consumer were deleted. The subscription reports that it missed everything from the beginning.
        None if cursor.is_some() && next < end => Some(Timestamp::UNIX_EPOCH),
        time => match (&cursor, from) {
            (None, StartAt::Now | StartAt::Beginning | StartAt::Since(_)) => time,
            (Some(_), _) | (None, StartAt::After(_)) => time.map(Timestamp::just_before),
        },
    };
    let subscriber = Subscriber {
        log,
        changed,
        is_at_end: false,
        poll_at: Instant::now(),
        has_inbox: page.has_inbox,
        import_after: Instant::now(),
        next,
        delivered_to,
        undelivered: VecDeque::new(),
        cursor: cursor.map(Arc::new),
        nacked: Arc::default(),
    };
    let stream = stream::unfold(subscriber, |mut subscriber| async move {
        let delivered = subscriber.next().await?;
        Some((delivered, subscriber))
    });
    Ok(Deliveries::new(stream)
        .starting_after(next - 1)
        .delivering_after(delivered_to))
}

/// Returns the position of the tenant's oldest event after `time`. Searches the range `positions`, and returns the end of this range if all
/// its events are older. The times of events grow with their positions.
async fn first_after<L: EventLog>(
    log: &L,
    positions: Range<u64>,
    time: Timestamp,
) -> Result<u64, SourceError> {
    let Range { mut start, mut end } = positions;
    while start < end {
        let middle = start + (end - start) / 2;
        match log.time_of(middle).await.map_err(unavailable)? {
            Some(event_time) if event_time > time => end = middle,
            // An event that was deleted meanwhile is older than all others.
            Some(_) | None => start = middle + 1,
        }
    }
    Ok(start)
}

struct Subscriber<L> {
    log: L,
    changed: watch::Receiver<u64>,
    /// If `true`, the last page that the subscription read ended with the newest event, and the store has announced no new events since.
    is_at_end: bool,
    /// Time at which the subscription reads events again, even without an announcement of new events.
    poll_at: Instant,
    /// If `true`, the table `ux_inbox` had rows of the tenant when the subscription last read events.
    has_inbox: bool,
    /// Time until which the subscription makes no further attempt to create breadcrumbs from the table `ux_inbox`. Set after a failed
    /// attempt, and while another subscriber processes the rows of the table.
    import_after: Instant,
    next: u64,
    /// Time in a `Lagged` error: all events up to this time were delivered. It is just before the newest delivered event, because the next
    /// event can belong to the same commit. Without a delivered event, it comes from the start of the subscription.
    delivered_to: Option<Timestamp>,
    /// Events that the subscription has read and not delivered yet.
    undelivered: VecDeque<(u64, Event)>,
    cursor: Option<Arc<Cursor>>,
    nacked: Arc<Nacked<Event>>,
}

impl<L: EventLog> Subscriber<L> {
    async fn next(&mut self) -> Option<Result<Delivery, SourceError>> {
        loop {
            if let Some((position, event)) = self.nacked.take_due() {
                return Some(Ok(self.delivery(position, event)));
            }
            if let Some((position, event)) = self.undelivered.pop_front() {
                if let Some(cursor) = &self.cursor {
                    cursor.deliver(position);
                }
                // The next event may belong to the same commit.
                let before = event.updated_at.just_before();
                self.delivered_to = self.delivered_to.max(Some(before));
                return Some(Ok(self.delivery(position, event)));
            }
            let is_new = self.changed.has_changed().unwrap_or(true);
            if !self.is_at_end || is_new || Instant::now() >= self.poll_at {
                match self.read_next_page().await {
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(error) => return Some(Err(error)),
                }
            }
            tokio::select! {
                changed = self.changed.changed() => {
                    changed.ok()?;
                    self.is_at_end = false;
                }
                () = self.nacked.due_or_added() => {}
                () = sleep_until(self.poll_at) => {}
            }
        }
    }

    /// Reads the subscription's next page of events. Returns `true` if it contains events.
    async fn read_next_page(&mut self) -> Result<bool, SourceError> {
        self.changed.mark_unchanged();
        (self.is_at_end, self.poll_at) = (false, later(Instant::now(), self.log.poll()));
        if std::mem::take(&mut self.has_inbox) {
            self.import_inbox().await;
        }
        let page = self.log.page(self.next).await.map_err(unavailable)?;
        if self.next < page.first {
            let missed = page.first - self.next;
            self.next = page.first;
            if let Some(cursor) = &self.cursor {
                cursor.skip_to(self.next - 1);
            }
            return Err(SourceError::Lagged {
                missed,
                after: self.delivered_to,
            });
        }
        self.undelivered = page.events;
        if let Some((last, _)) = self.undelivered.back() {
            self.next = last + 1;
        }
        self.is_at_end = self.next > page.last;
        if page.has_inbox {
            // The events that were read are delivered first.
            (self.has_inbox, self.poll_at) = (true, self.poll_at.min(self.import_after));
        } else {
            self.import_after = Instant::now();
        }
        if planted("hasty-reader") {
            let newest = self.log.page(u64::MAX).await.map_err(unavailable)?;
            self.next = self.next.max(newest.last + 1);
        }
        Ok(!self.undelivered.is_empty())
    }

    /// Creates breadcrumbs from rows of the table `ux_inbox`. Their events are read like all others.
    async fn import_inbox(&mut self) {
        /// Pause after a failed attempt to create breadcrumbs from the table `ux_inbox`. It is also the maximum pause while another
        /// subscriber processes the rows of the table.
        const INBOX_PAUSE: Duration = Duration::from_secs(5);
        let now = Instant::now();
        if now < self.import_after {
            return;
        }
        let import = match self.log.import_inbox(AT_ONCE).await {
            import @ (Ok(_) | Err(StoreError::Unavailable { .. })) => import,
            // A single row may succeed, because there may be enough room for it.
            Err(_) => self.log.import_inbox(1).await,
        };
        match import {
            // Another process imports the rows, or has locked them.
            Ok(InboxImport { rows: 0, .. }) => {
                self.import_after = later(now, self.log.poll().min(INBOX_PAUSE));
            }
            Ok(import) => import.log(&self.log.log_name()),
            Err(error) => {
                let log = self.log.log_name();
                tracing::warn!(source = log, code = error.code(), error = %Chain(&error), "cannot create breadcrumbs from the rows of the table ux_inbox, will retry");
                self.import_after = later(now, INBOX_PAUSE);
            }
        }
    }

    fn delivery(&self, position: u64, event: Event) -> Delivery {
        let receipt = LogReceipt {
            position,
            event: event.clone(),
            cursor: self.cursor.clone(),
            nacked: Arc::clone(&self.nacked),
        };
        Delivery::new(event)
            .at(position)
            .with_receipt(Arc::new(receipt))
    }
}

struct LogReceipt {
    position: u64,
    event: Event,
    cursor: Option<Arc<Cursor>>,
    nacked: Arc<Nacked<Event>>,
}

#[async_trait]
impl Receipt for LogReceipt {
    async fn ack(&self) -> Result<(), SourceError> {
        if let Some(cursor) = &self.cursor {
            cursor.acknowledge(self.position);
        }
        Ok(())
    }

    async fn nack(&self, delay: Duration) -> Result<(), SourceError> {
        self.nacked
            .requeue(self.position, self.event.clone(), delay)
    }

    fn needs_ack(&self) -> bool {
        self.cursor.is_some()
    }
}

pub(in crate::store) fn unavailable(error: StoreError) -> SourceError {
    match error.retry() {
        Retry::After(retry_after) => SourceError::Unavailable {
            retry_after,
            source: error.into(),
        },
        Retry::Never => SourceError::Refused(error.into()),
    }
}

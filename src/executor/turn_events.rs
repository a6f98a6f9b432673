//! The events of a chat turn: a run writes these events to the store while it executes, for the client of the session.

mod segment;

pub(crate) use segment::{Record, Segment, is_turn_of, turn_segments_tag, turn_tag};

use crate::clock::{wall_micros, within};
use crate::error::{Chain, Retry};
use crate::model::{Breadcrumb, BreadcrumbId, Timestamp};
use crate::store::{BreadcrumbStore, BreadcrumbStoreExt as _, Lease};
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// Maximum size of the chat turn events that wait to be written, in bytes. Further events are omitted.
const MAX_BYTES: usize = 256 << 10;

/// Pause between two writes of a run's chat turn events.
const PAUSE: Duration = Duration::from_millis(200);

/// Maximum pause after failed writes of chat turn events.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Timeout of one write of chat turn events.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of the writes of chat turn events at the end of a run. The run's response waits for these writes.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Duration for which the store retains the events of a chat turn.
const RETENTION: Duration = Duration::from_secs(60 * 60);

/// Buffer of the chat turn events that a run produces under one lease, if the run answers a message of a chat session.
///
/// The run adds events without waiting, and [`drive`](Self::drive) writes them in segments.
#[derive(Debug)]
pub(crate) struct TurnEvents {
    trigger: BreadcrumbId,
    token: u64,
    attempt: u32,
    buffer: Mutex<Buffer>,
    added: Notify,
}

/// Outcome of a write of chat turn events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum WriteResult {
    Written,
    /// The write of events failed or its outcome is unknown, so the write is repeated.
    Failed,
    /// The store refused the write of events, and would refuse a repeated write.
    Refused,
}

#[derive(Debug, Default)]
struct Buffer {
    records: Vec<Record>,
    bytes: usize,
    /// The segment (a breadcrumb with chat turn events) that is being written to the store. A failed write is repeated unchanged,
    /// because it may have succeeded.
    unsent: Option<Segment>,
    /// Number of the last segment (breadcrumb with chat turn events) that was created under this lease.
    number: u32,
    is_closed: bool,
}

impl TurnEvents {
    /// Creates the event buffer of a lease, or returns `None` if the trigger is not a chat message to the executor of the lease.
    pub(super) fn of(trigger: &Breadcrumb, lease: &Lease, attempt: u32) -> Option<Self> {
        is_turn_of(&lease.run.executor, &trigger.tags).then(|| Self {
            trigger: trigger.id,
            token: lease.token,
            attempt,
            buffer: Mutex::default(),
            added: Notify::new(),
        })
    }

    /// Adds an event of the chat turn. The event is omitted if too many events wait to be written.
    pub(crate) fn add(&self, record: Record) {
        let mut buffer = self.buffer();
        if buffer.is_closed {
            return;
        }
        let size = record.size();
        if buffer.bytes + size > MAX_BYTES {
            if buffer.records.last() != Some(&Record::Missed) {
                buffer.records.push(Record::Missed);
            }
            return;
        }
        buffer.bytes += size;
        match (record, buffer.records.last_mut()) {
            (Record::Text(more), Some(Record::Text(text))) => text.push_str(&more),
            (record, _) => buffer.records.push(record),
        }
        drop(buffer);
        self.added.notify_one();
    }

    /// Writes the chat turn events in segments, with a pause after each, until this future is dropped.
    pub(super) async fn drive(&self, store: &dyn BreadcrumbStore) {
        let mut pause = PAUSE;
        loop {
            let Some(segment) = self.unsent() else {
                self.added.notified().await;
                continue;
            };
            pause = match self.send(store, &segment).await {
                WriteResult::Written => {
                    self.buffer().unsent = None;
                    PAUSE
                }
                WriteResult::Refused => {
                    self.drop_refused();
                    PAUSE
                }
                WriteResult::Failed => (pause * 2).min(MAX_PAUSE),
            };
            sleep(pause).await;
        }
    }

    /// Writes the remaining chat turn events before the run ends. Waits at most 2 s, and at most a tenth of the lease, because no
    /// heartbeat extends the lease meanwhile.
    pub(super) async fn finish(&self, store: &dyn BreadcrumbStore, lease: Duration) {
        self.buffer().is_closed = true;
        let patience = FINAL_WRITE_TIMEOUT.min(lease / 10);
        if within(patience, self.write_last(store)).await.is_none() {
            let trigger = self.trigger;
            tracing::warn!(%trigger, timeout = ?patience,
                "write of the last events of a chat turn timed out; clients may miss them, and the answer is unaffected");
        }
    }

    async fn write_last(&self, store: &dyn BreadcrumbStore) {
        while let Some(segment) = self.unsent() {
            if self.send(store, &segment).await != WriteResult::Written {
                return;
            }
            self.buffer().unsent = None;
        }
    }

    /// Records in the store that the chat turn events of a suspended run are final: no later lease of the run repeats these
    /// events.
    pub(super) async fn settle(&self, store: &dyn BreadcrumbStore) {
        let last = {
            let mut buffer = self.buffer();
            if buffer.number == 0 || buffer.unsent.is_some() {
                return;
            }
            Segment {
                is_settled: true,
                ..buffer.next(self)
            }
        };
        // If this write fails, the client discards text that is still valid, until the end of the turn repeats the text. The
        // failure is logged.
        self.send(store, &last).await;
    }

    /// Returns the segment of chat turn events to write next, or `None` if no events wait.
    fn unsent(&self) -> Option<Segment> {
        let mut buffer = self.buffer();
        if buffer.unsent.is_none() && !buffer.records.is_empty() {
            buffer.unsent = Some(buffer.next(self));
        }
        buffer.unsent.clone()
    }

    /// Replaces a segment of chat turn events that the store refuses, for example because it is too large, by one `Missed` event.
    fn drop_refused(&self) {
        let mut buffer = self.buffer();
        let refused = buffer.unsent.take();
        match refused {
            Some(refused) if refused.events != [Record::Missed] => {
                buffer.unsent = Some(Segment {
                    events: vec![Record::Missed],
                    ..refused
                });
            }
            // The store refuses even the smallest segment, so no more events are written.
            Some(_) | None => {
                buffer.is_closed = true;
                buffer.records.clear();
            }
        }
    }

    async fn send(&self, store: &dyn BreadcrumbStore, segment: &Segment) -> WriteResult {
        let until = Timestamp::from_micros(wall_micros()) + RETENTION;
        let written = store.create(segment.breadcrumb(until));
        let (trigger, patience) = (self.trigger, WRITE_TIMEOUT);
        match within(patience, written).await {
            Some(Ok(_)) => WriteResult::Written,
            Some(Err(error)) => {
                let code = error.code();
                tracing::warn!(%trigger, code, error = %Chain(&error),
                    "write of chat turn events failed; clients see them late or miss them, and the answer is unaffected");
                match error.retry() {
                    Retry::Never => WriteResult::Refused,
                    Retry::After(_) => WriteResult::Failed,
                }
            }
            None => {
                tracing::warn!(%trigger, timeout = ?patience,
                    "write of chat turn events timed out; clients see them late or miss them, and the answer is unaffected");
                WriteResult::Failed
            }
        }
    }

    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffer {
    /// Takes the waiting chat turn events as the next segment.
    fn next(&mut self, of: &TurnEvents) -> Segment {
        self.number = self.number.saturating_add(1);
        self.bytes = 0;
        Segment {
            trigger_id: of.trigger,
            token: of.token,
            number: self.number,
            attempt: of.attempt,
            events: mem::take(&mut self.records),
            is_settled: false,
        }
    }
}

#[cfg(test)]
mod tests;

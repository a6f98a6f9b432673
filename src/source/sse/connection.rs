//! State of one connection to an event stream.

use super::catch_up::BackfillState;
use super::connect::StreamError;
use super::pending_events::PendingEvents;
use crate::source::frames::Frames;
use futures::stream::BoxStream;
use tokio::time::Instant;

/// Maximum length in bytes of a line, and of an event, in an event stream. A frame contains a whole breadcrumb.
const MAX_FRAME: usize = 4 << 20;

/// State of an open connection to an event stream.
pub(super) struct Connection {
    pub(super) chunks: BoxStream<'static, Result<Vec<u8>, StreamError>>,
    pub(super) frames: Frames,
    /// Last time at which the event stream sent a complete frame, or at which the source did not read the stream
    /// because its buffer was full.
    pub(super) last_frame_at: Instant,
    /// If `true`, no backfill query of this event stream connection has succeeded yet.
    pub(super) is_behind: bool,
    /// Events of the stream that wait for the connection's first backfill query. `None` when new events no longer have
    /// to wait.
    pub(super) pending_events: Option<PendingEvents>,
    pub(super) backfill: BackfillState,
}

impl Connection {
    /// Creates the state of a new event stream connection, with its first backfill query.
    pub(super) fn new(
        chunks: BoxStream<'static, Result<Vec<u8>, StreamError>>,
        backfill: BackfillState,
    ) -> Self {
        let is_behind = !matches!(backfill, BackfillState::Disabled);
        Self {
            chunks,
            frames: Frames::new(MAX_FRAME, MAX_FRAME),
            last_frame_at: Instant::now(),
            is_behind,
            pending_events: is_behind.then(PendingEvents::default),
            backfill,
        }
    }

    /// Returns `true` unless the buffer of events that wait for the first backfill query is full.
    pub(super) fn has_capacity(&self) -> bool {
        self.pending_events
            .as_ref()
            .is_none_or(PendingEvents::has_capacity)
    }
}

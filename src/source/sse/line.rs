//! State of one connection to an event stream.

use super::catch_up::Look;
use super::connect::Broke;
use super::waiting::Waiting;
use crate::source::frames::Frames;
use futures::stream::BoxStream;
use tokio::time::Instant;

/// Maximum length of a line and of an event in an event stream in bytes. A frame contains a whole breadcrumb.
const MAX_FRAME: usize = 4 << 20;

/// State of an open connection to an event stream.
pub(super) struct Line {
    pub(super) chunks: BoxStream<'static, Result<Vec<u8>, Broke>>,
    pub(super) frames: Frames,
    /// Time of the last complete frame of the event stream, or the time at which reading resumed after a pause.
    pub(super) alive: Instant,
    /// If `true`, no backfill query of this event stream connection has succeeded yet.
    pub(super) is_behind: bool,
    /// Events of the stream that wait for the connection's first backfill query. `None` when new events no longer have
    /// to wait.
    pub(super) waiting: Option<Waiting>,
    pub(super) look: Look,
}

impl Line {
    /// Creates the state of a new event stream connection, with its first backfill query.
    pub(super) fn new(chunks: BoxStream<'static, Result<Vec<u8>, Broke>>, look: Look) -> Self {
        let is_behind = !matches!(look, Look::Never);
        Self {
            chunks,
            frames: Frames::new(MAX_FRAME, MAX_FRAME),
            alive: Instant::now(),
            is_behind,
            waiting: is_behind.then(Waiting::default),
            look,
        }
    }

    /// Returns `true` if a further event of the stream can wait for the first backfill query.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.as_ref().is_none_or(Waiting::has_room)
    }
}

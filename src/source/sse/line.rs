//! What is known of one connection.

use super::catch_up::Look;
use super::connect::Broke;
use super::waiting::Waiting;
use crate::source::frames::Frames;
use futures::stream::BoxStream;
use tokio::time::Instant;

/// The longest line, and the longest event, in bytes: a frame has a whole breadcrumb in it.
const MAX_FRAME: usize = 4 << 20;

/// One connection.
pub(super) struct Line {
    pub(super) chunks: BoxStream<'static, Result<Vec<u8>, Broke>>,
    pub(super) frames: Frames,
    /// When the last frame was complete, or when it was listened to again after a time in which nobody did.
    pub(super) alive: Instant,
    /// Whether what happened before it is not known yet.
    pub(super) is_behind: bool,
    /// What has come by it until the first look has ended; none afterwards, when what comes is told at once.
    pub(super) waiting: Option<Waiting>,
    pub(super) look: Look,
}

impl Line {
    /// A connection that was just opened, with the first look for what happened before it.
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

    /// Whether what comes next can be kept.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.as_ref().is_none_or(Waiting::has_room)
    }
}

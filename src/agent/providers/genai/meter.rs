//! Counter of the bytes of a model answer that the crate `genai` reads.

use crate::agent::providers::web::MAX_EVENT_BYTES;
use ::genai::chat::{ChatFrameSink, FrameCtx, RawFrameRef};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Counter of the received bytes of one model answer. `genai` passes each event to the counter before it parses the event.
#[derive(Debug)]
pub(super) struct Meter {
    read: AtomicUsize,
    limit: usize,
    /// Size in bytes of the last event in a provider's answer that exceeded [`MAX_EVENT_BYTES`] and whose warning is not logged
    /// yet, or 0 if there is none.
    oversized: AtomicUsize,
    /// If `true`, the provider reported that it blocked the prompt. `genai` does not pass this report on.
    blocked: AtomicBool,
}

impl Meter {
    /// Number of bytes by which each event of a model answer counts towards the size limit of the answer, in addition to the text of the event.
    /// The text may be empty.
    const EVENT: usize = 8;

    pub(super) fn new(limit: usize) -> Self {
        Self {
            read: AtomicUsize::new(0),
            limit,
            oversized: AtomicUsize::new(0),
            blocked: AtomicBool::new(false),
        }
    }

    fn has_received_bytes(&self) -> bool {
        self.read.load(Ordering::Relaxed) > 0
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn is_full(&self) -> bool {
        self.read.load(Ordering::Relaxed) > self.limit
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Logs a warning if `genai` has read an event of a provider's answer that is larger than [`MAX_EVENT_BYTES`]. The sink of
    /// the events cannot log the warning, because log messages during a poll are discarded.
    pub(super) fn warn_if_oversized(&self) {
        let bytes = self.oversized.swap(0, Ordering::Relaxed);
        if bytes > 0 {
            tracing::warn!(
                bytes,
                limit = MAX_EVENT_BYTES,
                "genai read an oversized event of a provider into memory; use only providers that you trust"
            );
        }
    }

    /// Returns the operation that timed out, for an error message: `answer` before the first byte of the model's answer, and
    /// `continue` after it.
    pub(super) fn timeout_phase(&self) -> &'static str {
        match self.has_received_bytes() {
            true => "continue",
            false => "answer",
        }
    }
}

impl ChatFrameSink for Meter {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        let size = frame.data.len() + frame.event.map_or(0, str::len) + Self::EVENT;
        self.read.fetch_add(size, Ordering::Relaxed);
        if size > MAX_EVENT_BYTES {
            self.oversized.store(size, Ordering::Relaxed);
        }
        if frame.data.contains("\"blockReason\"") {
            self.blocked.store(true, Ordering::Relaxed);
        }
    }
}

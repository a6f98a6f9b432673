//! Progress reports of tool calls.

use super::outcome::OUTPUT_DEPTH;
use super::wire::tagged;
use crate::clock;
use crate::model::{NewBreadcrumb, Timestamp, dismantle, size_within};
use crate::store::{StoreError, Write};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Schema of a progress report of a tool call.
pub(super) const PROGRESS: &str = "tool.progress.v1";

/// Identity of the request of a tool call, for its progress reports.
pub(super) struct Request<'r> {
    pub(super) id: String,
    pub(super) requested_by: Option<&'r str>,
    pub(super) workspace: &'r str,
}

/// Counter of the progress reports of one tool call.
#[derive(Debug)]
pub(super) struct Progress {
    tool: String,
    said: AtomicU32,
}

impl Progress {
    const MOST: u32 = 100;
    const MOST_BYTES: usize = 16 << 10;
    const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

    pub(super) fn of(tool: &str) -> Self {
        Self {
            tool: tool.to_owned(),
            said: AtomicU32::new(0),
        }
    }

    /// Returns the progress report of a tool call, or `None` if the call has written the maximum number of reports already.
    pub(super) fn note(
        &self,
        request: &Request<'_>,
        progress: Value,
    ) -> Result<Option<Write>, StoreError> {
        let size = size_within(&progress, OUTPUT_DEPTH).unwrap_or(usize::MAX);
        if size > Self::MOST_BYTES {
            dismantle(progress);
            let most = Self::MOST_BYTES;
            return Err(StoreError::Forbidden {
                reason: format!(
                    "progress has more than {most} bytes of JSON or more than {OUTPUT_DEPTH} levels; report less"
                ),
            });
        }
        let count = |said: u32| (said < Self::MOST).then_some(said + 1);
        let Ok(before) = self
            .said
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count)
        else {
            return Ok(None);
        };
        let now = Timestamp::from_micros(clock::wall_micros());
        let note = NewBreadcrumb::new(PROGRESS)
            .title(format!("Progress: {}", self.tool))
            .tags([request.workspace, "tool:progress"])
            .ttl(now + Self::KEPT)
            .context(json!({
                "request_id": request.id, "tool": self.tool, "number": before + 1, "progress": progress,
                "timestamp": now, "requestedBy": request.requested_by,
            }));
        Ok(Some(Write::Create(tagged(note, &request.id))))
    }
}

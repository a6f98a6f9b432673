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
pub(super) struct RequestIdentity<'r> {
    pub(super) id: String,
    pub(super) requested_by: Option<&'r str>,
    pub(super) workspace: &'r str,
}

/// Counter of the progress reports of one tool call.
#[derive(Debug)]
pub(super) struct Progress {
    tool: String,
    reports: AtomicU32,
}

impl Progress {
    const MAX_REPORTS: u32 = 100;
    const MAX_BYTES: usize = 16 << 10;
    const TTL: Duration = Duration::from_secs(24 * 60 * 60);

    pub(super) fn of(tool: &str) -> Self {
        Self {
            tool: tool.to_owned(),
            reports: AtomicU32::new(0),
        }
    }

    /// Returns the progress report of a tool call, or `None` if the call has written the maximum number of reports already.
    pub(super) fn report(
        &self,
        request: &RequestIdentity<'_>,
        progress: Value,
    ) -> Result<Option<Write>, StoreError> {
        let size = size_within(&progress, OUTPUT_DEPTH).unwrap_or(usize::MAX);
        if size > Self::MAX_BYTES {
            dismantle(progress);
            let limit = Self::MAX_BYTES;
            return Err(StoreError::Forbidden {
                reason: format!(
                    "progress has more than {limit} bytes of JSON or more than {OUTPUT_DEPTH} levels; report less"
                ),
            });
        }
        let count = |reports: u32| (reports < Self::MAX_REPORTS).then_some(reports + 1);
        let Ok(before) = self
            .reports
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count)
        else {
            return Ok(None);
        };
        let now = Timestamp::from_micros(clock::wall_micros());
        let report = NewBreadcrumb::new(PROGRESS)
            .title(format!("Progress: {}", self.tool))
            .tags([request.workspace, "tool:progress"])
            .ttl(now + Self::TTL)
            .context(json!({
                "request_id": request.id, "tool": self.tool, "number": before + 1, "progress": progress,
                "timestamp": now, "requestedBy": request.requested_by,
            }));
        Ok(Some(Write::Create(tagged(report, &request.id))))
    }
}

//! Progress reports of a run to the MCP client.

use crate::client::RequestHandle;
use crate::error::excerpt;
use crate::model::{Selector, request_tag};
use crate::store::{BreadcrumbStore, Query};
use rmcp::model::{ProgressNotificationParam, ProgressToken, RequestMetaObject};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// Interval of the progress reports without content, by which a client extends its timeout.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// The progress reports of one call.
pub(super) struct Progress {
    /// The token of the client, if it wants progress reports.
    token: Option<ProgressToken>,
    sent: f64,
    /// The number of the last report of the tool that was sent.
    last: u64,
    reported: Instant,
}

impl Progress {
    pub(super) fn new(meta: &RequestMetaObject) -> Self {
        Self {
            token: meta.get_progress_token(),
            sent: 0.0,
            last: 0,
            reported: Instant::now(),
        }
    }

    /// Sends the newest progress report of the run's tool, or an empty one after some time.
    pub(super) async fn report(
        &mut self,
        store: &dyn BreadcrumbStore,
        handle: &RequestHandle,
        context: &RequestContext<RoleServer>,
    ) {
        let Some(token) = self.token.clone() else {
            return;
        };
        let newest = newest(store, handle, self.last).await;
        if newest.is_none() && self.reported.elapsed() < HEARTBEAT {
            return;
        }
        self.sent += 1.0;
        self.reported = Instant::now();
        let mut report = ProgressNotificationParam::new(token, self.sent);
        if let Some((number, text)) = newest {
            self.last = number;
            report.message = Some(text);
        }
        // A client that cannot be reached is noticed by the end of its connection.
        context.peer.notify_progress(report).await.ok();
    }
}

/// Returns the newest progress report of a request with a higher number than `after`: its number and its text.
async fn newest(
    store: &dyn BreadcrumbStore,
    handle: &RequestHandle,
    after: u64,
) -> Option<(u64, String)> {
    let id = handle.run().trigger_id.to_string();
    let reports = Selector::schema("tool.progress.v1").all_tags([request_tag(&id)]);
    let found = store.search(&Query::new(reports).limit(1)).await.ok()?;
    let report = found.first()?;
    let number = report.context.get("number").and_then(Value::as_u64)?;
    let text = match report.context.get("progress")? {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    (number > after).then(|| (number, excerpt(&text, 1_000).into_owned()))
}

//! One call of an MCP client: the request to the executor, the wait for its reply, progress and questions.

use super::operation::{self, McpOperation};
use super::people::{self, Asked};
use super::{McpService, Shared};
use crate::client::{ClientError, ReplyError, RequestHandle};
use crate::clock::later;
use crate::error::{Chain, excerpt};
use crate::hex::hash;
use crate::mcp::IDEMPOTENCY_KEY;
use crate::model::{Selector, request_tag};
use crate::store::{BreadcrumbStore, Query};
use futures::future::BoxFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ProgressNotificationParam, RequestMetaObject,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use std::time::Duration;
use tokio::select;
use tokio::time::Instant;

/// Time between two looks at the progress and the questions of a run.
const STEP: Duration = Duration::from_secs(1);

/// Interval of the progress reports without content, by which a client extends its timeout.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Maximum length of an idempotency key in bytes. A longer key is replaced by its digest.
const MAX_KEY_BYTES: usize = 255;

/// Runs one call to its end. Errors are results that the client's model can read.
pub(super) async fn run(
    service: &McpService,
    operation: &McpOperation,
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> CallToolResult {
    let shared = &service.shared;
    let key = key_of(&context);
    let arguments = Value::Object(request.arguments.unwrap_or_default());
    let sent = send(shared, operation, arguments, key.as_deref()).await;
    let handle = match sent {
        Ok(handle) => handle,
        Err(error) => return operation::failed(&format!("the request cannot be sent: {error}")),
    };
    let mut guard = CancelOnDrop {
        handle: key.is_none().then(|| handle.clone()),
    };
    let result = select! {
        result = wait(shared, &handle, &context) => result,
        () = context.ct.cancelled() => {
            return operation::failed("the client cancelled the call");
        }
    };
    guard.handle = None;
    result
}

async fn send(
    shared: &Shared,
    operation: &McpOperation,
    arguments: Value,
    key: Option<&str>,
) -> Result<RequestHandle, ClientError> {
    let breadcrumb = operation.request(arguments);
    let request = shared.client.request(operation.executor(), breadcrumb);
    match key {
        Some(key) => request.key(key).send().await,
        None => request.send().await,
    }
}

/// Returns the idempotency key of a call: the key in its metadata, or the session and the ID of a request over HTTP.
fn key_of(context: &RequestContext<RoleServer>) -> Option<String> {
    let sent = context.meta.0.get(IDEMPOTENCY_KEY);
    if let Some(key) = sent.and_then(Value::as_str).filter(|key| !key.is_empty()) {
        return Some(match key.len() <= MAX_KEY_BYTES {
            true => key.to_owned(),
            false => hash(&[key]),
        });
    }
    let parts = context.extensions.get::<axum::http::request::Parts>()?;
    let session = parts.headers.get("mcp-session-id")?.to_str().ok()?;
    Some(hash(&[session, &context.id.to_string()]))
}

/// Waits for the reply of a run. Meanwhile, reports progress, and asks the client the questions of the run.
async fn wait(
    shared: &Shared,
    handle: &RequestHandle,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let until = later(Instant::now(), shared.max_wait);
    let mut progress = Progress::new(&context.meta);
    let mut asked = Asked::default();
    let mut asking: Option<BoxFuture<'_, ()>> = None;
    loop {
        let answered = async {
            match &mut asking {
                Some(asking) => asking.await,
                None => std::future::pending().await,
            }
        };
        select! {
            () = answered => asking = None,
            waited = handle.wait(STEP) => match waited {
                Ok(reply) => return operation::result(&reply),
                Err(ReplyError::TimedOut { .. }) if Instant::now() < until => {}
                Err(error) => return operation::failed(&message(&error, handle)),
            }
        }
        progress.report(shared, handle, context).await;
        if asking.is_none() {
            asking = people::next(shared, handle, context, &mut asked).await;
        }
    }
}

fn message(error: &ReplyError, handle: &RequestHandle) -> String {
    let error = error.to_string();
    format!("{}; the run is {}", excerpt(&error, 1_000), handle.id())
}

/// The progress reports of one call.
struct Progress {
    /// The token of the client, if it wants progress reports.
    token: Option<rmcp::model::ProgressToken>,
    sent: f64,
    /// The number of the last report of the tool that was sent.
    last: u64,
    reported: Instant,
}

impl Progress {
    fn new(meta: &RequestMetaObject) -> Self {
        Self {
            token: meta.get_progress_token(),
            sent: 0.0,
            last: 0,
            reported: Instant::now(),
        }
    }

    /// Sends the newest progress report of the run's tool, or an empty one after some time.
    async fn report(
        &mut self,
        shared: &Shared,
        handle: &RequestHandle,
        context: &RequestContext<RoleServer>,
    ) {
        let Some(token) = self.token.clone() else {
            return;
        };
        let newest = newest(shared.client.store(), handle, self.last).await;
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

/// Cancels the run of a call that its client no longer waits for.
struct CancelOnDrop {
    handle: Option<RequestHandle>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = handle.cancel().await {
                    let run = handle.run();
                    tracing::warn!(error = %Chain(&error), %run, "cannot cancel the run of an MCP call whose client disconnected");
                }
            });
        }
    }
}

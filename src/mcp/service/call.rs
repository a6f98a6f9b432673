//! One call of an MCP client: the request to the executor, the wait for its reply, progress and questions.

use super::operation::{self, McpOperation};
use super::people::{self, Asked};
use super::progress::Progress;
use super::{McpService, Shared, rounds};
use crate::client::{ClientError, ReplyError, RequestHandle};
use crate::clock::later;
use crate::error::{Chain, Retry, excerpt};
use crate::hex::hash;
use crate::mcp::IDEMPOTENCY_KEY;
use futures::future::BoxFuture;
use rmcp::model::{CallToolRequestParams, CallToolResponse, ErrorData, ProtocolVersion};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::select;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

/// Interval of the checks for progress and questions of a run.
const STEP: Duration = Duration::from_secs(1);

/// Maximum length of an idempotency key in bytes. A longer key is replaced by its digest.
const MAX_KEY_BYTES: usize = 255;

/// Runs one call to its end, or until it needs input of the client. Errors of the run are results that the client's model can read.
///
/// # Errors
/// A protocol error if the client continues a call with a wrong state or with malformed input.
pub(super) async fn run(
    service: &McpService,
    operation: &McpOperation,
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let shared = &service.shared;
    let failed = |problem: &str| Ok(operation::failed(problem).into());
    let Ok(permit) = Arc::clone(&shared.calls).try_acquire_owned() else {
        return failed("the server has too many calls in flight; retry later");
    };
    let arguments = Value::Object(request.arguments.unwrap_or_default());
    if let Err(problem) = operation.check(&arguments) {
        return failed(&problem);
    }
    // Without the capability, each call has a new run, and keys have no effect.
    let has_keys = shared.client.store().capabilities().keyed_requests;
    let key = Key::of(&context).filter(|_| has_keys);
    let handle = match &request.request_state {
        Some(state) => rounds::resume(shared, operation, arguments, state).await?,
        None => match send(shared, operation, arguments, key.as_ref()).await {
            Ok(handle) => handle,
            Err(error) => return failed(&format!("the request cannot be sent: {error}")),
        },
    };
    // A refused answer does not cancel the run, because the client can send another answer.
    let answers = request.input_responses.unwrap_or_default();
    let asked = rounds::answer(shared, &handle, answers).await?;
    let is_repeatable = key.is_some_and(|key| key.is_repeatable);
    let mut guard = CancelOnDrop {
        handle: (!is_repeatable).then(|| handle.clone()),
        permit: Some(permit),
    };
    let ended = select! {
        ended = wait(shared, &handle, &context, asked) => ended,
        () = context.ct.cancelled() => return failed("the client cancelled the call"),
    };
    if ended.is_settled {
        guard.handle = None;
    }
    Ok(ended.response)
}

async fn send(
    shared: &Shared,
    operation: &McpOperation,
    arguments: Value,
    key: Option<&Key>,
) -> Result<RequestHandle, ClientError> {
    let breadcrumb = operation.request(arguments);
    let request = shared.client.request(operation.executor(), breadcrumb);
    match key {
        Some(key) => request.key(&*key.text).send().await,
        None => request.send().await,
    }
}

/// The idempotency key of a call.
struct Key {
    text: String,
    /// If `true`, the client can repeat the call on another connection, so the run continues without this client.
    is_repeatable: bool,
}

impl Key {
    /// Returns the key in the metadata of a call, or the digest of the session and the request ID over HTTP.
    fn of(context: &RequestContext<RoleServer>) -> Option<Self> {
        let sent = context.meta.0.get(IDEMPOTENCY_KEY);
        if let Some(key) = sent.and_then(Value::as_str).filter(|key| !key.is_empty()) {
            return Some(Self {
                text: match key.len() <= MAX_KEY_BYTES {
                    true => key.to_owned(),
                    false => hash(&[key]),
                },
                is_repeatable: true,
            });
        }
        let parts = context.extensions.get::<axum::http::request::Parts>()?;
        let session = parts.headers.get("mcp-session-id")?.to_str().ok()?;
        Some(Self {
            text: hash(&[session, &context.id.to_string()]),
            is_repeatable: false,
        })
    }
}

/// The end of a wait for a run.
struct Ended {
    response: CallToolResponse,
    /// If `true`, the run has ended, or it continues in a later round of the call. Otherwise the client no longer waits for the run.
    is_settled: bool,
}

impl Ended {
    fn settled(response: impl Into<CallToolResponse>) -> Self {
        Self {
            response: response.into(),
            is_settled: true,
        }
    }

    /// Returns the end of a wait without a reply.
    fn without_reply(error: &ReplyError, handle: &RequestHandle) -> Self {
        let is_settled = !matches!(
            error,
            ReplyError::TimedOut { .. } | ReplyError::Client { .. }
        );
        let error = error.to_string();
        let message = format!("{}; the run is {}", excerpt(&error, 1_000), handle.id());
        Self {
            response: operation::failed(&message).into(),
            is_settled,
        }
    }
}

/// Waits for the reply of a run. Meanwhile, reports progress, and asks the client the questions of the run.
async fn wait(
    shared: &Shared,
    handle: &RequestHandle,
    context: &RequestContext<RoleServer>,
    mut asked: Asked,
) -> Ended {
    let until = later(Instant::now(), shared.max_wait);
    let has_rounds = context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
    let mut progress = Progress::new(&context.meta);
    let mut asking: Option<BoxFuture<'_, Option<String>>> = None;
    loop {
        let answered = async {
            match &mut asking {
                Some(asking) => asking.await,
                None => std::future::pending().await,
            }
        };
        select! {
            refused = answered => {
                asking = None;
                asked.ask_again(refused);
            }
            waited = handle.wait(STEP.min(until.saturating_duration_since(Instant::now()))) => match waited {
                Ok(reply) => return Ended::settled(operation::result(&reply)),
                Err(ReplyError::TimedOut { .. }) if Instant::now() < until => {}
                // The run continues, and a later read can succeed.
                Err(ReplyError::Client(error)) if error.retry() != Retry::Never && Instant::now() < until => sleep(STEP).await,
                Err(error) => return Ended::without_reply(&error, handle),
            }
        }
        progress
            .report(shared.client.store(), handle, context)
            .await;
        if asking.is_some() {
            continue;
        }
        let mut open = people::open(shared, handle, context, &asked).await;
        if has_rounds && !open.is_empty() {
            return Ended::settled(rounds::input_required(handle, &open));
        }
        if let Some(question) = open.pop() {
            asked.insert(&question);
            asking = people::ask(shared, question, context);
        }
    }
}

/// Cancels the run of a call that its client no longer waits for.
struct CancelOnDrop {
    handle: Option<RequestHandle>,
    /// The call's share of the calls in flight, which includes the time to cancel its run.
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let (Some(handle), permit) = (self.handle.take(), self.permit.take()) else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = handle.cancel().await {
                    let run = handle.run();
                    tracing::warn!(error = %Chain(&error), %run, "cannot cancel the run of an MCP call whose client disconnected");
                }
                drop(permit);
            });
        }
    }
}

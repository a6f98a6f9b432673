//! A tool of an MCP server, and its calls.

use super::IDEMPOTENCY_KEY;
use super::admission::Admission;
use super::http::{Damage, damage};
use super::link::Link;
use super::records::Accepted;
use super::result;
use crate::clock::later;
use crate::error::{BoxError, Chain, retry_after};
use crate::scrub::without_credentials;
use crate::tool::{Refusal, RetrySafety, Tool, ToolContext, ToolSettings, with_settings};
use async_trait::async_trait;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use serde_json::{Map, Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::select;
use tokio::time::Instant;

/// A tool of an MCP server. [`McpServer::connect`](super::McpServer::connect) creates it with the settings that follow from its
/// annotations.
///
/// The methods set the [settings](ToolSettings) of the tool. Use them in [`McpServer::tool`](super::McpServer::tool).
///
/// # Errors of a call
/// In addition to the codes of [`ToolRegistry::call`](crate::tool::ToolRegistry::call), an error has one of these codes:
///
/// | code | meaning |
/// |---|---|
/// | `connection_lost` | the connection was lost during the call, so the server may have done the work |
/// | `held` | the server has changed the tool, and no person has accepted the change; the tool was not called |
/// | `outdated` | a person has accepted a change of the tool, but models of this process still see the old definition; the tool was not called |
/// | `removed` | the server no longer lists the tool; the tool was not called |
/// | `unsupported` | the server asked for input during the call, or answered with a task |
///
/// Without a connection, a call waits up to half of its timeout for a new one. After that, the error is `rate_limited`, because the
/// tool did nothing. A call is sent a second time if the server did not process it, for example in a session that has expired. A call of an
/// idempotent tool is also sent a second time if it loses the connection.
pub struct McpTool {
    link: Arc<Link>,
    /// The name of the tool on the server.
    server_name: String,
    name: String,
    /// The digest of the definition that models see, or `None` if no definition was accepted.
    shown: Option<String>,
    description: String,
    input_schema: Value,
    settings: ToolSettings,
}

with_settings!(McpTool);

impl McpTool {
    /// Maximum number of times that a call is sent.
    const SENDS: u32 = 2;

    pub(super) fn new(
        link: Arc<Link>,
        server_name: String,
        name: String,
        accepted: Accepted,
    ) -> Self {
        let mut settings = ToolSettings::default();
        settings.timeout = link.settings().call_timeout;
        settings.max_output_bytes = link.settings().max_output_bytes;
        let (shown, description, input_schema) = match accepted {
            None => {
                let description = "This tool cannot be called before a person has accepted it.";
                (None, description.to_owned(), json!({"type": "object"}))
            }
            Some((digest, listed)) => {
                listed.annotations.apply(&mut settings);
                let description = listed.visible_description();
                settings.output_schema = listed.output_schema;
                (Some(digest), description, listed.input_schema)
            }
        };
        Self {
            link,
            server_name,
            name,
            shown,
            description,
            input_schema,
            settings,
        }
    }

    /// Returns the name of the tool on the server.
    #[must_use]
    pub fn server_name(&self) -> &str {
        &self.server_name
    }

    async fn check(&self) -> Result<(), BoxError> {
        let shown = self.shown.as_deref();
        let (code, message) = match self.link.admission(&self.server_name, shown).await? {
            Admission::Allowed => return Ok(()),
            Admission::Held => (
                "held",
                "the MCP server changed this tool, and no person has accepted the change; the tool was not called",
            ),
            Admission::Outdated => (
                "outdated",
                "a change of this tool was accepted, and the tool can be called after the service has started again; it was not called",
            ),
            Admission::Removed => (
                "removed",
                "the MCP server no longer has this tool; it was not called",
            ),
        };
        Err(Refusal::new(code, message).into())
    }

    /// Returns the error of a call without an answer. `lost` is the reason why the connection was lost during the call, and `reason` the
    /// reason why the server did not process the call.
    fn no_answer(&self, lost: Option<String>, reason: &str) -> BoxError {
        if let Some(lost) = lost {
            let message = format!(
                "the connection to the MCP server was lost during the call ({lost}); the tool may have done its work"
            );
            return Refusal::new("connection_lost", message).into();
        }
        let server = &self.link.settings().name;
        let message =
            format!("MCP server {server:?} cannot be reached ({reason}); the tool was not called");
        retry_after(Duration::from_secs(5), message)
    }
}

#[async_trait]
impl Tool for McpTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn input_schema(&self) -> &Value {
        &self.input_schema
    }

    fn settings(&self) -> &ToolSettings {
        &self.settings
    }

    async fn call(&self, input: Value, context: ToolContext) -> Result<Value, BoxError> {
        let arguments = match input {
            Value::Object(arguments) => arguments,
            Value::Null => Map::new(),
            Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                let message = "the input of an MCP tool must be a JSON object";
                return Err(Refusal::new("invalid_input", message).into());
            }
        };
        let mut params =
            CallToolRequestParams::new(self.server_name.clone()).with_arguments(arguments);
        let mut meta = RequestMetaObject::default();
        meta.insert(IDEMPOTENCY_KEY.to_owned(), context.idempotency_key().into());
        params.meta = Some(meta);
        let end = later(Instant::now(), self.settings.timeout / 2);
        let mut lost = None;
        let mut reason = String::new();
        for _ in 0..Self::SENDS {
            let limit = end.saturating_duration_since(Instant::now());
            let (number, peer) = match self.link.peer(limit).await {
                Ok(connection) => connection,
                Err(why) => return Err(self.no_answer(lost, &why)),
            };
            // The list of tools may have changed with the connection.
            self.check().await?;
            match send(&self.link, &peer, params.clone(), &context).await {
                Ok(output) => return Ok(output),
                Err(Failed::Answered(error)) => return Err(error),
                Err(Failed::Unsent(why)) => return Err(self.no_answer(None, &why)),
                Err(Failed::Unprocessed(why)) => {
                    self.link.lost(number);
                    reason = why;
                }
                Err(Failed::Unanswered(why)) => lost = Some(why),
                Err(Failed::Lost(why)) => {
                    self.link.lost(number);
                    lost = Some(why);
                }
            }
            if lost.is_some() && self.settings.retry != RetrySafety::Idempotent {
                break;
            }
        }
        Err(self.no_answer(lost, &reason))
    }
}

/// The failure of one request.
enum Failed {
    /// The request was refused before the server processed it, for example without a token. Other requests can succeed.
    Unsent(String),
    /// The server did not process the request, and the connection cannot be used any more.
    Unprocessed(String),
    /// The answer to this request cannot be used. Other requests can succeed.
    Unanswered(String),
    /// The connection was lost before the answer.
    Lost(String),
    /// The server, or the conversion of its answer, failed the call.
    Answered(BoxError),
}

/// Sends a call to the server, writes its progress reports, and returns its output. If the future is dropped, the server receives a
/// cancellation.
async fn send(
    link: &Link,
    peer: &Peer<RoleClient>,
    params: CallToolRequestParams,
    context: &ToolContext,
) -> Result<Value, Failed> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let sent = peer.send_cancellable_request(request, PeerRequestOptions::no_options());
    let handle = sent.await.map_err(|error| match error {
        // The request was not handed to the connection.
        ServiceError::TransportClosed => Failed::Unprocessed("the server closed it".to_owned()),
        error => failed(error),
    })?;
    let mut reports = link.handler().progress_of(handle.progress_token.clone());
    let mut request = InFlight(Some(handle));
    let result = loop {
        select! {
            result = request.result() => break result.map_err(failed)?,
            report = reports.next() => write(report, context).await,
        }
    };
    while let Some(report) = reports.received() {
        write(report, context).await;
    }
    let unsupported = |message: &str| {
        Err(Failed::Answered(
            Refusal::new("unsupported", message).into(),
        ))
    };
    match result {
        ServerResult::CallToolResult(result) => result::output(result).map_err(Failed::Answered),
        ServerResult::InputRequiredResult(_) => {
            unsupported("the MCP server asks for input during the call, which is not supported")
        }
        ServerResult::CreateTaskResult(_) => {
            unsupported("the MCP server answered with a task, which is not supported")
        }
        // A result without content is decoded as one of these.
        ServerResult::EmptyResult(_) => Ok(Value::Null),
        _ => unsupported("the MCP server did not answer with the result of a tool"),
    }
}

/// Writes a progress report. A report that cannot be written does not fail the call.
async fn write(report: Value, context: &ToolContext) {
    if let Err(error) = context.progress(report).await {
        tracing::debug!(error = %Chain(&error), "cannot write a progress report of an MCP tool");
    }
}

fn failed(error: ServiceError) -> Failed {
    let message = match error {
        ServiceError::TransportClosed => return Failed::Lost("the server closed it".to_owned()),
        ServiceError::TransportSend(ref sent) if !error.is_authorization_required() => {
            // Without the first level, which names Rust types.
            let error: &(dyn std::error::Error + 'static) = sent.error.as_ref();
            let reason = super::error::opaque(error).to_string();
            return match damage(error) {
                Damage::Refused => Failed::Unsent(reason),
                Damage::Unprocessed => Failed::Unprocessed(reason),
                Damage::OneAnswer => Failed::Unanswered(reason),
                Damage::Connection => Failed::Lost(reason),
            };
        }
        ServiceError::McpError(error) => {
            let text = without_credentials(&error.message);
            format!("the MCP server refused the call: {text}")
        }
        error => super::error::opaque(&error).to_string(),
    };
    Failed::Answered(message.into())
}

/// A request that waits for its answer. Dropping it before sends a cancellation to the server.
struct InFlight(Option<RequestHandle<RoleClient>>);

impl InFlight {
    async fn result(&mut self) -> Result<ServerResult, ServiceError> {
        let Some(handle) = &mut self.0 else {
            return Err(ServiceError::TransportClosed);
        };
        let result = (&mut handle.rx).await;
        self.0 = None;
        result.unwrap_or(Err(ServiceError::TransportClosed))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(handle) = self.0.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(handle.cancel(Some("the caller no longer waits".to_owned())));
        }
    }
}

impl fmt::Debug for McpTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTool")
            .field("name", &self.name)
            .field("server_name", &self.server_name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

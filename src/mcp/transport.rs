//! Opens a connection to an MCP server: starts the program or prepares the HTTP client, then does the handshake.

use super::McpError;
use super::error::opaque;
use super::handler::Handler;
use super::http::TokenClient;
use super::settings::{HttpEndpoint, Settings, Transport};
use super::stdio::{Program, secrets};
use rmcp::model::ProtocolVersion;
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt as _, RoleClient, RunningService,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

/// Maximum size in bytes of one message from an MCP server. A larger message is discarded, so its call times out or fails.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Maximum number of concurrent requests to an MCP server over HTTP. Further requests wait.
const MAX_REQUESTS: usize = 1_000;

/// A connection to an MCP server after the handshake. Dropping it ends the program of the server.
pub(super) type Service = RunningService<RoleClient, Handler>;

/// Connects to an MCP server. The caller enforces the timeout.
pub(super) async fn open(settings: &Settings, handler: Handler) -> Result<Service, McpError> {
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::LATEST],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    };
    let opened = match &settings.transport {
        Transport::Stdio(command) => {
            let program = Program::start(&settings.name, command, MAX_MESSAGE_BYTES)?;
            handler.serve_with_lifecycle(program, lifecycle).await
        }
        Transport::Http(endpoint) => {
            let transport = http(&settings.name, endpoint)?;
            handler.serve_with_lifecycle(transport, lifecycle).await
        }
    };
    opened.map_err(|error| failed(settings, &error))
}

fn failed(settings: &Settings, error: &ClientInitializeError) -> McpError {
    let source = match &settings.transport {
        Transport::Stdio(command) => secrets(command).redact(&opaque(error).to_string()).into(),
        Transport::Http(_) => opaque(error),
    };
    McpError::Connect {
        server: settings.name.clone(),
        source,
    }
}

fn http(
    server: &str,
    endpoint: &HttpEndpoint,
) -> Result<StreamableHttpClientTransport<TokenClient>, McpError> {
    let bad = |problem| McpError::BadEndpoint {
        server: server.to_owned(),
        problem,
    };
    let url = crate::http::base_url(&endpoint.url).map_err(bad)?;
    if endpoint.token.is_some() {
        crate::http::warn_if_exposed(&url);
    }
    let client = crate::http::client().build();
    let client = client.map_err(|_| bad("needs an HTTP client, which cannot be created"))?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
    config.max_json_response_size = MAX_MESSAGE_BYTES;
    config.max_sse_event_size = MAX_MESSAGE_BYTES;
    // The settings of the tools limit their concurrent calls. A lower limit would delay the list of tools behind the calls.
    config.max_concurrent_requests = MAX_REQUESTS;
    // The server may have other tools in a new session, so the link connects again and compares them before the next call.
    config.reinit_on_expired_session = false;
    let client = TokenClient::new(client, endpoint.token.clone());
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

//! The streamable HTTP transport of an MCP server.

use super::McpService;
use axum::Router;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use std::sync::Arc;
use std::time::Duration;

/// Maximum size in bytes of a message to an MCP server.
pub(super) const MAX_REQUEST_BYTES: usize = 4 << 20;

/// Minimum time without a message after which a session ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

impl McpService {
    /// Returns an axum router that serves MCP at the path `/`. Nest it below another path, and put your authentication around it as a tower
    /// layer.
    ///
    /// Sessions of clients with a protocol version before 2026-07-28 end after 5 minutes without a message, but not before the
    /// [maximum wait](Self::max_wait) of a call. They are in memory: a load balancer must send the requests of a session to the same process.
    /// Later versions have no sessions. A request of more than 4 MiB is refused.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::mcp::McpService;
    /// use universal_executor::{Client, MemoryStore};
    ///
    /// let service = McpService::new(&Client::new(&MemoryStore::default()));
    /// let app = axum::Router::new().nest("/mcp", service.router());
    /// // Then `axum::serve(listener, app).await?`.
    /// # drop(app);
    /// ```
    pub fn router(&self) -> Router {
        let service = self.clone();
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(self.shared.allowed_hosts.clone())
            .with_allowed_origins(self.shared.allowed_origins.clone())
            .enforce_origin_validation()
            .with_max_request_body_bytes(MAX_REQUEST_BYTES);
        let sessions = Arc::new(sessions(self.shared.max_wait));
        let mcp = StreamableHttpService::new(move || Ok(service.clone()), sessions, config);
        Router::new().fallback_service(mcp)
    }
}

/// Returns the sessions of the server. A call in flight sends no messages, so a session must not be idle before the end of the longest call.
fn sessions(max_wait: Duration) -> LocalSessionManager {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(max_wait.saturating_add(IDLE_TIMEOUT));
    sessions
}

//! The streamable HTTP transport of an MCP server.

use super::McpService;
use axum::Router;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use std::sync::Arc;

/// Maximum size in bytes of a request to an MCP server.
const MAX_REQUEST_BYTES: usize = 4 << 20;

impl McpService {
    /// Returns an axum router that serves MCP at the path `/`. Nest it below another path, and put your authentication around it as a tower
    /// layer.
    ///
    /// Sessions of clients with a protocol version before 2026-07-28 end after 5 minutes without a request. They are in memory: a load
    /// balancer must send the requests of a session to the same process. Later versions have no sessions.
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
            .with_max_request_body_bytes(MAX_REQUEST_BYTES);
        let sessions = Arc::new(LocalSessionManager::default());
        let mcp = StreamableHttpService::new(move || Ok(service.clone()), sessions, config);
        Router::new().fallback_service(mcp)
    }
}

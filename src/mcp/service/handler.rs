//! Requests of MCP clients.

use super::{McpService, call, operation};
use crate::error::excerpt;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};

impl ServerHandler for McpService {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let name = Implementation::new(self.shared.name.clone(), env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities).with_server_info(name)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let found = self.shared.operations.get(name);
        found.map(operation::McpOperation::listed)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let operations = self.shared.operations.values();
        let tools = operations.map(operation::McpOperation::listed);
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(operation) = self.shared.operations.get(&*request.name) else {
            let known = self.names().join(", ");
            let (name, known) = (excerpt(&request.name, 200), excerpt(&known, 2_000));
            let message = format!("there is no tool {name:?}; there are {known}");
            return Err(ErrorData::invalid_params(message, None));
        };
        call::run(self, operation, request, context).await
    }
}

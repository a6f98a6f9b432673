//! Tools of MCP (Model Context Protocol) servers for agents and workflows (feature `mcp`), and a server for the tools, agents and workflows
//! of a service (feature `mcp-server`).
//!
//! Connect to a server with [`McpServer`], and register its tools with [`Services::mcp`](crate::Services::mcp). Agents then name
//! them like other tools, as `<server>.<tool>`. The protocol versions 2024-11-05 to 2026-07-28 are supported, over standard input and
//! output and over streamable HTTP.
//!
//! | part of the protocol | support |
//! |---|---|
//! | tools | names, descriptions, input and output schemas, annotations, pages, changes of the list |
//! | calls | timeout, cancellation, progress (as `tool.progress.v1`), structured content, text |
//! | images and other bytes in results | replaced by their type and size |
//! | sampling, elicitation, roots, tasks | not offered to the server |
//! | prompts, resources | not used |
//!
//! # Types to start with
//! | to | use |
//! |---|---|
//! | connect to a server | [`McpServer`], [`StdioCommand`], [`HttpEndpoint`] |
//! | register its tools | [`McpTools`], [`Services::mcp`](crate::Services::mcp) |
//! | make the settings of a tool stricter | [`McpTool`] |
//! | let a person accept a changed tool | [`McpChanges`] |
//! | let MCP clients call tools, agents and workflows | `McpService` (feature `mcp-server`) |

mod admission;
mod error;
mod handler;
mod http;
mod link;
mod listed;
mod records;
mod result;
mod server;
#[cfg(feature = "mcp-server")]
mod service;
mod settings;
mod stdio;
mod tool;
mod transport;

pub use error::McpError;
pub use records::{McpChange, McpChanges};
pub use server::McpServer;
#[cfg(feature = "mcp-server")]
pub use service::{McpOperation, McpService};
pub use settings::{HttpEndpoint, StdioCommand};
pub use tool::McpTool;

/// Field of the metadata of a call with the idempotency key: calls of the same operation with the same key have the same run.
const IDEMPOTENCY_KEY: &str = "universal-executor/idempotency-key";

use self::link::Link;
use crate::tool::{Tool, ToolError, ToolRegistry};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// The tools of one connected MCP server. [`McpServer::connect`] returns them.
///
/// A clone shares the connection. The connection ends when the last clone and all registries with its tools are dropped.
#[derive(Clone)]
pub struct McpTools {
    link: Arc<Link>,
    tools: Vec<Arc<McpTool>>,
}

impl McpTools {
    fn new(link: Arc<Link>, tools: Vec<McpTool>) -> Self {
        Self {
            link,
            tools: tools.into_iter().map(Arc::new).collect(),
        }
    }

    /// Returns the names under which the tools are registered, in the order of their names on the server.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        self.tools.iter().map(|tool| tool.name()).collect()
    }

    /// Returns the tool with this registered name, for [`Agent::tool`](crate::agent::Agent::tool). `None` if there is no such tool.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<McpTool>> {
        let mut tools = self.tools.iter();
        tools.find(|tool| tool.name() == name).cloned()
    }

    /// Returns the tools.
    #[must_use]
    pub fn tools(&self) -> &[Arc<McpTool>] {
        &self.tools
    }

    /// Returns `true` if the server is connected at the moment. Calls wait for a lost connection, so this is for health checks.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Adds the tools to a registry.
    ///
    /// # Errors
    /// The errors of [`ToolRegistry::with`].
    #[track_caller]
    pub fn add_to(&self, registry: ToolRegistry) -> Result<ToolRegistry, ToolError> {
        let location = Location::caller();
        let mut tools = self.tools.iter();
        tools.try_fold(registry, |registry, tool| {
            let tool: Arc<dyn Tool> = tool.clone();
            registry.with_at(tool, location)
        })
    }
}

impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTools")
            .field("server", &self.link.settings().name)
            .field("tools", &self.names())
            .finish_non_exhaustive()
    }
}

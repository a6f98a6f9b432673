//! The builder of a connection to an MCP server.

use super::link::Link;
use super::settings::{HttpEndpoint, Settings, StdioCommand, Transport};
use super::{McpError, McpTool, McpTools};
use crate::error::excerpt;
use crate::store::BreadcrumbStore;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An MCP (Model Context Protocol) server whose tools agents and workflows can call (feature `mcp`).
///
/// [`connect`](Self::connect) lists the tools of the server. [`Services::mcp`](crate::Services::mcp) registers them under the names
/// `<server>.<tool>`, and the permissions, approvals, budgets and limits of local tools apply to them.
///
/// ```no_run
/// use universal_executor::mcp::{McpServer, StdioCommand};
/// use universal_executor::tool::Approval;
/// use universal_executor::{MemoryStore, Services};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let files = McpServer::stdio("files", StdioCommand::new("npx").args(["-y", "@modelcontextprotocol/server-filesystem", "/tmp"]))
///     .only(["read_file", "write_file"])
///     .tool("write_file", |tool| tool.needs_approval(Approval::always()))
///     .connect(&store)
///     .await?;
/// let services = Services::new().mcp(&files)?;
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
///
/// # Trust
/// The server runs outside of this process, and its descriptions and results are untrusted text. They can ask a model for things, but a
/// model can call only the tools that its agent names. The first connection accepts the tools of the server and records them in the
/// store (`mcp.tool.v1`), unless [`hold_new_tools`](Self::hold_new_tools) is set. If the server changes a tool afterwards, its calls
/// are refused until a person accepts the change: see [`McpChanges`](super::McpChanges).
///
/// The annotations of a tool become its settings. A read-only or idempotent tool is
/// [idempotent](crate::tool::RetrySafety::Idempotent). A tool that is explicitly destructive needs an approval for each call. Each tool
/// that is not read-only has the permission tag `destructive`, unless the server denies it. Each tool that is not limited to a closed
/// domain has the tags `egress` and `untrusted`. [`tool`](Self::tool) makes the settings stricter.
pub struct McpServer {
    settings: Settings,
    changes: BTreeMap<String, Vec<SettingsChange>>,
}

type SettingsChange = Box<dyn FnOnce(McpTool) -> McpTool + Send>;

impl McpServer {
    /// Maximum length of the name of an MCP server, in bytes.
    const MAX_NAME_LENGTH: usize = 32;

    /// Creates the settings of an MCP server that this process starts as a program, and with which it exchanges messages over standard
    /// input and output.
    ///
    /// `name` has 1 to 32 characters of `a-z`, `0-9`, `_` and `-`. [`connect`](Self::connect) checks it.
    #[must_use]
    pub fn stdio(name: impl Into<String>, command: StdioCommand) -> Self {
        Self::new(name.into(), Transport::Stdio(command))
    }

    /// Creates the settings of an MCP server with a URL, for the streamable HTTP transport.
    ///
    /// `name` has 1 to 32 characters of `a-z`, `0-9`, `_` and `-`. [`connect`](Self::connect) checks it.
    #[must_use]
    pub fn http(name: impl Into<String>, endpoint: HttpEndpoint) -> Self {
        Self::new(name.into(), Transport::Http(endpoint))
    }

    fn new(name: String, transport: Transport) -> Self {
        Self {
            settings: Settings::new(name, transport),
            changes: BTreeMap::new(),
        }
    }

    /// Sets the timeout of the handshake together with the list of tools. Defaults to 30 s.
    ///
    /// The first start of a program with `npx` or `uvx` downloads it, which can take longer.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Sets the timeout of a tool call, including the time to reconnect to the server. Defaults to 60 s.
    ///
    /// After the timeout, the server receives a cancellation of the call.
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.settings.call_timeout = timeout;
        self
    }

    /// Sets the maximum size in bytes of the output of each tool. A larger output is the error `output_too_large`. Defaults to 128 KiB.
    #[must_use]
    pub fn max_output_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_output_bytes = bytes;
        self
    }

    /// Uses only the tools with these names on the server. Defaults to all tools.
    ///
    /// The connection fails with [`McpError::UnknownTool`] if the server lacks one of them.
    #[must_use]
    pub fn only<T: Into<String>>(mut self, tools: impl IntoIterator<Item = T>) -> Self {
        self.settings.only = Some(tools.into_iter().map(Into::into).collect());
        self
    }

    /// Changes the settings of the tool with this name on the server. The function receives the tool with the settings that follow from
    /// its annotations.
    ///
    /// The connection fails with [`McpError::UnknownTool`] if the server lacks the tool.
    #[must_use]
    pub fn tool(
        mut self,
        name: impl Into<String>,
        change: impl FnOnce(McpTool) -> McpTool + Send + 'static,
    ) -> Self {
        let changes = self.changes.entry(name.into()).or_default();
        changes.push(Box::new(change));
        self
    }

    /// Refuses the calls of a tool that the store has no record of until a person accepts the tool, like a changed tool. By default, the
    /// first connection accepts the tools of the server.
    #[must_use]
    pub fn hold_new_tools(mut self) -> Self {
        self.settings.holds_new_tools = true;
        self
    }

    /// Connects to the server and lists its tools.
    ///
    /// A background task keeps the connection until the result and all its tools are dropped. After a lost connection, it connects
    /// again, with delays of up to 30 s. Needs a tokio runtime with I/O and time.
    ///
    /// A tool is ignored with a warning if its definition exceeds 64 KiB or 48 levels, or if its name is too long or equal to another
    /// one after the conversion to a valid name. At most 128 tools are used.
    ///
    /// # Errors
    /// The variants of [`McpError`], except [`McpError::ChangedAgain`].
    pub async fn connect<B>(self, store: &B) -> Result<McpTools, McpError>
    where
        B: BreadcrumbStore + Clone,
    {
        let Self {
            settings,
            mut changes,
        } = self;
        check_name(&settings.name)?;
        let link = Link::open(settings, Arc::new(store.clone())).await?;
        let mut tools = Vec::new();
        for (tool, name, accepted) in link.first() {
            let changes = changes.remove(tool).unwrap_or_default();
            let (tool, name, accepted) = (tool.clone(), name.clone(), accepted.clone());
            let tool = McpTool::new(Arc::clone(&link), tool, name, accepted);
            tools.push(changes.into_iter().fold(tool, |tool, change| change(tool)));
        }
        let known = || tools.iter().map(McpTool::server_name);
        let only = link.settings().only.iter().flatten();
        let missing = changes
            .keys()
            .chain(only)
            .find(|name| !known().any(|known| known == **name));
        if let Some(tool) = missing {
            return Err(McpError::UnknownTool {
                server: link.settings().name.clone(),
                tool: excerpt(tool, 80).into_owned(),
                known: match tools.is_empty() {
                    true => "none".to_owned(),
                    false => known().collect::<Vec<_>>().join(", "),
                },
            });
        }
        Ok(McpTools::new(link, tools))
    }
}

fn check_name(name: &str) -> Result<(), McpError> {
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    match (1..=McpServer::MAX_NAME_LENGTH).contains(&name.len()) && name.chars().all(is_valid) {
        true => Ok(()),
        false => Err(McpError::BadName {
            name: excerpt(name, 80).into_owned(),
        }),
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("McpServer");
        debug.field("name", &self.settings.name);
        match &self.settings.transport {
            Transport::Stdio(command) => debug.field("command", command),
            Transport::Http(endpoint) => debug.field("endpoint", endpoint),
        };
        debug.finish_non_exhaustive()
    }
}

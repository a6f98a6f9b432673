use crate::error::{BoxError, Chain, Retry};
use crate::model::BreadcrumbId;
use crate::scrub::without_credentials;
use crate::store::StoreError;
use std::time::Duration;

/// Error of a connection to an MCP server, or of the records of its tools.
///
/// No message contains a token, or a value of the environment of the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// The name of the MCP server is empty, longer than 32 characters, or has characters other than `a-z`, `0-9`, `_` and `-`.
    #[error(
        "{name:?} is not a valid name of an MCP server; use 1 to 32 characters of a-z, 0-9, '_' and '-'"
    )]
    BadName {
        /// The invalid name of the MCP server, shortened to 80 bytes.
        name: String,
    },
    /// The URL of the MCP server is invalid, or a header or token cannot be sent.
    #[error("the endpoint of MCP server {server:?} {problem}")]
    BadEndpoint {
        /// The name of the MCP server.
        server: String,
        /// The problem of the endpoint.
        problem: &'static str,
    },
    /// The program of the MCP server cannot be started.
    ///
    /// Check the path and the permissions of the program, and its working directory.
    #[error("cannot start the program {program:?} of MCP server {server:?}; see the cause")]
    Start {
        /// The name of the MCP server.
        server: String,
        /// The path or the name of the program.
        program: String,
        /// The reason why the program cannot be started.
        source: std::io::Error,
    },
    /// The MCP server did not answer the handshake or the list of its tools, answered with an error, or its token could not be
    /// obtained.
    ///
    /// The standard error of a program is logged at the DEBUG level.
    #[error("cannot connect to MCP server {server:?}; see the cause")]
    Connect {
        /// The name of the MCP server.
        server: String,
        /// The reason, without credentials.
        source: BoxError,
    },
    /// The MCP server did not answer the handshake or the list of its tools in time.
    #[error(
        "MCP server {server:?} did not answer within {timeout:?}; check that it runs, or raise connect_timeout"
    )]
    Timeout {
        /// The name of the MCP server.
        server: String,
        /// The timeout of the connection.
        timeout: Duration,
    },
    /// The MCP server has no tool for this entry in the settings of the server.
    #[error("MCP server {server:?} has no tool {tool:?}; it has {known}")]
    UnknownTool {
        /// The name of the MCP server.
        server: String,
        /// The name of the missing tool.
        tool: String,
        /// The names of the tools of the server.
        known: String,
    },
    /// The tool of the MCP server was changed again, or its change was already accepted. Nothing was accepted.
    ///
    /// Call [`McpChanges::list`](super::McpChanges::list) again, and show the new change to a person.
    #[error(
        "the change of tool {tool:?} of MCP server {server:?} no longer waits for acceptance; list the changes again"
    )]
    ChangedAgain {
        /// The name of the MCP server.
        server: String,
        /// The name of the tool on the MCP server.
        tool: String,
    },
    /// The record of an accepted tool cannot be read, so the tool cannot be compared with it.
    ///
    /// Delete the breadcrumb to accept the tool again at its next use.
    #[error(
        "the record {id} of a tool of MCP server {server:?} cannot be read; see the cause, then delete the record"
    )]
    BadRecord {
        /// The name of the MCP server.
        server: String,
        /// The ID of the breadcrumb with the record.
        id: BreadcrumbId,
        /// The reason why the record cannot be read.
        source: serde_json::Error,
    },
    /// The store of the tool records failed.
    #[error("cannot {operation} of MCP server {server:?}; see the cause")]
    Store {
        /// The name of the MCP server.
        server: String,
        /// The failed operation, such as `read the accepted tools`.
        operation: &'static str,
        /// The error of the store.
        source: Box<StoreError>,
    },
}

impl McpError {
    /// Returns the delay after which a retry can succeed, or [`Retry::Never`].
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::BadName { .. }
            | Self::BadEndpoint { .. }
            | Self::UnknownTool { .. }
            | Self::ChangedAgain { .. }
            | Self::BadRecord { .. } => Retry::Never,
            Self::Start { source, .. } => match source.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => Retry::Never,
                _ => Retry::After(Duration::from_secs(1)),
            },
            Self::Connect { .. } | Self::Timeout { .. } => Retry::After(Duration::from_secs(1)),
            Self::Store { source, .. } => source.retry(),
        }
    }

    /// Returns a short name of the error for log lines and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::BadName { .. } => "mcp_bad_name",
            Self::BadEndpoint { .. } => "mcp_bad_endpoint",
            Self::Start { .. } => "mcp_start",
            Self::Connect { .. } => "mcp_connect",
            Self::Timeout { .. } => "mcp_timeout",
            Self::UnknownTool { .. } => "mcp_unknown_tool",
            Self::ChangedAgain { .. } => "mcp_changed_again",
            Self::BadRecord { .. } => "mcp_bad_record",
            Self::Store { source, .. } => source.code(),
        }
    }
}

/// Returns the text of an error and its causes without credentials, as an error. The types of the protocol library are not part of
/// this crate's API.
pub(super) fn opaque(error: &(dyn std::error::Error + 'static)) -> BoxError {
    without_credentials(&Chain(error).to_string()).into()
}

//! Tools of MCP servers. This test executable plays the servers, as [`program`] describes.

mod calls;
mod changes;
mod hostile;
mod http;
mod lost;
pub(crate) mod program;
#[cfg(feature = "mcp-server")]
mod raw;
#[cfg(feature = "mcp-server")]
mod served;
#[cfg(feature = "mcp-server")]
mod service;
mod third_party;

use crate::child::within_crate;
use serde_json::{Value, json};
use std::sync::Arc;
use universal_executor::machine::{Answer, MachineCall, ToolOutcome};
use universal_executor::mcp::{McpServer, McpTools, StdioCommand};
use universal_executor::tool::ToolRegistry;
use universal_executor::{BreadcrumbStore, ExecutionContext, MemoryStore, NewBreadcrumb};

/// Returns a server in a child process that plays a script.
fn playing(script: &Value) -> McpServer {
    McpServer::stdio("desk", command(script))
}

fn command(script: &Value) -> StdioCommand {
    let itself = std::env::current_exe().unwrap();
    let test = within_crate(concat!(module_path!(), "::program::plays_its_script"));
    let played = r#"exec "$0" "$1" --exact --nocapture 3>&1 >/dev/null"#;
    StdioCommand::new("sh")
        .args(["-c", played])
        .args([itself.into_os_string(), test.into()])
        .env(program::SCRIPT, script.to_string())
}

/// Returns a tool in the list of a server.
fn tool(name: &str) -> Value {
    json!({"name": name, "description": format!("Does {name}."), "inputSchema": {"type": "object"}})
}

fn read_only(name: &str) -> Value {
    let mut tool = tool(name);
    tool["annotations"] = json!({"readOnlyHint": true, "openWorldHint": false});
    tool
}

/// A store with the tools of one server.
struct World {
    store: MemoryStore,
    tools: McpTools,
    registry: ToolRegistry,
}

impl World {
    async fn of(server: McpServer) -> Self {
        Self::on(MemoryStore::default(), server).await
    }

    async fn on(store: MemoryStore, server: McpServer) -> Self {
        let tools = server.connect(&store).await.unwrap();
        let registry = tools.add_to(ToolRegistry::default()).unwrap();
        Self {
            store,
            tools,
            registry,
        }
    }

    /// Calls a tool like an agent, in a separate run.
    async fn call(&self, tool: &str, input: Value) -> Result<Value, (String, String)> {
        let trigger = NewBreadcrumb::new("user.message.v1");
        let run = ExecutionContext::for_trigger(trigger);
        let store: Arc<dyn BreadcrumbStore> = Arc::new(self.store.clone());
        let call = MachineCall::new("c-1", tool, input);
        match self.registry.call(call, None, &run, &store).await {
            ToolOutcome::Answered(Answer::Success(output)) => Ok(output.into_value()),
            ToolOutcome::Answered(Answer::Error { code, message }) => Err((code, message)),
            ToolOutcome::Deferred(deferral) => panic!("{deferral:?}"),
        }
    }

    /// Calls a tool, and expects an error with a code. Returns the message.
    async fn refused(&self, tool: &str, input: Value, expected: &str) -> String {
        let (code, message) = self.call(tool, input).await.unwrap_err();
        assert_eq!(code, expected, "{message}");
        message
    }
}

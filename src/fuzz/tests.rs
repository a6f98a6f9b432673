//! Structured fuzz tests of the public entry points.

#[cfg(feature = "workflows")]
mod definitions;
#[cfg(feature = "workflows")]
mod flows;
mod records;
mod runs;
#[cfg(feature = "agents")]
mod turns;
#[cfg(feature = "yaml")]
mod yaml;

use crate::tool::{JsonTool, ToolRegistry, json_tool};
use serde_json::json;
use std::sync::LazyLock;

/// Returns tools that repeat their input, fail, and return 64 KiB.
fn tools() -> &'static ToolRegistry {
    static TOOLS: LazyLock<ToolRegistry> = LazyLock::new(|| {
        let fail = json_tool("fail", "Fails.", json!({"type": "object"}), async |_, _| {
            Err("no".into())
        });
        let big = json_tool("big", "Returns 64 KiB.", json!({}), async |_, _| {
            Ok(json!("x".repeat(64 << 10)))
        });
        let tools = ToolRegistry::default().with(echo()).unwrap();
        tools.with(fail).unwrap().with(big).unwrap()
    });
    &TOOLS
}

/// Returns a tool that repeats its input.
fn echo() -> JsonTool {
    json_tool("echo", "Repeats its input.", json!({}), async |input, _| {
        Ok(input)
    })
}

/// Runs a future to completion in a runtime with one thread and paused time.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

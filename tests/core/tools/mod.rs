//! Tools: settings, a registry, permissions, one executor for many tools, and calls within a run.

mod approval;
mod catalog;
mod dispatcher;
mod in_process;
mod limits;
mod names;
mod permissions;
mod remote;
#[cfg(feature = "validate")]
mod validation;

use crate::support::{all, put};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::machine::{Answer, MachineCall, ToolOutcome};
use universal_executor::tool::{JsonTool, ToolRegistry, json_tool};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, ExecutionContext, MemoryStore, NewBreadcrumb,
};

const LEASE: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

/// Creates a tool that returns its input.
fn echo(name: &str) -> JsonTool {
    json_tool(name, "For tests.", json!({}), |input, _| async move {
        Ok(input)
    })
}

/// Returns a tool made of a closure that receives the number of the call, and its call counter.
fn counting<F, R>(name: &str, work: F) -> (JsonTool, Arc<AtomicUsize>)
where
    F: Fn(usize) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Value, BoxError>> + Send + 'static,
{
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let tool = json_tool(name, "For tests.", json!({}), move |_, _| {
        work(counted.fetch_add(1, Ordering::SeqCst))
    });
    (tool, calls)
}

fn count(calls: &AtomicUsize) -> usize {
    calls.load(Ordering::SeqCst)
}

fn registry(tools: impl IntoIterator<Item = JsonTool>) -> ToolRegistry {
    tools
        .into_iter()
        .fold(ToolRegistry::default(), |registry, tool| {
            registry.with(tool).unwrap()
        })
}

/// Calls a tool outside a run.
async fn call(registry: &ToolRegistry, tool: &str, input: Value) -> ToolOutcome {
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    let call = MachineCall::new("c-1", tool, input);
    registry.call(call, None, &by_hand(), &store).await
}

fn by_hand() -> ExecutionContext {
    ExecutionContext::for_trigger(NewBreadcrumb::new("user.message.v1"))
}

async fn requested(store: &MemoryStore, tool: &str) -> Arc<Breadcrumb> {
    put(store, "tool.request.v1", json!({"tool": tool, "input": {}})).await
}

async fn only(store: &MemoryStore, schema: &str) -> Arc<Breadcrumb> {
    let mut found = all(store, schema).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Returns the code and the message of an error.
fn error_of(outcome: ToolOutcome) -> (String, String) {
    match outcome {
        ToolOutcome::Answered(Answer::Error { code, message }) => (code, message),
        other => panic!("{other:?}"),
    }
}

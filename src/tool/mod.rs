//! Tools: functions that are reached by a breadcrumb and always answer with one.
//!
//! A tool is a name, a description, an input schema and an async function. [`ToolExecutor`] gives it subscriptions
//! and a store; whatever happens, whoever asked gets a `tool.response.v1` with a `status`.
//!
//! | breadcrumb | context |
//! |---|---|
//! | `tool.request.v1` | `tool`, `input`, and if wanted `requestId` and `requestedBy`, of up to 512 bytes each |
//! | `tool.response.v1` | `request_id`, `tool`, `status` (`success` or `error`), `output` or `error` and `code`, `execution_time_ms`, `timestamp`, `requestedBy` |
//! | `tool.progress.v1` | `request_id`, `tool`, `number`, `progress`, `timestamp`, `requestedBy` |
//! | `tool.catalog.v1` | `catalog`, `tools`: what a model is told of each |
//!
//! An error of the tool is an answer too: the run is done, and the response says `"status": "error"`. A tool that an
//! agent calls may leave its result to somebody else: to another agent ([`handoff`]), to a person ([`ask_human`]), or to
//! whoever takes care of a kind of [`deferred`] result.
//!
//! [`ToolSettings`] stand with the tool and hold for every way to call it: a [`ToolExecutor`] of its own, a
//! [`ToolDispatcher`] that serves a whole [`ToolRegistry`], or [`ToolRegistry::call`] from within the run of an agent. With
//! the feature `validate` input and output are checked against the schemas of the tool. An [`Approval`] selects the calls that need the
//! approval of a person.
//!
//! [`json_tool`] makes a tool of an async function over JSON; [`tool_fn`], with the feature `schema`, of one over types of
//! your own, and makes the schema as well. For a function that blocks there are [`json_tool_blocking`] and
//! [`tool_fn_blocking`]: it runs on a [`BlockingPool`] and holds up nothing else. A [`remote_tool`] is one that another
//! service answers for.
//!
//! ```
//! use serde_json::json;
//! use std::sync::Arc;
//! use universal_executor::tool::{ToolExecutor, json_tool};
//! use universal_executor::{BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, UniversalExecutor};
//!
//! let adder = json_tool("adder", "Adds two numbers.", json!({"type": "object"}), |input, _| async move {
//!     Ok(json!({"sum": input["a"].as_i64().unwrap_or(0) + input["b"].as_i64().unwrap_or(0)}))
//! });
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let store = MemoryStore::default();
//! let adder = ToolExecutor::new(adder, Arc::new(store.clone()))?;
//! let request = json!({"tool": "adder", "input": {"a": 1, "b": 2}, "requestId": "r-1"});
//! let request = store.create(NewBreadcrumb::new("tool.request.v1").context(request)).await?;
//! adder.process_event(&Event::created(&request)).await?;
//!
//! let response = store.latest("tool.response.v1").await?.ok_or("no response")?;
//! assert_eq!(response.context["output"], json!({"sum": 3}));
//! # Ok::<(), universal_executor::BoxError>(())
//! # })?;
//! # Ok::<(), universal_executor::BoxError>(())
//! ```

mod answer;
mod approval;
mod blocking;
mod catalog;
mod context;
mod deferral;
mod definition;
mod dispatcher;
mod entry;
mod error;
mod executor;
mod function;
mod outcome;
mod permissions;
mod pool;
mod progress;
mod registry;
mod remote;
#[cfg(feature = "workflows")]
mod renamed;
mod schema;
mod settings;
mod spec;
#[cfg(feature = "schema")]
mod typed;
mod wire;

pub use approval::{Approval, role};
pub use blocking::{BlockingTool, json_tool_blocking};
pub use catalog::{Catalog, Published};
pub use context::ToolContext;
pub use deferral::{Question, ask_human, deferred, handoff};
pub use definition::ToolDefinition;
pub use dispatcher::ToolDispatcher;
pub use error::ToolError;
pub use executor::ToolExecutor;
pub use function::{JsonTool, json_tool};
pub use permissions::ToolPermissions;
pub use pool::BlockingPool;
pub use registry::ToolRegistry;
pub use remote::{RemoteTool, remote_tool};
pub use settings::{RetrySafety, ToolSettings};
pub use spec::ToolSpec;
#[cfg(feature = "schema")]
pub use typed::{tool_fn, tool_fn_blocking};

pub(crate) use approval::{NeededApproval, People, ROLE};
#[cfg(feature = "agents")]
pub(crate) use outcome::{unknown as unknown_outcome, withheld};
#[cfg(feature = "workflows")]
pub(crate) use renamed::Renaming;
pub(crate) use schema::Checker;
pub(crate) use wire::named_request;
#[cfg(feature = "agents")]
pub(crate) use wire::{answer_of, answered_request, request};

use crate::error::BoxError;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;

/// A function with a name, a description, an input schema and settings.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Its name: 1 to 64 of `a-z`, `0-9`, `.`, `_` and `-`. What a request asks for, to the letter.
    fn name(&self) -> &str;

    /// What it does, for a model to choose by.
    fn description(&self) -> &str;

    /// The JSON Schema of its input.
    fn input_schema(&self) -> &Value;

    /// How it wants to be called. They are read when the tool is registered or made an executor, and must not change.
    fn settings(&self) -> &ToolSettings {
        ToolSettings::standard()
    }

    /// Does the work.
    ///
    /// # Errors
    /// An error is an answer: whoever asked gets its message with `"status": "error"`. Only
    /// [`retry_after`](crate::retry_after), [`suspend`](crate::suspend) and, of a tool marked idempotent, a store's
    /// own passing error make the run go on later instead.
    async fn call(&self, input: Value, context: ToolContext) -> Result<Value, BoxError>;
}

#[async_trait]
impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn description(&self) -> &str {
        (**self).description()
    }

    fn input_schema(&self) -> &Value {
        (**self).input_schema()
    }

    fn settings(&self) -> &ToolSettings {
        (**self).settings()
    }

    async fn call(&self, input: Value, context: ToolContext) -> Result<Value, BoxError> {
        (**self).call(input, context).await
    }
}

//! Tools: functions that agents call, and that executors call to answer request breadcrumbs.
//!
//! A tool consists of a name, a description, an input schema and a function. A [`ToolExecutor`] adds subscriptions and a store, and
//! answers each request with a `tool.response.v1` that has a `status`, also after an error.
//!
//! Use this module when a model, a workflow or another service must call a function of your
//! service. For code that reacts to your own schemas, use an executor instead:
//! [`executor`](fn@crate::executor).
//!
//! | breadcrumb | context |
//! |---|---|
//! | `tool.request.v1` | `tool`, `input`, and optionally `requestId` and `requestedBy`, of up to 512 bytes each |
//! | `tool.response.v1` | `request_id`, `tool`, `status` (`success` or `error`), `output` or `error` and `code`, `execution_time_ms`, `timestamp`, `requestedBy` |
//! | `tool.progress.v1` | `request_id`, `tool`, `number`, `progress`, `timestamp`, `requestedBy` |
//! | `tool.catalog.v1` | `catalog`, `tools`: name, description and schemas of each tool |
//!
//! An error of the tool is also an answer: the run is done, and the response has `"status": "error"`. A tool that an agent calls can
//! defer its result to another agent ([`handoff`]), to a person ([`ask_human`]), or to a custom driver ([`deferred`]).
//!
//! # Calling a tool
//! The [`ToolSettings`] of a tool apply to every way to call it: a [`ToolExecutor`] that serves only this tool, a
//! [`ToolDispatcher`] that serves a whole [`ToolRegistry`], and [`ToolRegistry::call`] within the run of an agent. With the feature
//! `validate`, input and output are checked against the schemas of the tool. An [`Approval`] selects the calls that need the
//! approval of a person.
//!
//! # Creating a tool
//! [`json_tool`] creates a tool from an async function over JSON. [`tool_fn`], with the feature `schema`, creates a tool from a
//! function over Rust types, and generates the schema. [`json_tool_blocking`] and [`tool_fn_blocking`] are for functions that block:
//! these functions run on a [`BlockingPool`] and do not delay async tasks. A [`remote_tool`] is served by another service.
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
//!
//! # Types to start with
//! | to | use |
//! |---|---|
//! | create a tool | [`json_tool`], or `tool_fn` with the feature `schema` |
//! | create a tool from a function that blocks | [`json_tool_blocking`], [`BlockingPool`] |
//! | give an agent or a flow its tools | [`ToolRegistry`], [`ToolPermissions`] |
//! | answer the requests for one tool | [`ToolExecutor`] |
//! | answer the requests for all tools of a registry | [`ToolDispatcher`] |
//! | call a tool of another service | [`remote_tool`] |
//! | have a person approve calls | [`Approval`] |
//! | let a tool ask a person or another agent | [`ask_human`], [`handoff`] |
//! | show the tools to people and models | [`Catalog`] |

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
#[cfg(all(test, feature = "mcp"))]
pub(crate) use entry::is_name;
#[cfg(feature = "mcp")]
pub(crate) use outcome::Refusal;
#[cfg(feature = "agents")]
pub(crate) use outcome::{unknown as unknown_outcome, withheld};
#[cfg(feature = "workflows")]
pub(crate) use renamed::Renaming;
pub(crate) use schema::Checker;
#[cfg(feature = "mcp")]
pub(crate) use settings::with_settings;
pub(crate) use wire::named_request;
#[cfg(feature = "agents")]
pub(crate) use wire::{answer_of, answered_request, request};

use crate::error::BoxError;
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;

/// A function with a name, a description, an input schema and settings. Agents and request breadcrumbs can call a tool.
///
/// Implement the trait for a type with its own state, or for a tool whose schema is created at run
/// time. For a single function, [`json_tool`] is shorter. An `Arc` of a tool is also a tool.
///
/// Name, description, schema and settings must stay the same: a [`ToolRegistry`] and a
/// [`ToolExecutor`] read the name and the schemas once.
///
/// # Examples
/// ```
/// use serde_json::{Value, json};
/// use universal_executor::tool::{Tool, ToolContext, ToolRegistry};
/// use universal_executor::{BoxError, async_trait};
///
/// struct Upper {
///     schema: Value,
/// }
///
/// #[async_trait]
/// impl Tool for Upper {
///     fn name(&self) -> &str {
///         "upper"
///     }
///
///     fn description(&self) -> &str {
///         "Returns a string in upper case."
///     }
///
///     fn input_schema(&self) -> &Value {
///         &self.schema
///     }
///
///     async fn call(&self, input: Value, _: ToolContext) -> Result<Value, BoxError> {
///         let text = input.as_str().ok_or("the input must be a string")?;
///         Ok(text.to_uppercase().into())
///     }
/// }
///
/// let registry = ToolRegistry::default().with(Upper { schema: json!({"type": "string"}) })?;
/// assert_eq!(registry.names(), ["upper"]);
/// # Ok::<(), universal_executor::tool::ToolError>(())
/// ```
#[async_trait]
pub trait Tool: Send + Sync {
    /// Returns the tool name, which has 1 to 64 characters of `a-z`, `0-9`, `.`, `_` and `-`. Requests and calls must use the exact name.
    fn name(&self) -> &str;

    /// Returns the description of the tool, by which a model selects it.
    ///
    /// Write the description for the model: the purpose of the tool, and the cases in which to call
    /// it.
    fn description(&self) -> &str;

    /// Returns the JSON Schema of the tool's input.
    ///
    /// A model receives the schema with the name and the description. With the feature `validate`,
    /// an input that does not match is answered with the error `invalid_input`, and the tool is not
    /// called. Without the feature, any input reaches [`call`](Self::call). A schema of `{}`
    /// accepts everything.
    fn input_schema(&self) -> &Value;

    /// Returns the settings of the tool, such as timeout and retry safety. Defaults to [`ToolSettings::default`].
    ///
    /// The settings must not change after the tool is registered or passed to an executor.
    fn settings(&self) -> &ToolSettings {
        ToolSettings::standard()
    }

    /// Does the work of one tool call, and returns the output.
    ///
    /// The timeout, the limit on concurrent calls, the approval rules and the schema checks do not
    /// apply to a direct call of this method. A [`ToolRegistry`], a [`ToolExecutor`] and a
    /// [`ToolDispatcher`] apply them.
    ///
    /// # Errors
    /// An error is an answer: the requester receives its message with `"status": "error"`.
    ///
    /// In its own run, a tool can return three kinds of error that are not answers. After [`retry_after`](crate::retry_after), the
    /// call is retried, unless the tool runs at most once. After [`suspend`](crate::suspend), the run is suspended. After a transient
    /// error of a store, the call of an idempotent tool is retried. Within the run of an agent, [`ask_human`], [`handoff`] and
    /// [`deferred`] defer the result.
    ///
    /// # Cancel safety
    /// The future can be dropped at any `.await`: after the timeout, or when the run is cancelled or loses its lease.
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

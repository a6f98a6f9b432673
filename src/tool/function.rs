use super::settings::with_settings;
use super::{Tool, ToolContext, ToolSettings};
use crate::error::BoxError;
use async_trait::async_trait;
use futures::future::BoxFuture;
use serde_json::Value;
use std::fmt;

type Function =
    dyn Fn(Value, ToolContext) -> BoxFuture<'static, Result<Value, BoxError>> + Send + Sync;

/// A tool with an async function whose input and output are JSON values. [`json_tool`] creates such a tool.
///
/// The methods set the [settings](ToolSettings) of the tool. They apply however the tool is called.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use std::time::Duration;
/// use universal_executor::tool::{RetrySafety, Tool, json_tool};
///
/// let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
/// let weather = json_tool("weather", "Returns the weather.", schema, |input, _| async move {
///     Ok(json!({"city": input["city"], "celsius": 21}))
/// })
/// .timeout(Duration::from_secs(10))
/// .idempotent()
/// .permission_tags(["egress"]);
///
/// assert_eq!(weather.settings().timeout, Duration::from_secs(10));
/// assert_eq!(weather.settings().retry, RetrySafety::Idempotent);
/// ```
pub struct JsonTool {
    name: String,
    description: String,
    input_schema: Value,
    settings: ToolSettings,
    function: Box<Function>,
}

/// Creates a tool from an async function whose input and output are JSON values. The tool's input schema is a JSON
/// Schema.
///
/// Use `tool_fn` of the feature `schema` instead if the input has a Rust type: it also creates the
/// schema. For a function that blocks its thread, use
/// [`json_tool_blocking`](super::json_tool_blocking).
///
/// - `name` has 1 to 64 characters of `a-z`, `0-9`, `.`, `_` and `-`. This function does not check
///   the name: [`ToolRegistry::with`](super::ToolRegistry::with) and
///   [`ToolExecutor::new`](super::ToolExecutor::new) do.
/// - `description` tells a model when to call the tool.
/// - `input_schema` describes the input. Inputs are checked only with the feature `validate`.
/// - `function` receives the input and the [context](ToolContext) of the call. An error that it
///   returns is the answer of the call, with the code `failed` and a message of at most 4 KiB.
///   [`Tool::call`] lists the exceptions.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::tool::{Tool, ToolContext, json_tool};
/// use universal_executor::{ExecutionContext, MemoryStore, NewBreadcrumb};
///
/// let schema = json!({"type": "integer"});
/// let half = json_tool("half", "Halves a number.", schema, |input, _| async move {
///     match input.as_i64() {
///         Some(number) if number % 2 == 0 => Ok(json!(number / 2)),
///         _ => Err("the input must be an even number".into()),
///     }
/// });
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// // In a unit test, call the tool without an executor.
/// let run = ExecutionContext::for_trigger(NewBreadcrumb::new("tool.request.v1"));
/// let context = ToolContext::for_test(run, Arc::new(MemoryStore::default()));
/// assert_eq!(half.call(json!(8), context.clone()).await?, json!(4));
/// assert!(half.call(json!(7), context).await.is_err());
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub fn json_tool<F, R>(
    name: impl Into<String>,
    description: impl Into<String>,
    input_schema: Value,
    function: F,
) -> JsonTool
where
    F: Fn(Value, ToolContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Value, BoxError>> + Send + 'static,
{
    JsonTool {
        name: name.into(),
        description: description.into(),
        input_schema,
        settings: ToolSettings::default(),
        function: Box::new(move |input, context| Box::pin(function(input, context))),
    }
}

with_settings!(JsonTool);

#[async_trait]
impl Tool for JsonTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn input_schema(&self) -> &Value {
        &self.input_schema
    }

    fn settings(&self) -> &ToolSettings {
        &self.settings
    }

    async fn call(&self, input: Value, context: ToolContext) -> Result<Value, BoxError> {
        (self.function)(input, context).await
    }
}

impl fmt::Debug for JsonTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonTool")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

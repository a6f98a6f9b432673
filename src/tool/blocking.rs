use super::settings::with_settings;
use super::{BlockingPool, Tool, ToolContext, ToolSettings};
use crate::error::BoxError;
use crate::model::dismantle;
use async_trait::async_trait;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

type Function = dyn Fn(Value, ToolContext) -> Result<Value, BoxError> + Send + Sync;

/// A tool whose function blocks its thread. Such a function reads files, computes for a long time, or calls a library without async
/// support.
///
/// The function runs on a [`BlockingPool`]. The time for which a call waits for a slot of the pool counts towards the timeout of the
/// call. A function cannot be stopped: after a timeout or a cancellation it continues, and its result is discarded.
///
/// [`json_tool_blocking`] and `tool_fn_blocking` create such a tool. Its methods set the
/// [settings](ToolSettings), as for a [`JsonTool`](super::JsonTool).
pub struct BlockingTool {
    name: String,
    description: String,
    input_schema: Value,
    settings: ToolSettings,
    function: Arc<Function>,
    pool: BlockingPool,
}

/// Creates a tool from a blocking function whose input and output are JSON values.
///
/// The function runs on [`BlockingPool::shared`], unless [`on`](BlockingTool::on) sets another pool. The function can call
/// `tokio::runtime::Handle::current().block_on(..)` to wait for async work, such as a write to [`ToolContext::store`].
///
/// The parameters are those of [`json_tool`](super::json_tool).
///
/// # Examples
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::machine::{Answer, MachineCall};
/// use universal_executor::tool::{ToolRegistry, json_tool_blocking};
/// use universal_executor::{BreadcrumbStore, ExecutionContext, MemoryStore, NewBreadcrumb};
///
/// let sum = json_tool_blocking("sum", "Adds 1 to n.", json!({"type": "integer"}), |input, _| {
///     Ok(json!((1..=input.as_u64().unwrap_or(0)).sum::<u64>()))
/// });
/// let tools = ToolRegistry::default().with(sum)?;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let run = ExecutionContext::for_trigger(NewBreadcrumb::new("user.message.v1"));
/// let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
/// let call = MachineCall::new("c-1", "sum", json!(100));
/// assert_eq!(tools.call(call, None, &run, &store).await, Answer::success(json!(5050)).into());
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
pub fn json_tool_blocking<F>(
    name: impl Into<String>,
    description: impl Into<String>,
    input_schema: Value,
    function: F,
) -> BlockingTool
where
    F: Fn(Value, ToolContext) -> Result<Value, BoxError> + Send + Sync + 'static,
{
    BlockingTool {
        name: name.into(),
        description: description.into(),
        input_schema,
        settings: ToolSettings::default(),
        function: Arc::new(function),
        pool: BlockingPool::shared(),
    }
}

impl BlockingTool {
    /// Sets the thread pool on which the function of the tool runs. Defaults to [`BlockingPool::shared`].
    #[must_use]
    pub fn on(mut self, pool: &BlockingPool) -> Self {
        self.pool = pool.clone();
        self
    }
}

with_settings!(BlockingTool);

#[async_trait]
impl Tool for BlockingTool {
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
        let function = Arc::clone(&self.function);
        // After a timeout the function continues, and still counts as one of the concurrent calls of the tool.
        let permit = context.permit();
        let work = move || {
            let result = FunctionResult(Some(function(input, context)));
            drop(permit);
            result
        };
        let mut result = self.pool.run(&self.name, work).await?;
        match result.0.take() {
            Some(result) => result,
            None => Err("the tool returned no result".into()),
        }
    }
}

/// Result of a blocking tool's function. If the call timed out and no caller takes the result, it is dismantled level by level,
/// because dropping deeply nested JSON recursively would overflow the stack.
struct FunctionResult(Option<Result<Value, BoxError>>);

impl Drop for FunctionResult {
    fn drop(&mut self) {
        if let Some(Ok(result)) = self.0.take() {
            dismantle(result);
        }
    }
}

impl fmt::Debug for BlockingTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingTool")
            .field("name", &self.name)
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

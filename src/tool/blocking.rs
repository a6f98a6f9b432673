use super::settings::with_settings;
use super::{BlockingPool, Tool, ToolContext, ToolSettings};
use crate::error::BoxError;
use crate::model::dismantle;
use async_trait::async_trait;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

type Function = dyn Fn(Value, ToolContext) -> Result<Value, BoxError> + Send + Sync;

/// A tool from a function that blocks: it reads files, computes for long, or calls a library that is not async.
///
/// The function runs on a [`BlockingPool`]. The time it waits there for a slot counts towards the timeout of the call.
/// A call that has timed out or was cancelled cannot be stopped: the function goes on, and its result is discarded.
pub struct BlockingTool {
    name: String,
    description: String,
    input_schema: Value,
    settings: ToolSettings,
    function: Arc<Function>,
    pool: BlockingPool,
}

/// Makes a tool of a function over JSON that blocks. It runs on [`BlockingPool::shared`] if it is given no other.
///
/// Inside of it `tokio::runtime::Handle::current().block_on(..)` may wait for async work, like writing to
/// [`ToolContext::store`].
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
    /// Sets the pool it runs on.
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
        // A call that was given up goes on, and is still one of those that may go on at a time.
        let slot = context.slot();
        let work = move || {
            let made = Made(Some(function(input, context)));
            drop(slot);
            made
        };
        let mut made = self.pool.run(&self.name, work).await?;
        match made.0.take() {
            Some(made) => made,
            None => Err("the tool made nothing".into()),
        }
    }
}

/// What a function made. If nobody takes it, since its time was up, it is taken apart level by level: it may nest without
/// end.
struct Made(Option<Result<Value, BoxError>>);

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(Ok(made)) = self.0.take() {
            dismantle(made);
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

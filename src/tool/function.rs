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
pub struct JsonTool {
    name: String,
    description: String,
    input_schema: Value,
    settings: ToolSettings,
    function: Box<Function>,
}

/// Creates a tool from an async function whose input and output are JSON values. The tool's input schema is a JSON
/// Schema.
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

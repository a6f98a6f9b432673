use super::Tool;
use crate::model::Json;
use serde::{Deserialize, Serialize};

/// What a model is told of a tool. Its schemas are shared: a clone copies neither.
///
/// ```
/// use serde_json::json;
/// use universal_executor::tool::ToolSpec;
///
/// let weather = ToolSpec::new("weather", "The weather of a city.", json!({"type": "object"}));
///
/// let told = json!({"name": "weather", "description": "The weather of a city.", "inputSchema": {"type": "object"}});
/// assert_eq!(serde_json::to_value(weather)?, told);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolSpec {
    /// Its name: what a call names.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its input.
    pub input_schema: Json,
    /// The JSON Schema of its output, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
}

impl ToolSpec {
    /// A tool of a name, a description and the JSON Schema of its input.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: impl Into<Json>,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            input_schema: input_schema.into(),
            output_schema: None,
        }
    }

    /// What a tool says of itself.
    pub(super) fn of(tool: &dyn Tool) -> Self {
        let output = tool.settings().output_schema.clone();
        Self {
            output_schema: output.map(Json::from),
            ..Self::new(tool.name(), tool.description(), tool.input_schema().clone())
        }
    }
}

use super::Tool;
use crate::model::Json;
use serde::{Deserialize, Serialize};

/// Description of a tool for a model. A clone shares the schemas.
///
/// [`ToolRegistry::specs`](super::ToolRegistry::specs) creates the descriptions of registered
/// tools. Build one with [`new`](Self::new) in the test of a model client. Descriptions serialize
/// in camel case.
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
    /// The name with which a model calls the tool.
    pub name: String,
    /// The description of the tool, by which a model selects it.
    pub description: String,
    /// The JSON Schema of the tool's input.
    pub input_schema: Json,
    /// The JSON Schema of the tool's output, or `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Json>,
}

impl ToolSpec {
    /// Creates the description of a tool for a model, with the JSON Schema of its input, and without an output schema.
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

    /// Creates the description of a tool for a model from the tool itself.
    pub(super) fn of(tool: &dyn Tool) -> Self {
        let output = tool.settings().output_schema.clone();
        Self {
            output_schema: output.map(Json::from),
            ..Self::new(tool.name(), tool.description(), tool.input_schema().clone())
        }
    }
}

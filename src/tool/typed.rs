use super::outcome::Refusal;
use super::{BlockingTool, JsonTool, ToolContext, json_tool, json_tool_blocking};
use crate::error::{BoxError, excerpt, permanent};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Creates a tool from an async function over Rust types. The input schema is generated from the input type.
///
/// Derive `JsonSchema` of the crate `schemars`, version 1, for the input type. Doc comments on fields become descriptions for the
/// model. An input that does not deserialize to the type never reaches the function: the answer is the error `invalid_input` with the
/// path and the reason.
///
/// The function returns any type with `Serialize`, and the output of the call is its JSON.
/// `tool_fn` sets no output schema; [`JsonTool::output_schema`] does. A generated schema has no
/// `$ref`, except for a recursive type, because not every model follows references.
///
/// The input is deserialized without the feature `validate`, too. Use
/// `#[serde(deny_unknown_fields)]` to refuse fields that the type does not have.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use universal_executor::tool::{Tool, tool_fn};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Add {
///     /// The first number.
///     a: i64,
///     b: i64,
/// }
///
/// let adder = tool_fn("adder", "Adds two numbers.", |input: Add, _| async move { Ok(input.a + input.b) });
///
/// assert_eq!(adder.input_schema()["properties"]["a"]["description"], "The first number.");
/// ```
pub fn tool_fn<T, R, F, A>(
    name: impl Into<String>,
    description: impl Into<String>,
    function: F,
) -> JsonTool
where
    T: DeserializeOwned + JsonSchema + Send + 'static,
    R: Serialize,
    F: Fn(T, ToolContext) -> A + Send + Sync + 'static,
    A: Future<Output = Result<R, BoxError>> + Send + 'static,
{
    json_tool(
        name,
        description,
        schema_of::<T>(),
        move |input, context| {
            let called = typed(input).map(|input| function(input, context));
            async move { untyped(&called?.await?) }
        },
    )
}

/// Creates a tool from a blocking function over Rust types. See [`tool_fn`] for the types and [`BlockingTool`] for blocking functions.
///
/// Use this function for file access, long computations and libraries without async support. It
/// runs on [`BlockingPool::shared`](super::BlockingPool::shared), unless [`BlockingTool::on`] sets
/// another pool.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use universal_executor::tool::tool_fn_blocking;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Read { path: String }
///
/// let read = tool_fn_blocking("read", "Reads a file.", |input: Read, _| Ok(std::fs::read_to_string(input.path)?));
/// ```
pub fn tool_fn_blocking<T, R, F>(
    name: impl Into<String>,
    description: impl Into<String>,
    function: F,
) -> BlockingTool
where
    T: DeserializeOwned + JsonSchema + Send + 'static,
    R: Serialize,
    F: Fn(T, ToolContext) -> Result<R, BoxError> + Send + Sync + 'static,
{
    let over_json = move |input, context| untyped(&function(typed(input)?, context)?);
    json_tool_blocking(name, description, schema_of::<T>(), over_json)
}

/// Returns the JSON Schema of a Rust type with inlined subschemas, because not every model follows a `$ref`. Only the schema of a
/// recursive type has a `$ref`.
fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

fn typed<T: DeserializeOwned>(input: Value) -> Result<T, BoxError> {
    serde_path_to_error::deserialize(input).map_err(|error| {
        let path = error.path().to_string();
        let (path, why) = (excerpt(&path, 200), error.inner().to_string());
        let why = excerpt(&why, 400);
        let message = match &*path {
            "." => format!("the input does not fit: {why}"),
            _ => format!("the input does not fit at {path}: {why}"),
        };
        Refusal::new("invalid_input", message).into()
    })
}

fn untyped(output: &impl Serialize) -> Result<Value, BoxError> {
    let output = serde_json::to_value(output);
    output.map_err(|error| {
        permanent(format!(
            "the output of the tool cannot be converted to JSON: {error}"
        ))
    })
}

//! The operations that an MCP server offers: their definitions, the requests to their executors, and the conversion of the replies.

use crate::client::Reply;
use crate::model::NewBreadcrumb;
use crate::tool::{Checker, ToolSpec};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// An operation that an [`McpService`](super::McpService) offers to MCP clients: a request to an executor.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::NewBreadcrumb;
/// use universal_executor::mcp::McpOperation;
///
/// let schema = json!({"type": "object", "properties": {"count": {"type": "integer"}}});
/// let price = McpOperation::new("price", "Returns the price of an order.", schema, "pricing", |input| {
///     NewBreadcrumb::new("order.v1").context(input)
/// });
/// assert_eq!(price.name(), "price");
/// ```
#[derive(Clone)]
pub struct McpOperation {
    name: String,
    description: String,
    input_schema: Value,
    /// The schema of structured content, which MCP permits only for objects.
    output_schema: Option<Arc<JsonObject>>,
    executor: String,
    request: Arc<dyn Fn(Value) -> NewBreadcrumb + Send + Sync>,
    /// The compiled schema of the input, or the problem of the schema. `None` if the executor checks its input.
    checker: Option<Arc<Result<Checker, String>>>,
}

impl McpOperation {
    /// Creates an operation that sends the breadcrumb of `request` to an executor, whose response is the result.
    ///
    /// `input_schema` is the JSON Schema of an object. With the feature `validate`, input that does not match it is refused before a request
    /// is sent. The breadcrumb for equal input must be equal, so it must not contain the time.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
        executor: impl Into<String>,
        request: impl Fn(Value) -> NewBreadcrumb + Send + Sync + 'static,
    ) -> Self {
        let checker = Checker::compile(&input_schema);
        Self {
            name: name.into(),
            description: description.into(),
            input_schema,
            output_schema: None,
            executor: executor.into(),
            request: Arc::new(request),
            checker: Some(Arc::new(checker)),
        }
    }

    /// Returns the name of the operation.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn tool(dispatcher: &str, spec: &ToolSpec) -> Self {
        let (name, schema) = (spec.name.clone(), Value::clone(&spec.input_schema));
        let tool = name.clone();
        let request = move |input| {
            let context = json!({"tool": tool, "input": input});
            NewBreadcrumb::new("tool.request.v1")
                .title(format!("Request: {tool}"))
                .tags(["tool:request", "workspace:tools"])
                .context(context)
        };
        let mut operation = Self::new(name, &*spec.description, schema, dispatcher, request);
        // The dispatcher checks the input.
        operation.checker = None;
        let output = spec.output_schema.as_deref().and_then(Value::as_object);
        let output = output.filter(|schema| schema.get("type") == Some(&json!("object")));
        operation.output_schema = output.cloned().map(Arc::new);
        operation
    }

    pub(super) fn agent(id: &str, description: impl Into<String>) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {"message": {"type": "string", "description": "The message to the agent."}},
            "required": ["message"],
        });
        let tag = format!("agent:{id}");
        Self::new(id, description, schema, id, move |input| {
            let message = NewBreadcrumb::new("user.message.v1");
            message.tags([&*tag]).context(input)
        })
    }

    pub(super) fn workflow(id: &str, description: impl Into<String>, schema: Value) -> Self {
        let workflow = id.to_owned();
        Self::new(id, description, schema, id, move |input| {
            let context = json!({"workflow": workflow, "input": input});
            NewBreadcrumb::new("workflow.request.v1").context(context)
        })
    }

    pub(super) fn executor(&self) -> &str {
        &self.executor
    }

    /// Checks the arguments of a call against the schema.
    ///
    /// # Errors
    /// A sentence with the problem, for the client's model.
    pub(super) fn check(&self, arguments: &Value) -> Result<(), String> {
        match self.checker.as_deref() {
            None => Ok(()),
            Some(Ok(checker)) => {
                let checked = checker.check(arguments);
                checked.map_err(|problem| format!("invalid input: {problem}"))
            }
            Some(Err(problem)) => {
                let name = &self.name;
                Err(format!("the input schema of {name} is invalid: {problem}"))
            }
        }
    }

    pub(super) fn request(&self, arguments: Value) -> NewBreadcrumb {
        (self.request)(arguments)
    }

    /// Returns the operation as a tool in the list of an MCP server.
    pub(super) fn listed(&self) -> Tool {
        let schema = match &self.input_schema {
            Value::Object(schema) => schema.clone(),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => JsonObject::new(),
        };
        let mut schema = schema;
        // The protocol permits only schemas of objects.
        schema.entry("type").or_insert_with(|| "object".into());
        let tool = Tool::new(self.name.clone(), self.description.clone(), schema);
        match &self.output_schema {
            Some(schema) => tool.with_raw_output_schema(Arc::clone(schema)),
            None => tool,
        }
    }
}

impl fmt::Debug for McpOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpOperation")
            .field("name", &self.name)
            .field("executor", &self.executor)
            .finish_non_exhaustive()
    }
}

/// Converts the reply of a run to the result of a call: the text of an agent, the output or the error of a tool, or the context of any
/// other response.
pub(super) fn result(reply: &Reply) -> CallToolResult {
    let Some(response) = reply.response() else {
        return CallToolResult::success(vec![ContentBlock::text("the run wrote no response")]);
    };
    let context = &response.context;
    match response.schema_name.as_deref() {
        Some("tool.response.v1") => match context.get("status").and_then(Value::as_str) {
            Some("success") => of_value(context.get("output").unwrap_or(&Value::Null)),
            Some(_) | None => {
                let error = context.get("error").and_then(Value::as_str);
                failed(error.unwrap_or("the tool failed"))
            }
        },
        Some("agent.response.v1") => match context.text("message") {
            Some(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            None => of_value(context),
        },
        Some(_) | None => of_value(context),
    }
}

/// Returns a result that the client's model reads as an error.
pub(super) fn failed(message: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message)])
}

fn of_value(value: &Value) -> CallToolResult {
    match value {
        Value::String(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
        // Structured content is repeated as text for clients that read only text.
        Value::Object(_) => CallToolResult::structured(value.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            CallToolResult::success(vec![ContentBlock::text(value.to_string())])
        }
    }
}

use crate::runtime::definitions::StoredDefinitions;
use serde::Serialize;
use serde_json::Value;

/// The kind of a definition to check, such as an agent or a workflow.
///
/// The schema name of a breadcrumb decides the kind. JSON without a schema name is recognised by
/// its fields, such as `agent_id` or `flows`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// Definition of an agent, with the schema `agent.def.v1`.
    Agent,
    /// Definition of a tool that runs as a function registered in a service. Its schema is `tool.v1`.
    Tool,
    /// Definition of a tool with code that runs on an RCRT server. Its schema is `tool.code.v1`.
    ///
    /// The check reports a warning for its code, because a worker of this crate cannot execute the
    /// code.
    RemoteTool,
    /// Definition of a breadcrumb schema, which can have `llm_hints` for the breadcrumbs of the schema. Its schema is
    /// `schema.def.v1`.
    ///
    /// Its tag `defines:<schema>` names the schema. A definition without this tag gives a warning.
    Schema,
    /// Definition of a workflow, either a breadcrumb with the schema `workflow.def.v1`, or a file with `flows` or `agents`. A workflow can
    /// also answer messages as a [workload](crate::workload).
    Workflow,
    /// A list of subscriptions that is not part of a definition.
    Subscriptions,
    /// A breadcrumb with a schema that is not the schema of a definition.
    ///
    /// The check reports a warning.
    Other,
    /// An input that is neither a known definition nor a list of subscriptions, or is not valid JSON or YAML.
    ///
    /// The check reports an error.
    Unknown,
}

impl Kind {
    /// Schema name of the breadcrumbs that define tools whose code runs on an RCRT server.
    pub const REMOTE_TOOL: &'static str = "tool.code.v1";
    /// Schema name of the breadcrumbs that define schemas.
    pub const SCHEMA: &'static str = "schema.def.v1";
    /// Schema names of the breadcrumbs with definitions that a check supports.
    pub const SCHEMAS: [&'static str; 5] = [
        StoredDefinitions::AGENT,
        StoredDefinitions::TOOL,
        Self::REMOTE_TOOL,
        Self::SCHEMA,
        StoredDefinitions::WORKFLOW,
    ];

    /// Returns the name of this kind of definition for the output of a check, such as `agent` or `remote tool`.
    ///
    /// ```
    /// use universal_executor::check::Kind;
    ///
    /// assert_eq!(Kind::RemoteTool.as_str(), "remote tool");
    /// ```
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Tool => "tool",
            Self::RemoteTool => "remote tool",
            Self::Schema => "schema",
            Self::Workflow => "workflow",
            Self::Subscriptions => "subscriptions",
            Self::Other => "other",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the kind of a definition by the schema of the breadcrumb that contains it, or else by the definition's fields.
    pub(super) fn of(value: &Value) -> Self {
        let schema = value.get("schema_name").and_then(Value::as_str);
        let context = value.get("context");
        match (schema, context) {
            (Some(schema), Some(_)) => Self::of_schema(schema),
            (None, Some(context)) => Self::of_fields(context),
            (None | Some(_), None) => Self::of_fields(value),
        }
    }

    fn of_schema(schema: &str) -> Self {
        match schema {
            StoredDefinitions::AGENT => Self::Agent,
            StoredDefinitions::TOOL => Self::Tool,
            Self::REMOTE_TOOL => Self::RemoteTool,
            Self::SCHEMA => Self::Schema,
            StoredDefinitions::WORKFLOW => Self::Workflow,
            _ => Self::Other,
        }
    }

    fn of_fields(value: &Value) -> Self {
        let has = |field: &str| value.get(field).is_some();
        let has_list = has("subscriptions") || has("selectors");
        if has("agent_id") {
            Self::Agent
        } else if has("flows") || has("agents") || has("workflow_id") {
            Self::Workflow
        } else if has("code") && has("name") {
            Self::RemoteTool
        } else if has_list && (has("system_prompt") || has("model") || has("tools")) {
            Self::Agent
        } else if has_list && has("name") {
            Self::Tool
        } else if has_list || value.is_array() {
            Self::Subscriptions
        } else {
            Self::Unknown
        }
    }
}

//! Checks of tool definitions, also of tools whose code runs on an RCRT server.

use super::common::CheckContext;
use super::related::Declaration;
use crate::error::{Chain, excerpt};
use crate::model::{DefinitionPath, Finding, KnownFields, Subscriptions};
use crate::tool::{ToolDefinition, ToolError, ToolExecutor};
use serde_json::Value;

pub(super) fn check(context: &mut CheckContext<'_>) -> Option<Declaration> {
    context.extend(ToolDefinition::check_fields(context.value, context.options));
    let subscriptions = context.subscriptions("tool");
    let top = DefinitionPath::default();
    let schemas = top.field("definition");
    for field in ["inputSchema", "outputSchema"] {
        let schema = context
            .value
            .get("definition")
            .and_then(|all| all.get(field));
        context.check_schema(&schemas.field(field), schema);
    }
    match ToolDefinition::from_json_with(context.value, &context.lenient()) {
        Ok(definition) => {
            let mut writes = definition.responds_with;
            writes.push(ToolExecutor::RESPONSE.to_owned());
            Some(Declaration {
                id: definition.name,
                kind: "tool",
                subscriptions: subscriptions?,
                writes: Some(writes),
            })
        }
        // The checks above have already reported these errors.
        Err(ToolError::Subscriptions { .. } | ToolError::UnknownField { .. }) => None,
        Err(ToolError::Field { field, expected }) => {
            let message = format!("field {field:?} must be {expected}");
            context.push(Finding::error(top.field(field), message));
            None
        }
        Err(
            error @ (ToolError::BadName { .. }
            | ToolError::BadSchema { .. }
            | ToolError::Duplicate { .. }
            | ToolError::Elsewhere { .. }
            | ToolError::OtherTool { .. }
            | ToolError::Invalid(_)),
        ) => {
            context.push(Finding::error(top, Chain(&error).to_string()));
            None
        }
    }
}

static REMOTE: KnownFields<'static> = KnownFields {
    names: &[
        "code",
        "description",
        "examples",
        "input_schema",
        "limits",
        "name",
        "output_schema",
        "permissions",
        "required_secrets",
        "response_handling",
        "ui_schema",
        "version",
    ],
    aliases: &[
        ("inputSchema", &["input_schema"]),
        ("outputSchema", &["output_schema"]),
        ("secrets", &["required_secrets"]),
    ],
};
static CODE: KnownFields<'static> = plain(&["language", "source"]);
static PERMISSIONS: KnownFields<'static> =
    plain(&["net", "read", "write", "env", "run", "ffi", "hrtime"]);
static LIMITS: KnownFields<'static> = plain(&["timeout_ms", "memory_mb", "cpu_percent"]);
static EXAMPLE: KnownFields<'static> = plain(&["description", "input", "output", "explanation"]);

const fn plain(names: &'static [&'static str]) -> KnownFields<'static> {
    KnownFields {
        names,
        aliases: &[],
    }
}

/// Checks a tool whose code runs on an RCRT server. The code gives a warning, because a worker of this crate cannot run it.
pub(super) fn check_remote(context: &mut CheckContext<'_>) -> Option<Declaration> {
    let (value, top) = (context.value, DefinitionPath::default());
    context.check_fields(&REMOTE, &top, value);
    for (field, known) in [
        ("code", &CODE),
        ("permissions", &PERMISSIONS),
        ("limits", &LIMITS),
    ] {
        let part = value.get(field).unwrap_or(&Value::Null);
        context.check_fields(known, &top.field(field), part);
    }
    let examples = value.get("examples").and_then(Value::as_array);
    for (at, example) in examples.into_iter().flatten().enumerate() {
        context.check_fields(&EXAMPLE, &top.field("examples").item(at), example);
    }
    for field in ["input_schema", "output_schema"] {
        context.check_schema(&top.field(field), value.get(field));
    }
    let code = value.get("code");
    let language = code.and_then(|code| code.get("language")?.as_str());
    let language = excerpt(language.unwrap_or("unknown"), 40);
    let message = format!(
        "remote tool: its code ({language}) needs another runtime; publish it to models as a remote tool, or serve its name with a Rust function"
    );
    context.push(Finding::warning(top.field("code"), message));
    let Some(name) = context.text("name") else {
        let message = "field \"name\" must be a string";
        context.push(Finding::error(top.field("name"), message));
        return None;
    };
    Some(Declaration {
        id: name.to_owned(),
        kind: "tool",
        subscriptions: Subscriptions::default(),
        writes: Some(vec![ToolExecutor::RESPONSE.to_owned()]),
    })
}

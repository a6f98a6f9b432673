//! Functions that read and check the fields of an agent definition. Their errors name the field.

use super::{AgentRef, Budgets};
use crate::agent::{AgentCapabilities, AgentError};
use crate::executor::{ContextBudget, Format, check_id};
use crate::model::{Json, is_comment};
use crate::request::agents;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::num::{NonZeroU64, NonZeroUsize};

/// Reads the ID of an agent from its definition.
pub(super) fn agent_id(fields: &Map<String, Value>) -> Result<String, AgentError> {
    let (field, expected) = ("agent_id", "a string");
    let id: Option<String> = read(fields, field, expected)?;
    let id = id.ok_or(AgentError::Field { field, expected })?;
    check_id(&id).map_err(AgentError::BadId)?;
    Ok(id)
}

/// Returns, from an agent's definition, the schemas of the breadcrumbs that the agent may write. Without `capabilities` these
/// must include `agent.response.v1`, because the agent could write nothing otherwise.
pub(super) fn responds_with(fields: &Map<String, Value>) -> Result<Vec<String>, AgentError> {
    let (field, answer) = ("responds_with", agents::RESPONSE);
    let schemas: Option<Vec<String>> = read(fields, field, "a list of schema names")?;
    let schemas = schemas.unwrap_or_else(|| vec![answer.to_owned()]);
    let has_capabilities = non_null(fields, "capabilities").is_some();
    if !has_capabilities && !schemas.iter().any(|schema| schema == answer) {
        let expected = "a list that contains \"agent.response.v1\", unless the definition has \"capabilities\"";
        return Err(AgentError::Field { field, expected });
    }
    Ok(schemas)
}

/// Returns `true` if an agent definition explicitly permits the creation of breadcrumbs and has no list `responds_with`.
pub(super) fn creates_any_schema(fields: &Map<String, Value>) -> bool {
    let capabilities = non_null(fields, "capabilities");
    let creates = capabilities.and_then(|capabilities| capabilities.get(AgentCapabilities::CREATE));
    creates == Some(&Value::Bool(true)) && non_null(fields, "responds_with").is_none()
}

/// Returns `true` if the rules of RCRT servers let an agent call every registered tool. Its definition must explicitly permit the
/// creation of breadcrumbs, and must neither list nor forbid tools.
pub(super) fn uses_any_tool(fields: &Map<String, Value>) -> bool {
    let capabilities = non_null(fields, "capabilities");
    let has_capability = |name: &str, value: bool| {
        let found = capabilities.and_then(|capabilities| capabilities.get(name));
        found == Some(&Value::Bool(value))
    };
    has_capability(AgentCapabilities::CREATE, true)
        && !has_capability(AgentCapabilities::USE_TOOLS, false)
        && non_null(fields, "tools").is_none()
}

/// Reads from an agent definition a list of other agents that the agent may call.
pub(super) fn agent_refs(
    fields: &Map<String, Value>,
    field: &'static str,
) -> Result<Vec<AgentRef>, AgentError> {
    let expected = "a list of agent IDs, or of objects with \"agent\" and \"description\"; an agent ID has 1 to 256 bytes and no control characters";
    let agent_refs: Vec<AgentRef> = read(fields, field, expected)?.unwrap_or_default();
    match agent_refs
        .iter()
        .all(|agent_ref| check_id(&agent_ref.agent).is_ok())
    {
        true => Ok(agent_refs),
        false => Err(AgentError::Field { field, expected }),
    }
}

/// Returns the value of a field of an agent definition, or `None` if the field is missing or null.
pub(super) fn non_null<'f>(fields: &'f Map<String, Value>, field: &str) -> Option<&'f Value> {
    fields.get(field).filter(|value| !value.is_null())
}

pub(super) fn format(fields: &Map<String, Value>) -> Result<Format, AgentError> {
    let (field, expected) = ("context_format", "\"markdown\" or \"xml\"");
    let name: Option<String> = read(fields, field, expected)?;
    match name.as_deref() {
        None => Ok(Format::default()),
        Some("markdown") => Ok(Format::Markdown),
        Some("xml") => Ok(Format::Xml),
        Some(_) => Err(AgentError::Field { field, expected }),
    }
}

pub(super) fn budgets(fields: &Map<String, Value>) -> Result<Budgets, AgentError> {
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Limits {
        tokens: Option<NonZeroU64>,
        calls: Option<NonZeroU64>,
        seconds: Option<NonZeroU64>,
    }
    let expected =
        "an object of \"tokens\", \"calls\" and \"seconds\", whole numbers greater than 0";
    let limits: Option<Limits> = read_commented(fields, "budgets", expected)?;
    let limits = limits.unwrap_or_default();
    Ok(Budgets {
        tokens: limits.tokens.map(NonZeroU64::get),
        calls: limits.calls.map(NonZeroU64::get),
        seconds: limits.seconds.map(NonZeroU64::get),
    })
}

pub(super) fn output_schema(fields: &Map<String, Value>) -> Result<Option<Json>, AgentError> {
    let (field, expected) = ("output_schema", "a JSON Schema, which is an object");
    let schema: Option<Map<String, Value>> = read(fields, field, expected)?;
    Ok(schema.map(|schema| Value::Object(schema).into()))
}

pub(super) fn budget(fields: &Map<String, Value>) -> Result<ContextBudget, AgentError> {
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Limits {
        tokens: Option<NonZeroUsize>,
        bytes: Option<NonZeroUsize>,
        items_per_source: Option<NonZeroUsize>,
    }
    let expected =
        "an object of \"tokens\", \"bytes\" and \"items_per_source\", whole numbers greater than 0";
    let limits: Option<Limits> = read_commented(fields, "context_budget", expected)?;
    let limits = limits.unwrap_or_default();
    let mut budget = ContextBudget::default();
    if let Some(tokens) = limits.tokens {
        budget = budget.tokens(tokens.get());
    }
    if let Some(bytes) = limits.bytes {
        budget = budget.bytes(bytes.get());
    }
    if let Some(items) = limits.items_per_source {
        budget = budget.items_per_source(items.get());
    }
    Ok(budget)
}

/// Reads a field of an agent definition, or returns `None` if the field is missing or null.
pub(super) fn read<T: DeserializeOwned>(
    fields: &Map<String, Value>,
    field: &'static str,
    expected: &'static str,
) -> Result<Option<T>, AgentError> {
    match non_null(fields, field) {
        None => Ok(None),
        Some(value) => match T::deserialize(value) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(AgentError::Field { field, expected }),
        },
    }
}

/// Reads a field of an agent definition, an object or a list of objects, and omits the comment fields in these objects. Returns
/// `None` if the field is missing or null.
pub(super) fn read_commented<T: DeserializeOwned>(
    fields: &Map<String, Value>,
    field: &'static str,
    expected: &'static str,
) -> Result<Option<T>, AgentError> {
    let Some(value) = non_null(fields, field) else {
        return Ok(None);
    };
    let mut value = value.clone();
    let strip = |value: &mut Value| {
        if let Value::Object(object) = value {
            object.retain(|name, _| !is_comment(name));
        }
    };
    strip(&mut value);
    if let Value::Array(items) = &mut value {
        items.iter_mut().for_each(strip);
    }
    match T::deserialize(value) {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(AgentError::Field { field, expected }),
    }
}

use super::AgentError;
use serde::Serialize;
use serde_json::{Map, Value};

/// The breadcrumb writes that an agent's answers may make: the field `capabilities` of its definition.
///
/// An agent writes only the schemas in its `responds_with`, unless
/// [`creates_any_schema`](super::AgentDefinition::creates_any_schema) is set.
///
/// Even an empty object `capabilities` in a definition permits actions, because creation is allowed
/// by default. Without the field, every answer is text.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::agent::AgentDefinition;
///
/// let definition = AgentDefinition::from_json(&json!({
///     "agent_id": "notes", "system_prompt": "Keep notes.",
///     "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
///     "responds_with": ["agent.response.v1", "note.v1"],
///     "capabilities": {"can_update_own": true},
/// }))?;
/// let may = definition.capabilities.ok_or("no capabilities")?;
/// assert!(may.can_create_breadcrumbs && may.can_update_own);
/// assert!(!may.can_delete_own && !may.can_spawn_agents);
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "definitions have these fields, and each is independent of the others"
)]
#[non_exhaustive]
pub struct AgentCapabilities {
    /// If `true`, the agent may create breadcrumbs. Defaults to `true`.
    pub can_create_breadcrumbs: bool,
    /// If `true`, the agent may change breadcrumbs whose current version it wrote. Defaults to `false`.
    ///
    /// The action must name the current version. Otherwise the model receives the reason and may
    /// answer again.
    pub can_update_own: bool,
    /// If `true`, the agent may delete breadcrumbs whose current version it wrote. Defaults to `false`.
    pub can_delete_own: bool,
    /// If `true`, the agent may write breadcrumbs that define agents, tools, workflows or schemas. A runtime can create executors
    /// from these definitions. Defaults to `false`.
    ///
    /// The schemas must also be in `responds_with`. Grant this only to agents whose input you
    /// trust: a definition can name tools that the agent itself may not call.
    pub can_spawn_agents: bool,
}

impl Default for AgentCapabilities {
    fn default() -> Self {
        Self {
            can_create_breadcrumbs: true,
            can_update_own: false,
            can_delete_own: false,
            can_spawn_agents: false,
        }
    }
}

impl AgentCapabilities {
    /// The names of all fields in `capabilities` of an agent definition.
    pub(super) const ALL: [&'static str; 4] =
        [Self::CREATE, Self::UPDATE, Self::DELETE, Self::SPAWN];
    pub(in crate::agent) const CREATE: &'static str = "can_create_breadcrumbs";
    /// The name of the field in `capabilities` with which an agent definition for RCRT servers permits tools. If the field is `false`,
    /// an agent without a list of tools may call no tools.
    pub(in crate::agent) const USE_TOOLS: &'static str = "can_use_tools";
    pub(super) const UPDATE: &'static str = "can_update_own";
    pub(super) const DELETE: &'static str = "can_delete_own";
    pub(super) const SPAWN: &'static str = "can_spawn_agents";

    /// Reads the field `capabilities` of an agent definition. A capability that is absent or null has its default. An unknown capability
    /// has no effect; [`AgentDefinition::warnings`](super::AgentDefinition::warnings) names it.
    ///
    /// # Errors
    /// Returns [`AgentError`] for a capability that is not `true` or `false`.
    pub(super) fn read(definition: &Map<String, Value>) -> Result<Self, AgentError> {
        let field = "capabilities";
        let mut capabilities = Self::default();
        let fields = match definition.get(field) {
            None | Some(Value::Null) => return Ok(capabilities),
            Some(Value::Object(fields)) => fields,
            Some(Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                let expected = "an object";
                return Err(AgentError::Field { field, expected });
            }
        };
        for (name, value) in fields {
            let (field, capability) = match &**name {
                Self::CREATE => (Self::CREATE, &mut capabilities.can_create_breadcrumbs),
                Self::UPDATE => (Self::UPDATE, &mut capabilities.can_update_own),
                Self::DELETE => (Self::DELETE, &mut capabilities.can_delete_own),
                Self::SPAWN => (Self::SPAWN, &mut capabilities.can_spawn_agents),
                _ => continue,
            };
            let expected = "true or false";
            *capability = match value {
                Value::Bool(may) => *may,
                Value::Null => continue,
                Value::Array(_) | Value::Number(_) | Value::Object(_) | Value::String(_) => {
                    return Err(AgentError::Field { field, expected });
                }
            };
        }
        Ok(capabilities)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(definition: &Value) -> Result<AgentCapabilities, AgentError> {
        AgentCapabilities::read(definition.as_object().unwrap())
    }

    #[test]
    fn an_agent_may_only_create_breadcrumbs_by_default() {
        let default = AgentCapabilities::default();
        let careful = AgentCapabilities {
            can_create_breadcrumbs: false,
            can_update_own: true,
            ..default
        };

        for nothing in [
            json!({}),
            json!({"capabilities": null}),
            json!({"capabilities": {}}),
        ] {
            assert_eq!(read(&nothing).unwrap(), default, "{nothing}");
        }
        assert!(default.can_create_breadcrumbs);
        assert!(!default.can_update_own && !default.can_delete_own && !default.can_spawn_agents);
        let definition = json!({"capabilities": {"can_create_breadcrumbs": false, "can_update_own": true, "can_delete_own": null}});
        assert_eq!(read(&definition).unwrap(), careful);
    }

    #[test]
    fn an_unknown_capability_grants_and_restricts_nothing() {
        let definition =
            json!({"capabilities": {"can_use_tools": true, "can_fly": "high", "comment": "no"}});

        assert_eq!(read(&definition).unwrap(), AgentCapabilities::default());
    }

    #[test]
    fn a_capability_that_is_not_true_or_false_is_named() {
        for (value, named) in [
            (json!({"can_delete_own": "no"}), "\"can_delete_own\""),
            (json!(["can_delete_own"]), "\"capabilities\""),
        ] {
            let error = read(&json!({"capabilities": value})).unwrap_err();

            assert!(error.to_string().contains(named), "{error}");
        }
    }
}

//! Functions that combine an agent definition with the registered tools when an agent executor is created.

use super::tool_offer::ToolOffer;
use super::{AgentDefinition, AgentError, Provider};
use crate::error::excerpt;
use crate::request::{agents, human};
use crate::tool::{Tool, ToolExecutor, ToolPermissions, ToolRegistry};

/// Adds settings of the registered tools to an agent definition: the tools' approval rules, and in `return_to_user` the tools
/// whose results are the agent's answer.
pub(super) fn apply_tool_settings(definition: &mut AgentDefinition, tools: &ToolRegistry) {
    for name in tools.names() {
        let Some(settings) = tools.get(name).map(Tool::settings) else {
            continue;
        };
        for rule in &settings.approvals {
            definition.approval.add(name, rule.clone());
        }
        let names = &mut definition.return_to_user;
        if settings.returns_to_user && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
}

/// Returns the schemas of the requests that an agent writes to tools, agents and people.
pub(super) fn request_schemas(
    definition: &AgentDefinition,
    provider: &dyn Provider,
    tools: &ToolRegistry,
    tool_offer: &ToolOffer,
) -> Vec<&'static str> {
    let names = tools.names();
    let is_over_breadcrumbs = |name: &&str| {
        let tool = tools.get(name);
        tool.is_some_and(|tool| tool.settings().over_breadcrumbs)
    };
    let mut schemas = Vec::new();
    if provider.asks_by_breadcrumb() || names.iter().any(is_over_breadcrumbs) {
        schemas.push(ToolExecutor::REQUEST);
    }
    if tool_offer.has_agents() {
        schemas.push(agents::REQUEST);
    }
    if !definition.tools.is_empty() {
        schemas.push(human::REQUEST);
    }
    schemas
}

/// Returns a registry of only the tools that an agent definition names.
///
/// # Errors
/// [`AgentError::UnknownTool`] if `tools` names an unregistered tool, or if an approval rule or `return_to_user` names a tool that
/// `tools` does not have.
pub(super) fn named_tools(
    definition: &AgentDefinition,
    registered: &ToolRegistry,
) -> Result<ToolRegistry, AgentError> {
    let named = |name: &String| definition.tools.contains(name);
    let unknown = |name: &&String| registered.get(name).is_none() || !named(name);
    let tools = definition.tools.iter();
    let approved = definition.approval.tools.iter().map(|rule| &rule.tool);
    let mut names = tools.chain(approved).chain(&definition.return_to_user);
    if let Some(name) = names.find(unknown) {
        return Err(AgentError::UnknownTool {
            agent: definition.agent_id.clone(),
            tool: excerpt(name, 80).into_owned(),
            known: match registered.names().as_slice() {
                [] => "none".to_owned(),
                names => names.join(", "),
            },
        });
    }
    Ok(registered.allowed(&ToolPermissions::names(&definition.tools)))
}

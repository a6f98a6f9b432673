//! What an executor is made of: a definition, and what a registry has for it.

use super::offer::Offer;
use super::{AgentDefinition, AgentError, Provider};
use crate::error::excerpt;
use crate::request::{agents, human};
use crate::tool::{Tool, ToolExecutor, ToolPermissions, ToolRegistry};

/// Writes into a definition what its tools say of themselves.
pub(super) fn settle(definition: &mut AgentDefinition, tools: &ToolRegistry) {
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

/// The schemas that an agent writes to ask others.
pub(super) fn asks(
    definition: &AgentDefinition,
    provider: &dyn Provider,
    tools: &ToolRegistry,
    offer: &Offer,
) -> Vec<&'static str> {
    let names = tools.names();
    let elsewhere = |name: &&str| {
        let tool = tools.get(name);
        tool.is_some_and(|tool| tool.settings().over_breadcrumbs)
    };
    let mut asks = Vec::new();
    if provider.asks_by_breadcrumb() || names.iter().any(elsewhere) {
        asks.push(ToolExecutor::REQUEST);
    }
    if offer.has_agents() {
        asks.push(agents::REQUEST);
    }
    if !definition.tools.is_empty() {
        asks.push(human::REQUEST);
    }
    asks
}

/// The tools that a definition names: what it does not name does not exist for the agent.
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

//! The tools, other agents and additional outputs that an agent's model may call, each by a unique name.

use super::{AgentDefinition, AgentError, AgentRef, ToolSpec};
use crate::machine::{Policy, Slot};
use crate::tool::{Checker, ToolRegistry};
use serde_json::json;
use std::collections::BTreeMap;

/// All tools, agents and outputs that one agent's model may call.
#[derive(Debug, Default)]
pub(super) struct ToolOffer {
    /// The descriptions of all tools, agents and outputs that the model may call. The model receives the descriptions.
    pub(super) specs: Vec<ToolSpec>,
    /// The other agents and the additional outputs that the model may call, by name.
    targets: BTreeMap<String, NonToolTarget>,
}

/// Another agent or an additional output that a model calls like a tool.
#[derive(Debug)]
pub(super) enum NonToolTarget {
    Agent {
        agent: String,
        mode: AgentCallMode,
    },
    /// An additional output that the model submits by a call, with the checker of the output's JSON Schema.
    Output(Checker),
}

/// The way in which an agent calls another agent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AgentCallMode {
    /// The agent calls the other agent with a tool named like the other agent, and receives the other agent's answer as the
    /// tool's result.
    Use,
    /// The agent calls the other agent with the tool `handoff-to-<id>`, and receives the other agent's answer as the tool's
    /// result.
    Handoff,
    /// The agent delegates the rest of the run to the other agent with the tool `delegate-to-<id>`, so that the other agent's
    /// answer is the answer of the run.
    Delegate,
}

impl ToolOffer {
    /// Returns all tools, agents and outputs that an agent's model may call.
    ///
    /// # Errors
    /// [`AgentError`] if two names are equal, if the agent calls itself, or if the schema of an output cannot be used.
    pub(super) fn of(
        definition: &AgentDefinition,
        tools: &ToolRegistry,
    ) -> Result<Self, AgentError> {
        let mut tool_offer = Self {
            specs: tools.specs(),
            targets: BTreeMap::new(),
        };
        for (mode, agent_refs) in [
            (AgentCallMode::Use, &definition.uses),
            (AgentCallMode::Handoff, &definition.handoff),
            (AgentCallMode::Delegate, &definition.delegate),
        ] {
            for agent_ref in agent_refs {
                tool_offer.agent(definition, agent_ref, mode)?;
            }
        }
        for output in &definition.outputs {
            let checker =
                Checker::compile(&output.schema).map_err(|reason| AgentError::BadOutputSchema {
                    agent: definition.agent_id.clone(),
                    reason: format!("output {:?}: {reason}", output.name),
                })?;
            let spec = ToolSpec::new(&*output.name, &*output.description, output.schema.clone());
            tool_offer.add(definition, spec, NonToolTarget::Output(checker))?;
        }
        Ok(tool_offer)
    }

    pub(super) fn target(&self, name: &str) -> Option<&NonToolTarget> {
        self.targets.get(name)
    }

    /// Returns `true` if the model may call other agents.
    pub(super) fn has_agents(&self) -> bool {
        let is_agent = |target: &NonToolTarget| matches!(target, NonToolTarget::Agent { .. });
        self.targets.values().any(is_agent)
    }

    fn agent(
        &mut self,
        definition: &AgentDefinition,
        agent_ref: &AgentRef,
        mode: AgentCallMode,
    ) -> Result<(), AgentError> {
        let agent = &agent_ref.agent;
        if *agent == definition.agent_id {
            return Err(AgentError::CallsItself {
                agent: agent.clone(),
            });
        }
        let (name, effect) = match mode {
            AgentCallMode::Use => (agent.clone(), "Calls the agent and returns its answer."),
            AgentCallMode::Handoff => (
                format!("handoff-to-{agent}"),
                "Hands off to the agent until it returns its answer.",
            ),
            AgentCallMode::Delegate => (
                format!("delegate-to-{agent}"),
                "Delegates the rest of the task to the agent; its answer is the final answer.",
            ),
        };
        let described = agent_ref.description.as_deref();
        let description = match described {
            Some(described) => format!("{described} {effect}"),
            None => effect.to_owned(),
        };
        let input = json!({
            "type": "object",
            "properties": {"prompt": {"type": "string", "description": "The request to the agent."}},
            "required": ["prompt"],
        });
        let target = NonToolTarget::Agent {
            agent: agent.clone(),
            mode,
        };
        self.add(definition, ToolSpec::new(name, description, input), target)
    }

    fn add(
        &mut self,
        definition: &AgentDefinition,
        spec: ToolSpec,
        target: NonToolTarget,
    ) -> Result<(), AgentError> {
        let name = spec.name.clone();
        if self.specs.iter().any(|known| known.name == name) {
            return Err(AgentError::OfferedTwice {
                agent: definition.agent_id.clone(),
                name,
            });
        }
        self.specs.push(spec);
        self.targets.insert(name, target);
        Ok(())
    }
}

/// Configures the state machine of an agent run with the agent's additional outputs, and with the maximum number of reminders of
/// missing outputs.
pub(super) fn declare_outputs(policy: Policy, definition: &AgentDefinition) -> Policy {
    let slots = definition
        .outputs
        .iter()
        .map(|output| match output.required {
            true => Slot::required(&*output.name),
            false => Slot::optional(&*output.name),
        });
    slots.fold(policy.reminders(definition.reminders), Policy::slot)
}

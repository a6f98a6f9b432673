//! What a model may call, by the names it is told: tools, other agents and outputs that it hands in.

use super::{AgentDefinition, AgentError, AgentRef, ToolSpec};
use crate::machine::{Policy, Slot};
use crate::tool::{Checker, ToolRegistry};
use serde_json::json;
use std::collections::BTreeMap;

/// The offer of one agent.
#[derive(Debug, Default)]
pub(super) struct Offer {
    pub(super) specs: Vec<ToolSpec>,
    /// What is no tool of the registry.
    others: BTreeMap<String, Other>,
}

/// What a call is for that is no tool.
#[derive(Debug)]
pub(super) enum Other {
    Agent {
        agent: String,
        how: Handing,
    },
    /// An output that is handed in.
    Output(Checker),
}

/// How another agent is called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Handing {
    /// As a tool.
    Use,
    /// Until it gives back.
    Handoff,
    /// For good.
    Delegate,
}

impl Offer {
    /// All that an agent may call.
    pub(super) fn of(
        definition: &AgentDefinition,
        tools: &ToolRegistry,
    ) -> Result<Self, AgentError> {
        let mut offer = Self {
            specs: tools.specs(),
            others: BTreeMap::new(),
        };
        for (how, colleagues) in [
            (Handing::Use, &definition.uses),
            (Handing::Handoff, &definition.handoff),
            (Handing::Delegate, &definition.delegate),
        ] {
            for colleague in colleagues {
                offer.agent(definition, colleague, how)?;
            }
        }
        for slot in &definition.outputs {
            let checker =
                Checker::compile(&slot.schema).map_err(|reason| AgentError::BadOutputSchema {
                    agent: definition.agent_id.clone(),
                    reason: format!("of output {:?}: {reason}", slot.name),
                })?;
            let spec = ToolSpec::new(&*slot.name, &*slot.description, slot.schema.clone());
            offer.add(definition, spec, Other::Output(checker))?;
        }
        Ok(offer)
    }

    pub(super) fn other(&self, name: &str) -> Option<&Other> {
        self.others.get(name)
    }

    /// Whether other agents may be called.
    pub(super) fn has_agents(&self) -> bool {
        let is_agent = |other: &Other| matches!(other, Other::Agent { .. });
        self.others.values().any(is_agent)
    }

    fn agent(
        &mut self,
        definition: &AgentDefinition,
        colleague: &AgentRef,
        how: Handing,
    ) -> Result<(), AgentError> {
        let agent = &colleague.agent;
        if *agent == definition.agent_id {
            return Err(AgentError::CallsItself {
                agent: agent.clone(),
            });
        }
        let (name, does) = match how {
            Handing::Use => (agent.clone(), "Asks the agent, and gives its answer."),
            Handing::Handoff => (
                format!("handoff-to-{agent}"),
                "Hands over to the agent, until it gives back with an answer.",
            ),
            Handing::Delegate => (
                format!("delegate-to-{agent}"),
                "Leaves the rest to the agent: its answer is the final one.",
            ),
        };
        let described = colleague.description.as_deref();
        let description = match described {
            Some(described) => format!("{described} {does}"),
            None => does.to_owned(),
        };
        let input = json!({
            "type": "object",
            "properties": {"prompt": {"type": "string", "description": "What the agent is asked."}},
            "required": ["prompt"],
        });
        let other = Other::Agent {
            agent: agent.clone(),
            how,
        };
        self.add(definition, ToolSpec::new(name, description, input), other)
    }

    fn add(
        &mut self,
        definition: &AgentDefinition,
        spec: ToolSpec,
        other: Other,
    ) -> Result<(), AgentError> {
        let name = spec.name.clone();
        if self.specs.iter().any(|known| known.name == name) {
            return Err(AgentError::OfferedTwice {
                agent: definition.agent_id.clone(),
                name,
            });
        }
        self.specs.push(spec);
        self.others.insert(name, other);
        Ok(())
    }
}

/// The policy of the machine with the outputs that a definition declares.
pub(super) fn declare(policy: Policy, definition: &AgentDefinition) -> Policy {
    let slots = definition.outputs.iter().map(|slot| match slot.required {
        true => Slot::required(&*slot.name),
        false => Slot::optional(&*slot.name),
    });
    slots.fold(policy.reminders(definition.reminders), Policy::slot)
}

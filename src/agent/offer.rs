//! The tools, agents and outputs that an agent's model may call, by their names for the model.

use super::{AgentDefinition, AgentError, AgentRef, ToolSpec};
use crate::machine::{Policy, Slot};
use crate::tool::{Checker, ToolRegistry};
use serde_json::json;
use std::collections::BTreeMap;

/// All tools, agents and outputs that one agent's model may call.
#[derive(Debug, Default)]
pub(super) struct Offer {
    /// The descriptions of all tools, agents and outputs that the model may call. The model receives the descriptions.
    pub(super) specs: Vec<ToolSpec>,
    /// The other agents and the additional outputs that the model may call, by name.
    others: BTreeMap<String, Other>,
}

/// Another agent or an additional output that a model calls like a tool.
#[derive(Debug)]
pub(super) enum Other {
    Agent {
        agent: String,
        how: Handing,
    },
    /// An additional output that the model submits by a call, with the checker of the output's JSON Schema.
    Output(Checker),
}

/// The way in which an agent calls another agent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Handing {
    /// The agent calls the other agent with a tool named like the other agent. The other agent's answer is the result of the call.
    Use,
    /// The agent calls the other agent with the tool `handoff-to-<id>`. The other agent's answer is the result of the call.
    Handoff,
    /// The agent calls the other agent with the tool `delegate-to-<id>`. The other agent's answer is the answer of the run.
    Delegate,
}

impl Offer {
    /// Returns all tools, agents and outputs that an agent's model may call.
    ///
    /// # Errors
    /// [`AgentError`] if two names are equal, if the agent calls itself, or if the schema of an output cannot be used.
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
                    reason: format!("output {:?}: {reason}", slot.name),
                })?;
            let spec = ToolSpec::new(&*slot.name, &*slot.description, slot.schema.clone());
            offer.add(definition, spec, Other::Output(checker))?;
        }
        Ok(offer)
    }

    pub(super) fn other(&self, name: &str) -> Option<&Other> {
        self.others.get(name)
    }

    /// Returns `true` if the model may call other agents.
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
            Handing::Use => (agent.clone(), "Calls the agent and returns its answer."),
            Handing::Handoff => (
                format!("handoff-to-{agent}"),
                "Hands off to the agent until it returns its answer.",
            ),
            Handing::Delegate => (
                format!("delegate-to-{agent}"),
                "Delegates the rest of the task to the agent; its answer is the final answer.",
            ),
        };
        let described = colleague.description.as_deref();
        let description = match described {
            Some(described) => format!("{described} {does}"),
            None => does.to_owned(),
        };
        let input = json!({
            "type": "object",
            "properties": {"prompt": {"type": "string", "description": "The request to the agent."}},
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

/// Adds the agent's additional outputs to the policy of the run's state machine, and sets the run's maximum number of reminders.
pub(super) fn declare(policy: Policy, definition: &AgentDefinition) -> Policy {
    let slots = definition.outputs.iter().map(|slot| match slot.required {
        true => Slot::required(&*slot.name),
        false => Slot::optional(&*slot.name),
    });
    slots.fold(policy.reminders(definition.reminders), Policy::slot)
}

//! Builds agents from the section `agents` of a workflow definition.

use super::assembly::Assembly;
use crate::agent::{Agent, AgentCapabilities, AgentExecutor, Provider, WaitSeconds};
use crate::model::{Json, Subscription};
use crate::request::agents;
use crate::workflow::{AgentSpec, Instruction};
use serde_json::json;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Time in seconds for which an agent of a workflow waits for the agents that it calls. They end by themselves, or wait for people.
const MONTH: NonZeroU32 = match NonZeroU32::new(30 * 24 * 60 * 60) {
    Some(month) => month,
    None => NonZeroU32::MIN,
};

impl Assembly {
    /// Returns the builder of an agent of the workflow.
    pub(super) fn builder(
        &self,
        name: &str,
        spec: &AgentSpec,
        provider: Arc<dyn Provider>,
    ) -> Agent {
        let workflow = &self.workflow;
        let requests = Subscription::trigger(agents::REQUEST).matching("$.agent", "eq", name);
        let answers = [AgentExecutor::RESPONSE.to_owned()];
        let mut agent = Agent::with_provider(name, provider)
            .on(requests)
            .with_registered_tools(&self.tools, &spec.tools)
            .responds_with(answers.iter().chain(&spec.permissions.writes))
            .needs_approval(&spec.permissions.approval)
            .wait_seconds(WaitSeconds {
                agents: MONTH,
                ..WaitSeconds::default()
            })
            .guardrails(self.guardrails.clone());
        let prompt = match &spec.instruction {
            Instruction::Text(text) => Some(text),
            Instruction::Prompt(prompt) => workflow.prompts.get(prompt),
        };
        if let Some(prompt) = prompt {
            agent = agent.instructions(prompt);
        }
        let model = spec.model.as_ref();
        if let Some(model) = model.and_then(|name| workflow.models.get(name)) {
            agent = match &model.model {
                Some(name) => agent.model(name),
                None => agent,
            };
            agent = match model.temperature {
                Some(temperature) => agent.temperature(temperature),
                None => agent,
            };
        }
        let schema = spec.output.as_ref();
        if let Some(schema) = schema.and_then(|name| workflow.schemas.get(name)) {
            agent = agent.output_schema(match schema.as_bool() {
                Some(true) => Json::from(json!({})),
                Some(false) => Json::from(json!({"not": {}})),
                None => schema.clone(),
            });
        }
        if !spec.permissions.writes.is_empty() {
            agent = agent.capabilities(AgentCapabilities::default());
        }
        for (list, names) in [("use", &spec.uses), ("delegate", &spec.delegate)] {
            for name in names {
                let other = workflow.agents.get(name);
                let description = other.and_then(|other| other.description.clone());
                agent = agent.add_agent_ref(list, name.clone(), description);
            }
        }
        agent
    }
}

#[cfg(feature = "validate")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{AgentDefinition, ApiProvider, ScriptedModel};
    use crate::services::Services;
    use crate::store::MemoryStore;
    use crate::tool::{ToolRegistry, json_tool};
    use crate::workflow::Workflow;
    use serde_json::Value;

    fn assembly() -> Assembly {
        let workflow = Workflow::from_json(&json!({
            "models": {"large": {"model": "large-1", "temperature": 0.5}},
            "prompts": {"critic": "Find mistakes."},
            "schemas": {"review": {"type": "object"}, "anything": true},
            "tools": {"search": {}, "publish": {}},
            "agents": {
                "writer": {
                    "instruction": "Write.", "model": "large", "tools": ["search", "publish"],
                    "use": ["critic"], "delegate": ["editor"],
                    "permissions": {"writes": ["note.v1"], "approval": ["publish"]},
                },
                "critic": {
                    "description": "Judges.", "instruction": {"prompt": "critic"}, "output": "review",
                },
                "editor": {"instruction": "Edit.", "output": "anything"},
            },
        }));
        let echo = |name| json_tool(name, "", json!({}), |input, _| async move { Ok(input) });
        let tools = ToolRegistry::default().with(echo("search")).unwrap();
        let tools = tools.with(echo("publish")).unwrap();
        let services = Services::new().tools(tools);
        let services = services.default_model(ScriptedModel::new(["Hi"]));
        Assembly::new(
            workflow.unwrap(),
            &services,
            Arc::new(MemoryStore::default()),
        )
        .unwrap()
    }

    /// Returns the definition of an agent, with the fields that all agents of a workflow have.
    fn definition(name: &str, fields: &Value) -> Value {
        let mut definition = json!({
            "agent_id": name,
            "subscriptions": [{
                "schema_name": agents::REQUEST, "role": "trigger",
                "context_match": [{"path": "$.agent", "op": "eq", "value": name}],
            }],
            "responds_with": ["agent.response.v1"],
            "wait_seconds": {"agents": 30 * 24 * 60 * 60},
        });
        for (field, value) in fields.as_object().unwrap() {
            definition[field] = value.clone();
        }
        definition
    }

    /// Returns the parts of an agent that its definition determines.
    fn parts(agent: &AgentExecutor) -> Vec<String> {
        let AgentDefinition {
            agent_id,
            model,
            llm_config_id,
            temperature,
            system_prompt,
            subscriptions,
            context_format,
            context_budget,
            responds_with,
            creates_any_schema,
            requests_tools,
            uses_any_tool,
            capabilities,
            trust,
            tools,
            max_turns,
            budgets,
            output_schema,
            tool_calls,
            return_to_user,
            uses,
            handoff,
            delegate,
            outputs,
            reminders,
            approval,
            wait_seconds,
            ..
        } = agent.definition();
        vec![
            format!("{agent_id} {model:?} {llm_config_id:?} {temperature:?} {system_prompt}"),
            format!("{:?}", subscriptions.as_slice()),
            format!("{context_format:?} {context_budget:?} {responds_with:?}"),
            format!("{creates_any_schema} {requests_tools} {uses_any_tool}"),
            format!("{capabilities:?} {trust:?} {tools:?} {max_turns} {budgets:?}"),
            format!("{output_schema:?} {tool_calls:?} {return_to_user:?}"),
            format!("{uses:?} {handoff:?} {delegate:?} {outputs:?} {reminders}"),
            format!("{approval:?} {wait_seconds:?}"),
        ]
    }

    #[test]
    fn an_agent_of_a_workflow_is_the_agent_of_the_same_definition() {
        let assembly = assembly();
        let writer = json!({
            "system_prompt": "Write.", "model": "large-1", "temperature": 0.5,
            "tools": ["search", "publish"], "approval": {"tools": ["publish"]},
            "use": [{"agent": "critic", "description": "Judges."}], "delegate": ["editor"],
            "responds_with": ["agent.response.v1", "note.v1"], "capabilities": {},
        });
        let critic =
            json!({"system_prompt": "Find mistakes.", "output_schema": {"type": "object"}});
        let editor = json!({"system_prompt": "Edit.", "output_schema": {}});

        for (name, fields) in [("writer", writer), ("critic", critic), ("editor", editor)] {
            let built = assembly.build_agent(name).unwrap();

            let read = AgentDefinition::from_json(&definition(name, &fields)).unwrap();
            let model = ApiProvider::new(Arc::new(ScriptedModel::new(["Hi"])));
            let store = Arc::clone(&assembly.store);
            let read = AgentExecutor::with_provider(read, Arc::new(model), store, &assembly.tools)
                .unwrap();
            assert_eq!(parts(&built), parts(&read));
            assert_eq!(built.definition().warnings(), read.definition().warnings());
        }
    }
}

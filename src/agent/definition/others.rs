//! Parts of agent definitions: tool calls, references to other agents, additional outputs, and timeouts.

use crate::model::Json;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// The way in which an agent calls its tools.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolCalls {
    /// The agent calls its tools in the process of the run, through the tool registry.
    #[default]
    InProcess,
    /// The agent calls its tools by `tool.request.v1` breadcrumbs, which `tool.response.v1` breadcrumbs answer. The run is suspended in the
    /// meantime and occupies no worker.
    Breadcrumbs,
}

impl ToolCalls {
    /// Returns the default way to call tools: by breadcrumbs for an agent that may call any tool of an RCRT server, and in the process of
    /// the run for any other agent.
    pub(super) fn by_default(uses_any_tool: bool) -> Self {
        match uses_any_tool {
            true => Self::Breadcrumbs,
            false => Self::InProcess,
        }
    }
}

/// A reference to another agent in an agent definition: the agent ID, or `{"agent": .., "description": ..}`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "NamedAgent")]
#[non_exhaustive]
pub struct AgentRef {
    /// The ID of the other agent.
    pub agent: String,
    /// A description of the other agent. The calling agent's model reads it to decide when to call the other agent.
    pub description: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NamedAgent {
    Id(String),
    Described {
        agent: String,
        #[serde(default)]
        description: Option<String>,
    },
}

impl From<NamedAgent> for AgentRef {
    fn from(named: NamedAgent) -> Self {
        let (agent, description) = match named {
            NamedAgent::Id(agent) => (agent, None),
            NamedAgent::Described { agent, description } => (agent, description),
        };
        Self { agent, description }
    }
}

/// An output that an agent submits in addition to its answer, such as a completion report or a plan. The agent submits it once, by calling
/// a tool with the name of the output.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OutputSlot {
    /// The name of the additional output, in the form of a [tool name](crate::tool::Tool::name).
    pub name: String,
    /// A description of the additional output for the model.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of the additional output's value. Defaults to any object.
    #[serde(default = "any_object")]
    pub schema: Json,
    /// If `true`, a run in which the agent does not submit the output is incomplete. Defaults to `false`.
    #[serde(default)]
    pub required: bool,
}

impl OutputSlot {
    /// Creates an optional output that an agent submits in addition to its answer. The value is any JSON object.
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            schema: any_object(),
            required: false,
        }
    }

    /// Sets the JSON Schema of the additional output's value.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<Json>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Makes the additional output required: a run in which the agent does not submit it is incomplete.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

fn any_object() -> Json {
    serde_json::json!({"type": "object"}).into()
}

/// Timeouts in seconds of an agent run's requests to people, to other agents, and to a model of another service. After a timeout of people
/// or agents, the model receives an error.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct WaitSeconds {
    /// The timeout in seconds of an agent's requests to people. Defaults to one day.
    pub people: NonZeroU32,
    /// The timeout in seconds of an agent's requests to other agents. Defaults to one hour.
    pub agents: NonZeroU32,
    /// The timeout in seconds of an agent's requests to a model of another service. After the timeout, the request counts as failed.
    /// Defaults to ten minutes.
    pub model: NonZeroU32,
}

impl Default for WaitSeconds {
    fn default() -> Self {
        const fn seconds(seconds: u32) -> NonZeroU32 {
            match NonZeroU32::new(seconds) {
                Some(seconds) => seconds,
                None => NonZeroU32::MIN,
            }
        }
        Self {
            people: seconds(24 * 60 * 60),
            agents: seconds(60 * 60),
            model: seconds(10 * 60),
        }
    }
}

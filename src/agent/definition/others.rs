//! Whom an agent may call or ask, and what it hands in.

use crate::model::Json;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// How an agent calls its tools.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolCalls {
    /// Within its run, through the registry.
    #[default]
    InProcess,
    /// By `tool.request.v1`, answered by `tool.response.v1`. The run is suspended meanwhile and holds no worker.
    Breadcrumbs,
}

impl ToolCalls {
    /// Returns the default for an agent that lists its tools, or that may call any tool of an RCRT server.
    pub(super) fn by_default(uses_any_tool: bool) -> Self {
        match uses_any_tool {
            true => Self::Breadcrumbs,
            false => Self::InProcess,
        }
    }
}

/// Another agent, as a definition names it: by its id, or as `{"agent": .., "description": ..}`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "NamedAgent")]
#[non_exhaustive]
pub struct AgentRef {
    /// Its id.
    pub agent: String,
    /// What it is good for, for the model.
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

/// An output that an agent hands in, once, by calling a tool of that name: a completion report, a plan.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OutputSlot {
    /// Its name: that of a [tool](crate::tool::Tool::name).
    pub name: String,
    /// What it is, for the model.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema it has to fit; any object by default.
    #[serde(default = "any_object")]
    pub schema: Json,
    /// Whether the run is incomplete without it; false by default.
    #[serde(default)]
    pub required: bool,
}

impl OutputSlot {
    /// Creates an optional output. Its value is any JSON object.
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            schema: any_object(),
            required: false,
        }
    }

    /// Sets the JSON Schema of the value.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<Json>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Makes a run without the output incomplete.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

fn any_object() -> Json {
    serde_json::json!({"type": "object"}).into()
}

/// How long a run waits for others, in seconds; then the model is told that nobody answered.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct WaitSeconds {
    /// For people; a day by default.
    pub people: NonZeroU32,
    /// For other agents; an hour by default.
    pub agents: NonZeroU32,
    /// For a model that is reached by breadcrumbs; ten minutes by default.
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

//! Rust types for the models, tools and agents in a workflow definition.

use crate::workflow::error::WorkflowLoadError;
use crate::workflow::syntax::{Written, positive};
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::de::{self, Unexpected};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A model in the section `models` of a workflow definition.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[non_exhaustive]
pub struct ModelSpec {
    /// Name with which the model or provider is registered in the program's `Services`. Defaults to the default model of the `Services`.
    pub provider: Option<String>,
    /// Model name that each request sends to the provider.
    pub model: Option<String>,
    /// Sampling temperature of requests to the model.
    pub temperature: Option<f64>,
    /// Maximum number of tokens in an answer of the model.
    #[serde(default, deserialize_with = "positive")]
    #[cfg_attr(
        feature = "schema",
        schemars(range(min = 1, max = 18_446_744_073_709_551_615_u64))
    )]
    pub max_tokens: Option<u64>,
}

/// A tool in the section `tools` of a workflow definition.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[non_exhaustive]
pub struct WorkflowToolSpec {
    /// Name with which the tool is registered in the program's `Services`. Defaults to the tool name in the workflow.
    pub tool: Option<String>,
    /// Description of the tool for models. Defaults to the description with which the tool is registered.
    pub description: Option<String>,
    /// If `true`, every call of the tool needs the approval of a person. Defaults to `false`.
    #[serde(default)]
    pub approval: bool,
}

/// An agent in the section `agents` of a workflow definition.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[non_exhaustive]
pub struct AgentSpec {
    /// Description of the agent for other agents that can call it.
    pub description: Option<String>,
    /// Instructions of the agent to its model.
    #[cfg_attr(
        feature = "schema",
        schemars(schema_with = "crate::workflow::syntax::instruction")
    )]
    pub instruction: Instruction,
    /// Name of the agent's model in the section `models`. Defaults to the default model of the program's `Services`.
    pub model: Option<String>,
    /// Names in `tools` of the tools that the agent can call.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Agents to which this agent can delegate the rest of its work.
    #[serde(default)]
    pub delegate: Vec<String>,
    /// Agents that this agent can call like tools, listed in the field `use`.
    #[serde(default, rename = "use")]
    pub uses: Vec<String>,
    /// Name of the JSON Schema of the agent's answers, from the section `schemas` of the workflow definition. Without a schema,
    /// an answer can be any text.
    pub output: Option<String>,
    /// Earlier messages that a request to the agent's model contains, from the session and the agent's own conversation: `all`,
    /// `none`, or the number of the newest messages. Defaults to `all`.
    #[serde(default)]
    #[cfg_attr(
        feature = "schema",
        schemars(schema_with = "crate::workflow::syntax::history")
    )]
    pub history: History,
    /// Additional permissions of the agent: schemas that it can write, and tools that need an approval.
    #[serde(default)]
    pub permissions: AgentPermissions,
}

impl AgentSpec {
    pub(super) fn read(written: &Written<'_>) -> Result<Self, WorkflowLoadError> {
        written.read_with_parts(&[
            ("instruction", |part| match part.value {
                Value::String(_) => Ok(()),
                Value::Object(_) => part.check::<PromptName>(),
                // Serde would read a list as the fields of `PromptName`.
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                    Err(part.shape(INSTRUCTION))
                }
            }),
            ("permissions", |part| part.check::<AgentPermissions>()),
        ])
    }
}

/// Description of a valid `instruction` of an agent, for error messages.
const INSTRUCTION: &str = "a string, or {\"prompt\": name}";

/// Instructions of an agent in a workflow definition to its model.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(untagged)]
pub enum Instruction {
    /// The text of the agent's instructions.
    Text(String),
    /// Name of the entry in the section `prompts` that is the text of the agent's instructions.
    Prompt(#[serde(deserialize_with = "prompt")] String),
}

#[derive(Deserialize)]
struct PromptName {
    prompt: String,
}

fn prompt<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    PromptName::deserialize(deserializer).map(|named| named.prompt)
}

/// Selection of the earlier messages that an agent receives with a request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum History {
    /// All earlier messages of the session and of the agent's own conversation, written as `"all"`.
    #[default]
    All,
    /// Only the request to the agent, without earlier messages, written as `"none"`.
    None,
    /// Only the newest earlier messages, at most this number of them.
    Last(u64),
}

impl<'de> Deserialize<'de> for History {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match (value.as_str(), value.as_u64()) {
            (Some("all"), _) => Ok(Self::All),
            (Some("none"), _) => Ok(Self::None),
            (_, Some(last @ 1..=10_000)) => Ok(Self::Last(last)),
            _ => {
                let expected = "\"all\", \"none\" or a whole number from 1 to 10000";
                let found = Unexpected::Other("another value");
                Err(de::Error::invalid_value(found, &expected))
            }
        }
    }
}

/// Additional permissions of an agent: schemas that it can write, and tools that need an approval.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[non_exhaustive]
pub struct AgentPermissions {
    /// Schemas of the breadcrumbs that the agent can write. Defaults to none.
    #[serde(default)]
    pub writes: Vec<String>,
    /// Names of the tools that the agent can call only with the approval of a person for each call.
    #[serde(default)]
    pub approval: Vec<String>,
}

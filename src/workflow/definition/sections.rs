//! What a workflow has by name beside its flows.

use crate::model::DefinitionPath;
use crate::model::Json;
use crate::workflow::error::WorkflowLoadError;
use crate::workflow::fields::Fields;
use crate::workflow::shape;
use serde_json::Value;

/// A model, as `models` has it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ModelSpec {
    /// Which provider, by the name under which the service has registered it; the service's own choice if absent.
    pub provider: Option<String>,
    /// What the provider calls it.
    pub model: Option<String>,
    /// How freely it answers.
    pub temperature: Option<f64>,
    /// How many tokens it may write at the most.
    pub max_tokens: Option<u64>,
}

/// A tool that the workflow may use, as `tools` has it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct WorkflowToolSpec {
    /// The name under which the service has registered it: `tool`. The same name if absent.
    pub tool: Option<String>,
    /// What it is good for, for models; what the tool says of itself if absent.
    pub description: Option<String>,
    /// Whether people have to agree to each call; false by default.
    pub approval: bool,
}

/// An agent, as `agents` has it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AgentSpec {
    /// What it is good for, for other agents.
    pub description: Option<String>,
    /// What its author tells the model.
    pub instruction: Instruction,
    /// Which model, by its name in `models`; the service's own choice if absent.
    pub model: Option<String>,
    /// The tools it may call, by their names in `tools`; none by default.
    pub tools: Vec<String>,
    /// The agents that it may leave the rest to.
    pub delegate: Vec<String>,
    /// The agents that it may call as it calls tools: `use`.
    pub uses: Vec<String>,
    /// The schema of its answers, by its name in `schemas`; they are any text if absent.
    pub output: Option<String>,
    /// What of the conversation it is shown.
    pub history: History,
    /// What it may do beside calling its tools.
    pub permissions: AgentPermissions,
}

/// What an agent is told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Instruction {
    /// This text.
    Text(String),
    /// The text of this name in `prompts`.
    Prompt(String),
}

/// What of the conversation an agent is shown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum History {
    /// All of it that belongs to its session and step: `"all"`.
    #[default]
    All,
    /// Only what it is asked: `"none"`.
    None,
    /// So many of the last messages: a number.
    Last(u64),
}

/// What an agent may do beside calling its tools.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct AgentPermissions {
    /// The schemas that it may write; none by default.
    pub writes: Vec<String>,
    /// Those of its tools of which each call needs people to agree.
    pub approval: Vec<String>,
}

impl ModelSpec {
    pub(super) fn read(value: &Value, place: &DefinitionPath) -> Result<Self, WorkflowLoadError> {
        let fields = Fields::of(value, place, &shape::MODEL)?;
        Ok(Self {
            provider: fields.text("provider")?,
            model: fields.text("model")?,
            temperature: fields.number("temperature")?,
            max_tokens: fields.whole("max_tokens", 1..=u64::MAX)?,
        })
    }
}

impl WorkflowToolSpec {
    pub(super) fn read(value: &Value, place: &DefinitionPath) -> Result<Self, WorkflowLoadError> {
        let fields = Fields::of(value, place, &shape::TOOL)?;
        Ok(Self {
            tool: fields.text("tool")?,
            description: fields.text("description")?,
            approval: fields.flag("approval")?.unwrap_or(false),
        })
    }
}

impl AgentSpec {
    pub(super) fn read(value: &Value, place: &DefinitionPath) -> Result<Self, WorkflowLoadError> {
        let fields = Fields::of(value, place, &shape::AGENT)?;
        let permissions = fields.get("permissions");
        Ok(Self {
            description: fields.text("description")?,
            instruction: instruction(&fields)?,
            model: fields.text("model")?,
            tools: fields.texts("tools")?,
            delegate: fields.texts("delegate")?,
            uses: fields.texts("use")?,
            output: fields.text("output")?,
            history: history(&fields)?,
            permissions: permissions
                .map(|(value, place)| AgentPermissions::read(value, &place))
                .transpose()?
                .unwrap_or_default(),
        })
    }
}

impl AgentPermissions {
    fn read(value: &Value, place: &DefinitionPath) -> Result<Self, WorkflowLoadError> {
        let fields = Fields::of(value, place, &shape::PERMISSIONS)?;
        Ok(Self {
            writes: fields.texts("writes")?,
            approval: fields.texts("approval")?,
        })
    }
}

fn instruction(fields: &Fields<'_>) -> Result<Instruction, WorkflowLoadError> {
    let Some((value, place)) = fields.get("instruction") else {
        return Err(fields.missing("instruction", "what the agent is told"));
    };
    match value {
        Value::String(text) => Ok(Instruction::Text(text.clone())),
        Value::Object(_) => {
            let inner = Fields::of(value, &place, &shape::PROMPT)?;
            let prompt = inner.required_text("prompt", "a name of \"prompts\"")?;
            Ok(Instruction::Prompt(prompt))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            let expected = "a text, or {\"prompt\": name}";
            Err(WorkflowLoadError::shape(place, expected, value))
        }
    }
}

fn history(fields: &Fields<'_>) -> Result<History, WorkflowLoadError> {
    const WORDS: [(&str, History); 2] = [("all", History::All), ("none", History::None)];
    match fields.get("history") {
        Some((Value::Number(_), _)) => {
            let last = fields.whole("history", 1..=10_000)?;
            Ok(last.map_or(History::All, History::Last))
        }
        Some(_) | None => Ok(fields.word("history", &WORDS)?.unwrap_or_default()),
    }
}

/// A JSON Schema: an object, or `true` and `false`, which are schemas too.
pub(super) fn schema(value: &Value, place: DefinitionPath) -> Result<Json, WorkflowLoadError> {
    if value.is_object() || value.is_boolean() {
        return Ok(value.clone().into());
    }
    Err(WorkflowLoadError::shape(place, "a JSON Schema", value))
}

pub(super) fn prompt(value: &Value, place: DefinitionPath) -> Result<String, WorkflowLoadError> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(WorkflowLoadError::shape(place, "a text", value)),
    }
}

use super::{AgentError, Capabilities, Trust};
use crate::executor::{ContextBudget, Format};
use crate::model::{Json, Subscriptions};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};

/// What an agent is: the context of an `agent.def.v1` breadcrumb.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentDefinition {
    /// Its name, and its executor's id.
    pub agent_id: String,
    /// Which model, by the provider's name.
    pub model: Option<String>,
    /// How freely the model answers.
    pub temperature: Option<f64>,
    /// What the agent's author tells the model.
    pub system_prompt: String,
    /// What sets it off and what it works with.
    pub subscriptions: Subscriptions,
    /// How the model is shown the trigger and the context: `context_format`, `"markdown"` (the default) or `"xml"`.
    pub context_format: Format,
    /// How much of it at most: `context_budget` with `tokens`, `bytes` and `items_per_source`, each as
    /// [`ContextBudget`] has it by default.
    pub context_budget: ContextBudget,
    /// The schemas it may write; `agent.response.v1` by default.
    pub responds_with: Vec<String>,
    /// What it may write by an answer that is an [action](crate::agent#actions); if absent every answer is text.
    pub capabilities: Option<Capabilities>,
    /// Which schemas have private data, untrusted content, or lead outward: `trust`.
    pub trust: Trust,
    /// The tools it may call, by their exact names; none by default.
    pub tools: Vec<String>,
    /// How often the model is asked in one run at the most; 10 by default.
    pub max_turns: u32,
    /// What one run may use up at the most.
    pub budgets: Budgets,
    /// The JSON Schema of its answers; they are any text if absent.
    pub output_schema: Option<Json>,
    /// Whether its tools are called within the run or by `tool.request.v1`: `tool_calls`, `"in_process"` (the default) or
    /// `"breadcrumbs"`. A tool that [is reached by breadcrumbs](crate::tool::ToolSettings::over_breadcrumbs) always is.
    pub tool_calls: ToolCalls,
    /// The tools whose results are the answer of the run, unless the model calls others with them: `return_to_user`.
    pub return_to_user: Vec<String>,
    /// The agents that it may call as it calls tools; their answers are results: `use`.
    pub uses: Vec<Colleague>,
    /// The agents that it may hand over to, until they give back: `handoff`.
    pub handoff: Vec<Colleague>,
    /// The agents that it may leave the rest to; their answer is that of the run: `delegate`.
    pub delegate: Vec<Colleague>,
    /// What it hands in beside its answer: `outputs`, each with `name`, `description`, `schema` and `required`.
    pub outputs: Vec<OutputSlot>,
    /// How often a run that ends without a required output is reminded of it; 1 by default.
    pub reminders: u32,
    /// What people have to agree to: `approval`.
    pub approval: Approval,
    /// How long is waited for others: `wait_seconds`.
    pub wait_seconds: WaitSeconds,
    text: String,
}

/// What one run of an agent may use up at the most, all its attempts together; any number where it says nothing.
///
/// An answer of the model that needs no more counts whatever it cost. One that wants to go on ends the run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Budgets {
    /// Tokens that the model reads and writes.
    pub tokens: Option<u64>,
    /// Tool calls. If an answer asks for more than are left, none of its calls is made.
    pub calls: Option<u64>,
    /// Seconds of work; what an attempt did after it last saved its progress is not counted. The timeout of the profile
    /// holds for each attempt all the same.
    pub seconds: Option<u64>,
}

/// How an agent calls its tools.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolCalls {
    /// Within its run, through the registry.
    #[default]
    InProcess,
    /// By `tool.request.v1`, answered by `tool.response.v1`. The run is suspended meanwhile and holds no worker.
    Breadcrumbs,
}

/// Another agent, as a definition names it: by its id, or as `{"agent": .., "description": ..}`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(from = "NamedAgent")]
#[non_exhaustive]
pub struct Colleague {
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

impl From<NamedAgent> for Colleague {
    fn from(named: NamedAgent) -> Self {
        let (agent, description) = match named {
            NamedAgent::Id(agent) => (agent, None),
            NamedAgent::Described { agent, description } => (agent, description),
        };
        Self { agent, description }
    }
}

/// An output that an agent hands in, once, by calling a tool of that name: a completion report, a plan.
#[derive(Clone, Debug, Deserialize)]
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

fn any_object() -> Json {
    serde_json::json!({"type": "object"}).into()
}

/// What people have to agree to before it is done.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Approval {
    /// The tools of which each call needs it, besides those that [ask for it](crate::tool::ToolSettings::requires_approval).
    pub tools: Vec<String>,
    /// Who may approve, by `created_by` of what they write; anybody who is no executor if empty.
    pub by: Vec<String>,
}

/// How long a run waits for others, in seconds; then the model is told that nobody answered.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
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

impl AgentDefinition {
    const MAX_TURNS: u32 = 10;

    /// Reads a definition: an `agent.def.v1` breadcrumb or its context.
    ///
    /// # Errors
    /// [`AgentError`] names the field to mend.
    pub fn from_json(definition: &Value) -> Result<Self, AgentError> {
        let context = definition.get("context").unwrap_or(definition);
        let Value::Object(fields) = context else {
            return Err(AgentError::Field {
                field: "context",
                expected: "an object",
            });
        };
        let agent_id: String = read(fields, "agent_id", "a string")?.ok_or(AgentError::Field {
            field: "agent_id",
            expected: "a string",
        })?;
        let subscriptions =
            Subscriptions::from_json(context).map_err(|source| AgentError::Subscriptions {
                agent: agent_id.clone(),
                source,
            })?;
        Ok(Self {
            model: read(fields, "model", "a string")?,
            temperature: read(fields, "temperature", "a number")?,
            system_prompt: read(fields, "system_prompt", "a string")?.unwrap_or_default(),
            context_format: format(fields)?,
            context_budget: budget(fields)?,
            responds_with: read(fields, "responds_with", "a list of schema names")?
                .unwrap_or_else(|| vec![super::AgentExecutor::RESPONSE.to_owned()]),
            capabilities: fields
                .get("capabilities")
                .map(|_| Capabilities::read(fields))
                .transpose()?,
            trust: Trust::read(fields)?,
            tools: read(fields, "tools", "a list of tool names")?.unwrap_or_default(),
            max_turns: read(fields, "max_turns", "a whole number over 0")?
                .map_or(Self::MAX_TURNS, NonZeroU32::get),
            budgets: budgets(fields)?,
            output_schema: output_schema(fields)?,
            tool_calls: read(fields, "tool_calls", "\"in_process\" or \"breadcrumbs\"")?
                .unwrap_or_default(),
            return_to_user: read(fields, "return_to_user", "a list of tool names")?
                .unwrap_or_default(),
            uses: read(fields, "use", COLLEAGUES)?.unwrap_or_default(),
            handoff: read(fields, "handoff", COLLEAGUES)?.unwrap_or_default(),
            delegate: read(fields, "delegate", COLLEAGUES)?.unwrap_or_default(),
            outputs: read(
                fields,
                "outputs",
                "a list of objects with \"name\", and if wanted \"description\", \"schema\" and \"required\"",
            )?
            .unwrap_or_default(),
            reminders: read(fields, "reminders", "a whole number")?.unwrap_or(1),
            approval: read(
                fields,
                "approval",
                "an object of \"tools\" and \"by\", lists of names",
            )?
            .unwrap_or_default(),
            wait_seconds: read(
                fields,
                "wait_seconds",
                "an object of \"people\", \"agents\" and \"model\", whole numbers over 0",
            )?
            .unwrap_or_default(),
            agent_id,
            subscriptions,
            text: context.to_string(),
        })
    }

    /// The JSON it was read from, for its hash.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

const COLLEAGUES: &str = "a list of agent ids, or of objects with \"agent\" and \"description\"";

fn format(fields: &Map<String, Value>) -> Result<Format, AgentError> {
    let (field, expected) = ("context_format", "\"markdown\" or \"xml\"");
    let name: Option<String> = read(fields, field, expected)?;
    match name.as_deref() {
        None => Ok(Format::default()),
        Some("markdown") => Ok(Format::Markdown),
        Some("xml") => Ok(Format::Xml),
        Some(_) => Err(AgentError::Field { field, expected }),
    }
}

fn budgets(fields: &Map<String, Value>) -> Result<Budgets, AgentError> {
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Limits {
        tokens: Option<NonZeroU64>,
        calls: Option<NonZeroU64>,
        seconds: Option<NonZeroU64>,
    }
    let expected = "an object of \"tokens\", \"calls\" and \"seconds\", whole numbers over 0";
    let limits: Option<Limits> = read(fields, "budgets", expected)?;
    let limits = limits.unwrap_or_default();
    Ok(Budgets {
        tokens: limits.tokens.map(NonZeroU64::get),
        calls: limits.calls.map(NonZeroU64::get),
        seconds: limits.seconds.map(NonZeroU64::get),
    })
}

fn output_schema(fields: &Map<String, Value>) -> Result<Option<Json>, AgentError> {
    let (field, expected) = ("output_schema", "a JSON Schema, which is an object");
    let schema: Option<Map<String, Value>> = read(fields, field, expected)?;
    Ok(schema.map(|schema| Value::Object(schema).into()))
}

fn budget(fields: &Map<String, Value>) -> Result<ContextBudget, AgentError> {
    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Limits {
        tokens: Option<NonZeroUsize>,
        bytes: Option<NonZeroUsize>,
        items_per_source: Option<NonZeroUsize>,
    }
    let expected =
        "an object of \"tokens\", \"bytes\" and \"items_per_source\", whole numbers over 0";
    let limits: Option<Limits> = read(fields, "context_budget", expected)?;
    let limits = limits.unwrap_or_default();
    let mut budget = ContextBudget::default();
    if let Some(tokens) = limits.tokens {
        budget = budget.tokens(tokens.get());
    }
    if let Some(bytes) = limits.bytes {
        budget = budget.bytes(bytes.get());
    }
    if let Some(items) = limits.items_per_source {
        budget = budget.items_per_source(items.get());
    }
    Ok(budget)
}

/// An optional field; null counts as absent.
fn read<T: DeserializeOwned>(
    fields: &Map<String, Value>,
    field: &'static str,
    expected: &'static str,
) -> Result<Option<T>, AgentError> {
    match fields.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match T::deserialize(value) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(AgentError::Field { field, expected }),
        },
    }
}

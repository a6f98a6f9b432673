use super::AgentError;
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
    /// The tools it may call, by their exact names; none by default.
    pub tools: Vec<String>,
    /// How often the model is asked in one run at the most; 10 by default.
    pub max_turns: u32,
    /// What one run may use up at the most.
    pub budgets: Budgets,
    /// The JSON Schema of its answers; they are any text if absent.
    pub output_schema: Option<Json>,
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
            tools: read(fields, "tools", "a list of tool names")?.unwrap_or_default(),
            max_turns: read(fields, "max_turns", "a whole number over 0")?
                .map_or(Self::MAX_TURNS, NonZeroU32::get),
            budgets: budgets(fields)?,
            output_schema: output_schema(fields)?,
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

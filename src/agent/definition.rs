use super::AgentError;
use crate::executor::{ContextBudget, Format};
use crate::model::Subscriptions;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::num::NonZeroUsize;

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
    text: String,
}

impl AgentDefinition {
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

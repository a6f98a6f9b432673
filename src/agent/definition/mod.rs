mod approvals;
mod fields;
mod others;
mod read;

pub(super) use approvals::entry as approval_entry;
pub use approvals::{Approvals, ToolApproval};
#[cfg(test)]
pub(super) use fields::AGENT as AGENT_FIELDS;
pub use others::{AgentRef, OutputSlot, ToolCalls, WaitSeconds};

use super::action::is_open;
use super::{AgentCapabilities, AgentError, Trust};
use crate::executor::{ContextBudget, Format};
#[cfg(feature = "workflows")]
use crate::model::Findings;
use crate::model::{BreadcrumbId, DefinitionOptions, Finding, Json, Subscriptions, sorted_text};
use approvals::approvals;
use read::{
    agent_id, budget, budgets, colleagues, creates_any_schema, format, given, output_schema, read,
    read_commented, responds_with, uses_any_tool,
};
use serde::Serialize;
use serde_json::Value;
use std::num::NonZeroU32;

/// What an agent is: the context of an `agent.def.v1` breadcrumb.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentDefinition {
    /// Its name, and its executor's ID: 1 to 256 bytes without control characters.
    pub agent_id: String,
    /// Which model, by the provider's name.
    pub model: Option<String>,
    /// The breadcrumb with the configuration of the model tool, or `None`. Read only by the
    /// [rules of RCRT servers](DefinitionOptions::rcrt).
    pub llm_config_id: Option<BreadcrumbId>,
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
    /// If `true`, the agent may create breadcrumbs of every schema that is not protected, in addition to those in `responds_with`.
    /// Only the [rules of RCRT servers](DefinitionOptions::rcrt) set it.
    pub creates_any_schema: bool,
    /// If `true`, an answer that is an [action](crate::agent#actions) may request tools in `tool_requests`. Only the
    /// [rules of RCRT servers](DefinitionOptions::rcrt) set it.
    pub requests_tools: bool,
    /// If `true`, the agent may call every tool that the service registers for it, because its definition has no `tools`. Only the
    /// [rules of RCRT servers](DefinitionOptions::rcrt) set it.
    pub uses_any_tool: bool,
    /// What it may write by an answer that is an [action](crate::agent#actions); if absent every answer is text.
    pub capabilities: Option<AgentCapabilities>,
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
    pub uses: Vec<AgentRef>,
    /// The agents that it may hand over to, until they give back: `handoff`.
    pub handoff: Vec<AgentRef>,
    /// The agents that it may leave the rest to; their answer is that of the run: `delegate`.
    pub delegate: Vec<AgentRef>,
    /// What it hands in beside its answer: `outputs`, each with `name`, `description`, `schema` and `required`.
    pub outputs: Vec<OutputSlot>,
    /// How often a run that ends without a required output is reminded of it; 1 by default.
    pub reminders: u32,
    /// The calls that need the approval of a person: `approval`.
    pub approval: Approvals,
    /// How long is waited for others: `wait_seconds`.
    pub wait_seconds: WaitSeconds,
    pub(super) warnings: Vec<Finding>,
    pub(super) text: String,
}

/// What one run of an agent may use up at the most, all its attempts together; any number where it says nothing.
///
/// An answer of the model that needs no more counts whatever it cost. One that wants to go on ends the run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
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
    /// An unknown field has no effect, and [`warnings`](Self::warnings) names it.
    ///
    /// # Errors
    /// Returns [`AgentError`] with the name of the field to fix. An unknown field is an error if its name is nearly that of a field
    /// which restricts the agent or instructs its model.
    pub fn from_json(definition: &Value) -> Result<Self, AgentError> {
        Self::from_json_with(definition, &DefinitionOptions::default())
    }

    /// Reads a definition with options, for example in [strict](DefinitionOptions::strict) mode.
    ///
    /// # Errors
    /// See [`from_json`](Self::from_json). In strict mode every unknown field is an error, except in `capabilities`.
    pub fn from_json_with(
        definition: &Value,
        options: &DefinitionOptions,
    ) -> Result<Self, AgentError> {
        let context = definition.get("context").unwrap_or(definition);
        let Value::Object(fields) = context else {
            return Err(AgentError::Field {
                field: "context",
                expected: "an object",
            });
        };
        let found = fields::check(fields, options);
        fields::refuse(&found)?;
        let agent_id = agent_id(fields)?;
        let subscriptions = Subscriptions::from_json_with(context, options).map_err(|source| {
            AgentError::Subscriptions {
                agent: agent_id.clone(),
                source,
            }
        })?;
        let capabilities = given(fields, "capabilities")
            .map(|_| AgentCapabilities::read(fields))
            .transpose()?;
        let uses_any_tool = options.rcrt && uses_any_tool(fields);
        let creates = capabilities.is_some_and(|may| may.can_create_breadcrumbs);
        Ok(Self {
            creates_any_schema: options.rcrt && creates_any_schema(fields),
            requests_tools: options.rcrt && creates,
            uses_any_tool,
            model: read(fields, "model", "a string")?,
            llm_config_id: match options.rcrt {
                true => read(fields, "llm_config_id", CONFIG)?,
                false => None,
            },
            temperature: read(fields, "temperature", "a number")?,
            system_prompt: read(fields, "system_prompt", "a string")?.unwrap_or_default(),
            context_format: format(fields)?,
            context_budget: budget(fields)?,
            responds_with: responds_with(fields)?,
            capabilities,
            trust: Trust::read(fields)?,
            tools: read(fields, "tools", TOOLS)?.unwrap_or_default(),
            max_turns: read(fields, "max_turns", "a whole number over 0")?
                .map_or(Self::MAX_TURNS, NonZeroU32::get),
            budgets: budgets(fields)?,
            output_schema: output_schema(fields)?,
            tool_calls: read(fields, "tool_calls", CALLED)?
                .unwrap_or_else(|| ToolCalls::by_default(uses_any_tool)),
            return_to_user: read(fields, "return_to_user", TOOLS)?.unwrap_or_default(),
            uses: colleagues(fields, "use")?,
            handoff: colleagues(fields, "handoff")?,
            delegate: colleagues(fields, "delegate")?,
            outputs: read_commented(fields, "outputs", OUTPUTS)?.unwrap_or_default(),
            reminders: read(fields, "reminders", "a whole number")?.unwrap_or(1),
            approval: approvals(fields, options)?,
            wait_seconds: read_commented(fields, "wait_seconds", WAITS)?.unwrap_or_default(),
            agent_id,
            subscriptions,
            warnings: found.into_vec(),
            text: sorted_text(context),
        })
    }

    /// Returns the problems of the fields: unknown fields and a missing `system_prompt`, at most 100.
    /// [`Subscriptions::warnings`] returns the problems of the subscriptions.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }

    /// Returns `true` if the lists and rules of the definition let the agent create a schema.
    pub(crate) fn may_create(&self, schema: &str) -> bool {
        let is_listed = self.responds_with.iter().any(|listed| listed == schema);
        is_listed || (self.creates_any_schema && is_open(schema))
    }

    /// Checks the fields of the context of a definition, whether or not the definition can be read.
    #[cfg(feature = "workflows")]
    pub(crate) fn check_fields(context: &Value, options: &DefinitionOptions) -> Findings {
        let fields = context.as_object();
        fields.map_or_else(Findings::default, |fields| fields::check(fields, options))
    }

    /// The JSON it was read from, for its hash: the same whatever the order of its keys.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

// What the fields must be.
const CONFIG: &str = "null or the ID of a tool.config.v1 breadcrumb";
const TOOLS: &str = "a list of tool names";
const CALLED: &str = "\"in_process\" or \"breadcrumbs\"";
const OUTPUTS: &str =
    "a list of objects with \"name\", and if wanted \"description\", \"schema\" and \"required\"";
const WAITS: &str = "an object of \"people\", \"agents\" and \"model\", numbers of seconds over 0";

mod approvals;
mod field_types;
mod fields;
mod read;

pub(super) use approvals::entry as approval_entry;
pub use approvals::{Approvals, ToolApproval};
pub use field_types::{AgentRef, OutputSlot, ToolCalls, WaitSeconds};
#[cfg(test)]
pub(super) use fields::AGENT as AGENT_FIELDS;

use super::action::is_open;
use super::{AgentCapabilities, AgentError, Trust};
use crate::executor::{ContextBudget, Format};
#[cfg(feature = "workflows")]
use crate::model::Findings;
use crate::model::{BreadcrumbId, DefinitionOptions, Finding, Json, Subscriptions, sorted_text};
use approvals::approvals;
use read::{
    agent_id, agent_refs, budget, budgets, creates_any_schema, format, non_null, output_schema,
    read, read_commented, responds_with, uses_any_tool,
};
use serde::Serialize;
use serde_json::Value;
use std::num::NonZeroU32;

/// The definition of an agent: the context of an `agent.def.v1` breadcrumb.
///
/// The [module](crate::agent#definitions) lists the JSON fields. To create a definition in code, use [`Agent`](crate::agent::Agent).
///
/// Use it for agents that are files or breadcrumbs, so that they change without a new build.
/// [`AgentExecutor`](crate::agent::AgentExecutor) runs a definition, and
/// [`definitions`](crate::runtime::definitions) run all definitions in a store.
///
/// A field that is `null` counts as missing. The definition hash of a run is computed from the
/// whole JSON, so a changed comment also changes the hash.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::agent::{AgentDefinition, AgentError};
///
/// let definition = AgentDefinition::from_json(&json!({
///     "agent_id": "helper",
///     "system_prompt": "Answer questions about orders.",
///     "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
///     "tools": ["search"],
///     "max_turns": 4,
/// }))?;
/// assert_eq!(definition.tools, ["search"]);
/// assert_eq!(definition.responds_with, ["agent.response.v1"]); // the default
/// assert!(definition.warnings().is_empty());
///
/// let error = AgentDefinition::from_json(&json!({"agent_id": 7})).unwrap_err();
/// assert!(matches!(error, AgentError::Field { field: "agent_id", .. }));
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AgentDefinition {
    /// The name of the agent, which is also the ID of its executor. The name has 1 to 256 bytes and no control characters.
    ///
    /// Required. The ID identifies the runs of the agent in the ledger.
    pub agent_id: String,
    /// The model name that the agent's requests to its model provider contain, or `None` for the provider's default model.
    ///
    /// In a definition that a store contains, the name also selects a model of the
    /// [`Services`](crate::Services).
    pub model: Option<String>,
    /// The ID of the `tool.config.v1` breadcrumb that configures the tool which serves the agent's model, or `None` for no
    /// configuration. Read only by the [rules of RCRT servers](DefinitionOptions::rcrt).
    pub llm_config_id: Option<BreadcrumbId>,
    /// The sampling temperature of the agent's model, or `None` for the provider's default.
    ///
    /// The crate does not limit the range.
    pub temperature: Option<f64>,
    /// The instructions of the agent's author to the model.
    ///
    /// Defaults to an empty text, with a [warning](Self::warnings).
    pub system_prompt: String,
    /// The triggers and the context sources of the agent.
    ///
    /// Required. The field `subscriptions` is a list of subscriptions with the roles `trigger` and
    /// `context`.
    pub subscriptions: Subscriptions,
    /// The text format in which the agent's model receives the trigger and context breadcrumbs. The field `context_format` is
    /// `"markdown"` (the default) or `"xml"`.
    pub context_format: Format,
    /// The maximum size of the trigger and context breadcrumbs in the input of the agent's model. The field `context_budget` has
    /// `tokens`, `bytes` and `items_per_source`. The defaults are those of [`ContextBudget`].
    pub context_budget: ContextBudget,
    /// The schemas of the breadcrumbs that the agent may write. Defaults to `agent.response.v1`.
    ///
    /// Without [`capabilities`](Self::capabilities), the list must contain `agent.response.v1`.
    pub responds_with: Vec<String>,
    /// If `true`, the agent may create breadcrumbs of schemas that its list `responds_with` does not contain. Protected schemas,
    /// such as definitions and requests, and schemas that start with `tool.`, `user.` or `system.` are excluded. Only the
    /// [rules of RCRT servers](DefinitionOptions::rcrt) set this field.
    pub creates_any_schema: bool,
    /// If `true`, an [action](crate::agent#actions) in an answer of the agent's model may also request tools, in the field
    /// `tool_requests`. Only the [rules of RCRT servers](DefinitionOptions::rcrt) set this field.
    pub requests_tools: bool,
    /// If `true`, the agent may call every tool in the registry with which its executor is created, because the agent definition
    /// has no field `tools`. Only the [rules of RCRT servers](DefinitionOptions::rcrt) set this field.
    pub uses_any_tool: bool,
    /// The breadcrumb writes that the agent's model may request in its answers, as [actions](crate::agent#actions). If `None`,
    /// every answer is text.
    pub capabilities: Option<AgentCapabilities>,
    /// The schemas whose breadcrumbs contain private data, contain untrusted content, or leave the system, in one list each. The
    /// lists are in the field `trust`.
    pub trust: Trust,
    /// The names of the tools that the agent may call. Defaults to none.
    ///
    /// A tool of the registry that is not in the list cannot be called.
    pub tools: Vec<String>,
    /// The maximum number of turns of one run, each of which is one model request or one start of the agent's external program.
    /// Defaults to 10.
    ///
    /// The minimum is 1. All attempts of a run count together.
    pub max_turns: u32,
    /// The limits of one run of the agent for tokens, tool calls and time.
    pub budgets: Budgets,
    /// The JSON Schema of the agent's answers, or `None` for any text.
    ///
    /// The schema must be an object. The response has the value in `output`.
    pub output_schema: Option<Json>,
    /// The way in which the agent calls its tools. The field `tool_calls` is `"in_process"` (the default) or `"breadcrumbs"`, that is by
    /// `tool.request.v1`. A tool with the setting [`over_breadcrumbs`](crate::tool::ToolSettings::over_breadcrumbs) is always called by
    /// breadcrumbs.
    pub tool_calls: ToolCalls,
    /// The tools whose results are the answer of the run, unless the same model answer also calls other tools. They are in the
    /// field `return_to_user`.
    ///
    /// Each name must also be in [`tools`](Self::tools). Defaults to none.
    pub return_to_user: Vec<String>,
    /// The agents that the agent may call as tools, whose results are the called agents' answers. They are in the field `use`.
    ///
    /// Defaults to none. The tool name for the model is the ID of the other agent.
    pub uses: Vec<AgentRef>,
    /// The agents that the agent can call with the tools `handoff-to-<id>`, and whose answers are the results of these tool
    /// calls. The agents are in the field `handoff`.
    ///
    /// Defaults to none.
    pub handoff: Vec<AgentRef>,
    /// The agents to which the agent may delegate the rest of the run, so that their answer is the answer of the run. They are in
    /// the field `delegate`.
    ///
    /// Defaults to none. The tool name for the model is `delegate-to-<id>`.
    pub delegate: Vec<AgentRef>,
    /// The outputs that the agent submits in addition to its answer. They are in the list `outputs`, each with `name`, `description`,
    /// `schema` and `required`.
    ///
    /// Defaults to none.
    pub outputs: Vec<OutputSlot>,
    /// The maximum number of times that one run reminds the model of missing required outputs. A reminder names all of these
    /// outputs. Defaults to 1.
    ///
    /// Zero disables the reminders.
    pub reminders: u32,
    /// The agent's tool calls that need the approval of a person. They are in the field `approval`.
    ///
    /// Defaults to no rules, so the agent makes all calls without a question.
    pub approval: Approvals,
    /// The timeouts of an agent run's requests to people, to other agents, and to a model of another service. They are in the field
    /// `wait_seconds`.
    ///
    /// The defaults are one day, one hour and ten minutes.
    pub wait_seconds: WaitSeconds,
    pub(super) warnings: Vec<Finding>,
    pub(super) text: String,
}

/// The limits of one agent run on tokens, tool calls and time, for all attempts of the run together. `None` means no limit.
///
/// The run checks the limits before it executes the tool calls of an answer or requests another answer. A final answer counts even if it
/// exceeds a limit.
/// A run that reaches a limit without a final answer fails with
/// [`AgentRunError::BudgetUsedUp`](crate::agent::AgentRunError::BudgetUsedUp) and is not retried.
/// In JSON each limit is a whole number greater than 0. The default has no limits.
///
/// # Examples
/// ```
/// use universal_executor::agent::Budgets;
///
/// let mut budgets = Budgets::default();
/// budgets.tokens = Some(50_000);
/// budgets.calls = Some(20);
/// assert_eq!(budgets.seconds, None);
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Budgets {
    /// The maximum number of input and output tokens of one agent run.
    ///
    /// The count comes from the [`Usage`](crate::agent::Usage) of the answers. A provider that
    /// reports no usage never reaches this limit.
    pub tokens: Option<u64>,
    /// The maximum number of tool calls of one agent run. If an answer requests more calls than remain, none of its calls is made.
    ///
    /// Refused calls count, too.
    pub calls: Option<u64>,
    /// The maximum time in seconds that one agent run may work, not counting the time in which the run is suspended. After this
    /// time, the run ends even if calls are in flight. Work that a failed attempt did after it last saved its progress does not
    /// count. The timeout of the profile also applies to each attempt.
    pub seconds: Option<u64>,
}

impl AgentDefinition {
    const MAX_TURNS: u32 = 10;

    /// Reads an agent definition from JSON: an `agent.def.v1` breadcrumb or its context.
    ///
    /// An unknown field has no effect, and [`warnings`](Self::warnings) names it.
    ///
    /// The context is read from the field `context` if the value has one, otherwise the value
    /// itself is the context. Names of tools, agents and schemas are checked later, when an
    /// [`AgentExecutor`](crate::agent::AgentExecutor) is created.
    ///
    /// # Errors
    /// Returns [`AgentError`] with the name of the field to fix. An unknown field is an error if its name resembles that of a field
    /// which restricts the agent or instructs its model.
    ///
    /// - [`AgentError::Field`] if a field is missing or has a wrong type.
    /// - [`AgentError::BadId`] if the ID is empty, too long or has a control character.
    /// - [`AgentError::UnknownField`] for such an unknown field.
    /// - [`AgentError::BadApproval`] if a rule in `approval` cannot be read.
    /// - [`AgentError::Subscriptions`] if the subscriptions are invalid.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::agent::{AgentDefinition, AgentError};
    ///
    /// let mut json = json!({
    ///     "agent_id": "helper", "system_prompt": "Help.", "color": "red",
    ///     "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
    /// });
    /// let definition = AgentDefinition::from_json(&json)?;
    /// assert_eq!(definition.warnings().len(), 1); // "color" has no effect
    ///
    /// json["max_turn"] = json!(4); // resembles the restriction "max_turns"
    /// let error = AgentDefinition::from_json(&json).unwrap_err();
    /// assert!(matches!(error, AgentError::UnknownField { .. }));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn from_json(definition: &Value) -> Result<Self, AgentError> {
        Self::from_json_with(definition, &DefinitionOptions::default())
    }

    /// Reads an agent definition with options, for example in [strict](DefinitionOptions::strict) mode.
    ///
    /// Use strict mode for files in a repository, where each unknown field is a mistake. Use
    /// [`DefinitionOptions::rcrt`] for definitions that were written for an RCRT (Right Context
    /// Right Time) server.
    ///
    /// # Errors
    /// See [`from_json`](Self::from_json). In strict mode every unknown field is an error, except in `capabilities`.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::agent::AgentDefinition;
    /// use universal_executor::model::DefinitionOptions;
    ///
    /// let json = json!({
    ///     "agent_id": "helper", "system_prompt": "Help.", "color": "red",
    ///     "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
    /// });
    /// let strict = DefinitionOptions::default().strict();
    /// assert!(AgentDefinition::from_json_with(&json, &strict).is_err());
    /// assert!(AgentDefinition::from_json(&json).is_ok());
    /// ```
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
        let findings = fields::check(fields, options);
        fields::reject_errors(&findings)?;
        let agent_id = agent_id(fields)?;
        let subscriptions = Subscriptions::from_json_with(context, options).map_err(|source| {
            AgentError::Subscriptions {
                agent: agent_id.clone(),
                source,
            }
        })?;
        let capabilities = non_null(fields, "capabilities")
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
                true => read(fields, "llm_config_id", EXPECTED_CONFIG_ID)?,
                false => None,
            },
            temperature: read(fields, "temperature", "a number")?,
            system_prompt: read(fields, "system_prompt", "a string")?.unwrap_or_default(),
            context_format: format(fields)?,
            context_budget: budget(fields)?,
            responds_with: responds_with(fields)?,
            capabilities,
            trust: Trust::read(fields)?,
            tools: read(fields, "tools", EXPECTED_TOOLS)?.unwrap_or_default(),
            max_turns: read(fields, "max_turns", "a whole number greater than 0")?
                .map_or(Self::MAX_TURNS, NonZeroU32::get),
            budgets: budgets(fields)?,
            output_schema: output_schema(fields)?,
            tool_calls: read(fields, "tool_calls", EXPECTED_TOOL_CALLS)?
                .unwrap_or_else(|| ToolCalls::by_default(uses_any_tool)),
            return_to_user: read(fields, "return_to_user", EXPECTED_TOOLS)?.unwrap_or_default(),
            uses: agent_refs(fields, "use")?,
            handoff: agent_refs(fields, "handoff")?,
            delegate: agent_refs(fields, "delegate")?,
            outputs: read_commented(fields, "outputs", EXPECTED_OUTPUTS)?.unwrap_or_default(),
            reminders: read(fields, "reminders", "a whole number")?.unwrap_or(1),
            approval: approvals(fields, options)?,
            wait_seconds: read_commented(fields, "wait_seconds", EXPECTED_WAIT_SECONDS)?
                .unwrap_or_default(),
            agent_id,
            subscriptions,
            warnings: findings.into_vec(),
            text: sorted_text(context),
        })
    }

    /// Returns at most 100 warnings about the fields of the agent definition: unknown fields and a missing `system_prompt`.
    /// [`Subscriptions::warnings`] returns the warnings about the subscriptions.
    ///
    /// A deployment check can fail if the list is not empty. In strict mode unknown fields are
    /// errors, so only the warnings about `capabilities` and `system_prompt` remain.
    #[must_use]
    pub fn warnings(&self) -> &[Finding] {
        &self.warnings
    }

    /// Returns `true` if the agent definition permits the agent to create breadcrumbs of a schema.
    pub(crate) fn may_create(&self, schema: &str) -> bool {
        let is_listed = self.responds_with.iter().any(|listed| listed == schema);
        is_listed || (self.creates_any_schema && is_open(schema))
    }

    /// Checks the field names in the context of an agent definition, even if the definition cannot be read.
    #[cfg(feature = "workflows")]
    pub(crate) fn check_fields(context: &Value, options: &DefinitionOptions) -> Findings {
        let fields = context.as_object();
        fields.map_or_else(Findings::default, |fields| fields::check(fields, options))
    }

    /// Returns the JSON of the agent definition with sorted keys, from which the definition's hash is computed.
    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

// The expected values of fields, for errors.
const EXPECTED_CONFIG_ID: &str = "null or the ID of a tool.config.v1 breadcrumb";
const EXPECTED_TOOLS: &str = "a list of tool names";
const EXPECTED_TOOL_CALLS: &str = "\"in_process\" or \"breadcrumbs\"";
const EXPECTED_OUTPUTS: &str =
    "a list of objects with \"name\", and optionally \"description\", \"schema\" and \"required\"";
const EXPECTED_WAIT_SECONDS: &str =
    "an object of \"people\", \"agents\" and \"model\", numbers of seconds greater than 0";

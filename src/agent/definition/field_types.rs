//! Parts of agent definitions: tool calls, references to other agents, additional outputs, and timeouts.

use crate::model::Json;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// The way in which an agent calls its tools.
///
/// The JSON field `tool_calls` is `"in_process"` or `"breadcrumbs"`.
///
/// # Examples
/// ```
/// use universal_executor::agent::ToolCalls;
///
/// assert_eq!(ToolCalls::default(), ToolCalls::InProcess);
/// assert_eq!(serde_json::to_value(ToolCalls::Breadcrumbs)?, "breadcrumbs");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolCalls {
    /// The agent calls its tools in the worker process that executes the run, through the tool registry.
    ///
    /// The run occupies its worker while a tool works. Use it for tools that take seconds.
    #[default]
    InProcess,
    /// The agent calls its tools by `tool.request.v1` breadcrumbs, which `tool.response.v1` breadcrumbs answer. The run is suspended in the
    /// meantime and occupies no worker.
    ///
    /// Use it for tools that take minutes or that another process serves. The store needs a ledger.
    Breadcrumbs,
}

impl ToolCalls {
    /// Returns the way in which an agent calls tools by default: by breadcrumbs if the rules of RCRT servers let the agent call
    /// every registered tool, otherwise in the worker process of the run.
    pub(super) fn by_default(uses_any_tool: bool) -> Self {
        match uses_any_tool {
            true => Self::Breadcrumbs,
            false => Self::InProcess,
        }
    }
}

/// A reference to another agent in an agent definition: the agent ID, or `{"agent": .., "description": ..}`.
///
/// The entries of `use`, `handoff` and `delegate` have this form.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::agent::AgentRef;
///
/// let short: AgentRef = serde_json::from_value(json!("billing"))?;
/// assert_eq!((short.agent.as_str(), short.description), ("billing", None));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "AgentRefJson")]
#[non_exhaustive]
pub struct AgentRef {
    /// The ID of the agent to call.
    ///
    /// An agent cannot call itself: its own ID is
    /// [`AgentError::CallsItself`](crate::agent::AgentError::CallsItself).
    pub agent: String,
    /// A description of the other agent for the model of the calling agent. The model decides from it when to call the other agent.
    ///
    /// Without a description the model receives only the ID and the kind of call.
    pub description: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AgentRefJson {
    Id(String),
    Described {
        agent: String,
        #[serde(default)]
        description: Option<String>,
    },
}

impl From<AgentRefJson> for AgentRef {
    fn from(json: AgentRefJson) -> Self {
        let (agent, description) = match json {
            AgentRefJson::Id(agent) => (agent, None),
            AgentRefJson::Described { agent, description } => (agent, description),
        };
        Self { agent, description }
    }
}

/// An output that an agent submits in addition to its answer, such as a completion report or a plan. The agent submits it once, by calling
/// a tool with the name of the output.
///
/// Use it if the caller needs a separate JSON value next to the text of the answer. For one value
/// instead of text, use [`output_schema`](crate::agent::AgentDefinition::output_schema). An unknown
/// field in the JSON of an output is an error.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::agent::OutputSlot;
///
/// let report = OutputSlot::new("report", "The completion report.")
///     .schema(json!({"type": "object", "required": ["done"]}))
///     .required();
/// assert_eq!(report.schema["required"], json!(["done"]));
///
/// let read: OutputSlot = serde_json::from_value(json!({"name": "plan"}))?;
/// assert!(!read.required);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OutputSlot {
    /// The name of the additional output that the agent's model submits, which follows the rules for
    /// [tool names](crate::tool::Tool::name).
    pub name: String,
    /// A description of the additional output for the model.
    ///
    /// Defaults to an empty text.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of the additional output's value. Defaults to any object.
    ///
    /// A schema that cannot be used is
    /// [`AgentError::BadOutputSchema`](crate::agent::AgentError::BadOutputSchema) when the
    /// [`AgentExecutor`](crate::agent::AgentExecutor) is created.
    #[serde(default = "any_object")]
    pub schema: Json,
    /// If `true`, the response of a run without this additional output has the status `incomplete`. Defaults to `false`.
    ///
    /// The model receives [`reminders`](crate::agent::AgentDefinition::reminders) first. The response also lists the output in
    /// `missing`.
    #[serde(default)]
    pub required: bool,
}

impl OutputSlot {
    /// Creates an optional output that an agent submits in addition to its answer. The value is any JSON object.
    ///
    /// The name must follow the rules of a [tool name](crate::tool::Tool::name), which are not
    /// checked here, and differ from the names of the agent's tools. The model reads the description.
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
    ///
    /// The feature `validate` checks submitted values against the schema. Without it, the schema
    /// only instructs the model.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<Json>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Makes the additional output required: the response of a run without the output has the status `incomplete`.
    ///
    /// The model receives [reminders](crate::agent::AgentDefinition::reminders) before the run
    /// ends.
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
///
/// Each field is at least 1 second. A missing field has its default, and an unknown field is an
/// error. A timeout cancels nothing: the other agent or service may still do its work. An answer
/// after the model has received the error has no effect.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::agent::WaitSeconds;
///
/// let wait: WaitSeconds = serde_json::from_value(json!({"people": 7_200}))?;
/// assert_eq!(wait.people.get(), 7_200);
/// assert_eq!((wait.agents.get(), wait.model.get()), (3_600, 600)); // the defaults
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct WaitSeconds {
    /// The timeout in seconds of an agent's requests to people. Defaults to one day.
    ///
    /// An approval rule with its own time replaces this timeout. The model receives the error
    /// `expired`.
    pub people: NonZeroU32,
    /// The timeout in seconds of an agent's requests to other agents. Defaults to one hour.
    ///
    /// The model receives the error `timeout`. The other agent may still be running.
    pub agents: NonZeroU32,
    /// The timeout in seconds of an agent's requests to a model of another service. After the timeout, the request counts as failed.
    /// Defaults to ten minutes.
    ///
    /// Only a [`BreadcrumbModel`](crate::agent::BreadcrumbModel) waits for a model in this way.
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

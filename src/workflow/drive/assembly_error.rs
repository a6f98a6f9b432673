use crate::agent::AgentError;
use crate::error::{Retry, excerpt};
use crate::model::nearest;
use crate::tool::ToolError;
use std::collections::BTreeMap;

/// Error of a workflow that cannot run with the registered services.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssemblyError {
    /// Item that the workflow names and the services do not have.
    #[error("no {what} named {name:?} is registered{}", instead(nearest.as_deref(), known))]
    NotRegistered {
        /// Kind of the item: `tool`, `model`, `guardrail`; `agent` for an unknown agent of the workflow.
        what: &'static str,
        /// Name in the definition.
        name: String,
        /// Closest registered name.
        nearest: Option<String>,
        /// All registered names, separated by commas.
        known: String,
    },
    /// Missing model: the definition names none, and the services have no default model.
    #[error(
        "{what} {name:?} names no model, and no default model is registered; name a model in the definition, or register one with \
         Services::default_model"
    )]
    NoDefaultModel {
        /// `agent`, `model` or `compaction`.
        what: &'static str,
        /// Name of the agent or model in the definition, or `summarise`.
        name: String,
    },
    /// Provider for agents that a step or the compaction policy uses as a model.
    #[error(
        "model {name:?} is used by a step or for summaries, but is registered as a provider for agents; register a model for it"
    )]
    NotForSteps {
        /// Name in `models`.
        name: String,
    },
    /// Schemas in a build of the crate without the feature `validate`, which cannot check values against them.
    #[error(
        "the workflow has schemas, which need the feature \"validate\"; enable the feature, or remove the schemas"
    )]
    NoValidation,
    /// Limit in the definition that is above the maximum of the services.
    #[error(
        "policies.limits.{limit} is {found}, and the services allow at most {most}; lower the limit in the definition, or raise the \
         maximum with Services::limits"
    )]
    OverLimit {
        /// `steps`, `items`, `value_bytes` or `total_bytes`.
        limit: &'static str,
        /// Limit in the definition, or its default.
        found: u64,
        /// Maximum that the services allow.
        most: u64,
    },
    /// Protected schema that a step or agent would write: requests, answers of people, definitions.
    #[error("the definition writes schema {schema:?}, which is protected; use another schema")]
    Protected {
        /// The schema.
        schema: String,
    },
    /// Other name for a tool of another service, which is requested by its own name.
    #[error(
        "tool {tool:?} belongs to another service and cannot be renamed to {name:?}; use its own name"
    )]
    CannotRename {
        /// Name of the tool.
        tool: String,
        /// Name in the definition.
        name: String,
    },
    /// Tool that cannot be used.
    #[error("cannot use tool {name:?}")]
    Tool {
        /// Name in `tools`.
        name: String,
        /// The cause.
        source: Box<ToolError>,
    },
    /// Agent that cannot be created, or output schema of a model step that cannot be used.
    #[error("cannot set up agent or model {name:?}")]
    Agent {
        /// Name in `agents`, or in `models` for a model step.
        name: String,
        /// The cause.
        source: Box<AgentError>,
    },
}

impl AssemblyError {
    /// Returns [`Retry::Never`]: the definition or the registered services have to change.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// Returns the error for a name that is not a key of a map.
pub(super) fn unknown<T>(
    what: &'static str,
    name: &str,
    known: &BTreeMap<String, T>,
) -> AssemblyError {
    not_registered(what, name, known.keys().map(String::as_str))
}

/// Returns the error for a name that is not registered.
pub(super) fn not_registered<'n>(
    what: &'static str,
    name: &str,
    known: impl IntoIterator<Item = &'n str>,
) -> AssemblyError {
    let known: Vec<&str> = known.into_iter().collect();
    let listed = match known.is_empty() {
        true => "none".to_owned(),
        false => excerpt(&known.join(", "), 500).into_owned(),
    };
    AssemblyError::NotRegistered {
        what,
        name: excerpt(name, 80).into_owned(),
        nearest: nearest(name, known).map(str::to_owned),
        known: listed,
    }
}

fn instead(nearest: Option<&str>, known: &str) -> String {
    match nearest {
        Some(name) => format!("; did you mean {name:?}?"),
        None => format!("; registered: {known}"),
    }
}

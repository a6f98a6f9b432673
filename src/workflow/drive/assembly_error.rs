use crate::agent::AgentError;
use crate::error::{Retry, excerpt};
use crate::model::nearest;
use crate::tool::ToolError;
use std::collections::BTreeMap;

/// Error of a workflow that cannot run with the registered services.
///
/// [`Assembly::new`](crate::workflow::Assembly::new) returns it. For an executor or a supervisor,
/// it is the cause of a [`WorkloadError::Definition`](crate::workload::WorkloadError::Definition).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssemblyError {
    /// The workflow names a tool, model or guardrail that is not registered, or an agent that it does not define.
    ///
    /// Register the item in the [`Services`](crate::Services), or correct the name in the
    /// definition.
    #[error("no {what} named {name:?} is registered{}", instead(nearest.as_deref(), known))]
    NotRegistered {
        /// Kind of the missing item, which is `tool`, `model` or `guardrail`, or `agent` for an unknown agent of the workflow.
        what: &'static str,
        /// Name of the missing tool, model, guardrail or agent in the workflow definition.
        name: String,
        /// Registered name that is closest to the missing name.
        nearest: Option<String>,
        /// All known names of the kind of the missing item (tools, models, guardrails or agents), separated by commas.
        known: String,
    },
    /// An agent, a model or the compaction policy names no model, and the services have no default model.
    #[error(
        "{what} {name:?} names no model, and no default model is registered; name a model in the definition, or register one with \
         Services::default_model"
    )]
    NoDefaultModel {
        /// Kind of the definition entry without a model name, which is `agent`, `model` or `compaction`.
        what: &'static str,
        /// Name of the agent or model entry without a model name, or `summarise` for the compaction policy.
        name: String,
    },
    /// A step or the compaction policy uses a registered model provider as its model, but only agents can use model providers.
    #[error(
        "model {name:?} is used by a step or for summaries, but is registered as a provider, which only agents can use; register a chat \
         model in its place"
    )]
    NotForSteps {
        /// Name of the model in the section `models`.
        name: String,
    },
    /// The workflow has schemas, but the crate is built without the feature `validate`, so it cannot check values against them.
    #[error(
        "the workflow has schemas, which need the feature \"validate\"; enable the feature, or remove the schemas"
    )]
    NoValidation,
    /// A limit in `policies.limits` of the workflow definition is above the maximum that the services allow.
    #[error(
        "policies.limits.{limit} is {found}, and the services allow at most {most}; lower the limit in the definition, or raise the \
         maximum with Services::limits"
    )]
    OverLimit {
        /// Name of the limit in `policies.limits` that is too high: `steps`, `items`, `value_bytes` or `total_bytes`.
        limit: &'static str,
        /// Value of the limit in the workflow definition, or the default value if the definition does not set the limit.
        found: u64,
        /// Maximum that the services allow for this limit of the workflow definition.
        most: u64,
    },
    /// A step or agent would write a protected schema, such as a request, an answer of a person or a definition.
    #[error(
        "a step or agent of the workflow writes schema {schema:?}, which is protected; use another schema"
    )]
    Protected {
        /// Name of the protected schema.
        schema: String,
    },
    /// The workflow definition gives a new name to a tool of another service. Requests to this service must contain the tool's
    /// registered name.
    #[error(
        "tool {tool:?} belongs to another service and cannot be renamed to {name:?}; use the name {tool:?} in \"tools\""
    )]
    CannotRename {
        /// Name with which the tool is registered.
        tool: String,
        /// New name of the tool in the workflow definition.
        name: String,
    },
    /// A registered tool cannot be used with its settings in the section `tools`.
    #[error(
        "cannot use tool {name:?} of the workflow with its settings in \"tools\"; see the cause"
    )]
    Tool {
        /// Name of the tool in the section `tools`.
        name: String,
        /// Reason why the tool cannot be used.
        source: Box<ToolError>,
    },
    /// An agent of the workflow cannot be created, or the output schema of a model step cannot be used.
    #[error(
        "cannot assemble the workflow: agent {name:?} is invalid, or a step with model {name:?} has an invalid output schema; see the \
         cause"
    )]
    Agent {
        /// Name of the agent in the section `agents`, or, for a model step, of the step's model in the section `models`.
        name: String,
        /// Reason why the agent cannot be created or the output schema cannot be used.
        source: Box<AgentError>,
    },
}

impl AssemblyError {
    /// Returns [`Retry::Never`]: the workflow definition or the registered services have to change.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// Returns the error for a name in a workflow definition that is not a key of the map `known` of registered names.
pub(super) fn unknown<T>(
    what: &'static str,
    name: &str,
    known: &BTreeMap<String, T>,
) -> AssemblyError {
    not_registered(what, name, known.keys().map(String::as_str))
}

/// Returns the error for a name in a workflow definition that is not among `known`, the registered names of the same kind.
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

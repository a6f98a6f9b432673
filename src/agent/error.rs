use crate::error::{BoxError, Retry};
use crate::executor::InvalidExecutor;
use crate::model::{DefinitionError, DefinitionPath, DefinitionProblem};
use crate::tool::ToolError;

/// Error returned when an agent cannot be created from a definition.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A field of the definition is missing or of the wrong type.
    #[error("field {field:?} of the agent definition must be {expected}")]
    Field {
        /// The field name.
        field: &'static str,
        /// The expected type or value.
        expected: &'static str,
    },
    /// A field of the definition is unknown. This is an error if the name resembles that of a restriction, if the field is in an object of
    /// restrictions, or in [strict](crate::model::DefinitionOptions::strict) mode.
    #[error("{path} of the agent definition: {problem}")]
    UnknownField {
        /// The path of the field in the context of the definition.
        path: DefinitionPath,
        /// The name of the field and the nearest known fields.
        problem: String,
    },
    /// A part of the field `approval` cannot be read.
    #[error("{path} of the agent definition: {problem}")]
    BadApproval {
        /// The path of the part in the context of the definition.
        path: DefinitionPath,
        /// The problem.
        problem: Box<DefinitionProblem>,
    },
    /// The subscriptions of the definition are invalid.
    #[error("agent {agent:?} has invalid subscriptions")]
    Subscriptions {
        /// The agent ID.
        agent: String,
        /// The problem in the subscriptions.
        source: DefinitionError,
    },
    /// A tool of an [`Agent`](super::Agent) cannot be registered.
    #[error("cannot add tool {tool:?} to the agent")]
    BadTool {
        /// The tool name.
        tool: String,
        /// The problem of the tool.
        source: Box<ToolError>,
    },
    /// An [`Agent`](super::Agent) names its model, but was bound without [`Services`](crate::Services).
    #[error(
        "agent {agent:?} names the model {model:?}, but no services are set; set RuntimeBuilder::services, or bind the agent with \
         Agent::bind_with"
    )]
    NamedModel {
        /// The agent ID.
        agent: String,
        /// The name of the model.
        model: String,
    },
    /// The services do not have the model that an [`Agent`](super::Agent) names.
    #[error("cannot find the model of agent {agent:?} in the services")]
    Model {
        /// The agent ID.
        agent: String,
        /// The [`NotRegistered`](crate::runtime::definitions::NotRegistered) with the unknown name and the registered names.
        source: BoxError,
    },
    /// The definition names a tool that is not registered, or `approval` or `return_to_user` names a tool that is not in `tools`.
    #[error(
        "agent {agent:?} names tool {tool:?}, which is not registered or not listed in \"tools\"; registered: {known}"
    )]
    UnknownTool {
        /// The agent ID.
        agent: String,
        /// The tool name.
        tool: String,
        /// The names of the registered tools, separated by commas, or `none`.
        known: String,
    },
    /// The definition lists the agent itself in `use`, `handoff` or `delegate`.
    #[error(
        "agent {agent:?} lists itself among the agents to call; remove it from \"use\", \"handoff\" and \"delegate\""
    )]
    CallsItself {
        /// The agent ID.
        agent: String,
    },
    /// Two tools, agents or outputs that the agent may call have the same name.
    #[error(
        "agent {agent:?} has two tools, agents or outputs with the name {name:?}; rename one of them"
    )]
    OfferedTwice {
        /// The agent ID.
        agent: String,
        /// The duplicate name.
        name: String,
    },
    /// The schema of the answers or of an output is not a valid JSON Schema, or is not safe to check values with.
    #[error("agent {agent:?} has an invalid output schema: {reason}")]
    BadOutputSchema {
        /// The agent ID.
        agent: String,
        /// The reason.
        reason: String,
    },
    /// The agent ID is empty, too long or contains a control character.
    #[error("field \"agent_id\" of the agent definition is not a valid executor ID")]
    BadId(#[source] InvalidExecutor),
    /// The agent's settings are invalid, or the store lacks a feature that the agent needs.
    #[error("the agent cannot work on its store")]
    Invalid(#[from] InvalidExecutor),
}

impl AgentError {
    /// Returns [`Retry::Never`]: the definition, the registry or the store must change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// Error that ends a run of an agent although its model and its tools work.
///
/// None of these errors is retried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentRunError {
    /// The model has no final answer, and the run reached its maximum number of turns.
    #[error("the agent has no final answer after {turns} turns, the maximum")]
    TurnsUsedUp {
        /// The number of turns: model requests, or starts of a program that calls back.
        turns: u32,
    },
    /// The model has no final answer, and the run used up a budget.
    #[error("the agent used its budget of {limit} {budget} without a final answer")]
    BudgetUsedUp {
        /// `tokens`, `calls` or `seconds`.
        budget: &'static str,
        /// The budget.
        limit: u64,
    },
    /// The answer does not match the output schema, is an action that is not permitted, or was rejected by a guardrail. The model had
    /// received the problem and answered again, or the run had no turns or budget left for another answer.
    #[error("the model's answer does not meet the requirements: {problem}")]
    BadOutput {
        /// The problem in the answer.
        problem: String,
        /// The model's answer, truncated to 2,048 bytes. Empty if a guardrail rejected the answer.
        raw: String,
    },
    /// The agent ended abnormally: the state machine of its tool calls reported an error or a cancellation.
    #[error("the agent failed: {error}")]
    Broken {
        /// The reason.
        error: String,
    },
    /// The conversation is larger than the maximum size of a run's saved state.
    #[error("cannot save the run's conversation of {size} bytes; the maximum is {limit} bytes")]
    StateTooLarge {
        /// The size of the conversation in bytes.
        size: usize,
        /// The maximum size of a saved state in bytes.
        limit: usize,
    },
    /// An earlier attempt saved a state that this version of the crate cannot read.
    #[error("cannot read the saved state of the run")]
    UnreadableState(#[source] serde_json::Error),
}

impl AgentRunError {
    /// Returns a stable short name of the error for logs, metrics and dead letters. It contains no text of the conversation.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TurnsUsedUp { .. } => "turns_used_up",
            Self::BudgetUsedUp { .. } => "budget_used_up",
            Self::BadOutput { .. } => "bad_output",
            Self::Broken { .. } => "broken",
            Self::StateTooLarge { .. } => "state_too_large",
            Self::UnreadableState(_) => "unreadable_state",
        }
    }

    /// Returns [`Retry::Never`]: a retry would end in the same way.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

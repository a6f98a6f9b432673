use crate::error::{BoxError, Retry};
use crate::executor::InvalidExecutor;
use crate::model::{DefinitionError, DefinitionPath, DefinitionProblem};
use crate::tool::ToolError;

/// An agent cannot be made of a definition.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A field of the definition is missing or of the wrong type.
    #[error("field {field:?} of the agent definition must be {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// The expected type or value.
        expected: &'static str,
    },
    /// A field of the definition does not exist: it is nearly a restriction, it is in an object of restrictions, or the definition
    /// is read in [strict](crate::model::DefinitionOptions::strict) mode.
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
    /// The subscriptions of the definition cannot be used.
    #[error("the subscriptions of agent {agent:?} cannot be used")]
    Subscriptions {
        /// The agent.
        agent: String,
        /// The problem in the subscriptions.
        source: DefinitionError,
    },
    /// A tool of an [`Agent`](super::Agent) cannot be registered.
    #[error("tool {tool:?} cannot be added to the agent")]
    BadTool {
        /// The tool name.
        tool: String,
        /// The problem of the tool.
        source: Box<ToolError>,
    },
    /// An [`Agent`](super::Agent) names its model, and was bound without services that have the model.
    #[error(
        "agent {agent:?} names the model {model:?}, and there are no services to find it in; set RuntimeBuilder::services, or bind \
         the agent with Agent::bind_with"
    )]
    NamedModel {
        /// The agent.
        agent: String,
        /// The name of the model.
        model: String,
    },
    /// The services do not have the model that an [`Agent`](super::Agent) names.
    #[error("cannot find the model of agent {agent:?} in the services")]
    Model {
        /// The agent.
        agent: String,
        /// The [`NotRegistered`](crate::runtime::definitions::NotRegistered) with the unknown name and the registered names.
        source: BoxError,
    },
    /// The definition names a tool that is not registered.
    #[error("agent {agent:?} names tool {tool:?}, which is not registered; there are: {known}")]
    UnknownTool {
        /// The agent.
        agent: String,
        /// The tool.
        tool: String,
        /// The tools there are.
        known: String,
    },
    /// The definition names itself among the agents that it calls.
    #[error("agent {agent:?} calls itself; take it out of \"use\", \"handoff\" and \"delegate\"")]
    CallsItself {
        /// The agent.
        agent: String,
    },
    /// Two things that the agent may call have one name.
    #[error(
        "agent {agent:?} offers its model {name:?} twice; rename the tool, the agent or the output"
    )]
    OfferedTwice {
        /// The agent.
        agent: String,
        /// The name.
        name: String,
    },
    /// The schema of its answers is none, or none that is safe to check with.
    #[error("the output schema of agent {agent:?} cannot be used: {reason}")]
    BadOutputSchema {
        /// The agent.
        agent: String,
        /// The reason.
        reason: String,
    },
    /// The agent ID is empty, too long or contains a control character.
    #[error("field \"agent_id\" of the agent definition is not a valid executor ID")]
    BadId(#[source] InvalidExecutor),
    /// The executor can never work on its store.
    #[error("the agent cannot work on its store")]
    Invalid(#[from] InvalidExecutor),
}

impl AgentError {
    /// Never: the definition, the registry or the store has to change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// Error that ends a run of an agent although its model and its tools work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentRunError {
    /// The model has no final answer, and the limit of turns is reached.
    #[error("the agent has no answer after {turns} turns, and may take no more")]
    TurnsUsedUp {
        /// Number of requests to the model.
        turns: u32,
    },
    /// The model has no final answer, and a budget is used up.
    #[error("the agent has no answer, and its budget of {limit} {budget} is used up")]
    BudgetUsedUp {
        /// `tokens`, `calls` or `seconds`.
        budget: &'static str,
        /// The budget.
        limit: u64,
    },
    /// The answer does not match the output schema of the definition, also after the model received the problem.
    #[error("the answer of the model is not the output that was asked for: {problem}")]
    BadOutput {
        /// The problem in the answer.
        problem: String,
        /// The answer of the model, truncated to 2,048 bytes.
        raw: String,
    },
    /// The agent ended abnormally: its provider reported an error, or a limit of its tool calls was exceeded.
    #[error("the agent broke down: {error}")]
    Broken {
        /// The message of the provider.
        error: String,
    },
    /// The conversation is larger than the state of a run may be.
    #[error("the conversation of the run takes {size} bytes where {limit} can be kept")]
    StateTooLarge {
        /// Its size in bytes.
        size: usize,
        /// Maximum size of a state in bytes.
        limit: usize,
    },
    /// An earlier attempt saved a state that this version of the crate cannot read.
    #[error("the saved state of the run cannot be read")]
    UnreadableState(#[source] serde_json::Error),
}

impl AgentRunError {
    /// A stable short name for logs, metrics and dead letters, without text of the conversation.
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

    /// Never: the run would come to the same end.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

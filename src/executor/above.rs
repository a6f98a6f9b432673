//! The errors of agents, models and tools. They stand below the layers that give them out, because a run has to know
//! them: `model.chat(&request).await?` in an `execute` is an error that says for itself whether to try again.

use super::check::InvalidExecutor;
use crate::error::{BoxError, Retry, permanent, retry_after};
use crate::model::DefinitionError;
use std::panic::Location;
use std::time::Duration;

/// An agent cannot be made of a definition.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A field of the definition is missing or of the wrong type.
    #[error("field {field:?} of the agent definition must be {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// The subscriptions of the definition cannot be used.
    #[error("the subscriptions of agent {agent:?} cannot be used")]
    Subscriptions {
        /// The agent.
        agent: String,
        /// What is wrong with them.
        source: DefinitionError,
    },
    /// The executor can never work on its store.
    #[error("the agent cannot work on its store")]
    Invalid(#[from] InvalidExecutor),
}

impl AgentError {
    /// Never: the definition or the store has to change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// A tool cannot be registered or made into an executor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The name is not one a request could ask for.
    #[error("{name:?} is no tool name; use 1 to 64 of a-z, 0-9, '.', '_' and '-'")]
    BadName {
        /// The name.
        name: String,
    },
    /// A schema of the tool is none, or none that is safe to check with.
    #[error("the {which} schema of tool {name:?} cannot be used: {reason}")]
    BadSchema {
        /// The tool.
        name: String,
        /// `input` or `output`.
        which: &'static str,
        /// Why.
        reason: String,
    },
    /// Two tools have one name.
    #[error("tool {name:?} is registered at {first} and again at {second}; rename one of them")]
    Duplicate {
        /// The name.
        name: String,
        /// Where it was registered first.
        first: &'static Location<'static>,
        /// Where it was registered again.
        second: &'static Location<'static>,
    },
    /// The definition is of another tool.
    #[error("the definition is of tool {defined:?}, the function is tool {name:?}")]
    OtherTool {
        /// The name in the definition.
        defined: String,
        /// The name of the function.
        name: String,
    },
    /// A field of the definition is missing or of the wrong type.
    #[error("field {field:?} of the tool definition must be {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// The subscriptions of the definition cannot be used.
    #[error("the subscriptions of tool {name:?} cannot be used")]
    Subscriptions {
        /// The tool.
        name: String,
        /// What is wrong with them.
        source: DefinitionError,
    },
    /// The executor can never work on its store.
    #[error("the tool cannot work on its store")]
    Invalid(#[from] InvalidExecutor),
}

impl ToolError {
    /// Never: the definition, the function or the store has to change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// Why a model gave no answer. Variants name what the caller can do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The model takes no more requests for now.
    #[error("the model is rate limited")]
    RateLimited {
        /// When it takes requests again.
        retry_after: Duration,
    },
    /// The model is overloaded or cannot be reached.
    #[error("the model is unavailable")]
    Unavailable(#[source] BoxError),
    /// The request is larger than what the model reads.
    #[error("the context is too long for the model")]
    ContextTooLong,
    /// The model will not answer this.
    #[error("the model refused: {reason}")]
    Refused {
        /// What it says.
        reason: String,
    },
    /// The key is missing, wrong or not allowed to do this.
    #[error("the model does not accept the credentials")]
    Unauthorized,
    /// The model was asked more often than its script has answers.
    #[error("the script has no answer number {number}")]
    ScriptEnded {
        /// The number of the request, from 1.
        number: usize,
    },
}

impl ModelError {
    /// Whether asking again could succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::RateLimited { retry_after } => Retry::After(*retry_after),
            Self::Unavailable(_) => Retry::After(Duration::ZERO),
            Self::ContextTooLong
            | Self::Refused { .. }
            | Self::Unauthorized
            | Self::ScriptEnded { .. } => Retry::Never,
        }
    }

    /// The error as `execute` returns it, marked with what the run shall do.
    #[must_use]
    pub fn marked(self) -> BoxError {
        match (&self, self.retry()) {
            (Self::RateLimited { retry_after: delay }, _) => retry_after(*delay, self),
            (_, Retry::Never) => permanent(self),
            (_, Retry::After(_)) => self.into(),
        }
    }
}

//! The errors of agents, models and tools. They stand below the layers that give them out, because a run has to know
//! them: `model.chat(&request).await?` in an `execute` is an error that says for itself whether to try again.

use super::check::InvalidExecutor;
use crate::error::{BoxError, Retry, permanent, retry_after};
use crate::model::{BreadcrumbId, DefinitionError, Place};
use std::panic::Location;
use std::path::PathBuf;
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
    /// A field of the definition does not exist: it is nearly a restriction, it is in an object of restrictions, or the definition
    /// is read in [strict](crate::model::DefinitionOptions::strict) mode.
    #[error("{place} of the agent definition: {problem}")]
    UnknownField {
        /// The path of the field in the context of the definition.
        place: Place,
        /// The name of the field and the nearest known fields.
        problem: String,
    },
    /// The subscriptions of the definition cannot be used.
    #[error("the subscriptions of agent {agent:?} cannot be used")]
    Subscriptions {
        /// The agent.
        agent: String,
        /// What is wrong with them.
        source: DefinitionError,
    },
    /// The definition names a tool that is not there.
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
        /// Why.
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

/// Why an agent gave up a run whose model and tools work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentRunError {
    /// The model wants to go on and may not be asked again.
    #[error("the agent has no answer after {turns} turns, and may take no more")]
    TurnsUsedUp {
        /// How often the model was asked.
        turns: u32,
    },
    /// The model wants to go on and has used up what it may.
    #[error("the agent has no answer, and its budget of {limit} {budget} is used up")]
    BudgetUsedUp {
        /// `tokens`, `calls` or `seconds`.
        budget: &'static str,
        /// How many it may use.
        limit: u64,
    },
    /// The answer is not what the definition asks for, also after the model was told what is wrong with it.
    #[error("the answer of the model is not the output that was asked for: {problem}")]
    BadOutput {
        /// What is wrong with it.
        problem: String,
        /// What the model wrote, cut after 2,048 bytes.
        raw: String,
    },
    /// The agent broke down: its provider says so, or a limit of the machine was passed.
    #[error("the agent broke down: {error}")]
    Broken {
        /// What is said of it.
        error: String,
    },
    /// What was said in the run takes more than a state may.
    #[error("the conversation of the run takes {size} bytes where {limit} can be kept")]
    StateTooLarge {
        /// Its size in bytes.
        size: usize,
        /// The most that is kept.
        limit: usize,
    },
    /// An earlier attempt saved what this version of the crate cannot read.
    #[error("the saved state of the run cannot be read")]
    UnreadableState(#[source] serde_json::Error),
}

impl AgentRunError {
    /// Never: the run would come to the same end.
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
    /// A field of the definition does not exist, and the definition is read in
    /// [strict](crate::model::DefinitionOptions::strict) mode.
    #[error("{place} of the tool definition: {problem}")]
    UnknownField {
        /// The path of the field in the context of the definition.
        place: Place,
        /// The name of the field and the nearest known fields.
        problem: String,
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
    /// The tool does its work in another service, which answers the requests for it.
    #[error(
        "tool {name:?} is served elsewhere; register it for those who call it, and make no executor of it"
    )]
    Elsewhere {
        /// The name.
        name: String,
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
///
/// No text in it has a key or a header. What a provider said of a request it rejected is in the source, cut short, with
/// the key taken out of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The model takes no more requests for now.
    #[error("the model is rate limited")]
    RateLimited {
        /// When it takes requests again.
        retry_after: Duration,
    },
    /// The model has too much to do.
    #[error("the model is overloaded")]
    Overloaded {
        /// When it may have less to do; zero if it does not say.
        retry_after: Duration,
    },
    /// The model failed, cannot be reached, or broke off in the middle.
    #[error("the model is unavailable")]
    Unavailable(#[source] BoxError),
    /// Nothing, or no more, came within the time it was given.
    #[error("the model took longer than it may to {to}")]
    TimedOut {
        /// What it was waited for.
        to: &'static str,
    },
    /// The request is larger than what the model reads.
    #[error("the context is too long for the model")]
    ContextTooLong,
    /// The model will not answer this, or the provider holds the answer back.
    #[error("the model refused: {reason}")]
    Refused {
        /// What it says.
        reason: String,
    },
    /// The key is missing, wrong or not allowed to do this.
    #[error("the model does not accept the credentials")]
    Unauthorized,
    /// The provider does not accept the request: no such model, an option or schema it does not know, no credit left.
    #[error("the provider rejects the request with status {status}")]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// What it said.
        source: BoxError,
    },
    /// The request asks for what the adapter to the provider has no way to ask it for.
    #[error("{provider} cannot be asked for {what}")]
    Unsupported {
        /// The provider.
        provider: &'static str,
        /// What the request asks for.
        what: &'static str,
    },
    /// What the provider sent is no answer.
    #[error("the answer of the model cannot be read: {problem}")]
    BadAnswer {
        /// What is wrong with it, without any of it.
        problem: String,
    },
    /// The answer is larger than what is read of one.
    #[error("{what} is over the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it may be.
        limit: usize,
    },
    /// An image or a file of a message cannot be read, or its content does not match the reference.
    #[error(
        "cannot read {path:?} of breadcrumb {breadcrumb} as {media_type:?} for the model: {reason}"
    )]
    Media {
        /// The breadcrumb.
        breadcrumb: BreadcrumbId,
        /// The path in its context.
        path: String,
        /// The media type.
        media_type: String,
        /// The reason.
        reason: String,
    },
    /// The model was asked more often than its script has answers.
    #[error("the script has no answer number {number}")]
    ScriptEnded {
        /// The number of the request, from 1.
        number: usize,
    },
    /// The recording has no answer to this request, or no further one.
    #[error("the recording has no answer to this: {difference}; record it again")]
    NotRecorded {
        /// What differs from the recorded request that is nearest.
        difference: String,
    },
    /// The file of a recording cannot be read or written.
    #[error("the recording {path:?} cannot be used")]
    Recording {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        source: BoxError,
    },
}

impl ModelError {
    /// Whether asking again could succeed. An answer that cannot be read may be better the next time; the run's attempts
    /// bound how often that is tried.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::RateLimited { retry_after } | Self::Overloaded { retry_after } => {
                Retry::after(*retry_after)
            }
            Self::Unavailable(_) | Self::TimedOut { .. } | Self::BadAnswer { .. } => {
                Retry::After(Duration::ZERO)
            }
            Self::ContextTooLong
            | Self::Refused { .. }
            | Self::Unauthorized
            | Self::Rejected { .. }
            | Self::Unsupported { .. }
            | Self::TooLarge { .. }
            | Self::Media { .. }
            | Self::ScriptEnded { .. }
            | Self::NotRecorded { .. }
            | Self::Recording { .. } => Retry::Never,
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

    /// A stable code for logs, without text of the conversation.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "rate_limited",
            Self::Overloaded { .. } => "overloaded",
            Self::Unavailable(_) => "unavailable",
            Self::TimedOut { .. } => "timeout",
            Self::ContextTooLong => "context_too_long",
            Self::Refused { .. } => "refused",
            Self::Unauthorized => "unauthorized",
            Self::Rejected { .. } => "rejected",
            Self::Unsupported { .. } => "unsupported",
            Self::BadAnswer { .. } => "bad_answer",
            Self::TooLarge { .. } => "too_large",
            Self::Media { .. } => "media",
            Self::ScriptEnded { .. } => "script_ended",
            Self::NotRecorded { .. } => "not_recorded",
            Self::Recording { .. } => "recording",
        }
    }

    pub(crate) fn bad_answer(problem: impl Into<String>) -> Self {
        Self::BadAnswer {
            problem: problem.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_asked_again_only_where_waiting_or_chance_can_help() {
        let soon = Duration::from_secs(3);
        let again = [
            (ModelError::RateLimited { retry_after: soon }, soon),
            (ModelError::Overloaded { retry_after: soon }, soon),
            (ModelError::Unavailable("503".into()), Duration::ZERO),
            (ModelError::TimedOut { to: "answer" }, Duration::ZERO),
            (ModelError::bad_answer("it is no JSON"), Duration::ZERO),
        ];
        let never = [
            ModelError::ContextTooLong,
            ModelError::Refused {
                reason: "no".into(),
            },
            ModelError::Unauthorized,
            ModelError::Rejected {
                status: 404,
                source: "no such model".into(),
            },
            ModelError::Unsupported {
                provider: "cohere",
                what: "calls of tools",
            },
            ModelError::TooLarge {
                what: "the answer in bytes",
                limit: 1,
            },
            ModelError::Media {
                breadcrumb: BreadcrumbId::NIL,
                path: "photo".into(),
                media_type: "image/png".into(),
                reason: "it has 1 bytes, the reference says 2".into(),
            },
            ModelError::ScriptEnded { number: 1 },
            ModelError::NotRecorded {
                difference: "nothing is recorded".into(),
            },
            ModelError::Recording {
                path: "a.jsonl".into(),
                source: "gone".into(),
            },
        ];

        for (error, delay) in again {
            assert_eq!(error.retry(), Retry::After(delay), "{error}");
        }
        for error in never {
            assert_eq!(error.retry(), Retry::Never, "{error}");
        }
    }
}

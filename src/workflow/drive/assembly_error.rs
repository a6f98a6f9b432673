use crate::agent::AgentError;
use crate::error::{Retry, excerpt};
use crate::model::nearest;
use crate::tool::ToolError;
use std::collections::BTreeMap;

/// A workflow names what it cannot have.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssemblyError {
    /// Something is not registered here.
    #[error("{what} {name:?} is not registered here{}", instead(nearest.as_deref(), known))]
    NotRegistered {
        /// What kind of thing: `tool`, `model`, `guardrail`.
        what: &'static str,
        /// The name found.
        name: String,
        /// The closest name that is registered.
        nearest: Option<String>,
        /// All that are registered.
        known: String,
    },
    /// A model is needed that nobody names, and none is the default.
    #[error("{what} {name:?} names no model, and no default model is registered here")]
    NoDefaultModel {
        /// `agent`, `model` or `compaction`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A step, or what sums up conversations, asks what only agents can have.
    #[error(
        "model {name:?} is asked by a step or for summaries, and is a provider for agents; register a model for it"
    )]
    NotForSteps {
        /// Its name in `models`.
        name: String,
    },
    /// There are schemas, and this build of the crate checks none.
    #[error(
        "the workflow has schemas, which are checked only with the feature \"validate\"; turn it on, or leave them out"
    )]
    NoValidation,
    /// A run of it may use up more than this service lets it.
    #[error(
        "policies.limits.{limit} is {found}, and at most {most} is let here; say less in the definition, or let more with \
         Services::limits"
    )]
    OverLimit {
        /// `steps`, `items`, `value_bytes` or `total_bytes`.
        limit: &'static str,
        /// What the definition says, or has by default.
        found: u64,
        /// The most that is let.
        most: u64,
    },
    /// A step writes a schema that decides what others do: requests, answers of people, definitions.
    #[error("a step emits {schema:?}, which no definition may write")]
    Protected {
        /// The schema.
        schema: String,
    },
    /// A tool that is served elsewhere is asked for by its name.
    #[error(
        "tool {tool:?} is served elsewhere, under that name; it cannot be called {name:?} here"
    )]
    CannotRename {
        /// The tool.
        tool: String,
        /// The name in the definition.
        name: String,
    },
    /// A tool cannot be used.
    #[error("tool {name:?} cannot be used")]
    Tool {
        /// Its name in `tools`.
        name: String,
        /// Why.
        source: Box<ToolError>,
    },
    /// An agent cannot be made.
    #[error("agent {name:?} cannot be made")]
    Agent {
        /// Its name in `agents`.
        name: String,
        /// Why.
        source: Box<AgentError>,
    },
}

impl AssemblyError {
    /// Always [`Retry::Never`]: the definition has to change, or what is registered.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// A name that is not among those that are registered.
pub(super) fn unknown<T>(
    what: &'static str,
    name: &str,
    known: &BTreeMap<String, T>,
) -> AssemblyError {
    not_registered(what, name, known.keys().map(String::as_str))
}

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
        None => format!("; there are: {known}"),
    }
}

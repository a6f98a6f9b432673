use crate::error::Retry;
use crate::executor::InvalidExecutor;
use crate::model::{DefinitionError, DefinitionPath};
use std::panic::Location;

/// Error of registering a tool, or of creating an executor for a tool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The tool name is invalid.
    #[error(
        "{name:?} is not a valid tool name; use 1 to 64 characters of a-z, 0-9, '.', '_' and '-'"
    )]
    BadName {
        /// The name, shortened to 80 bytes.
        name: String,
    },
    /// A schema of the tool is not a valid JSON Schema, or uses an unsupported or unsafe feature.
    #[error("the {which} schema of tool {name:?} cannot be used: {reason}")]
    BadSchema {
        /// The tool name.
        name: String,
        /// The kind of schema: `input` or `output`.
        which: &'static str,
        /// The reason.
        reason: String,
    },
    /// A field of the definition does not exist, and the definition is read in
    /// [strict](crate::model::DefinitionOptions::strict) mode.
    #[error("{path} of the tool definition: {problem}")]
    UnknownField {
        /// The path of the field in the context of the definition.
        path: DefinitionPath,
        /// The name of the field and the nearest known fields.
        problem: String,
    },
    /// Two tools have the same name.
    #[error("tool {name:?} is registered at {first} and again at {second}; rename one of them")]
    Duplicate {
        /// The name.
        name: String,
        /// Location of the first registration.
        first: &'static Location<'static>,
        /// Location of the second registration.
        second: &'static Location<'static>,
    },
    /// The tool is a [remote tool](super::remote_tool), which another service serves.
    #[error(
        "tool {name:?} is served by another service, so this service cannot serve it; register the tool only for its callers"
    )]
    Elsewhere {
        /// The name.
        name: String,
    },
    /// The definition is for another tool than the function.
    #[error(
        "the definition is for tool {defined:?}, but the function is tool {name:?}; use the same name"
    )]
    OtherTool {
        /// The name in the definition.
        defined: String,
        /// The tool name of the function.
        name: String,
    },
    /// A field of the definition is missing or of the wrong type.
    #[error("field {field:?} of the tool definition must be {expected}")]
    Field {
        /// The name of the field.
        field: &'static str,
        /// The expected type or value.
        expected: &'static str,
    },
    /// The subscriptions of the tool are invalid.
    #[error("the subscriptions of tool {name:?} are invalid")]
    Subscriptions {
        /// The tool name, or the executor ID of a [`ToolDispatcher`](super::ToolDispatcher).
        name: String,
        /// The problem of the subscriptions.
        source: DefinitionError,
    },
    /// The executor can never work on its store.
    #[error("the tool cannot work on its store")]
    Invalid(#[from] InvalidExecutor),
}

impl ToolError {
    /// Returns [`Retry::Never`]: the definition, the function or the store has to change.
    #[must_use]
    pub fn retry(&self) -> Retry {
        Retry::Never
    }
}

use crate::error::Retry;
use crate::executor::InvalidExecutor;
use crate::model::{DefinitionError, DefinitionPath};
use std::panic::Location;

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
    /// Two tools have one name.
    #[error("tool {name:?} is registered at {first} and again at {second}; rename one of them")]
    Duplicate {
        /// The name.
        name: String,
        /// Location of the first registration.
        first: &'static Location<'static>,
        /// Location of the second registration.
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
        /// The expected type or value.
        expected: &'static str,
    },
    /// The subscriptions of the definition cannot be used.
    #[error("the subscriptions of tool {name:?} cannot be used")]
    Subscriptions {
        /// The tool.
        name: String,
        /// The problem in the subscriptions.
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
